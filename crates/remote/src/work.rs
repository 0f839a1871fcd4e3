//! Intents under way, each in as many commands as the target takes.

use crate::facts::RemoteFacts;
use crate::kept::{Kept, KeptWork, KeptWrite, Settled, ZoneChange};
use diecut_initiator::openchannel::ChunkedNamespace;
use diecut_initiator::{Command, LbaSpan};
use diecut_media::{IntentDone, IntentError, IntentToken, IntentWork, Zone};
use diecut_nvme::Status;
use diecut_nvme::fdp::PlacementIds;
use diecut_nvme::zns::send_action;
use diecut_units::{Buffer, BufferMut, Slab, mark, mutant};
use std::collections::VecDeque;

/// What commands are made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub nsid: u32,
    pub lba_bytes: u32,
    /// Of one command; whole LBAs.
    pub transfer_bytes_max: u32,
    pub takes_deallocate: bool,
    /// What was not flushed is kept.
    pub keeps: bool,
    /// Bytes from one zone to the next one, of a zoned namespace.
    pub zone_size_bytes: Option<u64>,
    /// What its zones are, if these are chunks.
    pub chunked: Option<ChunkedNamespace>,
}

impl Limits {
    /// Of a namespace whose target takes commands of so many bytes.
    pub fn of(
        facts: &RemoteFacts,
        chunked: Option<ChunkedNamespace>,
        nsid: u32,
        transfer_bytes_max: u32,
    ) -> Limits {
        let lba_bytes = facts.lba_bytes;
        // NLB has 16 bits; a chunk is written by whole program units.
        let unit_lbas = chunked.map_or(1, |chunked| chunked.write_min_lbas);
        let lbas_max = (transfer_bytes_max / lba_bytes).min(1 << 16);
        let lbas_max = (lbas_max / unit_lbas * unit_lbas).max(unit_lbas);
        Limits {
            nsid,
            lba_bytes,
            transfer_bytes_max: lbas_max * lba_bytes,
            takes_deallocate: facts.takes_discard,
            keeps: facts.has_volatile_cache && !mutant!("remote: what was not flushed is not kept"),
            zone_size_bytes: facts.zones.as_ref().map(|zones| zones.zone_size_bytes),
            chunked,
        }
    }

    /// The address of a byte that begins an LBA.
    fn lba(&self, offset: u64) -> u64 {
        let lba = offset / u64::from(self.lba_bytes);
        let Some(chunked) = &self.chunked else { return lba };
        let of_chunk = u64::from(chunked.chunk_lbas);
        let (chunk, block) = ((lba / of_chunk) as u32, (lba % of_chunk) as u32);
        if mutant!("remote: addresses of chunks have no holes") { lba } else { chunked.lba(chunk, block) }
    }
}

/// An intent under way.
struct Work {
    token: IntentToken,
    /// Commands that are not answered.
    left: u32,
    /// Of these, the ones that begin when the one before was answered.
    rest: VecDeque<Task>,
    result: Result<(), IntentError>,
    /// Of a read.
    buffer: Option<BufferMut>,
}

/// What one command does.
#[derive(Clone, Debug)]
enum Task {
    /// Into the buffer of its work, from there on.
    Read {
        at: usize,
        offset: u64,
        len: u32,
    },
    Write {
        write: KeptWrite,
        /// Bytes at its start that the target has.
        has: usize,
    },
    Zone(ZoneChange, u64),
    Deallocate {
        offset: u64,
        len: u64,
    },
    /// What the flush covers, once it is sent.
    Flush {
        covers: u64,
    },
}

/// What it takes to have a zone count as full.
fn finish(offset: u64, limits: &Limits) -> impl Iterator<Item = Task> {
    assert!(limits.chunked.is_none(), "chunks are not finished: as many may be open as there are");
    // I-Q7: of a zone that is full nobody can tell what it lost.
    let flush = limits.keeps.then_some(Task::Flush { covers: 0 });
    flush.into_iter().chain([Task::Zone(ZoneChange::Finish, offset)])
}

/// A command that is not answered.
struct Piece {
    /// Its intent; none of a flush that nobody asked for, and of a write that is repeated.
    work: Option<u32>,
    task: Task,
    /// Pieces go out in this order, also for the second time.
    number: u64,
    is_sent: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Works {
    works: Slab<Work>,
    pieces: Slab<Piece>,
    /// Pieces to send.
    waiting: VecDeque<u32>,
    /// Kept work that goes out before them, one at a time.
    again: VecDeque<KeptWork>,
    is_repeating: bool,
    numbers: u64,
    pub kept: Kept,
    /// A flush that nobody asked for is under way.
    own_flush: bool,
    /// What was answered could not be written again: no flush works any more.
    is_broken: bool,
    /// What writes can name.
    pub pids: PlacementIds,
    /// How the namespace answered what went wrong last.
    pub last_failure: Option<Status>,
    pub done: Vec<IntentDone>,
}

/// How a command ended, as far as an intent is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly(IntentError),
}

impl Works {
    /// Takes an intent.
    ///
    /// # Panics
    /// If its offset or size is not whole LBAs.
    pub fn begin(&mut self, token: IntentToken, work: IntentWork, limits: &Limits) {
        let whole = |bytes: u64| bytes.is_multiple_of(limits.lba_bytes.into());
        let mut tasks: Vec<Task> = Vec::new();
        let mut own_buffer = None;
        match work {
            IntentWork::Read { offset, buffer } => {
                assert!(whole(offset) && whole(buffer.len() as u64), "a drive is read by whole LBAs");
                for at in (0..buffer.len()).step_by(limits.transfer_bytes_max as usize) {
                    let len = (buffer.len() - at).min(limits.transfer_bytes_max as usize) as u32;
                    tasks.push(Task::Read { at, offset: offset + at as u64, len });
                }
                own_buffer = Some(buffer);
            }
            IntentWork::Write { offset, parts, handle } => {
                let data = match &parts[..] {
                    [one] => one.clone(),
                    several => {
                        Buffer::copy_from(&several.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
                    }
                };
                assert!(whole(offset) && whole(data.len() as u64), "a drive is written by whole LBAs");
                for at in (0..data.len()).step_by(limits.transfer_bytes_max as usize) {
                    let end = data.len().min(at + limits.transfer_bytes_max as usize);
                    let write = KeptWrite { offset: offset + at as u64, data: data.slice(at..end), handle };
                    tasks.push(Task::Write { write, has: 0 });
                }
            }
            IntentWork::Discard { offset, len_bytes } if limits.takes_deallocate => {
                assert!(whole(offset) && whole(len_bytes), "a drive is discarded by whole LBAs");
                tasks.push(Task::Deallocate { offset, len: len_bytes });
            }
            IntentWork::Discard { .. } => {} // It is advice.
            IntentWork::ResetZone { offset, .. } => tasks.push(Task::Zone(ZoneChange::Reset, offset)),
            IntentWork::FinishZone { offset, .. } => tasks.extend(finish(offset, limits)),
            IntentWork::Sync => tasks.push(Task::Flush { covers: 0 }),
        }
        if tasks.is_empty() {
            return self.done.push(IntentDone { token, buffer: own_buffer, result: Ok(()) });
        }
        let left = tasks.len() as u32;
        // Each write of a zone begins where the one before ended; reads have no order.
        let is_in_order = limits.zone_size_bytes.is_some() && own_buffer.is_none();
        let rest = if is_in_order { tasks.split_off(1).into() } else { VecDeque::new() };
        let work = self.works.insert(Work { token, left, rest, result: Ok(()), buffer: own_buffer });
        tasks.into_iter().for_each(|task| self.add(Some(work), task));
    }

    fn add(&mut self, work: Option<u32>, task: Task) {
        self.numbers += 1;
        let piece = self.pieces.insert(Piece { work, task, number: self.numbers, is_sent: false });
        self.waiting.push_back(piece);
    }

    /// Whether nothing is under way or waits, what is repeated included.
    pub fn is_idle(&self) -> bool {
        self.works.is_empty() && self.pieces.is_empty() && self.again.is_empty()
    }

    /// More is kept than should be: it is flushed though nobody asked.
    pub fn flush_kept(&mut self) {
        if !self.own_flush {
            self.own_flush = true;
            self.add(None, Task::Flush { covers: 0 });
        }
    }

    /// The next command, and what it is called.
    pub fn next(&mut self, limits: &Limits) -> Option<(u32, Command)> {
        if self.is_repeating {
            return None;
        }
        // I-Q2.
        if let Some(work) = self.again.pop_front() {
            self.is_repeating = true;
            let task = match work {
                KeptWork::Write(write) => Task::Write { write, has: 0 },
                KeptWork::Zone(change, offset) => Task::Zone(change, offset),
            };
            let piece = Piece { work: None, task, number: 0, is_sent: true };
            let at = self.pieces.insert(piece);
            return Some((at, self.command(at, limits)));
        }
        let at = self.waiting.pop_front()?;
        self.pieces[at].is_sent = true;
        let covers = self.kept.last();
        if let Task::Flush { covers: of } = &mut self.pieces[at].task {
            *of = covers;
        }
        Some((at, self.command(at, limits)))
    }

    fn command(&self, at: u32, limits: &Limits) -> Command {
        let lba = u64::from(limits.lba_bytes);
        let nsid = limits.nsid;
        let span =
            |offset: u64, len: u64| LbaSpan { nsid, first: limits.lba(offset), count: (len / lba) as u32 };
        match &self.pieces[at].task {
            Task::Read { offset, len, .. } => {
                Command::Read { span: span(*offset, (*len).into()), length_bytes: *len }
            }
            Task::Write { write: KeptWrite { offset, data, handle }, has } => {
                let span = span(*offset + *has as u64, (data.len() - has) as u64);
                let data = data.slice(*has..data.len());
                match self.pids.pid(*handle, *offset) {
                    Some(pid) => Command::WritePlaced { span, data, pid },
                    None => Command::Write { span, data, force_unit_access: false },
                }
            }
            Task::Zone(ZoneChange::Reset, offset) if limits.chunked.is_some() => {
                Command::ResetChunk { nsid, lba: limits.lba(*offset) }
            }
            Task::Zone(change, offset) => Command::ActOnZone {
                nsid,
                zone_lba: limits.lba(*offset),
                action: match change {
                    ZoneChange::Reset => send_action::RESET,
                    ZoneChange::Finish => send_action::FINISH,
                },
            },
            Task::Deallocate { offset, len } => Command::Deallocate { span: span(*offset, *len) },
            Task::Flush { .. } => Command::Flush { nsid },
        }
    }

    /// Bytes that a read command brought.
    pub fn data(&mut self, at: u32, offset: u32, bytes: &[u8]) {
        let Some(Piece { work: Some(work), task: Task::Read { at, .. }, .. }) = self.pieces.get(at) else {
            return;
        };
        let begin = at + offset as usize;
        if let Some(buffer) = &mut self.works[*work].buffer {
            buffer[begin..begin + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// A command was answered.
    pub fn ended(&mut self, at: u32, ended: Ended, keeps: bool) {
        let Piece { work, task, number, .. } = self.pieces.remove(at);
        assert!(self.waiting.front() != Some(&at), "I-Q4: what was not sent is not answered");
        let is_repeated = number == 0;
        let is_lost = is_repeated && !mutant!("remote: what is refused when it is repeated is forgotten");
        self.is_repeating &= !is_repeated;
        let is_flush = matches!(task, Task::Flush { .. });
        // What a flush that failed was to cover may be lost, whatever a later one says.
        self.is_broken |= (is_lost || is_flush) && ended != Ended::Well;
        let ended = match ended {
            Ended::Well if is_flush && self.is_broken => Ended::Badly(IntentError::Failed),
            ended => ended,
        };
        match (task, ended) {
            (Task::Write { write, .. }, Ended::Well) if keeps && !is_repeated => {
                self.kept.push(KeptWork::Write(write));
            }
            (Task::Zone(change, offset), Ended::Well)
                if keeps && !is_repeated && !mutant!("remote: changes of zones are not kept") =>
            {
                self.kept.push(KeptWork::Zone(change, offset));
            }
            (Task::Flush { covers }, Ended::Well) => {
                let is_late = mutant!("remote: a flush covers what was answered while it was under way");
                self.kept.flushed(if is_late { self.kept.last() } else { covers });
            }
            _ => {}
        }
        let Some(work) = work else {
            self.own_flush &= is_repeated;
            return;
        };
        let of = &mut self.works[work];
        of.left -= 1;
        if let Ended::Badly(error) = ended {
            of.result = Err(error);
            of.left -= of.rest.len() as u32;
            of.rest.clear();
        }
        let (next, left) = (of.rest.pop_front(), of.left);
        if let Some(next) = next {
            self.add(Some(work), next);
        }
        if left == 0 {
            let Work { token, result, buffer, .. } = self.works.remove(work);
            self.done.push(IntentDone { token, buffer, result });
        }
    }

    /// The connection is lost: what was sent goes out again, in its order, behind what was answered and may be lost.
    pub fn lost(&mut self) {
        let repeated: Vec<u32> =
            self.pieces.iter().filter(|(_, piece)| piece.number == 0).map(|(at, _)| at).collect();
        repeated.into_iter().for_each(|at| drop(self.pieces.remove(at)));
        self.is_repeating = false;
        self.again = self.kept.all().cloned().collect();
        let mut all: Vec<(u64, u32)> = self
            .pieces
            .iter_mut()
            .map(|(at, piece)| {
                piece.is_sent = false;
                (piece.number, at)
            })
            .collect();
        all.sort_unstable();
        self.waiting = all.into_iter().map(|(_, at)| at).collect();
    }

    /// A zoned namespace is there again, and its zones are like that. What they have is not sent again: their write pointers are behind it.
    pub fn settle(&mut self, zones: &[Zone], limits: &Limits) {
        let Some(zone_size_bytes) = limits.zone_size_bytes else { return };
        let is_sent = |piece: &Piece| piece.is_sent;
        assert!(
            !self.pieces.iter().any(|(_, piece)| is_sent(piece)),
            "I-Q7: zones are told before anything is sent"
        );
        if mutant!("remote: what a zone has is sent again") {
            return;
        }
        let (settled, is_whole) = Settled::new(zones, zone_size_bytes, &mut self.again);
        self.is_broken |= !is_whole;
        let mut there = Vec::new();
        for (at, piece) in self.pieces.iter_mut() {
            if let Task::Write { write, has } = &mut piece.task {
                *has = settled.has(write);
                if *has == write.data.len() {
                    there.push(at);
                }
            }
        }
        self.waiting.retain(|at| !there.contains(at));
        for at in there {
            mark!("remote: a write to a zone is there already");
            self.ended(at, Ended::Well, limits.keeps);
        }
    }

    /// The drive is gone: everything is answered so.
    pub fn give_up(&mut self) {
        self.again.clear();
        self.waiting.clear();
        let pieces: Vec<u32> = self.pieces.iter().map(|(at, _)| at).collect();
        pieces.into_iter().for_each(|at| self.ended(at, Ended::Badly(IntentError::Gone), false));
    }

    /// An intent that comes when the drive is gone.
    pub fn refuse(&mut self, token: IntentToken, work: IntentWork) {
        let buffer = if let IntentWork::Read { buffer, .. } = work { Some(buffer) } else { None };
        self.done.push(IntentDone { token, buffer, result: Err(IntentError::Gone) });
    }
}
