//! What may be: commands of several hosts are under way at once, and nobody knows in which order the target took them. So there are several
//! tables that agree with all answers so far. None left: what was answered cannot be.

use super::table::{Answer, Request, Table};
use std::collections::{BTreeMap, BTreeSet};

/// A command: the host that sent it, one at a time.
type Sender = u8;

/// A table, and what commands that were carried out and not answered will be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    table: Table,
    answers: BTreeMap<Sender, Answer>,
    /// Tables since the last change that was answered: the power may go back to any of them. The last one is `table`.
    since: Vec<Table>,
    /// Which of them commands made that were carried out and not answered.
    made: BTreeMap<Sender, usize>,
}

impl World {
    fn of(table: Table) -> World {
        World { since: vec![table.clone()], table, answers: BTreeMap::new(), made: BTreeMap::new() }
    }

    fn carry_out(&mut self, sender: Sender, request: Request) {
        let answer = self.table.run(sender, request);
        if self.since.last() != Some(&self.table) {
            self.since.push(self.table.clone());
        }
        self.answers.insert(sender, answer);
        self.made.insert(sender, self.since.len() - 1);
    }

    /// A command is answered. What it changed is durable, and so is all before it.
    fn answered(&mut self, sender: Sender, changes: bool) {
        self.answers.remove(&sender);
        let at = self.made.remove(&sender).expect("it was carried out");
        if changes {
            self.since.drain(..at);
            self.made.values_mut().for_each(|made| *made = made.saturating_sub(at));
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Worlds {
    all: Vec<World>,
    under_way: BTreeMap<Sender, Request>,
}

impl Worlds {
    /// Nothing has happened.
    pub fn new() -> Worlds {
        Worlds { all: vec![World::of(Table::default())], under_way: BTreeMap::new() }
    }

    /// How many tables may be.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// One of the tables that may be: hosts choose by it what to ask.
    pub fn any(&self) -> &Table {
        &self.all.first().expect("one may be").table
    }

    /// A host asks.
    pub fn asked(&mut self, sender: Sender, request: Request) {
        let before = self.under_way.insert(sender, request);
        assert!(before.is_none(), "a host asks one thing at a time");
    }

    /// Lets commands under way be carried out in all orders, also in part.
    fn spread(&mut self) {
        let mut at = 0;
        while at < self.all.len() {
            let world = self.all[at].clone();
            for (sender, request) in &self.under_way {
                if world.answers.contains_key(sender) {
                    continue;
                }
                let mut next = world.clone();
                next.carry_out(*sender, *request);
                if !self.all.contains(&next) {
                    self.all.push(next);
                }
            }
            at += 1;
        }
    }

    /// A host is answered.
    ///
    /// # Errors
    /// No order of commands leads to this answer.
    pub fn answered(&mut self, sender: Sender, answer: &Answer) -> Result<(), String> {
        let before = self.all.clone();
        self.spread();
        let request = self.under_way.remove(&sender).expect("it asked");
        self.all.retain(|world| world.answers.get(&sender) == Some(answer));
        let only_looks = matches!(request, Request::Read | Request::Write | Request::Report);
        let changes = !only_looks && *answer == Answer::Success;
        self.all.iter_mut().for_each(|world| world.answered(sender, changes));
        let mut kept: Vec<World> = Vec::new();
        for world in self.all.drain(..) {
            if !kept.contains(&world) {
                kept.push(world);
            }
        }
        self.all = kept;
        if self.all.is_empty() {
            return Err(format!(
                "host {sender}: {request:?} is answered {answer:?}; what may be: {before:?}"
            ));
        }
        Ok(())
    }

    /// The power went, or the process: commands under way were carried out or not, also those of which others saw the effect, and
    /// what does not persist is gone.
    pub fn lost_power(&mut self) {
        self.spread();
        self.under_way.clear();
        let tables = self.all.drain(..).flat_map(|world| world.since);
        let tables: BTreeSet<Table> = tables.map(Table::after_power_loss).collect();
        self.all = tables.into_iter().map(World::of).collect();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn answers_say_in_which_order_commands_were_taken() {
        let mut worlds = Worlds::new();
        for (sender, key) in [(1, 7), (2, 8)] {
            worlds.asked(sender, Request::Register { key, cptpl: 3 });
            worlds.answered(sender, &Answer::Success).unwrap();
        }
        worlds.asked(1, Request::Acquire { current: 7, kind: 1 });
        worlds.asked(2, Request::Acquire { current: 8, kind: 1 });
        let mut other = worlds.clone();
        worlds.answered(2, &Answer::Success).unwrap();
        worlds.answered(1, &Answer::Conflict).unwrap();
        assert_eq!((worlds.count(), worlds.any().holders.clone()), (1, vec![2]));
        other.lost_power();
        assert_eq!(other.count(), 3, "nobody, or one of both");
        worlds.asked(1, Request::Write);
        assert!(worlds.answered(1, &Answer::Success).is_err());
    }
}
