//! A device behind the one type keeps the contract of its medium, is divided and opened like it, and says what is wrong in
//! the same words.

use diecut_devices::{Backing, Device, Options, Pacing, Profile};
use diecut_media::{Divide, Media, conformance};

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

/// Goal: parts own what the whole owned. Method: each channel goes to a part and back.
#[test]
fn channels_change_hands() {
    let mut whole = Device::create(&tiny(), Options::default()).unwrap();
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
    assert_eq!((device.seed(), device.profile().name.as_str()), (7, "tiny"));
    drop(device);
    std::fs::write(&path, "no device").unwrap();
    let refused = Device::open(&path, Options::default()).err().unwrap().to_string();
    assert!(refused.contains("image"), "{refused}");
}
