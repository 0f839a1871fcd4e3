//! A host's end of one NVMe/TCP stream: bytes in, PDUs out.

use crate::network::Pipe;
use diecut_nvme::SubmissionEntry;
use diecut_nvme::tcp::{
    CapsuleCommand, CommonHeader, DataToController, Digests, Frame, Receiver, digest_matches, digest_of,
};
use diecut_target::ConnectionId;
use zerocopy::{FromBytes, IntoBytes};

/// A PDU as the host got it.
#[derive(Debug)]
pub struct Pdu {
    /// Type.
    pub kind: u8,
    /// Header, digest checked and removed.
    pub header: Vec<u8>,
    /// Data, digest checked and removed.
    pub data: Vec<u8>,
}

/// One stream between a host and the target.
#[derive(Debug)]
pub struct Link {
    /// Its number at the target.
    pub id: ConnectionId,
    /// On the way to the target.
    pub to_target: Pipe,
    /// On the way to the host.
    pub to_host: Pipe,
    /// Agreed digests.
    pub digests: Digests,
    /// The target does not read it now.
    pub paused: bool,
    /// The target closes it when its output has arrived.
    pub closing: bool,
    received: Vec<u8>,
}

impl Link {
    /// A stream that was just opened.
    pub fn new(id: ConnectionId) -> Link {
        Link {
            id,
            to_target: Pipe::default(),
            to_host: Pipe::default(),
            digests: Digests::NONE,
            paused: false,
            closing: false,
            received: Vec::new(),
        }
    }

    /// Takes bytes from the target and appends the PDUs they complete.
    ///
    /// # Panics
    /// If the target sends what is no PDU, or a wrong digest: findings of a simulated run.
    pub fn parse(&mut self, bytes: &[u8], pdus: &mut Vec<Pdu>) {
        self.received.extend_from_slice(bytes);
        loop {
            let Ok((common, _)) = CommonHeader::read_from_prefix(&self.received) else { return };
            let frame = Frame::check(&common, Receiver::Host, self.digests, 4, 4 << 20)
                .expect("the target sends right PDUs");
            if self.received.len() < frame.length {
                return;
            }
            let bytes: Vec<u8> = self.received.drain(..frame.length).collect();
            let header = bytes[..frame.header_length].to_vec();
            let data_end = frame.data_start + frame.data_length;
            if frame.header_digest {
                assert!(
                    digest_matches(&header, &bytes[frame.header_length..frame.header_end]),
                    "the target sends a wrong header digest"
                );
            }
            let data = bytes[frame.data_start..data_end].to_vec();
            if frame.data_digest {
                assert!(digest_matches(&data, &bytes[data_end..]), "the target sends a wrong data digest");
            }
            pdus.push(Pdu { kind: frame.pdu_type, header, data });
        }
    }

    /// A command capsule as bytes.
    pub fn capsule(&self, entry: SubmissionEntry, data: &[u8]) -> Vec<u8> {
        let header = CapsuleCommand::new(entry, data.len() as u32, self.digests);
        self.frame(header.as_bytes(), data)
    }

    /// Data for an R2T as bytes.
    pub fn data(&self, command_id: u16, tag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let header = DataToController::new(command_id, tag, offset, data.len() as u32, last, self.digests);
        self.frame(header.as_bytes(), data)
    }

    fn frame(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.digests.header {
            bytes.extend(digest_of(header));
        }
        if !data.is_empty() {
            bytes.extend_from_slice(data);
            if self.digests.data {
                bytes.extend(digest_of(data));
            }
        }
        bytes
    }
}
