//! Goal: what hosts write with different placement handles lies in different reclaim units, what they are told of it is so, and a set-up that
//! cannot be is refused with the field that is wrong. Method: shards in virtual time, a host over NVMe/TCP that asks as nvme-cli does.

use crate::herd::{Herd, Host, device, subsystem, volume, vssd};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::fdp::*;
use diecut_nvme::feature::{SetFeatures, fid};
use diecut_nvme::io::LbaRange;
use diecut_nvme::log_page::lid;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_shard::control::*;
use diecut_spec::{Amount, Isolation, PlacementIsolation, ReclaimGroups, Sharing, Size};
use diecut_units::{Buffer, Span, Time};
use diecut_vssd::VssdId;
use zerocopy::FromBytes;

/// A tenant whose vSSD has three handles, and whose volume has these of them.
fn add_placed(herd: &mut Herd, name: &str, isolation: PlacementIsolation, placement: &[u16]) {
    let spec = VssdSpec { placement_isolation: isolation, ..vssd(name, name, Isolation::Channel, 0) };
    add_placed_on(herd, name, spec, placement);
}

fn add_placed_on(herd: &mut Herd, name: &str, spec: VssdSpec, placement: &[u16]) {
    herd.done(ControlRequest::CreateTenant(TenantSpec::new(name)));
    let placed = VssdSpec { placement_handles: 3, ..spec };
    herd.done(ControlRequest::CreateVssd(placed));
    herd.done(ControlRequest::CreateVolume(VolumeSpec { placement: placement.to_vec(), ..volume(name) }));
    herd.done(ControlRequest::CreateSubsystem(subsystem(name)));
}

fn run(herd: &mut Herd, host: &mut Host, commands: u64) {
    let goal = host.done + commands;
    for _ in 0..2_000_000 {
        if host.done >= goal && host.is_idle() {
            return;
        }
        host.work(herd, host.done < goal);
        herd.step();
    }
    panic!("a host is never served");
}

fn connect(herd: &mut Herd, host: &mut Host) {
    for _ in 0..200_000 {
        if host.is_ready() {
            return;
        }
        host.work(herd, false);
        herd.step();
    }
    panic!("a host is never connected");
}

fn page(herd: &mut Herd, host: &mut Host, page: u8, bytes: u64) -> Vec<u8> {
    host.log_page_with(herd, GetLogPage { specific: 1, specific_id: 1, ..GetLogPage::of(page, bytes) })
}

fn configuration(herd: &mut Herd, host: &mut Host) -> PlacementConfiguration {
    let head = page(herd, host, lid::FDP_CONFIGURATIONS, 16);
    let size = u32::from_le_bytes(head[4..8].try_into().unwrap());
    let all = page(herd, host, lid::FDP_CONFIGURATIONS, size.into());
    parse_configurations(&all).unwrap().remove(0)
}

fn statistics(herd: &mut Herd, host: &mut Host) -> StatisticsLog {
    StatisticsLog::read_from_bytes(&page(herd, host, lid::FDP_STATISTICS, 64)).unwrap()
}

/// Logical blocks that the reclaim unit of each placement handle takes, and which handles these are.
fn handle_status(herd: &mut Herd, host: &mut Host) -> Vec<(u16, u64)> {
    let mut entry =
        SubmissionEntry { opcode: opcode::io::IO_MANAGEMENT_RECEIVE, nsid: 1.into(), ..Default::default() };
    IoManagementReceive { operation: 1, specific: 0, length_bytes: 80 }.encode(&mut entry);
    let (status, data) = host.io_command(herd, entry, None, 80);
    assert_eq!(status, Status::SUCCESS);
    let told = parse_status(&data).unwrap();
    told.iter().map(|one| (one.handle.get(), one.available_lbas.get())).collect()
}

fn write_placed(herd: &mut Herd, host: &mut Host, first: u64, pid: u16) {
    let mut entry = SubmissionEntry { opcode: opcode::io::WRITE, nsid: 1.into(), ..Default::default() };
    LbaRange { directive_type: 2, directive_specific: pid, ..LbaRange::plain(first, 1) }.encode(&mut entry);
    let data = Buffer::copy_from(&(first + 1).to_le_bytes());
    assert_eq!(host.io_command(herd, entry, Some(data), 0).0, Status::SUCCESS);
}

fn update(herd: &mut Herd, host: &mut Host, pid: u16) {
    let mut entry =
        SubmissionEntry { opcode: opcode::io::IO_MANAGEMENT_SEND, nsid: 1.into(), ..Default::default() };
    IoManagementSend { operation: IoManagementSend::UPDATE_HANDLES, specific: 0 }.encode(&mut entry);
    let data = Buffer::copy_from(&pid.to_le_bytes());
    assert_eq!(host.io_command(herd, entry, Some(data), 0).0, Status::SUCCESS);
}

#[test]
fn a_host_chooses_where_its_data_lie_and_is_told_of_it() {
    for isolation in [PlacementIsolation::Initial, PlacementIsolation::Persistent] {
        let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
        add_placed(&mut herd, "a", isolation, &[2, 0]);
        let mut host = Host::new("a", 1);
        run(&mut herd, &mut host, 20);
        let configuration = configuration(&mut herd, &mut host);
        let kind = match isolation {
            PlacementIsolation::Initial => INITIALLY_ISOLATED,
            PlacementIsolation::Persistent => PERSISTENTLY_ISOLATED,
        };
        assert_eq!((configuration.groups, configuration.handles), (1, vec![kind; 3]));
        let usage = parse_usage(&page(&mut herd, &mut host, lid::RECLAIM_UNIT_HANDLE_USAGE, 32)).unwrap();
        assert_eq!(usage, [HANDLE_USED_BY_HOST, HANDLE_UNUSED, HANDLE_USED_BY_HOST]);

        let unit_lbas = configuration.unit_bytes / 4096;
        let [first, other] = handle_status(&mut herd, &mut host)[..] else { panic!("two handles") };
        assert_eq!((first.0, other), (2, (0, unit_lbas)), "nobody has written to the other one");
        assert!(first.1 < unit_lbas, "writes without a directive go to the first one");

        let before = statistics(&mut herd, &mut host);
        for lba in 0..4 {
            write_placed(&mut herd, &mut host, lba, 1);
        }
        let [same, less] = handle_status(&mut herd, &mut host)[..] else { panic!("two handles") };
        assert_eq!(same, first);
        assert!(less.0 == 0 && less.1 <= unit_lbas - 4 && less.1 > 0, "{less:?}");
        let after = statistics(&mut herd, &mut host);
        assert_eq!(after.host_written_bytes.get() - before.host_written_bytes.get(), 4 * 4096);

        let mut entry =
            SubmissionEntry { opcode: opcode::admin::SET_FEATURES, nsid: 1.into(), ..Default::default() };
        SetFeatures { feature: fid::DATA_PLACEMENT_EVENTS, save: false, value: 0 }.encode(&mut entry);
        PlacementEventsFeature { handle: 1, count: 1, enable: true }.encode(&mut entry);
        let kinds = Buffer::copy_from(&[event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN]);
        assert_eq!(host.admin_command(&mut herd, entry, Some(kinds), 0).0, Status::SUCCESS);
        update(&mut herd, &mut host, 1);
        // A reclaim unit ends when what makes its last pages safe is programmed.
        let is_fresh = |told: Vec<(u16, u64)>| told == [first, (0, unit_lbas)];
        assert!((0..1000).any(|_| is_fresh(handle_status(&mut herd, &mut host))), "it never ends");
        update(&mut herd, &mut host, 1);
        let events = parse_events(&page(&mut herd, &mut host, lid::FDP_EVENTS, 4096)).unwrap();
        let told: Vec<_> = events.iter().map(|one| (one.kind, one.pid.get(), one.handle.get())).collect();
        assert_eq!(told, [(0, 1, 0)], "a fresh reclaim unit is changed without a word");

        host.server_died();
        let (device, now) = herd.end(true);
        let mut herd = Herd::new(device, 1, 6, now);
        run(&mut herd, &mut host, 20);
        let again = self::configuration(&mut herd, &mut host);
        assert_eq!((again.handles, again.unit_bytes), (vec![kind; 3], unit_lbas * 4096));
        assert!(statistics(&mut herd, &mut host).media_written_bytes.get() > 0);
    }
}

/// Goal: hosts choose among the dies or channels of a vSSD, find what they wrote there, also after a crash, and are told of each. Method: writes to
/// all pairs of groups and handles, against where the store says that they lie.
#[test]
fn a_host_chooses_among_dies_or_channels() {
    for (reclaim_groups, throughput_level, groups) in
        [(ReclaimGroups::Die, 1, 2), (ReclaimGroups::Channel, 2, 2)]
    {
        let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
        herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
        let grouped = VssdSpec {
            placement_handles: 2,
            reclaim_groups,
            ..vssd("a", "a", Isolation::Channel, throughput_level)
        };
        herd.done(ControlRequest::CreateVssd(grouped));
        herd.done(ControlRequest::CreateVolume(VolumeSpec { placement: vec![1, 0], ..volume("a") }));
        herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
        let mut host = Host::new("a", 1);
        connect(&mut herd, &mut host);
        let told = configuration(&mut herd, &mut host);
        assert_eq!((told.groups, told.rgif, told.pids_less_one), (groups, 1, 3), "{reclaim_groups:?}");
        let pid = |group: u16, handle: u16| group << 15 | handle;
        for lba in 0..64 {
            write_placed(&mut herd, &mut host, lba, pid((lba % 2) as u16, (lba / 2 % 2) as u16));
        }
        let check = |herd: &Herd| {
            for lba in 0..64 {
                let vssd = herd.shards[0].state().vssds["vssd-a"].number;
                let index = herd.shards[0].state().volumes["volume-a"].index;
                let unit = herd.shards[0].reclaim_unit_of(VssdId(vssd), index, lba).expect("it was written");
                // Placement handle 0 is the second one of the vSSD.
                let expected = ((lba % 2) as u16, 1 - (lba / 2 % 2) as u16);
                assert_eq!((unit.group.0, unit.handle.0), expected, "{reclaim_groups:?}: block {lba}");
            }
        };
        check(&herd);
        host.server_died();
        let (device, now) = herd.end(true);
        let mut herd = Herd::new(device, 1, 6, now);
        connect(&mut herd, &mut host);
        check(&herd);
        assert_eq!(configuration(&mut herd, &mut host), told);
    }
}

/// Goal: figures of log page 22h outlive an orderly stop to the byte of what hosts wrote, a later crash does not bring them below that, and
/// erased bytes are those of erases. Method: a host writes with updates of its handle, so that reclaim units come and go.
#[test]
fn figures_outlive_stops_and_crashes() {
    let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
    add_placed(&mut herd, "a", PlacementIsolation::Initial, &[2, 0]);
    let mut host = Host::new("a", 1);
    run(&mut herd, &mut host, 20);
    for lba in 0..30 {
        write_placed(&mut herd, &mut host, lba, 1);
        update(&mut herd, &mut host, 1);
    }
    let told = |log: &StatisticsLog| {
        [log.host_written_bytes.get(), log.media_written_bytes.get(), log.media_erased_bytes.get()]
    };
    let before = told(&statistics(&mut herd, &mut host));
    let erases = herd.status().vssds[0].traffic.erases;
    let [host_bytes, media_bytes, erased_bytes] = before;
    assert!(erases > 0 && erased_bytes.is_multiple_of(erases.into()), "{erased_bytes}: {erases}");
    assert!(host_bytes >= 30 * 4096 && media_bytes > host_bytes, "{before:?}");
    herd.done(ControlRequest::Shutdown);
    host.server_died();
    let (device, now) = herd.end(false);

    let mut herd = Herd::new(device, 1, 6, now);
    connect(&mut herd, &mut host);
    let after = told(&statistics(&mut herd, &mut host));
    assert_eq!(after[0], host_bytes, "nothing was written since");
    assert!(after.iter().zip(before).all(|(after, before)| *after >= before), "{after:?}, {before:?}");
    for lba in 0..10 {
        write_placed(&mut herd, &mut host, lba, 1);
    }
    host.server_died();
    let (device, now) = herd.end(true);

    let mut herd = Herd::new(device, 1, 7, now);
    connect(&mut herd, &mut host);
    let crashed = told(&statistics(&mut herd, &mut host));
    assert!(crashed.iter().zip(before).all(|(after, before)| *after >= before), "{crashed:?}, {before:?}");
    assert_eq!(crashed[0], host_bytes + 10 * 4096, "records of writes are found again");
}

/// Sets for a placement handle whether all events are kept that there are.
fn keep_events(herd: &mut Herd, host: &mut Host, handle: u16, enable: bool) {
    let mut entry =
        SubmissionEntry { opcode: opcode::admin::SET_FEATURES, nsid: 1.into(), ..Default::default() };
    SetFeatures { feature: fid::DATA_PLACEMENT_EVENTS, save: false, value: 0 }.encode(&mut entry);
    PlacementEventsFeature { handle, count: 2, enable }.encode(&mut entry);
    let kinds = [event_kind::INVALID_PLACEMENT_IDENTIFIER, event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN];
    let kinds = Some(Buffer::copy_from(&kinds));
    assert_eq!(host.admin_command(herd, entry, kinds, 0).0, Status::SUCCESS);
}

/// Types of events, and whether they are kept, of two placement handles.
fn kept_events(herd: &mut Herd, host: &mut Host) -> [Vec<u8>; 2] {
    [0, 1].map(|handle| {
        let mut entry =
            SubmissionEntry { opcode: opcode::admin::GET_FEATURES, nsid: 1.into(), ..Default::default() };
        entry.cdw10 = u32::from(fid::DATA_PLACEMENT_EVENTS).into();
        PlacementEventsFeature { handle, count: 2, enable: false }.encode(&mut entry);
        let (status, data) = host.admin_command(herd, entry, None, 4);
        assert_eq!(status, Status::SUCCESS);
        data
    })
}

/// No placement identifier.
const NOTHING: u16 = 0x0F00;

fn events(herd: &mut Herd, host: &mut Host) -> Vec<PlacementEvent> {
    parse_events(&page(herd, host, lid::FDP_EVENTS, 4096)).unwrap()
}

/// Time passes; the host asks nothing.
fn rest(herd: &mut Herd, host: &mut Host, length: Span) {
    let until = herd.now + length;
    while herd.now < until {
        host.work(herd, false);
        herd.step();
    }
}

fn again(herd: Herd, host: &mut Host, shards: u16, seed: u64, power_cut: bool) -> Herd {
    host.server_died();
    let (device, now) = herd.end(power_cut);
    let mut herd = Herd::new(device, shards, seed, now);
    connect(&mut herd, host);
    herd
}

/// What a host set of events is there after a restart, and the events are, on whichever shard their subsystem lives.
fn find_events_again() {
    for (shards, seed) in [(1, 1), (2, 2), (3, 3)] {
        let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
        for name in ["z", "a", "y"] {
            add_placed(&mut herd, name, PlacementIsolation::Initial, &[2, 0]);
        }
        let mut host = Host::new("a", 1);
        connect(&mut herd, &mut host);
        keep_events(&mut herd, &mut host, 1, true);
        keep_events(&mut herd, &mut host, 0, true);
        keep_events(&mut herd, &mut host, 1, false);
        keep_events(&mut herd, &mut host, 1, true);
        write_placed(&mut herd, &mut host, 0, 1);
        update(&mut herd, &mut host, 1);
        write_placed(&mut herd, &mut host, 1, NOTHING);
        let told = events(&mut herd, &mut host);
        let kinds: Vec<_> = told.iter().map(|one| (one.kind, one.pid.get(), one.handle.get())).collect();
        assert_eq!(kinds, [(0, 1, 0), (3, NOTHING, 2)]);
        // A power cut, after they were gathered.
        rest(&mut herd, &mut host, Span::from_millis(1100));
        let mut herd = again(herd, &mut host, 1 + shards % 3, seed + 10, true);
        assert_eq!(events(&mut herd, &mut host), told, "{shards} shards");
        assert_eq!(kept_events(&mut herd, &mut host), [[0, 1, 3, 1]; 2]);
        // A stop, right after some more.
        keep_events(&mut herd, &mut host, 1, false);
        write_placed(&mut herd, &mut host, 2, NOTHING + 1);
        let more = events(&mut herd, &mut host);
        assert_eq!(more.len(), told.len() + 1);
        herd.done(ControlRequest::Shutdown);
        let mut herd = again(herd, &mut host, shards, seed + 20, false);
        assert_eq!(events(&mut herd, &mut host), more, "{shards} shards");
        assert_eq!(kept_events(&mut herd, &mut host), [[0, 1, 3, 1], [0, 0, 3, 0]]);
        // Those of others begin with nothing, and what is taken away begins anew.
        let mut other = Host::new("y", 2);
        connect(&mut herd, &mut other);
        assert_eq!(events(&mut herd, &mut other), []);
        let nqn = subsystem("a").nqn;
        assert_eq!(herd.shards[0].state().placements.len(), 1);
        herd.done(ControlRequest::DetachNamespace { subsystem: nqn.clone(), nsid: 1 });
        assert!(herd.shards[0].state().placements.is_empty());
        let volume = volume("a").name;
        herd.done(ControlRequest::AttachNamespace { subsystem: nqn.clone(), nsid: 1, volume });
        let mut herd = again(herd, &mut host, shards, seed + 30, true);
        assert_eq!(events(&mut herd, &mut host), []);
        assert_eq!(kept_events(&mut herd, &mut host), [[0, 0, 3, 0]; 2]);
        keep_events(&mut herd, &mut host, 0, true);
        assert_eq!(herd.shards[0].state().placements.len(), 1);
        herd.done(ControlRequest::DeleteSubsystem(nqn));
        assert!(herd.shards[0].state().placements.is_empty());
    }
}

#[test]
fn events_outlive_restarts() {
    find_events_again();
}

/// The test above fails where a bug is planted.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::is_noticed("shard: events of placement are not restored", find_events_again);
}

/// Goal: what was answered of feature 1Eh holds whenever the server is killed, and no event is invented. Method: deaths at many moments of a host
/// that sets and provokes.
#[test]
fn what_was_set_of_events_holds_after_a_death_at_any_moment() {
    let mut lost = 0;
    for seed in 0..24u64 {
        let shards = 1 + (seed % 2) as u16;
        let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
        for name in ["z", "a"] {
            add_placed(&mut herd, name, PlacementIsolation::Initial, &[2, 0]);
        }
        let mut host = Host::new("a", 1);
        connect(&mut herd, &mut host);
        keep_events(&mut herd, &mut host, 0, true);
        let mut is_enabled = false;
        for lba in 0..seed % 5 {
            write_placed(&mut herd, &mut host, lba, NOTHING + lba as u16);
            is_enabled = !is_enabled;
            keep_events(&mut herd, &mut host, 1, is_enabled);
        }
        write_placed(&mut herd, &mut host, 9, NOTHING + 99);
        let told = events(&mut herd, &mut host);
        rest(&mut herd, &mut host, Span::from_millis(seed * 50));
        let mut herd = again(herd, &mut host, 2, seed + 100, seed % 3 == 0);
        assert_eq!(kept_events(&mut herd, &mut host)[1][1], u8::from(is_enabled), "seed {seed}");
        let found = events(&mut herd, &mut host);
        assert_eq!(found, told[..found.len()], "seed {seed}");
        assert!(told.len() - found.len() <= 1, "seed {seed}: what is set takes events along");
        lost += told.len() - found.len();
    }
    assert!(lost > 0 && lost < 24, "deaths come before and after events were written: {lost}");
}

/// Goal: events go with their tenant to another shard, also while they are on their way to the catalog, and those that are durable are there when
/// a shard fails. Method: moves to and fro beside a host that sets and provokes, then a failure.
#[test]
fn events_move_with_their_tenant_and_outlive_a_failed_shard() {
    let mut herd = Herd::new(device(7), 2, 7, Time::ZERO);
    for name in ["z", "a"] {
        add_placed(&mut herd, name, PlacementIsolation::Initial, &[2, 0]);
    }
    let mut host = Host::new("a", 1);
    connect(&mut herd, &mut host);
    keep_events(&mut herd, &mut host, 0, true);
    let mut provoked = 0;
    for shard in [0, 1, 0, 1] {
        let token = herd.begin(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard });
        let answer = loop {
            if let Some(answer) = herd.answer(token) {
                break answer;
            }
            keep_events(&mut herd, &mut host, 1, provoked % 2 == 0);
            write_placed(&mut herd, &mut host, 3, NOTHING + provoked);
            provoked += 1;
            assert!(provoked < 60, "a tenant never moves");
        };
        assert!(matches!(answer, ControlResponse::Done | ControlResponse::Unchanged), "{answer:?}");
    }
    assert_eq!(herd.home("vssd-a"), 1, "its shard is not the first one");
    let told = events(&mut herd, &mut host);
    let pids: Vec<u16> = told.iter().map(|one| one.pid.get() - NOTHING).collect();
    assert_eq!(pids, (0..provoked).collect::<Vec<_>>());
    rest(&mut herd, &mut host, Span::from_millis(1500));
    let set = kept_events(&mut herd, &mut host);
    herd.fail(1);
    host.server_died();
    connect(&mut herd, &mut host);
    assert_eq!(events(&mut herd, &mut host), told);
    assert_eq!(kept_events(&mut herd, &mut host), set);
    // Its next life is heard, too.
    write_placed(&mut herd, &mut host, 3, NOTHING);
    keep_events(&mut herd, &mut host, 1, set[1][1] == 0);
    let told = events(&mut herd, &mut host);
    let mut herd = again(herd, &mut host, 2, 8, true);
    assert_eq!(events(&mut herd, &mut host), told);
}

/// Goal: a host that provokes events as fast as it can does not wear the flash that the catalog lies on. Method: a thousand events take as
/// many writes of the catalog as one.
#[test]
fn a_flood_of_events_is_written_once() {
    let mut herd = Herd::new(device(9), 1, 9, Time::ZERO);
    add_placed(&mut herd, "a", PlacementIsolation::Initial, &[2, 0]);
    let mut host = Host::new("a", 1);
    connect(&mut herd, &mut host);
    keep_events(&mut herd, &mut host, 0, true);
    let written = |herd: &Herd| herd.shards[0].system_work().0;
    let mut before = written(&herd);
    let mut took = Vec::new();
    for count in [1, 1000] {
        for lba in 0..count {
            write_placed(&mut herd, &mut host, lba % 90, NOTHING + lba as u16);
        }
        rest(&mut herd, &mut host, Span::from_secs(2));
        took.push(written(&herd) - before);
        before = written(&herd);
    }
    assert!(took[0] > 0 && took[1] <= 2 * took[0], "{took:?}");
    let told = events(&mut herd, &mut host);
    assert_eq!(told.len(), EVENTS_MAX);
    let mut herd = again(herd, &mut host, 1, 10, true);
    assert_eq!(events(&mut herd, &mut host), told);
}

/// Goal: a host that ends reclaim units behind a block each is held up as if it had written them full, by the rate of its vSSD or of its QoS
/// set; one without limits is not. Method: the time that writes take of which each is followed by an update.
#[test]
fn updates_are_paid_for_by_rates() {
    const RATE: Size = Size(4 << 20);
    let took_ns = |limit: &str| {
        let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
        let spec = vssd("a", "a", Isolation::Channel, 0);
        let limited = VssdSpec { rate_limit: RATE, sharing: Sharing::Strict, ..spec.clone() };
        add_placed_on(&mut herd, "a", if limit == "rate" { limited } else { spec }, &[2, 0]);
        if limit == "set" {
            let set = QosSetSpec {
                volumes: vec![volume("a").name],
                threshold: Some(Amount::Bytes(Size(0))),
                ..QosSetSpec::new("slow", Amount::Bytes(RATE))
            };
            herd.done(ControlRequest::CreateQosSet(set));
        }
        let mut host = Host::new("a", 1);
        connect(&mut herd, &mut host);
        let unit_bytes = configuration(&mut herd, &mut host).unit_bytes;
        write_placed(&mut herd, &mut host, 0, 1);
        let begun = herd.now;
        for lba in 0..20 {
            update(&mut herd, &mut host, 1);
            write_placed(&mut herd, &mut host, lba, 1);
        }
        (herd.now.since(begun).0, 20 * unit_bytes * 1_000_000_000 / RATE.bytes())
    };
    let free_ns = took_ns("").0;
    for limit in ["rate", "set"] {
        let (limited_ns, full_ns) = took_ns(limit);
        assert!(limited_ns > free_ns * 2, "{limit}: {limited_ns}, {free_ns} without");
        // A burst, and what filler takes.
        assert!(limited_ns > full_ns / 2 && limited_ns < full_ns * 2, "{limit}: {limited_ns}, {full_ns}");
    }
}

/// Goal: a cleaner copies less where hosts say what dies together: the figures of log page 22h show it.
#[test]
fn volumes_without_a_choice_take_turns() {
    let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
    add_placed(&mut herd, "a", PlacementIsolation::Initial, &[]);
    for nth in 2..=4 {
        let one = VolumeSpec { name: format!("more-{nth}"), ..volume("a") };
        herd.done(ControlRequest::CreateVolume(one.clone()));
        let nqn = subsystem("a").nqn;
        herd.done(ControlRequest::AttachNamespace { subsystem: nqn, nsid: nth, volume: one.name });
    }
    let mut host = Host::new("a", 1);
    run(&mut herd, &mut host, 20);
    let usage = parse_usage(&page(&mut herd, &mut host, lid::RECLAIM_UNIT_HANDLE_USAGE, 32)).unwrap();
    assert_eq!(usage, [HANDLE_USED_BY_CONTROLLER; 3]);
    assert_eq!(handle_status(&mut herd, &mut host).len(), 1);
}

#[test]
fn a_set_up_that_cannot_be_is_refused_with_its_field() {
    let mut herd = Herd::new(device(1), 1, 5, Time::ZERO);
    add_placed(&mut herd, "a", PlacementIsolation::Initial, &[0]);
    let plain = VssdSpec { name: "plain".to_owned(), ..vssd("a", "a", Isolation::Channel, 0) };
    herd.done(ControlRequest::CreateVssd(plain));
    let mut refused = |request: ControlRequest, words: &[&str]| match herd.ask(request.clone()) {
        ControlResponse::Refused(error) => {
            for word in words {
                assert!(error.message.contains(word), "{}: {word}", error.message);
            }
        }
        other => panic!("{request:?}: {other:?}"),
    };
    let placed = |vssd: &str, placement: &[u16]| {
        let (name, vssd) = ("v".to_owned(), vssd.to_owned());
        ControlRequest::CreateVolume(VolumeSpec { name, vssd, placement: placement.to_vec(), ..volume("a") })
    };
    refused(placed("vssd-a", &[0, 3]), &["volume \"v\"", "placement names handle 3", "has 3"]);
    refused(placed("plain", &[0]), &["volume \"v\"", "placement is for", "\"plain\" has none"]);
    let many = |placement_handles| {
        let spec = vssd("many", "a", Isolation::Channel, 0);
        ControlRequest::CreateVssd(VssdSpec { placement_handles, ..spec })
    };
    refused(many(17), &["vSSD \"vssd-many\"", "placement_handles is above 16"]);
    let spec = vssd("many", "a", Isolation::Software, 0);
    let persistent =
        VssdSpec { placement_isolation: PlacementIsolation::Persistent, placement_handles: 16, ..spec };
    let figures =
        ["vSSD \"vssd-many\"", "placement_handles: 16 reclaim unit handles need", "the vSSD has", "fewer"];
    refused(ControlRequest::CreateVssd(persistent.clone()), &figures);
    // Nothing of it is left: one that fits gets its name and its room.
    herd.done(ControlRequest::CreateVssd(VssdSpec { placement_handles: 1, ..persistent }));
    herd.done(ControlRequest::DeleteVssd("vssd-many".to_owned()));
    let spec = VssdSpec { placement_handles: 2, ..vssd("second", "a", Isolation::Channel, 0) };
    herd.done(ControlRequest::CreateVssd(spec));
    herd.done(ControlRequest::CreateVolume(volume("second")));
    let nqn = subsystem("a").nqn;
    let attach =
        ControlRequest::AttachNamespace { subsystem: nqn, nsid: 2, volume: "volume-second".to_owned() };
    match herd.ask(attach) {
        ControlResponse::Refused(error) => {
            assert!(error.message.contains("both have placement handles"), "{error:?}")
        }
        other => panic!("{other:?}"),
    }
}
