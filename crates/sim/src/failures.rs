//! Shards of the stack that fail a check on purpose.

use diecut_shard::drive::WorkOutline;
use diecut_units::mark;

/// See the module.
#[derive(Default)]
pub(crate) struct Failures {
    /// All shards begin anew.
    is_over: bool,
    /// Shards that failed and went on alone, in this life of the server and in those before.
    alone: [u64; 2],
}

fn check(outline: &WorkOutline) {
    let knows = outline.vssd.is_some() && !outline.commands.is_empty();
    assert!(knows, "who fails at a command knows whose it is");
}

impl Failures {
    /// One failed, and goes on alone.
    pub fn of_one(&mut self, outline: &WorkOutline) {
        mark!("stack: shard begins again alone");
        check(outline);
        self.alone[0] += 1;
    }

    /// One failed, and all begin anew.
    pub fn of_all(&mut self, outline: &WorkOutline) {
        check(outline);
        self.is_over = true;
    }

    /// One that failed cannot go on alone.
    pub fn all_begin_anew(&mut self) {
        mark!("stack: all shards begin anew");
        self.is_over = true;
    }

    /// Whether all shards begin anew.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next life of the server.
    pub fn begin_life(&mut self) {
        self.is_over = false;
        self.alone = [0, self.alone()];
    }

    /// Whether a shard lost what it had counted since the server began.
    pub fn has_forgotten(&self) -> bool {
        self.alone[0] > 0
    }

    /// Shards that went on alone.
    pub fn alone(&self) -> u64 {
        self.alone.iter().sum()
    }
}
