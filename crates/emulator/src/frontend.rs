//! What lies between the submitter and the dies: controller, host link and fixed latency, each with a queue of its own.

use crate::calendar::Calendar;
use crate::command::{Commands, Kind};
use crate::timing::Timing;
use diecut_units::{IU_SIZE_BYTES, Time};
use std::collections::VecDeque;

/// Servers that take one command after the other.
#[derive(Default)]
pub(crate) struct Frontend {
    controller: VecDeque<u32>,
    link_in: VecDeque<u32>,
    link_out: VecDeque<u32>,
    /// Commands that are done, with the time when that is told.
    delayed: VecDeque<(u64, u32)>,
}

/// Timers of the front end.
pub(crate) const FRONTEND_TIMERS: u32 = 4;
const CONTROLLER: u32 = 0;
const LINK_IN: u32 = 1;
const LINK_OUT: u32 = 2;
const DELAY: u32 = 3;

/// What the front end takes time by.
pub(crate) struct Clock<'a> {
    pub(crate) timing: &'a Timing,
    pub(crate) calendar: &'a mut Calendar,
    /// Timer of the first server in the calendar.
    pub(crate) first_timer: u32,
}

impl Clock<'_> {
    fn schedule(&mut self, server: u32, time: u64) {
        self.calendar.schedule(self.first_timer + server, Time(time));
    }
}

/// Where a command goes next.
pub(crate) enum Next {
    /// It waits for a server.
    Waits,
    /// To its die.
    Die(u32),
    /// Its answer is ready.
    Answer(u32),
}

/// Bytes that a command carries over the host link to the device.
fn carried_in(commands: &Commands, index: u32) -> u64 {
    let parts = &commands.payload(index).parts;
    parts.iter().map(|part| u64::from(part.iu_count())).sum::<u64>() * IU_SIZE_BYTES as u64
}

/// Bytes that a read carries over the host link to the host.
fn carried_out(commands: &Commands, index: u32) -> u64 {
    u64::from(commands.get(index).iu_count) * IU_SIZE_BYTES as u64
}

impl Frontend {
    /// A command comes from the host.
    pub(crate) fn enter(&mut self, index: u32, commands: &Commands, clock: &mut Clock<'_>, now: u64) -> Next {
        if clock.timing.controller_ns == 0 {
            return self.enter_link(index, commands, clock, now);
        }
        self.controller.push_back(index);
        if self.controller.len() == 1 {
            clock.schedule(CONTROLLER, now + clock.timing.controller_ns);
        }
        Next::Waits
    }

    fn enter_link(&mut self, index: u32, commands: &Commands, clock: &mut Clock<'_>, now: u64) -> Next {
        if !clock.timing.has_link() {
            return Next::Die(index);
        }
        let link_ns = clock.timing.link_ns(carried_in(commands, index));
        // What carries nothing still keeps its place: commands to one erase block take effect in order.
        if link_ns == 0 && self.link_in.is_empty() {
            return Next::Die(index);
        }
        self.link_in.push_back(index);
        if self.link_in.len() == 1 {
            clock.schedule(LINK_IN, now + link_ns);
        }
        Next::Waits
    }

    /// A server is done with the command that it has.
    pub(crate) fn server_done(
        &mut self,
        server: u32,
        commands: &Commands,
        clock: &mut Clock<'_>,
        now: u64,
    ) -> Next {
        match server {
            CONTROLLER => {
                let index = self.controller.pop_front().expect("the controller works on one");
                if !self.controller.is_empty() {
                    clock.schedule(CONTROLLER, now + clock.timing.controller_ns);
                }
                self.enter_link(index, commands, clock, now)
            }
            LINK_IN => {
                let index = self.link_in.pop_front().expect("the link carries one");
                if let Some(&next) = self.link_in.front() {
                    clock.schedule(LINK_IN, now + clock.timing.link_ns(carried_in(commands, next)));
                }
                Next::Die(index)
            }
            LINK_OUT => {
                let index = self.link_out.pop_front().expect("the link carries one");
                if let Some(&next) = self.link_out.front() {
                    clock.schedule(LINK_OUT, now + clock.timing.link_ns(carried_out(commands, next)));
                }
                self.delay(index, clock, now)
            }
            DELAY => {
                let (_, index) = self.delayed.pop_front().expect("somebody waits");
                if let Some(&(time, _)) = self.delayed.front() {
                    clock.schedule(DELAY, time);
                }
                Next::Answer(index)
            }
            _ => unreachable!("the front end has {FRONTEND_TIMERS} servers"),
        }
    }

    /// The die is done with a command, which goes back to the host.
    pub(crate) fn leave(&mut self, index: u32, commands: &Commands, clock: &mut Clock<'_>, now: u64) -> Next {
        let link_ns = clock.timing.link_ns(carried_out(commands, index));
        if commands.get(index).kind != Kind::Read || link_ns == 0 {
            return self.delay(index, clock, now);
        }
        self.link_out.push_back(index);
        if self.link_out.len() == 1 {
            clock.schedule(LINK_OUT, now + link_ns);
        }
        Next::Waits
    }

    fn delay(&mut self, index: u32, clock: &mut Clock<'_>, now: u64) -> Next {
        if clock.timing.latency_ns == 0 {
            return Next::Answer(index);
        }
        let time = now + clock.timing.latency_ns;
        self.delayed.push_back((time, index));
        if self.delayed.len() == 1 {
            clock.schedule(DELAY, time);
        }
        Next::Waits
    }
}
