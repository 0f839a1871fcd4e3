//! Channel buses: one transfer at a time, handed on after each burst.

use crate::calendar::Calendar;
use crate::command::NONE;
use crate::die::{Die, Input};
use crate::profile::Arbitration;
use crate::timing::Timing;
use diecut_units::Time;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Transfer {
    die: u32,
    is_input: bool,
    since: u64,
    overhead_ns: u64,
    chunk_bytes: u32,
}

/// What a transfer that ended leaves to do.
pub(crate) struct Over {
    pub(crate) die: u32,
    /// All of the step crossed the bus, not just a burst of it.
    pub(crate) is_whole: bool,
    /// The command whose row left, or [`NONE`].
    pub(crate) output: u32,
}

/// While something waits, something is under way.
#[derive(Default)]
pub(crate) struct Bus {
    /// Dies, and whether their unit comes in.
    waiting: VecDeque<(u32, bool)>,
    current: Option<Transfer>,
    last_die: u32,
    /// Its timer in the calendar.
    timer: u32,
    busy_ns: u64,
}

impl Bus {
    pub(crate) fn new(timer: u32) -> Bus {
        Bus { timer, ..Bus::default() }
    }

    /// Time it was in use, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Begins with what a die has to send or to receive.
    #[inline(always)]
    fn begin(
        &mut self,
        timing: &Timing,
        calendar: &mut Calendar,
        die: &mut Die,
        number: u32,
        is_input: bool,
        now: u64,
    ) {
        let port = if is_input { &mut die.inward } else { &mut die.outward };
        let left = port.bytes;
        let overhead_ns = if std::mem::take(&mut port.is_fresh) { timing.command_ns } else { 0 };
        let alone = self.waiting.is_empty();
        let chunk_bytes = if alone || timing.burst_bytes == 0 { left } else { left.min(timing.burst_bytes) };
        self.last_die = number;
        self.current = Some(Transfer { die: number, is_input, since: now, overhead_ns, chunk_bytes });
        calendar.schedule(self.timer, Time(now + overhead_ns + timing.bus_ns(chunk_bytes)));
    }

    /// Takes out whose turn it is.
    #[inline(always)]
    fn next(&mut self, arbitration: Arbitration, dies: u32) -> Option<(u32, bool)> {
        match arbitration {
            Arbitration::Fifo => self.waiting.pop_front(),
            Arbitration::RoundRobin => {
                let distance = |die: u32| (die + dies - self.last_die - 1) % dies;
                let waiting = self.waiting.iter().enumerate();
                let at = waiting.min_by_key(|(_, (die, _))| distance(*die)).map_or(0, |(at, _)| at);
                self.waiting.remove(at)
            }
        }
    }

    /// A die has something to send or to receive.
    #[inline(always)]
    pub(crate) fn request(
        &mut self,
        timing: &Timing,
        calendar: &mut Calendar,
        die: &mut Die,
        number: u32,
        is_input: bool,
        now: u64,
    ) {
        let Some(current) = &mut self.current else {
            return self.begin(timing, calendar, die, number, is_input, now);
        };
        self.waiting.push_back((number, is_input));
        // The transfer under way was alone and took all its bytes at once; now it gives way after its burst.
        let burst = timing.burst_bytes;
        if burst > 0 && current.chunk_bytes > burst {
            let since = current.since + current.overhead_ns;
            let mut bytes = burst;
            while bytes < current.chunk_bytes && since + timing.bus_ns(bytes) < now {
                bytes += burst;
            }
            if bytes < current.chunk_bytes {
                current.chunk_bytes = bytes;
                calendar.cancel(self.timer);
                calendar.schedule(self.timer, Time(since + timing.bus_ns(bytes)));
            }
        }
    }

    /// A transfer, or a burst of it, is over.
    #[inline(always)]
    pub(crate) fn end(&mut self, dies: &mut [Die], now: u64) -> Over {
        let transfer = self.current.take().expect("I-E4: a transfer ends that began");
        self.busy_ns += now - transfer.since;
        let die = &mut dies[transfer.die as usize];
        let port = if transfer.is_input { &mut die.inward } else { &mut die.outward };
        port.bytes -= transfer.chunk_bytes;
        let is_whole = port.bytes == 0;
        let mut output = NONE;
        if !is_whole {
            self.waiting.push_back((transfer.die, transfer.is_input));
        } else if transfer.is_input {
            let Input::Arriving(index) = die.input else { unreachable!("a unit arrives") };
            die.input = Input::Ready(index);
        } else {
            output = std::mem::replace(&mut die.output, NONE);
        }
        Over { die: transfer.die, is_whole, output }
    }

    /// Begins with what waits, if anything does.
    #[inline(always)]
    pub(crate) fn begin_next(
        &mut self,
        arbitration: Arbitration,
        timing: &Timing,
        calendar: &mut Calendar,
        dies: &mut [Die],
        now: u64,
    ) {
        if let Some((number, is_input)) = self.next(arbitration, dies.len() as u32) {
            self.begin(timing, calendar, &mut dies[number as usize], number, is_input, now);
        }
    }
}
