//! Threads beside those of shards, which do what devices ask for, and what a thread does that fails where nobody catches it.

use diecut_devices::RoomWorker;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Threads that do what devices ask for. They end with their device.
pub(crate) type Helpers = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Ends the process when a shard's thread panics where nobody catches it: its state is only whole on the media.
pub(crate) struct AbortOnPanic;
impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "a shard failed an inner check; the server stops now and recovers when it is started again"
            );
            std::process::abort();
        }
    }
}

/// Has this thread come after the shards' where cores are few and the server was started with a real-time policy (`chrt`), which threads
/// inherit: nobody waits for it but tenants that open erase blocks.
fn give_way() {
    let normal = libc::sched_param { sched_priority: 0 };
    // SAFETY: of the calling thread, and a valid parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &normal) } != 0 {
        tracing::debug!("the policy of a thread cannot be set: {}", std::io::Error::last_os_error());
    }
}

/// Starts the thread that takes room on a file system and gives it back.
pub(crate) fn start_rooms(rooms: RoomWorker) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("room".to_owned()).spawn(move || {
        let _abort = AbortOnPanic;
        give_way();
        rooms.run();
    })
}
