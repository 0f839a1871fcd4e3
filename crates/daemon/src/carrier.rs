//! Drives that no server serves, carried out by whoever has nothing else to wait for.

use crate::drive::Usage;
use crate::held::Held;
use diecut_devices::{Device, DriveMedium};
use diecut_media::{Intent, IntentDone};
use diecut_reactor::{DriveRing, RemoteClient};
use diecut_shard::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{Action, Drive, Event};
use diecut_shard::{DeviceConfig, DeviceIndex, Seat, Shard, ShardConfig};
use diecut_units::Time;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What a drive is carried out on, for who has nothing else to wait for.
pub trait Carrier {
    fn push(&mut self, intent: Intent);
    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;
    /// Waits until something happens, where something is under way.
    fn wait(&mut self) -> Result<(), String>;
    fn take_done(&mut self, done: &mut Vec<IntentDone>);
}

impl Carrier for DriveRing {
    fn push(&mut self, intent: Intent) {
        DriveRing::push(self, intent);
    }

    fn is_idle(&self) -> bool {
        DriveRing::is_idle(self)
    }

    fn wait(&mut self) -> Result<(), String> {
        if DriveRing::is_idle(self) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.submit_and_wait();
        Ok(())
    }

    fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        DriveRing::take_done(self, done);
    }
}

impl Carrier for &RefCell<RemoteClient> {
    fn push(&mut self, intent: Intent) {
        self.borrow_mut().push(intent);
    }

    fn is_idle(&self) -> bool {
        self.borrow().is_idle()
    }

    fn wait(&mut self) -> Result<(), String> {
        if self.borrow().is_idle() {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        self.borrow_mut().wait().map_err(|error| error.to_string())
    }

    fn take_done(&mut self, done: &mut Vec<IntentDone>) {
        self.borrow_mut().take_done(done);
    }
}

/// A drive as [`start_and_stop`] takes it: who carries out what it asks for, its medium, and its settings.
pub type Carried<'a> = (Box<dyn Carrier + 'a>, DriveMedium, DeviceConfig);

/// A drive of a pool that there is.
pub fn carried(one: &Held) -> Result<Carried<'_>, String> {
    let medium = one.drive.medium(one.label.shape, Usage::BRIEF).map_err(|error| error.to_string())?;
    let Usage { volatile_cache, .. } = Usage::BRIEF;
    let config = DeviceConfig { name: String::new(), pool: one.pool(), volatile_cache, makes_pool: false };
    Ok((one.drive.carrier()?, medium, config))
}

/// A vSSD, and the devices that it lies on.
pub struct Lying {
    pub vssd: String,
    pub devices: Vec<Uuid>,
}

/// What a server does that is started on drives and stopped: pools are made where that is told, and all have the catalog. Gives the vSSDs that there
/// are.
pub fn start_and_stop(drives: Vec<Carried<'_>>, config: ShardConfig) -> Result<Vec<Lying>, String> {
    #[expect(clippy::disallowed_methods, reason = "a drive takes its time")]
    let start = Instant::now();
    let now = || Time(start.elapsed().as_nanos() as u64);
    let (mut carriers, mut devices) = (Vec::new(), Vec::new());
    for (carrier, medium, config) in drives {
        carriers.push(carrier);
        devices.push((Device::Drive(medium), config));
    }
    let mut shard = Shard::over(devices, config, Seat::ONLY, now());
    let (mut actions, mut done, mut is_stopping) = (Vec::new(), Vec::new(), false);
    let mut found = Vec::new();
    loop {
        shard.work(now(), &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(device, intent) => carriers[usize::from(device.0)].push(intent),
                Action::Answer { response, .. } => {
                    return match *response {
                        ControlResponse::Refused(error) => Err(error.message),
                        _ => Ok(found),
                    };
                }
                _ => {}
            }
        }
        if let Some(failure) = shard.failure() {
            return Err(failure.to_owned());
        }
        if shard.is_ready() && !is_stopping {
            is_stopping = true;
            let vssds = shard.state().vssds.values();
            found.extend(vssds.map(|record| Lying {
                vssd: record.name.clone(),
                devices: record.parts.iter().map(|part| part.device).collect(),
            }));
            let (token, request) = (ControlToken(1), Box::new(ControlRequest::Shutdown));
            shard.handle(Event::Control { token, request }, now(), &mut actions);
            continue;
        }
        // One of several that is at work: the others are looked at afterwards, soon enough.
        let at = carriers.iter().position(|carrier| !carrier.is_idle()).unwrap_or(0);
        carriers[at].wait()?;
        for (device, carrier) in (0..).map(DeviceIndex).zip(&mut carriers) {
            carrier.take_done(&mut done);
            done.drain(..).for_each(|done| shard.handle(Event::IoDone(device, done), now(), &mut actions));
        }
    }
}
