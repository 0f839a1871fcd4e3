//! Goal: a host of an Open-Channel vSSD gets what chunks promise over NVMe/TCP: geometry, chunk information, vector commands with the right statuses,
//! and all of it again after a death of the server and after a power cut. Method: shards in virtual time, and the library for hosts over
//! real queue pairs; what it is answered is compared with what it wrote. Set-ups that cannot be are refused with what is wrong.

use crate::herd::{Herd, Host, device, subsystem, volume, vssd};
use diecut_emulator::{
    Backing, Device, Fault, FaultPlan, FaultRates, FaultyDie, OperationKind, Options, Profile,
};
use diecut_initiator::openchannel::{ChunkFacts, Notification, OpenChannel, Request};
use diecut_nvme::openchannel::{chunk_state, notification_mask, notification_state};
use diecut_nvme::{NSID_ALL, Status, SubmissionEntry};
use diecut_shard::control::*;
use diecut_spec::{Isolation, Serves, Size, ZoneSpec};
use diecut_units::Time;
use diecut_vssd::VssdId;

/// Logical blocks of a program unit, and of a chunk, of the device.
const UNIT: u32 = 8;
const CHUNK: u32 = 64;
/// Program units at risk behind the last one, in logical blocks (two planes of two pages share word lines).
const CHUNKS_OF_DIE: u32 = 3;

fn open_channel(name: &str, isolation: Isolation) -> VssdSpec {
    VssdSpec { serves: Serves::OpenChannel, ..vssd(name, name, isolation, 1) }
}

/// A volume of so many chunks on each of `dies` dies.
fn chunks(name: &str, dies: u64, chunks: u32) -> VolumeSpec {
    VolumeSpec { size: Size(dies * u64::from(chunks * CHUNK) * 4096), ..volume(name) }
}

fn served(device: Device, shards: u16, now: Time) -> (Herd, Host) {
    let herd = Herd::new(device, shards, 7, now);
    (herd, Host::new("a", 1))
}

fn connect(herd: &mut Herd, host: &mut Host) {
    for _ in 0..100_000 {
        if host.connection().is_some() {
            return;
        }
        host.work(herd, false);
        herd.step();
    }
    panic!("a host is never let in");
}

/// Sends a command of the library; its status and what it brought.
fn admin(herd: &mut Herd, host: &mut Host, request: Request) -> Vec<u8> {
    let Request { entry, data, expected_bytes, .. } = request;
    let (status, data) = host.admin_command(herd, entry, data, expected_bytes);
    assert!(status.is_success(), "{entry:?}: {status:?}");
    data
}

fn io(herd: &mut Herd, host: &mut Host, open: &mut OpenChannel, request: Request) -> (Status, Vec<u8>) {
    let Request { entry, data, expected_bytes, effect } = request;
    let answer = host.io_command(herd, entry, data, expected_bytes);
    open.ended(&effect, answer.0);
    answer
}

/// The namespace as it is told now.
fn look(herd: &mut Herd, host: &mut Host) -> OpenChannel {
    connect(herd, host);
    let geometry = admin(herd, host, OpenChannel::ask_geometry(1));
    let mut open = OpenChannel::new(1, &geometry).expect("a geometry");
    let count = open.chunks().len() as u32;
    let page = admin(herd, host, open.ask_chunks(0, count));
    open.take_chunks(0, &page);
    open
}

/// Content of so many logical blocks, in the content mode of the device.
fn content(first: u64, count: u32) -> Vec<u8> {
    (first..first + u64::from(count)).flat_map(u64::to_le_bytes).collect()
}

fn write(
    herd: &mut Herd,
    host: &mut Host,
    open: &mut OpenChannel,
    parts: &[(u32, u32)],
    first: u64,
) -> Status {
    let count = parts.iter().map(|(_, count)| count).sum();
    let request = open.write(parts, &content(first, count)).expect("it takes writes");
    io(herd, host, open, request).0
}

fn read(
    herd: &mut Herd,
    host: &mut Host,
    open: &mut OpenChannel,
    chunk: u32,
    first: u32,
    count: u32,
) -> (Status, Vec<u8>) {
    let request = open.read(chunk, first, count, 8).expect("it is there");
    io(herd, host, open, request)
}

fn facts(open: &OpenChannel, chunk: u32) -> (u8, u32) {
    let ChunkFacts { state, written, .. } = open.chunks()[chunk as usize];
    (state, written)
}

fn make(herd: &mut Herd, isolation: Isolation, dies: u64) {
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    herd.done(ControlRequest::CreateVssd(open_channel("a", isolation)));
    herd.done(ControlRequest::CreateVolume(chunks("a", dies, CHUNKS_OF_DIE)));
    herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
}

#[test]
fn chunks_are_written_read_copied_and_reset() {
    let (mut herd, mut host) = served(device(3), 1, Time::ZERO);
    let (herd, host) = (&mut herd, &mut host);
    make(herd, Isolation::Channel, 2);
    let mut open = look(herd, host);
    let geometry = *open.geometry();
    let shape = [geometry.chunks, geometry.chunk_blocks, geometry.write_min, geometry.cached_units];
    let cached = geometry.cached_units.get();
    assert_eq!((geometry.groups.get(), geometry.units.get()), (1, 2), "the dies of one channel");
    assert_eq!(shape.map(|field| field.get()), [CHUNKS_OF_DIE, CHUNK, UNIT, cached]);
    assert!(cached > 0 && cached < CHUNK, "word lines are shared: {cached}");
    assert!(geometry.read_typical_ns.get() > 0 && geometry.reset_max_ns.get() > 0);
    assert!(open.chunks().iter().all(|of| (of.state, of.written) == (chunk_state::FREE, 0)));

    // Two chunks of two dies in one command, then the rest of the first one.
    assert_eq!(write(herd, host, &mut open, &[(0, UNIT), (CHUNKS_OF_DIE, 2 * UNIT)], 1000), Status::SUCCESS);
    let before = look(herd, host);
    assert_eq!(facts(&before, 0), (chunk_state::OPEN, UNIT));
    assert_eq!(facts(&before, CHUNKS_OF_DIE), (chunk_state::OPEN, 2 * UNIT));
    assert!(read(herd, host, &mut open, 0, 0, 1).0.same_code(Status::UNWRITTEN_BLOCK), "within MW_CUNITS");
    assert_eq!(write(herd, host, &mut open, &[(0, CHUNK - UNIT)], 2000), Status::SUCCESS);
    let (status, data) = read(herd, host, &mut open, 0, UNIT - 1, 2);
    assert_eq!(
        (status, data),
        (Status::SUCCESS, [content(1000 + u64::from(UNIT) - 1, 1), content(2000, 1)].concat())
    );
    assert_eq!(facts(&look(herd, host), 0), (chunk_state::CLOSED, CHUNK));

    // A copy of a part of it to the other die, which then holds it.
    let request = open.copy((0, 4), CHUNKS_OF_DIE + 1, UNIT).expect("it takes writes");
    assert_eq!(io(herd, host, &mut open, request).0, Status::SUCCESS);
    assert_eq!(write(herd, host, &mut open, &[(CHUNKS_OF_DIE + 1, CHUNK - UNIT)], 3000), Status::SUCCESS);
    let (status, data) = read(herd, host, &mut open, CHUNKS_OF_DIE + 1, 0, UNIT);
    assert_eq!((status, data), (Status::SUCCESS, [content(1004, 4), content(2000, 4)].concat()));

    // What is reset is free; the same chunk can be written again.
    let request = open.reset(&[0, CHUNKS_OF_DIE + 1, 2]).expect("they are there");
    assert_eq!(io(herd, host, &mut open, request).0, Status::SUCCESS);
    assert!(read(herd, host, &mut open, 0, 0, 1).0.same_code(Status::UNWRITTEN_BLOCK), "it is free");
    assert_eq!(facts(&look(herd, host), 0), (chunk_state::FREE, 0));
    assert_eq!(write(herd, host, &mut open, &[(0, UNIT)], 4000), Status::SUCCESS);

    // The plain commands reach the same blocks.
    let mut status = herd.status();
    let shown = status.vssds.pop().expect("one");
    let used = u64::from(3 * UNIT) * 4096;
    assert_eq!((shown.space.used_bytes, status.volumes[0].used_bytes), (used, used));
}

#[test]
fn what_cannot_be_is_refused_with_its_status() {
    let (mut herd, mut host) = served(device(3), 1, Time::ZERO);
    let (herd, host) = (&mut herd, &mut host);
    make(herd, Isolation::Channel, 2);
    let mut open = look(herd, host);
    // The library would refuse these, so the entries are changed behind its back.
    let changed = |open: &OpenChannel, lba: u64, blocks: u32| {
        let request = open.clone().write(&[(1, UNIT)], &content(1, UNIT)).expect("a write");
        let lbas: Vec<u64> = (lba..lba + u64::from(blocks)).collect();
        let data = [lbas.iter().flat_map(|lba| lba.to_le_bytes()).collect(), content(1, blocks)].concat();
        let entry = SubmissionEntry { cdw12: (blocks - 1).into(), ..request.entry };
        Request { entry, data: Some(diecut_units::Buffer::copy_from(&data)), ..request }
    };
    let beyond = 1 << 40;
    for (lba, blocks, status) in [
        (u64::from(UNIT), UNIT, Status::OUT_OF_ORDER_WRITE),
        (0, UNIT / 2, Status::INVALID_LBA_LIST),
        (4, UNIT, Status::OUT_OF_ORDER_WRITE),
        (beyond, UNIT, Status::LBA_OUT_OF_RANGE),
    ] {
        let request = changed(&open, lba, blocks);
        let (answer, _) = host.io_command(herd, request.entry, request.data, 0);
        assert!(answer.same_code(status), "{blocks} at {lba:#x}: {answer:?}");
    }
    assert!(look(herd, host).chunks().iter().all(|of| of.state == chunk_state::FREE), "nothing was written");
    // Chunks that are full take no writes; what is written in order does.
    assert_eq!(write(herd, host, &mut open, &[(0, CHUNK)], 1), Status::SUCCESS);
    let request = changed(&open, 0, UNIT);
    assert!(host.io_command(herd, request.entry, request.data, 0).0.same_code(Status::OUT_OF_ORDER_WRITE));
    // Commands of other namespaces.
    let zeroes = SubmissionEntry {
        opcode: diecut_nvme::opcode::io::WRITE_ZEROES,
        nsid: 1.into(),
        ..SubmissionEntry::default()
    };
    assert!(host.io_command(herd, zeroes, None, 0).0.same_code(Status::INVALID_OPCODE));
    let all = SubmissionEntry { nsid: NSID_ALL.into(), ..OpenChannel::ask_geometry(1).entry };
    let (status, _) = host.admin_command(herd, all, None, 4096);
    assert!(status.same_code(Status::INVALID_NAMESPACE_OR_FORMAT), "{status:?}");
}

/// Goal: what reads say of media comes to the host: an event, the log, and the status of vector reads. Method: a device on which each read needs
/// four retries, through shards and the library for hosts.
#[test]
fn media_feedback_comes_to_the_host() {
    let rates = FaultRates { read_retry: 1.0, retry_limit: 4, ..FaultRates::default() };
    let faults = FaultPlan { rates, ..FaultPlan::default() };
    let mut profile = Profile::named("tiny").expect("it is there");
    profile.protected_memory_bytes = 8 << 20;
    let options = Options { backing: Backing::Tags, seed: 3, faults, ..Options::default() };
    let (mut herd, mut host) = served(Device::create(&profile, options).expect("a device"), 1, Time::ZERO);
    let (herd, host) = (&mut herd, &mut host);
    make(herd, Isolation::Channel, 2);
    let mut open = look(herd, host);
    assert_eq!(write(herd, host, &mut open, &[(1, CHUNK)], 1), Status::SUCCESS);
    let blocks = [(1, 3), (1, 40), (1, 4)];
    let expected = [content(4, 1), content(41, 1), content(5, 1)].concat();
    let request = open.read_list(&blocks, 8).expect("they are there");
    assert_eq!(
        io(herd, host, &mut open, request),
        (Status::SUCCESS, expected.clone()),
        "nobody wants to know"
    );
    let on = open.set_feedback(true);
    admin(herd, host, on);
    let request = open.read_list(&blocks, 8).expect("they are there");
    let (status, data) = io(herd, host, &mut open, request);
    assert!(status.same_code(Status::HIGH_ECC), "{status:?}");
    assert_eq!(data, expected);
    let page = {
        // Notices are looked for from time to time.
        let mut found = Vec::new();
        for _ in 0..100_000 {
            let ask = open.ask_notifications();
            found = open.notifications(&admin(herd, host, ask)).expect("entries that are right");
            if !found.is_empty() {
                break;
            }
            herd.step();
        }
        found
    };
    let state = notification_state::ERROR_RATE_HIGH;
    let expected =
        Notification { count: 1, chunk: 1, blocks: 0..CHUNK, mask: notification_mask::CHUNK, state };
    assert_eq!(page, [expected], "once");
    let ask = open.ask_notifications();
    assert_eq!(open.notifications(&admin(herd, host, ask)), Ok(Vec::new()));
}

#[test]
fn chunks_are_there_again() {
    for (power_cut, isolation, shards) in
        [(false, Isolation::Channel, 1), (true, Isolation::Die, 1), (true, Isolation::Channel, 2)]
    {
        let (mut herd, mut host) = served(device(5), shards, Time::ZERO);
        make(&mut herd, isolation, 2);
        let mut open = look(&mut herd, &mut host);
        assert_eq!(write(&mut herd, &mut host, &mut open, &[(1, CHUNK)], 100), Status::SUCCESS);
        assert_eq!(write(&mut herd, &mut host, &mut open, &[(2, 3 * UNIT)], 200), Status::SUCCESS);
        assert_eq!(write(&mut herd, &mut host, &mut open, &[(0, UNIT)], 300), Status::SUCCESS);
        let request = open.reset(&[0]).expect("it is there");
        assert_eq!(io(&mut herd, &mut host, &mut open, request).0, Status::SUCCESS);
        let geometry = *open.geometry();
        let (device, now) = herd.end(power_cut);
        host.server_died();
        let mut herd = Herd::new(device, shards, 8, now);
        let mut open = look(&mut herd, &mut host);
        assert_eq!(*open.geometry(), geometry);
        // Nothing was programmed when the power went, so all of it is there; one that was open is closed.
        assert_eq!(
            [0, 1, 2].map(|chunk| facts(&open, chunk)),
            [(chunk_state::FREE, 0), (chunk_state::CLOSED, CHUNK), (chunk_state::CLOSED, 3 * UNIT)]
        );
        let (status, data) = read(&mut herd, &mut host, &mut open, 1, 0, CHUNK);
        assert_eq!((status, data), (Status::SUCCESS, content(100, CHUNK)));
        let (status, data) = read(&mut herd, &mut host, &mut open, 2, 0, 3 * UNIT);
        assert_eq!((status, data), (Status::SUCCESS, content(200, 3 * UNIT)));
        assert_eq!(write(&mut herd, &mut host, &mut open, &[(0, UNIT)], 400), Status::SUCCESS);
        // Another volume has nothing of them.
        herd.done(ControlRequest::DeleteSubsystem(subsystem("a").nqn));
        herd.done(ControlRequest::DeleteVolume("volume-a".to_owned()));
        host.server_died();
        herd.done(ControlRequest::CreateVolume(chunks("a", 2, 2)));
        herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
        let open = look(&mut herd, &mut host);
        assert!(open.chunks().iter().all(|of| of.state == chunk_state::FREE), "{:?}", open.chunks());
        assert_eq!(open.chunks().len(), 4);
    }
}

#[test]
fn a_chunk_whose_program_fails_is_closed_and_one_whose_die_is_gone_is_offline() {
    let (mut herd, mut host) = served(device(3), 1, Time::ZERO);
    let (herd, host) = (&mut herd, &mut host);
    make(herd, Isolation::Channel, 2);
    let mut open = look(herd, host);
    assert_eq!(write(herd, host, &mut open, &[(0, 2 * UNIT)], 1), Status::SUCCESS);
    let number = herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(herd.shards[0].pool(), VssdId(number));
    let [(_, place)] = held[..] else { panic!("one chunk has a block: {held:?}") };
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    // One of the six programs that are left fails, however many the die has done before.
    for nth in (0..60).step_by(5) {
        herd.shards[0].media_mut().add_fault(Fault::Fail { die, kind: OperationKind::Program, nth });
    }
    let mut written = 2 * UNIT;
    let status = loop {
        let status = write(herd, host, &mut open, &[(0, UNIT)], u64::from(written) + 1);
        if !status.is_success() {
            break status;
        }
        written += UNIT;
    };
    assert!(status.same_code(Status::CHUNK_EARLY_CLOSE), "{status:?}");
    let mut open = look(herd, host);
    assert_eq!(facts(&open, 0), (chunk_state::CLOSED, written));
    let (status, data) = read(herd, host, &mut open, 0, 0, written);
    assert_eq!((status, data), (Status::SUCCESS, content(1, written)), "what was answered is there");
    assert_eq!(write(herd, host, &mut open, &[(1, UNIT)], 50), Status::SUCCESS);
    let now = herd.now.0;
    herd.shards[0].media_mut().add_fault(Fault::DieOffline { die, from_ns: now });
    let status = write(herd, host, &mut open, &[(1, UNIT)], 60);
    assert!(status.same_code(Status::OFFLINE_CHUNK), "{status:?}");
    assert_eq!(look(herd, host).chunks()[1].state, chunk_state::OFFLINE);
    let request = open.reset(&[1]).expect("it is there");
    assert!(io(herd, host, &mut open, request).0.same_code(Status::OFFLINE_CHUNK));
    assert_eq!(write(herd, host, &mut open, &[(CHUNKS_OF_DIE, UNIT)], 70), Status::SUCCESS, "another die");
}

#[test]
fn a_tenant_with_chunks_moves_to_another_shard() {
    let (mut herd, mut host) = served(device(5), 2, Time::ZERO);
    let (herd, host) = (&mut herd, &mut host);
    make(herd, Isolation::Channel, 2);
    let mut open = look(herd, host);
    assert_eq!(write(herd, host, &mut open, &[(0, CHUNK)], 100), Status::SUCCESS);
    let home = herd.home("vssd-a");
    herd.done(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard: 1 - home as u16 });
    assert_eq!(herd.home("vssd-a"), 1 - home);
    let mut open = look(herd, host);
    let (status, data) = read(herd, host, &mut open, 0, 0, CHUNK);
    assert_eq!((status, data), (Status::SUCCESS, content(100, CHUNK)));
    assert_eq!(write(herd, host, &mut open, &[(1, UNIT)], 200), Status::SUCCESS);
}

fn refused(herd: &mut Herd, request: ControlRequest) -> String {
    match herd.ask(request) {
        ControlResponse::Refused(error) => error.message,
        other => panic!("it is refused, not {other:?}"),
    }
}

#[test]
fn set_ups_that_cannot_be_are_refused_with_what_is_wrong() {
    let (mut herd, _) = served(device(3), 1, Time::ZERO);
    let herd = &mut herd;
    let says = |message: &str, words: &[&str]| {
        words.iter().for_each(|word| assert!(message.contains(word), "{message:?} lacks {word:?}"));
    };
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    for isolation in [Isolation::Software, Isolation::None] {
        let shared = VssdSpec { throughput_level: 0, ..open_channel("a", isolation) };
        says(
            &refused(herd, ControlRequest::CreateVssd(shared)),
            &["vSSD \"vssd-a\"", "channel or die isolation"],
        );
    }
    let placed = VssdSpec { placement_handles: 2, ..open_channel("a", Isolation::Channel) };
    says(&refused(herd, ControlRequest::CreateVssd(placed)), &["vSSD \"vssd-a\"", "placement_handles"]);
    herd.done(ControlRequest::CreateVssd(open_channel("a", Isolation::Channel)));
    let odd = VolumeSpec { size: Size(4096 * 100), ..volume("a") };
    says(
        &refused(herd, ControlRequest::CreateVolume(odd)),
        &["volume \"volume-a\"", "524288", "one erase block"],
    );
    let large = chunks("a", 2, 4000);
    says(&refused(herd, ControlRequest::CreateVolume(large)), &["volume \"volume-a\"", "up to"]);
    let zoned = VolumeSpec { zones: ZoneSpec { units: Some(1), ..ZoneSpec::default() }, ..chunks("a", 2, 3) };
    says(&refused(herd, ControlRequest::CreateVolume(zoned)), &["chunks, not zones"]);
    let placed = VolumeSpec { placement: vec![0], ..chunks("a", 2, 3) };
    says(&refused(herd, ControlRequest::CreateVolume(placed)), &["placement"]);
    herd.done(ControlRequest::CreateVolume(chunks("a", 2, 3)));
    let second = VolumeSpec { name: "second".to_owned(), ..chunks("a", 2, 3) };
    says(
        &refused(herd, ControlRequest::CreateVolume(second)),
        &["\"second\"", "one Open-Channel volume", "volume-a"],
    );
    let repair = ControlRequest::RepairVssd { vssd: "vssd-a".to_owned(), accepts_loss: false };
    says(&refused(herd, repair), &["has chunks"]);
}
