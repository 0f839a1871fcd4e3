//! Goal: fields are where the specification and nvme-cli have them. Method: bytes written by hand.

use super::*;
use crate::submission::SubmissionEntry;
use zerocopy::IntoBytes;

fn encoded(encode: impl Fn(&mut SubmissionEntry)) -> SubmissionEntry {
    let mut entry = SubmissionEntry::default();
    encode(&mut entry);
    entry
}

#[test]
fn placement_identifiers_have_their_group_on_top() {
    let id = |group, handle| PlacementId { group, handle };
    for (bits, rgif, expected) in [
        (0xFFFF, 0, id(0, 0xFFFF)),
        (0x0003, 0, id(0, 3)),
        (0x8003, 1, id(1, 3)),
        (0xC005, 2, id(3, 5)),
        (0x3FFF, 2, id(0, 0x3FFF)),
        (0xFFFF, 15, id(0x7FFF, 1)),
    ] {
        assert_eq!(PlacementId::decode(bits, rgif), expected, "{bits:#x} with {rgif} bits");
        assert_eq!(expected.encode(rgif), bits);
    }
}

#[test]
fn commands_come_from_their_dwords() {
    // As `nvme fdp status` asks: MO 1, 80 bytes.
    let entry = SubmissionEntry { cdw10: 0x0007_0001.into(), cdw11: 19.into(), ..SubmissionEntry::default() };
    let receive = IoManagementReceive::decode(&entry);
    assert_eq!(receive, IoManagementReceive { operation: 1, specific: 7, length_bytes: 80 });
    assert_eq!(encoded(|entry| receive.encode(entry)), entry);

    // As `nvme fdp update --pids=1,2,3` sends.
    let entry = SubmissionEntry { cdw10: 0x0002_0001.into(), ..SubmissionEntry::default() };
    let send = IoManagementSend::decode(&entry);
    assert_eq!(send, IoManagementSend { operation: IoManagementSend::UPDATE_HANDLES, specific: 2 });
    assert_eq!(send.pid_count(), 3);
    assert_eq!(IoManagementSend { specific: u16::MAX, ..send }.pid_count(), PIDS_MAX);
    assert_eq!(encoded(|entry| send.encode(entry)), entry);
    let pids: Vec<u16> = placement_ids(&[1, 0, 2, 0x80, 9]).collect();
    assert_eq!(pids, [1, 0x8002]);

    let entry =
        SubmissionEntry { cdw10: 1023.into(), cdw11: 0x1234_0201.into(), ..SubmissionEntry::default() };
    let directive = DirectiveCommand::decode(&entry);
    let expected = DirectiveCommand { length_bytes: 4096, operation: 1, kind: 2, specific: 0x1234 };
    assert_eq!(directive, expected);
    assert_eq!(encoded(|entry| directive.encode(entry)), entry);
    let entry = SubmissionEntry { cdw12: 0x0201.into(), ..SubmissionEntry::default() };
    let enable = EnableDirective::decode(&entry);
    assert_eq!(enable, EnableDirective { enable: true, kind: DIRECTIVE_DATA_PLACEMENT });
    assert_eq!(encoded(|entry| enable.encode(entry)), entry);
}

#[test]
fn features_come_from_their_dwords() {
    // As `nvme fdp feature --endgrp-id=1 --enable-conf-idx=2` sends.
    let entry = SubmissionEntry { cdw11: 1.into(), cdw12: 0x0201.into(), ..SubmissionEntry::default() };
    let feature = PlacementFeature::decode(&entry);
    assert_eq!(feature, PlacementFeature { group: 1, enabled: true, configuration: 2 });
    assert_eq!(feature.value(), 0x0201);
    assert_eq!(encoded(|entry| feature.encode(entry)), entry);
    // As `nvme fdp set-events --placement-handle=3 --event-types=0,3 --enable` sends.
    let entry = SubmissionEntry { cdw11: 0x0002_0003.into(), cdw12: 1.into(), ..SubmissionEntry::default() };
    let events = PlacementEventsFeature::decode(&entry);
    assert_eq!(events, PlacementEventsFeature { handle: 3, count: 2, enable: true });
    assert_eq!(encoded(|entry| events.encode(entry)), entry);
    assert_eq!(EventDescriptor::new(event_kind::MEDIA_REALLOCATED, true).as_bytes(), [0x80, 1]);
    assert_eq!(EventDescriptor::new(event_kind::INVALID_PLACEMENT_IDENTIFIER, false).as_bytes(), [3, 0]);
}

#[test]
fn the_bytes_of_configurations() {
    let configuration = PlacementConfiguration {
        rgif: 2,
        volatile_cache: true,
        valid: true,
        groups: 4,
        pids_less_one: 11,
        namespaces: 0x0102_0304,
        unit_bytes: 0x0A0B_0C0D_0000,
        unit_seconds_max: 600,
        handles: vec![INITIALLY_ISOLATED, PERSISTENTLY_ISOLATED, INITIALLY_ISOLATED],
    };
    let page = configurations_page(std::slice::from_ref(&configuration));
    assert_eq!(page.len(), 16 + 80, "a multiple of 8 bytes");
    assert_eq!(page[..16], [0, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page[16..32], [80, 0, 0x92, 0, 4, 0, 0, 0, 3, 0, 11, 0, 4, 3, 2, 1]);
    assert_eq!(page[32..44], [0, 0, 0x0D, 0x0C, 0x0B, 0x0A, 0, 0, 0x58, 2, 0, 0]);
    assert_eq!(page[44..80], [0; 36]);
    assert_eq!(page[80..96], [1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(parse_configurations(&page).unwrap(), std::slice::from_ref(&configuration));
    let two = [configuration.clone(), PlacementConfiguration { handles: Vec::new(), ..configuration }];
    let page = configurations_page(&two);
    assert_eq!((page[0], page[4]), (1, 16 + 80 + 64));
    assert_eq!(parse_configurations(&page).unwrap(), two);
    for len in 0..page.len() {
        assert!(parse_configurations(&page[..len]).is_err(), "{len} bytes");
    }
    let mut small = page.clone();
    small[16] = 72;
    assert_eq!(parse_configurations(&small), Err(DecodeError::Field { field: "DSZE", value: 72 }));
    let mut later = page;
    later[2] = 1;
    assert_eq!(parse_configurations(&later), Err(DecodeError::Field { field: "VERSION", value: 1 }));
}

#[test]
fn the_bytes_of_usage_and_statistics() {
    let page = usage_page(&[HANDLE_USED_BY_HOST, HANDLE_UNUSED, HANDLE_USED_BY_CONTROLLER]);
    assert_eq!(page.len(), 32);
    assert_eq!((page[0], page[1], page[8], page[16], page[24]), (3, 0, 1, 0, 2));
    assert_eq!(page.iter().filter(|byte| **byte != 0).count(), 3);
    assert_eq!(parse_usage(&page).unwrap(), [1, 0, 2]);
    assert!(parse_usage(&page[..31]).is_err() && parse_usage(&[]).is_err());

    let statistics = StatisticsLog::new(0x0102, 0x0304, 1 << 127);
    let bytes = statistics.as_bytes();
    assert_eq!((bytes[0], bytes[1], bytes[16], bytes[17], bytes[47]), (2, 1, 4, 3, 0x80));
    assert_eq!(bytes[48..], [0; 16]);

    let group = EnduranceGroupLog {
        critical_warning: 8,
        available_spare_percent: 90,
        spare_threshold_percent: 10,
        percentage_used: 7,
        data_units_read: 1.into(),
        data_units_written: 2.into(),
        media_units_written: 3.into(),
        host_read_commands: 4.into(),
        host_write_commands: 5.into(),
        media_errors: 6.into(),
        error_log_entries: 7.into(),
        total_bytes: 8.into(),
        unallocated_bytes: 9.into(),
        ..EnduranceGroupLog::default()
    };
    let bytes = group.as_bytes();
    assert_eq!(bytes[..6], [8, 0, 0, 90, 10, 7]);
    for (nth, at) in (48..192).step_by(16).enumerate() {
        assert_eq!(usize::from(bytes[at]), nth + 1, "{at}");
    }
}

#[test]
fn the_bytes_of_events() {
    let event = PlacementEvent {
        kind: event_kind::INVALID_PLACEMENT_IDENTIFIER,
        flags: EVENT_HAS_PID | EVENT_HAS_NSID | EVENT_HAS_LOCATION,
        pid: 0x0102.into(),
        timestamp: 0x0203.into(),
        nsid: 0x0405.into(),
        specific: [0xEE; 16],
        group: 0x0607.into(),
        handle: 0x0809.into(),
        ..PlacementEvent::default()
    };
    let page = events_page([&event]);
    assert_eq!(page.len(), 4096);
    assert_eq!(page[..64].iter().map(|byte| u32::from(*byte)).sum::<u32>(), 1);
    assert_eq!(page[0], 1);
    assert_eq!(page[64..80], [3, 7, 2, 1, 3, 2, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0]);
    assert_eq!(page[80..96], [0xEE; 16]);
    assert_eq!(page[96..104], [7, 6, 9, 8, 0, 0, 0, 0]);
    assert_eq!(parse_events(&page).unwrap(), [event]);
    let full = events_page(&[event; EVENTS_MAX + 1]);
    assert_eq!(parse_events(&full).unwrap().len(), EVENTS_MAX);
    let mut wrong = full.clone();
    wrong[0] = 64;
    assert_eq!(parse_events(&wrong), Err(DecodeError::Field { field: "NUMFDPE", value: 64 }));
    assert!(parse_events(&full[..4095]).is_err());
}

#[test]
fn the_bytes_of_a_status() {
    let all = [HandleStatus::new(0, 3, 0x0102_0304_0506), HandleStatus::new(1, 0x0203, 1)];
    let page = status_page(&all);
    assert_eq!(page.len(), 16 + 64);
    assert_eq!(page[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(page[16..32], [0, 0, 3, 0, 0, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0]);
    assert_eq!(page[32..48], [0; 16]);
    assert_eq!(page[48..52], [1, 0, 3, 2]);
    assert_eq!(parse_status(&page).unwrap(), all);
    assert!(parse_status(&page[..79]).is_err() && parse_status(&page[..15]).is_err());
}

#[test]
fn the_bytes_of_directives() {
    let mut parameters = DirectiveParameters::default();
    parameters.add_permanent(DIRECTIVE_IDENTIFY);
    parameters.add_permanent(DIRECTIVE_DATA_PLACEMENT);
    let bytes = parameters.as_bytes();
    assert_eq!((bytes.len(), bytes[0], bytes[32], bytes[64]), (4096, 5, 5, 5));
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 3);
}

/// Goal: a handle has an identifier in each reclaim group, and a namespace with one handle has none to choose.
#[test]
fn identifiers_are_told_by_handle() {
    let told =
        [(0, 4), (0x100, 4), (1, 2), (0x101, 2)].map(|(pid, handle)| HandleStatus::new(pid, handle, 0));
    let ids = PlacementIds::of(&told);
    assert_eq!(ids.handles(), 2);
    let at = |handle, mib: u64| ids.pid(handle, mib << 20).unwrap();
    assert_eq!([at(0, 0), at(0, 1), at(0, 2), at(1, 0), at(1, 3), at(2, 1)], [0, 0x100, 0, 1, 0x101, 0x100]);
    for few in [&told[..2], &[]] {
        assert_eq!((PlacementIds::of(few).handles(), PlacementIds::of(few).pid(0, 0)), (0, None));
    }
}
