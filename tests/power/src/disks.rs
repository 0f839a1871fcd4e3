//! All disks that lose their power together, and what goes wrong with them.

use crate::cut::CutReport;
use crate::disk::Disk;
pub use crate::disk::FailedFlush;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How disks are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Drives, by their names, with their sizes.
    pub drives: Vec<(String, u64)>,
    /// Whether files can be made and removed in the folder, each of which is as long as what was written to it.
    pub has_files: bool,
    /// What cuts draw from.
    pub seed: u64,
    /// What the cache of a disk holds at most.
    pub cache_bytes_max: u64,
    /// Where the bytes lie, in files without a name. It takes twice the size of what is written.
    pub backing: PathBuf,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            drives: Vec::new(),
            has_files: false,
            seed: 1,
            cache_bytes_max: 256 << 20,
            backing: std::env::temp_dir(),
        }
    }
}

/// What disks did since they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Flushes that were answered well.
    pub flushes: u64,
    /// Flushes of these that did nothing, for the disks lie.
    pub lies: u64,
    /// Flushes that failed.
    pub failed_flushes: u64,
    /// Discards that were answered.
    pub discards: u64,
    /// Cuts.
    pub cuts: u64,
    /// Writes that no flush covers now.
    pub unflushed_writes: u64,
    /// Bytes of these.
    pub unflushed_bytes: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reads={} writes={} written_bytes={} flushes={} lies={} failed_flushes={} discards={} cuts={} \
             unflushed_writes={} unflushed_bytes={}",
            self.reads,
            self.writes,
            self.written_bytes,
            self.flushes,
            self.lies,
            self.failed_flushes,
            self.discards,
            self.cuts,
            self.unflushed_writes,
            self.unflushed_bytes
        )
    }
}

/// Why something of a disk is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no power, or it was cut since the file was opened")]
    Power,
    #[error("the flush failed")]
    Flush,
    #[error("there is no such file")]
    NotFound,
    #[error("drives stay, and no file can be made here")]
    Fixed,
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Disks under one power. Clones are the same ones.
#[derive(Clone)]
pub struct Disks {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    power: RwLock<Power>,
    faults: Mutex<Faults>,
    /// Somebody may go on who waited for the end of a stall.
    goes_on: Condvar,
    statistics: Mutex<Statistics>,
}

struct Power {
    is_on: bool,
    /// Lives from a start to a cut, from 1 on.
    life: u64,
    disks: BTreeMap<u64, Arc<Disk>>,
    names: BTreeMap<OsString, u64>,
    next_number: u64,
}

#[derive(Default)]
struct Faults {
    lies: bool,
    failed_flush: Option<FailedFlush>,
    is_stalled: bool,
    /// After so many more writes, discards and flushes the power goes.
    until_cut: Option<u64>,
}

/// A disk as it was opened: in one life, and by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub life: u64,
    pub number: u64,
}

/// What the folder says of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub opened: Opened,
    pub size_bytes: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disks {
    /// New ones, full of zeros, with power.
    ///
    /// # Errors
    /// What the system says of the files in which the bytes lie.
    pub fn new(options: &Options) -> io::Result<Disks> {
        let (mut disks, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (number, (name, size_bytes)) in (1..).zip(&options.drives) {
            disks.insert(number, Arc::new(Disk::new(&options.backing, *size_bytes, false)?));
            names.insert(name.into(), number);
        }
        let next_number = disks.len() as u64 + 1;
        let shared = Shared {
            options: options.clone(),
            power: RwLock::new(Power { is_on: true, life: 1, disks, names, next_number }),
            faults: Mutex::default(),
            goes_on: Condvar::new(),
            statistics: Mutex::default(),
        };
        Ok(Disks { shared: Arc::new(shared) })
    }

    /// Takes the power away. Of what no flush covered any subset is left, as the seed of the disks and the number of the cut say; or this seed.
    ///
    /// # Errors
    /// What the system says of the files in which the bytes lie.
    pub fn cut(&self, seed: Option<u64>) -> io::Result<CutReport> {
        // Who waits in a stall waits for nothing any more.
        let mut power = self.power_mut();
        let cut = {
            let mut statistics = locked(&self.shared.statistics);
            statistics.cuts += u64::from(power.is_on);
            statistics.cuts
        };
        let seed =
            seed.unwrap_or(self.shared.options.seed.wrapping_add(cut.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut report = CutReport { cut, seed, ..CutReport::default() };
        for (number, disk) in &power.disks {
            let of = disk.cut(seed, *number)?;
            report.writes += of.writes;
            report.kept += of.kept;
            report.torn += of.torn;
        }
        // What has no name was only there for who had it open.
        let named: BTreeSet<u64> = power.names.values().copied().collect();
        power.disks.retain(|number, _| named.contains(number));
        power.is_on = false;
        drop(power);
        locked(&self.shared.faults).until_cut = None;
        self.stall(false);
        Ok(report)
    }

    /// The power goes amid the command after so many more writes, discards and flushes: it is not answered, and a flush not done.
    pub fn cut_after(&self, commands: u64) {
        locked(&self.shared.faults).until_cut = Some(commands);
    }

    /// Whether the power is to go amid this command.
    fn is_last(&self) -> bool {
        let mut faults = locked(&self.shared.faults);
        match faults.until_cut {
            Some(0) => {
                faults.until_cut = None;
                true
            }
            Some(left) => {
                faults.until_cut = Some(left - 1);
                false
            }
            None => false,
        }
    }

    /// As [`Disks::cut`], where it was to come.
    fn end(&self) -> Result<(), Refusal> {
        self.cut(None)?;
        Err(Refusal::Power)
    }

    /// Whether there is power.
    pub fn is_on(&self) -> bool {
        self.power().is_on
    }

    /// The power comes back, and disks serve what is left. Files are opened anew: those that were opened before stay dead. A flush that was to fail
    /// and did not come is forgotten.
    pub fn power_on(&self) {
        let mut power = self.power_mut();
        locked(&self.shared.faults).failed_flush = None;
        power.life += u64::from(!power.is_on);
        power.is_on = true;
    }

    /// From now on flushes do nothing and say that all is well, or again what they should.
    pub fn lie(&self, lies: bool) {
        locked(&self.shared.faults).lies = lies;
    }

    /// The next flush fails.
    pub fn fail_next_flush(&self, how: FailedFlush) {
        locked(&self.shared.faults).failed_flush = Some(how);
    }

    /// From now on nothing is answered; or it goes on.
    pub fn stall(&self, is_stalled: bool) {
        locked(&self.shared.faults).is_stalled = is_stalled;
        self.shared.goes_on.notify_all();
    }

    /// What they did.
    pub fn statistics(&self) -> Statistics {
        let power = self.power();
        let mut statistics = *locked(&self.shared.statistics);
        for disk in power.disks.values() {
            let (writes, bytes) = disk.unflushed();
            statistics.unflushed_writes += writes;
            statistics.unflushed_bytes += bytes;
        }
        statistics
    }

    /// What cuts draw from.
    pub fn seed(&self) -> u64 {
        self.shared.options.seed
    }

    fn power(&self) -> RwLockReadGuard<'_, Power> {
        self.shared.power.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn power_mut(&self) -> RwLockWriteGuard<'_, Power> {
        self.shared.power.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is stalled.
    fn pass(&self) {
        let faults = locked(&self.shared.faults);
        let waited = self.shared.goes_on.wait_while(faults, |faults| faults.is_stalled);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Does something with a disk while there is power: a cut comes before it, or behind it.
    fn with<T>(&self, opened: Opened, work: impl FnOnce(&Disk) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let power = self.power();
        if !power.is_on || power.life != opened.life {
            return Err(Refusal::Power);
        }
        work(power.disks.get(&opened.number).ok_or(Refusal::NotFound)?)
    }

    fn count(&self, count: impl FnOnce(&mut Statistics)) {
        count(&mut locked(&self.shared.statistics));
    }

    pub(crate) fn read(&self, opened: Opened, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        self.pass();
        let mut bytes = vec![0; len];
        let read = self.with(opened, |disk| Ok(disk.read(offset, &mut bytes)?))?;
        bytes.truncate(read);
        self.count(|statistics| statistics.reads += 1);
        Ok(bytes)
    }

    pub(crate) fn write(&self, opened: Opened, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        self.pass();
        if !bytes.is_empty() {
            let max = self.shared.options.cache_bytes_max;
            self.with(opened, |disk| Ok(disk.write(offset, bytes, max)?))?;
        }
        if self.is_last() {
            self.end()?;
        }
        self.count(|statistics| {
            statistics.writes += 1;
            statistics.written_bytes += bytes.len() as u64;
        });
        Ok(())
    }

    pub(crate) fn discard(&self, opened: Opened, offset: u64, len_bytes: u64) -> Result<(), Refusal> {
        self.pass();
        let max = self.shared.options.cache_bytes_max;
        self.with(opened, |disk| Ok(disk.discard(offset, len_bytes, max)?))?;
        if self.is_last() {
            self.end()?;
        }
        self.count(|statistics| statistics.discards += 1);
        Ok(())
    }

    pub(crate) fn flush(&self, opened: Opened) -> Result<(), Refusal> {
        self.pass();
        self.known(opened)?;
        if self.is_last() {
            self.end()?;
        }
        let (lies, failed) = {
            let mut faults = locked(&self.shared.faults);
            (faults.lies, faults.failed_flush.take())
        };
        if let Some(how) = failed {
            let number = locked(&self.shared.statistics).failed_flushes + 1;
            let seed = self.seed().wrapping_add(number << 32);
            self.with(opened, |disk| Ok(disk.fail_flush(how, seed, opened.number)?))?;
            self.count(|statistics| statistics.failed_flushes += 1);
            return Err(Refusal::Flush);
        }
        self.with(opened, |disk| if lies { Ok(()) } else { Ok(disk.flush()?) })?;
        self.count(|statistics| {
            statistics.flushes += 1;
            statistics.lies += u64::from(lies);
        });
        Ok(())
    }

    pub(crate) fn set_size(&self, opened: Opened, size_bytes: u64) -> Result<(), Refusal> {
        self.with(opened, |disk| Ok(disk.set_size(size_bytes)?))
    }

    /// A file grows to this size, if it is shorter.
    pub(crate) fn reserve(&self, opened: Opened, size_bytes: u64) -> Result<(), Refusal> {
        self.with(opened, |disk| match disk.can_grow && disk.size_bytes() < size_bytes {
            true => Ok(disk.set_size(size_bytes)?),
            false => Ok(()),
        })
    }

    pub(crate) fn known(&self, opened: Opened) -> Result<Known, Refusal> {
        self.with(opened, |disk| Ok(Known { opened, size_bytes: disk.size_bytes() }))
    }

    pub(crate) fn lookup(&self, name: &OsStr) -> Result<Known, Refusal> {
        let opened = {
            let power = self.power();
            if !power.is_on {
                return Err(Refusal::Power);
            }
            Opened { life: power.life, number: *power.names.get(name).ok_or(Refusal::NotFound)? }
        };
        self.known(opened)
    }

    /// All names.
    pub(crate) fn list(&self) -> Result<Vec<(OsString, Opened)>, Refusal> {
        let power = self.power();
        let of =
            |(name, number): (&OsString, &u64)| (name.clone(), Opened { life: power.life, number: *number });
        if power.is_on { Ok(power.names.iter().map(of).collect()) } else { Err(Refusal::Power) }
    }

    /// A new file, or the one that is there.
    pub(crate) fn make(&self, name: &OsStr) -> Result<Known, Refusal> {
        {
            let mut power = self.power_mut();
            if !power.is_on {
                return Err(Refusal::Power);
            }
            if !power.names.contains_key(name) {
                if !self.shared.options.has_files {
                    return Err(Refusal::Fixed);
                }
                let number = power.next_number;
                let disk = Disk::new(&self.shared.options.backing, 0, true)?;
                power.next_number += 1;
                power.disks.insert(number, Arc::new(disk));
                power.names.insert(name.to_owned(), number);
            }
        }
        self.lookup(name)
    }

    /// A name goes. Who has the file open keeps it, as far as there is power.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Refusal> {
        let mut power = self.power_mut();
        if !power.is_on {
            return Err(Refusal::Power);
        }
        let number = *power.names.get(name).ok_or(Refusal::NotFound)?;
        if !power.disks[&number].can_grow {
            return Err(Refusal::Fixed);
        }
        power.names.remove(name);
        Ok(())
    }

    /// A file has another name, and what had it before has none. That is durable at once.
    pub(crate) fn rename(&self, name: &OsStr, to: &OsStr) -> Result<(), Refusal> {
        let mut power = self.power_mut();
        if !power.is_on {
            return Err(Refusal::Power);
        }
        let number = *power.names.get(name).ok_or(Refusal::NotFound)?;
        let stays = |number: &u64| !power.disks[number].can_grow;
        if stays(&number) || power.names.get(to).is_some_and(stays) {
            return Err(Refusal::Fixed);
        }
        power.names.remove(name);
        power.names.insert(to.to_owned(), number);
        Ok(())
    }
}
