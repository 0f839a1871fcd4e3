//! A real run (threads, sockets, the real clock) is recorded and played again in virtual time.

use diecut_blockspace::wire::{Opcode, Status};
use diecut_blockspace::{Attach, AttachError, Client, Purpose, UnitIndex};
use diecut_devices::{Backing, Device, Options, Pacing, Profile};
use diecut_load::drive::{Digests, DriveSettings, Endpoint, QualifiedName, run};
use diecut_load::{LoadSpec, Pattern};
use diecut_reactor::{Reactor, ReactorConfig};
use diecut_recording::{
    Application, Entry, Piece, RecordOptions, Recorded, RecordingReader, RecordingWriter, Start, Summary,
};
use diecut_shard::control::*;
use diecut_shard::{PoolConfig, Shard, ShardConfig};
use diecut_sim::replay::{Input, Replay, replay};
use diecut_sim::rerun::{Comparison, compare, rerun};
use diecut_spec::{Isolation, Serves, Size};
use diecut_units::{Span, Time};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const NQN: &str = "nqn.2026-11.org.diecut:recorded";

/// A file in memory that outlives the thread that writes it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn ask(reactor: &Reactor, request: ControlRequest) -> ControlResponse {
    let (sender, receiver) = channel();
    assert!(reactor.request(request, Box::new(move |response| sender.send(response).unwrap())));
    receiver.recv_timeout(Duration::from_secs(30)).expect("requests are answered")
}

fn done(reactor: &Reactor, request: ControlRequest) {
    assert_eq!(ask(reactor, request), ControlResponse::Done);
}

fn profile() -> Profile {
    let mut profile = Profile::named("tiny").unwrap();
    profile.geometry.blocks_per_plane = 48;
    profile.protected_memory_bytes = 8 << 20;
    profile
}

/// A shard on an empty device, recorded from its first moment.
fn recorded(pacing: Pacing, options: RecordOptions, to: Shared, now: Time) -> Recorded<Shared> {
    let options_of_device = Options { pacing, seed: 3, ..Options::default() };
    let device = Device::create(&profile(), options_of_device.clone()).unwrap();
    let pool = PoolConfig::suited_to(&profile().geometry);
    let config = ShardConfig { pool, staging_bytes_per_vssd: 512 << 10, ..ShardConfig::default() };
    let start = Start::new(&profile(), &options_of_device, &config, now).unwrap();
    Recorded::new(Shard::new(device, config, now), &start, to, options)
}

/// A server with one tenant, whose host overwrites its volume several times over sockets.
fn record(pacing: Pacing, options: RecordOptions, writes: u64) -> Vec<u8> {
    let file = Shared::default();
    let to = file.clone();
    let make = move |now| recorded(pacing, options, to, now);
    let listen = ReactorConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ReactorConfig::default() };
    let reactor = Reactor::start(&listen, vec![make]).unwrap();
    done(&reactor, ControlRequest::CreateTenant(TenantSpec::new("a")));
    done(&reactor, ControlRequest::CreateVssd(VssdSpec::new("a", "a", Isolation::Channel, 280)));
    let ControlResponse::Status(status) = ask(&reactor, ControlRequest::Status) else { panic!("a status") };
    done(
        &reactor,
        ControlRequest::CreateVolume(VolumeSpec {
            name: "a".to_owned(),
            vssd: "a".to_owned(),
            size: Size(status.vssds[0].space.exported_bytes),
            uuid: None,
            nguid: None,
            zones: Default::default(),
            placement: Vec::new(),
        }),
    );
    done(
        &reactor,
        ControlRequest::CreateSubsystem(SubsystemSpec {
            nqn: NQN.to_owned(),
            tenant: "a".to_owned(),
            serial: None,
            model: None,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            paths: Vec::new(),
            namespaces: vec![NamespaceSpec::new(1, "a")],
        }),
    );
    let endpoint = Endpoint {
        address: reactor.addresses()[0],
        subsystem: QualifiedName::new(NQN).unwrap(),
        host: QualifiedName::new("nqn.2026-11.org.diecut:host").unwrap(),
        host_id: [7; 16],
        nsid: None,
        digests: Digests::NONE,
    };
    // Small writes travel in their capsules, large ones after an R2T.
    for (block_bytes, read_percent, operations_max) in [(65536, 0, writes / 16), (4096, 20, writes)] {
        let spec = LoadSpec {
            block_bytes,
            read_percent,
            depth: 16,
            jobs: 2,
            pattern: Pattern::Random,
            ramp_ns: 0,
            runtime_ns: 60_000_000_000,
            operations_max,
            ..LoadSpec::default()
        };
        let report = run(&endpoint, &spec, DriveSettings::default()).unwrap();
        assert_eq!(report.errors(), 0, "{:?}", report.first_error());
    }
    done(&reactor, ControlRequest::Shutdown);
    reactor.stop();
    std::mem::take(&mut *file.0.lock().unwrap())
}

/// One run without pacing, for all tests that take it apart.
fn recording() -> &'static [u8] {
    static RECORDING: OnceLock<Vec<u8>> = OnceLock::new();
    RECORDING.get_or_init(|| {
        let options = RecordOptions { check_every: Span::from_millis(20), ..RecordOptions::default() };
        record(Pacing::Unpaced, options, 6000)
    })
}

fn play(bytes: &[u8]) -> (Replay, Vec<Input>, Start) {
    let mut reader = RecordingReader::new(bytes).unwrap();
    let mut inputs = Vec::new();
    let outcome = replay(&mut reader, Backing::Memory, |input| inputs.push(input)).unwrap();
    (outcome, inputs, reader.start().clone())
}

fn entries(bytes: &[u8]) -> (Start, Vec<Entry>) {
    let mut reader = RecordingReader::new(bytes).unwrap();
    let entries = std::iter::from_fn(|| reader.next_entry().unwrap()).collect();
    (reader.start().clone(), entries)
}

fn written(start: &Start, entries: &[Entry]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), start).unwrap();
    entries.iter().for_each(|entry| writer.append(entry).unwrap());
    writer.finish().unwrap()
}

#[test]
fn a_real_run_comes_out_the_same_to_the_last_erase() {
    let (outcome, _, _) = play(recording());
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.has_end && outcome.comparisons > 1, "{} comparisons", outcome.comparisons);
    assert!(outcome.commands > 12_000, "{} commands", outcome.commands);
    assert_eq!(outcome.recorded, outcome.replayed);
    // It was worth comparing: blocks were cleaned and used again.
    let [vssd] = &outcome.replayed.vssds[..] else { panic!("one vSSD") };
    assert!(vssd.erases > 100, "{vssd:?}");
    assert!(vssd.programmed_cleaner_bytes > 0, "{vssd:?}");
    // Data of writes is not in the file.
    let written_bytes: u64 = outcome.replayed.volumes.iter().map(|volume| volume.written_bytes).sum();
    let file_bytes = recording().len() as u64;
    assert!(file_bytes * 4 < written_bytes, "{file_bytes} bytes recorded for {written_bytes} written");
}

#[test]
fn a_free_rerun_comes_close() {
    // Longer than the others: a few erases more or less at its end are then far below a percent.
    let options = RecordOptions { check_every: Span::from_millis(100), ..RecordOptions::default() };
    let recording = record(Pacing::Unpaced, options, 40_000);
    let (outcome, inputs, start) = play(&recording);
    let rerun = rerun(&start, inputs, outcome.time, Backing::Memory).unwrap();
    assert_eq!((rerun.commands, rerun.errors), (outcome.commands, 0));
    assert_eq!(rerun.answered, rerun.commands);
    // On a machine at rest within a percent. On a busy one the threads of the recorded run waited for each other, the shard closed other
    // batches than one that is never kept waiting: 1.3% was seen.
    let comparisons = compare(&outcome.recorded, &rerun.summary);
    assert!(comparisons.len() >= 3, "{comparisons:?}");
    for Comparison { figure, recorded, rerun, .. } in comparisons {
        assert!(
            (recorded - rerun).abs() <= recorded * 0.05,
            "{figure}: {recorded} recorded, {rerun} in the re-run"
        );
    }
}

#[test]
fn a_paced_run_comes_out_the_same_too() {
    let bytes = record(Pacing::Modelled, RecordOptions::default(), 400);
    let (outcome, _, _) = play(&bytes);
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.has_end && outcome.recorded.device.array_busy_ns > 0);
}

/// Bytes of a command capsule with 4 KiB in it, and of its answer without data.
const CAPSULE_BYTES: usize = 72;
const ANSWER_BYTES: usize = 24;

/// Takes a write of 4 KiB out of the first entry, from the middle on, that begins with one. Returns the entry.
fn without_a_write(entries: &mut [Entry]) -> usize {
    let middle = entries.len() / 2;
    let begins_with_a_write = |entry: &Entry| match entry {
        Entry::Received(_, content) => match &content.pieces[..] {
            [Piece::Bytes(head), Piece::LeftOut(4096), ..] => head.len() == CAPSULE_BYTES,
            _ => false,
        },
        _ => false,
    };
    let at = entries[middle..].iter().position(begins_with_a_write).expect("writes of 4 KiB were recorded");
    let Entry::Received(_, content) = &mut entries[middle + at] else {
        unreachable!("it begins with a write")
    };
    content.pieces.drain(..2);
    middle + at
}

#[test]
fn a_write_that_is_missing_is_noticed() {
    let (start, mut entries) = entries(recording());
    assert_eq!(entries.len() as u64, play(&written(&start, &entries)).0.entries, "the copy is whole");
    let at = without_a_write(&mut entries);
    let (outcome, _, _) = play(&written(&start, &entries));
    assert!(!outcome.differences.is_empty(), "the write of entry {at} is missing");
}

/// The answer is taken out as well, so that nothing looks wrong until figures are compared.
#[test]
fn a_write_that_is_missing_with_its_answer_is_noticed_by_the_figures() {
    let (start, mut entries) = entries(recording());
    let at = without_a_write(&mut entries);
    let connection = if let Entry::Received(connection, _) = &entries[at] {
        *connection
    } else {
        unreachable!("it is a write")
    };
    let answer = entries[at..].iter().position(
        |entry| matches!(entry, Entry::Sent(to, len_bytes) if *to == connection && *len_bytes >= ANSWER_BYTES),
    );
    let answer = at + answer.expect("it was answered");
    let Entry::Sent(_, len_bytes) = &mut entries[answer] else { unreachable!("it is an answer") };
    *len_bytes -= ANSWER_BYTES;
    let (outcome, _, _) = play(&written(&start, &entries));
    assert!(!outcome.differences.is_empty(), "one write is missing");
}

/// A server with an application that fills, frees and fills again all erase blocks of its vSSD, goes, and comes back.
fn record_application() -> Vec<u8> {
    let file = Shared::default();
    let to = file.clone();
    let make = move |now| {
        let options = RecordOptions { check_every: Span::from_millis(20), ..RecordOptions::default() };
        recorded(Pacing::Unpaced, options, to, now)
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("blocks.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = ReactorConfig { blocks: Some(listener), ..ReactorConfig::default() };
    let reactor = Reactor::start(&config, vec![make]).unwrap();
    done(&reactor, ControlRequest::CreateTenant(TenantSpec::new("db")));
    done(
        &reactor,
        ControlRequest::CreateVssd(VssdSpec {
            serves: Serves::Blocks,
            ..VssdSpec::new("db", "db", Isolation::Die, 280)
        }),
    );
    for round in 0..3u8 {
        let client = loop {
            match Client::attach(Attach { socket: &socket, vssd: "db" }) {
                Ok(client) => break client,
                // Until the server has heard that the last one is gone.
                Err(AttachError::Refused { status: Status::Held, .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let held: Vec<_> = client.held_blocks().unwrap().iter().map(|record| record.block).collect();
        // Every third one is given up by not being named.
        let kept: Vec<_> =
            held.iter().enumerate().filter(|(at, _)| at % 3 > 0).map(|(_, block)| *block).collect();
        client.keep(&kept).unwrap();
        kept.iter().skip(kept.len() / 2).for_each(|block| client.free(*block).unwrap());
        let bytes = vec![round + 1; client.shape().block_size_bytes() as usize];
        for unit in (0..client.shape().units).map(UnitIndex) {
            while let Ok(block) = client.allocate(unit, Purpose(round)) {
                client.append(block, &bytes).unwrap();
                let mut read = vec![0; 8192];
                client.read(block, 4096, &mut read).unwrap();
                assert!(read.iter().all(|byte| *byte == round + 1));
            }
        }
        client.sync().unwrap();
    }
    done(&reactor, ControlRequest::Shutdown);
    reactor.stop();
    std::mem::take(&mut *file.0.lock().unwrap())
}

#[test]
fn what_an_application_did_comes_out_the_same_to_the_last_erase() {
    let bytes = record_application();
    let (outcome, inputs, start) = play(&bytes);
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.has_end && outcome.comparisons > 1, "{} comparisons", outcome.comparisons);
    let [vssd] = &outcome.replayed.vssds[..] else { panic!("one vSSD") };
    assert!(vssd.erases > 60, "{vssd:?}");
    assert!(vssd.programmed_user_bytes > bytes.len() as u64 * 4, "{vssd:?}: content is left out");
    let rerun = rerun(&start, inputs, outcome.time, Backing::Memory).unwrap();
    // On a machine at rest within a percent. On a busy one the threads of the recorded run waited for each other, the shard closed other
    // batches than one that is never kept waiting: 1.3% was seen.
    let comparisons = compare(&outcome.recorded, &rerun.summary);
    assert!(comparisons.len() >= 3, "{comparisons:?}");
    for Comparison { figure, recorded, rerun, .. } in comparisons {
        assert!(
            (recorded - rerun).abs() <= recorded * 0.05,
            "{figure}: {recorded} recorded, {rerun} in the re-run"
        );
    }
    // An append that is missing is noticed.
    let (start, mut entries) = entries(&bytes);
    let is_append = |entry: &Entry| matches!(entry, Entry::Application(Application::Submitted { entry: Ok(entry), .. }) if entry.opcode == Opcode::Append);
    let at = entries.iter().position(is_append).expect("it appended");
    entries.remove(at);
    let (outcome, _, _) = play(&written(&start, &entries));
    assert!(!outcome.differences.is_empty(), "the append of entry {at} is missing");
}

#[test]
fn a_figure_that_was_changed_is_noticed() {
    let (start, mut entries) = entries(recording());
    let Some(Entry::End(summary)) = entries.last_mut() else { panic!("the recording has an end") };
    summary.erase_counts[0].1 += 1;
    let (outcome, _, _) = play(&written(&start, &entries));
    assert_eq!(outcome.differences.len(), 1, "{:?}", outcome.differences);
    assert!(outcome.differences[0].contains("erase block"), "{:?}", outcome.differences);
}

#[test]
fn a_run_that_was_cut_short_is_compared_up_to_its_last_check() {
    let whole = recording();
    let (outcome, _, _) = play(&whole[..whole.len() - 3]);
    assert!(!outcome.has_end && outcome.comparisons > 0);
    assert_eq!(outcome.differences, Vec::<String>::new());
}

#[test]
fn a_recording_keeps_its_limit_and_has_an_end() {
    let options = RecordOptions { size_max_bytes: 100 << 10, ..RecordOptions::default() };
    let bytes = record(Pacing::Unpaced, options, 2000);
    assert!(bytes.len() < 300 << 10, "{} bytes", bytes.len());
    let (outcome, _, _) = play(&bytes);
    assert!(outcome.has_end);
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert_ne!(outcome.recorded, Summary::default());
}
