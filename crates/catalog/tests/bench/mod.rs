//! A catalog on an emulated device.
#![allow(dead_code, reason = "each test file uses a part of it")]

use diecut_catalog::fuzz::encode_oob;
use diecut_catalog::*;
use diecut_emulator::{Backing, Device, Options, Profile};
use diecut_media::{Command, Completion, Media, MediaToken, Operation};
use diecut_units::{BlockIndex, Buffer, ContentMode, EraseBlockAddress, Payload, Time};

pub fn blocks(device: &Device) -> [[EraseBlockAddress; 2]; 2] {
    let geometry = *device.geometry();
    let dies: Vec<Vec<EraseBlockAddress>> = geometry
        .all_dies()
        .map(|die| {
            let all = (0..geometry.erase_blocks_per_die()).map(|index| die.erase_block(BlockIndex(index)));
            all.filter(|block| !device.is_factory_bad(*block)).take(2).collect()
        })
        .collect();
    Catalog::choose_blocks(&dies).unwrap()
}

pub fn device(profile: &str) -> Device {
    let options = Options { backing: Backing::Tags, ..Options::default() };
    Device::create(&Profile::named(profile).unwrap(), options).unwrap()
}

/// Runs until nothing is under way or `until` holds.
pub fn run(device: &mut Device, catalog: &mut Catalog, now: &mut Time, until: impl Fn(&Catalog) -> bool) {
    let mut completions: Vec<Completion> = Vec::new();
    while !until(catalog) && device.next_event() != Time::NEVER && device.is_powered() {
        *now = (*now).max(device.next_event());
        device.advance(*now, &mut completions);
        for completion in completions.drain(..) {
            catalog.complete(completion, device, *now);
        }
    }
}

pub fn open(device: &mut Device, now: &mut Time) -> (Catalog, Option<State>) {
    let blocks = blocks(device);
    let mut catalog = Catalog::open(device, [0; 16], blocks, *now);
    run(device, &mut catalog, now, Catalog::is_open);
    let found = catalog.take_state();
    (catalog, found)
}

/// Puts what makes `next` of `base`, and waits until it is durable or the power is gone.
pub fn put(device: &mut Device, catalog: &mut Catalog, now: &mut Time, base: &State, next: &State) -> u64 {
    let number = catalog.put(base.changes_to(next), device, *now).unwrap();
    run(device, catalog, now, |catalog| catalog.durable() >= number);
    number
}

/// Erases the first block of the first copy and programs frames into it.
pub fn write_frames(device: &mut Device, now: &mut Time, frames: &[(u64, Vec<u8>)]) {
    let block = blocks(device)[0][0];
    let geometry = *device.geometry();
    let unit_pages = device.capabilities().program_unit_pages;
    let mut operations = vec![Operation::Erase { block }];
    let mut first_page = 0;
    for (sequence, frame) in frames {
        let pages = (frame.len() as u32).div_ceil(geometry.page_size_bytes).next_multiple_of(unit_pages);
        let mut content = frame.clone();
        content.resize((pages * geometry.page_size_bytes) as usize, 0);
        let mut oob = vec![0; (pages * geometry.oob_size_bytes) as usize];
        for (page, area) in oob.chunks_exact_mut(geometry.oob_size_bytes as usize).enumerate() {
            encode_oob(*sequence, page as u32, pages, area);
        }
        let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&content))].into_iter().collect();
        operations.push(Operation::Program { block, first_page, parts, oob: Buffer::copy_from(&oob) });
        first_page += pages;
    }
    for operation in operations {
        let mut completions = Vec::new();
        device.submit(Command { token: MediaToken(0), operation }, *now);
        while completions.is_empty() {
            *now = (*now).max(device.next_event());
            device.advance(*now, &mut completions);
        }
        assert!(completions[0].result.is_ok());
    }
}
