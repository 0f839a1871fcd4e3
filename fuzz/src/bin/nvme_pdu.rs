//! The headers of all PDUs, as both ends read them.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_nvme::tcp::*;
use diecut_nvme::{CompletionEntry, Status, SubmissionEntry};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let both = Digests { header: true, data: true };
    let error = PduError::header("PLEN", 4, 17);
    let (terminate, _) = TerminateRequest::to_host(&error, &[0; 72]);
    vec![
        InitializeRequest::new(both).as_bytes().to_vec(),
        InitializeResponse::new(both, 1 << 20).as_bytes().to_vec(),
        terminate.as_bytes().to_vec(),
        CapsuleCommand::new(SubmissionEntry::default(), 8192, both).as_bytes().to_vec(),
        CapsuleResponse::new(CompletionEntry::new(7, 5, Status::SUCCESS), both).as_bytes().to_vec(),
        DataToController::new(7, 3, 4096, 4096, true, both).as_bytes().to_vec(),
        DataToHost::new(7, 4096, 4096, flag::LAST | flag::SUCCESS, both, 128).as_bytes().to_vec(),
        ReadyToTransfer::new(7, 3, 4096, 4096, both).as_bytes().to_vec(),
    ]
}

/// Reads the start of the input as a header; what is written again is the same.
fn read<T: FromBytes + IntoBytes + Immutable + KnownLayout>(bytes: &[u8]) -> Option<T> {
    let (header, rest) = T::read_from_prefix(bytes).ok()?;
    assert_eq!(header.as_bytes(), &bytes[..bytes.len() - rest.len()]);
    Some(header)
}

fn check(bytes: &[u8]) {
    bounded(1024, || check_all(bytes));
}

fn check_all(bytes: &[u8]) {
    let dgst = Input::new(bytes).byte();
    let digests = Digests::decode(dgst);
    assert_eq!(Digests::decode(digests.encode()), digests);
    if let Some(request) = read::<InitializeRequest>(bytes)
        && request.validate().is_ok()
    {
        assert!((4..=128).contains(&request.host_alignment_bytes()));
    }
    if let Some(response) = read::<InitializeResponse>(bytes)
        && response.validate(digests).is_ok()
    {
        assert!((4..=128).contains(&response.controller_alignment_bytes()));
    }
    if let Some(request) = read::<TerminateRequest>(bytes) {
        let fatal = request.fatal_error();
        assert_eq!(FatalError::decode(fatal.encode()), fatal);
        let error = PduError { fatal, information: request.information(), field: "", value: 0 };
        let (again, sent) = TerminateRequest::to_host(&error, bytes);
        assert_eq!((again.fatal_error(), again.information()), (fatal, request.information()));
        assert!(TerminateRequest::SIZE_BYTES + sent <= TerminateRequest::LENGTH_MAX_BYTES);
        assert!(!format!("{error}").is_empty());
    }
    if let Some(response) = read::<CapsuleResponse>(bytes) {
        let entry = response.entry;
        let (id, head, status) = (entry.command_id.get(), entry.sq_head.get(), entry.status());
        let again = CompletionEntry::with_result(id, head, status, entry.result());
        assert_eq!((again.status(), again.result()), (status, entry.result()));
        assert!(!format!("{status}").is_empty());
    }
    if let Some(data) = read::<DataToController>(bytes) {
        let (id, tag, offset) = (data.command_id.get(), data.transfer_tag.get(), data.offset.get());
        // Lengths beyond what a PDU can have never pass `Frame::check`.
        let length = data.length.get() & 0x00FF_FFFF;
        let again = DataToController::new(id, tag, offset, length, data.is_last(), digests);
        let told = (again.command_id.get(), again.transfer_tag.get(), again.offset.get(), again.length.get());
        assert_eq!((told, again.is_last()), ((id, tag, offset, length), data.is_last()));
    }
    if let Some(data) = read::<DataToHost>(bytes) {
        let flags = data.common.flags & (flag::LAST | flag::SUCCESS);
        let (id, offset, length) =
            (data.command_id.get(), data.offset.get(), data.length.get() & 0x00FF_FFFF);
        let alignment = (usize::from(dgst & 31) + 1) * 4;
        let again = DataToHost::new(id, offset, length, flags, digests, alignment);
        assert_eq!((again.is_last(), again.is_success()), (data.is_last(), data.is_success()));
        if length > 0 {
            let frame = Frame::check(&again.common, Receiver::Host, digests, alignment, length);
            let frame = frame.expect("what is sent is right");
            assert_eq!((frame.data_length(), frame.data_start() % alignment), (length as usize, 0));
        }
    }
    if let Some(request) = read::<ReadyToTransfer>(bytes) {
        let (id, tag) = (request.command_id.get(), request.transfer_tag.get());
        let again = ReadyToTransfer::new(id, tag, request.offset.get(), request.length.get(), digests);
        assert!(Frame::check(&again.common, Receiver::Host, digests, 4, 0).is_ok());
    }
    read::<CapsuleCommand>(bytes);
    let (body, digest) = bytes.split_at(bytes.len().saturating_sub(DIGEST_SIZE_BYTES));
    assert_eq!(digest_matches(body, digest), digest == digest_of(body));
}
