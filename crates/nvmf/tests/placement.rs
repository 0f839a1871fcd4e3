//! Goal: hosts find the reclaim unit handles of a namespace, choose among them with each write, and are told what became of that.
//! Method: a host that asks and writes as nvme-cli and fio do, over namespaces that show where a write was to go.

use crate::world;
use diecut_namespace::contract::*;
use diecut_nvme::admin::{GetLogPage, Identify};
use diecut_nvme::fdp::*;
use diecut_nvme::feature::{GetFeatures, Select, SetFeatures, fid};
use diecut_nvme::identify::*;
use diecut_nvme::log_page::{CommandEffects, EFFECT_SUPPORTED, FeatureEffects, lid};
use diecut_nvme::tcp::Digests;
use diecut_nvme::*;
use diecut_nvmf::{ConnectionId, Event, Keep, KeepPlacement, PlacementFigures, restore_placement};
use diecut_testing::target;
use diecut_units::Span;
use world::*;
use zerocopy::{FromBytes, IntoBytes};

/// The namespace whose hosts may choose among handles 3, 0 and 2.
const PLACED: u32 = 1;
/// One to which handle 1 was given.
const GIVEN: u32 = 2;
/// One without handles.
const PLAIN: u32 = 3;
const INVALID: Status = Status::INVALID_FIELD.do_not_retry();
const DISABLED: Status = Status::FDP_DISABLED.do_not_retry();

struct Hosted {
    world: World,
    admin: ConnectionId,
    io: ConnectionId,
}

fn handles(all: &[u16]) -> PlacementHandles {
    PlacementHandles::new(&all.iter().map(|one| PlacementHandle(*one)).collect::<Vec<_>>())
}

fn in_group(group: Option<u16>, handle: u16) -> PlacementTarget {
    PlacementTarget { handle: PlacementHandle(handle), group: group.map(ReclaimGroup) }
}

/// A handle where there is one group.
fn whole(handle: u16) -> PlacementTarget {
    in_group(Some(0), handle)
}

fn placed(all: &[u16], is_given: bool) -> Option<PlacementProperties> {
    let (vssd_handles, unit_bytes) = (4, 96 << 20);
    Some(PlacementProperties {
        handles: handles(all),
        is_given,
        vssd_handles,
        groups: 1,
        is_persistent: true,
        unit_bytes,
    })
}

fn hosted_with(placements: [Option<PlacementProperties>; 3]) -> Hosted {
    let mut world = World::new(9);
    let namespaces = (1..).zip(placements).map(|(nsid, placement)| {
        let mut one = namespace(7, LBAS);
        one.properties.placement = placement;
        (nsid, one)
    });
    let config = target::subsystem(SUBSYSTEM, &[HOST], namespaces);
    let mut actions = Vec::new();
    world.target.set_subsystem(config, world.now, &mut actions);
    world.placement = PlacementFigures {
        host_written_bytes: 0x1_0000_0007,
        media_written_bytes: 2_500_000_001,
        erased_bytes: 9,
        available_lbas: vec![100, 101, 102, 103],
        partly_written: Vec::new(),
    };
    let (admin, controller) = world.admin(SUBSYSTEM, Digests::default());
    let io = world.io(controller, 1, Digests::default());
    Hosted { world, admin, io }
}

fn hosted() -> Hosted {
    hosted_with([placed(&[3, 0, 2], false), placed(&[1], true), None])
}

fn events_entry(nsid: u32, handle: u16, kinds: &[u8], enable: bool) -> (SubmissionEntry, Vec<u8>) {
    let mut entry = SubmissionEntry {
        opcode: opcode::admin::SET_FEATURES,
        nsid: nsid.into(),
        sgl: SglDescriptor::in_capsule(255),
        ..SubmissionEntry::default()
    };
    SetFeatures { feature: fid::DATA_PLACEMENT_EVENTS, save: false, value: 0 }.encode(&mut entry);
    PlacementEventsFeature { handle, count: kinds.len() as u8, enable }.encode(&mut entry);
    let mut data = kinds.to_vec();
    data.resize(255, 0);
    (entry, data)
}

impl Hosted {
    fn send(&mut self, entry: SubmissionEntry, data: &[u8], is_admin: bool) -> Reply {
        let connection = if is_admin { self.admin } else { self.io };
        self.world.command(connection, entry, data)
    }

    fn log_with(&mut self, ask: GetLogPage) -> Result<Vec<u8>, Status> {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::GET_LOG_PAGE,
            nsid: NSID_ALL.into(),
            sgl: SglDescriptor::transport(ask.length_bytes as u32),
            ..SubmissionEntry::default()
        };
        ask.encode(&mut entry);
        let reply = self.send(entry, &[], true);
        if reply.status.is_success() { Ok(reply.data) } else { Err(reply.status) }
    }

    fn log(&mut self, page: u8, length_bytes: u64) -> Vec<u8> {
        self.log_with(GetLogPage { specific_id: 1, ..GetLogPage::of(page, length_bytes) }).unwrap()
    }

    fn events(&mut self) -> Vec<PlacementEvent> {
        let ask = GetLogPage { specific: 1, specific_id: 1, ..GetLogPage::of(lid::FDP_EVENTS, 4096) };
        parse_events(&self.log_with(ask).unwrap()).unwrap()
    }

    fn identify(&mut self, cns: u8, nsid: u32) -> Reply {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            nsid: nsid.into(),
            sgl: SglDescriptor::transport(4096),
            ..SubmissionEntry::default()
        };
        Identify { cns, controller_id: 0, command_set: 0, specific_id: 0 }.encode(&mut entry);
        self.send(entry, &[], true)
    }

    /// `nvme fdp set-events`: the types in a buffer of 255 bytes.
    fn set_events(&mut self, nsid: u32, handle: u16, kinds: &[u8], enable: bool) -> Status {
        let (entry, data) = events_entry(nsid, handle, kinds, enable);
        self.send(entry, &data, true).status
    }

    /// The same for an invalid identifier and the first handle, without waiting for the answer.
    fn begin_events(&mut self, enable: bool) -> u16 {
        let (mut entry, data) = events_entry(PLACED, 0, &[event_kind::INVALID_PLACEMENT_IDENTIFIER], enable);
        entry.command_id = self.world.next_id(self.admin).into();
        entry.flags |= 0x40;
        let capsule = self.world.capsule(self.admin, entry, &data);
        self.world.send(self.admin, &capsule);
        entry.command_id.get()
    }

    /// The status of a command of the admin queue, if it was answered.
    fn answer(&mut self, command_id: u16) -> Option<Status> {
        self.world.reply(self.admin, command_id).map(|reply| reply.status)
    }

    /// Whether events of an invalid identifier are kept for the first handle.
    fn keeps_events(&mut self) -> bool {
        let told = self.get_feature(fid::DATA_PLACEMENT_EVENTS, PLACED, 0xFF << 16, 1024);
        told.data[3] == 1
    }

    /// Time passes.
    fn rest(&mut self, length: Span) {
        let until = self.world.now + length;
        while self.world.target.deadline() <= until {
            self.world.now = self.world.now.max(self.world.target.deadline());
            self.world.handle(Event::Tick);
        }
        self.world.now = until;
    }

    /// What is to be made durable.
    fn next_keep(&mut self) -> KeepPlacement {
        match self.world.records_held.remove(0) {
            Keep::Placement(keep) => keep,
            other => panic!("{other:?}"),
        }
    }

    fn restart(&self) -> Hosted {
        let mut host = hosted();
        let nqn = QualifiedName::new(SUBSYSTEM).unwrap();
        if let Some(record) = self.world.events.last() {
            restore_placement(&mut host.world.target, &nqn, record);
        }
        host
    }

    fn get_feature(&mut self, feature: u8, nsid: u32, dword_11: u32, room_bytes: u32) -> Reply {
        let entry = SubmissionEntry {
            opcode: opcode::admin::GET_FEATURES,
            nsid: nsid.into(),
            sgl: SglDescriptor::transport(room_bytes),
            cdw10: u32::from(feature).into(),
            cdw11: dword_11.into(),
            ..SubmissionEntry::default()
        };
        assert_eq!(GetFeatures::decode(&entry), GetFeatures { feature, select: Select::Current });
        self.send(entry, &[], true)
    }

    /// Where a write was to go.
    /// The handle that a write goes to.
    fn write(&mut self, nsid: u32, directive: Option<(u8, u16)>) -> Result<u16, Status> {
        self.target_of_write(nsid, directive).map(|target| target.handle.0)
    }

    fn target_of_write(
        &mut self,
        nsid: u32,
        directive: Option<(u8, u16)>,
    ) -> Result<PlacementTarget, Status> {
        let mut entry = self.world.rw(opcode::io::WRITE, 0, 1, SglDescriptor::in_capsule(LBA as u32));
        entry.nsid = nsid.into();
        let (directive_type, directive_specific) = directive.unwrap_or((0, 0));
        io::LbaRange { directive_type, directive_specific, ..io::LbaRange::plain(0, 1) }.encode(&mut entry);
        entry.command_id = self.world.next_id(self.io).into();
        entry.flags |= 0x40;
        self.world.hold = true;
        let capsule = self.world.capsule(self.io, entry, &[7; LBA]);
        self.world.send(self.io, &capsule);
        let place = |command: &NamespaceCommand| match &command.operation {
            NamespaceOperation::Write { placement, .. } => *placement,
            _ => panic!("{command:?}"),
        };
        let places: Vec<PlacementTarget> = self.world.held.iter().map(place).collect();
        self.world.release_held();
        let reply = self.world.reply(self.io, entry.command_id.get()).expect("answered");
        if reply.status.is_success() { Ok(places[0]) } else { Err(reply.status) }
    }

    fn receive(&mut self, nsid: u32, operation: u8, length_bytes: u64) -> Reply {
        let mut entry = SubmissionEntry {
            opcode: opcode::io::IO_MANAGEMENT_RECEIVE,
            nsid: nsid.into(),
            sgl: SglDescriptor::transport(length_bytes as u32),
            ..SubmissionEntry::default()
        };
        IoManagementReceive { operation, specific: 0, length_bytes }.encode(&mut entry);
        self.send(entry, &[], false)
    }

    fn update(&mut self, nsid: u32, pids: &[u16]) -> Status {
        let data: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
        let mut entry = SubmissionEntry {
            opcode: opcode::io::IO_MANAGEMENT_SEND,
            nsid: nsid.into(),
            sgl: SglDescriptor::in_capsule(data.len() as u32),
            ..SubmissionEntry::default()
        };
        let specific = pids.len() as u16 - 1;
        IoManagementSend { operation: IoManagementSend::UPDATE_HANDLES, specific }.encode(&mut entry);
        self.send(entry, &data, false).status
    }

    fn directive(&mut self, code: u8, nsid: u32, change: impl Fn(&mut SubmissionEntry)) -> Reply {
        let length = if code == opcode::admin::DIRECTIVE_RECEIVE { 4096 } else { 0 };
        let mut entry = SubmissionEntry {
            opcode: code,
            nsid: nsid.into(),
            sgl: SglDescriptor::transport(length),
            ..SubmissionEntry::default()
        };
        DirectiveCommand { length_bytes: 4096, operation: 1, kind: DIRECTIVE_IDENTIFY, specific: 0 }
            .encode(&mut entry);
        change(&mut entry);
        self.send(entry, &[], true)
    }
}

#[test]
fn a_controller_tells_of_placement_where_a_namespace_has_handles() {
    for has_any in [true, false] {
        let mut host = if has_any { hosted() } else { hosted_with([None; 3]) };
        let controller = host.identify(cns::CONTROLLER, 0).data;
        let controller = IdentifyController::read_from_bytes(&controller).unwrap();
        let attributes = CTRATT_DATA_PLACEMENT | CTRATT_ENDURANCE_GROUPS;
        assert_eq!(controller.ctratt.get() & attributes, if has_any { attributes } else { 0 });
        assert_eq!(controller.oacs.get() & OACS_DIRECTIVES != 0, has_any);
        assert_eq!(controller.endgidmax.get(), u16::from(has_any));
        for nsid in [PLACED, GIVEN, PLAIN] {
            let group = u16::from(has_any && nsid != PLAIN);
            let page = host.identify(cns::NAMESPACE, nsid).data;
            assert_eq!(IdentifyNamespace::read_from_bytes(&page).unwrap().endgid.get(), group);
            let page = host.identify(cns::INDEPENDENT_NAMESPACE, nsid).data;
            assert_eq!(IndependentNamespace::read_from_bytes(&page).unwrap().endgid.get(), group);
        }
        let groups = host.identify(cns::ENDURANCE_GROUPS, 0);
        let supported = host.log_with(GetLogPage::of(lid::SUPPORTED_PAGES, 1024)).unwrap();
        let features = host.log_with(GetLogPage::of(lid::FEATURE_EFFECTS, 1024)).unwrap();
        let features = FeatureEffects::read_from_bytes(&features).unwrap();
        let effects = host.log_with(GetLogPage::of(lid::COMMAND_EFFECTS, 4096)).unwrap();
        let effects = CommandEffects::read_from_bytes(&effects).unwrap();
        for page in [lid::ENDURANCE_GROUP, 0x20, 0x21, 0x22, 0x23] {
            assert_eq!(supported[usize::from(page) * 4], u8::from(has_any), "{page:#x}");
        }
        let told = u32::from(has_any) * EFFECT_SUPPORTED;
        for feature in [0x1D, 0x1E] {
            assert_eq!(features.features[feature].get() & EFFECT_SUPPORTED, told);
        }
        for code in [0x19, 0x1A] {
            assert_eq!(effects.admin[code].get() & EFFECT_SUPPORTED, told);
        }
        for code in [0x12, 0x1D] {
            assert_eq!(effects.io[code].get() & EFFECT_SUPPORTED, told);
        }
        if has_any {
            assert_eq!(groups.data[..6], [1, 0, 1, 0, 0, 0]);
        } else {
            assert_eq!(groups.status, INVALID);
            for page in lid::FDP_CONFIGURATIONS..=lid::FDP_EVENTS {
                let ask = GetLogPage { specific_id: 1, ..GetLogPage::of(page, 64) };
                assert_eq!(host.log_with(ask), Err(DISABLED), "{page:#x}");
            }
            let group = GetLogPage { specific_id: 1, ..GetLogPage::of(lid::ENDURANCE_GROUP, 512) };
            assert_eq!(host.log_with(group), Err(Status::INVALID_LOG_PAGE.do_not_retry()));
            assert_eq!(host.get_feature(fid::DATA_PLACEMENT, 0, 1, 0).status, INVALID);
            let unknown = Status::INVALID_OPCODE.do_not_retry();
            assert_eq!(host.directive(opcode::admin::DIRECTIVE_RECEIVE, PLAIN, |_| ()).status, unknown);
        }
    }
}

#[test]
fn pages_of_a_group_say_what_is_there_and_what_was_done() {
    let mut host = hosted();
    // As `nvme fdp configs` asks: the head first, then all of it.
    let head = host.log(lid::FDP_CONFIGURATIONS, 16);
    let size = u32::from_le_bytes(head[4..8].try_into().unwrap());
    assert_eq!(size, 16 + 80);
    let page = host.log(lid::FDP_CONFIGURATIONS, size.into());
    let expected = PlacementConfiguration {
        rgif: 0,
        volatile_cache: false,
        valid: true,
        groups: 1,
        pids_less_one: 3,
        namespaces: 1024,
        unit_bytes: 96 << 20,
        unit_seconds_max: 0,
        handles: vec![PERSISTENTLY_ISOLATED; 4],
    };
    assert_eq!(parse_configurations(&page).unwrap(), [expected]);
    let usage = host.log(lid::RECLAIM_UNIT_HANDLE_USAGE, 40);
    let (host_said, given) = (HANDLE_USED_BY_HOST, HANDLE_USED_BY_CONTROLLER);
    assert_eq!(parse_usage(&usage).unwrap(), [host_said, given, host_said, host_said]);
    // A handle that was chosen for one namespace and given to another one counts as chosen; one that nobody has as unused.
    for namespaces in
        [[placed(&[2], false), placed(&[0, 2], true)], [placed(&[0, 2], true), placed(&[2], false)]]
    {
        let [one, other] = namespaces;
        let usage = hosted_with([one, other, None]).log(lid::RECLAIM_UNIT_HANDLE_USAGE, 40);
        assert_eq!(parse_usage(&usage).unwrap(), [given, HANDLE_UNUSED, host_said, HANDLE_UNUSED]);
    }
    let statistics = StatisticsLog::read_from_bytes(&host.log(lid::FDP_STATISTICS, 64)).unwrap();
    assert_eq!(statistics, StatisticsLog::new(0x1_0000_0007, 2_500_000_001, 9));
    let group = EnduranceGroupLog::read_from_bytes(&host.log(lid::ENDURANCE_GROUP, 512)).unwrap();
    assert_eq!((group.available_spare_percent, group.spare_threshold_percent), (100, 10));
    assert_eq!(group.media_units_written.get(), 3, "thousands of millions of bytes, rounded up");
    let part = GetLogPage { offset: 16, specific_id: 1, ..GetLogPage::of(lid::FDP_STATISTICS, 16) };
    assert_eq!(host.log_with(part).unwrap(), statistics.as_bytes()[16..32]);
    for page in [lid::ENDURANCE_GROUP, 0x20, 0x21, 0x22, 0x23] {
        for group in [0, 2] {
            let ask = GetLogPage { specific_id: group, ..GetLogPage::of(page, 64) };
            assert_eq!(host.log_with(ask), Err(INVALID), "{page:#x} of group {group}");
        }
    }
}

#[test]
fn a_write_goes_to_the_handle_of_its_placement_identifier() {
    let mut host = hosted();
    assert_eq!(host.write(PLACED, None), Ok(3), "without a directive to the first placement handle");
    for (pid, handle) in [(0, 3), (1, 0), (2, 2)] {
        assert_eq!(host.write(PLACED, Some((2, pid))), Ok(handle));
    }
    assert_eq!(host.write(PLACED, Some((2, 3))), Ok(3), "an identifier that names nothing fails no write");
    assert_eq!(host.write(PLACED, Some((1, 0))), Err(INVALID), "streams are another directive");
    assert_eq!(host.write(GIVEN, None), Ok(1));
    assert_eq!(host.write(GIVEN, Some((2, 0))), Ok(1));
    assert_eq!(host.write(PLAIN, None), Ok(0));
    assert_eq!(host.write(PLAIN, Some((2, 0))), Err(INVALID));
    assert_eq!(host.events(), [], "nobody wanted events");
}

#[test]
fn events_are_kept_where_a_host_wants_them() {
    let mut host = hosted();
    let invalid = event_kind::INVALID_PLACEMENT_IDENTIFIER;
    let partly = event_kind::RECLAIM_UNIT_NOT_FULLY_WRITTEN;
    assert_eq!(host.set_events(PLACED, 0, &[invalid], true), Status::SUCCESS);
    // As `nvme fdp get-events` of a later nvme-cli: room for all types there could be.
    let told = host.get_feature(fid::DATA_PLACEMENT_EVENTS, PLACED, 0xFF << 16, 1024);
    assert_eq!((told.status, told.result, told.data.len()), (Status::SUCCESS, 2, 510));
    assert_eq!(told.data[..6], [partly, 0, invalid, 1, 0, 0]);
    let told = host.get_feature(fid::DATA_PLACEMENT_EVENTS, PLACED, 1 << 16, 2);
    assert_eq!((told.result, told.data), (1, vec![partly, 0]));

    host.world.now += Span::from_secs(3);
    assert_eq!(host.write(PLACED, Some((2, 0x0103))), Ok(3));
    assert_eq!(host.write(GIVEN, Some((2, 9))), Ok(1), "its handle has no event enabled");
    let [event] = host.events()[..] else { panic!("one event") };
    let expected = PlacementEvent {
        kind: invalid,
        flags: EVENT_HAS_PID | EVENT_HAS_NSID | EVENT_HAS_LOCATION,
        pid: 0x0103.into(),
        timestamp: 4000.into(),
        nsid: PLACED.into(),
        handle: 3.into(),
        ..PlacementEvent::default()
    };
    assert_eq!(event, expected);
    let of_controller = GetLogPage { specific_id: 1, ..GetLogPage::of(lid::FDP_EVENTS, 4096) };
    assert_eq!(parse_events(&host.log_with(of_controller).unwrap()).unwrap(), []);
    for pid in 0..100 {
        assert_eq!(host.write(PLACED, Some((2, 1000 + pid))), Ok(3));
    }
    let pids: Vec<u16> = host.events().iter().map(|event| event.pid.get()).collect();
    assert_eq!(pids, (1037..1100).collect::<Vec<u16>>(), "the last 63, oldest first");
    assert_eq!(host.set_events(PLACED, 0, &[invalid], false), Status::SUCCESS);
    assert_eq!(host.write(PLACED, Some((2, 9))), Ok(3));
    assert_eq!(host.events().last().unwrap().pid.get(), 1099);

    for (nsid, handle, kinds, status) in [
        (PLACED, 3, &[partly][..], INVALID),
        (PLACED, 0, &[0x80], INVALID),
        (PLACED, 0, &[], INVALID),
        (PLAIN, 0, &[partly], DISABLED),
        (77, 0, &[partly], Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry()),
    ] {
        assert_eq!(host.set_events(nsid, handle, kinds, true), status, "{nsid} {handle} {kinds:?}");
    }
}

#[test]
fn handles_tell_how_full_they_are_and_get_a_fresh_reclaim_unit() {
    let mut host = hosted();
    // As `nvme fdp status` and fio ask: the head first, then all of it.
    let head = host.receive(PLACED, IoManagementReceive::HANDLE_STATUS, 16);
    assert_eq!(head.data[14..16], [3, 0]);
    let page = host.receive(PLACED, IoManagementReceive::HANDLE_STATUS, 16 + 3 * 32);
    let expected = [HandleStatus::new(0, 3, 103), HandleStatus::new(1, 0, 100), HandleStatus::new(2, 2, 102)];
    assert_eq!(parse_status(&page.data).unwrap(), expected);
    assert_eq!(host.receive(PLAIN, IoManagementReceive::NO_ACTION, 16).data, [0; 16]);

    assert_eq!(host.set_events(PLACED, 1, &[0], true), Status::SUCCESS);
    host.world.placement.partly_written = vec![whole(0), whole(2)];
    assert_eq!(host.update(PLACED, &[2, 1]), Status::SUCCESS);
    assert_eq!(host.world.updated, [whole(2), whole(0)]);
    let [event] = host.events()[..] else { panic!("one event: nobody wanted those of the other handle") };
    assert_eq!((event.kind, event.pid.get(), event.handle.get(), event.nsid.get()), (0, 1, 0, PLACED));

    host.world.updated.clear();
    assert_eq!(host.update(PLACED, &[1, 1]), Status::SUCCESS);
    assert_eq!(host.world.updated, [whole(0)], "once is enough");
    host.world.updated.clear();
    assert_eq!(host.update(PLACED, &[1, 3]), INVALID, "nothing of a list that names nothing is done");
    assert_eq!(host.update(PLACED, &[0, 1, 2, 0, 1]), INVALID, "more than MAXPIDS");
    assert_eq!(host.update(PLAIN, &[0]), DISABLED);
    assert_eq!(host.receive(PLAIN, IoManagementReceive::HANDLE_STATUS, 16).status, DISABLED);
    assert_eq!(host.receive(PLACED, 2, 16).status, INVALID);
    assert_eq!(host.receive(PLACED, 1, 2 << 20).status, INVALID, "more than a transfer");
    assert!(host.world.updated.is_empty());
}

/// Goal: with several reclaim groups the upper bits of a placement identifier are the group, everywhere. Method: three handles in five groups, so three
/// bits, of which three values name nothing.
#[test]
fn placement_identifiers_name_groups() {
    const GROUPS: u16 = 5;
    let grouped = |all: &[u16], is_given| {
        placed(all, is_given).map(|one| PlacementProperties { groups: GROUPS, ..one })
    };
    let mut host = hosted_with([grouped(&[3, 0, 2], false), grouped(&[1], true), None]);
    host.world.placement.available_lbas = (0..4 * u64::from(GROUPS)).map(|place| 100 + place).collect();
    let pid = |group: u16, handle: u16| group << 13 | handle;
    let at = |group: u16, handle: u16| in_group(Some(group), handle);

    let page = host.log(lid::FDP_CONFIGURATIONS, 16 + 80);
    let [configuration] = &parse_configurations(&page).unwrap()[..] else { panic!("one configuration") };
    let told =
        (configuration.rgif, configuration.groups, configuration.pids_less_one, configuration.handles.len());
    assert_eq!(told, (3, 5, 19, 4));

    assert_eq!(host.target_of_write(PLACED, None), Ok(in_group(None, 3)), "whatever group has room");
    for (group, handle, of_vssd) in [(0, 0, 3), (4, 1, 0), (2, 2, 2)] {
        assert_eq!(host.target_of_write(PLACED, Some((2, pid(group, handle)))), Ok(at(group, of_vssd)));
    }
    assert_eq!(host.target_of_write(GIVEN, Some((2, pid(3, 0)))), Ok(at(3, 1)));
    let invalid = event_kind::INVALID_PLACEMENT_IDENTIFIER;
    assert_eq!(host.set_events(PLACED, 0, &[invalid], true), Status::SUCCESS);
    for nothing in [pid(5, 0), pid(0, 3), 3] {
        assert_eq!(host.target_of_write(PLACED, Some((2, nothing))), Ok(in_group(None, 3)), "{nothing:#x}");
    }
    let events = host.events();
    let flags = EVENT_HAS_PID | EVENT_HAS_NSID;
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.flags == flags), "where it went is not known: {events:?}");

    let page = host.receive(PLACED, IoManagementReceive::HANDLE_STATUS, 16 + 15 * 32);
    let status = parse_status(&page.data).unwrap();
    let expected = (0..).zip([3u16, 0, 2]).flat_map(|(handle, of_vssd)| {
        (0..GROUPS).map(move |group| {
            HandleStatus::new(pid(group, handle), of_vssd, 100 + u64::from(group * 4 + of_vssd))
        })
    });
    assert_eq!(status, expected.collect::<Vec<_>>());

    assert_eq!(host.set_events(PLACED, 1, &[0], true), Status::SUCCESS);
    host.world.placement.partly_written = vec![at(4, 0)];
    assert_eq!(host.update(PLACED, &[pid(4, 1), pid(1, 1), pid(4, 1)]), Status::SUCCESS);
    assert_eq!(host.world.updated, [at(4, 0), at(1, 0)]);
    let event = *host.events().last().unwrap();
    assert_eq!((event.kind, event.pid.get(), event.group.get(), event.handle.get()), (0, pid(4, 1), 4, 0));
    assert_eq!(host.update(PLACED, &[pid(5, 1)]), INVALID);
    assert_eq!(host.update(PLACED, &[0; 20]), Status::SUCCESS, "as many as there are");
    assert_eq!(host.update(PLACED, &[0; 21]), INVALID, "more than MAXPIDS");
}

/// A namespace that goes, or a host that goes, while media are asked.
#[test]
fn what_goes_while_media_are_asked_is_answered_or_forgotten() {
    let mut host = hosted();
    host.world.keep_questions = true;
    let mut entry = SubmissionEntry {
        opcode: opcode::io::IO_MANAGEMENT_RECEIVE,
        flags: 0x40,
        nsid: PLACED.into(),
        sgl: SglDescriptor::transport(16),
        ..SubmissionEntry::default()
    };
    IoManagementReceive { operation: 1, specific: 0, length_bytes: 16 }.encode(&mut entry);
    for is_last in [false, true] {
        entry.command_id = host.world.next_id(host.io).into();
        let capsule = host.world.capsule(host.io, entry, &[]);
        host.world.send(host.io, &capsule);
        let question = host.world.questions.pop().expect("media are asked");
        let mut actions = Vec::new();
        if is_last {
            host.world.handle(diecut_nvmf::Event::Closed(host.io));
        } else {
            let config = target::subsystem(SUBSYSTEM, &[HOST], [(PLAIN, namespace(7, LBAS))]);
            host.world.target.set_subsystem(config, host.world.now, &mut actions);
            host.world.act(actions);
        }
        host.world.handle(diecut_nvmf::Event::Told(Box::new(question.unknown())));
        if !is_last {
            let reply = host.world.reply(host.io, entry.command_id.get()).expect("answered");
            assert_eq!(reply.status, Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry());
            let mut again = hosted();
            std::mem::swap(&mut host, &mut again);
            host.world.keep_questions = true;
        }
    }
}

#[test]
fn placement_is_enabled_for_good() {
    let mut host = hosted();
    let told = host.get_feature(fid::DATA_PLACEMENT, 0, 1, 0);
    assert_eq!((told.status, told.result), (Status::SUCCESS, 1));
    assert_eq!(host.get_feature(fid::DATA_PLACEMENT, 0, 2, 0).status, INVALID);
    // As `nvme fdp feature` sends: to be saved.
    let mut set = |group, enabled, configuration| {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::SET_FEATURES,
            sgl: SglDescriptor::transport(0),
            ..SubmissionEntry::default()
        };
        SetFeatures { feature: fid::DATA_PLACEMENT, save: true, value: 0 }.encode(&mut entry);
        PlacementFeature { group, enabled, configuration }.encode(&mut entry);
        host.send(entry, &[], true).status
    };
    let sequence = Status::COMMAND_SEQUENCE_ERROR.do_not_retry();
    assert_eq!(set(1, true, 0), Status::SUCCESS);
    assert_eq!(set(1, false, 0), sequence);
    assert_eq!(set(1, true, 1), sequence);
    assert_eq!(set(0, true, 0), INVALID);

    let bits = |page: &[u8]| (page[0], page[32], page[64]);
    let receive = opcode::admin::DIRECTIVE_RECEIVE;
    assert_eq!(bits(&host.directive(receive, PLACED, |_| ()).data), (5, 5, 5));
    assert_eq!(bits(&host.directive(receive, PLAIN, |_| ()).data), (1, 1, 1));
    let other = host.directive(receive, PLACED, |entry| entry.cdw11 = 0x0201.into());
    assert_eq!(other.status, INVALID, "the directive of placement has no parameters");
    let mut switch = |nsid, enable, kind| {
        let change = |entry: &mut SubmissionEntry| EnableDirective { enable, kind }.encode(entry);
        host.directive(opcode::admin::DIRECTIVE_SEND, nsid, change).status
    };
    assert_eq!(switch(PLACED, true, DIRECTIVE_DATA_PLACEMENT), Status::SUCCESS);
    assert_eq!(switch(PLACED, false, DIRECTIVE_DATA_PLACEMENT), INVALID);
    assert_eq!(switch(PLACED, true, 1), INVALID);
    assert_eq!(switch(PLAIN, true, DIRECTIVE_DATA_PLACEMENT), DISABLED);
}

/// A host that sets which events are kept is answered when that is durable, and told so if it cannot be.
fn set_events_when_durable() {
    let mut host = hosted();
    host.world.hold_records = true;
    let first = host.begin_events(true);
    assert_eq!(host.answer(first), None, "it is not durable yet");
    assert!(!host.keeps_events());
    assert_eq!(host.write(PLACED, Some((2, 9))), Ok(3));
    assert_eq!(host.events(), []);
    let again = host.begin_events(true);
    assert_eq!(host.answer(again), None, "it relies on the first one");
    let keep = host.next_keep();
    assert_eq!((keep.subsystem.as_str(), keep.record.events.len()), (SUBSYSTEM, 0));
    assert_eq!(keep.record.enabled, [(3, vec![event_kind::INVALID_PLACEMENT_IDENTIFIER])].into());
    assert!(host.world.records_held.is_empty(), "one change is on its way at a time");
    host.world.handle(Event::Kept(Keep::Placement(keep).kept()));
    assert_eq!((host.answer(first), host.answer(again)), (Some(Status::SUCCESS), Some(Status::SUCCESS)));
    assert!(host.keeps_events());
    // What cannot be kept is undone.
    let off = host.begin_events(false);
    let keep = Keep::Placement(host.next_keep());
    host.world.handle(Event::Kept(keep.kept().with(false)));
    assert!(host.answer(off).expect("answered").same_code(Status::INTERNAL_ERROR));
    assert!(host.keeps_events());
    // An answer of before is nobody's, and who waits may go.
    host.world.handle(Event::Kept(keep.kept()));
    let gone = host.begin_events(false);
    host.world.handle(Event::Closed(host.io));
    host.world.handle(Event::Closed(host.admin));
    let keep = Keep::Placement(host.next_keep());
    host.world.handle(Event::Kept(keep.kept()));
    assert_eq!(host.answer(gone), None);
    // It cannot be saved: it persists anyway (Base 2.1 figure 385).
    let mut host = hosted();
    let (mut entry, data) = events_entry(PLACED, 0, &[0], true);
    SetFeatures { feature: fid::DATA_PLACEMENT_EVENTS, save: true, value: 0 }.encode(&mut entry);
    PlacementEventsFeature { handle: 0, count: 1, enable: true }.encode(&mut entry);
    assert_eq!(host.send(entry, &data, true).status, Status::FEATURE_NOT_SAVEABLE.do_not_retry());
    assert!(host.world.events.is_empty());
}

#[test]
fn what_is_set_of_events_is_answered_when_it_is_durable() {
    set_events_when_durable();
}

/// A host that provokes events without an end has them written now and then; a quiet one soon.
fn write_events_now_and_then() {
    let mut host = hosted();
    let invalid = event_kind::INVALID_PLACEMENT_IDENTIFIER;
    assert_eq!(host.set_events(PLACED, 0, &[invalid], true), Status::SUCCESS);
    let begun = host.world.events.len();
    assert_eq!(host.write(PLACED, Some((2, 100))), Ok(3));
    host.rest(Span::from_millis(900));
    assert_eq!(host.world.events.len(), begun, "they are gathered");
    host.rest(Span::from_millis(200));
    assert_eq!(host.world.events.len(), begun + 1);
    host.rest(Span::from_secs(3600));
    assert_eq!(host.world.events.len(), begun + 1, "what is durable is not written again");
    // Two hours of them.
    for pid in 0..7200 {
        assert_eq!(host.write(PLACED, Some((2, 1000 + pid))), Ok(3));
        host.rest(Span::from_secs(1));
    }
    let written = host.world.events.len() - begun - 1;
    assert!((16 + 10..=17 + 13).contains(&written), "{written} times in two hours");
    // The last of them are durable after minutes.
    host.rest(Span::from_secs(600));
    let kept = host.world.events.last().unwrap().events.clone();
    assert_eq!(kept, host.events());
    assert_eq!(kept.last().unwrap().pid.get(), 8199);
}

#[test]
fn events_without_an_end_are_written_now_and_then() {
    write_events_now_and_then();
}

/// The log page and what is set are there after a restart, with what came right before a stop.
fn find_events_after_a_stop() {
    let mut host = hosted();
    let invalid = event_kind::INVALID_PLACEMENT_IDENTIFIER;
    assert_eq!(host.set_events(PLACED, 0, &[invalid], true), Status::SUCCESS);
    host.rest(Span::from_secs(2));
    for pid in [0x0103, 9, 0x0103] {
        assert_eq!(host.write(PLACED, Some((2, pid))), Ok(3));
    }
    let before = host.events();
    let mut killed = host.restart();
    assert!(killed.keeps_events(), "it was answered");
    assert_eq!(killed.events(), [], "what is younger than a second may be lost");
    let nqn = QualifiedName::new(SUBSYSTEM).unwrap();
    let mut actions = Vec::new();
    host.world.target.remove_subsystem(&nqn, host.world.now, &mut actions);
    host.world.act(actions);
    let mut stopped = host.restart();
    assert_eq!((stopped.events(), stopped.keeps_events()), (before.clone(), true));
    assert_eq!(stopped.write(PLACED, Some((2, 77))), Ok(3));
    assert_eq!(stopped.events().len(), before.len() + 1);
    // What is known is newer than a catalog.
    restore_placement(&mut stopped.world.target, &nqn, host.world.events.last().unwrap());
    assert_eq!(stopped.events().len(), before.len() + 1);
}

#[test]
fn events_are_found_after_a_stop() {
    find_events_after_a_stop();
}

/// Goal: without a namespace that has handles placement is off, and what comes later begins anew.
#[test]
fn where_placement_ends_its_events_end() {
    let mut host = hosted();
    let invalid = event_kind::INVALID_PLACEMENT_IDENTIFIER;
    assert_eq!(host.set_events(PLACED, 0, &[invalid], true), Status::SUCCESS);
    assert_eq!(host.write(PLACED, Some((2, 9))), Ok(3));
    assert_eq!(host.events().len(), 1);
    for placement in [None, placed(&[3, 0, 2], false)] {
        let mut one = namespace(7, LBAS);
        one.properties.placement = placement;
        let config = target::subsystem(SUBSYSTEM, &[HOST], [(PLACED, one)]);
        let mut actions = Vec::new();
        host.world.target.set_subsystem(config, host.world.now, &mut actions);
        host.world.act(actions);
    }
    assert_eq!(host.events(), []);
    assert!(!host.keeps_events());
    host.rest(Span::from_secs(600));
    assert_eq!(host.world.events.len(), 1, "nothing is written of it");
}

/// The tests above fail where a bug is planted.
#[test]
fn planted_bugs_are_noticed() {
    diecut_testing::planted::all_are_noticed(&[
        ("nvmf: events are enabled before that is durable", set_events_when_durable),
        ("nvmf: events are kept as they come", write_events_now_and_then),
        ("nvmf: events that wait are lost with a stop", find_events_after_a_stop),
    ]);
}
