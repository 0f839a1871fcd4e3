//! Submission queue entries under every name that a queue gives them, and the registers behind properties.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_nvme::admin::{Abort, AsynchronousEvent, FormatNvm, GetLogPage, Identify};
use diecut_nvme::fabrics::{ConnectCommand, PropertyCommand};
use diecut_nvme::fdp::{
    DirectiveCommand, EnableDirective, IoManagementReceive, IoManagementSend, PlacementEventsFeature,
    PlacementFeature, PlacementId, placement_ids,
};
use diecut_nvme::feature::{GetFeatures, SetFeatures};
use diecut_nvme::io::{Copy, CopyRange, DatasetManagement, DatasetRange, LbaRange};
use diecut_nvme::openchannel::{AddressFormat, ChunkDescriptor, ChunkNotification, LBAS_MAX, VectorCommand};
use diecut_nvme::property::{Capabilities, Configuration, ControllerStatus};
use diecut_nvme::reservation::{ReservationCommand, ReservationReport};
use diecut_nvme::sanitize::Sanitize;
use diecut_nvme::zns::{ZoneAppend, ZoneManagementReceive, ZoneManagementSend};
use diecut_nvme::{SglDescriptor, Status, SubmissionEntry, opcode};
use zerocopy::{FromBytes, IntoBytes};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let mut entries = vec![
        ConnectCommand::new(1, 0, 31, 15_000).entry(),
        PropertyCommand::get(2, 0, true).entry(),
        PropertyCommand::set(3, 0x14, 0x0046_0001).entry(),
    ];
    let io = SubmissionEntry { nsid: 1.into(), sgl: SglDescriptor::transport(4096), ..Default::default() };
    for code in [opcode::io::READ, opcode::io::WRITE, opcode::io::FLUSH] {
        let mut entry = SubmissionEntry { opcode: code, ..io };
        let mut range = LbaRange::decode(&entry);
        (range.start, range.count, range.force_unit_access) = (1 << 33, 8, true);
        range.encode(&mut entry);
        entries.push(entry);
    }
    let mut discard = io;
    DatasetManagement { range_count: 256, deallocate: true }.encode(&mut discard);
    let mut log_page = io;
    let mut page = GetLogPage::decode(&log_page);
    (page.page, page.length_bytes, page.offset) = (0x70, 1024, 1024);
    page.encode(&mut log_page);
    entries.extend([discard, log_page]);
    entries.iter().map(|entry| entry.as_bytes().to_vec()).collect()
}

fn check(bytes: &[u8]) {
    bounded(1024, || check_all(Input::new(bytes)));
}

fn check_all(mut input: Input<'_>) {
    let wire: [u8; SubmissionEntry::SIZE_BYTES] = input.array();
    let entry = SubmissionEntry::read_from_bytes(&wire).expect("64 bytes");
    assert_eq!(ConnectCommand::of(&entry).entry(), entry);
    assert_eq!(PropertyCommand::of(&entry).entry(), entry);
    assert_eq!(entry.fabrics_type().is_some(), entry.opcode == opcode::FABRICS);
    assert!(entry.fuse() < 4 && entry.psdt() < 4);
    let _ = entry.sgl.kind();

    let mut again = SubmissionEntry::default();
    let range = LbaRange::decode(&entry);
    range.encode(&mut again);
    assert!((1..=65_536).contains(&range.count));
    assert_eq!(LbaRange::decode(&again), range);

    let discard = DatasetManagement::decode(&entry);
    discard.encode(&mut again);
    assert_eq!(DatasetManagement::decode(&again), discard);

    let copy = Copy::decode(&entry);
    let plain = Copy { protection: 0, storage_tag_check: false, ..copy };
    plain.encode(&mut again);
    assert_eq!(Copy::decode(&again), plain);

    let vector = VectorCommand::decode(&entry);
    assert!((1..=LBAS_MAX).contains(&vector.count) && vector.list_bytes() <= 8 * LBAS_MAX);
    vector.encode(&mut again);
    assert_eq!(VectorCommand::decode(&again), vector);
    if let Ok((format, _)) = AddressFormat::read_from_prefix(&wire)
        && let Some([group, unit, chunk, block]) = format.decode(vector.lba)
    {
        assert_eq!(format.encode(group, unit, chunk, block), vector.lba);
    }
    let (chunk, _) = ChunkDescriptor::read_from_prefix(&wire).expect("32 of 64 bytes");
    assert_eq!(chunk.as_bytes(), &wire[..ChunkDescriptor::SIZE_BYTES]);
    let notification = ChunkNotification::read_from_bytes(&wire).expect("64 bytes");
    assert_eq!(notification.as_bytes(), &wire);

    let format = FormatNvm::decode(&entry);
    format.encode(&mut again);
    assert_eq!(FormatNvm::decode(&again), format);
    let sanitize = Sanitize::decode(&entry);
    sanitize.encode(&mut again);
    assert_eq!(Sanitize::decode(&again), sanitize);
    let reservation = ReservationCommand::decode(&entry);
    reservation.encode(&mut again);
    assert_eq!(ReservationCommand::decode(&again), reservation);
    let report = ReservationReport::decode(&entry);
    report.encode(&mut again);
    assert_eq!(ReservationReport::decode(&again), report);

    let send = ZoneManagementSend::decode(&entry);
    send.encode(&mut again);
    assert_eq!(ZoneManagementSend::decode(&again), send);
    let receive = ZoneManagementReceive::decode(&entry);
    receive.encode(&mut again);
    assert_eq!(ZoneManagementReceive::decode(&again), receive);
    let append = ZoneAppend::decode(&entry);
    append.encode(&mut again);
    assert_eq!(ZoneAppend::decode(&again), append);

    let receive = IoManagementReceive::decode(&entry);
    receive.encode(&mut again);
    assert_eq!(IoManagementReceive::decode(&again), receive);
    let send = IoManagementSend::decode(&entry);
    send.encode(&mut again);
    assert_eq!(IoManagementSend::decode(&again), send);
    assert!((1..=0x1_0000).contains(&send.pid_count()));
    let directive = DirectiveCommand::decode(&entry);
    directive.encode(&mut again);
    assert_eq!(DirectiveCommand::decode(&again), directive);
    let enable = EnableDirective::decode(&entry);
    enable.encode(&mut again);
    assert_eq!(EnableDirective::decode(&again), enable);
    let placement = PlacementFeature::decode(&entry);
    placement.encode(&mut again);
    assert_eq!(PlacementFeature::decode(&again), placement);
    let events = PlacementEventsFeature::decode(&entry);
    events.encode(&mut again);
    assert_eq!(PlacementEventsFeature::decode(&again), events);
    for rgif in 0..=15 {
        assert_eq!(
            PlacementId::decode(range.directive_specific, rgif).encode(rgif),
            range.directive_specific
        );
    }
    assert_eq!(placement_ids(&wire).count(), wire.len() / 2);

    let page = GetLogPage::decode(&entry);
    page.encode(&mut again);
    assert_eq!(GetLogPage::decode(&again), page);

    let identify = Identify::decode(&entry);
    identify.encode(&mut again);
    assert_eq!(Identify::decode(&again), identify);
    // Those without an encoder: any entry means something.
    let _ = Abort::decode(&entry);
    let _ = (GetFeatures::decode(&entry), SetFeatures::decode(&entry));

    let event = AsynchronousEvent::decode(entry.cdw10.get());
    assert_eq!(AsynchronousEvent::decode(event.encode()), event);
    let capabilities = Capabilities::decode(entry.cdw2.get());
    assert_eq!(Capabilities::decode(capabilities.encode()), capabilities);
    let status = ControllerStatus::decode(entry.cdw11.get());
    assert_eq!(ControllerStatus::decode(status.encode()), status);
    let configuration = Configuration(entry.cdw12.get());
    assert_eq!(Configuration::enable(configuration.command_set()).command_set(), configuration.command_set());
    let _ = (configuration.page_size(), configuration.arbitration(), configuration.shutdown());
    let _ = (configuration.submission_entry_log2(), configuration.completion_entry_log2());
    let status = Status::from_bits(entry.cdw13.get() as u16);
    assert_eq!(Status::from_bits(status.bits()), status);
    assert!(status.do_not_retry().same_code(status));

    while !input.is_empty() {
        let range = DatasetRange::read_from_bytes(&input.array::<16>()).expect("16 bytes");
        let _ = range.start.get().checked_add(u64::from(range.lba_count.get()));
        let source = CopyRange::read_from_bytes(&input.array::<32>()).expect("32 bytes");
        assert!((1..=0x1_0000).contains(&source.lba_count()));
    }
}
