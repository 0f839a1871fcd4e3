//! The device that a set-up names: whether its image may be opened or made, what it promises, and how one that exists differs from what
//! the set-up says of it.

use crate::error::{ServeError, file_error, warn};
use crate::folder::Unfinished;
use diecut_api::difference::Difference;
use diecut_api::setup::{Backing, Device as Wanted, Durability, Setup};
use diecut_devices::{Device, DeviceError, Options, Pacing, Profile};
use diecut_spec::Size;
use std::path::{Path, PathBuf};

pub fn image_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.img")
}

/// A device was served from the data folder: the file is there from then on, so that an image that is gone is missed.
fn made_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("device.made")
}

const MADE: &str = "device.img was made in this folder. While this file is here, a server that does not find the image does not start.\n";

/// Leaves the mark that a device is here. A server without it serves as well.
pub fn mark_made(setup: &Setup) {
    let path = made_path(setup);
    if let Err(error) = std::fs::write(&path, MADE)
        && !path.exists()
    {
        warn(&format!(
            "{} cannot be made ({error}): if the image goes away, nobody will miss it",
            path.display()
        ));
    }
}

/// Nobody gets an empty device in place of one that is gone, or that is not looked at.
pub fn check_image(setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (image_path(setup), made_path(setup));
    let (name, mark) = (image.display(), made.display());
    if setup.device.backing == Backing::Memory && (image.exists() || made.exists()) {
        return Err(ServeError::Setup(format!(
            "device.backing = \"memory\", but this data folder is that of the device in {name}: hosts would find empty volumes in place \
             of what is there. Set it to \"file\", or name another data folder (--data)"
        )));
    }
    if setup.device.backing == Backing::File && !image.exists() && made.exists() {
        return Err(ServeError::Setup(format!(
            "{name} was served from this folder and is not there: hosts would find a new device with empty volumes in its place. Put it \
             back, or, if all that it held shall be gone, remove {mark}, and the next start makes a new device"
        )));
    }
    Ok(())
}

/// A set-up is being brought onto a new device, and was not yet in whole: the file is there until it was.
pub fn pending_path(setup: &Setup) -> PathBuf {
    setup.server.data.join("setup.pending")
}

/// A device that was opened.
pub struct Opened {
    pub device: Device,
    pub options: Options,
    /// For people: where its content is.
    pub place: String,
    /// What this process made of it: removed unless the server starts.
    pub made: [Unfinished; 2],
    /// It holds nothing yet.
    pub is_new: bool,
    /// How it differs from what the set-up says of it.
    pub differences: Vec<Difference>,
}

/// What a device that survives the death of the machine cannot be beside.
fn check_durability(setup: &Setup) -> Result<(), ServeError> {
    let wanted = &setup.device;
    if wanted.durability == Durability::Process {
        return Ok(());
    }
    let refuse = |text: String| Err(ServeError::Setup(text));
    if wanted.backing == Backing::Memory {
        return refuse(
            "device.durability = \"machine\" is for a device in a file, and device.backing is \"memory\": leave one of them out"
                .to_owned(),
        );
    }
    if setup.server.shards != 1 {
        return refuse(format!(
            "device.durability = \"machine\" is for one shard, which syncs the file, but server.shards = {}: set it to 1, or \
             use device.durability = \"process\"",
            setup.server.shards
        ));
    }
    if let Some(size) = wanted.protected_memory.filter(|size| size.bytes() > 0) {
        return refuse(format!(
            "device.protected_memory = \"{}\": a device with durability = \"machine\" has no protected memory, for no memory \
             survives the death of the machine; leave it out",
            size.exact()
        ));
    }
    Ok(())
}

/// A device's file is laid out for one durability; what exists is not changed, and what it promises is not guessed.
fn check_made_durability(
    wanted: Durability,
    file: Option<&Path>,
    device: &Device,
    place: &str,
) -> Result<(), ServeError> {
    let name = |durability| if durability == Durability::Machine { "machine" } else { "process" };
    let made = if device.sync_file().is_some() { Durability::Machine } else { Durability::Process };
    // Without a file, nobody said anything.
    if made == wanted || (file.is_none() && wanted == diecut_api::setup::Device::default().durability) {
        return Ok(());
    }
    Err(ServeError::Setup(format!(
        "the device in {place} was made with device.durability = \"{}\", and the set-up says \"{}\"{}: a device keeps what it was \
         made with. Write that into the set-up, or name another data folder (--data) for a new device",
        name(made),
        name(wanted),
        if wanted == Durability::Process { ", which is the default" } else { "" },
    )))
}

/// A cache in front of memory that survives a cut anyway would only make hosts flush. It is refused for a new device; on one that exists
/// nobody can take the memory away any more, and it is a warning. Whether there is a cache.
pub fn volatile_cache(setup: &Setup, protected_memory_bytes: u64, is_new: bool) -> Result<bool, ServeError> {
    if !setup.device.volatile_cache || protected_memory_bytes == 0 {
        return Ok(setup.device.volatile_cache);
    }
    if !is_new {
        warn(&format!(
            "device.volatile_cache = true counts for a device without protected memory, and this one was made with \
             {protected_memory_bytes} bytes: there is no such cache, and acknowledged writes are durable. Leave it out of the set-up"
        ));
        return Ok(false);
    }
    Err(ServeError::Setup(format!(
        "device.volatile_cache is for a device without protected memory, and this one has {protected_memory_bytes} bytes: leave it \
         out, or set device.protected_memory = \"0\" for a new device"
    )))
}

pub fn open_device(setup: &Setup, file: Option<&Path>, is_profile_named: bool) -> Result<Opened, ServeError> {
    let wanted = &setup.device;
    check_durability(setup)?;
    let profile = wanted_profile(wanted);
    let pacing = if wanted.pacing { Pacing::Modelled } else { Pacing::Unpaced };
    let options = |backing| Options { backing, pacing, seed: wanted.seed, ..Options::default() };
    if wanted.backing == Backing::Memory {
        let options = options(diecut_devices::Backing::Memory);
        let device = Device::create(&profile?, options.clone())?;
        let place = "memory (gone when the server stops)".to_owned();
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Opened { device, options, place, made, is_new: true, differences: Vec::new() });
    }
    let path = image_path(setup);
    let options = options(match wanted.durability {
        Durability::Process => diecut_devices::Backing::File(path.clone()),
        Durability::Machine => diecut_devices::Backing::SyncedFile(path.clone()),
    });
    let place = path.display().to_string();
    if path.exists() {
        let device = Device::open(&path, options.clone())?;
        check_made_durability(wanted.durability, file, &device, &place)?;
        // Without a file, what nobody named on the command line is a default that nobody wrote.
        let mut differences = Vec::new();
        if file.is_some() {
            differences = device_differences(&device, wanted, profile, &place);
        } else if is_profile_named {
            differences = device_differences(
                &device,
                &Wanted { seed: device.seed(), ..wanted.clone() },
                profile,
                &place,
            );
        }
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Opened { device, options, place, made, is_new: false, differences });
    }
    let profile = profile?;
    let gib = profile.geometry.raw_capacity_bytes() >> 30;
    warn(&format!("a new device is made in {place} ({gib} GiB, profile {})", profile.name));
    let pending = pending_path(setup);
    // In front of the image: whatever happens on the way, the next start knows that the set-up is not on it.
    std::fs::write(&pending, "").map_err(file_error(&pending, "cannot be made"))?;
    let made = [Unfinished::new(path), Unfinished::new(pending)];
    let device = Device::create(&profile, options.clone())?;
    Ok(Opened { device, options, place, made, is_new: true, differences: Vec::new() })
}

/// The least protected memory a built-in profile is served with, in bytes: block states and vSSDs need it.
const PROTECTED_MEMORY_MIN_BYTES: u64 = 64 << 20;

fn wanted_profile(wanted: &diecut_api::setup::Device) -> Result<Profile, DeviceError> {
    let mut profile = crate::profile::named_or_file(&wanted.profile)?;
    match wanted.protected_memory {
        _ if wanted.durability == Durability::Machine => profile.protected_memory_bytes = 0,
        Some(size) => profile.protected_memory_bytes = size.bytes(),
        // Those for tests have less than a server needs; a file's profile is as it says.
        None if Profile::named(&wanted.profile).is_ok() && profile.protected_memory_bytes > 0 => {
            profile.protected_memory_bytes = profile.protected_memory_bytes.max(PROTECTED_MEMORY_MIN_BYTES);
        }
        None => {}
    }
    Ok(profile)
}

/// What exists wins; a profile that cannot be read is a difference, too. Each field that makes a device is named.
fn device_differences(
    device: &Device,
    wanted: &Wanted,
    profile: Result<Profile, DeviceError>,
    place: &str,
) -> Vec<Difference> {
    let exists = device.profile();
    let mut found = Vec::new();
    let mut push = |field: &str, declared: String, exists: String| {
        if declared == exists {
            return;
        }
        let remedy = "the device stays as it was made: write that into the set-up, or name another data folder (--data)";
        found.push(Difference {
            kind: "device".to_owned(),
            name: place.to_owned(),
            field: Some(field.to_owned()),
            declared,
            exists: Some(exists),
            remedy: remedy.to_owned(),
        });
    };
    push("seed", wanted.seed.to_string(), device.seed().to_string());
    let is_other = profile.as_ref().map_or(true, |profile| profile.name != exists.name);
    match &profile {
        Err(error) => {
            push("profile", format!("another one, which cannot be read ({error})"), exists.name.clone());
        }
        Ok(profile) if is_other => push("profile", profile.name.clone(), exists.name.clone()),
        Ok(profile) => {
            for (field, exists, declared) in exists.differences(profile) {
                push(&format!("profile's {field}"), declared, exists);
            }
        }
    }
    // What another profile has is no wish of its own.
    let declared = match (&profile, wanted.protected_memory) {
        (_, Some(size)) => Some(size),
        (Ok(profile), None) if !is_other => Some(Size(profile.protected_memory_bytes)),
        _ => None,
    };
    if let Some(declared) = declared.filter(|_| device.sync_file().is_none()) {
        push("protected_memory", declared.exact(), Size(exists.protected_memory_bytes).exact());
    }
    found
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_volatile_cache_is_for_devices_without_protected_memory() {
        let cache =
            |text: &str, bytes, is_new| volatile_cache(&Setup::from_toml(text).unwrap(), bytes, is_new);
        let wanted = "[device]\nvolatile_cache = true";
        assert!(!cache("", 0, true).unwrap() && !cache("", 1 << 20, true).unwrap());
        assert!(cache(wanted, 0, true).unwrap() && cache(wanted, 0, false).unwrap());
        assert!(!cache(wanted, 1 << 20, false).unwrap(), "a device that exists is served as it was made");
        let refused = cache(wanted, 1 << 20, true).unwrap_err().to_string();
        assert!(
            refused.contains("device.volatile_cache") && refused.contains("protected_memory"),
            "{refused}"
        );
    }
}
