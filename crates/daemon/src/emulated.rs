//! The emulated device that a set-up names: whether its image may be opened or made, what it promises, and how one that exists differs from what
//! the set-up says of it.

use crate::error::{ServeError, file_error, warn};
use crate::folder::Unfinished;
use crate::http::DeviceTraits;
use crate::opened::{Age, AllOpened, Cut, Mark, News, Opened, Shown};
use crate::places;
use diecut_api::difference::Difference;
use diecut_api::setup::{Backing, Durability, EmulatedDevice as Wanted, Setup};
use diecut_devices::{Device, DeviceError, Options, Pacing, Profile};
use diecut_reactor::IoFile;
use diecut_spec::Size;
use std::path::Path;

const MADE: &str = "device.img was made in this folder. While this file is here, a server that does not find the image does not start.\n";

/// Nobody gets an empty device in place of one that is gone, or that is not looked at.
pub fn check_folder(wanted: &Wanted, setup: &Setup) -> Result<(), ServeError> {
    let (image, made) = (places::image(setup), places::image_made(setup));
    let (name, mark) = (image.display(), made.display());
    let drives = places::drives_made(setup);
    if drives.exists() {
        return Err(ServeError::Setup(format!(
            "the set-up asks for an emulated device, but this data folder is that of a drive ({} names it): hosts would find empty volumes in \
             place of what is there. Write the drive into the set-up, name another data folder (--data), or remove that file",
            drives.display()
        )));
    }
    if wanted.backing == Backing::Memory && (image.exists() || made.exists()) {
        return Err(ServeError::Setup(format!(
            "device.backing = \"memory\", but this data folder is that of the device in {name}: hosts would find empty volumes in place \
             of what is there. Set it to \"file\", or name another data folder (--data)"
        )));
    }
    if wanted.backing == Backing::File && !image.exists() && made.exists() {
        return Err(ServeError::Setup(format!(
            "{name} was served from this folder and is not there: hosts would find a new device with empty volumes in its place. Put it \
             back, or, if all that it held shall be gone, remove {mark}, and the next start makes a new device"
        )));
    }
    Ok(())
}

/// What a device that survives the death of the machine cannot be beside.
fn check_durability(wanted: &Wanted, setup: &Setup) -> Result<(), ServeError> {
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
    if made == wanted || (file.is_none() && wanted == Wanted::default().durability) {
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
fn volatile_cache(wanted: &Wanted, protected_memory_bytes: u64, is_new: bool) -> Result<bool, ServeError> {
    if !wanted.volatile_cache || protected_memory_bytes == 0 {
        return Ok(wanted.volatile_cache);
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

/// Opens the device, or makes it. `file` is the set-up's, if it has one; `is_profile_named`: its profile was named beside it.
pub fn open(
    wanted: &Wanted,
    setup: &Setup,
    file: Option<&Path>,
    is_profile_named: bool,
) -> Result<AllOpened, ServeError> {
    let Made { device, options, place, made, is_new, differences } =
        open_or_make(wanted, setup, file, is_profile_named)?;
    let is_file = wanted.backing == Backing::File;
    let durability = match device.sync_file() {
        Some(_) => Durability::Machine,
        None => Durability::Process,
    };
    if durability == Durability::Machine && setup.server.shards != 1 {
        return Err(ServeError::Setup(format!(
            "the device in {place} was made with device.durability = \"machine\", which is for one shard, and the server shall have \
             {}: start it with one (--shards 1)",
            setup.server.shards
        )));
    }
    let profile = device.emulated().profile();
    let volatile_cache = volatile_cache(wanted, profile.protected_memory_bytes, is_new)?;
    let traits = DeviceTraits {
        pacing: Some(wanted.pacing),
        durability: is_file.then_some(durability),
        volatile_cache: Some(volatile_cache),
    };
    let cut = Cut {
        geometry: profile.geometry,
        nonces: None,
        endurance_cycles: Some(profile.cell.endurance_cycles),
    };
    let file = is_file.then(|| places::image(setup));
    let mark = is_file.then(|| Mark { path: places::image_made(setup), text: MADE.to_owned() });
    let age = if is_new { Age::New } else { Age::Served };
    let opened = Opened {
        shown: Shown { name: profile.name.clone(), place, what: "emulated", file },
        cut,
        traits,
        io: device.sync_file().map(IoFile::Synced),
        claim: None,
        member: None,
        device,
    };
    let news = News { age, made, mark, differences };
    Ok(AllOpened {
        devices: vec![opened],
        missing: Vec::new(),
        missing_count: 0,
        removed: Vec::new(),
        recipe: Some(options),
        news,
    })
}

/// An emulated device that was opened or made.
struct Made {
    device: Device,
    options: Options,
    place: String,
    made: [Unfinished; 2],
    is_new: bool,
    differences: Vec<Difference>,
}

fn open_or_make(
    wanted: &Wanted,
    setup: &Setup,
    file: Option<&Path>,
    is_profile_named: bool,
) -> Result<Made, ServeError> {
    check_durability(wanted, setup)?;
    let profile = wanted_profile(wanted);
    let pacing = if wanted.pacing { Pacing::Modelled } else { Pacing::Unpaced };
    let options = |backing| Options { backing, pacing, seed: wanted.seed, ..Options::default() };
    if wanted.backing == Backing::Memory {
        let options = options(diecut_devices::Backing::Memory);
        let device = Device::create(&profile?, options.clone())?;
        let place = "memory (gone when the server stops)".to_owned();
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Made { device, options, place, made, is_new: true, differences: Vec::new() });
    }
    let path = places::image(setup);
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
                &Wanted { seed: device.emulated().seed(), ..wanted.clone() },
                profile,
                &place,
            );
        }
        let made = [Unfinished::none(), Unfinished::none()];
        return Ok(Made { device, options, place, made, is_new: false, differences });
    }
    let profile = profile?;
    let gib = profile.geometry.raw_capacity_bytes() >> 30;
    warn(&format!("a new device is made in {place} ({gib} GiB, profile {})", profile.name));
    let pending = places::pending(setup);
    // In front of the image: whatever happens on the way, the next start knows that the set-up is not on it.
    std::fs::write(&pending, "").map_err(file_error(&pending, "cannot be made"))?;
    let made = [Unfinished::new(path), Unfinished::new(pending)];
    let device = Device::create(&profile, options.clone())?;
    Ok(Made { device, options, place, made, is_new: true, differences: Vec::new() })
}

/// The least protected memory a built-in profile is served with, in bytes: block states and vSSDs need it.
const PROTECTED_MEMORY_MIN_BYTES: u64 = 64 << 20;

fn wanted_profile(wanted: &Wanted) -> Result<Profile, DeviceError> {
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
    let (exists, seed) = (device.emulated().profile(), device.emulated().seed());
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
    push("seed", wanted.seed.to_string(), seed.to_string());
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
        let cache = |is, bytes, is_new| {
            volatile_cache(&Wanted { volatile_cache: is, ..Wanted::default() }, bytes, is_new)
        };
        let wanted = true;
        assert!(!cache(false, 0, true).unwrap() && !cache(false, 1 << 20, true).unwrap());
        assert!(cache(wanted, 0, true).unwrap() && cache(wanted, 0, false).unwrap());
        assert!(!cache(wanted, 1 << 20, false).unwrap(), "a device that exists is served as it was made");
        let refused = cache(wanted, 1 << 20, true).unwrap_err().to_string();
        assert!(
            refused.contains("device.volatile_cache") && refused.contains("protected_memory"),
            "{refused}"
        );
    }
}
