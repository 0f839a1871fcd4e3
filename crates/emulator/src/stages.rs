//! What lies between the submitter and the dies: controller, host link and fixed latency, each with a queue of its own.

use crate::device::Device;
use crate::slot::Kind;
use diecut_media::Completion;
use diecut_units::{BufferMut, IU_SIZE_BYTES, Time};
use std::collections::VecDeque;

/// Servers that take one command after the other.
#[derive(Default)]
pub(crate) struct Stages {
    controller: VecDeque<u32>,
    link_in: VecDeque<u32>,
    link_out: VecDeque<u32>,
    /// Commands that are done, with the time when that is told.
    delayed: VecDeque<(u64, u32)>,
}

/// Timers of the stages.
pub(crate) const STAGE_TIMERS: u32 = 5;
const CONTROLLER: u32 = 0;
const LINK_IN: u32 = 1;
const LINK_OUT: u32 = 2;
const DELAY: u32 = 3;
/// Not a stage: when the power goes.
pub(crate) const CUT: u32 = 4;

impl Device {
    /// Puts a command on its way.
    #[inline(always)]
    pub(crate) fn start(&mut self, index: u32, now: u64) {
        if self.timing.controller_ns == 0 && !self.timing.has_link() {
            self.enter_die(index, now);
        } else {
            self.enter_controller(index, now);
        }
    }

    fn schedule_stage(&mut self, stage: u32, time: u64) {
        let timer = self.engine.stage_timer(stage);
        self.engine.calendar.schedule(timer, Time(time));
    }

    fn enter_controller(&mut self, index: u32, now: u64) {
        if self.timing.controller_ns == 0 {
            return self.enter_link(index, now);
        }
        self.stages.controller.push_back(index);
        if self.stages.controller.len() == 1 {
            self.schedule_stage(CONTROLLER, now + self.timing.controller_ns);
        }
    }

    /// Bytes that a command carries over the host link to the device.
    fn carried_in(&self, index: u32) -> u64 {
        let parts = &self.slots.freight(index).parts;
        parts.iter().map(|part| u64::from(part.iu_count())).sum::<u64>() * IU_SIZE_BYTES as u64
    }

    fn enter_link(&mut self, index: u32, now: u64) {
        if !self.timing.has_link() {
            return self.enter_die(index, now);
        }
        let link_ns = self.timing.link_ns(self.carried_in(index));
        // What carries nothing still keeps its place: commands to one erase block take effect in order.
        if link_ns > 0 || !self.stages.link_in.is_empty() {
            self.stages.link_in.push_back(index);
            if self.stages.link_in.len() == 1 {
                self.schedule_stage(LINK_IN, now + link_ns);
            }
        } else {
            self.enter_die(index, now);
        }
    }

    #[inline(never)]
    pub(crate) fn stage_done(&mut self, stage: u32, now: u64) {
        match stage {
            CONTROLLER => {
                let index = self.stages.controller.pop_front().expect("the controller works on one");
                if !self.stages.controller.is_empty() {
                    self.schedule_stage(CONTROLLER, now + self.timing.controller_ns);
                }
                self.enter_link(index, now);
            }
            LINK_IN => {
                let index = self.stages.link_in.pop_front().expect("the link carries one");
                if let Some(&next) = self.stages.link_in.front() {
                    self.schedule_stage(LINK_IN, now + self.timing.link_ns(self.carried_in(next)));
                }
                self.enter_die(index, now);
            }
            LINK_OUT => {
                let index = self.stages.link_out.pop_front().expect("the link carries one");
                if let Some(&next) = self.stages.link_out.front() {
                    let bytes = u64::from(self.slots.get(next).iu_count) * IU_SIZE_BYTES as u64;
                    self.schedule_stage(LINK_OUT, now + self.timing.link_ns(bytes));
                }
                self.delay(index, now);
            }
            DELAY => {
                let (_, index) = self.stages.delayed.pop_front().expect("somebody waits");
                if let Some(&(time, _)) = self.stages.delayed.front() {
                    self.schedule_stage(DELAY, time);
                }
                self.complete(index);
            }
            _ => self.power_cut(Time(now)),
        }
    }

    /// The die is done with a command.
    #[inline(always)]
    pub(crate) fn finish(&mut self, index: u32, now: u64) {
        self.leave_die(self.slots.get(index).die, now);
        if self.timing.has_link() || self.timing.latency_ns > 0 {
            self.leave(index, now);
        } else {
            self.complete(index);
        }
    }

    #[inline(never)]
    fn leave(&mut self, index: u32, now: u64) {
        let slot = self.slots.get(index);
        let link_ns = self.timing.link_ns(u64::from(slot.iu_count) * IU_SIZE_BYTES as u64);
        if slot.kind == Kind::Read && link_ns > 0 {
            self.stages.link_out.push_back(index);
            if self.stages.link_out.len() == 1 {
                self.schedule_stage(LINK_OUT, now + link_ns);
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
        self.stages.delayed.push_back((time, index));
        if self.stages.delayed.len() == 1 {
            self.schedule_stage(DELAY, time);
        }
    }

    /// A command's answer is ready.
    #[inline(always)]
    pub(crate) fn complete(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        let (token, destination, oob) = (slot.token, slot.destination.take(), slot.oob.take());
        let (kind, block) = (slot.kind, slot.block);
        // Told apart before the completion is put together: merged on the stack, a result is read back wider than it was
        // written, and waits there until every store before it, those of the copied content too, has left the processor.
        if slot.error.is_none() {
            self.done.push(Completion { token, result: Ok(()), destination, oob });
        } else {
            self.complete_failed(index, destination, oob);
        }
        if kind.is_read() {
            self.slots.release(index);
        } else {
            self.nand.blocks[block as usize].pending -= 1;
            self.slots.unload(index);
            if self.syncs.is_some() {
                self.hold(block, kind);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn complete_failed(&mut self, index: u32, destination: Option<BufferMut>, oob: Option<BufferMut>) {
        let slot = self.slots.get(index);
        let error = slot.error.expect("only failed commands come here");
        self.done.push(Completion { token: slot.token, result: Err(error), destination, oob });
    }
}
