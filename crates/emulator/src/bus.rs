//! Channel buses: one transfer at a time, handed on after each burst.

use crate::calendar::Calendar;
use crate::device::Device;
use crate::engine::{Die, Engine, Input};
use crate::profile::Arbitration;
use crate::slot::NONE;
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
        let (left, fresh) = if is_input {
            (die.input_bytes, &mut die.input_fresh)
        } else {
            (die.output_bytes, &mut die.output_fresh)
        };
        let overhead_ns = if std::mem::take(fresh) { timing.command_ns } else { 0 };
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
}

impl Device {
    /// A die has something to send or to receive.
    #[inline(always)]
    pub(crate) fn request_bus(&mut self, number: u32, is_input: bool, now: u64) {
        let Engine { dies, buses, calendar, .. } = &mut self.engine;
        let die = &mut dies[number as usize];
        let bus = &mut buses[die.channel as usize];
        let Some(current) = &mut bus.current else {
            return bus.begin(&self.timing, calendar, die, number, is_input, now);
        };
        bus.waiting.push_back((number, is_input));
        // The transfer under way was alone and took all its bytes at once; now it gives way after its burst.
        let burst = self.timing.burst_bytes;
        if burst > 0 && current.chunk_bytes > burst {
            let since = current.since + current.overhead_ns;
            let mut bytes = burst;
            while bytes < current.chunk_bytes && since + self.timing.bus_ns(bytes) < now {
                bytes += burst;
            }
            if bytes < current.chunk_bytes {
                current.chunk_bytes = bytes;
                calendar.cancel(bus.timer);
                calendar.schedule(bus.timer, Time(since + self.timing.bus_ns(bytes)));
            }
        }
    }

    /// A transfer, or a burst of it, is over.
    #[inline(always)]
    pub(crate) fn bus_done(&mut self, channel: u32, now: u64) {
        let Engine { dies, buses, calendar, .. } = &mut self.engine;
        let bus = &mut buses[channel as usize];
        let transfer = bus.current.take().expect("a transfer ends");
        bus.busy_ns += now - transfer.since;
        let die = &mut dies[transfer.die as usize];
        let left = if transfer.is_input { &mut die.input_bytes } else { &mut die.output_bytes };
        *left -= transfer.chunk_bytes;
        let all_over = *left == 0;
        let mut answered = NONE;
        if !all_over {
            bus.waiting.push_back((transfer.die, transfer.is_input));
        } else if transfer.is_input {
            let Input::Arriving(index) = die.input else { unreachable!("a unit arrives") };
            die.input = Input::Ready(index);
        } else {
            let index = std::mem::replace(&mut die.output, NONE);
            let slot = self.slots.get_mut(index);
            slot.steps_transferred += 1;
            if slot.steps_transferred == slot.steps {
                answered = index;
            }
        }
        if let Some((number, is_input)) = bus.next(self.arbitration, dies.len() as u32) {
            bus.begin(&self.timing, calendar, &mut dies[number as usize], number, is_input, now);
        }
        if answered != NONE {
            self.finish(answered, now);
        }
        if all_over {
            self.issue(transfer.die, now);
        }
    }
}
