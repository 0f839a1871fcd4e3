//! The devices of a server that runs, as long as it does: which come, and which leave.
//!
//! The shards know what lies on them, the kernel's rings what is asked of them, and the labels which of them make the pool. Here these are changed in
//! an order in which a cut at any moment leaves the old pool or the new one (R13 in `docs/design/one-format.md`).

mod coming;

use crate::convert;
use crate::error::ServeError;
use crate::format;
use crate::health::Watch;
use crate::held::Held;
use crate::http::DeviceFacts;
use crate::remote::Claims;
use coming::Coming;
use diecut_api::object::RemovedDevice;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::setup::Setup;
use diecut_devices::list_without;
use diecut_reactor::ReactorHandle;
use diecut_shard::DeviceIndex;
use diecut_shard::control::{
    ControlError, ControlErrorKind, ControlRequest, ControlResponse, DeviceTurn, DeviceTurning, Status,
    VssdStatus,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use uuid::Uuid;

/// A device of the pool.
pub(crate) struct Member {
    pub index: DeviceIndex,
    pub name: String,
    pub device: Uuid,
    /// Who writes its labels beside the shards.
    pub held: Held,
}

/// What a roster is made with.
pub(crate) struct Found {
    pub members: Vec<Member>,
    /// Indexes that were given to devices.
    pub indexes: u16,
    /// Devices of the pool that are not there.
    pub missing_count: u16,
    /// Hosts flush.
    pub volatile_cache: bool,
    /// Of those that are namespaces of targets.
    pub claims: Claims,
}

struct Inner {
    found: Found,
    /// One that was brought, and has not come to its end.
    coming: Option<Coming>,
    watch: Watch,
}

/// See the module.
pub struct Roster {
    inner: Mutex<Inner>,
    facts: Arc<RwLock<DeviceFacts>>,
    setup: Setup,
    shards: ReactorHandle,
    is_evacuating: AtomicBool,
}

fn problem(kind: ProblemKind, message: impl Into<String>) -> Problem {
    Problem::new(kind, message)
}

/// What a drive, or a label, says.
fn invalid(error: ServeError) -> Problem {
    problem(ProblemKind::Invalid, error.to_string())
}

impl Roster {
    pub(crate) fn new(
        found: Found,
        watch: Watch,
        facts: Arc<RwLock<DeviceFacts>>,
        setup: Setup,
        shards: ReactorHandle,
    ) -> Roster {
        let inner = Mutex::new(Inner { found, coming: None, watch });
        Roster { inner, facts, setup, shards, is_evacuating: AtomicBool::new(false) }
    }

    /// Lets go of all drives.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.found.members.clear();
        drop(std::mem::take(&mut inner.found.claims));
        inner.coming = None;
        inner.watch = Watch::default();
    }

    /// One device comes or leaves at a time.
    fn alone(&self) -> Result<MutexGuard<'_, Inner>, Problem> {
        let busy =
            || problem(ProblemKind::Busy, "a device is coming or leaving; ask again when that is done");
        self.inner.try_lock().map_err(|_| busy())
    }

    fn ask(&self, request: ControlRequest) -> Result<ControlResponse, ControlError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let sent = self.shards.request(request, Box::new(move |response| _ = sender.send(response)));
        let gone =
            || ControlError { kind: ControlErrorKind::Busy, message: "the server is going away".to_owned() };
        match sent.then(|| receiver.recv().ok()).flatten().ok_or_else(gone)? {
            ControlResponse::Refused(error) => Err(error),
            response => Ok(response),
        }
    }

    /// Asks for something that may take long.
    fn ask_at_last(&self, request: ControlRequest) -> Result<ControlResponse, ControlError> {
        self.ask(ControlRequest::Within { patience_ms: 0, request: Box::new(request) })
    }

    fn turn(&self, device: Uuid, turn: DeviceTurn) -> Result<(), ControlError> {
        self.ask(ControlRequest::Device { device, turn }).map(drop)
    }

    /// As [`Roster::turn`], for as long as it takes: what comes next needs it.
    fn turn_at_last(&self, device: Uuid, turn: DeviceTurn) -> Result<(), ControlError> {
        self.ask_at_last(ControlRequest::Device { device, turn }).map(drop)
    }

    fn facts(&self, change: impl FnOnce(&mut DeviceFacts)) {
        change(&mut self.facts.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes a device out of the pool, on which nothing lies. What was cut short goes on where it was.
    ///
    /// # Errors
    /// Names the device and what speaks against it.
    pub(crate) fn remove(&self, named: &str) -> Result<RemovedDevice, Problem> {
        let mut inner = self.alone()?;
        let inner = &mut *inner;
        check_labels(&inner.found, "take one out of it (`diecut device remove DEVICE --from DRIVE...`)")?;
        let Some(at) = inner.found.members.iter().position(|member| is_called(member, named)) else {
            return Err(unknown(named));
        };
        let (device, index) = (inner.found.members[at].device, inner.found.members[at].index);
        self.turn(device, DeviceTurn::Leaves).map_err(convert::problem)?;
        // R13: one after the other, and each on all that stay.
        let list = list_without(&inner.found.members[at].held.label.devices, *device.as_bytes());
        let staying = inner.found.members.iter_mut().enumerate().filter(|(other, _)| *other != at);
        for (_, member) in staying {
            member.held.list_devices(&list).map_err(|error| again(&error, "removed"))?;
        }
        self.turn_at_last(device, DeviceTurn::Went).map_err(convert::problem)?;
        self.shards.take_away(index);
        let Member { name, held, .. } = inner.found.members.remove(at);
        inner.watch.remove(&name);
        self.facts(|facts| _ = facts.places.remove(&name));
        if let Err(error) = held.drive.clear() {
            tracing::warn!("{}", format::named(held.place(), &error));
        }
        inner.found.claims.give_up(index);
        Ok(RemovedDevice { name, device })
    }

    /// Has all vSSDs of a device move to others, one after the other, on a thread of its own. The status says how far that is.
    ///
    /// # Errors
    /// Names the device, and why it cannot be.
    pub(crate) fn evacuate(self: &Arc<Self>, named: &str) -> Result<(), Problem> {
        let inner = self.alone()?;
        let member = inner.found.members.iter().find(|member| is_called(member, named));
        let (device, name) = match member {
            Some(member) => (member.device, member.name.clone()),
            None => return Err(unknown(named)),
        };
        drop(inner);
        if self.is_evacuating.swap(true, Ordering::SeqCst) {
            return Err(problem(
                ProblemKind::Busy,
                "a device is being evacuated: wait for its end (`diecut device list` says how far it is), or call that off (`diecut device \
                 evacuate NAME --cancel`)",
            ));
        }
        let begun = self.turn(device, DeviceTurn::Drains).map_err(convert::problem).and_then(|()| {
            self.facts(|facts| _ = facts.evacuation_errors.remove(&name));
            let roster = Arc::clone(self);
            let thread = std::thread::Builder::new().name("evacuation".to_owned());
            let spawned = thread.spawn(move || roster.empty(device, &name));
            spawned.map(drop).map_err(|error| problem(ProblemKind::Unavailable, error.to_string()))
        });
        if begun.is_err() {
            self.is_evacuating.store(false, Ordering::SeqCst);
        }
        begun
    }

    /// Has what lies on a device stay there, what did not move yet, and gives it new ones again.
    ///
    /// # Errors
    /// Names the device.
    pub(crate) fn call_off(&self, named: &str) -> Result<(), Problem> {
        let inner = self.alone()?;
        let Some(member) = inner.found.members.iter().find(|member| is_called(member, named)) else {
            return Err(unknown(named));
        };
        self.turn_at_last(member.device, DeviceTurn::Stays).map_err(convert::problem)
    }

    /// Until nothing lies on a device, or something cannot move, or it is called off.
    fn empty(&self, device: Uuid, name: &str) {
        while let Ok(ControlResponse::Status(status)) = self.ask(ControlRequest::Status) {
            let lies = |vssd: &&VssdStatus| vssd.spec.device.iter().any(|on| on == name);
            let Some(vssd) = status.vssds.iter().find(lies).map(|vssd| vssd.spec.name.clone()) else {
                tracing::info!(device = name, "nothing lies on the device any more");
                break;
            };
            if !drains(&status, name) {
                tracing::info!(device = name, "the evacuation of the device was called off");
                break;
            }
            match self.ask_at_last(ControlRequest::MoveVssd(vssd.clone())) {
                Ok(_) => tracing::info!(device = name, vssd, "the vSSD moved to other devices"),
                // It was called off meanwhile, and this vSSD stays, as the next look finds.
                Err(_) if matches!(self.ask(ControlRequest::Status), Ok(ControlResponse::Status(now)) if !drains(&now, name)) =>
                    {}
                Err(error) => {
                    tracing::error!(device = name, vssd, "the evacuation of the device ends: {error}");
                    self.facts(|facts| _ = facts.evacuation_errors.insert(name.to_owned(), error.message));
                    let _ = self.turn_at_last(device, DeviceTurn::Stays);
                    break;
                }
            }
        }
        self.is_evacuating.store(false, Ordering::SeqCst);
    }
}

/// Whether what lies on a device is to move to others.
fn drains(status: &Status, name: &str) -> bool {
    status.devices.iter().any(|one| one.name == name && one.turning == Some(DeviceTurning::Drains))
}

fn unknown(named: &str) -> Problem {
    let message = format!("there is no device \"{named}\"; `diecut device list` shows what there is");
    problem(ProblemKind::NotFound, message)
}

fn is_called(member: &Member, named: &str) -> bool {
    let place = member.held.place().to_string();
    member.name == named
        || Uuid::parse_str(named).is_ok_and(|device| device == member.device)
        || place == named
        || std::fs::canonicalize(place).is_ok_and(|place| place == Path::new(named))
}

/// Whether all labels of the pool can be written while it is served.
fn check_labels(found: &Found, offline: &str) -> Result<(), Problem> {
    if found.missing_count > 0 {
        let message = format!(
            "devices of the pool are not there, and each has to learn of the change: start the server with all of them, or stop it and {offline}"
        );
        return Err(problem(ProblemKind::Invalid, message));
    }
    Ok(())
}

/// A label could not be written.
fn again(error: &ServeError, what: &str) -> Problem {
    problem(
        ProblemKind::Media,
        format!("{error}; the device is not {what} yet: the same command goes on where it was"),
    )
}
