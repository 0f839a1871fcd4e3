//! The states against a model that was written from the tables of the specification alone: every command in every state that can be
//! reached, with zones and limits so small that this is all of them.

use super::ZoneState::*;
use super::*;
use std::collections::{HashMap, HashSet};

/// The model keeps a list of zones, and who was opened when; everything else is counted anew for each question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    /// State, write pointer, random write area, extension.
    zones: Vec<(ZoneState, u32, bool, bool)>,
    /// Implicitly open zones in the order in which they were opened.
    order: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Write(u32, u32, u32),
    Append(u32, u32),
    Commit(u32, u32),
    One(u32, ZoneAction),
    All(ZoneAction),
    Extend(u32),
    Wear(u32),
}

type Outcome = Result<Option<u32>, ZoneRefusal>;

impl Model {
    fn count(&self, states: &[ZoneState]) -> u32 {
        self.zones.iter().filter(|zone| states.contains(&zone.0)).count() as u32
    }

    fn set(&mut self, zone: u32, state: ZoneState) {
        self.order.retain(|other| *other != zone);
        if state == ImplicitlyOpen {
            self.order.push(zone);
        }
        let place = &mut self.zones[zone as usize];
        place.0 = state;
        if matches!(state, Full | ReadOnly | Offline) {
            place.2 = false;
        }
        if state == Empty {
            *place = (Empty, 0, false, false);
        }
    }

    /// Resources for a zone that is to be open (section 2.1.1.4.1: the controller may close implicitly open zones).
    fn resources(&mut self, zone: u32, limits: &ZoneLimits) -> Result<(), ZoneRefusal> {
        let state = self.zones[zone as usize].0;
        if matches!(state, ImplicitlyOpen | ExplicitlyOpen) {
            return Ok(());
        }
        let active = self.count(&[ImplicitlyOpen, ExplicitlyOpen, Closed]);
        if state == Empty && active == limits.active_max {
            return Err(ZoneRefusal::TooManyActive);
        }
        if self.count(&[ImplicitlyOpen, ExplicitlyOpen]) == limits.open_max {
            let Some(first) = self.order.first().copied() else { return Err(ZoneRefusal::TooManyOpen) };
            self.set(first, Closed);
        }
        Ok(())
    }

    fn moved(&mut self, zone: u32, to: u32, limits: &ZoneLimits) {
        self.zones[zone as usize].1 = to;
        if to == limits.capacity_ius {
            self.set(zone, Full);
        }
    }

    fn write(&mut self, zone: u32, first: u32, count: u32, limits: &ZoneLimits) -> Outcome {
        let (state, pointer, random, _) = self.zones[zone as usize];
        match state {
            Full => return Err(ZoneRefusal::Full),
            ReadOnly => return Err(ZoneRefusal::ReadOnly),
            Offline => return Err(ZoneRefusal::Offline),
            _ => {}
        }
        let end = first + count;
        let fits = if random {
            first >= pointer && end <= pointer + 2 * limits.random_ius
        } else {
            first == pointer
        };
        if !fits {
            return Err(ZoneRefusal::InvalidWrite);
        }
        if end > limits.capacity_ius {
            return Err(ZoneRefusal::Boundary);
        }
        self.resources(zone, limits)?;
        if matches!(state, Empty | Closed) {
            self.set(zone, ImplicitlyOpen);
        }
        if !random {
            self.moved(zone, end, limits);
        } else if end > pointer + limits.random_ius {
            let mut to = pointer;
            while end > to + limits.random_ius && to < limits.capacity_ius {
                to += limits.commit_ius;
            }
            self.moved(zone, to, limits);
        }
        Ok(Some(first))
    }

    fn one(&mut self, zone: u32, action: ZoneAction, limits: &ZoneLimits) -> Outcome {
        let (state, pointer, random, _) = self.zones[zone as usize];
        let to = match (action, state) {
            (ZoneAction::Open { random: true }, _)
                if !random && limits.random_ius == 0 && state.is_writable() =>
            {
                return Err(ZoneRefusal::NoRandomArea);
            }
            (ZoneAction::Open { random: true }, ImplicitlyOpen | ExplicitlyOpen | Closed) if !random => {
                return Err(ZoneRefusal::InvalidTransition);
            }
            (ZoneAction::Open { random: wants }, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed) => {
                self.resources(zone, limits)?;
                self.zones[zone as usize].2 |= wants;
                ExplicitlyOpen
            }
            (ZoneAction::Close, ImplicitlyOpen | ExplicitlyOpen | Closed) => Closed,
            (ZoneAction::Finish, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Full,
            (ZoneAction::Reset, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Empty,
            (ZoneAction::Offline, ReadOnly | Offline) => Offline,
            _ => return Err(ZoneRefusal::InvalidTransition),
        };
        if to != state {
            self.set(zone, to);
            if to == Full {
                self.zones[zone as usize].1 = pointer;
            }
        }
        Ok(None)
    }

    fn all(&mut self, action: ZoneAction, limits: &ZoneLimits) -> Outcome {
        let of: &[ZoneState] = match action {
            ZoneAction::Close => &[ImplicitlyOpen, ExplicitlyOpen],
            ZoneAction::Finish => &[ImplicitlyOpen, ExplicitlyOpen, Closed],
            ZoneAction::Open { .. } => &[Closed],
            ZoneAction::Reset => &[ImplicitlyOpen, ExplicitlyOpen, Closed, Full],
            ZoneAction::Offline => &[ReadOnly],
        };
        let before = self.clone();
        for zone in 0..self.zones.len() as u32 {
            if !of.contains(&before.zones[zone as usize].0) {
                continue;
            }
            let action = if matches!(action, ZoneAction::Open { .. }) {
                ZoneAction::Open { random: false }
            } else {
                action
            };
            if let Err(refusal) = self.one(zone, action, limits) {
                *self = before;
                return Err(refusal);
            }
        }
        Ok(None)
    }

    fn run(&mut self, command: Command, limits: &ZoneLimits) -> Outcome {
        match command {
            Command::Write(zone, first, count) => self.write(zone, first, count, limits),
            Command::Append(zone, count) => {
                let (state, pointer, random, _) = self.zones[zone as usize];
                if random && !matches!(state, Full | ReadOnly | Offline) {
                    return Err(ZoneRefusal::InvalidOperation);
                }
                self.write(zone, pointer, count, limits)
            }
            Command::Commit(zone, end) => {
                let (state, pointer, random, _) = self.zones[zone as usize];
                if !random {
                    return Err(ZoneRefusal::InvalidOperation);
                }
                let steps = (1..=limits.random_ius / limits.commit_ius)
                    .map(|step| pointer + step * limits.commit_ius);
                if !steps.filter(|to| *to <= limits.capacity_ius).any(|to| to == end) {
                    return Err(ZoneRefusal::InvalidCommit);
                }
                if !matches!(state, ImplicitlyOpen | ExplicitlyOpen) {
                    return Err(ZoneRefusal::InvalidTransition);
                }
                self.moved(zone, end, limits);
                Ok(None)
            }
            Command::One(zone, action) => self.one(zone, action, limits),
            Command::All(action) => self.all(action, limits),
            Command::Extend(zone) => {
                if self.zones[zone as usize].0 != Empty {
                    return Err(ZoneRefusal::InvalidTransition);
                }
                if self.count(&[ImplicitlyOpen, ExplicitlyOpen, Closed]) == limits.active_max {
                    return Err(ZoneRefusal::TooManyActive);
                }
                self.set(zone, Closed);
                self.zones[zone as usize].3 = true;
                Ok(None)
            }
            Command::Wear(zone) => {
                if !matches!(self.zones[zone as usize].0, ReadOnly | Offline) {
                    self.set(zone, ReadOnly);
                }
                Ok(None)
            }
        }
    }
}

impl ZoneState {
    fn is_writable(self) -> bool {
        matches!(self, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed)
    }
}

fn run(states: &mut ZoneStates, command: Command) -> (Outcome, Vec<Change>) {
    let mut changes = Vec::new();
    let outcome = match command {
        Command::Write(zone, first, count) => {
            states.write(zone, first, count, &mut changes).map(|placed| Some(placed.first_iu))
        }
        Command::Append(zone, count) => {
            states.append(zone, count, &mut changes).map(|placed| Some(placed.first_iu))
        }
        Command::Commit(zone, end) => states.commit(zone, end, &mut changes).map(|()| None),
        Command::One(zone, action) => states.act(zone, action, &mut changes).map(|()| None),
        Command::All(action) => states.act_on_all(action, &mut changes).map(|()| None),
        Command::Extend(zone) => states.extend(zone, &mut changes).map(|()| None),
        Command::Wear(zone) => {
            states.wear_out(zone, &mut changes);
            Ok(None)
        }
    };
    (outcome, changes)
}

fn view(states: &ZoneStates) -> Vec<(ZoneState, u32, bool, bool)> {
    let zones = (0..states.count()).map(|zone| states.zone(zone));
    zones.map(|zone| (zone.state, zone.written_ius, zone.is_random, zone.has_extension)).collect()
}

fn commands(zones: u32, capacity: u32) -> Vec<Command> {
    let actions = [
        ZoneAction::Close,
        ZoneAction::Finish,
        ZoneAction::Open { random: false },
        ZoneAction::Open { random: true },
        ZoneAction::Reset,
        ZoneAction::Offline,
    ];
    let mut commands: Vec<Command> = actions.into_iter().map(Command::All).collect();
    for zone in 0..zones {
        commands.extend(actions.map(|action| Command::One(zone, action)));
        for first in 0..=capacity {
            commands.extend((1..=capacity + 1).map(|count| Command::Write(zone, first, count)));
            commands.push(Command::Commit(zone, first));
        }
        commands.extend((1..=capacity + 1).map(|count| Command::Append(zone, count)));
        commands.extend([Command::Extend(zone), Command::Wear(zone)]);
    }
    commands
}

/// All that can be reached from empty zones is visited; each command in each of these is compared.
fn compare_all(zones: u32, limits: ZoneLimits) -> usize {
    let first = Model { zones: vec![(Empty, 0, false, false); zones as usize], order: Vec::new() };
    let commands = commands(zones, limits.capacity_ius);
    let mut found: HashMap<Model, ZoneStates> =
        HashMap::from([(first.clone(), ZoneStates::new(zones, limits))]);
    let mut seen = HashSet::from([first.clone()]);
    let mut next = vec![first];
    while let Some(model) = next.pop() {
        let here = found.remove(&model).expect("it was reached");
        for &command in &commands {
            let mut states = here.clone();
            let before = view(&states);
            let mut after = model.clone();
            let expected = after.run(command, &limits);
            let (outcome, changes) = run(&mut states, command);
            assert_eq!(outcome, expected, "{command:?} at {model:?}");
            assert_eq!(view(&states), after.zones, "{command:?} at {model:?}");
            if outcome.is_err() {
                assert_eq!((view(&states), changes.len()), (before, 0), "{command:?} refused at {model:?}");
                continue;
            }
            let mut told: Vec<ZoneState> = before.iter().map(|zone| zone.0).collect();
            for change in changes {
                let place = &mut told[change.zone as usize];
                assert_eq!(*place, change.from, "{command:?} at {model:?}");
                *place = change.to;
            }
            let now: Vec<ZoneState> = after.zones.iter().map(|zone| zone.0).collect();
            assert_eq!(told, now, "changes tell what changed: {command:?} at {model:?}");
            let open = after.count(&[ImplicitlyOpen, ExplicitlyOpen]);
            let active = open + after.count(&[Closed]);
            assert_eq!(states.in_use(), [open, active]);
            if seen.insert(after.clone()) {
                found.insert(after.clone(), states);
                next.push(after);
            }
        }
    }
    seen.len()
}

#[test]
fn two_zones_in_all_their_states() {
    let limits = ZoneLimits { capacity_ius: 4, active_max: 2, open_max: 1, random_ius: 2, commit_ius: 1 };
    assert!(compare_all(2, limits) > 500);
    let limits = ZoneLimits { active_max: 1, random_ius: 0, ..limits };
    assert!(compare_all(2, limits) > 100);
    let limits = ZoneLimits { active_max: 2, open_max: 2, random_ius: 2, commit_ius: 2, ..limits };
    assert!(compare_all(2, limits) > 400);
}

#[test]
fn three_zones_compete() {
    let limits = ZoneLimits { capacity_ius: 2, active_max: 2, open_max: 2, random_ius: 0, commit_ius: 1 };
    assert!(compare_all(3, limits) > 500);
    let limits = ZoneLimits { active_max: 3, open_max: 1, ..limits };
    assert!(compare_all(3, limits) > 500);
}
