//! The steps that jobs are made of.

use crate::ledger::Group;
use uuid::Uuid;

/// One step of an execution; asynchronous ones are repeated until they are done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Takes erase blocks for a vSSD and opens its store; fills the record's number, slot and size.
    AllocVssd { name: String },
    /// Waits until the block states of a vSSD that was made are durable.
    SyncVssd { name: String },
    /// Makes a volume in its store and waits until it is durable.
    CreateVolume { name: String },
    /// Writes the next state to the catalog and waits until it is durable. What follows cannot be refused any more.
    Persist,
    /// Opens the namespace of a volume.
    OpenNamespace { name: String },
    /// Everywhere: what is due to a tenant is as it is written down.
    ApplyTenant { name: String },
    /// Tells the target what a subsystem looks like now.
    ApplySubsystem { nqn: String },
    /// Takes a subsystem from the target and waits until its commands, which these vSSDs serve, came back.
    RemoveSubsystem { nqn: String, vssds: Vec<u32> },
    /// Waits until no command is under way in a namespace, and closes it.
    CloseNamespace { vssd: u32, namespace: u32 },
    /// Looks whether the store of a vSSD takes changes: what it could not delete must stay in the catalog.
    CanDelete { vssd: u32 },
    /// Deletes a volume from its store and waits until that is durable.
    DeleteVolume { vssd: u32, index: u16 },
    /// Closes a store and gives its erase blocks back.
    DeallocVssd { number: u32 },
    /// Waits until every store is flushed.
    FlushStores,
    /// Waits until all that hosts want to be kept is in the catalog.
    KeepForHosts,
    /// Opens the store of a vSSD again, and says what came of it.
    RepairVssd { name: String, accepts_loss: bool },
    /// Everywhere: a vSSD is fenced no more.
    Unfence { name: String },
    /// Everywhere: QoS sets are as they are written down.
    ApplyQosSets,
    /// Gives the pool the settings of even wear.
    ApplyWear,
    /// Looks at wear over all shards; what is due comes next.
    LevelWear,
    /// Everywhere: what lies on these pairs of dies changes places, where they are the shard's own. Done when that has begun.
    Exchange(Vec<[u32; 2]>),
    /// Everywhere: channels that nothing lies on any more go back to the first shard.
    ReturnChannels,
    /// Brings a tenant, and all that is tied to it, to another shard: the next three steps.
    MoveTenant { tenant: String, shard: u16 },
    /// At the old home: waits until nothing of the group is under way, and takes it out.
    Leave(Group),
    /// Puts the group in at its new home.
    Arrive(Group),
    /// Everywhere: connections of the group go to its new home, and new ones, too. Ends with the answer to the order of this
    /// number, when all have arrived.
    Release(Group, u64),
    /// A shard that failed opens its stores again ([`crate::rejoin`]).
    Reopen(u16),
    /// It serves its hosts.
    Readmit(u16),
    /// Everywhere: a device that was brought is opened, and given all that the others have ([`crate::steps::devices`]).
    TakeDevice(Uuid),
    /// It is one of the pool.
    JoinDevice(Uuid),
    /// A vSSD that was made elsewhere has the volumes of the one that moves ([`crate::steps::moving`]).
    MakeCopies { name: String },
    /// It has what these hold, and hosts are held back.
    CopyVssd { name: String },
    /// They go on there.
    SwitchVssd { name: String },
    /// Nothing more is given away on a device, and there is room elsewhere for what lies on it.
    DrainDevice(Uuid),
    /// It is one like others again.
    StayDevice(Uuid),
    /// Nothing more is given away on a device, and all others have all that it has.
    LeaveDevice(Uuid),
    /// Everywhere: it is forgotten.
    ForgetDevice(Uuid),
}

impl Step {
    /// Whether channels are on their way between shards while it is carried out.
    pub fn gives_channels(&self) -> bool {
        matches!(
            self,
            Step::AllocVssd { .. }
                | Step::DeallocVssd { .. }
                | Step::Leave(_)
                | Step::LevelWear
                | Step::ReturnChannels
        )
    }
}
