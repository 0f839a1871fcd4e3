//! I/O that a device asks for: syncs of a device that writes its file by itself on a thread of its own, everything else on a ring. The
//! shard goes on meanwhile.

use crate::common::Common;
use crate::inbox::Message;
use crate::remote::{Reach, RemoteLine, RemoteTarget};
use crate::ring::{DriveRing, RingFile};
use diecut_devices::{DEVICES_MAX, SyncFile};
use diecut_media::{Intent, IntentDone, IntentError, IntentWork};
use diecut_shard::DeviceIndex;
use diecut_units::Time;
use mio::{Registry, Token};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Streams to targets that devices lie on, two for each, below the three tokens that a thread has besides. They are looked at in each round, too.
pub(crate) const FIRST_REMOTE: usize = usize::MAX - 2 - 2 * REMOTES_MAX;
/// Devices of a server that can lie on targets: all of a pool.
const REMOTES_MAX: usize = DEVICES_MAX;

/// The file or drive on which intents of a device are carried out.
#[derive(Clone, Debug)]
pub enum IoFile {
    /// Of a device that reads and writes it by itself, and asks for syncs only: by a thread for each shard, for a sync is one call that
    /// waits.
    Synced(SyncFile),
    /// Of a device that asks for everything: on an io_uring of each shard.
    Ring(RingFile),
    /// The same of a drive behind a network: by each shard over connections of its own.
    Remote(Arc<RemoteTarget>),
}

/// Who carries out what the devices of a shard ask for, each for one of them.
#[derive(Default)]
pub(crate) struct Ios(Vec<(DeviceIndex, Io)>);

impl Ios {
    /// Starts what devices need. A thread ends when its sender is dropped.
    pub fn start(
        files: &[(DeviceIndex, IoFile)],
        common: &Arc<Common>,
        shard: usize,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> std::io::Result<Ios> {
        let mut started = Vec::with_capacity(files.len());
        for (device, file) in files {
            let remotes = started.iter().filter(|(_, io)| matches!(io, Io::Remote(_))).count();
            let tokens = [0, 1].map(|stream| Token(FIRST_REMOTE + 2 * remotes + stream));
            if remotes == REMOTES_MAX && matches!(file, IoFile::Remote(_)) {
                return Err(std::io::Error::other(format!("more than {REMOTES_MAX} devices lie on targets")));
            }
            started.push((*device, start(file.clone(), (common, shard), *device, tokens, threads)?));
        }
        Ok(Ios(started))
    }

    /// One more device, on a ring that is watched already.
    pub fn put(&mut self, device: DeviceIndex, ring: Box<DriveRing>) {
        self.0.push((device, Io::Ring(ring)));
    }

    /// A device is gone: what is under way for it ends before, and nobody hears of it.
    pub fn remove(&mut self, device: DeviceIndex) {
        self.0.retain(|(own, _)| *own != device);
    }

    /// Rings, which are to be watched.
    pub fn rings(&self) -> impl Iterator<Item = &DriveRing> {
        self.0.iter().filter_map(|(_, io)| match io {
            Io::Ring(ring) => Some(&**ring),
            Io::Thread(_) | Io::Remote(_) => None,
        })
    }

    fn rings_mut(&mut self) -> impl Iterator<Item = (DeviceIndex, &mut DriveRing)> {
        self.0.iter_mut().filter_map(|(device, io)| match io {
            Io::Ring(ring) => Some((*device, &mut **ring)),
            Io::Thread(_) | Io::Remote(_) => None,
        })
    }

    fn lines_mut(&mut self) -> impl Iterator<Item = (DeviceIndex, &mut RemoteLine)> {
        self.0.iter_mut().filter_map(|(device, io)| match io {
            Io::Remote(line) => Some((*device, &mut **line)),
            Io::Thread(_) | Io::Ring(_) => None,
        })
    }

    /// The poll told of a stream to a target.
    pub fn is_ready(&mut self, event: &mio::event::Event) {
        self.lines_mut().for_each(|(_, line)| line.is_ready(event));
    }

    /// When [`Ios::work`] has something to do though the poll told nothing.
    pub fn deadline(&self) -> Time {
        let deadlines = self.0.iter().map(|(_, io)| match io {
            Io::Remote(line) => line.deadline(),
            Io::Thread(_) | Io::Ring(_) => Time::NEVER,
        });
        deadlines.min().unwrap_or(Time::NEVER)
    }

    /// Takes what came of targets, and sends what there is for them.
    pub fn work(&mut self, registry: &Registry, now: Time, system_calls: &mut u64) {
        self.lines_mut().for_each(|(_, line)| line.work(registry, now, system_calls));
    }

    /// Says how it goes on with targets, and whether hosts wait no more for what a device lies on, or again.
    pub fn tell_of_targets(&mut self, now: Time, mut is_away: impl FnMut(DeviceIndex, bool)) {
        for (device, line) in self.lines_mut() {
            let Some((before, reach)) = line.news(now) else { continue };
            line.tell(before);
            if (before == Reach::Away) != (reach == Reach::Away) {
                is_away(device, reach == Reach::Away);
            }
        }
    }

    /// Begins with what a device asks for.
    ///
    /// # Panics
    /// If nothing was started for it.
    pub fn begin(&mut self, device: DeviceIndex, intent: Intent) {
        let io = self.0.iter_mut().find(|(own, _)| *own == device);
        io.expect("a device that asks for I/O is started with its file").1.begin(intent);
    }

    /// Appends what rings and targets have done, using `of_one` between.
    pub fn take_done(&mut self, of_one: &mut Vec<IntentDone>, mut take: impl FnMut(DeviceIndex, IntentDone)) {
        for (device, ring) in self.rings_mut() {
            ring.take_done(of_one);
            of_one.drain(..).for_each(|done| take(device, done));
        }
        for (device, line) in self.lines_mut() {
            line.take_done(of_one);
            of_one.drain(..).for_each(|done| take(device, done));
        }
    }

    /// Gives the kernel what was begun, and it does not have yet. How many system calls that were.
    pub fn submit(&mut self) -> u64 {
        self.rings_mut().map(|(_, ring)| u64::from(ring.submit())).sum()
    }
}

/// Who carries out what the device of a shard, or its part of one, asks for.
enum Io {
    /// The thread at the other end.
    Thread(Sender<Intent>),
    /// The shard's own thread.
    Ring(Box<DriveRing>),
    /// The shard's own thread, over sockets.
    Remote(Box<RemoteLine>),
}

impl Io {
    /// Begins with what is asked for.
    fn begin(&mut self, intent: Intent) {
        match self {
            Io::Thread(thread) => {
                thread.send(intent).expect("the thread that does I/O lives as long as this one")
            }
            Io::Ring(ring) => ring.push(intent),
            Io::Remote(line) => line.push(intent),
        }
    }
}

fn sync(file: &SyncFile, intent: Intent) -> IntentDone {
    assert!(matches!(intent.work, IntentWork::Sync), "such a device reads and writes its file by itself");
    let synced = file.sync().inspect_err(|error| {
        tracing::error!(
            "the device's file cannot be synced: {error}; what was written since the last sync may be lost, so no write is \
             acknowledged any more. Reads go on. See to the disk, then start the server again"
        );
    });
    let result = synced.map_err(|error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => IntentError::Full,
        _ => IntentError::Failed,
    });
    IntentDone { token: intent.token, buffer: None, result }
}

/// Starts who carries out what the device of a shard, or its part of one, asks for.
fn start(
    file: IoFile,
    (common, shard): (&Arc<Common>, usize),
    device: DeviceIndex,
    tokens: [Token; 2],
    threads: &mut Vec<JoinHandle<()>>,
) -> std::io::Result<Io> {
    let file = match file {
        IoFile::Synced(file) => file,
        IoFile::Remote(target) => {
            // Shards write to the namespace side by side, and each of them comes back by itself.
            let mut target = (*target).clone();
            target.parameters.part = shard as u16 + 1;
            let line = RemoteLine::new(target, tokens, common.now());
            return Ok(Io::Remote(Box::new(line)));
        }
        IoFile::Ring(file) => return Ok(Io::Ring(Box::new(file.ring()?))),
    };
    let (sender, wanted) = channel::<Intent>();
    let name = format!("io-{shard}-{}", device.0);
    let shard = common.addresses[shard].clone();
    threads.push(std::thread::Builder::new().name(name).spawn(move || {
        while let Ok(intent) = wanted.recv() {
            if !shard.send(Message::IoDone(device, sync(&file, intent))) {
                return;
            }
        }
    })?);
    Ok(Io::Thread(sender))
}
