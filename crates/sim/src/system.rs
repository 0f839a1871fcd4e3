//! The system under test as the runner sees it: hosts' commands in, answers out, time as a value. The whole
//! shard, the storage stack without a transport, and a small model system stand behind the same trait.

use crate::erasure::{Erase, Erasure};
use crate::existing::Existing;
use crate::oracle::Crash;
use crate::placed::Placed;
use crate::plan::{DriveHarm, Lane, Range, Siege};
use crate::tag::VolumeNumber;
use diecut_blockspace::LogicalBlock;
use diecut_shard::control::{ControlRequest, ControlResponse};
use diecut_shard::drive::{BlockAction, BlockEvent};
use diecut_units::{ContentMode, Time};
use std::collections::BTreeSet;

/// Chosen by the runner, returned with the answer; never used twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostToken(pub u64);

/// What a host asks. Data is in the content mode of the system.
#[derive(Clone, Debug)]
pub enum HostCommand {
    /// Reads.
    Read(Range),
    /// Writes; durable at completion with the flag.
    Write(Range, Vec<u8>, bool),
    /// Flushes a volume.
    Flush(VolumeNumber),
    /// Deallocates; [`ranges_of`] says with which ranges.
    Deallocate(Range),
    /// Writes zeroes; durable at completion with the flag.
    WriteZeroes(Range, bool),
    /// Compares.
    Compare(Range, Vec<u8>),
    /// Copies the range to where the second one begins; durable at completion with the flag. [`sources_of`] says in how many ranges.
    Copy(Range, Range, bool),
    /// Makes reads fail.
    WriteUncorrectable(Range),
    /// Checks readability.
    Verify(Range),
    /// About placement.
    Placed(Placed),
}

/// Why a command failed, as a host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The content differs.
    CompareFailure,
    /// Data was lost on the medium.
    Unrecovered,
    /// No space; nothing was written.
    Full,
    /// The host asked for that.
    Aborted,
    /// No writes any more.
    ReadOnly,
    /// The host's subsystem shows no such namespace (any more, or yet).
    NoNamespace,
    /// The subsystem is being sanitized.
    Sanitizing,
    /// What the namespace lies on does not answer at present.
    NotReady,
    /// The connection broke; whether the command took effect is unknown until the lane is connected again.
    ConnectionLost,
    /// Anything else.
    Other(String),
}

/// One answer.
#[derive(Clone, Debug)]
pub struct HostAnswer {
    /// Whose.
    pub lane: Lane,
    /// Token of the command.
    pub token: HostToken,
    /// Whether it worked; the content of a read.
    pub result: Result<Vec<u8>, HostError>,
}

/// Where every program and erase of the medium came from, since the medium was made or the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Accounting {
    /// IUs that hosts wrote.
    pub host_ius: u64,
    /// IUs programmed by cause: user data, cleaner copies, everything else.
    pub programmed_user_ius: u64,
    /// Cleaner copies.
    pub programmed_cleaner_ius: u64,
    /// Maps, summaries, anchors, padding, journals, catalog.
    pub programmed_metadata_ius: u64,
    /// Copies of blocks that change places for even wear.
    #[serde(default)]
    pub programmed_migration_ius: u64,
    /// IUs programmed as the chips counted them.
    pub chip_programmed_ius: u64,
    /// Erases as the system counted them.
    pub erases: u64,
    /// Erases as the chips counted them.
    pub chip_erases: u64,
}

/// What the medium went through since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Wear {
    /// IUs that the medium has pages for.
    pub raw_ius: u64,
    /// IUs programmed.
    pub programmed_ius: u64,
    /// IUs that cleaners moved.
    pub cleaned_ius: u64,
    /// Erases.
    pub erases: u64,
    /// Blocks that changed places for even wear.
    #[serde(default)]
    pub moved_blocks: u64,
    /// Exchanges of dies that came to their end.
    #[serde(default)]
    pub exchanges: u64,
}

/// The reclaim unit that an IU lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedUnit {
    /// Handle that it was opened for.
    pub handle: u16,
    /// Reclaim group that it belongs to.
    pub group: u16,
    /// The cleaner opened it.
    pub is_of_cleaner: bool,
}

/// What a host is told of an endurance group since the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementStatistics {
    /// Bytes that hosts wrote.
    pub host_written_bytes: u128,
    /// Bytes that were programmed.
    pub media_written_bytes: u128,
    /// Bytes that were erased.
    pub media_erased_bytes: u128,
}

/// A system in virtual time.
pub trait System {
    /// What stands for content.
    fn content_mode(&self) -> ContentMode;
    /// Largest transfer of one command in IUs.
    fn transfer_max_ius(&self) -> u32;
    /// Whether the lane's connection takes commands now.
    fn is_connected(&self, lane: Lane) -> bool;
    /// Issues a command on a connected lane.
    fn submit(&mut self, lane: Lane, token: HostToken, command: HostCommand, now: Time);
    /// Lets time pass until `now` and appends the answers in their order.
    fn advance(&mut self, now: Time, answers: &mut Vec<HostAnswer>);
    /// When something happens next; [`Time::NEVER`] if nothing will.
    fn next_event(&self) -> Time;
    /// Breaks the lane's connection at once; its host connects again by itself.
    fn disconnect(&mut self, lane: Lane, now: Time);
    /// The lane's host resets its controller as soon as it can; what is under way then ends as with a lost connection.
    fn reset(&mut self, lane: Lane, _now: Time) {
        panic!("lane {} cannot reset a controller of this system", lane.0);
    }
    /// The lane's host shuts its controller down and answers `token` when that is through; then it connects again.
    fn shut_down(&mut self, lane: Lane, _token: HostToken, _now: Time) {
        panic!("lane {} cannot shut a controller of this system down", lane.0);
    }
    /// The lane's host asks for some of its commands to be aborted.
    fn abort(&mut self, _lane: Lane) {}
    /// Namespaces that the lane's host knows of because it follows events, of each of its controllers; of none that it is looking
    /// at, or that is not connected.
    fn known_namespaces(&self, _lane: Lane) -> Vec<BTreeSet<u32>> {
        Vec::new()
    }
    /// From now on nothing gets through on the lane's connection, and nobody is told; its host gives it up in time and
    /// connects again.
    fn vanish(&mut self, lane: Lane, now: Time) {
        self.disconnect(lane, now);
    }
    /// Nothing of the lane's connection arrives until then, in either direction.
    fn silence(&mut self, lane: Lane, until: Time) {
        self.stall(lane, until);
    }
    /// The medium has no room for what has none yet until then.
    fn lose_room(&mut self, _until: Time) {}
    /// Something goes wrong with a drive under the system from now on.
    fn harm_drive(&mut self, harm: DriveHarm, _now: Time) {
        panic!("this system has no drives: {harm:?}");
    }
    /// The drives that the next start is given, in this order.
    fn give_drives(&mut self, _order: Vec<u16>) {}
    /// Why the system cannot open any more, where what lies under it lost or lied about what it needs, and it says so.
    fn told_loss(&self) -> Option<&str> {
        None
    }
    /// The lane's host neither reads nor writes its connection until then.
    fn stall(&mut self, lane: Lane, until: Time);
    /// The process dies, or the power goes, now.
    fn crash(&mut self, crash: Crash, now: Time);
    /// Whether the medium lost power by appointment; the runner then calls [`System::crash`] and restarts.
    fn power_is_lost(&self) -> bool;
    /// Whether a shard failed an inner check on purpose; the runner then calls [`System::crash`] and restarts, as for the death of a
    /// process.
    fn has_failed(&self) -> bool {
        false
    }
    /// Shards that failed one and began again by themselves, while the others went on.
    fn failed_alone(&self) -> u64 {
        0
    }
    /// Operations the medium began since it was made; power cuts by appointment count them.
    fn media_operations(&self) -> u64;
    /// Cuts the power while the medium's n-th operation (see [`System::media_operations`]) is under way.
    fn cut_power_at(&mut self, media_operation: u64);
    /// Starts again on the same medium; lanes connect by themselves as time passes.
    ///
    /// # Errors
    /// What recovery says when it cannot.
    fn restart(&mut self, now: Time) -> Result<(), String>;
    /// The next server has little memory for connections and few controllers.
    fn prepare_siege(&mut self) {}
    /// Hostile hosts come.
    fn begin_siege(&mut self, siege: &Siege, _now: Time) {
        panic!("a system without a network was attacked: {siege:?}");
    }
    /// Whether a visitor beside them has got what it came for, if there is one.
    fn siege_is_fair(&self) -> bool {
        true
    }
    /// Those that are left hang up.
    fn lift_siege(&mut self, _now: Time) {}
    /// The medium loses all records of a vSSD's store, between a crash and the restart.
    fn lose_store(&mut self, vssd: &str) {
        panic!("this system cannot lose the store of {vssd}");
    }
    /// Asks an administrator's request; one at a time.
    fn control(&mut self, request: ControlRequest, _now: Time) {
        panic!("a system without administrators was asked {request:?}");
    }
    /// The answer, when it came.
    fn take_control_answer(&mut self) -> Option<ControlResponse> {
        None
    }
    /// Tells of an application at erase blocks, from the next [`System::advance`] on.
    fn tell_blocks(&mut self, event: BlockEvent) {
        panic!("a system without erase blocks was told {event:?}");
    }
    /// What applications at erase blocks are told, in order.
    fn take_told(&mut self) -> Vec<BlockAction> {
        Vec::new()
    }
    /// Where a block of an application lies now, if the system tells: a number that differs when it moved.
    fn place_of_block(&self, _vssd: &str, _block: LogicalBlock) -> Option<u32> {
        None
    }
    /// What exists, if the system is open and tells.
    fn existing(&self) -> Option<Existing> {
        None
    }
    /// Whether nothing is under way: cleaner at rest, staging within bounds.
    fn is_at_rest(&self) -> bool;
    /// Where programs and erases came from, if the system tells.
    fn accounting(&self) -> Option<Accounting>;
    /// Names of vSSDs that take no writes because the medium has no room, by what they are and by what an operator was told.
    fn lacking_room(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
    /// Whether a lane's volumes promise more than what they are on holds, so that a write may find it full.
    fn may_be_full(&self, _lane: Lane) -> bool {
        false
    }
    /// Reads that each die of the medium did since it was made or opened, if there is one.
    fn reads_of_dies(&self) -> Option<Vec<u64>> {
        None
    }
    /// The reclaim unit that an IU of a volume lies in, if it holds data and its vSSD has handles.
    fn unit_of(&self, _volume: VolumeNumber, _iu: u64) -> Option<PlacedUnit> {
        None
    }
    /// Reclaim groups of the vSSD of a volume; nothing while its store is not open.
    fn reclaim_groups_of(&self, _volume: VolumeNumber) -> Option<u16> {
        None
    }
    /// The host of a lane reads what its subsystem says of its endurance group.
    fn ask_placement_statistics(&mut self, _lane: Lane) {}
    /// What it was told, if it could ask and was answered.
    fn placement_statistics(&self, _lane: Lane) -> Option<PlacementStatistics> {
        None
    }
    /// The host of a lane has something erased. Whether it can ask.
    fn ask_erase(&mut self, _lane: Lane, _what: Erase) -> bool {
        false
    }
    /// The erasure that it asked for last.
    fn erasure(&self, _lane: Lane) -> Option<&Erasure> {
        None
    }
    /// IUs of a volume, of any version, that lie anywhere on the medium or in protected memory, if the system can look.
    fn remains(&self, _volume: VolumeNumber) -> Option<u64> {
        None
    }
    /// IUs that all vSSDs but that of a lane programmed since the system started.
    fn programmed_beside(&self, _lane: Lane) -> u64 {
        0
    }
    /// What the medium went through, if there is one.
    fn wear(&self) -> Option<Wear> {
        None
    }
    /// What is wrong with how erases are divided among their causes, and with the erases that are known of each die.
    fn check_wear(&self) -> Vec<String> {
        Vec::new()
    }
    /// Hash over everything on the medium.
    fn image_hash(&self) -> u64;
    /// State in lines for people who look at a system that stands still.
    fn describe(&self) -> String {
        String::new()
    }
    /// Slow check of everything the system promises itself.
    ///
    /// # Panics
    /// If an inner promise is broken.
    fn check_invariants(&self);
}

/// Ranges that make up `range`, as a copy names them.
pub fn sources_of(range: Range) -> Vec<Range> {
    let parts = (range.first % 4) as u32 + 1;
    let length = range.count.div_ceil(parts);
    (0..range.count)
        .step_by(length as usize)
        .map(|at| Range { first: range.first + u64::from(at), count: length.min(range.count - at), ..range })
        .collect()
}

/// Ranges whose union is `range`, as a deallocation names them: by the range itself this is one, or many that overlap, repeat, touch,
/// or cover much of each other, in no order.
pub fn ranges_of(range: Range) -> Vec<Range> {
    let part = |first: u64, count: u32| Range { first: range.first + first, count, ..range };
    let (half, quarter) = (range.count / 2, range.count / 4);
    match (range.first + u64::from(range.count)) % 4 {
        _ if range.count < 4 => vec![range],
        0 => vec![range],
        // The smaller one comes behind the larger one that holds it.
        1 => vec![part(u64::from(quarter), half), range, part(u64::from(half), quarter)],
        2 => vec![
            part(u64::from(half), range.count - half),
            part(u64::from(half), 1),
            part(0, half),
            part(u64::from(quarter), half),
        ],
        _ => vec![range; 256],
    }
}
