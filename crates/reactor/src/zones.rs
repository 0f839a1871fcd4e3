//! Zones of a drive are reset and finished by ioctls, which wait, and which no ring takes: a thread beside the ring does so, and wakes it.

use diecut_devices::local::{finish_zone, reset_zones};
use diecut_media::{IntentDone, IntentError, IntentToken};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What is done to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneWork {
    Reset,
    Finish,
}

struct Wanted {
    token: IntentToken,
    work: ZoneWork,
    offset: u64,
    len: u64,
}

/// See the module. One thread: drives work on zones one at a time, or hardly faster.
pub(crate) struct ZoneThread {
    wanted: Option<Sender<Wanted>>,
    done: Receiver<IntentDone>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ZoneThread {
    /// Starts it for a drive.
    pub fn start(file: &File) -> io::Result<ZoneThread> {
        let file = file.try_clone()?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (wanted, to_do) = channel::<Wanted>();
        let (answers, done) = channel();
        let rings = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("zones".to_owned()).spawn(move || {
            for Wanted { token, work, offset, len } in to_do {
                let result = carry_out(&file, work, offset, len);
                // Whoever does not listen any more needs no answer.
                let _ = answers.send(IntentDone { token, buffer: None, result });
                let _ = rustix::io::write(&*rings, &1u64.to_ne_bytes());
            }
        })?;
        Ok(ZoneThread { wanted: Some(wanted), done, bell, thread: Some(thread) })
    }

    /// Has something done.
    pub fn push(&self, token: IntentToken, work: ZoneWork, offset: u64, len: u64) {
        let wanted = self.wanted.as_ref().expect("it is there until it is dropped");
        wanted.send(Wanted { token, work, offset, len }).expect("the thread lives as long as this end");
    }

    /// Something that is done.
    pub fn take_done(&self) -> Option<IntentDone> {
        self.done.try_recv().ok()
    }

    /// A number of 8 bytes can be read there while something is done.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

impl Drop for ZoneThread {
    /// It ends what it has.
    fn drop(&mut self) {
        drop(self.wanted.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry_out(file: &File, work: ZoneWork, offset: u64, len: u64) -> Result<(), IntentError> {
    let (done, what) = match work {
        ZoneWork::Reset => (reset_zones(file, offset, len), "reset"),
        ZoneWork::Finish => (finish_zone(file, offset, len), "finished"),
    };
    let Err(error) = done else { return Ok(()) };
    tracing::warn!("the zone at {offset} cannot be {what}: {error}");
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN) => Err(IntentError::Gone),
        _ => Err(IntentError::Failed),
    }
}
