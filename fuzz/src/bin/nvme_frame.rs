//! Common headers of PDUs: the borders that `Frame::check` finds.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_nvme::tcp::{CommonHeader, Digests, Frame, Receiver, flag, pdu_type};
use zerocopy::{FromBytes, IntoBytes};

diecut_fuzz::target!(seeds, check);

const KINDS: [(u8, usize, u32); 9] = [
    (pdu_type::IC_REQUEST, 128, 0),
    (pdu_type::IC_RESPONSE, 128, 0),
    (pdu_type::H2C_TERMINATE, 24, 24),
    (pdu_type::C2H_TERMINATE, 24, 72),
    (pdu_type::CAPSULE_COMMAND, 72, 1024),
    (pdu_type::CAPSULE_RESPONSE, 24, 0),
    (pdu_type::H2C_DATA, 24, 4096),
    (pdu_type::C2H_DATA, 24, 8192),
    (pdu_type::READY_TO_TRANSFER, 24, 0),
];

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, header_length, data_length) in KINDS {
        for dgst in 0..4 {
            let is_for_host = !kind.is_multiple_of(2) || kind == pdu_type::READY_TO_TRANSFER;
            let digests = Digests::decode(dgst);
            let header = CommonHeader::build(kind, 0, header_length, data_length, digests);
            let front = [u8::from(is_for_host) | dgst << 1, 0, 0, 0x20, 0, 0];
            seeds.push([&front[..], header.as_bytes()].concat());
        }
    }
    seeds
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.byte();
    let receiver = if mode & 1 != 0 { Receiver::Host } else { Receiver::Controller };
    let digests = Digests::decode(mode >> 1);
    let alignment = (usize::from(input.byte() & 31) + 1) * 4;
    let data_length_max = input.u32();
    while !input.is_empty() {
        let wire: [u8; 8] = input.array();
        let header = CommonHeader::read_from_bytes(&wire).expect("eight bytes");
        let checked = bounded(0, || Frame::check(&header, receiver, digests, alignment, data_length_max));
        let Ok(frame) = checked else { continue };
        assert!(frame.header_length() <= frame.header_end() && frame.header_end() <= frame.data_start());
        assert!(frame.data_start() + frame.data_length() <= frame.length());
        assert!(frame.data_length() <= data_length_max as usize);
        assert_eq!(frame.length(), header.length.get() as usize);
        // What the encoder writes for the same borders is found to be the same.
        let is_terminate = matches!(frame.pdu_type(), pdu_type::H2C_TERMINATE | pdu_type::C2H_TERMINATE);
        if alignment == 4 && !is_terminate {
            let flags = header.flags & !(flag::HEADER_DIGEST | flag::DATA_DIGEST);
            let used = Digests { header: frame.header_digest(), data: digests.data };
            let length = frame.data_length() as u32;
            let again = CommonHeader::build(frame.pdu_type(), flags, frame.header_length(), length, used);
            let found = Frame::check(&again, receiver, digests, alignment, data_length_max);
            assert_eq!(found, Ok(frame), "{wire:02x?}");
        }
    }
}
