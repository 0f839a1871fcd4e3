//! What a host sends, byte by byte, and what it makes of bytes written by hand. Goal: both ends of the project could
//! share a mistake; the figures of the specification do not. Method: vectors laid out by hand (TCP 1.0 section 3.6,
//! Base 2.0 figures 87 and 381), whole and cut into single bytes.

use diecut_initiator::*;
use diecut_nvme::tcp::{Digests, digest_of};
use diecut_nvme::{QualifiedName, Status};
use diecut_units::Buffer;

fn parameters(digests: Digests) -> QueueParameters {
    let name = |text| QualifiedName::new(text).unwrap();
    QueueParameters {
        controller_id: 0x0203,
        queue_id: 1,
        entries: 4,
        digests,
        in_capsule_bytes: 8192,
        ..QueueParameters::admin(name("nqn.host1"), [0x11; 16], name("nqn.subsys1"))
    }
}

fn take(queue: &mut QueuePair) -> Vec<u8> {
    let bytes = queue.output().to_vec();
    queue.sent(bytes.len());
    bytes
}

/// ICResp with MAXH2CDATA 4096 and these digests.
fn initialize_response(dgst: u8) -> [u8; 128] {
    let mut wire = [0; 128];
    wire[..8].copy_from_slice(&[0x01, 0, 0x80, 0, 0x80, 0, 0, 0]);
    wire[11] = dgst;
    wire[12..16].copy_from_slice(&[0x00, 0x10, 0, 0]);
    wire
}

/// CapsuleResp of command `id` with a status field as on the wire.
fn response(id: u8, status: u16) -> [u8; 24] {
    let mut wire = [0; 24];
    wire[..8].copy_from_slice(&[0x05, 0, 0x18, 0, 0x18, 0, 0, 0]);
    wire[20] = id;
    wire[22..].copy_from_slice(&status.to_le_bytes());
    wire
}

/// C2HData of command 0 (CCCID), flags, DATAO and data.
fn data_to_host(id: u8, flags: u8, offset: u8, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u8;
    let mut wire = vec![0x07, flags, 0x18, 0x18, 0x18 + length, 0, 0, 0, id, 0, 0, 0];
    wire.extend([offset, 0, 0, 0, length, 0, 0, 0, 0, 0, 0, 0]);
    wire.extend(data);
    wire
}

fn connected() -> QueuePair {
    let mut queue = QueuePair::new(parameters(Digests::NONE));
    let mut sink = Collect::default();
    queue.receive(&initialize_response(0), &mut sink).unwrap();
    queue.receive(&response(0, 0), &mut sink).unwrap();
    assert!(queue.is_ready() && sink.completions.is_empty());
    take(&mut queue);
    queue
}

fn read(first: u64, count: u32, length_bytes: u32) -> Command {
    Command::Read { span: LbaSpan { nsid: 5, first, count }, length_bytes }
}

#[test]
fn a_queue_begins_with_icreq_and_connect() {
    let mut queue = QueuePair::new(parameters(Digests::NONE));
    let mut expected = vec![0u8; 128];
    expected[..8].copy_from_slice(&[0x00, 0, 0x80, 0, 0x80, 0, 0, 0]);
    assert_eq!(take(&mut queue), expected);

    queue.receive(&initialize_response(0), &mut Collect::default()).unwrap();
    let sent = take(&mut queue);
    // CapsuleCmd with 1024 bytes of data: PDO 72, PLEN 1096 = 448h.
    assert_eq!(sent[..8], [0x04, 0, 0x48, 0x48, 0x48, 0x04, 0, 0]);
    let entry = &sent[8..72];
    assert_eq!(entry[..5], [0x7F, 0x40, 0, 0, 0x01], "fabrics, SGL, Connect");
    // In-capsule SGL of 1024 bytes; queue 1, SQSIZE 3, no SQ flow control, no keep-alive.
    assert_eq!(entry[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x04, 0, 0, 0, 0, 0, 0x01]);
    assert_eq!(entry[40..52], [0, 0, 1, 0, 3, 0, 0x04, 0, 0, 0, 0, 0]);
    let data = &sent[72..];
    assert_eq!((data.len(), &data[..18]), (1024, &[&[0x11; 16][..], &[0x03, 0x02]].concat()[..]));
    assert_eq!((&data[256..268], &data[512..522]), (&b"nqn.subsys1\0"[..], &b"nqn.host1\0"[..]));
}

#[test]
fn a_read_is_a_capsule_and_its_data_end_it() {
    let mut queue = connected();
    queue.submit(Token(77), read(0x1_0000_0100, 2, 8));
    let mut expected = vec![0x04, 0, 0x48, 0, 0x48, 0, 0, 0, 0x02, 0x40, 0, 0, 5, 0, 0, 0];
    expected.extend([0; 16]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x5A]);
    expected.extend([0x00, 0x01, 0, 0, 0x01, 0, 0, 0, 0x01, 0, 0, 0]);
    expected.extend([0; 12]);
    assert_eq!(take(&mut queue), expected);

    // Two data PDUs, the last with LAST_PDU and SUCCESS; delivered whole and byte by byte.
    let mut wire = data_to_host(0, 0, 0, b"dies");
    wire.extend(data_to_host(0, 0x0C, 4, b"page"));
    for part in [1, 7, wire.len()] {
        let mut queue = connected();
        queue.submit(Token(77), read(0, 2, 8));
        let mut sink = Collect::default();
        for bytes in wire.chunks(part) {
            queue.receive(bytes, &mut sink).unwrap();
        }
        assert_eq!(sink.data[&Token(77)], b"diespage");
        let done = Completion { token: Token(77), status: Status::SUCCESS, result: 0, received_bytes: 8 };
        assert_eq!(sink.completions, [done], "parts of {part}");
        assert_eq!((queue.room(), queue.under_way()), (3, 0));
    }
}

#[test]
fn a_write_goes_in_its_capsule_or_after_r2t() {
    let mut queue = connected();
    let span = LbaSpan { nsid: 1, first: 0, count: 1 };
    let data = Buffer::copy_from(&[0xA5; 512]);
    queue.submit(Token(1), Command::Write { span, data, force_unit_access: true });
    let sent = take(&mut queue);
    assert_eq!(sent[..10], [0x04, 0, 0x48, 0x48, 0x48, 0x02, 0, 0, 0x01, 0x40]);
    assert_eq!(sent[32..48], [0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0, 0, 0, 0, 0, 0x01], "in capsule");
    assert_eq!(sent[56..60], [0, 0, 0, 0x40], "NLB 0, FUA");
    assert_eq!(sent[72..], [0xA5; 512]);

    // 12 KiB are more than the capsule takes: the descriptor says so, R2T asks for 8192 bytes from 4096 on, and they
    // come in parts of MAXH2CDATA = 4096.
    let data: Vec<u8> = (0..12288u32).map(|at| (at / 4096) as u8).collect();
    let span = LbaSpan { nsid: 1, first: 0, count: 3 };
    queue.submit(Token(2), Command::Write { span, data: Buffer::copy_from(&data), force_unit_access: false });
    let sent = take(&mut queue);
    assert_eq!((sent.len(), sent[47]), (72, 0x5A));
    let r2t = [0x09, 0, 0x18, 0, 0x18, 0, 0, 0, 1, 0, 9, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    queue.receive(&r2t, &mut Collect::default()).unwrap();
    let sent = take(&mut queue);
    assert_eq!(sent.len(), 2 * (24 + 4096));
    let (first, second) = sent.split_at(24 + 4096);
    assert_eq!(first[..16], [0x06, 0, 0x18, 0x18, 0x18, 0x10, 0, 0, 1, 0, 9, 0, 0, 0x10, 0, 0]);
    assert_eq!(
        second[..20],
        [0x06, 4, 0x18, 0x18, 0x18, 0x10, 0, 0, 1, 0, 9, 0, 0, 0x20, 0, 0, 0, 0x10, 0, 0]
    );
    assert!(first[24..].iter().all(|&byte| byte == 1) && second[24..].iter().all(|&byte| byte == 2));
    // Nobody asks for the same bytes twice.
    let error = queue.receive(&r2t, &mut Collect::default()).unwrap_err();
    assert!(error.to_string().contains("R2TO"), "{error}");
    assert_eq!(take(&mut queue).len(), 24 + 24, "only the termination is sent");
}

#[test]
fn digests_are_sent_and_checked() {
    let both = Digests { header: true, data: true };
    let mut queue = QueuePair::new(parameters(both));
    assert_eq!(take(&mut queue)[11], 3);
    let mut sink = Collect::default();
    queue.receive(&initialize_response(3), &mut sink).unwrap();
    let connect = take(&mut queue);
    assert_eq!(connect[..8], [0x04, 3, 0x48, 0x4C, 0x50, 0x04, 0, 0]);
    assert_eq!(connect[72..76], digest_of(&connect[..72]));
    assert_eq!(connect[1100..], digest_of(&connect[76..1100]));
    let mut answer = response(0, 0).to_vec();
    (answer[1], answer[4]) = (1, 0x1C);
    answer.extend(digest_of(&answer.clone()));
    queue.receive(&answer, &mut sink).unwrap();
    take(&mut queue);

    for broken in [false, true] {
        queue.submit(Token(3), read(0, 1, 4));
        take(&mut queue);
        let mut wire =
            vec![0x07, 0x0F, 0x18, 0x1C, 0x24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        wire.extend(digest_of(&wire.clone()));
        wire.extend(b"rust");
        wire.extend(digest_of(if broken { b"rusT" } else { b"rust" }));
        let mut sink = Collect::default();
        wire.chunks(3).for_each(|bytes| queue.receive(bytes, &mut sink).unwrap());
        let expected = if broken { Status::DATA_TRANSFER_ERROR } else { Status::SUCCESS };
        assert_eq!(sink.completions[0].status, expected);
    }
    // A wrong header digest ends the stream and is told.
    let last = answer.len() - 1;
    answer[last] ^= 1;
    let error = queue.receive(&answer, &mut sink).unwrap_err();
    assert!(error.to_string().contains("HDGST"), "{error}");
    let told = take(&mut queue);
    assert_eq!((told[0], told[8]), (0x02, 3), "H2CTermReq, header digest error");
}

#[test]
fn what_breaks_the_protocol_ends_the_stream() {
    let read_under_way = |queue: &mut QueuePair| queue.submit(Token(1), read(0, 1, 8));
    let cases: [(&str, Vec<u8>); 9] = [
        ("a command that is not under way", response(2, 0).to_vec()),
        ("an id beyond the queue", response(200, 0).to_vec()),
        ("data of another command", data_to_host(1, 0x0C, 0, b"12345678")),
        ("data not in order", data_to_host(0, 0, 4, b"5678")),
        ("more data than asked for", data_to_host(0, 0x0C, 0, b"123456789")),
        ("success with too little data", data_to_host(0, 0x0C, 0, b"1234")),
        ("success before the last", data_to_host(0, 0x08, 0, b"12345678")),
        ("a second ICResp", initialize_response(0).to_vec()),
        ("no such type", vec![0x0B, 0, 0x18, 0, 0x18, 0, 0, 0]),
    ];
    for (what, wire) in cases {
        let mut queue = connected();
        read_under_way(&mut queue);
        take(&mut queue);
        let error = queue.receive(&wire, &mut Collect::default()).expect_err(what);
        assert!(matches!(error, HostError::Protocol(_)), "{what}: {error}");
        assert_eq!(take(&mut queue)[0], 0x02, "{what} is told");
        assert_eq!(queue.receive(&[], &mut Collect::default()), Err(error), "{what} stays");
    }
    let mut queue = connected();
    let terminate = [0x03, 0, 0x18, 0, 0x18, 0, 0, 0, 4, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let error = queue.receive(&terminate, &mut Collect::default()).unwrap_err();
    assert!(error.to_string().contains("DataOutOfRange, information 0x10"), "{error}");
}

#[test]
fn any_bytes_are_answered() {
    let mut random = diecut_testing::Random::of(1);
    for round in 0..4000 {
        let mut queue = connected();
        queue.submit(Token(1), read(0, 1, 64));
        let mut wire: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
        // Half of the rounds begin with a likely header.
        if round % 2 == 0 {
            let kind = [1, 3, 5, 7, 9][round / 2 % 5];
            let header = if kind == 1 { 128 } else { 24 };
            wire[..8].copy_from_slice(&[kind, 0, header, if kind == 7 { 24 } else { 0 }, header, 0, 0, 0]);
            if kind == 7 {
                wire[4] += wire[16] % 64;
                wire[8..12].fill(0);
            }
        }
        let _ = queue.receive(&wire, &mut Collect::default());
    }
}
