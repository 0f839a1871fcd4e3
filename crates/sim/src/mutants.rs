//! Planted bugs: each must be caught, or the simulator is broken.

use crate::generate::Shape;
use crate::guard::Factory;
use crate::oracle::Finding;
use crate::set::{SetOptions, run_seed};

/// A planted bug (`mutant!` of the rooms).
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Mutant {
    /// Name at its place in the code.
    pub name: &'static str,
    /// The system whose seeds catch it; `drive`: the whole stack on a drive.
    pub system: &'static str,
    /// What it does wrong.
    pub story: &'static str,
}

/// What became of one mutant.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// The seed that caught it, and what was found.
    pub caught: Option<(u64, Finding)>,
    /// Seeds tried.
    pub seeds: u64,
    /// Whether any run passed the place of the bug.
    pub reached: bool,
    /// Whether only seeds that are not wide were left to catch it.
    pub is_plain: bool,
}

/// The planted bugs of the rooms that seeds catch; a room that plants one adds a line. Those that they cannot see stand in
/// [`CAUGHT_ELSEWHERE`], each with the test that does, and in [`BEHIND_OTHERS`] where no test can: every `mutant!` of the rooms is in one
/// of the three (`crates/sim/tests/marks.rs`).
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "drives: a flush does nothing",
        system: "drive",
        story: "a flush is answered and no cache of the drive written",
    },
    Mutant {
        name: "drives: a flush that comes late joins the one under way",
        system: "drive",
        story: "who asks for a flush is told of one that began before",
    },
    Mutant {
        name: "shard: a channel leaves before its block states",
        system: "drive",
        story: "what a shard did on a lane is not in the log when the lane is another's",
    },
    Mutant {
        name: "vssd: changes that were sent count as durable",
        system: "drive",
        story: "a shard goes on before the first one has its block states in the log",
    },
    Mutant {
        name: "vssd: changes made while the log is written count as durable",
        system: "drive",
        story: "who waits for a change goes on when the write before it is durable",
    },
    Mutant {
        name: "shard: what is uncorrectable keeps a vSSD where it is",
        system: "drive",
        story: "a vSSD of which a host made blocks uncorrectable cannot be evacuated",
    },
    Mutant {
        name: "vssd: a channel that leaves brings no allocation sequence",
        system: "drive",
        story: "a pool that takes a channel gives blocks there sequences that others of them have",
    },
    Mutant {
        name: "log: a segment goes before an anchor has its notes",
        system: "drive",
        story: "a segment with nothing but notes goes, and after a cut nobody knows what they said",
    },
    Mutant {
        name: "vssd: changes of other pools are in the table only",
        system: "drive",
        story: "the log has no changes of other shards, but for each new table",
    },
    Mutant {
        name: "shard: block states of the first device only are sent",
        system: "drive",
        story: "the log of a second drive never hears of what other shards do there",
    },
    Mutant {
        name: "shard: parts of a vSSD that moved are not joined",
        system: "drive",
        story: "a vSSD with parts on several drives moves, and is served from one of them",
    },
    Mutant {
        name: "shard: what lies on a channel of the log visits others",
        system: "drive",
        story: "a group meets another one for an exchange on a channel that stays with the first shard, and cannot go home",
    },
    Mutant {
        name: "vssd: a header is not programmed",
        system: "drive",
        story: "an erase block on a drive does not say whose it is",
    },
    Mutant {
        name: "vssd: a flush is answered at once",
        system: "drive",
        story: "a flush is answered before the drive was asked for one",
    },
    Mutant {
        name: "vssd: the log of block states does not flush",
        system: "drive",
        story: "a block has an owner, and a cut takes that back",
    },
    Mutant {
        name: "log: what is programmed counts as durable",
        system: "drive",
        story: "what lies in the cache of a drive counts as durable",
    },
    Mutant {
        name: "log: a flush covers what came after it",
        system: "drive",
        story: "what was programmed while a flush was under way counts as durable when that is complete",
    },
    Mutant {
        name: "volume: what no flush covered is not looked at",
        system: "drive",
        story: "a start reads up to what flush notes say and no further",
    },
    Mutant {
        name: "catalog: a copy is not flushed",
        system: "drive",
        story: "what exists is answered before it is durable",
    },
    Mutant {
        name: "volume: force unit access is ignored",
        system: "drive",
        story: "a write with FUA is answered as any other",
    },
    Mutant {
        name: "log: a leaf does not wait for what it names",
        system: "drive",
        story: "a leaf of a map names what a cut takes",
    },
    Mutant {
        name: "log: a flush that is over stays due",
        system: "drive",
        story: "a store on a drive is called again and again until somebody writes",
    },
    Mutant {
        name: "drives: a block is written while it is discarded",
        system: "drive",
        story: "a discard that comes late takes what the next owner of a block wrote",
    },
    Mutant {
        name: "log: a flush is noted before it is complete",
        system: "drive",
        story: "a note says of a flush that is under way that it is complete",
    },
    Mutant {
        name: "log: a flush that failed counts",
        system: "drive",
        story: "what was programmed before a flush that failed counts as durable",
    },
    Mutant {
        name: "vssd: one part answers for all",
        system: "drive",
        story: "a flush of a vSSD with parts on several drives is answered when one of them has flushed",
    },
    Mutant {
        name: "shard: the oldest catalog counts",
        system: "drive",
        story: "a drive that was missing brings the catalog of before back",
    },
    Mutant {
        name: "shard: catalogs of several devices go on each from its own state",
        system: "drive",
        story: "a drive that was missing keeps the catalog of before",
    },
    Mutant {
        name: "vssd: headers are not counted",
        system: "drive",
        story: "what headers of erase blocks take is in no figure of what was written to a drive",
    },
    Mutant {
        name: "vssd: a purge erases nothing",
        system: "stack",
        story: "what a host had erased lies on flash until its block is used again",
    },
    Mutant {
        name: "log: slots are not cleared",
        system: "stack",
        story: "what a host had erased lies in protected memory until its slot is used again",
    },
    Mutant {
        name: "log: a purge leaves staging as it is",
        system: "stack",
        story: "a purge does not reach what waits in protected memory",
    },
    Mutant {
        name: "nvmf: a sanitize is not gone on with after a restart",
        system: "stack",
        story: "a sanitize that was answered stands still when the server comes back, and what it was to erase stays",
    },
    Mutant {
        name: "shard: sanitize operations are not restored",
        system: "stack",
        story: "a server that comes back has forgotten that a subsystem is being sanitized",
    },
    Mutant {
        name: "vssd: erases of a purge not counted",
        system: "stack",
        story: "blocks that a purge erased are taken for as worn as they were",
    },
    Mutant {
        name: "log: cleaner copy with a fresh sequence",
        system: "stack",
        story: "the cleaner's copy of an IU that was overwritten since it was read gets a newer place in the order, and wins \
                when the log is replayed",
    },
    Mutant {
        name: "shard: turns cost nothing",
        system: "stack",
        story: "whoever has commands waiting keeps the shard's core, and others starve beside it",
    },
    Mutant {
        name: "shard: a share of the core for each vSSD",
        system: "stack",
        story: "a tenant with two vSSDs gets twice as much of the shard's core as one with one",
    },
    Mutant {
        name: "shard: an application is a tenant of its own",
        system: "stack",
        story: "a tenant with an application at erase blocks beside its host gets twice as much of the shard's core as one without",
    },
    Mutant {
        name: "shard: members are not waited for",
        system: "stack",
        story: "an administrator is told that something is done while another shard still does it",
    },
    Mutant {
        name: "shard: answers of the medium stay behind",
        system: "stack",
        story: "what the medium answered while a tenant left its shard never reaches the tenant's store",
    },
    Mutant {
        name: "shard: a store rests at its new home",
        system: "stack",
        story: "a store that programmed little at once while its tenant left the shard goes on to do so",
    },
    Mutant {
        name: "shard: exchanges rest where a group left",
        system: "stack",
        story: "a shard that a tenant left exchanges nothing for even wear any more",
    },
    Mutant {
        name: "shard: old home keeps its subsystem",
        system: "stack",
        story: "the shard that a tenant left takes new connections of its hosts itself",
    },
    Mutant {
        name: "shard: entries of an application stay behind",
        system: "stack",
        story: "what an application had submitted while its vSSD left the shard is never answered",
    },
    Mutant {
        name: "nvmf: unread bytes stay behind",
        system: "stack",
        story: "what a host sent while its tenant left the shard is forgotten",
    },
    Mutant {
        name: "nvmf: hand-over forgets digests",
        system: "stack",
        story: "a connection reaches its home shard without what was agreed on it",
    },
    Mutant {
        name: "shard: ends of exchanges are not told to the first shard",
        system: "stack",
        story: "who keeps account of all channels takes vSSDs to be where they were before an exchange on another shard",
    },
    Mutant {
        name: "nvmf: aborted command goes on",
        system: "stack",
        story: "a command that the host was told is aborted is carried out",
    },
    Mutant {
        name: "nvmf: namespace change not told",
        system: "stack",
        story: "a host that asked to be told of namespaces hears nothing",
    },
    Mutant {
        name: "vssd: time of a die costs nothing",
        system: "stack",
        story: "the arbiter of a die forgets what it gave to whom",
    },
    Mutant {
        name: "volume: deallocate record lost",
        system: "stack",
        story: "a deallocation changes the map but not the log: deallocated data comes back after a crash",
    },
    Mutant {
        name: "volume: copies without originals undone",
        system: "stack",
        story: "a restart undoes copies of the cleaner although what they were made of is gone",
    },
    Mutant {
        name: "log: segment freed before copies durable",
        system: "stack",
        story: "erase blocks are given back before what the cleaner copied from them is durable",
    },
    Mutant {
        name: "log: slot released before programmed",
        system: "stack",
        story: "a staging slot is used again before its chunk is on flash",
    },
    Mutant {
        name: "log: staging not published",
        system: "stack",
        story: "acknowledged writes are in staging, but the word that makes them true is not stored",
    },
    Mutant {
        name: "log: torn chunk accepted",
        system: "stack",
        story: "recovery takes a chunk whose data a cut tore",
    },
    Mutant {
        name: "log: starved staging waits",
        system: "stack",
        story: "small staging fills up with chunks that only wait to become safe",
    },
    Mutant {
        name: "volume: records before the anchor replayed",
        system: "stack",
        story: "recovery replays what the leaves already have, and what undid it may be gone",
    },
    Mutant {
        name: "volume: anchor before its leaves",
        system: "stack",
        story: "an anchor names leaves that are not yet programmed",
    },
    Mutant {
        name: "vssd: copy committed half done",
        system: "stack",
        story: "a block that moves to another die is said to be there before all of its pages are",
    },
    Mutant {
        name: "vssd: moving block freed before its copy holds",
        system: "stack",
        story: "a block that moves is free at its old place before its copy is complete",
    },
    Mutant {
        name: "vssd: erases of a migration not counted",
        system: "stack",
        story: "what exchanges erase is not among the erases of the die",
    },
    Mutant {
        name: "vssd: blocks of an exchange crossed",
        system: "stack",
        story: "two tenants whose blocks change places get each other's",
    },
    Mutant {
        name: "vssd: append that waited goes to the old place",
        system: "stack",
        story: "a write that waited until its block had moved goes to where that was",
    },
    Mutant {
        name: "vssd: erase of a copy counted as another's",
        system: "stack",
        story: "an erase for an exchange is counted for another cause",
    },
    Mutant {
        name: "vssd: old place free under its reads",
        system: "stack",
        story: "the old place of a block that moved is free while reads of it are under way",
    },
    Mutant {
        name: "vssd: exchange finished in part",
        system: "stack",
        story: "the new places of a vSSD are not written down when its die's content arrived",
    },
    Mutant {
        name: "vssd: incomplete block wins",
        system: "stack",
        story: "after a cut a block that was not programmed to its end counts as if it were",
    },
    Mutant {
        name: "vssd: allocation not recorded",
        system: "stack",
        story: "a block is given to a tenant without a word in the journal",
    },
    Mutant {
        name: "vssd: free forgotten",
        system: "stack",
        story: "a freed block comes back to its holder after a crash",
    },
    Mutant {
        name: "vssd: erase before free durable",
        system: "stack",
        story: "a freed block is erased for its next holder before the journal knows that it was freed",
    },
    Mutant {
        name: "vssd: owner not checked",
        system: "stack",
        story: "after a restart a block goes to whichever vSSD shares the die, not to the one that held it",
    },
    Mutant {
        name: "volume: last IU of a deallocation kept",
        system: "stack",
        story: "the last IU of a deallocated range still reads",
    },
    Mutant { name: "namespace: compare always right", system: "stack", story: "a comparison never fails" },
    Mutant {
        name: "blockspace: written pages forgotten at an attach",
        system: "stack",
        story: "an application that attaches again is told to append from the start of blocks that hold something",
    },
    Mutant {
        name: "blockspace: block that was not named stays",
        system: "stack",
        story: "an erase block that its application did not name when it attached can still be read",
    },
    Mutant {
        name: "blockspace: append answered before its programs",
        system: "stack",
        story: "an application is told that an append is durable while it is being programmed",
    },
    Mutant {
        name: "shard: dead application's answers go to the next",
        system: "stack",
        story: "an application attaches while operations of its dead predecessor are under way, and gets their answers",
    },
    Mutant {
        name: "namespace: block skipped between pieces",
        system: "stack",
        story: "a deallocation of several pieces leaves a block out where one ends",
    },
    Mutant {
        name: "namespace: merged ranges end with the last one",
        system: "stack",
        story: "of ranges of a deallocation that overlap the one that begins last says where all end",
    },
    Mutant {
        name: "nvmf: event lost without a parked request",
        system: "stack",
        story: "a namespace changes while the host has no request for events with the controller, and it is never told",
    },
    Mutant {
        name: "volume: flush answered one sequence early",
        system: "stack",
        story: "a flush of a volatile cache is answered while the last record before it is still to be programmed",
    },
    Mutant {
        name: "vssd: weights inverted",
        system: "stack",
        story: "a vSSD of twice the weight gets half of a die's time",
    },
    Mutant {
        name: "shard: writes cost the same whatever their size",
        system: "stack",
        story: "whoever writes in large commands gets more of the shard's core",
    },
    Mutant {
        name: "vssd: newest allocation sequence used twice",
        system: "stack",
        story: "the first block allocated after a start has the number of the last one before it",
    },
    Mutant {
        name: "shard: changes of others are forgotten",
        system: "stack",
        story: "what one administrator changed is gone when another one's change, begun before, is written down",
    },
    Mutant {
        name: "log: room that came back is not seen",
        system: "stack",
        story: "a vSSD that found no room on its device's file system once takes no writes any more",
    },
    Mutant {
        name: "log: nobody looks for room that came back",
        system: "stack",
        story: "a vSSD that found no room on its device's file system takes no writes until somebody writes or deletes something",
    },
    Mutant {
        name: "emulator: completion before its sync",
        system: "stack",
        story: "a program on a device in a file is answered before a sync covers it",
    },
    Mutant {
        name: "emulator: sync covers what came after it began",
        system: "stack",
        story: "the end of a sync answers programs and erases that came while it was under way: what they replaced is erased and \
                used again before they are durable",
    },
    Mutant {
        name: "shard: a lost volume counts as new",
        system: "stack",
        story: "a volume whose store lost all its records is taken for one that was just made",
    },
    Mutant {
        name: "shard: a read-only vSSD is not told of",
        system: "stack",
        story: "a vSSD takes no writes any more, and nobody is told",
    },
    Mutant {
        name: "volume: repair done before its anchor",
        system: "stack",
        story: "an administrator is told that a loss is accepted before that is durable",
    },
    Mutant {
        name: "volume: deletion not replayed",
        system: "stack",
        story: "a volume that was deleted is back after a restart",
    },
    Mutant {
        name: "volume: flush answered early",
        system: "stack",
        story: "a flush of a volatile cache is answered at once",
    },
    Mutant {
        name: "nvmf: budget not given back",
        system: "stack",
        story: "what commands and connections held of the memory for connections stays taken",
    },
    Mutant {
        name: "nvmf: budget of a lost connection not given back",
        system: "stack",
        story: "a connection whose stream is gone takes its part of the memory with it",
    },
    Mutant {
        name: "nvmf: one queue takes all there is",
        system: "stack",
        story: "queues and hosts may hold all that is left for their subsystem, and the next one finds nothing",
    },
    Mutant {
        name: "nvmf: reserve of tenants not kept",
        system: "stack",
        story: "what a subsystem can count on is given to hosts of others",
    },
    Mutant {
        name: "nvmf: places of subsystems not kept",
        system: "stack",
        story: "hosts of one subsystem take all controllers",
    },
    Mutant {
        name: "nvmf: no data are read while a queue waits for memory",
        system: "stack",
        story: "a queue that waits for memory for its next command holds what it has for ever: the data for that are not read",
    },
    Mutant {
        name: "nvmf: data out of order",
        system: "stack",
        story: "data of a write are taken wherever the host says that they begin",
    },
    Mutant {
        name: "nvmf: data digest ignored",
        system: "stack",
        story: "data that were damaged on the way are written",
    },
    Mutant {
        name: "vssd: erase before journal",
        system: "stack",
        story: "a block is erased before the journal on flash knows who it was given to",
    },
    Mutant {
        name: "catalog: oldest frame wins",
        system: "stack",
        story: "after a crash the catalog's oldest state comes back",
    },
];

/// A planted bug that seeds do not show: its name, the file of the test that catches it, and why seeds do not.
pub type Elsewhere = (&'static str, &'static str, &'static str);

/// Planted bugs that tests of single rooms catch, and seeds cannot, or too seldom to count on.
#[rustfmt::skip]
pub const CAUGHT_ELSEWHERE: &[Elsewhere] = &[
    ("vssd: each part counts its allocations by itself", "crates/vssd/tests/joined.rs", "needs a block of a part whose allocations are older than those of another, and a start that compares them"),
    ("devices: both copies of a label are written before a flush", "crates/devices/tests/labels.rs", "nothing labels a drive in a seed"),
    ("devices: the newer copy of a label is overwritten first", "crates/devices/tests/labels.rs", "as the one before"),
    ("drives: a flush counts beside one that failed", "crates/drives/tests/on_a_model.rs", "needs two shards that flush one drive at once, and a flush that fails"),
    ("drives: views of one epoch are one", "crates/drives/src/pool.rs", "needs an opening with a part of the devices, a cut amid its labels, and one with another part: drives of seeds are all there"),
    ("drives: a flush that failed is asked again", "crates/drives/tests/on_a_model.rs", "few seeds have a flush that fails"),
    ("shard: what a vSSD shares is looked for on one device only", "crates/shard/src/ledger.rs", "few seeds have tenants of one shard that share a lane of a second drive"),
    ("shard: what hosts write while a vSSD moves is not copied again", "crates/shard/tests/evacuating.rs", "no vSSD moves to other devices in a seed"),
    ("shard: what is answered while a vSSD moves is not copied again", "crates/shard/src/flash/copying.rs", "as the one before"),
    ("shard: a vSSD moves while its hosts work", "crates/shard/tests/evacuating.rs", "as the one before"),
    ("shard: a vSSD moves before its copy is flushed", "crates/shard/tests/evacuating.rs", "as the one before"),
    ("shard: what is deallocated while a vSSD moves stays", "crates/shard/tests/evacuating.rs", "as the one before"),
    ("shard: what a device that comes or leaves has counts at once", "crates/shard/tests/growing.rs", "no device comes or leaves in a seed"),
    ("shard: a device joins without what the others have", "crates/shard/tests/growing.rs", "as the one before"),
    ("shard: a device leaves before the others have what it has", "crates/shard/tests/growing.rs", "as the one before"),
    ("shard: a device leaves with what lies on it", "crates/shard/tests/growing.rs", "as the one before"),
    ("shard: a change holds that one device has", "crates/shard/tests/several.rs", "needs a drive that hangs, and others that go on"),
    ("drives: a write pointer counts as flushed", "crates/drives/tests/on_zones.rs", "few seeds have zones, and few of these meet it"),
    ("drives: a zone has several writes under way", "crates/drives/tests/on_zones.rs", "few seeds have zones, and few of these meet it"),
    ("drives: a zone is programmed before its reset ends", "crates/drives/tests/on_zones.rs", "few seeds have zones, and few of these meet it"),
    ("drives: a zone of the catalog gives way", "crates/shard/tests/on_a_drive.rs", "few seeds have zones, and few of these meet it"),
    ("drives: a zone is discarded while it gives way", "crates/volume/tests/on_a_drive.rs", "few seeds have zones, and few of these meet it"),
    ("drives: a torn page shows when its zone is full", "crates/drives/tests/on_zones.rs", "few seeds have zones, and few of these meet it"),
    ("vssd: both copies of the block states share a flush", "crates/vssd/tests/two_copies.rs", "needs a table of several units, and a cut that takes the second one of both copies"),
    ("vssd: a freed block is discarded before its free is durable", "crates/vssd/tests/on_a_drive.rs", "a log frees what it needs no more, and looks at none of it when a cut undoes that"),
    ("vssd: a drive without a cache is not flushed", "crates/vssd/tests/on_a_drive.rs", "few seeds have drives without a cache that lose what they took"),
    ("drives: a read overtakes a program", "crates/drives/tests/on_a_model.rs", "logs read what was programmed before"),
    ("vssd: a header of another allocation counts", "crates/vssd/tests/on_a_drive.rs", "heads of chunks have nonces, too"),
    ("vssd: block states are read without a flush", "crates/vssd/tests/on_a_drive.rs", "needs a death of the process and then a cut that takes just these writes"),
    ("vssd: tables of two lives are one", "crates/vssd/tests/on_a_drive.rs", "as the one before"),
    ("log: the block that an anchor begins in goes when it ends in another one", "crates/volume/tests/model.rs", "anchors of seeds are small, and few of them lie on two erase blocks"),
    ("volume: the first unit that no flush covered is not looked at", "crates/volume/tests/model.rs", "few seeds have drives that show their dies and have a cache: elsewhere a head has its unit for itself"),
    ("volume: a generation that heads name is given again", "crates/volume/tests/model.rs", "needs a cut when the newest segment is gone and one before it, still open, has what lay there"),
    ("log: an anchor holds before its flush", "crates/volume/tests/model.rs", "seeds do not cut between an anchor and the flush that it came with"),
    ("volume: a hole before the durable units is an end", "crates/volume/tests/model.rs", "needs a drive that loses what it flushed"),
    ("log: heads of earlier owners count", "crates/volume/tests/model.rs", "needs a chunk of an earlier owner right behind the end of a segment"),
    ("log: units on a drive wait for those behind them", "crates/volume/tests/model.rs", "as the one before"),
    ("catalog: frames are read without a flush", "crates/catalog/tests/on_a_drive.rs", "needs a death of the process and then a cut that takes just these writes"),
    ("catalog: a frame counts at any place", "crates/catalog/tests/on_a_drive.rs", "as the one before"),
    ("remote: what was not flushed is not kept", "crates/remote/tests/against_target/main.rs", "drives of seeds are local"),
    ("remote: connections of before are not preempted", "crates/remote/tests/against_target/main.rs", "as the one before"),
    ("remote: a flush covers what was answered while it was under way", "crates/remote/tests/against_target/parts.rs", "as the one before"),
    ("remote: what is refused when it is repeated is forgotten", "crates/remote/tests/against_target/main.rs", "as the one before"),
    ("remote: connections beside are preempted", "crates/remote/tests/against_target/parts.rs", "as the one before"),
    ("remote: what a zone has is sent again", "crates/remote/tests/against_target/zones.rs", "as the one before"),
    ("remote: changes of zones are not kept", "crates/remote/tests/against_target/zones.rs", "as the one before"),
    ("remote: addresses of chunks have no holes", "crates/remote/tests/against_target/chunks.rs", "as the one before"),
    ("vssd: a flush of one pair of copies counts for the next one", "crates/vssd/tests/on_a_drive.rs", "needs an exchange on a drive that shows its dies and has a cache, and a cut between two programs"),
    ("vssd: copies are not flushed", "crates/vssd/tests/on_a_drive.rs", "drives that show their dies are in few seeds, and have a cache in a third of these"),
    ("blockfile: what was not copied is moved", "apps/blockfile/tests/copies.rs", "files of applications are no part of the simulator"),
    ("blockfile: a header of a run says that nothing follows", "apps/blockfile/tests/copies.rs", "as the one before"),
    ("blockfile: data of a batch are not checked", "apps/blockfile/tests/copies.rs", "as the one before"),
    ("emulator: block written before its erase is synced", "crates/emulator/tests/synced.rs", "what it leaves of writes that nobody was told of, the rooms above find by their checksums"),
    ("emulator: found content trusted before a sync", "crates/emulator/tests/synced.rs", "needs the death of the machine while a server starts after the death of one: devices of seeds start in one step"),
    ("emulator: record trusted without its content", "crates/emulator/tests/synced.rs", "as the one before"),
    ("log: filler is what a slot held before", "crates/shard/tests/purge.rs", "seeds look at what lies anywhere only where nothing moved and nothing failed"),
    ("zoned: slots are not cleared", "crates/shard/tests/purge.rs", "as the one before"),
    ("nvmf: a format erases nothing", "crates/nvmf/tests/copies.rs", "as the one before"),
    ("vssd: programs go behind erases", "crates/vssd/tests/sharing.rs", "the device of seeds cannot stop an erase"),
    ("log: chunks of idle handles wait for ever", "crates/volume/tests/handles.rs", "a store with one reclaim unit handle, as those of most seeds, has none that is idle"),
    ("log: cleaning without an end", "crates/sim/tests/placement.rs", "seeds with handles (`--placement`) see it, by themselves"),
    ("log: staged data take nothing of their reclaim unit", "crates/sim/tests/placement.rs", "as the one before"),
    ("nvmf: directives are not looked at", "crates/sim/tests/placement.rs", "as the one before"),
    ("volume: the first block of a write is not counted", "crates/sim/tests/placement.rs", "as the one before"),
    ("log: copies of isolated handles mix", "crates/sim/tests/placement.rs", "as the one before"),
    ("log: copies leave their reclaim group", "crates/sim/tests/placement.rs", "as the one before"),
    ("volume: a reclaim group takes more than it has room for", "crates/volume/tests/groups.rs", "groups of seeds have more room than their volumes fill"),
    ("log: ended reclaim unit goes on", "crates/volume/tests/handles.rs", "needs a reclaim unit that is looked at after its end"),
    ("log: staged chunks lose their handle", "crates/sim/tests/placement.rs", "seeds with handles (`--placement`) see it"),
    ("log: damaged store goes on cleaning", "crates/volume/tests/repair.rs", "needs a store that keeps a part of its records: seeds lose all of them or none"),
    ("log: identity of a page not compared", "crates/volume/tests/astray.rs", "no medium of the simulator gives another page than was asked for"),
    ("log: note at the anchor's sequence not renewed", "crates/volume/tests/notes.rs", "needs a deallocation of exactly the sequence that an anchor begins at, its segment cleaned before its leaf is written, and a restart then"),
    ("log: lives do not rise", "crates/volume/tests/formats.rs", "seeds write the format of before"),
    ("log: segments of both formats taken for new ones", "crates/volume/tests/formats.rs", "as the one before"),
    ("volume: new format before its anchor", "crates/volume/tests/formats.rs", "as the one before"),
    ("volume: chunks behind the end count", "crates/volume/tests/formats.rs", "as the one before"),
    ("volume: checks of old segments believed", "crates/volume/tests/formats.rs", "as the one before"),
    ("volume: leaf of another number taken", "crates/volume/tests/formats.rs", "as the one before"),
    ("log: rate of writers never rises", "crates/volume/tests/steady.rs", "stores of seeds are small, and other work wakes their writers before the clock: of 4,000 small writes of each tenant in the calm the slowest took up to 56 ms, with this bug 100 ms, and other runs without it 114 ms, so no bound tells them apart"),
    ("log: room comes and goes with anchors", "crates/volume/tests/steady.rs", "as the one before"),
    ("log: writers that wait are not woken", "crates/volume/tests/steady.rs", "as the one before"),
    ("log: writers stand still at the least room", "crates/log/src/writer/pace.rs", "stores of seeds keep away from the least room, also under 4,000 small writes of each tenant in the calm"),
    ("vssd: a busy die is always one's own fault", "crates/shard/tests/delays.rs", "what is told to administrators of slow commands is not compared with the truth by seeds"),
    ("shard: what a command waited for is not noted", "crates/shard/tests/delays.rs", "as the one before"),
    ("shard: slow commands are those of volumes", "crates/shard/tests/delays.rs", "as the one before"),
    ("shard: flash is blamed for a late server", "crates/shard/tests/delays.rs", "as the one before"),
    ("nvmf: no minimum window of latencies", "crates/nvmf/tests/ocp.rs", "hosts of seeds read no latency monitor; the model of `latency_monitor` does"),
    ("nvmf: static latency buckets stay active", "crates/nvmf/tests/ocp.rs", "as the one before"),
    ("shard: hosts are told of new flash for ever", "crates/shard/tests/smart.rs", "hosts of seeds read no SMART log"),
    ("shard: a grant takes no tokens of its QoS set", "crates/sim/tests/qos_sets.rs", "seeds with QoS sets (`--qos-sets`) see it"),
    ("shard: a QoS set that was changed has a full bucket", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: a grant takes no tokens of the device", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: each shard has all of a QoS set", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: the second rate of a QoS set has no end", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: the second state of a QoS set uses its tokens", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: what opens at a start is in no QoS set", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: who is in the second state goes first", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: commands do not wait for what a repair finds", "crates/sim/tests/qos_sets.rs", "as the one before"),
    ("shard: the second state does not wait for an idle moment", "crates/shard/src/admission/qos/test.rs", "a command that goes before its turn costs the others a few microseconds"),
    ("shard: a limit stays lifted", "crates/shard/tests/composition.rs", "vSSDs of seeds have no rate limits"),
    ("shard: an end waits for the rate limit", "crates/shard/tests/composition.rs", "as the one before"),
    ("shard: one request after the other", "crates/shard/tests/composition.rs", "the second administrator of seeds may wait for the first one a minute"),
    ("nvmf: a queue that is held loses its turn for memory", "crates/nvmf/tests/memory.rs", "it asks again when it is held no more: until then nobody knows that it waits, and those that keep memory are hung up on later"),
    ("nvmf: connect overtakes its controller", "crates/nvmf/tests/relocation.rs", "needs a tenant that changes its shard between two capsules of a host that connects: about one seed of 1,000"),
    ("nvmf: ready falls too early", "crates/nvmf/tests/associations.rs", "what a reset left in namespaces is done before its host, which waits for the controller, writes again: 800 runs of seeds reached it and saw nothing wrong"),
    ("nvmf: late write of an old association", "crates/nvmf/tests/associations.rs", "a host goes on when the target must know of the loss, and what the lost path had in namespaces is done before the next command has come"),
    ("nvmf: other paths overtake a lost one", "crates/nvmf/tests/associations.rs", "as the one before"),
    ("nvmf: capabilities of features not told", "crates/nvmf/tests/features.rs", "hosts of seeds ask for no features"),
    ("nvmf: zones that changed are not told", "crates/nvmf/tests/zones.rs", "hosts of seeds ask for no such events"),
    ("nvmf: a chunk notification is not told", "crates/nvmf/tests/chunks.rs", "as the one before"),
    ("nvmf: telemetry that was captured is not told", "crates/nvmf/tests/ocp.rs", "as the one before"),
    ("nvmf: warnings are kept from hosts", "crates/nvmf/tests/features.rs", "hosts of seeds set no thresholds"),
    ("namespace: copies overtake themselves", "crates/namespace/tests/against_a_model.rs", "copies of seeds are seldom larger than a piece and onto themselves"),
    ("volume: copy takes lost blocks for zeros", "crates/volume/tests/copies.rs", "hosts of seeds copy what is certain"),
    ("volume: record of uncorrectable blocks lost", "crates/volume/tests/model.rs", "seeds catch it, too"),
    ("volume: uncorrectable blocks not kept by the cleaner", "crates/volume/tests/model.rs", "needs the segment of the record cleaned before its leaf is written, and a restart then"),
    ("nvmf: preempted commands are not waited for", "crates/nvmf/tests/reservations.rs", "hosts of seeds have volumes of their own"),
    ("nvmf: reservations let everyone in", "crates/nvmf/tests/reservations.rs", "as the one before"),
    ("nvmf: reservations are answered before they are durable", "crates/nvmf/tests/reservations.rs", "as the one before"),
    ("nvmf: a sanitize overtakes writes", "crates/nvmf/tests/sanitize.rs", "hosts of seeds write nothing while they sanitize"),
    ("nvmf: a write whose data come late overtakes a sanitize", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: a namespace is formatted while it is sanitized", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: a sanitize that failed is completed", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: restricted failure is left", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: the end of a sanitize is not told", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: a sanitize is answered before it is durable", "crates/nvmf/tests/sanitize.rs", "as the one before"),
    ("nvmf: changes that come meanwhile are answered with the first", "crates/shard/tests/reserving_seeds.rs", "hosts of seeds have volumes of their own"),
    ("nvmf: events are enabled before that is durable", "crates/nvmf/tests/placement.rs", "hosts of seeds ask for no events of placement"),
    ("nvmf: events are kept as they come", "crates/nvmf/tests/placement.rs", "as the one before"),
    ("nvmf: events that wait are lost with a stop", "crates/nvmf/tests/placement.rs", "as the one before"),
    ("shard: events of placement are not restored", "crates/shard/tests/placement.rs", "as the one before"),
    ("shard: hosts do not read of panics of other shards", "crates/shard/tests/fallen.rs", "hosts of seeds do not ask for panics"),
    ("shard: what came before a shard served is forgotten", "crates/shard/tests/fallen.rs", "hosts of seeds that nobody answers come again"),
    ("shard: exchanges that ended with a shard that failed are waited for", "crates/sim/tests/alone.rs", "shards of most seeds do not fail, and an exchange seldom ends in the turn of a failure"),
    ("shard: steps that a shard lost are taken for done", "crates/sim/tests/alone.rs", "shards of most seeds do not fail, and an administrator seldom asks for something then"),
    ("shard: steps that a shard lost are answered by nobody", "crates/sim/tests/alone.rs", "as the one before"),
    ("nvmf: a sanitize is gone on with by all shards", "crates/shard/tests/sanitize.rs", "a server of a seed seldom goes again while it erases what it erased before"),
    ("shard: data of chunks are not seen", "crates/shard/tests/sanitize.rs", "needs a server that goes between a write and the catalog's record of it"),
    ("openchannel: what is offline is not cleared", "crates/shard/tests/sanitize.rs", "needs a die that does not answer"),
    ("openchannel: what is written is not cleared", "crates/openchannel/tests/model.rs", "hosts of seeds write nothing while they sanitize"),
    ("shard: namespaces go while sanitized", "crates/shard/tests/sanitize.rs", "administrators of seeds take nothing away meanwhile"),
    ("shard: reservations are not restored", "crates/shard/tests/reserving_seeds.rs", "hosts of seeds have volumes of their own"),
    ("nvmf: shutdown flushes no cache", "crates/nvmf/tests/associations.rs", "a power cut right after a shutdown is drawn too seldom; crates/sim/seeds/0022-shutdown-of-a-cache-planted.toml is a run that catches it"),
    ("nvmf: silent connections keep all places", "crates/nvmf/tests/memory.rs", "needs a host that comes again while silent ones hold all places: hosts of most seeds are connected before"),
    ("volume: blocks without marks given back", "crates/volume/tests/repair.rs", "needs a medium that forgets the marks of pages"),
    ("volume: copies of a deleted volume are left to the next one", "crates/volume/tests/restarts.rs", "needs a volume made in the place of one that the cleaner still copies, and a death between; seeds 0..50 have none"),
    ("volume: empty leaf not recorded", "crates/volume/tests/restarts.rs", "needs a leaf that becomes empty while its volume stays, and two starts; seeds 0..50 have none"),
    ("volume: moved chunk forgotten in an open group", "crates/volume/tests/model.rs", "needs volumes of several leaves, failed programs in number, and a cut between an anchor and the leaf that comes next"),
    ("volume: settled data taken for torn", "crates/volume/tests/repair.rs", "needs a read that fails for a while at a start"),
    ("volume: notes without an end", "crates/volume/tests/deallocations.rs", "seeds write fewer notes than are too many"),
    ("vssd: copies look once", "crates/vssd/tests/leveling.rs", "needs a place that reads otherwise each time"),
    ("vssd: erases keep the cleaner's turn", "crates/vssd/tests/classes.rs", "a host waits a little longer, and is told no lie"),
    ("vssd: lost page copied as good", "crates/vssd/tests/crash/mod.rs", "needs pages that cannot be read while their block moves"),
    ("vssd: lost pages read as good", "crates/vssd/tests/crash/mod.rs", "as the one before"),
    ("vssd: misdirected page trusted", "crates/vssd/tests/crosscheck.rs", "no medium of the simulator gives another page than was asked for"),
    ("vssd: pair changed without a record", "crates/vssd/src/wear/swap/test.rs", "needs a death between two stores to protected memory; seeds die between operations"),
    ("vssd: queued behind a failed program", "crates/vssd/tests/failed_program.rs", "needs several programs of a block in the queue of a die when one fails, and a cut before the rest are known; seeds 0..50 have none"),
    ("vssd: read-only forgotten", "crates/vssd/tests/crash/mod.rs", "needs a vSSD that is worn out: media of seeds have few failures"),
    ("vssd: sync answered at once", "crates/vssd/tests/crash/mod.rs", "needs a medium without protected memory, and a cut right after the answer; seeds 0..50 have none"),
    ("zoned: a copy that is not complete counts", "crates/zoned/tests/model.rs", "hosts of zones run as a system of their own"),
    ("zoned: a finished zone is not written down", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a zone begins behind its first unit", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a zone ends from its end", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a zone is filled up before its finish is durable", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a restart forgets random write areas", "crates/sim/src/zones/test.rs", "as the one before"),
    ("zoned: a commit is not written down", "crates/sim/src/zones/test.rs", "as the one before"),
    ("zoned: a write beyond its area commits nothing", "crates/sim/src/zones/test.rs", "as the one before"),
    ("zoned: what lies in a random write area counts as written", "crates/sim/src/zones/test.rs", "as the one before"),
    ("zoned: older blocks of a zone that ends stay", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: rows that no longer count stay", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: slots given back while a power cut can destroy the unit", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: the end of a copy is not staged", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: only the first row says whose a block is", "crates/zoned/tests/lost.rs", "as the one before"),
    ("zoned: rows that are lost do not count", "crates/zoned/tests/lost.rs", "as the one before"),
    ("zoned: write answered before it is durable", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: marks of a die's copy have the place of its source", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: marks of a die's copy have no checksums", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a die copies from the place that it copies to", "crates/zoned/tests/model.rs", "as the one before"),
    ("zoned: a copy takes what lies at its source by now", "crates/zoned/tests/copies.rs", "needs a zone that is reset and written again while a copy of it waits"),
    ("zoned: a copy takes another block of its source's column", "crates/zoned/tests/copies.rs", "needs a source that is lost and whose block is renewed while a copy of it waits"),
    ("zoned: what is written over a copy has its origin", "crates/zoned/tests/copies.rs", "needs a write over a unit that a copy put into a random write area"),
    ("vssd: a copy within a die does not hold its source", "crates/vssd/tests/within_dies.rs", "needs a source that is freed while a copy of it waits"),
    ("vssd: a copy within a die crosses to another", "crates/vssd/tests/within_dies.rs", "zones of seeds stay on their dies"),
    ("openchannel: a chunk stays open after a failed program", "crates/sim/src/openchannel/test.rs", "hosts of chunks run as a system of their own"),
    ("openchannel: a reset is answered before it is durable", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("openchannel: a torn row counts", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("openchannel: what failed has no bit", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("openchannel: a chunk is told of with each read", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("openchannel: an error rate outlives a reset", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("nvmf: entries go unread", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("nvmf: high ECC is told to all", "crates/sim/src/openchannel/test.rs", "as the one before"),
    ("openchannel: what is at risk can be read", "crates/openchannel/tests/model.rs", "hosts of seeds read what is certain"),
    ("openchannel: identity of a page not compared", "crates/openchannel/tests/model.rs", "no medium of the simulator gives another page than was asked for"),
    ("zoned: copies make wrong content right", "crates/zoned/tests/astray.rs", "no medium of the simulator gives another page than was asked for"),
    ("zoned: identity of a page not compared", "crates/zoned/tests/astray.rs", "as the one before"),
    ("zoned: slots are promised to more zones than they serve", "crates/zoned/tests/deep.rs", "hosts of the simulator have few commands under way"),
];

/// Planted bugs at checks that stand behind others: nothing goes wrong without them as long as those hold, so no test shows what they
/// are for. Name, and what stands before.
#[rustfmt::skip]
pub const BEHIND_OTHERS: &[(&str, &str)] = &[
    ("log: anchor closes segments that are not safe", "an anchor's sequence lies before all chunks that are not safe yet, so of such a segment only filler is left, which nobody walks into"),
    ("vssd: writes cost the same whatever their size", "volumes program one unit at a time, and shares of applications, which may append more, are not compared"),
];

/// What a bug must be caught as, where anything else would mean that a check below stands in for the oracle.
fn expected(name: &str) -> Option<Finding> {
    match name {
        "volume: deallocate record lost" => Some(Finding::Resurrected),
        "blockspace: append answered before its programs" => Some(Finding::LostAfterPowerCut),
        _ => None,
    }
}

/// The bugs of the model system: the check of the checkers.
pub fn model_mutants() -> Vec<Mutant> {
    crate::model::ALL_BUGS
        .into_iter()
        .map(|bug| Mutant {
            name: bug.name(),
            system: "model",
            story: "a promise that the model system breaks",
        })
        .collect()
}

/// Seeds that caught a bug when the list was last made: they are tried first, also where they are not among those asked for, which spares
/// most of a hunt. A wrong one costs a run and nothing else: whatever catches a bug is seen to do so. From the table that
/// `diecut-sim --system stack --mutants --seeds 0..400` prints, and the one with `--drive`.
#[rustfmt::skip]
const TRIED_FIRST: &[(&str, u64)] = &[
    ("vssd: a purge erases nothing", 12),
    ("log: slots are not cleared", 51),
    ("log: a purge leaves staging as it is", 51),
    ("nvmf: a sanitize is not gone on with after a restart", 8),
    ("shard: sanitize operations are not restored", 8),
    ("shard: turns cost nothing", 3),
    ("shard: a share of the core for each vSSD", 17),
    ("shard: an application is a tenant of its own", 60),
    ("shard: members are not waited for", 5),
    ("shard: answers of the medium stay behind", 63),
    ("shard: a store rests at its new home", 5),
    ("shard: exchanges rest where a group left", 5),
    ("shard: old home keeps its subsystem", 11),
    ("shard: entries of an application stay behind", 56),
    ("nvmf: unread bytes stay behind", 9),
    ("nvmf: hand-over forgets digests", 2),
    ("shard: ends of exchanges are not told to the first shard", 5),
    ("nvmf: aborted command goes on", 213),
    ("vssd: time of a die costs nothing", 55),
    ("volume: copies without originals undone", 5),
    ("log: torn chunk accepted", 1),
    ("log: starved staging waits", 32),
    ("volume: records before the anchor replayed", 4),
    ("volume: anchor before its leaves", 1),
    ("vssd: moving block freed before its copy holds", 5),
    ("vssd: append that waited goes to the old place", 5),
    ("vssd: old place free under its reads", 0),
    ("blockspace: written pages forgotten at an attach", 4),
    ("blockspace: block that was not named stays", 4),
    ("blockspace: append answered before its programs", 2),
    ("shard: dead application's answers go to the next", 4),
    ("volume: flush answered one sequence early", 28),
    ("vssd: weights inverted", 55),
    ("shard: writes cost the same whatever their size", 147),
    ("vssd: newest allocation sequence used twice", 2),
    ("log: room that came back is not seen", 6),
    ("log: nobody looks for room that came back", 22),
    ("emulator: completion before its sync", 4),
    ("emulator: sync covers what came after it began", 4),
    ("shard: a lost volume counts as new", 2),
    ("shard: a read-only vSSD is not told of", 2),
    ("volume: repair done before its anchor", 2),
    ("volume: flush answered early", 4),
    ("nvmf: one queue takes all there is", 120),
    ("nvmf: reserve of tenants not kept", 175),
    ("nvmf: places of subsystems not kept", 35),
    ("nvmf: no data are read while a queue waits for memory", 47),
    ("vssd: erase before journal", 4),
    ("drives: a flush that comes late joins the one under way", 4),
    ("shard: a channel leaves before its block states", 61),
    ("vssd: changes that were sent count as durable", 12),
    ("vssd: changes of other pools are in the table only", 12),
    ("vssd: changes made while the log is written count as durable", 203),
    ("vssd: a channel that leaves brings no allocation sequence", 201),
    ("shard: what is uncorrectable keeps a vSSD where it is", 343),
    ("log: a segment goes before an anchor has its notes", 200),
    ("volume: what no flush covered is not looked at", 3),
    ("log: a leaf does not wait for what it names", 2),
    ("log: a flush that is over stays due", 2),
    ("drives: a block is written while it is discarded", 8),
    ("log: a flush is noted before it is complete", 51),
    ("log: a flush that failed counts", 27),
    ("vssd: one part answers for all", 7),
    ("shard: block states of the first device only are sent", 104),
    ("shard: parts of a vSSD that moved are not joined", 254),
    ("shard: what lies on a channel of the log visits others", 382),
];

/// Looks for a seed that catches the mutant, among `seeds`.
pub fn hunt(mutant: &Mutant, seeds: std::ops::Range<u64>, shape: &Shape, factory: &dyn Factory) -> Verdict {
    let options = SetOptions { mutant: Some(mutant.name.to_owned()), ..SetOptions::default() };
    let mut verdict = Verdict { name: mutant.name, caught: None, seeds: 0, reached: false, is_plain: false };
    // Seeds from some number on have more in them than those that are asked for.
    let known = TRIED_FIRST.iter().filter(|(name, _)| *name == mutant.name);
    let known: Vec<u64> = known.map(|(_, seed)| *seed).collect();
    let others = seeds.filter(|seed| !known.contains(seed));
    for seed in known.iter().copied().chain(others) {
        let outcome = run_seed(seed, shape, factory, &options);
        verdict.seeds += 1;
        verdict.reached |= outcome.mutant_reached > 0;
        // A seed that never passed the planted bug failed for another reason.
        if let Some(violation) = outcome.violations.first()
            && outcome.mutant_reached > 0
            && expected(mutant.name).is_none_or(|expected| expected == violation.finding)
        {
            verdict.caught = Some((seed, violation.finding));
            return verdict;
        }
    }
    verdict
}
