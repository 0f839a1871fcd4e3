//! A shard of the stack that begins again by itself.

use super::*;
use diecut_shard::drive::WorkOutline;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

impl Stack {
    /// Lets a shard work. `false`: it failed a check on purpose, and is looked at no more. Any other panic goes on.
    pub(super) fn works(&mut self, at: u16, actions: &mut Vec<Action>) -> bool {
        let (now, shards) = (self.now, self.shards.as_mut().expect("shards stand except while they restart"));
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| shards.work(at, now, actions))) else {
            return true;
        };
        let is_planted = payload.downcast_ref::<String>().is_some_and(|said| said.starts_with("planted: "));
        if !is_planted {
            resume_unwind(payload);
        }
        let outline = shards.all().nth(at.into()).map(Drive::at_work).expect("it is among them");
        if at > 0 && self.plan.applications.is_empty() {
            self.begin_again(at, &outline, actions);
            return true;
        }
        actions.clear();
        self.failures.of_all(&outline);
        false
    }

    /// A shard that is not the first one failed: it begins again alone, and its hosts are hung up on.
    pub(super) fn begin_again(&mut self, at: u16, outline: &WorkOutline, actions: &mut Vec<Action>) {
        let (now, shards) = (self.now, self.shards.as_mut().expect("shards stand except while they restart"));
        let failed = shards.all().nth(at.into()).expect("it is among them");
        let (status, work) = (failed.pool().migration_status(), failed.pool().copy_work());
        self.exchanged_before.moved_blocks += status.moved_blocks;
        self.exchanged_before.finished += status.finished;
        self.exchanged_before.intended_erases += work.intended_erases;
        self.exchanged_before.intended_inside_erases += work.intended_inside_erases;
        let cleaned =
            failed.status().vssds.iter().map(|vssd| vssd.traffic.programmed_cleaner_bytes).sum::<u64>();
        self.cleaned_before_ius += cleaned / 4096;
        let (geometry, count) = (*failed.media().geometry(), shards.count());
        let mut configuration = config(&self.plan, &mut [], 0, count);
        adapt_pool(&mut configuration.pool, &self.plan, &geometry);
        if self.is_besieged {
            make_tight(&mut configuration.target);
        }
        let told = actions.drain(..).filter_map(|action| match action {
            Action::Tell { to, message } => Some((to, message)),
            _ => None,
        });
        shards.begin_again(at, told.collect(), &configuration, now);
        self.door.hang_up(at);
        self.failures.of_one(outline);
    }
}
