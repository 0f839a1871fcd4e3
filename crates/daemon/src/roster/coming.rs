//! A drive on its way to be a device of a pool whose server runs.

use super::{Member, Problem, ProblemKind, Roster, again, check_labels, invalid, problem};
use crate::add::is_left_over;
use crate::convert;
use crate::drive::{HandedOver, Usage, system_area};
use crate::drives;
use crate::folder::Unfinished;
use crate::format::{Chosen, FormatOptions, checked, choose, named};
use crate::held::Held;
use crate::http::DevicePlace;
use crate::opened::{Cut, source_of};
use crate::places;
use crate::remote_host::RemoteHost;
use crate::shards::device_config;
use diecut_api::object::{AddedDevice, NewDevice};
use diecut_api::place::Place;
use diecut_devices::{DEVICES_MAX, Device, Label, LabelDevice, Membership, WantedCut, list_with};
use diecut_reactor::IoFile;
use diecut_shard::control::{ControlErrorKind, DeviceTurn};
use diecut_shard::drive::Newcomer;
use diecut_shard::{DeviceConfig, DeviceIndex, Nonces, PoolConfig, divide};
use diecut_spec::{Size, check_name};
use std::io::Write;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// See the module. The shards have it.
pub(super) struct Coming {
    path: PathBuf,
    member: Member,
    /// What its own label says first.
    label: Label,
    has_label: bool,
    file: Option<PathBuf>,
    io: IoFile,
    /// Of a file that was made for it.
    new: Unfinished,
}

/// A drive that was examined, and how it is to be cut.
struct Examined {
    chosen: Chosen,
    label: Label,
    name: String,
}

impl Roster {
    /// Makes a drive a device of the pool. What was cut short goes on where it was.
    ///
    /// # Errors
    /// Names the drive and what speaks against it.
    pub(crate) fn add(&self, wanted: &NewDevice) -> Result<AddedDevice, Problem> {
        let mut inner = self.alone()?;
        let inner = &mut *inner;
        check_labels(&inner.found, "add the drive to it (`diecut device add DRIVE --to DRIVE...`)")?;
        if let Some(other) = inner.coming.as_ref().filter(|coming| coming.path != Path::new(&wanted.path)) {
            let path = other.path.display();
            return Err(problem(
                ProblemKind::Busy,
                format!("{path} is being added, which was cut short: `diecut device add {path}` first"),
            ));
        }
        let mut coming = match inner.coming.take() {
            Some(coming) => coming,
            None => {
                let examined = self.examine(&inner.found, wanted)?;
                let index = DeviceIndex(inner.found.indexes);
                inner.found.indexes += 1;
                self.bring(examined, index, inner.found.volatile_cache)?
            }
        };
        let device = coming.member.device;
        if let Err(error) = self.turn(device, DeviceTurn::Comes) {
            if error.kind == ControlErrorKind::Unfinished {
                inner.coming = Some(coming);
            } else {
                self.abandon(&coming)?;
            }
            return Err(convert::problem(error));
        }
        if !coming.has_label {
            let given = coming.held().drive.give_label(&coming.label);
            if let Err(error) = given {
                self.abandon(&coming)?;
                return Err(invalid(named(coming.held().place(), &error)));
            }
            coming.has_label = true;
            coming.new.keep();
        }
        if let Err(problem) = list(&mut inner.found.members, &mut coming) {
            inner.coming = Some(coming);
            return Err(problem);
        }
        if let Err(error) = self.turn_at_last(device, DeviceTurn::Joined) {
            inner.coming = Some(coming);
            return Err(convert::problem(error));
        }
        let Coming { member, label, file, io, path, .. } = coming;
        let place = DevicePlace { path: Some(path.display().to_string()), file };
        self.facts(|facts| {
            facts.places.insert(member.name.clone(), place);
            let real = |path: &Path| std::fs::canonicalize(path).ok();
            let is_it = |other: &String| real(Path::new(other)) == real(&path);
            facts.missing.retain(|missing| !missing.path.as_ref().is_some_and(is_it));
        });
        self.note_served(device, &path);
        source_of(&io).into_iter().for_each(|source| inner.watch.add(member.name.clone(), source));
        let added = AddedDevice {
            path: path.display().to_string(),
            name: member.name.clone(),
            device,
            pool: Uuid::from_bytes(label.server),
            lanes: label.shape.lanes,
            blocks_per_lane: label.shape.blocks_per_lane,
            erase_block: Size(label.shape.block_size_bytes),
        };
        inner.found.members.push(member);
        Ok(added)
    }

    /// Whether the drive can be one of the pool, and how. Nothing is written.
    fn examine(&self, found: &super::Found, wanted: &NewDevice) -> Result<Examined, Problem> {
        let path = Path::new(&wanted.path);
        let refuse = |message: String| Err(problem(ProblemKind::Invalid, message));
        if !path.is_absolute() {
            return refuse(format!("{}: write its path from the root on", wanted.path));
        }
        if let Some(Err(message)) = wanted.name.as_ref().map(|name| check_name("device", name)) {
            return refuse(message);
        }
        let name = wanted.name.clone().unwrap_or_else(|| wanted.path.clone());
        let place = Place::Path(path.to_owned());
        if let Some(member) = found.members.iter().find(|member| member.held.place().is_same_drive(&place)) {
            return refuse(format!(
                "{}: this server has that drive already, as the device \"{}\" ({})",
                wanted.path,
                member.name,
                member.held.place()
            ));
        }
        if found.members.iter().any(|member| member.name == name) {
            return refuse(format!(
                "a device is called \"{name}\" already; name this one otherwise (--name)"
            ));
        }
        let options = FormatOptions {
            force: wanted.force,
            cut: WantedCut {
                lanes: wanted.lanes,
                block_size_bytes: wanted.erase_block.map(|size| size.bytes()),
                apart: false,
            },
            size_bytes: wanted.size.map(|size| size.bytes()),
        };
        let place = Place::Path(path.to_owned());
        let host = RemoteHost::new().map_err(invalid)?;
        let mut chosen = choose(&place, options, &host).map_err(invalid)?;
        let first = &found.members.first().expect("checked before").held.label;
        if options.cut.block_size_bytes.is_none() {
            let alike = chosen
                .drive
                .shape(WantedCut { block_size_bytes: Some(first.shape.block_size_bytes), ..options.cut });
            chosen.shape = checked(&place, alike).unwrap_or(chosen.shape);
        }
        if chosen.drive.has_volatile_cache() && !found.volatile_cache {
            return refuse(format!(
                "{}: it has a volatile cache, and hosts of this server were told that nothing they use has one: stop the server and add it then \
                 (`diecut device add DRIVE --to DRIVE...`)",
                wanted.path
            ));
        }
        let devices = joining(first, chosen.device, Membership::Joining);
        if devices.len() > DEVICES_MAX {
            return refuse(format!("the pool has {DEVICES_MAX} devices already, and no pool has more"));
        }
        let label = Label {
            number: 1,
            device: chosen.device,
            shape: chosen.shape,
            system: system_area(&PoolConfig::suited_to(&chosen.shape.geometry())),
            devices,
            ..first.clone()
        };
        if !is_left_over(&chosen, first.server) {
            let fits = chosen.drive.check_format(&label, options.force);
            fits.map_err(|error| invalid(named(&place, &error)))?;
        }
        Ok(Examined { chosen, label, name })
    }

    /// Gives it to the shards, with nothing on it.
    fn bring(&self, examined: Examined, index: DeviceIndex, volatile_cache: bool) -> Result<Coming, Problem> {
        let Examined { chosen: Chosen { drive, new, shape, device }, label, name } = examined;
        let Place::Path(path) = drive.place().clone() else { unreachable!("a path was named") };
        drive.clear().map_err(|error| invalid(named(drive.place(), &error)))?;
        let cut = Cut {
            geometry: shape.geometry(),
            nonces: Some(Nonces::new(label.secret, label.device)),
            endurance_cycles: None,
        };
        let config = device_config(&self.setup, &name, &cut, (volatile_cache, false)).map_err(invalid)?;
        let config = DeviceConfig { makes_pool: true, ..config };
        let medium = drive.medium(shape, Usage { volatile_cache, discards: is_told_of_discards(&path) });
        let medium = medium.map_err(invalid)?;
        let (HandedOver { io, file, .. }, rest) = drive.hand_over().map_err(invalid)?;
        let IoFile::Ring(ring_file) = &io else { unreachable!("a drive of this machine") };
        let parts = divide(Device::Drive(medium), self.setup.server.shards).into_iter();
        let parts = parts.map(|(_, part)| Newcomer::new(index, part, config.clone())).collect();
        let brought = self.shards.bring(ring_file, parts);
        brought.map_err(|error| problem(ProblemKind::Invalid, format!("{}: {error}", path.display())))?;
        let held = Held::labelled(rest, label.clone());
        let member = Member { index, name, device: Uuid::from_bytes(device), held };
        Ok(Coming { path, member, label, has_label: false, file, io, new })
    }

    /// No label knows it: it is let go.
    fn abandon(&self, coming: &Coming) -> Result<(), Problem> {
        self.turn_at_last(coming.member.device, DeviceTurn::Went).map_err(convert::problem)?;
        self.shards.take_away(coming.member.index);
        Ok(())
    }

    /// The data folder is that of the new one, too.
    fn note_served(&self, device: Uuid, path: &Path) {
        let made = places::drives_made(&self.setup);
        let line = drives::line(device, &path.display().to_string());
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&made);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            tracing::warn!(
                "{} cannot be written ({error}): if the device goes away, nobody will miss it",
                made.display()
            );
        }
    }
}

impl Coming {
    fn held(&self) -> &Held {
        &self.member.held
    }
}

/// Block devices are told what holds nothing any more; files are not, unless a set-up says so.
fn is_told_of_discards(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// What labels say of the pool while a device comes to it.
fn joining(first: &Label, device: [u8; 16], membership: Membership) -> Vec<LabelDevice> {
    list_with(&first.devices, LabelDevice { device, membership, since: first.epoch })
}

/// R13: all labels say that it joins, its own first; then that it is there, its own last.
fn list(members: &mut [Member], coming: &mut Coming) -> Result<(), Problem> {
    let device = *coming.member.device.as_bytes();
    let first = members.first().expect("checked before").held.label.clone();
    for membership in [Membership::Joining, Membership::There] {
        let devices = joining(&first, device, membership);
        for member in &mut *members {
            let held = &mut member.held;
            let is_there = |one: &LabelDevice| one.device == device && one.membership == Membership::There;
            if membership == Membership::There || !held.label.devices.iter().any(is_there) {
                held.list_devices(&devices).map_err(|error| again(&error, "added"))?;
            }
        }
    }
    let devices = joining(&first, device, Membership::There);
    coming.member.held.list_devices(&devices).map_err(|error| again(&error, "added"))
}
