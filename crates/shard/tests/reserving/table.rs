//! What the specification says of reservations (Base 2.0 sections 7.5 to 7.8 and 8.19), written down a second time: a table of registrants
//! and a holder. It shares nothing with the target.

use diecut_nvme::reservation::{PREEMPT, PREEMPT_AND_ABORT};
use std::collections::BTreeMap;

/// What a host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Request {
    /// Key, and CPTPL as the command has it.
    Register {
        key: u64,
        cptpl: u8,
    },
    Unregister {
        current: u64,
        ignores_key: bool,
    },
    Replace {
        current: u64,
        key: u64,
        ignores_key: bool,
    },
    Acquire {
        current: u64,
        kind: u8,
    },
    /// RACQA is one of the two that preempt.
    Preempt {
        action: u8,
        current: u64,
        key: u64,
        kind: u8,
    },
    Release {
        current: u64,
        kind: u8,
    },
    Clear {
        current: u64,
    },
    /// Feature 83h.
    SetPersistence(bool),
    Read,
    Write,
    Report,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Success,
    Conflict,
    Invalid,
    Reported(Table),
}

/// See the module. A report shows all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// Keys by host.
    pub keys: BTreeMap<u8, u64>,
    /// RTYPE, 0 where nobody holds it.
    pub kind: u8,
    /// Hosts that hold it.
    pub holders: Vec<u8>,
    pub generation: u32,
    pub persists: bool,
}

/// Every registrant holds it.
fn is_of_all(kind: u8) -> bool {
    kind == 5 || kind == 6
}

impl Table {
    fn hold(&mut self, kind: u8, host: u8) {
        self.kind = kind;
        self.holders = vec![host];
        self.follow();
    }

    /// Who holds it follows who is registered.
    fn follow(&mut self) {
        if is_of_all(self.kind) {
            self.holders = self.keys.keys().copied().collect();
        } else {
            self.holders.retain(|holder| self.keys.contains_key(holder));
        }
        if self.holders.is_empty() {
            self.kind = 0;
        }
    }

    /// What is left when the power comes back.
    pub fn after_power_loss(self) -> Table {
        if self.persists { self } else { Table::default() }
    }

    /// Whether a host may write, else read.
    fn allows(&self, host: u8, is_write: bool) -> bool {
        let is_registered = self.keys.contains_key(&host);
        let is_holder = self.holders.contains(&host);
        match (self.kind, is_write) {
            (0, _) | (1 | 3 | 5, false) => true,
            (1, true) | (2, _) => is_holder,
            _ => is_registered,
        }
    }

    /// Carries a request out.
    pub fn run(&mut self, host: u8, request: Request) -> Answer {
        let own = self.keys.get(&host).copied();
        let is_right = |current: u64, ignores_key: bool| own.is_some_and(|own| ignores_key || own == current);
        match request {
            Request::Read | Request::Write => {
                return if self.allows(host, request == Request::Write) {
                    Answer::Success
                } else {
                    Answer::Conflict
                };
            }
            Request::Report => return Answer::Reported(self.clone()),
            Request::SetPersistence(persists) => {
                self.persists = persists;
                return Answer::Success;
            }
            Request::Register { key, .. } | Request::Replace { key, .. } if key == 0 => {
                return Answer::Invalid;
            }
            Request::Register { key, .. } if own.is_some_and(|own| own != key) => return Answer::Conflict,
            Request::Register { key, cptpl } => {
                self.keys.insert(host, key);
                self.persists = if cptpl == 0 { self.persists } else { cptpl == 3 };
                self.generation += 1;
            }
            Request::Unregister { current, ignores_key } if !is_right(current, ignores_key) => {
                return Answer::Conflict;
            }
            Request::Replace { current, ignores_key, .. } if !ignores_key && own != Some(current) => {
                return Answer::Conflict;
            }
            Request::Unregister { .. } => {
                self.keys.remove(&host);
                self.generation += 1;
            }
            Request::Replace { key, .. } => {
                self.keys.insert(host, key);
                self.generation += 1;
            }
            Request::Acquire { current, .. }
            | Request::Preempt { current, .. }
            | Request::Release { current, .. }
            | Request::Clear { current }
                if !is_right(current, false) =>
            {
                return Answer::Conflict;
            }
            Request::Acquire { kind, .. } if self.kind == 0 => self.hold(kind, host),
            Request::Acquire { kind, .. } => {
                let is_same = self.kind == kind && self.holders.contains(&host);
                return if is_same { Answer::Success } else { Answer::Conflict };
            }
            Request::Preempt { action, key, kind, .. } => {
                assert!(matches!(action, PREEMPT | PREEMPT_AND_ABORT), "it preempts");
                return self.preempt(host, key, kind);
            }
            Request::Release { kind, .. } => {
                if !self.holders.contains(&host) {
                    return Answer::Success;
                }
                if self.kind != kind {
                    return Answer::Invalid;
                }
                (self.kind, self.holders) = (0, Vec::new());
            }
            Request::Clear { .. } => {
                self.keys.clear();
                self.generation += 1;
            }
        }
        self.follow();
        Answer::Success
    }

    fn preempt(&mut self, host: u8, key: u64, kind: u8) -> Answer {
        let takes_all = is_of_all(self.kind) && key == 0;
        if key == 0 && !takes_all {
            return Answer::Invalid;
        }
        if !takes_all && !self.keys.values().any(|other| *other == key) {
            return Answer::Conflict;
        }
        let is_holders = self.kind != 0
            && !is_of_all(self.kind)
            && self.holders.iter().any(|holder| self.keys[holder] == key);
        self.keys.retain(|other, of| *other == host || !(takes_all || *of == key));
        self.generation += 1;
        if takes_all || is_holders {
            self.hold(kind, host);
        }
        self.follow();
        Answer::Success
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the oracle is right by itself. Method: the rows of the specification's tables that are easy to get wrong.
    #[test]
    fn rows_of_the_specification() {
        let mut one = Table::default();
        assert_eq!(one.run(1, Request::Register { key: 7, cptpl: 3 }), Answer::Success);
        assert_eq!(one.run(2, Request::Register { key: 8, cptpl: 0 }), Answer::Success);
        assert_eq!(one.run(1, Request::Acquire { current: 7, kind: 3 }), Answer::Success);
        assert_eq!(one.run(2, Request::Write), Answer::Success, "registrants write");
        assert_eq!(
            (one.run(3, Request::Read), one.run(3, Request::Write)),
            (Answer::Success, Answer::Conflict)
        );
        let preempt = Request::Preempt { action: PREEMPT, current: 8, key: 7, kind: 2 };
        assert_eq!(one.run(2, preempt), Answer::Success);
        assert_eq!((one.kind, one.holders.clone(), one.keys.len(), one.generation), (2, vec![2], 1, 3));
        assert_eq!(one.run(1, Request::Read), Answer::Conflict);
        assert_eq!(one.clone().after_power_loss(), one);
        one.run(3, Request::SetPersistence(false));
        assert_eq!(one.clone().after_power_loss(), Table::default());
        assert_eq!(one.run(2, Request::Unregister { current: 8, ignores_key: false }), Answer::Success);
        assert_eq!((one.kind, one.keys.len(), one.generation), (0, 0, 4));
        one.run(1, Request::Register { key: 7, cptpl: 0 });
        one.run(2, Request::Register { key: 8, cptpl: 0 });
        one.run(1, Request::Acquire { current: 7, kind: 6 });
        assert_eq!(
            one.run(2, Request::Preempt { action: PREEMPT, current: 8, key: 0, kind: 1 }),
            Answer::Success
        );
        assert_eq!((one.kind, one.holders.clone()), (1, vec![2]), "all were preempted");
    }
}
