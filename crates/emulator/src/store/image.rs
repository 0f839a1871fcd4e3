//! The file of a device: its header, which all layouts have, and the lock on it (`file` draws the header).

use crate::{DeviceError, Profile};
use diecut_units::checksum;
use std::fs::File;
use std::mem::offset_of;
use std::path::Path;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a file begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    check: U32,
    seed: U64,
    /// Zeros where the layout follows from the profile alone.
    offsets: Offsets,
    profile_length: U32,
    reserved: [u8; 44],
    profile: [u8; HEADER_SIZE_BYTES - PROFILE_OFFSET],
}

/// Where the regions of a mapped device start.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Offsets {
    pub(crate) table: U64,
    pub(crate) marks: U64,
    pub(crate) protected: U64,
    pub(crate) protected_size: U64,
    pub(crate) oob: U64,
    pub(crate) data: U64,
    pub(crate) file_size: U64,
}

const MAGIC: &[u8; 8] = b"DIECUTEM";
/// A mapped device.
pub(crate) const VERSION_MAPPED: u32 = 3;
/// A mapped device in which the content of each block lies at its number.
pub(crate) const VERSION_WITHOUT_PLACES: u32 = 1;
/// A device of which a sync covers what is done.
pub(crate) const VERSION_SYNCED: u32 = 2;
pub(crate) const HEADER_SIZE_BYTES: usize = 16384;
const PROFILE_OFFSET: usize = 128;
/// From here to its end the header is zeros: the profile ends before.
pub(crate) const ZEROS_OFFSET: u64 = 12288;
const _: () = {
    assert!(size_of::<Header>() == HEADER_SIZE_BYTES);
    assert!(offset_of!(Header, profile_length) == 80 && offset_of!(Header, profile) == PROFILE_OFFSET);
};

/// Most bytes of discarded erase blocks whose room a device keeps for those that are opened next, and never more than an eighth
/// of the device: to give room back and to ask for it again costs the file system twice, and the processor a page fault for each page.
pub(crate) const KEPT_BYTES: u64 = 512 << 20;

/// What is given back in one step.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// A device's file and what its header says.
pub(crate) struct Image {
    pub(crate) file: File,
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    /// Its content is laid out for a sync that covers what is done.
    pub(crate) is_synced: bool,
    pub(crate) version: u32,
    size_bytes: u64,
}

impl Image {
    /// Makes a new file of a size, which is a hole but for its header; it is locked.
    pub(crate) fn create(
        path: &Path,
        version: u32,
        profile: &Profile,
        seed: u64,
        offsets: Offsets,
        size_bytes: u64,
    ) -> Result<File, DeviceError> {
        let failed = |what: &'static str| {
            let path = path.to_owned();
            move |source| DeviceError::File { path, what, source }
        };
        let text = profile.to_toml();
        if PROFILE_OFFSET + text.len() > ZEROS_OFFSET as usize {
            return Err(DeviceError::ProfileTooLong { len_bytes: text.len() });
        }
        let mut header = Header::new_box_zeroed().expect("16 KiB");
        header.magic = *MAGIC;
        header.version = version.into();
        header.seed = seed.into();
        header.offsets = offsets;
        header.profile_length = (text.len() as u32).into();
        header.profile[..text.len()].copy_from_slice(text.as_bytes());
        header.check = checksum(header.as_bytes()).into();
        // The owner's alone from the start: it holds what tenants write.
        use std::os::unix::fs::{FileExt, OpenOptionsExt};
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(failed("cannot be created"))?;
        let made = lock(&file, path)
            .and_then(|()| file.set_len(size_bytes).map_err(failed("cannot be made that large")))
            .and_then(|()| file.write_all_at(header.as_bytes(), 0).map_err(failed("cannot be written")));
        match made {
            Ok(()) => Ok(file),
            Err(error) => {
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Opens and locks a device's file.
    pub(crate) fn open(path: &Path) -> Result<Image, DeviceError> {
        let failed = |what: &'static str| {
            let path = path.to_owned();
            move |source| DeviceError::File { path, what, source }
        };
        let damaged = |what: String| DeviceError::Image { path: path.to_owned(), what };
        let file = File::options().read(true).write(true).open(path).map_err(failed("cannot be opened"))?;
        lock(&file, path)?;
        let size_bytes = file.metadata().map_err(failed("cannot be examined"))?.len();
        let mut header = Header::new_box_zeroed().expect("16 KiB");
        if size_bytes < HEADER_SIZE_BYTES as u64 {
            return Err(damaged(format!(
                "it has {size_bytes} bytes; a device has more than {HEADER_SIZE_BYTES}"
            )));
        }
        use std::os::unix::fs::FileExt;
        file.read_exact_at(header.as_mut_bytes(), 0).map_err(failed("cannot be read"))?;
        let (profile, seed, version) = decode_header(&mut header).map_err(damaged)?;
        Ok(Image { file, profile, seed, is_synced: version == VERSION_SYNCED, version, size_bytes })
    }

    /// Whether the file is as long as its layout.
    pub(crate) fn check_size(&self, path: &Path, wanted_bytes: u64) -> Result<(), DeviceError> {
        let len = self.size_bytes;
        if len == wanted_bytes {
            return Ok(());
        }
        let what = format!(
            "it has {len} bytes but a device of its profile has {wanted_bytes}; it was truncated or grown"
        );
        Err(DeviceError::Image { path: path.to_owned(), what })
    }
}

fn lock(file: &File, path: &Path) -> Result<(), DeviceError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(DeviceError::InUse { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => {
            Err(DeviceError::File { path: path.to_owned(), what: "cannot be locked", source })
        }
    }
}

/// Changes the version of a header, at once with its checksum.
pub(crate) fn set_version(file: &File, version: u32) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut header = Header::new_box_zeroed().expect("16 KiB");
    file.read_exact_at(header.as_mut_bytes(), 0)?;
    header.version = version.into();
    header.check = 0.into();
    header.check = checksum(header.as_bytes()).into();
    file.write_all_at(&header.as_bytes()[8..16], 8)
}

/// Reads a header; any bytes may be in it. Its check is zero afterwards.
fn decode_header(header: &mut Header) -> Result<(Profile, u64, u32), String> {
    if header.magic != *MAGIC {
        return Err("it does not begin as an emulated device does; is it another file?".to_owned());
    }
    let version = header.version.get();
    if ![VERSION_WITHOUT_PLACES, VERSION_SYNCED, VERSION_MAPPED].contains(&version) {
        return Err(format!(
            "it has version {version}; this program knows versions {VERSION_WITHOUT_PLACES} to {VERSION_MAPPED}"
        ));
    }
    let check = std::mem::replace(&mut header.check, 0.into());
    if check != checksum(header.as_bytes()) {
        return Err("its header is damaged (checksum)".to_owned());
    }
    let text = header.profile.get(..header.profile_length.get() as usize).ok_or("the header is cut off")?;
    let text = std::str::from_utf8(text).map_err(|error| format!("its profile is no text: {error}"))?;
    let profile = Profile::from_toml(text).map_err(|error| error.to_string())?;
    Ok((profile, header.seed.get(), version))
}
