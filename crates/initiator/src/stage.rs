//! Stages of bringing a controller up and down; each but a few is one command.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Connecting,
    Capabilities,
    Enable,
    AwaitReady,
    Controller,
    /// Which commands it takes, where chunks are of interest.
    Commands,
    NamespaceList,
    /// The number of the namespace in the list.
    Namespace(usize),
    /// The same: which command set it has.
    Descriptors(usize),
    /// The same: what its zones are.
    Zones(usize),
    /// The same: what its chunks are.
    Chunks(usize),
    Queues,
    /// What the controller says of its health.
    Health,
    Ready,
    /// A reset: EN goes to 0, RDY follows, and the bring-up comes again.
    Disable,
    AwaitNotReady,
    ShuttingDown,
    AwaitShutDown,
    Down,
}

impl Stage {
    /// Its command, in words; none of a stage that waits for the owner.
    pub fn words(self) -> Option<&'static str> {
        Some(match self {
            Stage::Capabilities => "Property Get of CAP",
            Stage::Enable => "Property Set of CC",
            Stage::Disable => "Property Set of CC",
            Stage::AwaitReady | Stage::AwaitNotReady => "Property Get of CSTS",
            Stage::Controller => "Identify Controller",
            Stage::Commands => "Get Log Page Commands Supported and Effects",
            Stage::NamespaceList => "Identify Active Namespace List",
            Stage::Namespace(_) => "Identify Namespace",
            Stage::Descriptors(_) => "Identify Namespace Identification Descriptor list",
            Stage::Zones(_) => "Identify I/O Command Set specific Namespace (zoned)",
            Stage::Chunks(_) => "Open-Channel Geometry",
            Stage::Queues => "Set Features Number of Queues",
            Stage::Health => "Get Log Page SMART / Health Information",
            Stage::ShuttingDown | Stage::AwaitShutDown => "shutdown",
            Stage::Connecting | Stage::Ready | Stage::Down => return None,
        })
    }
}
