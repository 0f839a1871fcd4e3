//! What comes from a host: bytes that are not parsed yet, and the PDU that is being read.

use crate::queue::SlotIndex;
use crate::tcp::Receiver;
use diecut_nvme::Status;
use diecut_nvme::fabrics::ConnectCommand;
use diecut_units::Buffer;
use std::collections::VecDeque;

/// What the data of the current PDU are for.
#[derive(Debug)]
pub(crate) enum Current {
    Nothing,
    /// Data of Connect.
    Connect(Box<ConnectCommand>),
    /// In-capsule data of a command.
    Command(SlotIndex),
    /// A part of an R2T's data, and its length.
    Transfer(SlotIndex, u32),
    /// The command was refused; the answer goes out when its data are over.
    Refused(u16, Status),
}

impl Current {
    /// Whether no PDU is under way whose data are awaited.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Current::Nothing)
    }
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) receiver: Receiver,
    pub(crate) current: Current,
    /// Bytes received and not parsed; parsing goes on at `at` of the first.
    pub(crate) backlog: VecDeque<Buffer>,
    pub(crate) at: usize,
    /// The header of a command whose data are next was read, and there is no room for these.
    pub(crate) data_wait: bool,
    /// The driver was told to stop reading.
    pub(crate) paused: bool,
    /// It has a place in the next round.
    pub(crate) runnable: bool,
    /// Times that bytes came from its host.
    pub(crate) heard: u64,
}

impl Inbound {
    /// Nothing has come yet.
    pub(crate) fn new() -> Inbound {
        Inbound {
            receiver: Receiver::new(),
            current: Current::Nothing,
            backlog: VecDeque::new(),
            at: 0,
            data_wait: false,
            paused: false,
            runnable: false,
            heard: 0,
        }
    }

    /// The next bytes of the stream.
    #[inline]
    pub(crate) fn push(&mut self, bytes: Buffer) {
        self.heard += 1;
        self.backlog.push_back(bytes);
    }

    /// The first buffer is parsed, if it is: the next one comes.
    #[inline]
    pub(crate) fn advance(&mut self, len_bytes: usize) {
        assert!(self.at <= len_bytes, "I-T2: parsing stays within what came");
        if self.at == len_bytes && !self.backlog.is_empty() {
            self.backlog.pop_front();
            self.at = 0;
        }
    }

    /// Throws away what is not parsed.
    pub(crate) fn clear(&mut self) {
        self.backlog.clear();
        self.at = 0;
    }

    /// Nothing more is read.
    pub(crate) fn close(&mut self) {
        self.clear();
        self.current = Current::Nothing;
    }
}
