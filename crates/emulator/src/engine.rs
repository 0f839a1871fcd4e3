//! The event model: dies, channel buses, controller and host link, on one calendar.
//!
//! A read takes the array for one row, then the row leaves over the channel bus; with a cache register the array reads
//! the next row meanwhile. A program unit arrives over the bus, then takes the array; with a cache register the next
//! unit arrives meanwhile. Commands of a die begin in the order they were submitted; only reads overtake a program,
//! erase or copy that can be suspended.

use crate::calendar::Calendar;
use crate::device::Device;
use crate::profile::Arbitration;
use crate::slot::{Kind, NONE};
use diecut_media::{Completion, MediaError};
use diecut_units::{IU_SIZE_BYTES, Time};
use rand::RngExt;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Array {
    Idle,
    /// A row is read, or a unit programmed or copied, or the block erased.
    Busy(u32),
    /// A row waits for the register that leads to the bus.
    RowReady(u32),
    /// A program, erase or copy is about to stand still.
    Suspending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Empty,
    /// A unit waits for the bus or crosses it.
    Arriving(u32),
    /// A unit waits for the array.
    Ready(u32),
}

pub(crate) struct Die {
    pub(crate) queue: VecDeque<u32>,
    /// Steps of the first command in the queue that were begun.
    issued: u32,
    pub(crate) array: Array,
    array_since: u64,
    pub(crate) input: Input,
    output: u32,
    input_bytes: u32,
    output_bytes: u32,
    /// A step's command cycles are charged with its first burst.
    input_fresh: bool,
    output_fresh: bool,
    pub(crate) suspended: Option<(u32, u64)>,
    suspensions: u32,
    /// Pages that the registers hold: block, first page, end.
    sensed: (u64, u32, u32),
}

impl Die {
    fn new() -> Die {
        Die {
            queue: VecDeque::new(),
            issued: 0,
            array: Array::Idle,
            array_since: 0,
            input: Input::Empty,
            output: NONE,
            input_bytes: 0,
            output_bytes: 0,
            input_fresh: false,
            output_fresh: false,
            suspended: None,
            suspensions: 0,
            sensed: (u64::MAX, 0, 0),
        }
    }
}

#[derive(Clone, Copy)]
struct Transfer {
    die: u32,
    is_input: bool,
    since: u64,
    overhead_ns: u64,
    chunk_bytes: u32,
}

#[derive(Default)]
struct Bus {
    waiting: VecDeque<(u32, bool)>,
    current: Option<Transfer>,
    last_die: u32,
    busy_ns: u64,
}

/// A server that takes one command after the other.
#[derive(Default)]
struct Stage {
    queue: VecDeque<u32>,
}

pub(crate) struct Engine {
    pub(crate) calendar: Calendar,
    pub(crate) dies: Vec<Die>,
    buses: Vec<Bus>,
    controller: Stage,
    link_in: Stage,
    link_out: Stage,
    delayed: VecDeque<(u64, u32)>,
    dies_per_channel: u32,
}

impl Engine {
    pub(crate) fn new(dies: u32, channels: u32) -> Engine {
        Engine {
            calendar: Calendar::new((dies + channels) as usize + 5),
            dies: (0..dies).map(|_| Die::new()).collect(),
            buses: (0..channels).map(|_| Bus::default()).collect(),
            controller: Stage::default(),
            link_in: Stage::default(),
            link_out: Stage::default(),
            delayed: VecDeque::new(),
            dies_per_channel: dies / channels,
        }
    }

    #[inline]
    fn bus_timer(&self, channel: u32) -> u32 {
        self.dies.len() as u32 + channel
    }
    fn stage_timer(&self, stage: u32) -> u32 {
        (self.dies.len() + self.buses.len()) as u32 + stage
    }
    pub(crate) fn cut_timer(&self) -> u32 {
        self.stage_timer(4)
    }
    /// Time a channel's bus was in use, in nanoseconds.
    pub(crate) fn bus_busy_ns(&self, channel: u32) -> u64 {
        self.buses[channel as usize].busy_ns
    }
}

const CONTROLLER: u32 = 0;
const LINK_IN: u32 = 1;
const LINK_OUT: u32 = 2;
const DELAY: u32 = 3;

impl Device {
    /// Puts a command on its way.
    pub(crate) fn start(&mut self, index: u32, now: u64) {
        if self.timing.controller_ns > 0 {
            self.engine.controller.queue.push_back(index);
            if self.engine.controller.queue.len() == 1 {
                let timer = self.engine.stage_timer(CONTROLLER);
                self.engine.calendar.schedule(timer, Time(now + self.timing.controller_ns));
            }
        } else {
            self.enter_link(index, now);
        }
    }

    fn enter_link(&mut self, index: u32, now: u64) {
        if !self.timing.has_link() {
            return self.enter_die(index, now);
        }
        let bytes = self.slots.get(index).parts.iter().map(|part| u64::from(part.iu_count())).sum::<u64>()
            * IU_SIZE_BYTES as u64;
        // What carries nothing still keeps its place: commands to one erase block take effect in order.
        if self.timing.link_ns(bytes) > 0 || !self.engine.link_in.queue.is_empty() {
            self.engine.link_in.queue.push_back(index);
            if self.engine.link_in.queue.len() == 1 {
                let timer = self.engine.stage_timer(LINK_IN);
                self.engine.calendar.schedule(timer, Time(now + self.timing.link_ns(bytes)));
            }
        } else {
            self.enter_die(index, now);
        }
    }

    #[inline]
    fn enter_die(&mut self, index: u32, now: u64) {
        let die = self.slots.get(index).die;
        self.engine.dies[die as usize].queue.push_back(index);
        self.issue(die, now);
    }

    /// Handles everything that happens until `now`.
    #[inline]
    pub(crate) fn run(&mut self, now: Time) {
        while let Some((time, timer)) = self.engine.calendar.pop(now) {
            let (dies, buses) = (self.engine.dies.len() as u32, self.engine.buses.len() as u32);
            if timer < dies {
                self.array_done(timer, time.0);
            } else if timer < dies + buses {
                self.bus_done(timer - dies, time.0);
            } else {
                self.stage_done(timer - dies - buses, time.0);
            }
        }
    }

    fn stage_done(&mut self, stage: u32, now: u64) {
        let timer = self.engine.stage_timer(stage);
        match stage {
            CONTROLLER => {
                let index = self.engine.controller.queue.pop_front().expect("the controller works on one");
                if !self.engine.controller.queue.is_empty() {
                    self.engine.calendar.schedule(timer, Time(now + self.timing.controller_ns));
                }
                self.enter_link(index, now);
            }
            LINK_IN => {
                let index = self.engine.link_in.queue.pop_front().expect("the link carries one");
                if let Some(&next) = self.engine.link_in.queue.front() {
                    let ius: u64 =
                        self.slots.get(next).parts.iter().map(|part| u64::from(part.iu_count())).sum();
                    let time = now + self.timing.link_ns(ius * IU_SIZE_BYTES as u64);
                    self.engine.calendar.schedule(timer, Time(time));
                }
                self.enter_die(index, now);
            }
            LINK_OUT => {
                let index = self.engine.link_out.queue.pop_front().expect("the link carries one");
                if let Some(&next) = self.engine.link_out.queue.front() {
                    let bytes = u64::from(self.slots.get(next).iu_count) * IU_SIZE_BYTES as u64;
                    self.engine.calendar.schedule(timer, Time(now + self.timing.link_ns(bytes)));
                }
                self.delay(index, now);
            }
            DELAY => {
                let (_, index) = self.engine.delayed.pop_front().expect("somebody waits");
                if let Some(&(time, _)) = self.engine.delayed.front() {
                    self.engine.calendar.schedule(timer, Time(time));
                }
                self.complete(index);
            }
            _ => self.power_cut(Time(now)),
        }
    }

    /// The die is done with a command.
    fn finish(&mut self, index: u32, now: u64) {
        let slot = self.slots.get(index);
        let bytes = u64::from(slot.iu_count) * IU_SIZE_BYTES as u64;
        if slot.kind == Kind::Read && self.timing.link_ns(bytes) > 0 {
            self.engine.link_out.queue.push_back(index);
            if self.engine.link_out.queue.len() == 1 {
                let timer = self.engine.stage_timer(LINK_OUT);
                self.engine.calendar.schedule(timer, Time(now + self.timing.link_ns(bytes)));
            }
        } else {
            self.delay(index, now);
        }
    }

    fn delay(&mut self, index: u32, now: u64) {
        if self.timing.latency_ns == 0 {
            return self.complete(index);
        }
        let time = now + self.timing.latency_ns;
        self.engine.delayed.push_back((time, index));
        if self.engine.delayed.len() == 1 {
            let timer = self.engine.stage_timer(DELAY);
            self.engine.calendar.schedule(timer, Time(time));
        }
    }

    #[inline]
    pub(crate) fn complete(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        if !slot.kind.is_read() {
            self.nand.blocks[slot.block as usize].pending -= 1;
        }
        self.done.push(Completion {
            token: slot.token,
            result: slot.error.map_or(Ok(()), Err),
            destination: slot.destination.take(),
            oob: slot.oob.take(),
        });
        self.slots.release(index);
    }

    /// Lets a die begin whatever it can.
    #[inline]
    fn issue(&mut self, number: u32, now: u64) {
        loop {
            let die = &mut self.engine.dies[number as usize];
            if let Array::RowReady(index) = die.array
                && die.output == NONE
            {
                die.array = Array::Idle;
                die.output = index;
                die.output_fresh = true;
                let bytes = self.row_bytes(index);
                self.engine.dies[number as usize].output_bytes = bytes;
                self.request_bus(number, false, now);
                continue;
            }
            if die.array == Array::Idle
                && die.suspended.is_none()
                && let Input::Ready(index) = die.input
            {
                die.input = Input::Empty;
                self.start_program(number, index, now);
                continue;
            }
            let Some(&front) = die.queue.front() else {
                if !self.resume(number, now) {
                    return;
                }
                continue;
            };
            let slot = self.slots.get(front);
            let kind = slot.kind;
            // A read must not overtake what was submitted before it to the same erase block.
            let same_block = |other: u32| self.slots.get(other).block == slot.block;
            let must_wait = kind.is_read()
                && (die.suspended.is_some_and(|(other, _)| same_block(other))
                    || matches!(die.input, Input::Arriving(other) | Input::Ready(other) if same_block(other))
                    || matches!(die.array, Array::Busy(other) if same_block(other)));
            let may_begin = match kind {
                Kind::Read | Kind::ReadOob => {
                    !must_wait
                        && die.array == Array::Idle
                        && (self.die_profile.cache_read || die.output == NONE)
                        && (die.input == Input::Empty || die.suspended.is_some())
                }
                Kind::Program => {
                    let programming = matches!(die.array, Array::Busy(running)
                        if self.die_profile.cache_program && running != NONE);
                    die.input == Input::Empty
                        && die.suspended.is_none()
                        && (die.array == Array::Idle || programming)
                }
                Kind::Erase | Kind::Copy => {
                    die.array == Array::Idle && die.input == Input::Empty && die.suspended.is_none()
                }
            };
            if !may_begin {
                if kind.is_read() && !must_wait {
                    if self.die_profile.suspend {
                        self.suspend(number, now);
                    }
                } else if self.resume(number, now) {
                    continue;
                }
                return;
            }
            // A cache program overlaps only with a program; what else runs has no second register.
            if kind == Kind::Program
                && let Array::Busy(running) = self.engine.dies[number as usize].array
                && self.slots.get(running).kind != Kind::Program
            {
                return;
            }
            let step = self.engine.dies[number as usize].issued;
            if step == 0 && !self.begin(number, front, now) {
                continue;
            }
            let steps = self.slots.get(front).steps;
            let die = &mut self.engine.dies[number as usize];
            let all_begun = kind == Kind::Copy || step + 1 == steps;
            if all_begun {
                die.queue.pop_front();
                die.issued = 0;
            } else {
                die.issued += 1;
            }
            match kind {
                Kind::Read | Kind::ReadOob => self.start_read(number, front, step, now),
                Kind::Program => {
                    die.input = Input::Arriving(front);
                    die.input_fresh = true;
                    die.input_bytes = self.unit_bytes;
                    self.request_bus(number, true, now);
                }
                Kind::Erase => {
                    let time = self.timing.erase_ns + self.timing.command_ns;
                    self.occupy(number, front, time, now);
                }
                Kind::Copy => self.start_copy(number, front, now),
            }
        }
    }

    /// A command reaches the front of its die. `false` if it is answered at once.
    fn begin(&mut self, number: u32, index: u32, now: u64) -> bool {
        let slot = self.slots.get_mut(index);
        let cut = self.nand.begin(slot, Time(now));
        let count = &mut self.statistics[number as usize];
        match slot.kind {
            Kind::Read | Kind::ReadOob => {
                count.reads += 1;
                count.read_bytes += u64::from(slot.iu_count) * IU_SIZE_BYTES as u64;
            }
            Kind::Program | Kind::Copy => {
                count.program_units += u64::from(slot.steps);
                count.programmed_bytes +=
                    u64::from(slot.page_count) * u64::from(self.nand.geometry.page_size_bytes);
            }
            Kind::Erase => count.erases += 1,
        }
        if cut {
            // Somewhere within the command, its way over the bus included.
            let longest = match slot.kind {
                Kind::Read | Kind::ReadOob => self.timing.read_ns.iter().max().copied().unwrap_or(0),
                Kind::Program | Kind::Copy => {
                    self.timing.bus_ns(self.unit_bytes)
                        + self.timing.program_ns.iter().max().copied().unwrap_or(0)
                }
                Kind::Erase => self.timing.erase_ns,
            };
            let after = self.nand.random.random_range(0..longest.max(1));
            let timer = self.engine.cut_timer();
            self.engine.calendar.cancel(timer);
            self.engine.calendar.schedule(timer, Time(now + after));
        }
        let slot = self.slots.get_mut(index);
        if matches!(slot.error, Some(MediaError::DieOffline { .. })) {
            self.engine.dies[number as usize].queue.pop_front();
            self.complete(index);
            return false;
        }
        true
    }

    #[inline]
    fn row_of(&self, page: u32) -> u32 {
        page / u32::from(self.nand.geometry.planes_per_die)
    }

    /// Bytes of a read's next row that cross the bus.
    fn row_bytes(&self, index: u32) -> u32 {
        let slot = self.slots.get(index);
        let geometry = &self.nand.geometry;
        let planes = u32::from(geometry.planes_per_die);
        let row = self.row_of(slot.first_page) + slot.steps_transferred;
        let pages_start = (row * planes).max(slot.first_page);
        let pages_end = ((row + 1) * planes).min(slot.first_page + slot.page_count);
        let oob = if slot.oob.is_some() { (pages_end - pages_start) * geometry.oob_size_bytes } else { 0 };
        if slot.kind == Kind::ReadOob {
            return oob;
        }
        let per_page = geometry.ius_per_page();
        let start = (pages_start * per_page).max(slot.first_iu);
        let end = (pages_end * per_page).min(slot.first_iu + slot.iu_count);
        (end - start) * IU_SIZE_BYTES as u32 + oob
    }

    fn start_read(&mut self, number: u32, index: u32, step: u32, now: u64) {
        let slot = self.slots.get(index);
        let row = self.row_of(slot.first_page) + step;
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let start = (row * planes).max(slot.first_page);
        let end = ((row + 1) * planes).min(slot.first_page + slot.page_count);
        let rounds = u64::from((end - start).div_ceil(self.timing.planes_at_once));
        let block = slot.block;
        let mut time = self.timing.read_row_ns(&self.nand.cells, row) * rounds * u64::from(1 + slot.retries);
        let (sensed, from, to) = self.engine.dies[number as usize].sensed;
        let held = sensed == block && from <= start && end <= to && slot.retries == 0;
        let sensed = if held && self.die_profile.page_register_reuse {
            (sensed, from, to)
        } else {
            (block, start, end)
        };
        if held && self.die_profile.page_register_reuse {
            time = 0;
        }
        self.occupy(number, index, time, now);
        self.engine.dies[number as usize].sensed = sensed;
    }

    fn start_program(&mut self, number: u32, index: u32, now: u64) {
        let slot = self.slots.get(index);
        let row = self.row_of(slot.first_page + slot.steps_done * self.nand.cells.unit_pages());
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let time = self.timing.program_unit_ns(&self.nand.cells, row, planes);
        self.occupy(number, index, time, now);
    }

    fn start_copy(&mut self, number: u32, index: u32, now: u64) {
        let slot = self.slots.get(index);
        let unit_pages = self.nand.cells.unit_pages();
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let from = self.row_of(slot.source_page + slot.steps_done * unit_pages);
        let to = self.row_of(slot.first_page + slot.steps_done * unit_pages);
        let rounds = u64::from(planes.div_ceil(self.timing.planes_at_once));
        let reads: u64 = (from..from + self.nand.cells.unit_rows())
            .map(|row| self.timing.read_row_ns(&self.nand.cells, row) * rounds)
            .sum();
        let time = reads + self.timing.program_unit_ns(&self.nand.cells, to, planes) + self.timing.command_ns;
        self.occupy(number, index, time, now);
    }

    #[inline]
    fn occupy(&mut self, number: u32, index: u32, time: u64, now: u64) {
        let percent = self.nand.percent_of_normal_time(number, Time(now));
        let time = if percent == 100 { time } else { time * percent / 100 };
        let die = &mut self.engine.dies[number as usize];
        die.array = Array::Busy(index);
        die.array_since = now;
        // Reads in between are why it was suspended; they do not start its count anew.
        if die.suspended.is_none() {
            die.suspensions = 0;
        }
        die.sensed = (u64::MAX, 0, 0);
        self.engine.calendar.schedule(number, Time(now + time));
    }

    /// Brings a program, erase or copy to a stand for the read at the front of the queue, if the die can.
    fn suspend(&mut self, number: u32, now: u64) {
        let profile = &self.die_profile;
        let die = &mut self.engine.dies[number as usize];
        let Array::Busy(running) = die.array else { return };
        if !profile.suspend
            || die.suspended.is_some()
            || die.suspensions >= profile.suspend_limit
            || self.slots.get(running).kind.is_read()
        {
            return;
        }
        let ends = self.engine.calendar.time_of(number).expect("a busy array has an end").0;
        if ends <= now + self.timing.suspend_ns {
            return;
        }
        self.engine.calendar.cancel(number);
        let die = &mut self.engine.dies[number as usize];
        die.suspensions += 1;
        die.suspended = Some((running, ends - now));
        die.array = Array::Suspending;
        self.statistics[number as usize].array_busy_ns += now - die.array_since;
        die.array_since = now;
        self.engine.calendar.schedule(number, Time(now + self.timing.suspend_ns));
    }

    /// Goes on with what was suspended when no read waits. Returns whether it did.
    fn resume(&mut self, number: u32, now: u64) -> bool {
        let die = &mut self.engine.dies[number as usize];
        if die.array != Array::Idle {
            return false;
        }
        let Some((index, rest)) = die.suspended.take() else { return false };
        die.array = Array::Busy(index);
        die.array_since = now;
        self.engine.calendar.schedule(number, Time(now + rest + self.timing.resume_ns));
        true
    }

    fn array_done(&mut self, number: u32, now: u64) {
        let die = &mut self.engine.dies[number as usize];
        self.statistics[number as usize].array_busy_ns += now - die.array_since;
        let index = match die.array {
            Array::Busy(index) => index,
            Array::Suspending => {
                die.array = Array::Idle;
                return self.issue(number, now);
            }
            Array::Idle | Array::RowReady(_) => unreachable!("only a busy array has an end"),
        };
        let slot = self.slots.get_mut(index);
        let step = slot.steps_done;
        slot.steps_done += 1;
        let all_done = slot.steps_done == slot.steps;
        match slot.kind {
            Kind::Read | Kind::ReadOob => {
                if all_done {
                    self.nand.read(slot);
                }
                die.array = Array::RowReady(index);
            }
            Kind::Program => {
                self.nand.program_unit(slot, step, Time(now));
                die.array = Array::Idle;
                if all_done {
                    self.finish(index, now);
                }
            }
            Kind::Erase => {
                self.nand.erase(slot);
                die.array = Array::Idle;
                self.finish(index, now);
            }
            Kind::Copy => {
                self.nand.copy_unit(slot, step, Time(now));
                die.array = Array::Idle;
                if all_done {
                    self.finish(index, now);
                } else {
                    return self.start_copy(number, index, now);
                }
            }
        }
        self.issue(number, now);
    }

    fn request_bus(&mut self, number: u32, is_input: bool, now: u64) {
        let channel = number / self.engine.dies_per_channel;
        let timer = self.engine.bus_timer(channel);
        let burst = self.timing.burst_bytes;
        let bus = &mut self.engine.buses[channel as usize];
        bus.waiting.push_back((number, is_input));
        let Some(current) = &mut bus.current else { return self.next_transfer(channel, now) };
        // The transfer under way was alone and took all its bytes at once; now it gives way after its burst.
        if burst > 0 && current.chunk_bytes > burst {
            let since = current.since + current.overhead_ns;
            let mut bytes = burst;
            while bytes < current.chunk_bytes && since + self.timing.bus_ns(bytes) < now {
                bytes += burst;
            }
            if bytes < current.chunk_bytes {
                current.chunk_bytes = bytes;
                self.engine.calendar.cancel(timer);
                self.engine.calendar.schedule(timer, Time(since + self.timing.bus_ns(bytes)));
            }
        }
    }

    fn next_transfer(&mut self, channel: u32, now: u64) {
        let timer = self.engine.bus_timer(channel);
        let bus = &mut self.engine.buses[channel as usize];
        let at = match self.arbitration {
            Arbitration::Fifo => 0,
            Arbitration::RoundRobin => {
                let count = self.engine.dies.len() as u32;
                let distance = |die: u32| (die + count - bus.last_die - 1) % count;
                let waiting = bus.waiting.iter().enumerate();
                waiting.min_by_key(|(_, (die, _))| distance(*die)).map_or(0, |(at, _)| at)
            }
        };
        let Some((number, is_input)) = bus.waiting.remove(at) else { return };
        let die = &mut self.engine.dies[number as usize];
        let (left, fresh) = if is_input {
            (die.input_bytes, &mut die.input_fresh)
        } else {
            (die.output_bytes, &mut die.output_fresh)
        };
        let overhead_ns = if std::mem::take(fresh) { self.timing.command_ns } else { 0 };
        let burst = self.timing.burst_bytes;
        let alone = bus.waiting.is_empty();
        let chunk_bytes = if alone || burst == 0 { left } else { left.min(burst) };
        bus.last_die = number;
        bus.current = Some(Transfer { die: number, is_input, since: now, overhead_ns, chunk_bytes });
        let time = now + overhead_ns + self.timing.bus_ns(chunk_bytes);
        self.engine.calendar.schedule(timer, Time(time));
    }

    fn bus_done(&mut self, channel: u32, now: u64) {
        let bus = &mut self.engine.buses[channel as usize];
        let transfer = bus.current.take().expect("a transfer ends");
        bus.busy_ns += now - transfer.since;
        let die = &mut self.engine.dies[transfer.die as usize];
        let left = if transfer.is_input { &mut die.input_bytes } else { &mut die.output_bytes };
        *left -= transfer.chunk_bytes;
        if *left > 0 {
            bus.waiting.push_back((transfer.die, transfer.is_input));
            return self.next_transfer(channel, now);
        }
        if transfer.is_input {
            let Input::Arriving(index) = die.input else { unreachable!("a unit arrives") };
            die.input = Input::Ready(index);
        } else {
            let index = std::mem::replace(&mut die.output, NONE);
            let slot = self.slots.get_mut(index);
            slot.steps_transferred += 1;
            if slot.steps_transferred == slot.steps {
                self.finish(index, now);
            }
        }
        self.next_transfer(channel, now);
        self.issue(transfer.die, now);
    }

    /// Takes the command whose unit, copy or erase is at work in a die's array, if any, for a power cut.
    pub(crate) fn at_work(&self, number: usize) -> impl Iterator<Item = u32> + use<> {
        let die = &self.engine.dies[number];
        let busy = match die.array {
            Array::Busy(index) if !self.slots.get(index).kind.is_read() => Some(index),
            _ => None,
        };
        busy.into_iter().chain(die.suspended.map(|(index, _)| index))
    }
}
