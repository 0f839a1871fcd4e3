//! Answers of stores to jobs.

use diecut_units::token;
use diecut_volume::contract::VolumeToken;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(crate) struct Answers {
    /// Whether it worked, by token.
    came: BTreeMap<u64, bool>,
    last_token: u64,
}

impl Answers {
    /// Whether a store answers a job with this token; else a namespace.
    pub fn is_for_job(token: u64) -> bool {
        token & token::volume::CONTROL != 0
    }

    /// A token for a command of a job.
    pub fn token(&mut self) -> VolumeToken {
        self.last_token += 1;
        VolumeToken(token::volume::CONTROL | self.last_token)
    }

    /// A store answered.
    ///
    /// # Panics
    /// If it did so before, or was not asked.
    pub fn put(&mut self, token: u64, worked: bool) {
        let number = token & !token::volume::CONTROL;
        assert!(
            (1..=self.last_token).contains(&number),
            "I-S10: an answer of a store to a job was asked for"
        );
        let before = self.came.insert(token, worked);
        assert!(before.is_none(), "I-S10: a store answers once");
    }

    /// Takes an answer, if it came.
    ///
    /// # Panics
    /// If nobody was asked.
    pub fn take(&mut self, token: u64) -> Option<bool> {
        let number = token & !token::volume::CONTROL;
        assert!((1..=self.last_token).contains(&number), "I-S10: an answer is awaited of who was asked");
        self.came.remove(&token)
    }
}
