//! The event model: dies on one calendar with their channel buses and what lies before them.
//!
//! A read takes the array for one row, then the row leaves over the channel bus; with a cache register the array reads
//! the next row meanwhile. A program unit arrives over the bus, then takes the array; with a cache register the next
//! unit arrives meanwhile. Commands of a die begin in the order they were submitted; only reads overtake a program,
//! erase or copy that can be suspended.

use crate::Profile;
use crate::bus::Bus;
use crate::calendar::Calendar;
use crate::command::{CommandState, Commands, Kind, NONE};
use crate::die::{Array, Die, Input, NOTHING_SENSED, Port};
use crate::frontend::{Clock, FRONTEND_TIMERS, Frontend, Next};
use crate::nand::Nand;
use crate::profile::{Arbitration, DieProfile};
use crate::statistics::DieStatistics;
use crate::syncs::Syncs;
use crate::timing::Timing;
use diecut_media::{Command, Completion, MediaError};
use diecut_units::{BufferMut, Geometry, IU_SIZE_BYTES, Span, Time};
use rand::RngExt;
use std::ops::Range;

/// How often an erase looks whether the room that its block was promised is there: so seldom that a driver sleeps in between, and does not
/// take a core from the thread that it waits for.
pub(crate) const ROOM_LOOK: Span = Span::from_millis(2);

/// Commands under way, what they work on, and the time that they take.
pub(crate) struct Engine {
    pub(crate) nand: Nand,
    pub(crate) commands: Commands,
    /// Answers that nobody has taken yet.
    pub(crate) done: Vec<Completion>,
    /// Of a device whose store is to be synced.
    pub(crate) syncs: Option<Box<Syncs>>,
    pub(crate) statistics: Vec<DieStatistics>,
    pub(crate) calendar: Calendar,
    dies: Vec<Die>,
    buses: Vec<Bus>,
    frontend: Frontend,
    timing: Timing,
    die_profile: DieProfile,
    arbitration: Arbitration,
    /// Bytes of a program unit on the bus, OOB included.
    unit_bytes: u32,
}

/// Pages of a read that lie on the row of a step.
#[inline(always)]
fn pages_of_step(command: &CommandState, geometry: &Geometry, step: u32) -> Range<u32> {
    let end = command.first_page + command.page_count;
    if command.steps.total == 1 {
        return command.first_page..end;
    }
    let planes = u32::from(geometry.planes_per_die);
    let row = command.first_row + step;
    (row * planes).max(command.first_page)..((row + 1) * planes).min(end)
}

/// Bytes of a read's next row that cross the bus.
#[inline(always)]
fn row_bytes(command: &CommandState, geometry: &Geometry) -> u32 {
    if command.steps.total == 1 {
        return command.row_bytes;
    }
    let pages = pages_of_step(command, geometry, command.steps.transferred);
    let oob = if command.oob.is_some() { (pages.end - pages.start) * geometry.oob_size_bytes } else { 0 };
    if command.kind == Kind::ReadOob {
        return oob;
    }
    let per_page = geometry.ius_per_page();
    let start = (pages.start * per_page).max(command.first_iu);
    let end = (pages.end * per_page).min(command.first_iu + command.iu_count);
    (end - start) * IU_SIZE_BYTES as u32 + oob
}

impl Engine {
    /// With nothing under way.
    pub(crate) fn new(profile: &Profile, nand: Nand, is_synced: bool) -> Engine {
        let geometry = &profile.geometry;
        let unit_pages = nand.cells.unit_pages();
        let (dies, channels) = (geometry.dies(), u32::from(geometry.channels));
        Engine {
            nand,
            commands: Commands::default(),
            done: Vec::new(),
            syncs: is_synced.then(Box::default),
            statistics: vec![DieStatistics::default(); dies as usize],
            calendar: Calendar::new((dies + channels + FRONTEND_TIMERS + 1) as usize),
            dies: (0..dies).map(|die| Die::new(die / (dies / channels))).collect(),
            buses: (0..channels).map(|channel| Bus::new(dies + channel)).collect(),
            frontend: Frontend::default(),
            timing: Timing::new(profile),
            die_profile: profile.die.clone(),
            arbitration: profile.bus.arbitration,
            unit_bytes: unit_pages * (geometry.page_size_bytes + geometry.oob_size_bytes),
        }
    }

    /// Everything under way is gone; what the cells hold and what was counted stays.
    pub(crate) fn forget_commands(&mut self) {
        if let Some(syncs) = &mut self.syncs {
            syncs.clear();
        }
        self.commands.clear();
        self.done.clear();
        let (dies, channels) = (self.dies.len() as u32, self.buses.len() as u32);
        self.calendar = Calendar::new((dies + channels + FRONTEND_TIMERS + 1) as usize);
        self.dies = (0..dies).map(|die| Die::new(die / (dies / channels))).collect();
        self.buses = (0..channels).map(|channel| Bus::new(dies + channel)).collect();
        self.frontend = Frontend::default();
    }

    /// Takes over a channel of another part, as it is.
    pub(crate) fn take_from(&mut self, other: &mut Engine, channel: u16) {
        self.nand.take_from(&mut other.nand, channel);
        let dies = usize::from(self.nand.geometry.dies_per_channel);
        for die in usize::from(channel) * dies..(usize::from(channel) + 1) * dies {
            assert!(
                self.dies[die].commands == 0 && other.dies[die].commands == 0,
                "I-E6: a channel changes hands at rest"
            );
            self.statistics[die] = std::mem::take(&mut other.statistics[die]);
        }
    }

    /// Not a server of the front end: when the power goes.
    fn cut_timer(&self) -> u32 {
        (self.dies.len() + self.buses.len()) as u32 + FRONTEND_TIMERS
    }

    /// The power goes at that time, and not when it was to go before.
    pub(crate) fn schedule_cut(&mut self, time: Time) {
        let timer = self.cut_timer();
        self.calendar.cancel(timer);
        self.calendar.schedule(timer, time);
    }

    /// How many dies there are.
    pub(crate) fn dies(&self) -> usize {
        self.dies.len()
    }

    /// Time the bus of a channel was in use, in nanoseconds.
    pub(crate) fn bus_busy_ns(&self, channel: u16) -> u64 {
        self.buses[usize::from(channel)].busy_ns()
    }

    /// Whether no command is under way or waits for somebody to take its answer.
    pub(crate) fn is_idle(&self) -> bool {
        let busy = |die: &Die| die.array != Array::Idle || die.input != Input::Empty || die.has_queue();
        let waits = self.syncs.as_ref().is_some_and(|syncs| !syncs.is_idle());
        !waits && self.done.is_empty() && !self.dies.iter().any(busy)
    }

    /// Whether a sync should begin.
    #[inline]
    pub(crate) fn wants_sync(&self) -> bool {
        self.syncs.as_ref().is_some_and(|syncs| syncs.wants_sync(self.nand.has_discarded()))
    }

    /// A sync begins, if one should; gives its number.
    pub(crate) fn begin_sync(&mut self) -> Option<u64> {
        if !self.wants_sync() {
            return None;
        }
        self.syncs.as_mut().map(|syncs| syncs.begin())
    }

    /// A sync ended. Gives commands that waited for that, in order.
    pub(crate) fn end_sync(&mut self, number: u64, worked: bool) -> impl Iterator<Item = Command> + use<> {
        let ended = match &mut self.syncs {
            Some(syncs) => syncs.end(number, worked, &self.nand.geometry, &mut self.done),
            None => None,
        };
        if worked && ended.is_some() {
            self.nand.end_sync();
        }
        ended.into_iter().flatten()
    }

    /// The answer that was just given waits for a sync.
    #[inline(never)]
    fn hold(&mut self, block: u64, kind: Kind) {
        let address = self.nand.address(block);
        let syncs = self.syncs.as_mut().expect("only devices that are synced hold answers");
        syncs.hold((block, address), kind, &mut self.done);
    }

    /// Puts a command on its way.
    #[inline(always)]
    pub(crate) fn start(&mut self, index: u32, now: u64) {
        if self.timing.controller_ns == 0 && !self.timing.has_link() {
            self.enter_die(index, now);
        } else {
            self.enter_frontend(index, now);
        }
    }

    /// The front end, the commands in it, and what it takes time by.
    fn frontend(&mut self) -> (&mut Frontend, &Commands, Clock<'_>) {
        let first_timer = (self.dies.len() + self.buses.len()) as u32;
        let Engine { frontend, commands, timing, calendar, .. } = self;
        (frontend, commands, Clock { timing, calendar, first_timer })
    }

    #[inline(never)]
    fn enter_frontend(&mut self, index: u32, now: u64) {
        let (frontend, commands, mut clock) = self.frontend();
        let next = frontend.enter(index, commands, &mut clock, now);
        self.go_to(next, now);
    }

    #[inline(never)]
    fn server_done(&mut self, server: u32, now: u64) {
        let (frontend, commands, mut clock) = self.frontend();
        let next = frontend.server_done(server, commands, &mut clock, now);
        self.go_to(next, now);
    }

    #[inline(never)]
    fn leave(&mut self, index: u32, now: u64) {
        let (frontend, commands, mut clock) = self.frontend();
        let next = frontend.leave(index, commands, &mut clock, now);
        self.go_to(next, now);
    }

    fn go_to(&mut self, next: Next, now: u64) {
        match next {
            Next::Waits => {}
            Next::Die(index) => self.enter_die(index, now),
            Next::Answer(index) => self.complete(index),
        }
    }

    /// The die is done with a command.
    #[inline(always)]
    fn finish(&mut self, index: u32, now: u64) {
        self.leave_die(self.commands.get(index).die, now);
        if self.timing.has_link() || self.timing.latency_ns > 0 {
            self.leave(index, now);
        } else {
            self.complete(index);
        }
    }

    /// A die has something to send or to receive.
    #[inline(always)]
    fn request_bus(&mut self, number: u32, is_input: bool, now: u64) {
        let die = &mut self.dies[number as usize];
        let bus = &mut self.buses[die.channel as usize];
        bus.request(&self.timing, &mut self.calendar, die, number, is_input, now);
    }

    /// A transfer, or a burst of it, is over.
    #[inline(always)]
    fn bus_done(&mut self, channel: u32, now: u64) {
        let bus = &mut self.buses[channel as usize];
        let over = bus.end(&mut self.dies, now);
        let mut answered = NONE;
        if over.output != NONE {
            let command = self.commands.get_mut(over.output);
            command.steps.transferred += 1;
            if command.steps.transferred == command.steps.total {
                answered = over.output;
            }
        }
        bus.begin_next(self.arbitration, &self.timing, &mut self.calendar, &mut self.dies, now);
        if answered != NONE {
            self.finish(answered, now);
        }
        if over.is_whole {
            self.issue(over.die, now);
        }
    }

    #[inline(always)]
    fn enter_die(&mut self, index: u32, now: u64) {
        let number = self.commands.get(index).die;
        let die = &mut self.dies[number as usize];
        if die.commands == 0 {
            die.busy_since = now;
        }
        die.commands += 1;
        die.push(&mut self.commands, index);
        // A die that reads takes nothing else; the rest is for `issue` to tell.
        if !matches!(die.array, Array::Reading(_)) {
            self.issue(number, now);
        }
    }

    /// A die is done with one of its commands.
    #[inline(always)]
    fn leave_die(&mut self, number: u32, now: u64) {
        let die = &mut self.dies[number as usize];
        die.commands -= 1;
        if die.commands == 0 {
            self.statistics[number as usize].busy_ns += now - die.busy_since;
        }
    }

    /// Time with commands of dies that have some now, in nanoseconds: it is not in their statistics yet.
    pub(crate) fn busy_so_far_ns(&self, now: Time) -> u64 {
        let busy = self.dies.iter().filter(|die| die.commands > 0);
        busy.map(|die| now.0.saturating_sub(die.busy_since)).sum()
    }

    /// Handles everything that happens until `now`, or until the power goes: then it says when.
    #[inline(never)]
    pub(crate) fn handle_events(&mut self, now: Time) -> Option<Time> {
        while let Some((time, timer)) = self.calendar.pop(now) {
            let (dies, buses) = (self.dies.len() as u32, self.buses.len() as u32);
            if timer < dies {
                self.array_done(timer, time.0);
            } else if timer < dies + buses {
                self.bus_done(timer - dies, time.0);
            } else if timer < dies + buses + FRONTEND_TIMERS {
                self.server_done(timer - dies - buses, time.0);
            } else {
                return Some(time);
            }
        }
        None
    }

    /// Lets a die begin whatever it can.
    #[inline(never)]
    fn issue(&mut self, number: u32, now: u64) {
        loop {
            let die = &mut self.dies[number as usize];
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
                    let kind = self.commands.get(front).kind;
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
                        && self.commands.get(running).kind == Kind::Program;
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
                        if !self.commands.get(front).kind.is_read() {
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
        let die = &mut self.dies[number as usize];
        if die.suspended.is_none()
            && let Input::Ready(index) = die.input
        {
            die.input = Input::Empty;
            self.start_program(number, index, now);
            return true;
        }
        let reads = front != NONE && self.commands.get(front).kind.is_read();
        if !reads || self.must_wait(number, front) {
            return self.resume(number, now);
        }
        // Reads come before what stands still, but not before a unit that needs the registers.
        let die = &self.dies[number as usize];
        let registers = (die.output == NONE || self.die_profile.cache_read) && die.suspended.is_some();
        registers && !self.begin_read(number, front, now)
    }

    /// A read must not overtake what was submitted before it to the same erase block.
    fn must_wait(&self, number: u32, read: u32) -> bool {
        let die = &self.dies[number as usize];
        let same_block = |other: u32| self.commands.get(other).block == self.commands.get(read).block;
        die.suspended.is_some_and(|(other, _)| same_block(other))
            || matches!(die.input, Input::Arriving(other) | Input::Ready(other) if same_block(other))
            || matches!(die.array, Array::Writing(other) if same_block(other))
    }

    /// A row leaves for the register in front of the bus.
    #[inline(always)]
    fn put_out(&mut self, number: u32, index: u32, now: u64) {
        let bytes = row_bytes(self.commands.get(index), &self.nand.geometry);
        let die = &mut self.dies[number as usize];
        die.output = index;
        die.outward = Port { bytes, is_fresh: true };
        self.request_bus(number, false, now);
    }

    /// The array reads the next row for the command at the front. `false` if the command is answered at once.
    #[inline(always)]
    fn begin_read(&mut self, number: u32, index: u32, now: u64) -> bool {
        let die = &mut self.dies[number as usize];
        let command = self.commands.get_mut(index);
        let step = die.issued;
        if step == 0 {
            let count = &mut self.statistics[number as usize];
            count.reads += 1;
            count.read_bytes += u64::from(command.iu_count) * IU_SIZE_BYTES as u64;
            if self.nand.begin(command, Time(now)) {
                self.cut_within(index, now);
            }
        }
        let die = &mut self.dies[number as usize];
        let command = self.commands.get(index);
        if matches!(command.outcome.error, Some(MediaError::DieOffline { .. })) && step == 0 {
            die.pop(command);
            self.leave_die(number, now);
            self.complete(index);
            return false;
        }
        if step + 1 == command.steps.total {
            die.pop(command);
        } else {
            die.issued += 1;
        }
        let pages = pages_of_step(command, &self.nand.geometry, step);
        let (sensed, from, to) = die.sensed;
        let held = self.die_profile.page_register_reuse
            && sensed == command.block
            && from <= pages.start
            && pages.end <= to
            && command.outcome.retries == 0;
        let (time, sensed) = if held {
            (0, die.sensed)
        } else {
            let count = pages.end - pages.start;
            let at_once = self.timing.planes_at_once;
            let rounds = if count <= at_once { 1 } else { u64::from(count.div_ceil(at_once)) };
            let one = self.timing.read_row_ns(&self.nand.cells, command.first_row + step);
            (one * rounds * (1 + u64::from(command.outcome.retries)), (command.block, pages.start, pages.end))
        };
        die.occupy(Array::Reading(index), sensed, now);
        let time = self.nand.stretched(time, number, Time(now));
        self.calendar.schedule(number, Time(now + time));
        true
    }

    /// The command at the front, no read, begins, or a program goes on with its next unit.
    #[inline(never)]
    fn begin_write(&mut self, number: u32, index: u32, now: u64) {
        let step = self.dies[number as usize].issued;
        if step == 0 {
            let command = self.commands.get_mut(index);
            let count = &mut self.statistics[number as usize];
            if command.kind == Kind::Erase {
                count.erases += 1;
            } else {
                count.program_units += u64::from(command.steps.total);
                count.programmed_bytes +=
                    u64::from(command.page_count) * u64::from(self.nand.geometry.page_size_bytes);
            }
            if self.nand.begin(command, Time(now)) {
                self.cut_within(index, now);
            }
            let command = self.commands.get(index);
            if matches!(command.outcome.error, Some(MediaError::DieOffline { .. })) {
                self.dies[number as usize].pop(command);
                self.leave_die(number, now);
                return self.complete(index);
            }
        }
        let command = self.commands.get(index);
        let die = &mut self.dies[number as usize];
        if command.kind == Kind::Copy || step + 1 == command.steps.total {
            die.pop(command);
        } else {
            die.issued += 1;
        }
        match command.kind {
            Kind::Program => {
                die.input = Input::Arriving(index);
                die.inward = Port { bytes: self.unit_bytes, is_fresh: true };
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
        let longest = match self.commands.get(index).kind {
            Kind::Read | Kind::ReadOob => self.timing.longest_read_ns(),
            Kind::Program | Kind::Copy => {
                self.timing.bus_ns(self.unit_bytes) + self.timing.longest_program_ns()
            }
            Kind::Erase => self.timing.erase_ns,
        };
        let after = self.nand.failures.random.random_range(0..longest.max(1));
        self.schedule_cut(Time(now + after));
    }

    fn start_program(&mut self, number: u32, index: u32, now: u64) {
        let command = self.commands.get(index);
        let row = self.row_of(command.first_page + command.steps.done * self.nand.cells.unit_pages());
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let time = self.timing.program_unit_ns(&self.nand.cells, row, planes);
        self.write(number, index, time, now);
    }

    fn start_copy(&mut self, number: u32, index: u32, now: u64) {
        let (command, payload) = (self.commands.get(index), self.commands.payload(index));
        let unit_pages = self.nand.cells.unit_pages();
        let planes = u32::from(self.nand.geometry.planes_per_die);
        let from = self.row_of(payload.source_page + command.steps.done * unit_pages);
        let to = self.row_of(command.first_page + command.steps.done * unit_pages);
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
        self.dies[number as usize].occupy(Array::Writing(index), NOTHING_SENSED, now);
        let time = self.nand.stretched(time, number, Time(now));
        self.calendar.schedule(number, Time(now + time));
    }

    /// Brings a program, erase or copy to a stand for the read at the front of the queue, if the die can.
    fn suspend(&mut self, number: u32, now: u64) {
        let profile = &self.die_profile;
        let die = &mut self.dies[number as usize];
        let Array::Writing(running) = die.array else { return };
        if die.suspended.is_some() || die.suspensions >= profile.suspend_limit {
            return;
        }
        let ends = self.calendar.time_of(number).expect("a busy array has an end").0;
        if ends <= now + self.timing.suspend_ns {
            return;
        }
        self.calendar.cancel(number);
        let die = &mut self.dies[number as usize];
        die.suspensions += 1;
        die.suspended = Some((running, ends - now));
        die.array = Array::Suspending;
        self.statistics[number as usize].array_busy_ns += now - die.array_since;
        die.array_since = now;
        self.calendar.schedule(number, Time(now + self.timing.suspend_ns));
    }

    /// Goes on with what was suspended when no read waits. Returns whether it did.
    fn resume(&mut self, number: u32, now: u64) -> bool {
        let die = &mut self.dies[number as usize];
        if die.array != Array::Idle {
            return false;
        }
        let Some((index, rest)) = die.suspended.take() else { return false };
        die.array = Array::Writing(index);
        die.array_since = now;
        self.calendar.schedule(number, Time(now + rest + self.timing.resume_ns));
        true
    }

    #[inline(always)]
    fn array_done(&mut self, number: u32, now: u64) {
        let die = &mut self.dies[number as usize];
        self.statistics[number as usize].array_busy_ns += now - die.array_since;
        match die.array {
            Array::Reading(index) => {
                let command = self.commands.get_mut(index);
                command.steps.done += 1;
                if command.steps.done == command.steps.total {
                    self.nand.read(command);
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
                    self.dies[number as usize].array_since = now;
                    return self.calendar.schedule(number, Time(now) + ROOM_LOOK);
                }
                self.dies[number as usize].array = Array::Idle;
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
        let command = self.commands.get(index);
        let (kind, block) = (command.kind, command.block);
        kind == Kind::Erase && self.nand.awaits_room(block, Time(now))
    }

    /// The effect of a program, erase or copy that the array is done with, for this unit. `false` if a copy goes on.
    #[inline(never)]
    fn unit_done(&mut self, index: u32, now: u64) -> bool {
        let (command, payload) = self.commands.loaded(index);
        let step = command.steps.done;
        command.steps.done += 1;
        match command.kind {
            Kind::Program => self.nand.program_unit(command, payload, step, Time(now)),
            Kind::Erase => self.nand.erase(command),
            Kind::Copy => self.nand.copy_unit(command, payload, step, Time(now)),
            Kind::Read | Kind::ReadOob => unreachable!("reads change nothing"),
        }
        if command.steps.done == command.steps.total {
            self.finish(index, now);
            return true;
        }
        command.kind != Kind::Copy
    }

    /// Takes the command whose unit, copy or erase is at work in a die's array, if any, for a power cut.
    pub(crate) fn at_work(&self, number: usize) -> impl Iterator<Item = u32> + use<> {
        let die = &self.dies[number];
        let busy = match die.array {
            Array::Writing(index) => Some(index),
            _ => None,
        };
        busy.into_iter().chain(die.suspended.map(|(index, _)| index))
    }

    /// A command's answer is ready.
    #[inline(always)]
    pub(crate) fn complete(&mut self, index: u32) {
        let command = self.commands.get_mut(index);
        let (token, destination, oob) = (command.token, command.destination.take(), command.oob.take());
        let (kind, block, retries) = (command.kind, command.block, command.outcome.retries);
        // Told apart before the completion is put together: merged on the stack, a result is read back wider than it was
        // written, and waits there until every store before it, those of the copied content too, has left the processor.
        if command.outcome.error.is_none() {
            self.done.push(Completion { token, result: Ok(()), destination, oob, retries });
        } else {
            self.complete_failed(index, destination, oob);
        }
        if kind.is_read() {
            self.commands.release(index);
        } else {
            self.nand.blocks[block as usize].pending -= 1;
            self.commands.unload(index);
            if self.syncs.is_some() {
                self.hold(block, kind);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn complete_failed(&mut self, index: u32, destination: Option<BufferMut>, oob: Option<BufferMut>) {
        let command = self.commands.get(index);
        let (token, retries) = (command.token, command.outcome.retries);
        let error = command.outcome.error.expect("only failed commands come here");
        self.done.push(Completion { token, result: Err(error), destination, oob, retries });
    }
}
