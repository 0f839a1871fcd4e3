//! What is the matter with each drive of a plan: which are missing in this life of the server, which went, do not answer, lie or lied. What that
//! means for who lies on them, and that nobody else notices, is asked here.

use super::Runner;
use crate::administration::{tenant_name, volume_name};
use crate::plan::{DriveFault, DriveHarm, FaultKind, Lane, Plan, PlannedFault};
use crate::tag::VolumeNumber;
use diecut_shard::control::ControlRequest;
use diecut_units::{Span, Time, mark};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Default)]
pub(super) struct Presence {
    /// Starts of the server so far.
    lives: usize,
    /// From the next start on all are there.
    is_calm: bool,
    /// Not given to the server that runs.
    missing: BTreeSet<u16>,
    /// Went since it started.
    gone: BTreeSet<u16>,
    /// Did not answer since it started: from and until when.
    away: BTreeMap<u16, (Time, Time)>,
    /// A flush fails or failed since it started.
    flush_fails: BTreeSet<u16>,
    /// They lie, or what lies on them rots.
    lying: BTreeSet<u16>,
    /// They lied, and since then the server started again: what it finds may be older than was promised.
    doubted: BTreeSet<u16>,
}

/// What may become of a request of an administrator, by what it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// Nothing that is not there.
    Whole,
    /// Something on a drive that is missing: it stays as it is.
    Missing,
    /// Something on a drive that went: it is made, or not.
    Gone,
}

impl Presence {
    pub fn of(plan: &Plan) -> Presence {
        let there = plan.drives_at(0);
        assert_eq!(there.len(), plan.system.drives.len(), "a pool is made of all its drives");
        Presence { lives: 1, ..Presence::default() }
    }

    /// The server starts again: the drives that it is given, in this order.
    pub fn begin_life(&mut self, plan: &Plan) -> Vec<u16> {
        let mut order = plan.drives_at(self.lives);
        let all = 0..plan.system.drives.len() as u16;
        if self.is_calm {
            order.extend(all.clone().filter(|drive| !plan.drives_at(self.lives).contains(drive)));
        }
        self.lives += 1;
        self.missing = all.filter(|drive| !order.contains(drive)).collect();
        if !self.missing.is_empty() {
            mark!("run: a drive is missing at a start");
        }
        if !order.is_sorted() {
            mark!("run: drives changed places");
        }
        self.gone.clear();
        self.away.clear();
        self.flush_fails.clear();
        self.doubted.append(&mut self.lying.clone());
        order
    }

    /// Whether a fault can strike: a drive goes, or does not answer, where all others are there, or the pool would not have enough of them.
    fn strikes(&mut self, harm: DriveHarm, now: Time) -> bool {
        let others = self.missing.iter().chain(&self.gone).chain(self.away.keys()).next();
        match harm.fault {
            DriveFault::Goes { .. } | DriveFault::Away { .. } if self.is_calm || others.is_some() => {
                return false;
            }
            DriveFault::Goes { .. } => {
                mark!("run: a drive goes");
                self.gone.insert(harm.drive);
            }
            DriveFault::Away { span_ns } => {
                mark!("run: a drive does not answer for a while");
                self.away.insert(harm.drive, (now, now + Span(span_ns)));
            }
            DriveFault::FlushFails => drop(self.flush_fails.insert(harm.drive)),
            // The mark of a flush is in the head behind it: until that is written, a chunk that rots is one that a cut tore.
            DriveFault::Lies(_) | DriveFault::Rots { .. } => drop(self.lying.insert(harm.drive)),
            _ => {}
        }
        true
    }

    fn any(plan: &Plan, lane: Lane, of: &BTreeSet<u16>) -> bool {
        !of.is_empty() && plan.drives_of(lane).iter().any(|drive| of.contains(drive))
    }

    /// Whether what a lane lies on was missing when the server started.
    pub fn is_missing(&self, plan: &Plan, lane: Lane) -> bool {
        Presence::any(plan, lane, &self.missing)
    }

    /// Whether something that a lane lies on went since then.
    pub fn is_gone(&self, plan: &Plan, lane: Lane) -> bool {
        Presence::any(plan, lane, &self.gone)
    }

    /// Whether what is read of a lane may be older than was promised.
    pub fn is_in_doubt(&self, plan: &Plan, lane: Lane) -> bool {
        Presence::any(plan, lane, &self.doubted)
    }

    /// The same of any lane.
    pub fn is_any_in_doubt(&self) -> bool {
        !self.doubted.is_empty()
    }

    fn absences<'a>(&'a self, plan: &Plan, lane: Lane) -> impl Iterator<Item = (Time, Time)> + use<'a> {
        let own = if self.away.is_empty() { Vec::new() } else { plan.drives_of(lane) };
        self.away.iter().filter(move |(drive, _)| own.contains(drive)).map(|(_, span)| *span)
    }

    /// Whether something that a lane lies on did not answer for a while after that was asked.
    pub fn was_away(&self, plan: &Plan, lane: Lane, issued: Time) -> bool {
        self.absences(plan, lane).any(|(_, until)| issued <= until)
    }

    /// Whether it did not answer when that was asked, and does not yet.
    pub fn is_away(&self, plan: &Plan, lane: Lane, issued: Time, now: Time) -> bool {
        self.absences(plan, lane).any(|(since, until)| since < issued && now < until)
    }

    /// Whether some drive did not answer for a while since the server started.
    pub fn was_any_away(&self) -> bool {
        !self.away.is_empty()
    }

    /// Until when something does not answer, at most.
    fn away_until(&self) -> Time {
        self.away.values().map(|(_, until)| *until).fold(Time::ZERO, Time::max)
    }
}

impl Runner<'_> {
    /// Something goes wrong with a drive, if it can.
    pub(super) fn harm_drive(&mut self, harm: DriveHarm) {
        if self.presence.strikes(harm, self.now) {
            self.system.harm_drive(harm, self.now);
        }
    }

    /// Whether what a lane asks for may fail because of what the plan does to what it lies on.
    pub(super) fn may_lose_data(&self, lane: Lane) -> bool {
        let own = self.plan.drives_of(lane);
        let loses = |fault: &PlannedFault| match fault.what {
            FaultKind::Drive(harm) => {
                let strikes = match harm.fault {
                    DriveFault::FlushFails => self.presence.flush_fails.contains(&harm.drive),
                    fault => fault.loses_data(),
                };
                strikes && own.contains(&harm.drive)
            }
            what => what.loses_data(),
        };
        self.presence.is_gone(self.plan, lane) || self.plan.faults.iter().any(loses)
    }

    /// Whether the drives that a volume lies on are there.
    pub(super) fn is_there(&self, volume: VolumeNumber) -> bool {
        !self.presence.is_missing(self.plan, self.plan.owner(volume))
    }

    /// What a request touches that is not there.
    pub(super) fn touched(&self, request: &ControlRequest) -> Touched {
        let of_vssd = |name: &String| {
            (0..self.plan.tenants.len() as u8).map(Lane).find(|lane| tenant_name(*lane) == *name)
        };
        let of_volume = |name: &String| {
            let mut volumes = self.plan.volumes().map(|volume| volume.number);
            volumes.find(|number| volume_name(*number) == *name).map(|number| self.plan.owner(number))
        };
        let lane = match request {
            ControlRequest::CreateVssd(spec) => of_vssd(&spec.name),
            ControlRequest::DeleteVssd(vssd) | ControlRequest::RepairVssd { vssd, .. } => of_vssd(vssd),
            ControlRequest::CreateVolume(spec) => of_vssd(&spec.vssd),
            ControlRequest::DeleteVolume(volume) | ControlRequest::AttachNamespace { volume, .. } => {
                of_volume(volume)
            }
            _ => None,
        };
        match lane {
            Some(lane) if self.presence.is_missing(self.plan, lane) => Touched::Missing,
            Some(lane) if self.presence.is_gone(self.plan, lane) => Touched::Gone,
            _ => Touched::Whole,
        }
    }

    /// The storm is over: all drives are there again, after a start if one was not.
    pub(super) fn gather_drives(&mut self) {
        self.presence.is_calm = true;
        let until = self.presence.away_until();
        if until > self.now && !self.stop {
            self.until = Some(until);
            self.drive();
            self.until = None;
        }
        let Presence { missing, gone, .. } = &self.presence;
        if self.stop || missing.is_empty() && gone.is_empty() {
            return;
        }
        self.crash(crate::oracle::Crash::ProcessDeath);
        self.drive();
    }
}
