//! Goal: a namespace of chunks (Open-Channel) is a drive with channels and dies. Method: the target that is shipped, over the model of a drive whose zones
//! are the chunks, which refuses writes that are not at a write pointer or no whole program units.

use crate::line::{Line, Under};
use crate::server::{Server, Storage, carry_out};
use diecut_drives::{DriveMedium, ShapeError, Zoning};
use diecut_emulator::drive::{Drive, DriveProfile, ZoneProfile};
use diecut_media::{DieTimes, IntentError, IntentWork, Media, Zone, ZoneCondition, ZoneDies, conformance};
use diecut_namespace::contract::{
    ChunkProperties, ChunkRefusal, ChunkRequest, ChunkShape, ChunkState, ChunkView, NamespaceCommand,
    NamespaceCompletion, NamespaceError, NamespaceOperation, ZoneOutcome,
};
use diecut_nvmf::NamespaceConfig;
use diecut_remote::{RemoteDrive, RemoteError};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::Driven;
use diecut_testing::planted::is_noticed;
use diecut_testing::target::{LBA_SIZE_BYTES as LBA, namespace};
use diecut_units::{Buffer, BufferMut, Time};
use std::cell::RefCell;
use std::rc::Rc;

/// Three groups, of which no number is a power of two: addresses have holes.
const SHAPE: ChunkShape =
    ChunkShape { groups: 3, units: 2, chunks: 11, unit_ius: 3, rows: 5, unsafe_units: 0 };
const CHUNK_BYTES: u64 = SHAPE.chunk_ius() as u64 * LBA as u64;
const CHUNKS: u64 = SHAPE.all_chunks() as u64;

/// The model of a drive as a namespace of chunks.
struct Chunked {
    drive: Drive,
    now: Time,
    shape: ChunkShape,
    /// Chunks that were open when the target died are closed.
    closes: bool,
    closed: Vec<bool>,
    /// Writes that were no whole program units.
    parts: u32,
}

impl Chunked {
    fn new(seed: u64, closes: bool) -> Chunked {
        let zones = ZoneProfile {
            size_bytes: CHUNK_BYTES,
            capacity_bytes: CHUNK_BYTES,
            conventional: 0,
            active_max: 0,
            unit_bytes: u64::from(SHAPE.unit_ius) * LBA as u64,
        };
        let profile = DriveProfile {
            zones: Some(zones),
            is_durable_at_once: true,
            ..DriveProfile::nvme(CHUNKS * CHUNK_BYTES)
        };
        let (drive, closed) = (Drive::new(profile, seed), vec![false; CHUNKS as usize]);
        Chunked { drive, now: Time::ZERO, shape: SHAPE, closes, closed, parts: 0 }
    }

    fn carry_out(&mut self, work: IntentWork) -> Result<Option<BufferMut>, NamespaceError> {
        let done = carry_out(&mut self.drive, &mut self.now, work);
        done.map_err(|_| NamespaceError::Chunk(ChunkRefusal::OutOfOrder))
    }

    /// The chunk of an address, and the byte of the drive.
    fn place(&self, lba: u64) -> (usize, u64) {
        let (chunk, block) = self.shape.split(lba).expect("an address of the namespace");
        (chunk.0 as usize, u64::from(chunk.0) * CHUNK_BYTES + u64::from(block) * LBA as u64)
    }

    fn report(&self, first: u32, count: u32) -> Vec<ChunkView> {
        let zones = self.drive.zones().into_iter().zip(&self.closed);
        let views = zones.skip(first as usize).take(count as usize).map(|(zone, is_closed)| ChunkView {
            state: match zone.condition {
                ZoneCondition::Empty => ChunkState::Free,
                ZoneCondition::Active if !is_closed => ChunkState::Open,
                ZoneCondition::Active | ZoneCondition::Full => ChunkState::Closed,
                _ => ChunkState::Offline,
            },
            wear: 0,
            written: ((zone.write_pointer - zone.offset) / LBA as u64) as u32,
        });
        views.collect()
    }
}

impl Storage for Chunked {
    fn config(&self) -> NamespaceConfig {
        let mut namespace = namespace(7, SHAPE.size_lbas());
        namespace.properties.transfer_max_lbas = 256;
        namespace.properties.capacity_lbas = CHUNKS * u64::from(SHAPE.chunk_ius());
        namespace.properties.chunks = Some(ChunkProperties {
            shape: self.shape,
            read_ns: 40_000,
            write_ns: 600_000,
            reset_ns: 3_000_000,
        });
        namespace
    }

    fn execute(&mut self, command: NamespaceCommand) -> NamespaceCompletion {
        let (mut content, mut zones) = (None, None);
        let done = match command.operation {
            NamespaceOperation::Read { range, destination } => {
                let offset = self.place(range.first_lba).1;
                self.carry_out(IntentWork::Read { offset, buffer: destination })
            }
            NamespaceOperation::Write { range, data, .. } => {
                let (chunk, offset) = self.place(range.first_lba);
                self.parts += u32::from(!range.lba_count.is_multiple_of(SHAPE.unit_ius));
                let parts = [data].into_iter().collect();
                match self.closed[chunk] {
                    true => Err(NamespaceError::Chunk(ChunkRefusal::OutOfOrder)),
                    false => self.carry_out(IntentWork::Write { offset, parts, handle: 0 }),
                }
            }
            NamespaceOperation::Flush => self.carry_out(IntentWork::Sync),
            NamespaceOperation::Chunk(ChunkRequest::Reset { lbas }) => {
                let (chunk, offset) = self.place(lbas.each().next().expect("one"));
                self.closed[chunk] = false;
                self.carry_out(IntentWork::ResetZone { offset, len_bytes: CHUNK_BYTES })
            }
            NamespaceOperation::Chunk(ChunkRequest::Report { first, count_max }) => {
                zones = Some(ZoneOutcome::Chunks(self.report(first, count_max)));
                Ok(None)
            }
            other => unreachable!("{other:?}"),
        };
        let result = done.map(|buffer| content = buffer.map(BufferMut::freeze));
        NamespaceCompletion { token: command.token, result, data: content, zones }
    }

    fn lose(&mut self, _random: &mut Random) {
        assert_eq!(
            (self.drive.zone_statistics().out_of_order, self.parts),
            (0, 0),
            "the drive refused writes"
        );
        self.drive.cut();
        if self.closes {
            let zones = self.drive.zones();
            self.closed = zones.iter().map(|zone| zone.condition == ZoneCondition::Active).collect();
        }
    }
}

type OnChunks = Driven<DriveMedium, Under>;

fn server(seed: u64, closes: bool) -> Rc<RefCell<Server>> {
    Rc::new(RefCell::new(Server::of(Box::new(Chunked::new(seed, closes)))))
}

fn zoning(line: &Line) -> Zoning {
    let zones = line.remote.facts().unwrap().zones.clone().unwrap();
    Zoning {
        zone_size_bytes: zones.zone_size_bytes,
        active_max: zones.active_max,
        open_max: zones.open_max,
        zones: zones.zones,
        dies: zones.dies,
    }
}

/// A medium on a namespace, whose chunks are asked for as a server does. It is flushed as if it had a cache, if others of its pool have one.
fn on(mut line: Line, flushes: bool) -> OnChunks {
    line.run(RemoteDrive::is_up);
    let facts = line.remote.facts().unwrap();
    assert_eq!((facts.size_bytes, facts.has_volatile_cache), (CHUNKS * CHUNK_BYTES, false));
    let zoning = zoning(&line);
    let shape = zoning.shape(None).unwrap();
    Driven::new(DriveMedium::zoned(shape, flushes, &zoning, 0), Under(line))
}

fn fresh(seed: u64) -> OnChunks {
    on(Line::new(&server(seed, false), 1, seed), false)
}

/// Goal: groups are channels, parallel units are dies, and a program unit is what is written at least; the first chunk of each die is no erase block.
#[test]
fn groups_are_channels() {
    let medium = fresh(1);
    let geometry = medium.geometry();
    assert_eq!((geometry.channels, geometry.dies_per_channel), (3, 2));
    assert_eq!((geometry.blocks_per_plane, geometry.pages_per_block), (10, 15));
    let capabilities = medium.capabilities();
    assert!(capabilities.independent_units && !capabilities.volatile_cache);
    assert_eq!((capabilities.program_unit_pages, capabilities.unsafe_units), (3, 0));
    let times =
        DieTimes { read_page_ns: 40_000, program_unit_ns: 600_000, erase_ns: 3_000_000, iu_transfer_ns: 0 };
    assert_eq!(capabilities.die_times, Some(times));
}

/// Goal: chunks keep the contract. Method: the suite.
#[test]
fn the_contract_holds() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        fresh(seed)
    });
}

fn random_work_over_cuts(seeds: std::ops::Range<u64>) {
    let mut cuts = 0;
    for seed in seeds {
        let mut medium = fresh(seed);
        (medium.io.0.cut_one_in, medium.io.0.crashes_in_ten) = (200, 5);
        medium.io.0.server.borrow_mut().slow_one_in = seed % 3 * 10;
        conformance::random_work(&mut medium, seed);
        cuts += medium.io.0.cuts;
        medium.io.0.server.borrow_mut().crash(&mut Random::of(seed));
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Goal: what was answered is there, although connections end and the target dies, and each write is whole program units at a write pointer. Method: random
/// work with an oracle.
#[test]
fn nothing_that_was_answered_is_lost_with_a_connection() {
    random_work_over_cuts(0..depth(20, 2_000));
}

#[test]
fn planted_bugs_are_noticed() {
    is_noticed("remote: what a zone has is sent again", || random_work_over_cuts(0..12));
    is_noticed("remote: addresses of chunks have no holes", || random_work_over_cuts(0..1));
}

/// Goal: what was programmed survives the death of this machine, and of the target.
#[test]
fn programs_survive() {
    for seed in 0..depth(8, 500) {
        let mut lives = 0;
        let first = on(Line::new(&server(seed, false), 1, seed), true);
        conformance::flushed_content_survives_cuts(first, seed, &mut |mut medium: OnChunks| {
            lives += 1;
            medium.io.0.close();
            medium.io.0.server.borrow_mut().crash(&mut Random::of(seed * 100 + lives));
            on(Line::new(&medium.io.0.server, 1, seed + lives), true)
        });
    }
}

fn zones(line: &Line) -> &[Zone] {
    &line.remote.facts().unwrap().zones.as_ref().unwrap().zones
}

fn written(line: &mut Line, chunk: u64, first: u64, lbas: usize, byte: u8) -> Result<(), IntentError> {
    let parts = [Buffer::copy_from(&vec![byte; lbas * LBA])].into_iter().collect();
    let offset = chunk * CHUNK_BYTES + first * LBA as u64;
    line.execute(IntentWork::Write { offset, parts, handle: 0 }).result
}

/// Goal: a chunk that the target closed holds what was answered, takes no writes, and keeps no flush from working; a reset makes it free.
#[test]
fn a_closed_chunk_holds_what_was_answered() {
    let mut line = Line::new(&server(1, true), 1, 1);
    line.run(RemoteDrive::is_up);
    assert_eq!(written(&mut line, 50, 0, 6, 1), Ok(()));
    assert_eq!(written(&mut line, 65, 0, 15, 2), Ok(()), "the last one, to its end");
    line.close();
    line.server.borrow_mut().crash(&mut Random::of(1));
    line.run(RemoteDrive::is_up);
    assert_eq!((zones(&line).len() as u64, zones(&line)[50].condition), (CHUNKS, ZoneCondition::Closed));
    assert_eq!(zones(&line)[50].write_pointer, 50 * CHUNK_BYTES + 6 * LBA as u64);
    assert_eq!(written(&mut line, 50, 6, 3, 2), Err(IntentError::Full));
    assert_eq!(line.execute(IntentWork::Sync).result, Ok(()));
    let buffer = BufferMut::copy_from(&[0xee; 6 * LBA]);
    let done = line.execute(IntentWork::Read { offset: 50 * CHUNK_BYTES, buffer });
    assert_eq!(done.buffer.unwrap()[..], [1; 6 * LBA]);
    let reset = IntentWork::ResetZone { offset: 50 * CHUNK_BYTES, len_bytes: CHUNK_BYTES };
    assert_eq!(line.execute(reset).result, Ok(()));
    assert_eq!(written(&mut line, 50, 0, 3, 2), Ok(()));
}

/// Goal: a connection that ends anywhere in a report, which goes over the admin queue, is survived.
#[test]
fn a_cut_in_a_report_is_survived() {
    for steps in 0..60 {
        let mut line = Line::new(&server(1, false), 1, steps);
        line.carry_steps(steps);
        line.close();
        line.run(RemoteDrive::is_up);
        assert_eq!(zones(&line).len() as u64, CHUNKS, "after {steps} steps");
        assert_eq!(written(&mut line, 2, 0, 3, 1), Ok(()));
    }
}

/// Goal: what a pool could not live with is refused, by what it is. Method: other channels, cells that are programmed apart.
#[test]
fn what_does_not_suit_is_refused() {
    let mut line = Line::new(&server(1, false), 1, 1);
    line.run(RemoteDrive::is_up);
    let zoning = zoning(&line);
    let asked = zoning.shape(Some(4)).unwrap_err();
    assert_eq!(asked, ShapeError::NotItsChannels { asked: 4, channels: 3 });
    let cached = ZoneDies { cached_pages: 6, ..zoning.dies.unwrap() };
    let cached = Zoning { dies: Some(cached), ..zoning.clone() }.shape(None).unwrap_err();
    assert_eq!(cached, ShapeError::CachedUnits { pages: 6 });
    let open = Zoning { open_max: 12, ..zoning.clone() }.shape(None).unwrap_err();
    assert_eq!(open, ShapeError::OpenChunks);
    let unit = ZoneDies { program_unit_pages: 4, ..zoning.dies.unwrap() };
    let unit = Zoning { dies: Some(unit), ..zoning }.shape(None).unwrap_err();
    assert_eq!(unit, ShapeError::ProgramUnit { pages: 15, unit: 4 });
}

/// Goal: chunks of another shape in their place are refused, by name.
#[test]
fn other_chunks_are_refused() {
    let server = server(1, false);
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    line.close();
    let mut other = Chunked::new(1, false);
    (other.shape.groups, other.shape.units) = (2, 3);
    server.borrow_mut().storage = Box::new(other);
    server.borrow_mut().begin();
    line.run(RemoteDrive::is_gone);
    assert!(matches!(line.remote.error(), Some(RemoteError::OtherNamespace { .. })));
    let said = line.remote.error().unwrap().to_string();
    assert!(
        said.contains("66 of 61440 on 2x3 dies") && said.contains("and was 66 of 61440 on 3x2"),
        "{said}"
    );
}
