use super::contents::{Class, Contents};
use super::open::{Access, LocalDevice};
use super::zone_labels::{Direct, InZones};
use diecut_drives::{Label, LabelCopy, LabelError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use uuid::Uuid;

/// Bytes that are zeroed at once.
const PIECE_BYTES: u64 = 64 << 10;
/// What belongs to no erase block at each end of a drive.
const MARGIN_BYTES: u64 = 1 << 20;
/// What is zeroed around a signature that lies between: whole blocks of any drive.
const BLOCK_BYTES: u64 = 4096;

/// Where labels lie: bytes that are read, written, and made durable.
pub trait LabelPlace {
    /// How many bytes there are.
    fn size_bytes(&self) -> u64;

    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// What the drive says.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes a buffer at an offset.
    ///
    /// # Errors
    /// What the drive says.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What the drive says. What was written before may be lost then, whatever a later call says.
    fn flush(&mut self) -> io::Result<()>;

    /// Fills a buffer with a copy of the label.
    ///
    /// # Errors
    /// What the drive says.
    fn read_copy(&self, copy: LabelCopy, into: &mut [u8]) -> io::Result<()> {
        self.read(copy.offset(self.size_bytes()), into)
    }

    /// Writes a copy of the label.
    ///
    /// # Errors
    /// What the drive says.
    fn write_copy(&mut self, copy: LabelCopy, bytes: &[u8]) -> io::Result<()> {
        self.write(copy.offset(self.size_bytes()), bytes)
    }

    /// Zeroes what is recognized, and both margins, durably: nobody else takes the drive for theirs afterwards.
    ///
    /// # Errors
    /// What the drive says.
    fn clear(&mut self, contents: &Contents) -> io::Result<()> {
        let size_bytes = self.size_bytes();
        // Signatures lie at the ends, or in blocks of their own.
        let end = LabelCopy::Second.offset(size_bytes);
        zero(self, 0, MARGIN_BYTES)?;
        zero(self, end, size_bytes - end)?;
        for offset in contents.found.iter().flat_map(|found| &found.offsets) {
            let begin = offset / BLOCK_BYTES * BLOCK_BYTES;
            zero(self, begin, BLOCK_BYTES.min(size_bytes - begin))?;
        }
        self.flush()
    }
}

/// The label of a drive, as it lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLabel {
    /// The newer whole copy.
    pub label: Label,
    /// The copy that the next change overwrites first.
    pub next: LabelCopy,
    /// How the other copy is.
    pub other: OtherCopy,
}

/// The copy of a label that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherCopy {
    /// It says the same.
    Same,
    /// It is older: a change was cut short. It has this number.
    Older(u64),
    /// It is of the same number, and says something else: no program of ours leaves that.
    Contradicts,
    /// It is missing or damaged.
    Bad(LabelError),
}

/// Why a label cannot be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum LabelingError {
    /// No label can be gone by.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The copies of a label contradict each other.
    #[error(
        "both copies of its label have the number {0} and say different things; which one is right nobody can tell"
    )]
    Contradiction(u64),
    /// The drive is smaller than its label says.
    #[error("it has {size_bytes} bytes, and {needed_bytes} are needed for how it is cut")]
    TooSmall {
        /// What it has.
        size_bytes: u64,
        /// What it takes.
        needed_bytes: u64,
    },
    /// Something else lies on it.
    #[error("it holds {}; nothing was written. What it holds is lost if this is forced (--force)", .0.join(" and "))]
    Holds(Vec<String>),
    /// It was a device of diecut before.
    #[error(
        "it is the device {device} of the server {server}; nothing was written. What that server has on it is lost if this is forced (--force)"
    )]
    Belongs {
        /// Its UUID.
        device: Uuid,
        /// Whose it is.
        server: Uuid,
    },
    /// It is this server's already.
    #[error("it is the device {0} of this server already; nothing was written")]
    Ours(Uuid),
    /// The number of a label does not rise.
    #[error("a label with number {new} cannot follow one with number {old}")]
    Number {
        /// On the drive.
        old: u64,
        /// To be written.
        new: u64,
    },
    /// A label of another device is to be written.
    #[error("it is the device {found}, and the label is of {wanted}")]
    OtherDevice {
        /// On the drive.
        found: Uuid,
        /// To be written.
        wanted: Uuid,
    },
    /// After all was written something else is still recognized.
    #[error("it still holds {} after it was overwritten; see whether somebody else writes to it", .0.join(" and "))]
    Remains(Vec<String>),
    /// What the label promises could not be put on it.
    #[error("{0}; it has no label now, and what it held is gone")]
    Filling(String),
    /// The drive failed.
    #[error("its label cannot be {what}: {error}")]
    Io {
        /// Read, written or flushed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> LabelingError {
    move |error| LabelingError::Io { what, error }
}

/// Reads the label of a drive.
///
/// # Errors
/// If there is none to go by, or it is of a larger drive.
pub fn read_label(place: &(impl LabelPlace + ?Sized)) -> Result<FoundLabel, LabelingError> {
    let size_bytes = place.size_bytes();
    if size_bytes < Label::DRIVE_BYTES_MIN {
        return Err(LabelError::Missing.into());
    }
    let copy = |copy: LabelCopy| {
        let mut bytes = vec![0; Label::SIZE_BYTES];
        place.read_copy(copy, &mut bytes).map(|()| bytes)
    };
    let (first, second) = match (copy(LabelCopy::First), copy(LabelCopy::Second)) {
        (Err(error), Err(_)) => return Err(failed("read")(error)),
        // A copy that cannot be read is one that is damaged.
        (first, second) => (first.unwrap_or_else(|_| damaged()), second.unwrap_or_else(|_| damaged())),
    };
    let (label, next) = Label::choose(&first, &second)?;
    let other = match Label::decode(if next == LabelCopy::First { &first } else { &second }) {
        Ok(other) if other == label => OtherCopy::Same,
        Ok(other) if other.number == label.number => return Err(LabelingError::Contradiction(label.number)),
        Ok(other) => OtherCopy::Older(other.number),
        Err(error) => OtherCopy::Bad(error),
    };
    let needed_bytes = label.shape.needed_bytes();
    if size_bytes < needed_bytes {
        return Err(LabelingError::TooSmall { size_bytes, needed_bytes });
    }
    Ok(FoundLabel { label, next, other })
}

/// Bytes that are a label of which the check is wrong.
fn damaged() -> Vec<u8> {
    let mut bytes = vec![0; Label::SIZE_BYTES];
    bytes[..8].copy_from_slice(b"DIECUTLB");
    bytes
}

/// Changes the label of a drive: the older copy first, then a flush, then the other one (R11 in `docs/design/one-format.md`). The change holds when this
/// returns; a cut before leaves the old label or the new one.
///
/// # Errors
/// If the drive has no label of this device, or a number that is not lower.
pub fn change_label(place: &mut (impl LabelPlace + ?Sized), label: &Label) -> Result<(), LabelingError> {
    let found = read_label(place)?;
    if found.label.device != label.device {
        let (found, wanted) = (Uuid::from_bytes(found.label.device), Uuid::from_bytes(label.device));
        return Err(LabelingError::OtherDevice { found, wanted });
    }
    if found.label.number >= label.number {
        return Err(LabelingError::Number { old: found.label.number, new: label.number });
    }
    let is_newer_first = diecut_units::mutant!("devices: the newer copy of a label is overwritten first");
    write_copies(place, label, if is_newer_first { found.next.other() } else { found.next })
}

fn write_copies(
    place: &mut (impl LabelPlace + ?Sized),
    label: &Label,
    first: LabelCopy,
) -> Result<(), LabelingError> {
    let bytes = label.encode();
    place.write_copy(first, &bytes).map_err(failed("written"))?;
    if !diecut_units::mutant!("devices: both copies of a label are written before a flush") {
        place.flush().map_err(failed("flushed"))?;
    }
    place.write_copy(first.other(), &bytes).map_err(failed("written"))?;
    place.flush().map_err(failed("flushed"))
}

/// Makes a drive a device of diecut: what is recognized on it, and both of its margins, are zeroed, `fill` puts there what the label promises, and it
/// gets a label. `contents` is what lies on it.
///
/// # Errors
/// If the drive is too small, or something lies on it and this is not forced. A device of this server is refused in any case: it is to be removed
/// first. What `fill` says goes on as it is.
pub fn format(
    place: &mut impl LabelPlace,
    contents: &Contents,
    label: &Label,
    force: bool,
    fill: impl FnOnce() -> Result<(), String>,
) -> Result<(), LabelingError> {
    check_format(place, contents, label, force)?;
    place.clear(contents).map_err(failed("written"))?;
    fill().map_err(LabelingError::Filling)?;
    write_copies(place, label, LabelCopy::First)
}

/// What [`format()`] refuses, without writing anything.
///
/// # Errors
/// As [`format()`].
pub fn check_format(
    place: &(impl LabelPlace + ?Sized),
    contents: &Contents,
    label: &Label,
    force: bool,
) -> Result<(), LabelingError> {
    let (size_bytes, needed_bytes) = (place.size_bytes(), label.shape.needed_bytes());
    if size_bytes < needed_bytes {
        return Err(LabelingError::TooSmall { size_bytes, needed_bytes });
    }
    if let Ok(found) = read_label(place) {
        let (device, server) = (Uuid::from_bytes(found.label.device), Uuid::from_bytes(found.label.server));
        if found.label.server == label.server {
            return Err(LabelingError::Ours(device));
        }
        let is_alone = contents.found.iter().all(|found| found.class == Class::Diecut);
        if !force && is_alone {
            return Err(LabelingError::Belongs { device, server });
        }
    }
    if !force && !contents.is_free() {
        return Err(LabelingError::Holds(contents.words()));
    }
    Ok(())
}

/// Zeroes what is recognized on a drive, and both of its margins: the first step of a format, where several drives are formatted together.
///
/// # Errors
/// If the drive cannot be written.
pub fn clear(place: &mut (impl LabelPlace + ?Sized), contents: &Contents) -> Result<(), LabelingError> {
    place.clear(contents).map_err(failed("written"))
}

/// Gives a drive a label, the last step of a format, when what that promises is there. `look` says what lies on it then.
///
/// # Errors
/// If the drive cannot be written, or something else is recognized on it afterwards.
pub fn give_label(
    place: &mut (impl LabelPlace + ?Sized),
    label: &Label,
    look: impl FnOnce() -> Result<Contents, LabelingError>,
) -> Result<(), LabelingError> {
    write_copies(place, label, LabelCopy::First)?;
    let rest = look()?.found.into_iter().filter(|found| found.kind != "diecut_label");
    let rest: Vec<String> = rest.map(|found| found.words()).collect();
    if rest.is_empty() { Ok(()) } else { Err(LabelingError::Remains(rest)) }
}

fn zero<P: LabelPlace + ?Sized>(place: &mut P, begin: u64, len: u64) -> io::Result<()> {
    let (zeros, end) = (vec![0; PIECE_BYTES as usize], begin + len);
    for at in (begin..end).step_by(PIECE_BYTES as usize) {
        place.write(at, &zeros[..(end - at).min(PIECE_BYTES) as usize])?;
    }
    Ok(())
}

/// A device that is open, through the page cache: labels are not blocks of the drive, and its end need not be one.
struct Buffered {
    file: File,
    size_bytes: u64,
}

impl LabelPlace for Buffered {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Where the labels of a local device lie.
enum OwnPlace {
    Buffered(Buffered),
    InZones(InZones<Direct>),
}

impl OwnPlace {
    fn place(&self) -> &dyn LabelPlace {
        match self {
            OwnPlace::Buffered(place) => place,
            OwnPlace::InZones(place) => place,
        }
    }

    fn place_mut(&mut self) -> &mut dyn LabelPlace {
        match self {
            OwnPlace::Buffered(place) => place,
            OwnPlace::InZones(place) => place,
        }
    }
}

impl LabelPlace for OwnPlace {
    fn size_bytes(&self) -> u64 {
        self.place().size_bytes()
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.place().read(offset, into)
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.place_mut().write(offset, bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.place_mut().flush()
    }
    fn read_copy(&self, copy: LabelCopy, into: &mut [u8]) -> io::Result<()> {
        self.place().read_copy(copy, into)
    }
    fn write_copy(&mut self, copy: LabelCopy, bytes: &[u8]) -> io::Result<()> {
        self.place_mut().write_copy(copy, bytes)
    }
    fn clear(&mut self, contents: &Contents) -> io::Result<()> {
        self.place_mut().clear(contents)
    }
}

impl LocalDevice {
    /// Where its labels lie. It is opened once more, by its number: the name may be another file's by now.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn label_place(&self) -> Result<impl LabelPlace + use<>, LabelingError> {
        let path = format!("/proc/self/fd/{}", self.file().as_raw_fd());
        let size_bytes = self.properties().size_bytes;
        let mut options = OpenOptions::new();
        options.read(true).write(self.access == Access::Own);
        Ok(match self.zoning().map_err(failed("found among its zones"))? {
            Some(zoning) => {
                options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
                let file = options.open(path).map_err(failed("opened"))?;
                OwnPlace::InZones(InZones::new(Direct(file), size_bytes, zoning))
            }
            None => {
                let file = options.open(path).map_err(failed("opened"))?;
                OwnPlace::Buffered(Buffered { file, size_bytes })
            }
        })
    }

    /// Its label.
    ///
    /// # Errors
    /// See [`read_label`].
    pub fn label(&self) -> Result<FoundLabel, LabelingError> {
        read_label(&self.label_place()?)
    }

    /// Makes it a device of diecut; see [`format()`]. It looks by itself at what lies there, before and afterwards. `fill` has it to itself.
    ///
    /// # Errors
    /// See [`format()`].
    ///
    /// # Panics
    /// If it was opened to look at only.
    pub fn format(
        &self,
        label: &Label,
        force: bool,
        fill: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), LabelingError> {
        assert_eq!(self.access, Access::Own, "what is written to is owned");
        let contents = self.look()?;
        check_format(&self.label_place()?, &contents, label, force)?;
        clear(&mut self.label_place()?, &contents)?;
        fill().map_err(LabelingError::Filling)?;
        give_label(&mut self.label_place()?, label, || self.look())
    }

    /// What lies on it, for its label.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn look(&self) -> Result<Contents, LabelingError> {
        Contents::of_file(self.file(), self.properties().size_bytes).map_err(failed("read"))
    }

    /// Changes its label; see [`change_label`].
    ///
    /// # Errors
    /// See [`change_label`].
    ///
    /// # Panics
    /// If it was opened to look at only.
    pub fn change_label(&self, label: &Label) -> Result<(), LabelingError> {
        assert_eq!(self.access, Access::Own, "what is written to is owned");
        change_label(&mut self.label_place()?, label)
    }
}
