//! Panics of shards: the book of them in the data folder, and how everything begins anew after one.

use crate::error::warn;
use diecut_api::panics::{Fence, Panic, PanicReport};
use diecut_devices::{Backing, Device, Options};
use diecut_reactor::{Again, Alone, Fallen, IoFile, Make, Revival, Untold};
use diecut_shard::panics::{PanicBook, PanicRecord, Verdict};
use diecut_shard::{DeviceConfig, DeviceIndex, Shard, ShardConfig, divide, divide_all};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The book of a data folder. One file; it holds a bounded number of records.
#[derive(Clone, Debug)]
pub struct Panics {
    path: Arc<Path>,
    book: Arc<Mutex<PanicBook>>,
}

impl Panics {
    /// Opens the book of a folder; a new one where there is none.
    pub fn open(folder: &Path) -> Panics {
        let path = folder.join("panics.json");
        let book = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let name = path.display();
                warn(&format!("{name} cannot be read ({error}): panics before are forgotten, and no vSSD is fenced for them"));
                PanicBook::default()
            }),
            Err(_) => PanicBook::default(),
        };
        Panics { path: path.into(), book: Arc::new(Mutex::new(book)) }
    }

    /// A book that is not kept, of a server in a test.
    pub fn unkept() -> Panics {
        Panics { path: PathBuf::from("/dev/null").into(), book: Arc::default() }
    }

    fn book(&self) -> MutexGuard<'_, PanicBook> {
        // Nothing that is done with it fails half way.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has shards know it.
    pub fn fill(&self, config: &mut ShardConfig) {
        let book = self.book();
        config.fenced = book.fenced.keys().copied().collect();
        config.panics = book.records.iter().cloned().collect();
    }

    /// Takes a panic and writes it down. What follows.
    fn note(&self, record: PanicRecord) -> Verdict {
        let mut book = self.book();
        let verdict = book.note(record);
        self.write(&book);
        verdict
    }

    /// Whether a vSSD is fenced.
    pub fn is_fenced(&self, vssd: &str) -> bool {
        self.book().fenced.values().any(|fence| fence.vssd == vssd)
    }

    /// The fence of a vSSD is lifted, or the vSSD is gone.
    pub fn lift(&self, vssd: &str) {
        let mut book = self.book();
        if book.lift(vssd) {
            self.write(&book);
        }
    }

    /// In the place of what was there, or not at all.
    fn write(&self, book: &PanicBook) {
        if *self.path == *Path::new("/dev/null") {
            return;
        }
        let text = serde_json::to_vec_pretty(book).expect("a book is plain data");
        let new = self.path.with_extension("json.new");
        let written = std::fs::File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        });
        if let Err(error) = written {
            warn(&format!(
                "{} cannot be written ({error}): the next server will not know of this panic",
                self.path.display()
            ));
        }
    }

    /// For administrators.
    pub fn report(&self) -> PanicReport {
        let book = self.book();
        let panic = |record: &PanicRecord| Panic {
            number: record.number,
            id: format!("{:016x}", record.id()),
            at_ms: record.at_ms,
            shard: record.shard,
            vssd: record.vssd_name.clone(),
            message: record.message.clone(),
            location: record.location.clone(),
            commands: record.commands.clone(),
            notices: record.notices.clone(),
        };
        let fence = |fence: &diecut_shard::panics::Fence| Fence {
            vssd: fence.vssd.clone(),
            since_ms: fence.since_ms,
            panic: fence.panic,
        };
        PanicReport {
            count: book.count,
            panics: book.records.iter().map(panic).collect(),
            fenced: book.fenced.values().map(fence).collect(),
        }
    }

    /// Panics so far, and the last one in a line.
    pub fn summary(&self) -> (u64, Option<String>) {
        let book = self.book();
        let line = |record: &PanicRecord| {
            let whose =
                record.vssd_name.as_ref().map_or(String::new(), |name| format!(", at work for vSSD {name}"));
            format!("shard {}{whose}: {} ({})", record.shard, record.message, record.location)
        };
        (book.count, book.records.back().map(line))
    }
}

/// A check that fails on purpose, for tests of the whole server: a write of one block at the LBA that this variable names. Builds
/// without debug assertions do not look at it.
#[cfg(debug_assertions)]
pub fn plant(config: &mut ShardConfig) {
    let lba = std::env::var("DIECUT_PLANTED_PANIC_LBA").ok().and_then(|text| text.parse().ok());
    config.planted_panic = lba.map(diecut_shard::PlantedPanic::WriteAt);
}

/// See above.
#[cfg(not(debug_assertions))]
pub fn plant(_: &mut ShardConfig) {}

/// Shards over several devices, each to be made on its own thread.
pub fn makes_over(
    devices: Vec<(Device, DeviceConfig)>,
    shards: u16,
    config: &ShardConfig,
) -> Vec<Make<Shard<Device>>> {
    let (devices, configs): (Vec<Device>, Vec<DeviceConfig>) = devices.into_iter().unzip();
    let make = divide_all(devices, shards).into_iter().map(|(seat, parts)| {
        let (config, parts) = (config.clone(), parts.into_iter().zip(configs.clone()).collect());
        Box::new(move |now| Shard::over(parts, config, seat, now)) as Make<Shard<Device>>
    });
    make.collect()
}

/// Shards over a device, each to be made on its own thread.
pub fn makes(device: Device, shards: u16, config: &ShardConfig) -> Vec<Make<Shard<Device>>> {
    let parts = divide(device, shards).into_iter();
    let make = parts.map(|(seat, part)| {
        let config = config.clone();
        Box::new(move |now| Shard::seated(part, config, seat, now)) as Make<Shard<Device>>
    });
    make.collect()
}

fn now_ms() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "the book tells people when")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Takes a panic, writes it down, and tells of it. The process ends, and why, if there were too many.
fn take(panics: &Panics, record: &PanicRecord) -> Result<(), String> {
    let record = PanicRecord { at_ms: now_ms(), ..record.clone() };
    tracing::error!("the server recovers from a panic: {}", record.describe());
    match panics.note(record.clone()) {
        Verdict::GiveUp => return Err("too many panics within ten minutes".to_owned()),
        Verdict::Fence => {
            let vssd = record.vssd_name.unwrap_or_default();
            tracing::error!(
                vssd,
                "two panics within ten minutes at work for this vSSD: hosts write it no more; `diecut vssd unfence` ends that"
            );
        }
        Verdict::BeginAnew => {}
    }
    Ok(())
}

/// Whether a panic may have left the part of the device that the shard had half changed: then the device is opened again as a whole.
fn is_of_device(record: &PanicRecord) -> bool {
    ["crates/emulator/", "crates/devices/", "crates/media/"].iter().any(|room| record.location.contains(room))
}

/// How shards begin anew on a device that was opened with `options`: one in a file is opened again as the next process would, one in
/// memory is what the shards had of it.
pub fn revival(panics: Panics, options: Options, shards: u16, config: ShardConfig) -> Revival<Shard<Device>> {
    let (book, plain) = (panics.clone(), config.clone());
    let alone = move |record: &PanicRecord, shard: Shard<Device>, untold: Untold| {
        if is_of_device(record) {
            return Alone::All(shard, untold);
        }
        if let Err(why) = take(&book, record) {
            return Alone::End(why);
        }
        let (remains, mut config) = (shard.into_remains(untold), plain.clone());
        book.fill(&mut config);
        Alone::Next(Box::new(move |now| Shard::again(remains, config, now)))
    };
    let again = move |fallen: Fallen| {
        match &fallen.record {
            Some(record) => take(&panics, record)?,
            None => tracing::error!("a shard that failed cannot recover alone: all shards begin anew"),
        }
        let mut config = config.clone();
        panics.fill(&mut config);
        let mut device = match &options.backing {
            Backing::File(path) | Backing::SyncedFile(path) => {
                fallen.close();
                Device::open(path, options.clone())
                    .map_err(|error| format!("the device cannot be opened again: {error}"))?
            }
            Backing::Memory | Backing::Tags | Backing::SyncedModel => fallen.into_device()?,
        };
        let rooms = device.room_worker();
        let synced = device.sync_file().map(IoFile::Synced);
        let io = synced.map(|file| (DeviceIndex(0), file)).into_iter().collect();
        Ok(Again { shards: makes(device, shards, &config), io, rooms })
    };
    Revival { part_of: Shard::into_media, alone: Box::new(alone), again: Box::new(again) }
}
