//! A namespace as bytes: read, written, flushed and discarded by several at a time.

use crate::queue::{DEPTH, Queue, Stream, bring_up};
use diecut_initiator::{Admin, Collect, Command, LbaSpan, Token};
use diecut_initiator::{NamespaceFacts, QueueParameters};
use diecut_nvme::QualifiedName;
use diecut_units::Buffer;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// Queues: so many requests are carried out at a time.
pub const QUEUES: u16 = 4;
/// LBAs that a deallocation or a write of zeros names at most.
const LBAS_MAX: u64 = 1 << 16;

/// Where a namespace is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The target.
    pub address: SocketAddr,
    /// NQN of the host that is to reach it.
    pub host: QualifiedName,
    /// NQN of its subsystem.
    pub subsystem: QualifiedName,
    /// Its number there.
    pub nsid: u32,
}

/// A namespace that a target serves, as long as the connections hold.
pub struct Namespace {
    facts: NamespaceFacts,
    transfer_lbas_max: u64,
    free: Mutex<Vec<Queue>>,
    is_free: Condvar,
    is_lost: AtomicBool,
    /// Held by whoever writes parts of blocks, against all other writes.
    parts: RwLock<()>,
    /// The controller lives as long as its admin queue.
    _admin: (Stream, Admin),
}

fn unusable(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why.to_owned())
}

impl Namespace {
    /// Connects to it.
    ///
    /// # Errors
    /// What the system or the target says; or that there is no such namespace.
    pub fn connect(place: &Place) -> io::Result<Namespace> {
        let host_id = *b"diecut-bridge\0\0\0";
        let parameters = QueueParameters::admin(place.host.clone(), host_id, place.subsystem.clone());
        let mut stream = Stream::dial(place.address)?;
        let admin = bring_up(&mut stream, parameters, QUEUES)?;
        let controller = admin.facts().expect("it was brought up");
        let named = controller.namespaces.iter().find(|namespace| namespace.nsid == place.nsid);
        let facts = *named.ok_or_else(|| unusable("the subsystem has no such namespace for this host"))?;
        if facts.metadata_bytes > 0 || facts.zoned.is_some() || facts.chunked.is_some() {
            return Err(unusable("it is no namespace of plain blocks"));
        }
        let transfer_lbas_max = u64::from(controller.transfer_bytes_max / facts.lba_bytes).clamp(1, LBAS_MAX);
        let depth = DEPTH.min(controller.queue_entries_max.saturating_sub(1)).max(1);
        let queues = (1..=controller.io_queues.min(QUEUES))
            .map(|queue| Queue::connect(place.address, admin.io_queue(queue, depth)))
            .collect::<io::Result<Vec<Queue>>>()?;
        Ok(Namespace {
            facts,
            transfer_lbas_max,
            free: Mutex::new(queues),
            is_free: Condvar::new(),
            is_lost: AtomicBool::new(false),
            parts: RwLock::default(),
            _admin: (stream, admin),
        })
    }

    /// How long it is.
    pub fn size_bytes(&self) -> u64 {
        self.facts.size_lbas * self.lba_bytes()
    }

    /// What is written as a whole.
    pub fn lba_bytes(&self) -> u64 {
        self.facts.lba_bytes.into()
    }

    fn free(&self) -> MutexGuard<'_, Vec<Queue>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries commands out on a queue that nobody else has meanwhile.
    fn run(&self, commands: Vec<Command>) -> io::Result<Collect> {
        let mut queue = {
            let waits = |free: &mut Vec<Queue>| free.is_empty() && !self.is_lost.load(Ordering::Acquire);
            let mut free =
                self.is_free.wait_while(self.free(), waits).unwrap_or_else(PoisonError::into_inner);
            let lost = self.is_lost.load(Ordering::Acquire);
            free.pop().filter(|_| !lost).ok_or(ErrorKind::NotConnected)?
        };
        let outcome = queue.run(commands);
        if outcome.is_err() {
            // The others, too: they belong to one controller.
            self.is_lost.store(true, Ordering::Release);
            drop(self.free());
            self.is_free.notify_all();
        } else {
            self.free().push(queue);
            self.is_free.notify_one();
        }
        let done = outcome?;
        match done.completions.iter().find(|one| !one.status.is_success()) {
            None => Ok(done),
            Some(failed) => Err(io::Error::other(failed.status.to_string())),
        }
    }

    /// LBAs that hold the bytes, in pieces that one command may have.
    fn spans(&self, bytes: Range<u64>, lbas_max: u64) -> impl Iterator<Item = LbaSpan> {
        let (first, end) = (bytes.start / self.lba_bytes(), bytes.end.div_ceil(self.lba_bytes()));
        let nsid = self.facts.nsid;
        (first..end).step_by(lbas_max as usize).map(move |first| LbaSpan {
            nsid,
            first,
            count: lbas_max.min(end - first) as u32,
        })
    }

    fn is_whole(&self, bytes: &Range<u64>) -> bool {
        bytes.start.is_multiple_of(self.lba_bytes()) && bytes.end.is_multiple_of(self.lba_bytes())
    }

    /// What lies there, up to the end of the namespace.
    ///
    /// # Errors
    /// What the target says, or that it is gone.
    pub fn read(&self, offset: u64, len_bytes: u64) -> io::Result<Vec<u8>> {
        let end = offset.saturating_add(len_bytes).min(self.size_bytes());
        if offset >= end {
            return Ok(Vec::new());
        }
        let lba_bytes = self.lba_bytes();
        let spans = self.spans(offset..end, self.transfer_lbas_max);
        let reads: Vec<Command> =
            spans.map(|span| Command::Read { span, length_bytes: span.count * lba_bytes as u32 }).collect();
        let count = reads.len();
        let mut done = self.run(reads)?;
        let parts = (0..count as u64).map(|at| done.data.remove(&Token(at)).unwrap_or_default());
        let mut bytes: Vec<u8> = parts.flatten().collect();
        bytes.drain(..(offset % lba_bytes) as usize);
        bytes.truncate((end - offset) as usize);
        if bytes.len() as u64 == end - offset { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn within(&self, offset: u64, len_bytes: u64) -> io::Result<Range<u64>> {
        let end = offset.checked_add(len_bytes).filter(|end| *end <= self.size_bytes());
        end.map(|end| offset..end).ok_or_else(|| ErrorKind::StorageFull.into())
    }

    /// Writes. Blocks of which only a part is written are read before.
    ///
    /// # Errors
    /// As [`Namespace::read`]; nothing is written where the namespace has an end before.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.within(offset, bytes.len() as u64)?;
        if self.is_whole(&range) {
            let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            return self.write_whole(&range, bytes);
        }
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let lba_bytes = self.lba_bytes();
        let start = range.start / lba_bytes * lba_bytes;
        let whole = start..range.end.next_multiple_of(lba_bytes);
        let mut all = self.read(whole.start, whole.end - whole.start)?;
        all[(range.start - start) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.write_whole(&whole, &all)
    }

    fn write_whole(&self, range: &Range<u64>, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let writes = self.spans(range.clone(), self.transfer_lbas_max).map(|span| {
            let (data, behind) = rest.split_at((u64::from(span.count) * self.lba_bytes()) as usize);
            rest = behind;
            Command::Write { span, data: Buffer::copy_from(data), force_unit_access: false }
        });
        let writes = writes.collect();
        self.run(writes).map(drop)
    }

    /// Makes durable what was answered before.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn flush(&self) -> io::Result<()> {
        self.run(vec![Command::Flush { nsid: self.facts.nsid }]).map(drop)
    }

    /// What lay there reads as zeros, and its room is given back.
    ///
    /// # Errors
    /// As [`Namespace::write`].
    pub fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let end = offset.saturating_add(len_bytes).min(self.size_bytes());
        let lba_bytes = self.lba_bytes();
        let whole = offset.next_multiple_of(lba_bytes)..end / lba_bytes * lba_bytes;
        if whole.start >= whole.end {
            let len = end.saturating_sub(offset);
            return self.write(offset.min(end), &vec![0; len as usize]);
        }
        for edge in [offset..whole.start, whole.end..end] {
            self.write(edge.start, &vec![0; (edge.end - edge.start) as usize])?;
        }
        let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let zeros = |span| Command::WriteZeroes { span, may_deallocate: true, force_unit_access: false };
        let zeros = self.spans(whole, LBAS_MAX).map(zeros).collect();
        self.run(zeros).map(drop)
    }
}
