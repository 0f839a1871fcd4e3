use super::*;
use diecut_namespace::contract::ZoneDescriptor as Zone;

const ZONES: ZoneProperties = ZoneProperties {
    size_lbas_log2: 4,
    capacity_lbas: 12,
    active_max: 2,
    open_max: 2,
    random_lbas: 4,
    commit_lbas: 2,
    write_lbas_min: 1,
    extension_size_bytes: 64,
};

fn receive(length_bytes: u64, action: u8, filter: u8, partial: bool) -> SubmissionEntry {
    let mut entry = SubmissionEntry { opcode: opcode::ZONE_MANAGEMENT_RECEIVE, ..SubmissionEntry::default() };
    ZoneManagementReceive { lba: 17, length_bytes, action, filter, partial }.encode(&mut entry);
    entry
}

/// Goal: a host reads each zone where the specification has it, as many as fit. Method: room for one extended descriptor and a rest.
#[test]
fn reports_hold_what_fits() {
    let entry = receive(64 + 128 + 60, receive_action::EXTENDED_REPORT, 4, false);
    let request = request_of(&entry, &ZONES);
    let expected =
        ReportRequest { first_zone: 1, state: Some(ZoneState::Closed), count_max: 1, is_extended: true };
    assert_eq!(request, expected);
    let zone = |zone, state, extension| Zone { zone, state, written_ius: 5, is_random: true, extension };
    let found = ZoneReport {
        zones: vec![zone(3, ZoneState::Closed, Some(vec![7; 64])), zone(4, ZoneState::Full, None)],
        matching: 9,
    };
    let mut pool = BufferPool::new();
    let bytes = bytes_of_report(&entry, &ZONES, &found, &mut pool);
    assert_eq!(bytes.len(), 64 + 128 + 60);
    assert_eq!((bytes[0], &bytes[64..72]), (9, &[2, 0x40, 0x88, 0, 0, 0, 0, 0][..]));
    assert_eq!((bytes[72], bytes[80], bytes[88]), (12, 48, 53), "capacity, start, pointer");
    assert_eq!((&bytes[128..192], &bytes[192..]), (&[7; 64][..], &[0; 60][..]));
    let partial = receive(64 + 128, receive_action::REPORT, 0, true);
    let bytes = bytes_of_report(&partial, &ZONES, &found, &mut pool);
    assert_eq!((bytes[0], bytes[64 + 64 + 1]), (2, 0xE0));
    assert_eq!(bytes[64 + 64 + 24..][..8], [0xFF; 8], "a full zone has no write pointer");
}
