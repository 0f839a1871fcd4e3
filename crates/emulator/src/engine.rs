//! The event model: dies on one calendar with their channel buses and what lies before them.
//!
//! A read takes the array for one row, then the row leaves over the channel bus; with a cache register the array reads
//! the next row meanwhile. A program unit arrives over the bus, then takes the array; with a cache register the next
//! unit arrives meanwhile. Commands of a die begin in the order they were submitted; only reads overtake a program,
//! erase or copy that can be suspended.

use crate::bus::Bus;
use crate::calendar::Calendar;
use crate::device::Device;
use crate::slot::{Kind, NONE, Slot, Slots};
use crate::stages::{CUT, STAGE_TIMERS};
use diecut_media::MediaError;
use diecut_units::{Geometry, IU_SIZE_BYTES, Span, Time};
use rand::RngExt;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Array {
    Idle,
    /// A row is read.
    Reading(u32),
    /// A unit is programmed or copied, or the block erased.
    Writing(u32),
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
    pub(crate) array: Array,
    array_since: u64,
    /// Commands that it has: those that wait, and those that the array or the bus is at work on.
    commands: u32,
    /// Since when it has some.
    busy_since: u64,
    /// Commands that wait, linked by [`Slot::next`].
    first: u32,
    last: u32,
    /// Steps of the first command in the queue that were begun.
    issued: u32,
    pub(crate) channel: u32,
    /// The command whose row leaves over the bus.
    pub(crate) output: u32,
    pub(crate) input: Input,
    pub(crate) input_bytes: u32,
    pub(crate) output_bytes: u32,
    /// A step's command cycles are charged with its first burst.
    pub(crate) input_fresh: bool,
    pub(crate) output_fresh: bool,
    suspensions: u32,
    /// What stands still, and how much of its time is left.
    suspended: Option<(u32, u64)>,
    /// Pages that the registers hold: block, first page, end.
    sensed: (u64, u32, u32),
}

impl Die {
    fn new(channel: u32) -> Die {
        Die {
            array: Array::Idle,
            array_since: 0,
            commands: 0,
            busy_since: 0,
            first: NONE,
            last: NONE,
            issued: 0,
            channel,
            output: NONE,
            input: Input::Empty,
            input_bytes: 0,
            output_bytes: 0,
            input_fresh: false,
            output_fresh: false,
            suspensions: 0,
            suspended: None,
            sensed: NOTHING_SENSED,
        }
    }

    /// Whether commands wait.
    pub(crate) fn has_queue(&self) -> bool {
        self.first != NONE
    }

    #[inline(always)]
    fn push(&mut self, slots: &mut Slots, index: u32) {
        let last = std::mem::replace(&mut self.last, index);
        if self.first == NONE {
            self.first = index;
        } else {
            slots.get_mut(last).next = index;
        }
    }

    /// All steps of the first command were begun.
    #[inline(always)]
    fn pop(&mut self, first: &Slot) {
        self.issued = 0;
        self.first = first.next;
    }

    /// The array has work until `time` after `now`.
    #[inline(always)]
    fn occupy(&mut self, array: Array, sensed: (u64, u32, u32), now: u64) {
        self.array = array;
        self.array_since = now;
        // Reads in between are why it was suspended; they do not start its count anew.
        if self.suspended.is_none() {
            self.suspensions = 0;
        }
        self.sensed = sensed;
    }
}

/// How often an erase looks whether the room that its block was promised is there: so seldom that a driver sleeps in between, and does not
/// take a core from the thread that it waits for.
pub(crate) const ROOM_LOOK: Span = Span::from_millis(2);

const NOTHING_SENSED: (u64, u32, u32) = (u64::MAX, 0, 0);

pub(crate) struct Engine {
    pub(crate) calendar: Calendar,
    pub(crate) dies: Vec<Die>,
    pub(crate) buses: Vec<Bus>,
}

impl Engine {
    pub(crate) fn new(dies: u32, channels: u32) -> Engine {
        Engine {
            calendar: Calendar::new((dies + channels + STAGE_TIMERS) as usize),
            dies: (0..dies).map(|die| Die::new(die / (dies / channels))).collect(),
            buses: (0..channels).map(|channel| Bus::new(dies + channel)).collect(),
        }
    }

    pub(crate) fn stage_timer(&self, stage: u32) -> u32 {
        (self.dies.len() + self.buses.len()) as u32 + stage
    }
    pub(crate) fn cut_timer(&self) -> u32 {
        self.stage_timer(CUT)
    }
}

/// Pages of a read that lie on the row of a step.
#[inline(always)]
fn pages_of_step(slot: &Slot, geometry: &Geometry, step: u32) -> Range<u32> {
    let end = slot.first_page + slot.page_count;
    if slot.steps == 1 {
        return slot.first_page..end;
    }
    let planes = u32::from(geometry.planes_per_die);
    let row = slot.first_row + step;
    (row * planes).max(slot.first_page)..((row + 1) * planes).min(end)
}

/// Bytes of a read's next row that cross the bus.
#[inline(always)]
fn row_bytes(slot: &Slot, geometry: &Geometry) -> u32 {
    if slot.steps == 1 {
        return slot.row_bytes;
    }
    let pages = pages_of_step(slot, geometry, slot.steps_transferred);
    let oob = if slot.oob.is_some() { (pages.end - pages.start) * geometry.oob_size_bytes } else { 0 };
    if slot.kind == Kind::ReadOob {
        return oob;
    }
    let per_page = geometry.ius_per_page();
    let start = (pages.start * per_page).max(slot.first_iu);
    let end = (pages.end * per_page).min(slot.first_iu + slot.iu_count);
    (end - start) * IU_SIZE_BYTES as u32 + oob
}

impl Device {
    #[inline(always)]
    pub(crate) fn enter_die(&mut self, index: u32, now: u64) {
        let number = self.slots.get(index).die;
        let die = &mut self.engine.dies[number as usize];
        if die.commands == 0 {
            die.busy_since = now;
        }
        die.commands += 1;
        die.push(&mut self.slots, index);
        // A die that reads takes nothing else; the rest is for `issue` to tell.
        if !matches!(die.array, Array::Reading(_)) {
            self.issue(number, now);
        }
    }

    /// A die is done with one of its commands.
    #[inline(always)]
    pub(crate) fn leave_die(&mut self, number: u32, now: u64) {
        let die = &mut self.engine.dies[number as usize];
        die.commands -= 1;
        if die.commands == 0 {
            self.statistics[number as usize].busy_ns += now - die.busy_since;
        }
    }

    /// Time with commands of dies that have some now, in nanoseconds: it is not in their statistics yet.
    pub(crate) fn busy_so_far_ns(&self) -> u64 {
        let busy = self.engine.dies.iter().filter(|die| die.commands > 0);
        busy.map(|die| self.now.0.saturating_sub(die.busy_since)).sum()
    }

    /// Handles everything that happens until `now`.
    #[inline(always)]
    pub(crate) fn run(&mut self, now: Time) {
        if self.engine.calendar.next_time() <= now {
            self.handle_events(now);
        }
    }

    #[inline(never)]
    fn handle_events(&mut self, now: Time) {
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

    /// Lets a die begin whatever it can.
    #[inline(never)]
    pub(crate) fn issue(&mut self, number: u32, now: u64) {
        loop {
            let die = &mut self.engine.dies[number as usize];
            let front = die.first;
            match die.array {
                Array::Reading(_) | Array::Suspending => return,
                Array::RowReady(index) => {
                    if die.output != NONE {
                        return;
                    }
                    die.array = Array::Idle;
                    self.put_out(number, index, now);
                }
                Array::Writing(running) => {
                    if front == NONE {
                        return;
                    }
                    let kind = self.slots.get(front).kind;
                    if kind.is_read() {
                        if self.die_profile.suspend && !self.must_wait(number, front) {
                            self.suspend(number, now);
                        }
                        return;
                    }
                    // The next unit may arrive while one is programmed; nothing else has a register of its own.
                    let may_arrive = kind == Kind::Program
                        && self.die_profile.cache_program
                        && die.input == Input::Empty
                        && die.suspended.is_none()
                        && self.slots.get(running).kind == Kind::Program;
                    if !may_arrive {
                        return;
                    }
                    self.begin_write(number, front, now);
                }
                Array::Idle => {
                    if die.input == Input::Empty && die.suspended.is_none() {
                        // Nothing but rows on their way out: the usual case.
                        if front == NONE {
                            return;
                        }
                        if !self.slots.get(front).kind.is_read() {
                            self.begin_write(number, front, now);
                        } else if (die.output != NONE && !self.die_profile.cache_read)
                            || self.begin_read(number, front, now)
                        {
                            return;
                        }
                    } else if !self.go_on(number, front, now) {
                        return;
                    }
                }
            }
        }
    }

    /// An idle array beside a unit that arrived or arrives, or beside something that stands still. `false` if there is
    /// nothing to do.
    #[inline(never)]
    fn go_on(&mut self, number: u32, front: u32, now: u64) -> bool {
        let die = &mut self.engine.dies[number as usize];
        if die.suspended.is_none()
            && let Input::Ready(index) = die.input
        {
            die.input = Input::Empty;
            self.start_program(number, index, now);
            return true;
        }
        let reads = front != NONE && self.slots.get(front).kind.is_read();
        if !reads || self.must_wait(number, front) {
            return self.resume(number, now);
        }
        // Reads come before what stands still, but not before a unit that needs the registers.
        let die = &self.engine.dies[number as usize];
        let registers = (die.output == NONE || self.die_profile.cache_read) && die.suspended.is_some();
        registers && !self.begin_read(number, front, now)
    }

    /// A read must not overtake what was submitted before it to the same erase block.
    fn must_wait(&self, number: u32, read: u32) -> bool {
        let die = &self.engine.dies[number as usize];
        let same_block = |other: u32| self.slots.get(other).block == self.slots.get(read).block;
        die.suspended.is_some_and(|(other, _)| same_block(other))
            || matches!(die.input, Input::Arriving(other) | Input::Ready(other) if same_block(other))
            || matches!(die.array, Array::Writing(other) if same_block(other))
    }

    /// A row leaves for the register in front of the bus.
    #[inline(always)]
    fn put_out(&mut self, number: u32, index: u32, now: u64) {
        let bytes = row_bytes(self.slots.get(index), &self.nand.geometry);
        let die = &mut self.engine.dies[number as usize];
        die.output = index;
        die.output_fresh = true;
        die.output_bytes = bytes;
        self.request_bus(number, false, now);
    }

    /// The array reads the next row for the command at the front. `false` if the command is answered at once.
    #[inline(always)]
    fn begin_read(&mut self, number: u32, index: u32, now: u64) -> bool {
        let die = &mut self.engine.dies[number as usize];
        let slot = self.slots.get_mut(index);
        let step = die.issued;
        if step == 0 {
            let count = &mut self.statistics[number as usize];
            count.reads += 1;
            count.read_bytes += u64::from(slot.iu_count) * IU_SIZE_BYTES as u64;
            if self.nand.begin(slot, Time(now)) {
                self.cut_within(index, now);
            }
        }
        let die = &mut self.engine.dies[number as usize];
        let slot = self.slots.get(index);
        if matches!(slot.error, Some(MediaError::DieOffline { .. })) && step == 0 {
            die.pop(slot);
            self.leave_die(number, now);
            self.complete(index);
            return false;
        }
        if step + 1 == slot.steps {
            die.pop(slot);
        } else {
            die.issued += 1;
        }
        let pages = pages_of_step(slot, &self.nand.geometry, step);
        let (sensed, from, to) = die.sensed;
        let held = self.die_profile.page_register_reuse
            && sensed == slot.block
            && from <= pages.start
            && pages.end <= to
            && slot.retries == 0;
        let (time, sensed) = if held {
            (0, die.sensed)
        } else {
            let count = pages.end - pages.start;
            let at_once = self.timing.planes_at_once;
            let rounds = if count <= at_once { 1 } else { u64::from(count.div_ceil(at_once)) };
            let one = self.timing.read_row_ns(&self.nand.cells, slot.first_row + step);
            (one * rounds * u64::from(1 + slot.retries), (slot.block, pages.start, pages.end))
        };
        die.occupy(Array::Reading(index), sensed, now);
        let time = self.nand.stretched(time, number, Time(now));
        self.engine.calendar.schedule(number, Time(now + time));
        true
    }

    /// The command at the front, no read, begins, or a program goes on with its next unit.
    #[inline(never)]
    fn begin_write(&mut self, number: u32, index: u32, now: u64) {
        let step = self.engine.dies[number as usize].issued;
        if step == 0 {
            let slot = self.slots.get_mut(index);
            let count = &mut self.statistics[number as usize];
            if slot.kind == Kind::Erase {
                count.erases += 1;
            } else {
                count.program_units += u64::from(slot.steps);
                count.programmed_bytes +=
                    u64::from(slot.page_count) * u64::from(self.nand.geometry.page_size_bytes);
            }
            if self.nand.begin(slot, Time(now)) {
                self.cut_within(index, now);
            }
            let slot = self.slots.get(index);
            if matches!(slot.error, Some(MediaError::DieOffline { .. })) {
                self.engine.dies[number as usize].pop(slot);
                self.leave_die(number, now);
                return self.complete(index);
            }
        }
        let slot = self.slots.get(index);
        let die = &mut self.engine.dies[number as usize];
        if slot.kind == Kind::Copy || step + 1 == slot.steps {
            die.pop(slot);
        } else {
            die.issued += 1;
        }
        match slot.kind {
            Kind::Program => {
                die.input = Input::Arriving(index);
                die.input_fresh = true;
                die.input_bytes = self.unit_bytes;
                self.request_bus(number, true, now);
            }
            Kind::Erase => self.write(number, index, self.timing.erase_ns + self.timing.command_ns, now),
            Kind::Copy => self.start_copy(number, index, now),
            Kind::Read | Kind::ReadOob => unreachable!("reads begin with `begin_read`"),
        }
    }

    /// The power goes somewhere within the command, its way over the bus included.
    #[inline(never)]
    fn cut_within(&mut self, index: u32, now: u64) {
        let longest = match self.slots.get(index).kind {
            Kind::Read | Kind::ReadOob => self.timing.longest_read_ns(),
            Kind::Program | Kind::Copy => {
                self.timing.bus_ns(self.unit_bytes) + self.timing.longest_program_ns()
            }
            Kind::Erase => self.timing.erase_ns,
        };
        let after = self.nand.failures.random.random_range(0..longest.max(1));
        let timer = self.engine.cut_timer();
        self.engine.calendar.cancel(timer);
        self.engine.calendar.schedule(timer, Time(now + after));
    }

    fn start_program(&mut self, number: u32, index: u32, now: u64) {
        let slot = self.slots.get(index);
        let row = self.row_of(slot.first_page + slot.steps_done * self.nand.cells.unit_pages());
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let time = self.timing.program_unit_ns(&self.nand.cells, row, planes);
        self.write(number, index, time, now);
    }

    fn start_copy(&mut self, number: u32, index: u32, now: u64) {
        let (slot, freight) = (self.slots.get(index), self.slots.freight(index));
        let unit_pages = self.nand.cells.unit_pages();
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let from = self.row_of(freight.source_page + slot.steps_done * unit_pages);
        let to = self.row_of(slot.first_page + slot.steps_done * unit_pages);
        let rounds = u64::from(planes.div_ceil(self.timing.planes_at_once));
        let reads: u64 = (from..from + self.nand.cells.unit_rows())
            .map(|row| self.timing.read_row_ns(&self.nand.cells, row) * rounds)
            .sum();
        let time = reads + self.timing.program_unit_ns(&self.nand.cells, to, planes) + self.timing.command_ns;
        self.write(number, index, time, now);
    }

    fn row_of(&self, page: u32) -> u32 {
        page / u32::from(self.nand.geometry.planes_per_die)
    }

    /// The array programs, erases or copies for this time.
    fn write(&mut self, number: u32, index: u32, time: u64, now: u64) {
        self.engine.dies[number as usize].occupy(Array::Writing(index), NOTHING_SENSED, now);
        let time = self.nand.stretched(time, number, Time(now));
        self.engine.calendar.schedule(number, Time(now + time));
    }

    /// Brings a program, erase or copy to a stand for the read at the front of the queue, if the die can.
    fn suspend(&mut self, number: u32, now: u64) {
        let profile = &self.die_profile;
        let die = &mut self.engine.dies[number as usize];
        let Array::Writing(running) = die.array else { return };
        if die.suspended.is_some() || die.suspensions >= profile.suspend_limit {
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
        die.array = Array::Writing(index);
        die.array_since = now;
        self.engine.calendar.schedule(number, Time(now + rest + self.timing.resume_ns));
        true
    }

    #[inline(always)]
    fn array_done(&mut self, number: u32, now: u64) {
        let die = &mut self.engine.dies[number as usize];
        self.statistics[number as usize].array_busy_ns += now - die.array_since;
        match die.array {
            Array::Reading(index) => {
                let slot = self.slots.get_mut(index);
                slot.steps_done += 1;
                if slot.steps_done == slot.steps {
                    self.nand.read(slot);
                }
                if die.output != NONE {
                    die.array = Array::RowReady(index);
                    return;
                }
                die.array = Array::Idle;
                self.put_out(number, index, now);
            }
            Array::Writing(index) => {
                if self.erases_without_room(index, now) {
                    self.engine.dies[number as usize].array_since = now;
                    return self.engine.calendar.schedule(number, Time(now) + ROOM_LOOK);
                }
                self.engine.dies[number as usize].array = Array::Idle;
                if !self.unit_done(index, now) {
                    return self.start_copy(number, index, now);
                }
            }
            Array::Suspending => die.array = Array::Idle,
            Array::Idle | Array::RowReady(_) => unreachable!("only a busy array has an end"),
        }
        self.issue(number, now);
    }

    /// Whether a command erases a block whose room is still being taken: the erase ends when it is there, so no program waits for a
    /// file system.
    fn erases_without_room(&mut self, index: u32, now: u64) -> bool {
        let slot = self.slots.get(index);
        let (kind, block) = (slot.kind, slot.block);
        kind == Kind::Erase && self.nand.awaits_room(block, Time(now))
    }

    /// The effect of a program, erase or copy that the array is done with, for this unit. `false` if a copy goes on.
    #[inline(never)]
    fn unit_done(&mut self, index: u32, now: u64) -> bool {
        let (slot, freight) = self.slots.loaded(index);
        let step = slot.steps_done;
        slot.steps_done += 1;
        match slot.kind {
            Kind::Program => self.nand.program_unit(slot, freight, step, Time(now)),
            Kind::Erase => self.nand.erase(slot),
            Kind::Copy => self.nand.copy_unit(slot, freight, step, Time(now)),
            Kind::Read | Kind::ReadOob => unreachable!("reads change nothing"),
        }
        if slot.steps_done == slot.steps {
            self.finish(index, now);
            return true;
        }
        slot.kind != Kind::Copy
    }

    /// Takes the command whose unit, copy or erase is at work in a die's array, if any, for a power cut.
    pub(crate) fn at_work(&self, number: usize) -> impl Iterator<Item = u32> + use<> {
        let die = &self.engine.dies[number];
        let busy = match die.array {
            Array::Writing(index) => Some(index),
            _ => None,
        };
        busy.into_iter().chain(die.suspended.map(|(index, _)| index))
    }
}
