//! Health of drives: asked for every minute, kept for whoever asks for the status, and told of in the log when it changes for the worse. Whether a drive is
//! still there as a whole is looked at more often: that costs no command of it.

use diecut_api::status::DriveHealth;
use diecut_devices::local::{damage, size_bytes, smart_log};
use diecut_nvme::log_page::{
    SmartLog, WARNING_READ_ONLY, WARNING_RELIABILITY, WARNING_SPARE, WARNING_TEMPERATURE,
};
use diecut_reactor::{RemoteClient, RemoteTarget};
use diecut_remote::{ClaimKind, RemoteParameters};
use diecut_spec::Size;
use diecut_units::Span;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks at all drives.
const EVERY: Duration = Duration::from_secs(5);
/// Looks of which one asks for the health: it changes over hours, and drives may put other commands off while they answer.
const LOOKS: u64 = 12;
/// How long is waited for a target: the end of a server waits for the question that is under way.
const TARGET_PATIENCE: Span = Span::from_secs(2);
/// Bytes of a unit of the counts of data.
const DATA_UNIT_BYTES: u128 = 512_000;
/// Zero degrees Celsius, in whole kelvins as the specification has them.
const ZERO_CELSIUS_KELVIN: i32 = 273;

/// Critical warning bits and what they say (NVMe Base 2.0, figure 207).
const WARNINGS: [(u8, &str); 6] = [
    (WARNING_SPARE, "its spare is below the threshold"),
    (WARNING_TEMPERATURE, "its temperature is beyond a threshold"),
    (WARNING_RELIABILITY, "errors of its media or of itself make it unreliable"),
    (WARNING_READ_ONLY, "it takes no more writes"),
    (1 << 4, "what backs up its volatile memory failed"),
    (1 << 5, "its persistent memory takes no more writes"),
];

/// What a health log says.
pub fn of(log: &SmartLog) -> DriveHealth {
    let count = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    let data = |units: u128| Size(count(units.saturating_mul(DATA_UNIT_BYTES)));
    let warnings = WARNINGS.iter().filter(|(bit, _)| log.critical_warning & bit != 0);
    let kelvin = i32::from(log.temperature_kelvin.get());
    DriveHealth {
        warnings: warnings.map(|(_, words)| (*words).to_owned()).collect(),
        temperature_celsius: (kelvin != 0).then_some(kelvin - ZERO_CELSIUS_KELVIN),
        spare_percent: log.available_spare_percent,
        spare_threshold_percent: log.spare_threshold_percent,
        used_percent: log.percentage_used,
        written: data(log.data_units_written.get()),
        read: data(log.data_units_read.get()),
        media_errors: count(log.media_errors.get()),
        power_on_hours: count(log.power_on_hours.get()),
        unsafe_shutdowns: count(log.unsafe_shutdowns.get()),
    }
}

/// Of a file or a block device; nothing where it says nothing.
pub fn of_file(file: &File) -> Option<DriveHealth> {
    smart_log(file).ok().flatten().map(|log| of(&log))
}

/// What has become worse, in words. What a drive says when it is first asked counts.
fn worse(before: Option<&DriveHealth>, now: &DriveHealth) -> Vec<String> {
    let was_said = |warning: &&String| before.is_some_and(|before| before.warnings.contains(warning));
    let mut words: Vec<String> = now.warnings.iter().filter(|warning| !was_said(warning)).cloned().collect();
    if let Some(before) = before {
        let more = now.media_errors.saturating_sub(before.media_errors);
        if more > 0 {
            words.push(format!("{more} more errors of its media, {} in all", now.media_errors));
        }
    }
    if now.used_percent >= 100 && before.is_none_or(|before| before.used_percent < 100) {
        words.push(format!("{} % of its life are used", now.used_percent));
    }
    words
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file or a block device of this machine, and how large it was when it was opened.
    File(Arc<File>, u64),
    /// The controller of a namespace.
    Target(Arc<RemoteTarget>),
}

impl Source {
    /// A file or a block device as it is now.
    pub fn file(file: &Arc<File>) -> Source {
        Source::File(Arc::clone(file), size_bytes(file).unwrap_or(0))
    }

    fn ask(&self) -> Option<DriveHealth> {
        match self {
            Source::File(file, _) => of_file(file),
            Source::Target(target) => of_target(target),
        }
    }

    /// What happened to it as a whole.
    fn damage(&self) -> Option<String> {
        match self {
            Source::File(file, size_bytes) => damage(file, *size_bytes),
            // A target that goes away, or comes back as another one, is noticed by who serves it.
            Source::Target(_) => None,
        }
    }

    /// Looks of which one asks: a target is connected to for each question, and says so in its log.
    fn looks(&self) -> u64 {
        match self {
            Source::File(..) => LOOKS,
            Source::Target(_) => 10 * LOOKS,
        }
    }
}

/// Over a connection of its own, which claims nothing; nothing where the target is not there, or says nothing.
fn of_target(target: &RemoteTarget) -> Option<DriveHealth> {
    let mut target = target.clone();
    let served = target.parameters;
    target.parameters = RemoteParameters {
        // Another host than the one that serves it.
        life: !served.life,
        kind: ClaimKind::Look,
        known: None,
        patience: Some(TARGET_PATIENCE),
        ..served
    };
    RemoteClient::connect(target).ok()?.facts().health.as_ref().map(of)
}

/// What is known of drives, by the names of their devices.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What each last said, if it says something.
    pub said: BTreeMap<String, DriveHealth>,
    /// What happened to those that are not there as a whole any more.
    pub damage: BTreeMap<String, String>,
}

/// What is known of drives now.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Known>>);

impl Health {
    /// Of each of which something is known.
    ///
    /// # Panics
    /// If the thread that asks panicked.
    pub fn known(&self) -> Known {
        self.0.lock().expect("who asks does not panic").clone()
    }
}

/// Asks drives from a thread of its own until it is dropped: a drive that answers late keeps nobody else waiting.
#[derive(Default)]
pub(crate) struct Watch {
    health: Health,
    /// With what their devices are called in reports.
    drives: Vec<(String, Source)>,
    /// Its end is told by that this is gone.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches drives, each with what its device is called in reports.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(drives: impl IntoIterator<Item = (String, Source)>) -> std::io::Result<Watch> {
        let drives = drives.into_iter().collect();
        let mut watch = Watch { health: Health::default(), drives, stop: None, thread: None };
        watch.begin()?;
        Ok(watch)
    }

    fn begin(&mut self) -> std::io::Result<()> {
        if self.drives.is_empty() {
            return Ok(());
        }
        let mut round = Round { number: 0, drives: self.drives.clone(), health: self.health.clone() };
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("health".to_owned());
        self.thread = Some(thread.spawn(move || round.go_on(&stopped))?);
        self.stop = Some(stop);
        Ok(())
    }

    /// One more is watched.
    pub fn add(&mut self, name: String, source: Source) {
        self.change(|drives| drives.push((name, source)));
    }

    /// One is watched no more, and let go.
    pub fn remove(&mut self, name: &str) {
        self.change(|drives| drives.retain(|(other, _)| other != name));
        let mut known = self.health.0.lock().expect("who reads it does not panic");
        known.said.remove(name);
        known.damage.remove(name);
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<(String, Source)>)) {
        self.end();
        change(&mut self.drives);
        if let Err(error) = self.begin() {
            tracing::warn!("drives are not asked for their health: {error}");
        }
    }

    fn end(&mut self) {
        drop(self.stop.take());
        // Its files are those that another process may want next.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }

    /// What they last said.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

struct Round {
    number: u64,
    drives: Vec<(String, Source)>,
    health: Health,
}

impl Round {
    /// Looks at each drive, and asks those whose turn it is.
    fn look(&mut self) {
        let Known { mut said, damage } = self.health.known();
        for (name, source) in &self.drives {
            let is_due = self.number.is_multiple_of(source.looks());
            // One that fails to answer once is what it was.
            let Some(now) = is_due.then(|| source.ask()).flatten() else { continue };
            for words in worse(said.get(name), &now) {
                tracing::warn!(device = name, "the drive tells of its health: {words}");
            }
            said.insert(name.clone(), now);
        }
        let damaged = self.drives.iter().filter_map(|(name, source)| Some((name.clone(), source.damage()?)));
        let damaged: BTreeMap<String, String> = damaged.collect();
        for (name, words) in damaged.iter().filter(|(name, words)| damage.get(*name) != Some(words)) {
            tracing::warn!(
                device = name,
                "the drive {words}. See what became of it; what can still be read goes to other devices with `diecut device evacuate {name}`, \
                 while the server runs"
            );
        }
        self.number += 1;
        *self.health.0.lock().expect("who reads it does not panic") = Known { said, damage: damaged };
    }

    fn go_on(&mut self, stopped: &Receiver<()>) {
        self.look();
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.look();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::FromBytes;

    /// A drive as one of 2020 answers: 310 K, 8 % spare of 10, 103 % used, and counts beyond 64 bits of bytes.
    fn log(critical_warning: u8) -> SmartLog {
        let mut bytes = [0; 512];
        bytes[..6].copy_from_slice(&[critical_warning, 0x36, 0x01, 8, 10, 103]);
        bytes[32..48].copy_from_slice(&2_u128.to_le_bytes());
        bytes[48..64].copy_from_slice(&u128::MAX.to_le_bytes());
        bytes[128..144].copy_from_slice(&20_000_u128.to_le_bytes());
        bytes[144..160].copy_from_slice(&3_u128.to_le_bytes());
        bytes[160..176].copy_from_slice(&7_u128.to_le_bytes());
        SmartLog::read_from_bytes(&bytes).unwrap()
    }

    #[test]
    fn a_log_is_read_at_the_places_of_the_specification() {
        let health = of(&log(0b1001));
        assert_eq!(health.warnings, [WARNINGS[0].1, WARNINGS[3].1]);
        assert_eq!(health.temperature_celsius, Some(37));
        assert_eq!((health.spare_percent, health.spare_threshold_percent, health.used_percent), (8, 10, 103));
        assert_eq!((health.read, health.written), (Size(1_024_000), Size(u64::MAX)));
        assert_eq!((health.power_on_hours, health.unsafe_shutdowns, health.media_errors), (20_000, 3, 7));
        let silent = of(&SmartLog::default());
        assert_eq!((silent.warnings.len(), silent.temperature_celsius), (0, None));
    }

    #[test]
    fn what_becomes_worse_is_told_once() {
        let fine = DriveHealth { used_percent: 99, ..DriveHealth::default() };
        assert_eq!(worse(None, &fine), Vec::<String>::new());
        let bad = of(&log(1));
        assert_eq!(worse(None, &bad), [WARNINGS[0].1, "103 % of its life are used"]);
        let told = worse(Some(&fine), &bad);
        assert_eq!(
            told,
            [WARNINGS[0].1, "7 more errors of its media, 7 in all", "103 % of its life are used"]
        );
        assert_eq!(worse(Some(&bad), &bad), Vec::<String>::new());
    }

    #[test]
    fn a_file_says_nothing_until_it_is_cut() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(8192).unwrap();
        let mut watch = Watch::start([("one".to_owned(), Source::file(&file))]).unwrap();
        watch.add("other".to_owned(), Source::file(&file));
        let known = watch.health().known();
        assert!(known.said.is_empty());
        ["one", "other"].iter().for_each(|name| watch.remove(name));
        assert_eq!(Arc::strong_count(&file), 1, "a drive is let go");
        assert!(Watch::start([]).unwrap().thread.is_none());

        let drives = vec![("one".to_owned(), Source::File(Arc::clone(&file), 8192))];
        // A temporary file has no name.
        let mut round = Round { number: 0, drives, health: Health::default() };
        round.look();
        assert!(round.health.known().damage["one"].starts_with("was deleted"));
        file.set_len(4096).unwrap();
        round.look();
        assert!(round.health.known().damage["one"].starts_with("has 4096 bytes now"));
    }
}
