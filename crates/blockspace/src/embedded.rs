//! An emulated device in this process, for tests of applications: the same rings, the same client, the same checks,
//! and a thread of its own in the server's place. Virtual time: operations take as long as they take to compute.

use crate::client::{AttachError, Client};
use crate::ring::{Layout, ServerEnd};
use crate::session::{Answer, Session};
use crate::system;
use crate::wire::Shape;
use diecut_devices::{Device, Fault, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::{BufferPool, Time};
use diecut_vssd::{Pool, PoolConfig, VssdId};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A device with one vSSD over all of it, whose content lives as long as this does, over many attachments.
pub struct Embedded {
    clients: Option<Sender<Newcomer>>,
    thread: Option<JoinHandle<()>>,
    layout: Layout,
    shape: Shape,
}

struct Newcomer {
    memory: OwnedFd,
    doorbell: OwnedFd,
    socket: UnixStream,
    ending: Ending,
}

/// How an attachment ends, if the application does not end it: after so many operations of the device (programs, reads,
/// erases), its first one counted as 0. The client sees a server that is gone; the next attach finds what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By the application alone.
    Never,
    /// The power goes while that operation is at work: programs are torn, and what they put at risk with them.
    PowerCut(u64),
    /// The server dies before that operation; the device keeps its power.
    ServerDeath(u64),
}

impl Embedded {
    /// Over a device of a named profile (`tiny`, `slc`, ...) in memory.
    ///
    /// # Errors
    /// If there is no such profile, or the system has no thread or memory for it.
    ///
    /// # Panics
    /// If the device of a profile that comes with diecut cannot hold a vSSD.
    pub fn new(profile: &str) -> Result<Embedded, AttachError> {
        Embedded::with_seed(profile, Options::default().seed)
    }

    /// As [`Embedded::new`]; the seed says which blocks are bad, and what a power cut leaves.
    ///
    /// # Errors
    /// As [`Embedded::new`].
    ///
    /// # Panics
    /// As [`Embedded::new`].
    pub fn with_seed(profile: &str, seed: u64) -> Result<Embedded, AttachError> {
        Embedded::of_profile(&Profile::named(profile).map_err(std::io::Error::other)?, seed)
    }

    /// The same of a profile that need not come with diecut.
    ///
    /// # Errors
    /// If the system has no thread or memory for it.
    ///
    /// # Panics
    /// If the device cannot hold a vSSD.
    pub fn of_profile(profile: &Profile, seed: u64) -> Result<Embedded, AttachError> {
        let options = Options { seed, ..Options::default() };
        let mut device = Device::create(profile, options).map_err(std::io::Error::other)?;
        let mut config = PoolConfig::suited_to(device.geometry());
        config.levels.channels = vec![device.geometry().channels.into()];
        let mut pool = open(&device, &config);
        let vssd = pool.alloc_vssd(Isolation::Channel, 0, 1).expect("an empty device has room");
        let space = pool.space(vssd, &mut device, Time::ZERO);
        let shape = Session::shape_of(&space);
        let layout = Session::layout_for(&space);
        let (clients, newcomers) = channel();
        let thread = std::thread::Builder::new()
            .name("embedded".to_owned())
            .spawn(move || serve(device, pool, &config, vssd, layout, &newcomers))?;
        Ok(Embedded { clients: Some(clients), thread: Some(thread), layout, shape })
    }

    /// Attaches, when the client before is gone.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub fn attach(&self) -> Result<Client, AttachError> {
        self.attach_until(Ending::Never)
    }

    /// Attaches until something happens.
    ///
    /// # Errors
    /// As [`Embedded::attach`].
    pub fn attach_until(&self, ending: Ending) -> Result<Client, AttachError> {
        let memory = system::create_memory(self.layout.size_bytes())?;
        let doorbell = system::create_doorbell()?;
        let (own, other) = UnixStream::pair()?;
        let words = system::map_memory(&memory, self.layout.size_bytes())?;
        // Says whose memory it is before the thread comes to it.
        drop(ServerEnd::new(words.clone(), self.layout));
        let newcomer = Newcomer { memory, doorbell: doorbell.try_clone()?, socket: other, ending };
        let clients = self.clients.as_ref().expect("taken by drop only");
        clients.send(newcomer).map_err(|_| AttachError::NoServer)?;
        Client::over(words, self.layout, self.shape, doorbell, Some(own))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.clients.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it, and its clients saw it go.
            let _ = thread.join();
        }
    }
}

/// With its block states in the protected memory of the device, where it has some.
fn open(device: &Device, config: &PoolConfig) -> Pool {
    let Some(memory) = device.protected_memory() else { return Pool::create(device, config.clone()) };
    let size = Pool::block_states_size_bytes(device.geometry(), config);
    Pool::open(device, config.clone(), memory.region(0..size)).expect("what a pool wrote, a pool opens")
}

fn serve(
    mut device: Device,
    mut pool: Pool,
    config: &PoolConfig,
    vssd: VssdId,
    layout: Layout,
    newcomers: &Receiver<Newcomer>,
) {
    let mut now = Time::ZERO;
    let (mut completions, mut ready, mut answers) = (Vec::new(), Vec::new(), Vec::<Answer>::new());
    let mut buffers = BufferPool::new();
    for newcomer in newcomers {
        let Ok(words) = system::map_memory(&newcomer.memory, layout.size_bytes()) else { continue };
        let mut end = ServerEnd::new(words, layout);
        let mut session = Session::new(&pool.space(vssd, &mut device, now), layout.slot_size_bytes);
        let mut is_there = true;
        let mut dies_at = u64::MAX;
        match newcomer.ending {
            Ending::Never => {}
            Ending::PowerCut(nth) => {
                let nth = device.emulated().operations() + nth;
                device.emulated_mut().add_fault(Fault::PowerCutAtOperation { nth });
            }
            Ending::ServerDeath(nth) => dies_at = device.emulated().operations() + nth,
        }
        while is_there || !session.is_idle() {
            while is_there {
                match end.take(&mut buffers) {
                    Ok(Some(command)) => {
                        let mut space = pool.space(vssd, &mut device, now);
                        session.submit(command, &mut space, &mut answers);
                    }
                    Ok(None) => break,
                    Err(_) => is_there = false,
                }
            }
            let is_dead = device.emulated().operations() >= dies_at;
            if is_dead {
                device.emulated_mut().process_death(now);
            } else {
                device.advance(now, &mut completions);
            }
            if is_dead || !device.emulated().is_powered() {
                if !device.emulated().is_powered() {
                    device.emulated_mut().power_on();
                }
                completions.clear();
                ready.clear();
                answers.clear();
                // The part of protected memory is given back before it is taken again.
                drop(std::mem::replace(&mut pool, Pool::create(&device, config.clone())));
                pool = open(&device, config);
                break;
            }
            for completion in completions.drain(..) {
                pool.complete(completion, now, &mut device, &mut ready);
            }
            pool.work(now, &mut device);
            pool.take_ready(&mut ready);
            for (_, completion) in ready.drain(..) {
                session.complete(completion, &mut answers);
            }
            let answered = !answers.is_empty();
            for answer in answers.drain(..) {
                end.put(&answer);
            }
            if answered && end.is_waited_for() {
                system::futex_wake(end.futex());
            }
            let next = device.next_event().min(pool.deadline());
            if next != Time::NEVER {
                now = now.max(next);
            } else if !answered && !pool.has_ready() {
                end.announce_sleep();
                if !end.is_ready() && is_there {
                    system::wait_for(&newcomer.doorbell, &newcomer.socket, LOOK_AGAIN_AFTER);
                    system::quiet(&newcomer.doorbell);
                    is_there = !system::has_peer_gone(&newcomer.socket, Duration::ZERO);
                }
                end.announce_awake();
            }
        }
        // Whoever still waits looks at once whether the server is there.
        drop(newcomer.socket);
        system::futex_wake(end.futex());
    }
}
