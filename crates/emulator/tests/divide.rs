//! A device divided by channels: what parts write in threads of their own is there when the device is whole again, and on
//! the next opening of its file.

use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;

fn run(device: &mut Device, operation: Operation) -> Result<Option<BufferMut>, MediaError> {
    let mut done = Vec::new();
    device.submit(Command { token: MediaToken(1), operation }, Time::ZERO);
    while done.is_empty() {
        device.advance(device.next_event(), &mut done);
    }
    let done = done.remove(0);
    done.result.map(|()| done.destination)
}

fn block_of(device: &Device, channel: u16) -> EraseBlockAddress {
    let die = DieAddress::new(channel, 0);
    let all = (0..).map(|index| die.erase_block(BlockIndex(index)));
    all.into_iter().find(|block| !device.is_factory_bad(*block)).unwrap()
}

fn mode(device: &Device) -> (ContentMode, usize) {
    match device.capabilities().content_mode {
        ContentMode::Bytes => (ContentMode::Bytes, IU_SIZE_BYTES),
        ContentMode::Tags => (ContentMode::Tags, 8),
    }
}

/// Programs the first unit of a block of a channel.
fn write(device: &mut Device, channel: u16, byte: u8) {
    let block = block_of(device, channel);
    let pages = device.capabilities().program_unit_pages;
    let (mode, iu) = mode(device);
    run(device, Operation::Erase { block }).unwrap();
    let ius = (pages * device.geometry().ius_per_page()) as usize;
    let payload = Payload::new(mode, Buffer::copy_from(&vec![byte; ius * iu]));
    let oob = Buffer::copy_from(&vec![byte; (pages * device.geometry().oob_size_bytes) as usize]);
    run(device, Operation::Program { block, first_page: 0, parts: [payload].into_iter().collect(), oob })
        .unwrap();
}

fn read(device: &mut Device, channel: u16) -> u8 {
    let block = block_of(device, channel);
    let destination = BufferMut::copy_from(&vec![0; mode(device).1]);
    let read = Operation::Read { block, first_iu: 1, iu_count: 1, destination, oob: None };
    run(device, read).unwrap().unwrap()[5]
}

fn give(from: &mut Device, channels: std::ops::Range<u16>) -> Device {
    let mut part = from.empty_part();
    for channel in channels {
        part.take_channel(from, channel);
    }
    part
}

#[test]
fn parts_are_driven_in_threads_and_become_one_device_again() {
    let path = std::env::temp_dir().join(format!("diecut-divide-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let profile = Profile::named("tiny").unwrap();
    let channels = profile.geometry.channels;
    assert!(channels >= 2);
    for backing in [Backing::Memory, Backing::Tags, Backing::File(path.clone())] {
        for pacing in [Pacing::Modelled, Pacing::Unpaced] {
            let _ = std::fs::remove_file(&path);
            let options = Options { backing: backing.clone(), pacing, seed: 5, ..Options::default() };
            let mut whole = Device::create(&profile, options.clone()).unwrap();
            write(&mut whole, 0, 1);
            write(&mut whole, 1, 2);
            let mut part = give(&mut whole, 1..channels);
            assert_eq!(
                (whole.owns(0), whole.owns(1), part.owns(0), part.owns(1)),
                (true, false, false, true)
            );
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    assert_eq!(read(&mut part, 1), 2);
                    write(&mut part, 1, 4);
                });
                assert_eq!(read(&mut whole, 0), 1);
                write(&mut whole, 0, 3);
                other.join().unwrap();
            });
            for channel in 1..channels {
                whole.take_channel(&mut part, channel);
            }
            assert_eq!((read(&mut whole, 0), read(&mut whole, 1)), (3, 4));
            assert_eq!(whole.erase_count(block_of(&whole, 1)), 2);
            assert_eq!(whole.statistics().erases, 4);
            drop((whole, part));
            if let Backing::File(path) = &backing {
                let mut again = Device::open(path, options).unwrap();
                assert_eq!((read(&mut again, 0), read(&mut again, 1)), (3, 4));
            }
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_stays_locked_until_the_last_part_is_gone() {
    let path = std::env::temp_dir().join(format!("diecut-divide-lock-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = Options { backing: Backing::File(path.clone()), ..Options::default() };
    let mut whole = Device::create(&Profile::named("tiny").unwrap(), options.clone()).unwrap();
    let part = give(&mut whole, 1..2);
    drop(whole);
    assert!(matches!(Device::open(&path, options.clone()), Err(DeviceError::InUse { .. })));
    drop(part);
    drop(Device::open(&path, options).unwrap());
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[should_panic(expected = "another part's")]
fn a_part_takes_no_command_to_a_channel_that_it_gave_away() {
    let mut whole = Device::create(&Profile::named("tiny").unwrap(), Options::default()).unwrap();
    let _part = give(&mut whole, 1..2);
    write(&mut whole, 1, 1);
}
