//! What follows when a shard fails an inner check: its panic is caught. A shard that is not the first one begins again by itself: its hosts
//! are hung up on, and the others go on. After a panic of the first one, and where that is not enough, the threads of all shards let go of what
//! they have, and begin anew on the device as a process would after a kill. Sockets that are listened on stay, so hosts reconnect.
//!
//! A thread that fails tells the others by a flag that each looks at once a round. Each gives back its shard, keeps messages that
//! nobody has taken (new connections, requests), and comes to a [`Meeting`]; the last one that comes has everything opened again,
//! and each takes its new shard along. The process ends only where that cannot be: what cannot be taken apart or opened again is
//! left to the next process, as before.

use crate::common::Common;
use crate::helpers::{Helpers, start_rooms};
use crate::inbox::{Message, Untold};
use crate::io::{IoFile, Ios};
use diecut_devices::{Device, RoomWorker};
use diecut_media::{Divide, Media};
use diecut_shard::drive::ShardMessage;
use diecut_shard::panics::PanicRecord;
use diecut_shard::{DeviceIndex, gather_media};
use diecut_units::Time;
use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Makes a shard, on its own thread.
pub type Make<D> = Box<dyn FnOnce(Time) -> D + Send>;

/// What is left when all threads of shards let go.
pub struct Fallen {
    /// The panic; of several at once the first one. Nothing if a shard that failed before cannot go on alone.
    pub record: Option<PanicRecord>,
    /// What each shard had of the device, in order.
    pub parts: Vec<Device>,
    /// What shards had told each other and nobody had taken: channels may be in it.
    pub told: Vec<ShardMessage>,
    /// Of the reactor's clock.
    pub now: Time,
    /// Threads that do what the device asks for.
    helpers: Vec<JoinHandle<()>>,
}

impl Fallen {
    /// A device in memory, as shards left it: what was under way in it is over, or did not happen.
    ///
    /// # Errors
    /// A part of it was lost on its way from one shard to another.
    pub fn into_device(mut self) -> Result<Device, String> {
        self.parts.iter_mut().for_each(|part| part.emulated_mut().process_death(self.now));
        let device = gather_media(self.parts, self.told);
        let is_whole = (0..device.geometry().channels).all(|channel| device.owns(channel));
        let lost = || "a part of the device in memory was lost on its way between shards".to_owned();
        if is_whole { Ok(device) } else { Err(lost()) }
    }

    /// Lets go of the device: nothing of it is open or at work when this returns.
    pub fn close(self) {
        drop((self.parts, self.told));
        for helper in self.helpers {
            // One that failed ended the process.
            let _ = helper.join();
        }
    }
}

/// What the threads go on with.
pub struct Again<D> {
    /// One for each thread, in order.
    pub shards: Vec<Make<D>>,
    /// As [`crate::ReactorConfig::io`].
    pub io: Vec<(DeviceIndex, IoFile)>,
    /// As [`crate::ReactorConfig::rooms`].
    pub rooms: Option<RoomWorker>,
}

/// What follows for a shard that failed and is not the first one.
pub enum Alone<D> {
    /// It begins again by itself, while the others go on.
    Next(Make<D>),
    /// All begin anew; the shard as it was, and what it had to tell.
    All(D, Untold),
    /// The process ends: why.
    End(String),
}

/// How the shards of a reactor begin anew.
pub struct Revival<D> {
    /// Takes a shard apart, on its own thread: its part of the device is left.
    pub part_of: fn(D) -> Device,
    /// Takes a shard that failed, on its own thread, with what it had to tell others, and says what follows. It is not the first one.
    #[allow(clippy::type_complexity, reason = "a function, and what it is given")]
    pub alone: Box<dyn FnMut(&PanicRecord, D, Untold) -> Alone<D> + Send>,
    /// Opens everything again. Why that cannot be is the last that the process says.
    #[allow(clippy::type_complexity, reason = "a function, and what it is given")]
    pub again: Box<dyn FnMut(Fallen) -> Result<Again<D>, String> + Send>,
}

/// Ends the process: what it holds is whole on the media only.
pub(crate) fn give_up(why: &str) -> ! {
    tracing::error!("{why}; the server stops now and recovers when it is started again");
    eprintln!("{why}; the server stops now and recovers when it is started again");
    std::process::abort();
}

thread_local! {
    /// What this thread's last panic said, and where.
    static SAID: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// From now on a panic leaves its message and its place with its thread, besides what is printed of it.
pub(crate) fn listen_to_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = said(info.payload());
            let place = info.location().map_or("somewhere".to_owned(), ToString::to_string);
            SAID.with_borrow_mut(|said| *said = Some((message, place)));
            before(info);
        }));
    });
}

fn said(payload: &dyn Any) -> String {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or(payload.downcast_ref::<&str>().copied()).unwrap_or("it does not say what").to_owned()
}

/// Message and place of this thread's last panic.
pub(crate) fn last_words(payload: &dyn Any) -> (String, String) {
    SAID.take().unwrap_or_else(|| (said(payload), "somewhere".to_owned()))
}

/// Waits between two looks at what comes while others are on their way.
const LOOK_EVERY: Duration = Duration::from_millis(5);

struct Pending<D> {
    /// By thread.
    parts: Vec<Option<Device>>,
    told: Vec<ShardMessage>,
    /// Threads that have come since the last ones went on, and those of them that read their queues when all had come.
    come: usize,
    emptied: usize,
    /// By thread; taken by it.
    next: Vec<Option<Make<D>>>,
    io: Vec<(DeviceIndex, IoFile)>,
}

/// Where threads meet to begin anew; see the module.
pub(crate) struct Meeting<D> {
    revival: Mutex<Revival<D>>,
    /// The first panic since the last ones went on. Besides the rest: nobody who fails waits for those that meet.
    record: Mutex<Option<PanicRecord>>,
    pending: Mutex<Pending<D>>,
    helpers: Helpers,
}

/// What is behind these locks is whole whenever one is free: nothing between does what can fail, but for [`Revival::again`], whose
/// failure ends the process.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread leaves.
pub(crate) struct Left {
    pub number: usize,
    pub part: Device,
    /// Messages of its queue that its next shard takes.
    pub kept: Vec<Message>,
    /// What it had not told yet.
    pub told: Vec<ShardMessage>,
}

/// What a thread goes on with.
pub(crate) struct Next<D> {
    pub make: Make<D>,
    pub io: Ios,
    pub kept: Vec<Message>,
}

impl<D> Meeting<D> {
    /// Of so many threads.
    pub fn new(revival: Revival<D>, threads: usize, helpers: Helpers) -> Meeting<D> {
        let pending = Pending {
            parts: (0..threads).map(|_| None).collect(),
            told: Vec::new(),
            come: 0,
            emptied: 0,
            next: (0..threads).map(|_| None).collect(),
            io: Vec::new(),
        };
        let (revival, pending) = (Mutex::new(revival), Mutex::new(pending));
        Meeting { revival, record: Mutex::new(None), pending, helpers }
    }

    /// Takes a shard apart, on its own thread.
    pub fn part_of(&self, shard: D) -> Device {
        let part_of = lock(&self.revival).part_of;
        part_of(shard)
    }

    /// A shard failed: all threads come. Of several panics at once the first one counts.
    pub fn call(&self, record: PanicRecord, common: &Common) {
        lock(&self.record).get_or_insert(record);
        common.call();
    }

    /// Has a shard that failed begin again by itself, on its own thread. Gives it back if all are to begin anew.
    pub fn alone(&self, record: &PanicRecord, shard: D, untold: Untold) -> Result<Make<D>, (D, Untold)> {
        let mut revival = lock(&self.revival);
        match (revival.alone)(record, shard, untold) {
            Alone::Next(make) => Ok(make),
            Alone::All(shard, untold) => Err((shard, untold)),
            Alone::End(why) => give_up(&why),
        }
    }

    /// Comes with what a shard left, and goes on with a new one when all have come. Meanwhile nobody waits for this thread's queue.
    /// `None`: the reactor stops.
    pub fn meet(&self, left: Left, inbox: &Receiver<Message>, common: &Arc<Common>) -> Option<Next<D>> {
        let Left { number, part, mut kept, mut told } = left;
        let mut pending = lock(&self.pending);
        assert!(pending.parts[number].replace(part).is_none(), "I-R5: a thread comes once");
        pending.come += 1;
        let (threads, mut is_emptied) = (common.addresses.len(), false);
        loop {
            if let Some(make) = pending.next[number].take() {
                let mut threads = Vec::new();
                let io = Ios::start(&pending.io, common, number, &mut threads);
                drop(pending);
                lock(&self.helpers).append(&mut threads);
                let io = io
                    .unwrap_or_else(|error| give_up(&format!("nobody does the I/O of the device: {error}")));
                return Some(Next { make, io, kept });
            }
            read(inbox, &mut kept, &mut told);
            // All threads are told, so whoever is missing ends, too.
            if kept.iter().any(|message| matches!(message, Message::Stop)) {
                return None;
            }
            // Who has come sends nothing more, so what was sent is read when all have.
            if pending.come == threads && !is_emptied {
                is_emptied = true;
                pending.told.append(&mut told);
                pending.emptied += 1;
                if pending.emptied == threads {
                    self.open_again(&mut pending, common);
                    continue;
                }
            }
            drop(pending);
            std::thread::sleep(LOOK_EVERY);
            pending = lock(&self.pending);
        }
    }

    fn open_again(&self, pending: &mut Pending<D>, common: &Arc<Common>) {
        let fallen = Fallen {
            record: lock(&self.record).take(),
            parts: pending.parts.iter_mut().filter_map(Option::take).collect(),
            told: std::mem::take(&mut pending.told),
            now: common.now(),
            helpers: std::mem::take(&mut *lock(&self.helpers)),
        };
        (pending.come, pending.emptied) = (0, 0);
        // Before the new shards: a panic of one of them calls again.
        common.is_called.store(false, Ordering::Release);
        let again = (lock(&self.revival).again)(fallen);
        let Again { shards, io, rooms } = again.unwrap_or_else(|why| give_up(&why));
        assert_eq!(shards.len(), pending.next.len(), "I-R5: each thread goes on with a shard");
        if let Some(rooms) = rooms {
            let started = start_rooms(rooms);
            let started = started.unwrap_or_else(|error| give_up(&format!("no thread for room: {error}")));
            lock(&self.helpers).push(started);
        }
        pending.io = io;
        pending.next = shards.into_iter().map(Some).collect();
    }
}

/// Reads a queue: requests and hosts that come are kept, what shards tell each other is put apart, and the rest is of a time that is
/// over.
fn read(inbox: &Receiver<Message>, kept: &mut Vec<Message>, told: &mut Vec<ShardMessage>) {
    while let Ok(message) = inbox.try_recv() {
        match message {
            Message::Told(_, message) => told.push(message),
            Message::Accepted(..)
            | Message::SendAway(_)
            | Message::Control(..)
            | Message::AskedAgain(..)
            | Message::Open
            | Message::Stop => kept.push(message),
            // Connections and applications that were on their way end, as all that were at work.
            Message::Adopted(..)
            | Message::Blocks(_)
            | Message::IoDone(..)
            | Message::DeviceCame(..)
            | Message::DeviceWent(..) => {}
        }
    }
}
