//! A device behind the one type keeps the contract of its medium, is divided and opened like it, and says what is wrong in
//! the same words.

use diecut_devices::{Backing, Device, DriveMedium, DriveShape, Options, Pacing, Profile};
use diecut_emulator::drive::{Drive, DriveProfile};
use diecut_media::{Divide, Media, conformance};
use diecut_testing::driven::Driven;

fn tiny() -> Profile {
    Profile::named("tiny").unwrap()
}

/// Goal: no call of the contract is lost or changed on its way. Method: the suite of the contract.
#[test]
fn the_contract_holds() {
    for pacing in [Pacing::Modelled, Pacing::Unpaced] {
        let mut seed = 0;
        conformance::all(&mut || {
            seed += 1;
            Device::create(&tiny(), Options { pacing, seed, ..Options::default() }).unwrap()
        });
    }
}

/// A drive of which a model carries out what it asks for.
fn on_drive(seed: u64) -> Driven<Device, Drive> {
    let model = Drive::new(DriveProfile::nvme(40 << 20), seed);
    let shape = DriveShape::plan(model.profile().size_bytes, 4, Some(1 << 20)).unwrap();
    Driven::new(Device::from(DriveMedium::new(shape, true, true)), model)
}

/// Goal: the same of a drive.
#[test]
fn the_contract_holds_on_a_drive() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        on_drive(seed)
    });
}

/// Goal: who asks for what only emulated devices have is told that a drive has none of it.
#[test]
fn a_drive_is_not_emulated() {
    let mut device = on_drive(1).medium;
    assert!(device.as_emulated().is_none() && device.room_worker().is_none());
    assert!(device.sync_file().is_none() && device.room_support().is_none());
    let emulated = Device::create(&tiny(), Options::default()).unwrap();
    assert!(emulated.as_emulated().is_some());
}

/// Goal: parts own what the whole owned. Method: each channel goes to a part and back, of each kind.
#[test]
fn channels_change_hands() {
    change_hands(Device::create(&tiny(), Options::default()).unwrap());
    change_hands(on_drive(1).medium);
}

fn change_hands(mut whole: Device) {
    let mut part = whole.empty_part();
    for channel in 0..whole.geometry().channels {
        assert!(whole.owns(channel) && !part.owns(channel) && whole.is_quiet(channel));
        part.take_channel(&mut whole, channel);
        assert!(!whole.owns(channel) && part.owns(channel));
        whole.take_channel(&mut part, channel);
        assert!(whole.owns(channel));
    }
}

/// Goal: people read the same messages whoever opens a device. Method: a file made twice, and one that is no device.
#[test]
fn a_file_is_named_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let options = Options { backing: Backing::File(path.clone()), seed: 7, ..Options::default() };
    let device = Device::create(&tiny(), options.clone()).unwrap();
    let twice = Device::open(&path, Options::default()).err().unwrap().to_string();
    assert!(twice.contains("is open in another process") && twice.contains("image"), "{twice}");
    drop(device);
    let device = Device::open(&path, Options::default()).unwrap();
    assert_eq!((device.emulated().seed(), device.emulated().profile().name.as_str()), (7, "tiny"));
    drop(device);
    std::fs::write(&path, "no device").unwrap();
    let refused = Device::open(&path, Options::default()).err().unwrap().to_string();
    assert!(refused.contains("image"), "{refused}");
}
