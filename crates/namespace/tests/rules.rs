//! Goal: every rule of the namespace contract, alone.
//! Method: commands by hand, a volume that is played by the test.

use diecut_namespace::contract::*;
use diecut_namespace::{
    Backing, MAP_PIECE_LBAS, MapRange, NamespaceDefinition, Namespaces, NullReads, Outputs, StoreIndex,
};
use diecut_units::{Buffer, BufferMut, BufferPool, ContentMode, Time};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeError, VolumeIndex, VolumeOperation};

const ID: NamespaceId = NamespaceId(3);

fn definition() -> NamespaceDefinition {
    NamespaceDefinition {
        size_lbas: 100,
        transfer_max_lbas: 16,
        content_mode: ContentMode::Bytes,
        volatile_cache: false,
        preferred_write_lbas: 1,
        read_only: false,
        zones: None,
        placement: None,
        chunks: None,
        erases: true,
    }
}

/// A volume whose whole map has to be looked at.
fn whole_pieces(_: MapRange) -> u64 {
    MAP_PIECE_LBAS
}

fn on_volume() -> Namespaces {
    let mut namespaces = Namespaces::new();
    namespaces.open(ID, definition(), Backing::Volume { store: StoreIndex(1), volume: VolumeIndex(2) });
    namespaces
}

fn command(operation: NamespaceOperation) -> NamespaceCommand {
    NamespaceCommand {
        token: CommandToken(7),
        namespace: ID,
        source: SourceId(5),
        arrived: Time(100),
        operation,
    }
}

fn range(first_lba: u64, lba_count: u32) -> LbaRange {
    LbaRange { first_lba, lba_count }
}

fn read(first_lba: u64, lba_count: u32) -> NamespaceOperation {
    let destination = BufferMut::copy_from(&vec![0xee; lba_count as usize * 4096]);
    NamespaceOperation::Read { range: range(first_lba, lba_count), destination }
}

fn refused(namespaces: &mut Namespaces, operation: NamespaceOperation) -> NamespaceError {
    let mut outputs = Outputs::default();
    namespaces.submit(command(operation), Time(200), &mut outputs, &mut whole_pieces);
    assert!(outputs.volume_commands.is_empty(), "a refused command reaches no volume");
    assert_eq!(outputs.finished.len(), 1);
    outputs.finished.remove(0).completion.result.unwrap_err()
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let mut namespaces = on_volume();
    let beyond = NamespaceError::LbaOutOfRange { size_lbas: 100 };
    assert_eq!(refused(&mut namespaces, read(100, 1)), beyond);
    assert_eq!(refused(&mut namespaces, read(99, 2)), beyond);
    assert_eq!(refused(&mut namespaces, read(u64::MAX, 2)), beyond);
    let ranges = [range(0, 1), range(98, 3)].into_iter().collect();
    assert_eq!(refused(&mut namespaces, NamespaceOperation::Deallocate { ranges }), beyond);
    let zeroes = NamespaceOperation::WriteZeroes {
        range: range(90, 11),
        may_deallocate: true,
        force_unit_access: false,
    };
    assert_eq!(refused(&mut namespaces, zeroes), beyond);
    let mut outputs = Outputs::default();
    namespaces.submit(command(read(99, 1)), Time(200), &mut outputs, &mut whole_pieces);
    assert_eq!(outputs.volume_commands.len(), 1, "the last block can be read");
}

#[test]
fn lengths_and_transfers_are_checked() {
    let mut namespaces = on_volume();
    assert!(matches!(refused(&mut namespaces, read(0, 17)), NamespaceError::InvalidField { .. }));
    assert!(matches!(refused(&mut namespaces, read(0, 0)), NamespaceError::InvalidField { .. }));
    let short = NamespaceOperation::Write {
        range: range(0, 2),
        data: Buffer::copy_from(&[1; 4096]),
        force_unit_access: false,
        placement: PlacementTarget::default(),
    };
    assert!(matches!(refused(&mut namespaces, short), NamespaceError::InvalidField { .. }));
}

#[test]
fn a_deallocation_is_answered_when_its_last_range_is_with_the_first_error() {
    let mut namespaces = on_volume();
    let mut outputs = Outputs::default();
    let ranges = [range(0, 4), range(9, 0), range(50, 2)].into_iter().collect();
    let rest = namespaces.submit(
        command(NamespaceOperation::Deallocate { ranges }),
        Time(200),
        &mut outputs,
        &mut whole_pieces,
    );
    assert!(!namespaces.go_on(rest.expect("one range is left"), Time(200), &mut outputs, &mut whole_pieces));
    let commands: Vec<_> = outputs.volume_commands.drain(..).map(|(_, command)| command).collect();
    let shapes: Vec<_> = commands
        .iter()
        .map(|command| match command.operation {
            VolumeOperation::Deallocate { first_iu, iu_count } => (first_iu, iu_count),
            _ => panic!("{command:?}"),
        })
        .collect();
    assert_eq!(shapes, [(0, 4), (50, 2)], "in the host's order, without the empty one");
    let answer = |result| VolumeCompletion { token: commands[0].token, result, destination: None };
    outputs.finished.extend(namespaces.complete(answer(Err(VolumeError::Full)), Time(300)));
    assert!(outputs.finished.is_empty() && !namespaces.is_idle(ID));
    outputs.finished.extend(namespaces.complete(answer(Ok(())), Time(300)));
    assert_eq!(outputs.finished[0].completion.result, Err(NamespaceError::CapacityExceeded));
    assert_eq!(outputs.finished[0].source, SourceId(5));
    assert!(namespaces.is_idle(ID));
    assert_eq!(namespaces.statistics(ID).unwrap().deallocations.failed, 1);
}

fn large_write(lba_count: u32) -> NamespaceOperation {
    let data = Buffer::copy_from(&vec![1; lba_count as usize * 4096]);
    NamespaceOperation::Write {
        range: range(0, lba_count),
        data,
        force_unit_access: true,
        placement: PlacementTarget::default(),
    }
}

fn on_large_volume() -> Namespaces {
    let mut namespaces = Namespaces::new();
    let backing = Backing::Volume { store: StoreIndex(1), volume: VolumeIndex(2) };
    namespaces.open(ID, NamespaceDefinition { transfer_max_lbas: 80, ..definition() }, backing);
    namespaces
}

#[test]
fn a_large_write_goes_in_pieces_and_is_answered_after_the_last() {
    let mut namespaces = on_large_volume();
    let mut outputs = Outputs::default();
    let rest = namespaces
        .submit(command(large_write(40)), Time(200), &mut outputs, &mut whole_pieces)
        .expect("more is left");
    let mut shapes = Vec::new();
    let mut answer = |namespaces: &mut Namespaces, outputs: &mut Outputs| {
        let (_, piece) = outputs.volume_commands.remove(0);
        let VolumeOperation::Write { first_iu, payload, force_unit_access, .. } = piece.operation else {
            panic!()
        };
        assert!(force_unit_access, "each piece is as durable as the whole");
        shapes.push((first_iu, payload.iu_count()));
        let token = piece.token;
        outputs.finished.extend(
            namespaces.complete(VolumeCompletion { token, result: Ok(()), destination: None }, Time(300)),
        );
    };
    answer(&mut namespaces, &mut outputs);
    assert!(outputs.finished.is_empty(), "all pieces that were given are answered, but not all were given");
    assert!(namespaces.go_on(rest, Time(300), &mut outputs, &mut whole_pieces));
    assert!(!namespaces.go_on(rest, Time(300), &mut outputs, &mut whole_pieces));
    answer(&mut namespaces, &mut outputs);
    assert!(outputs.finished.is_empty());
    answer(&mut namespaces, &mut outputs);
    assert_eq!(outputs.finished[0].completion.result, Ok(()));
    assert_eq!(shapes, [(0, 16), (16, 16), (32, 8)]);
    let writes = namespaces.statistics(ID).unwrap().writes;
    assert_eq!((writes.completed, writes.lbas), (1, 40), "it is one command");
}

#[test]
fn a_command_whose_piece_failed_does_not_go_on() {
    let mut namespaces = on_large_volume();
    let mut outputs = Outputs::default();
    for operation in [large_write(40), read(0, 80)] {
        let rest = namespaces
            .submit(command(operation), Time(200), &mut outputs, &mut whole_pieces)
            .expect("more is left");
        let (_, piece) = outputs.volume_commands.remove(0);
        let token = piece.token;
        drop(piece);
        let result = Err(VolumeError::Unrecovered { iu: 3 });
        outputs
            .finished
            .extend(namespaces.complete(VolumeCompletion { token, result, destination: None }, Time(300)));
        assert!(outputs.finished.is_empty(), "it is answered where it would have gone on");
        assert!(!namespaces.go_on(rest, Time(300), &mut outputs, &mut whole_pieces));
        assert!(outputs.volume_commands.is_empty());
        let finished = outputs.finished.remove(0).completion;
        assert_eq!(finished.result, Err(NamespaceError::Unrecovered { lba: 3 }));
        assert!(namespaces.is_idle(ID) && finished.data.is_none());
    }
}

#[test]
fn writes_are_kept_whole_where_a_volume_may_be_full() {
    let mut namespaces = on_large_volume();
    namespaces.set_whole_writes(ID, true);
    let mut outputs = Outputs::default();
    assert_eq!(namespaces.submit(command(large_write(40)), Time(200), &mut outputs, &mut whole_pieces), None);
    assert_eq!(outputs.volume_commands.len(), 1);
    assert!(
        namespaces.submit(command(read(0, 40)), Time(200), &mut outputs, &mut whole_pieces).is_some(),
        "reads are cut"
    );
}

#[test]
fn a_deallocation_of_nothing_is_done_at_once() {
    let mut namespaces = on_volume();
    let mut outputs = Outputs::default();
    let ranges = [range(9, 0)].into_iter().collect();
    namespaces.submit(
        command(NamespaceOperation::Deallocate { ranges }),
        Time(200),
        &mut outputs,
        &mut whole_pieces,
    );
    assert_eq!(outputs.finished[0].completion.result, Ok(()));
    assert!(namespaces.is_idle(ID));
}

#[test]
fn a_read_only_namespace_reads_but_does_not_write() {
    let mut namespaces = on_volume();
    namespaces.set_read_only(ID, Some("worn out"));
    let write = NamespaceOperation::Write {
        range: range(0, 1),
        data: Buffer::copy_from(&[1; 4096]),
        force_unit_access: false,
        placement: PlacementTarget::default(),
    };
    let zeroes = NamespaceOperation::WriteZeroes {
        range: range(0, 1),
        may_deallocate: true,
        force_unit_access: false,
    };
    let deallocate = NamespaceOperation::Deallocate { ranges: [range(0, 1)].into_iter().collect() };
    for change in [write, zeroes, deallocate] {
        assert_eq!(refused(&mut namespaces, change), NamespaceError::ReadOnly { reason: "worn out" });
    }
    assert!(namespaces.properties(ID).unwrap().read_only);
    let mut outputs = Outputs::default();
    namespaces.submit(command(read(0, 1)), Time(200), &mut outputs, &mut whole_pieces);
    namespaces.submit(command(NamespaceOperation::Flush), Time(200), &mut outputs, &mut whole_pieces);
    assert_eq!(outputs.volume_commands.len(), 2);
}

#[test]
fn a_closing_namespace_finishes_what_is_under_way_and_takes_nothing_new() {
    let mut namespaces = on_volume();
    let mut outputs = Outputs::default();
    namespaces.submit(command(read(0, 1)), Time(200), &mut outputs, &mut whole_pieces);
    namespaces.begin_close(ID);
    assert_eq!(refused(&mut namespaces, read(1, 1)), NamespaceError::NoSuchNamespace);
    let (_, volume_command) = outputs.volume_commands.remove(0);
    let VolumeOperation::Read { destination, .. } = volume_command.operation else { panic!() };
    outputs.finished.extend(namespaces.complete(
        VolumeCompletion { token: volume_command.token, result: Ok(()), destination: Some(destination) },
        Time(350),
    ));
    assert_eq!(outputs.finished[0].completion.data.as_ref().unwrap().len(), 4096);
    let latency = namespaces.statistics(ID).unwrap().read_latency();
    assert!((248..=252).contains(&latency.p50_ns), "from arrival at 100 to 350: {latency:?}");
    assert!(namespaces.is_idle(ID));
    namespaces.close(ID);
    assert_eq!(refused(&mut namespaces, read(1, 1)), NamespaceError::NoSuchNamespace);
}

#[test]
fn compare_reads_and_compares() {
    let mut namespaces = on_volume();
    for (content, expected) in [(1, Ok(())), (2, Err(NamespaceError::CompareFailure))] {
        let mut outputs = Outputs::default();
        let data = Buffer::copy_from(&[1; 8192]);
        namespaces.submit(
            command(NamespaceOperation::Compare { range: range(4, 2), data }),
            Time(200),
            &mut outputs,
            &mut whole_pieces,
        );
        let (store, volume_command) = outputs.volume_commands.remove(0);
        assert_eq!((store, volume_command.volume), (StoreIndex(1), VolumeIndex(2)));
        let VolumeOperation::Read { first_iu: 4, iu_count: 2, mut destination } = volume_command.operation
        else {
            panic!()
        };
        destination.fill(1);
        destination[8191] = content;
        outputs.finished.extend(namespaces.complete(
            VolumeCompletion { token: volume_command.token, result: Ok(()), destination: Some(destination) },
            Time(300),
        ));
        assert_eq!(outputs.finished[0].completion.result, expected);
        assert!(outputs.finished[0].completion.data.is_none(), "a compare gives no content away");
    }
}

#[test]
fn a_lost_block_is_named_and_counted() {
    let mut namespaces = on_volume();
    let mut outputs = Outputs::default();
    namespaces.submit(command(read(40, 8)), Time(200), &mut outputs, &mut whole_pieces);
    let token = outputs.volume_commands[0].1.token;
    let result = Err(VolumeError::Unrecovered { iu: 43 });
    outputs
        .finished
        .extend(namespaces.complete(VolumeCompletion { token, result, destination: None }, Time(300)));
    assert_eq!(outputs.finished[0].completion.result, Err(NamespaceError::Unrecovered { lba: 43 }));
    assert_eq!(namespaces.statistics(ID).unwrap().media_errors, 1);
}

#[test]
fn a_null_namespace_answers_at_once_and_never_shows_foreign_bytes() {
    let mut pool = BufferPool::new();
    for reads in [NullReads::SharedZeros, NullReads::FilledZeros] {
        let mut namespaces = Namespaces::new();
        namespaces.open(ID, definition(), Backing::Null { reads });
        let mut secret = pool.take(4096);
        secret.fill(0x5e);
        drop(secret);
        let mut outputs = Outputs::default();
        let destination = pool.take(4096);
        assert_eq!(destination[0], 0x5e, "the pool hands out used bytes");
        namespaces.submit(
            command(NamespaceOperation::Read { range: range(0, 1), destination }),
            Time(200),
            &mut outputs,
            &mut whole_pieces,
        );
        let data = outputs.finished[0].completion.data.as_ref().unwrap();
        assert!(data.len() == 4096 && data.iter().all(|&byte| byte == 0));
        assert_eq!(refused(&mut namespaces, read(100, 1)), NamespaceError::LbaOutOfRange { size_lbas: 100 });
    }
}

#[test]
#[should_panic(expected = "comes back once")]
fn a_volume_that_answers_twice_is_our_bug() {
    let mut namespaces = on_volume();
    let mut outputs = Outputs::default();
    for _ in 0..2 {
        namespaces.submit(command(NamespaceOperation::Flush), Time(200), &mut outputs, &mut whole_pieces);
    }
    let token = outputs.volume_commands[0].1.token;
    outputs
        .finished
        .extend(namespaces.complete(VolumeCompletion { token, result: Ok(()), destination: None }, Time(1)));
    namespaces.submit(command(NamespaceOperation::Flush), Time(200), &mut outputs, &mut whole_pieces);
    outputs
        .finished
        .extend(namespaces.complete(VolumeCompletion { token, result: Ok(()), destination: None }, Time(1)));
}

/// The pieces that a command is cut into; `map_piece` says how long those of the map are.
fn pieces_of(
    namespaces: &mut Namespaces,
    operation: NamespaceOperation,
    map_piece: impl Fn(MapRange) -> u64,
) -> Vec<(u64, u64)> {
    let mut outputs = Outputs::default();
    let mut rest = namespaces.submit(command(operation), Time(200), &mut outputs, &mut &map_piece);
    while let Some(token) = rest {
        rest = namespaces.go_on(token, Time(200), &mut outputs, &mut &map_piece).then_some(token);
    }
    let commands: Vec<_> = outputs.volume_commands.drain(..).map(|(_, command)| command).collect();
    let mut pieces = Vec::new();
    for VolumeCommand { token, operation, .. } in commands {
        pieces.push(match operation {
            VolumeOperation::Deallocate { first_iu, iu_count }
            | VolumeOperation::WriteZeroes { first_iu, iu_count, .. } => (first_iu, iu_count),
            _ => panic!("{operation:?}"),
        });
        outputs.finished.extend(
            namespaces.complete(VolumeCompletion { token, result: Ok(()), destination: None }, Time(300)),
        );
    }
    assert_eq!(outputs.finished.len(), 1);
    assert_eq!(outputs.finished[0].completion.result, Ok(()));
    pieces
}

fn on_huge_volume() -> Namespaces {
    let mut namespaces = Namespaces::new();
    let backing = Backing::Volume { store: StoreIndex(1), volume: VolumeIndex(2) };
    namespaces.open(ID, NamespaceDefinition { size_lbas: 1 << 40, ..definition() }, backing);
    namespaces
}

/// Goal: however often a host names a block in one command, it is looked at once. Method: ranges that overlap, touch, repeat and
/// come in any order; the pieces are those of their union.
#[test]
fn ranges_that_overlap_or_touch_are_one() {
    let mut namespaces = on_huge_volume();
    let mut pieces = |ranges: &[LbaRange]| {
        let ranges = ranges.iter().copied().collect();
        pieces_of(&mut namespaces, NamespaceOperation::Deallocate { ranges }, whole_pieces)
    };
    assert_eq!(pieces(&[range(0, 10_000); 256]), [(0, 4096), (4096, 4096), (8192, 1808)]);
    let mixed = [range(50, 2), range(10, 5), range(12, 10), range(22, 3), range(0, 0), range(11, 1)];
    assert_eq!(pieces(&mixed), [(10, 15), (50, 2)]);
    assert_eq!(pieces(&[range(5, 0), range(9, 0)]), [], "nothing to do");
    let rest = pieces(&[range(30, 1), range(7, 1), range(29, 1)]);
    assert_eq!(rest, [(7, 1), (29, 2)]);
}

/// What ranges cover together may be more than a range can say.
#[test]
fn merged_ranges_may_be_longer_than_one() {
    let mut namespaces = on_huge_volume();
    let half = u64::from(u32::MAX);
    let ranges = [range(half - 1, u32::MAX), range(0, u32::MAX), range(7, u32::MAX)].into_iter().collect();
    let as_long_as_it_goes = |range: MapRange| range.iu_count;
    let pieces = pieces_of(&mut namespaces, NamespaceOperation::Deallocate { ranges }, as_long_as_it_goes);
    let mut end = 0;
    for (first, count) in pieces {
        assert_eq!(first, end, "without a gap, and nothing twice");
        end = first + count;
    }
    assert_eq!(end, 2 * half - 1);
}

/// Pieces are as long as whoever knows the map says.
#[test]
fn what_is_not_mapped_is_passed_over_in_one_piece() {
    let mut namespaces = on_huge_volume();
    let map_piece = |range: MapRange| {
        assert_eq!((range.store, range.volume), (StoreIndex(1), VolumeIndex(2)));
        assert!(range.iu_count > MAP_PIECE_LBAS, "shorter ones are not asked for");
        if range.first_iu == 0 { 1 << 20 } else { MAP_PIECE_LBAS }
    };
    let ranges = [range(0, (1 << 20) + 5000)].into_iter().collect();
    let expected = [(0, 1 << 20), (1 << 20, 4096), ((1 << 20) + 4096, 904)];
    assert_eq!(pieces_of(&mut namespaces, NamespaceOperation::Deallocate { ranges }, map_piece), expected);
    let zeroes = NamespaceOperation::WriteZeroes {
        range: range(0, (1 << 20) + 5000),
        may_deallocate: true,
        force_unit_access: false,
    };
    assert_eq!(pieces_of(&mut namespaces, zeroes, map_piece), expected);
}

/// Goal: each piece of a command that is to be durable when it is answered is. Method: zeroes and a write of several pieces.
#[test]
fn every_piece_forces_unit_access() {
    let mut namespaces = Namespaces::new();
    let backing = Backing::Volume { store: StoreIndex(1), volume: VolumeIndex(2) };
    let definition = NamespaceDefinition { size_lbas: 1 << 40, transfer_max_lbas: 80, ..definition() };
    namespaces.open(ID, definition, backing);
    let zeroes = |force_unit_access| NamespaceOperation::WriteZeroes {
        range: range(0, 3 * MAP_PIECE_LBAS as u32),
        may_deallocate: true,
        force_unit_access,
    };
    let write = |force_unit_access| {
        let data = Buffer::copy_from(&vec![1; 48 * 4096]);
        NamespaceOperation::Write {
            range: range(0, 48),
            data,
            force_unit_access,
            placement: PlacementTarget::default(),
        }
    };
    for (forced, operation) in [true, false].into_iter().flat_map(|f| [(f, zeroes(f)), (f, write(f))]) {
        let mut outputs = Outputs::default();
        let mut rest = namespaces.submit(command(operation), Time(200), &mut outputs, &mut whole_pieces);
        while let Some(token) = rest {
            let more = namespaces.go_on(token, Time(200), &mut outputs, &mut whole_pieces);
            rest = more.then_some(token);
        }
        let pieces: Vec<bool> = outputs
            .volume_commands
            .iter()
            .map(|(_, piece)| match piece.operation {
                VolumeOperation::WriteZeroes { force_unit_access, .. }
                | VolumeOperation::Write { force_unit_access, .. } => force_unit_access,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pieces, [forced; 3]);
    }
}

/// Goal: a namespace that moved reaches its volume where that is now, with what it did so far. Method: it is taken out and put in
/// with another store.
#[test]
fn a_namespace_that_moved_has_its_new_store_and_its_figures() {
    let mut here = on_volume();
    let mut outputs = Outputs::default();
    refused(&mut here, read(100, 1));
    here.set_read_only(ID, Some("worn out"));
    let mut there = Namespaces::new();
    there.put_in(ID, here.take_out(ID), StoreIndex(4));
    assert!(!here.is_open(ID) && there.is_open(ID));
    there.submit(command(read(7, 1)), Time(200), &mut outputs, &mut whole_pieces);
    let (store, piece) = outputs.volume_commands.pop().unwrap();
    assert_eq!((store, piece.volume), (StoreIndex(4), VolumeIndex(2)));
    assert_eq!(there.statistics(ID).unwrap().reads.failed, 1);
    assert!(there.properties(ID).unwrap().read_only);
}

/// Goal: nothing more is done for a command that nobody wants any more. Method: one is given up between two of its pieces, by its
/// token or by its source; another one goes on.
#[test]
fn what_is_given_up_ends_after_its_piece() {
    for token in [Some(CommandToken(7)), None] {
        let mut namespaces = on_huge_volume();
        let mut outputs = Outputs::default();
        let mut submit = |source| {
            let ranges = [range(0, 100_000)].into_iter().collect();
            let command = NamespaceCommand { source, ..command(NamespaceOperation::Deallocate { ranges }) };
            let rest = namespaces.submit(command, Time(200), &mut outputs, &mut whole_pieces);
            rest.expect("more is left")
        };
        let (unwanted, wanted) = (submit(SourceId(5)), submit(SourceId(6)));
        namespaces.give_up(SourceId(5), token);
        assert!(!namespaces.go_on(unwanted, Time(200), &mut outputs, &mut whole_pieces));
        assert!(namespaces.go_on(wanted, Time(200), &mut outputs, &mut whole_pieces));
        assert_eq!(outputs.volume_commands.len(), 3);
        let answer = VolumeCompletion { token: unwanted, result: Ok(()), destination: None };
        outputs.finished.extend(namespaces.complete(answer, Time(300)));
        assert_eq!(outputs.finished.len(), 1);
        assert_eq!(outputs.finished[0].completion.result, Err(NamespaceError::Aborted));
        assert_eq!(outputs.finished[0].source, SourceId(5));
    }
}

/// Goal: when what volumes lie on cannot be reached, hosts hear that commands are not ready, once each, those under way too; what the volume answers later is
/// nobody's, and the namespace can be closed then. Method: a read, and a deallocation of several pieces, before; a read meanwhile, and one afterwards.
#[test]
fn who_waits_for_what_is_away_is_answered_once() {
    let mut namespaces = on_huge_volume();
    let mut outputs = Outputs::default();
    let ranges = [range(0, 100_000)].into_iter().collect();
    let large = command(NamespaceOperation::Deallocate { ranges });
    let rest = namespaces.submit(large, Time(200), &mut outputs, &mut whole_pieces).expect("more is left");
    namespaces.submit(command(read(7, 1)), Time(200), &mut outputs, &mut whole_pieces);
    for _ in 0..2 {
        namespaces.set_away(&[StoreIndex(9)], true, Time(240), &mut outputs);
        namespaces.set_away(&[StoreIndex(1)], true, Time(250), &mut outputs);
    }
    let results = |outputs: &mut Outputs| -> Vec<_> {
        outputs.finished.drain(..).map(|finished| finished.completion.result).collect()
    };
    assert_eq!(results(&mut outputs), [Err(NamespaceError::NotReady), Err(NamespaceError::NotReady)]);
    assert!(!namespaces.go_on(rest, Time(260), &mut outputs, &mut whole_pieces), "no further piece");
    assert_eq!(outputs.volume_commands.len(), 2);
    assert_eq!(refused(&mut namespaces, read(8, 1)), NamespaceError::NotReady);
    assert!(!namespaces.is_idle(ID));
    for (_, VolumeCommand { token, operation, .. }) in outputs.volume_commands.drain(..) {
        let destination = match operation {
            VolumeOperation::Read { destination, .. } => Some(destination),
            _ => None,
        };
        let answer = VolumeCompletion { token, result: Ok(()), destination };
        assert!(namespaces.complete(answer, Time(300)).is_none(), "it was answered");
    }
    assert!(namespaces.is_idle(ID));
    namespaces.set_away(&[StoreIndex(1)], false, Time(400), &mut outputs);
    namespaces.submit(command(read(7, 1)), Time(500), &mut outputs, &mut whole_pieces);
    assert!(outputs.finished.is_empty() && outputs.volume_commands.len() == 1);
}

/// Goal: hosts are offered erasures where the medium erases.
#[test]
fn what_cannot_be_erased_is_not_offered() {
    let backing = || Backing::Volume { store: StoreIndex(1), volume: VolumeIndex(2) };
    for erases in [true, false] {
        let mut namespaces = Namespaces::new();
        namespaces.open(ID, NamespaceDefinition { erases, ..definition() }, backing());
        assert_eq!(namespaces.properties(ID).unwrap().purges, erases);
    }
}
