//! The journal of block states on flash: a pool opens what it finds there, or says what is wrong with it, and what it writes
//! then can be opened.
#![no_main]

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_fuzz::{Input, bounded};
use diecut_media::{Command, Media, MediaToken, Operation};
use diecut_spec::Isolation;
use diecut_units::{Buffer, BufferMut, ContentMode, EraseBlockAddress, Payload, Time, checksum};
use diecut_vssd::{Pool, PoolConfig, Space, VssdId};

diecut_fuzz::target!(seeds, check);

/// The device as tags, the tables of three pools one after the other, and the content of the journal's blocks.
const MEMORY_MAX_BYTES: usize = 160 << 20;
const UNIT_SIZE_BYTES: usize = 32 << 10;
const UNITS_PER_BLOCK: usize = 8;

fn seeds() -> Vec<Vec<u8>> {
    let change = |block: u8, unit: u8, at: u16, bytes: &[u8]| {
        [&[0, block, unit, 1][..], &at.to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    vec![
        vec![0],
        change(0, 0, 16, &[9]),
        [change(1, 1, 64, &[1, 0, 0, 0, 200]), change(5, 1, 32, &[255, 255])].concat(),
        [vec![1, 0, 0, 3, 2], vec![2, 1, 0]].concat(),
    ]
}

fn device() -> Device {
    let mut profile = Profile::named("tiny").expect("a built-in profile");
    profile.geometry.blocks_per_plane = 12;
    profile.protected_memory_bytes = 0;
    let options = Options { backing: Backing::Tags, pacing: Pacing::Unpaced, ..Options::default() };
    Device::create(&profile, options).expect("a device")
}

fn run(pool: &mut Pool, device: &mut Device) {
    let mut completions = Vec::new();
    while device.next_event() != Time::NEVER {
        device.advance(Time::ZERO, &mut completions);
        for completion in completions.drain(..) {
            pool.complete(completion, Time::ZERO, device, &mut Vec::new());
        }
    }
}

fn open(device: &mut Device) -> Result<Pool, String> {
    let config = PoolConfig::suited_to(device.geometry());
    let mut pool = Pool::open_from_flash(device, config, Time::ZERO);
    run(&mut pool, device);
    match pool.open_error() {
        Some(error) => Err(error.to_string()),
        None => {
            assert!(pool.is_open(), "it opens or says why not");
            pool.check_invariants();
            Ok(pool)
        }
    }
}

fn make_durable(pool: &mut Pool, device: &mut Device) {
    while !pool.is_durable() {
        pool.make_durable(device, Time::ZERO);
        run(pool, device);
    }
}

fn execute(device: &mut Device, operation: Operation) -> Option<BufferMut> {
    let mut completions = Vec::new();
    device.submit(Command { token: MediaToken(0), operation }, Time::ZERO);
    while completions.is_empty() {
        device.advance(Time::ZERO, &mut completions);
    }
    let completion = completions.pop().expect("one command");
    completion.result.is_ok().then_some(completion.destination).flatten()
}

fn units_of(device: &mut Device, block: EraseBlockAddress) -> Vec<Vec<u8>> {
    let read = |unit: usize| {
        let destination = BufferMut::copy_from(&vec![0; UNIT_SIZE_BYTES]);
        let operation =
            Operation::Read { block, first_iu: unit as u32 * 8, iu_count: 8, destination, oob: None };
        execute(device, operation).map(|bytes| bytes.to_vec())
    };
    (0..UNITS_PER_BLOCK).map_while(read).collect()
}

fn store(device: &mut Device, block: EraseBlockAddress, units: &[Vec<u8>]) {
    execute(device, Operation::Erase { block });
    for (number, unit) in units.iter().enumerate() {
        let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(unit))].into_iter().collect();
        let (first_page, oob) = (number as u32 * 2, BufferMut::copy_from(&[0; 128]).freeze());
        execute(device, Operation::Program { block, first_page, parts, oob });
    }
}

fn check(bytes: &[u8]) {
    bounded(MEMORY_MAX_BYTES, || check_on(Input::new(bytes)));
}

fn check_on(mut input: Input<'_>) {
    let mut device = device();
    let mut pool = open(&mut device).expect("an empty device is made new");
    let ids = [Isolation::Die, Isolation::Software]
        .map(|isolation| pool.alloc_vssd(isolation, 0, 1).expect("there is room"));
    make_durable(&mut pool, &mut device);
    for id in ids {
        let mut space: Space<'_, Device> = pool.space(id, &mut device, Time::ZERO);
        use diecut_vssd::EraseBlockSpace;
        let _ = space.allocate(diecut_vssd::UnitIndex(0), diecut_vssd::Purpose(1)).expect("there is room");
        run(&mut pool, &mut device);
        make_durable(&mut pool, &mut device);
    }
    let blocks: Vec<EraseBlockAddress> = pool.system_area().all_state_log_blocks().collect();
    drop(pool);
    let mut images: Vec<Vec<Vec<u8>>> = blocks.iter().map(|block| units_of(&mut device, *block)).collect();
    while !input.is_empty() {
        let kind = input.byte() % 3;
        let (block, unit) = (usize::from(input.byte()) % images.len(), usize::from(input.byte()));
        match kind {
            0 => {
                let (seal, at, count) =
                    (input.byte() & 1, usize::from(input.u16()), usize::from(input.byte()));
                let bytes = input.bytes(count % 64);
                let units = images[block].len().max(1);
                let Some(unit) = images[block].get_mut(unit % units) else { continue };
                let at = at % (UNIT_SIZE_BYTES - 64);
                unit[at..at + bytes.len()].copy_from_slice(bytes);
                if seal != 0 {
                    let sum = checksum(&unit[16..]);
                    unit[12..16].copy_from_slice(&sum.to_le_bytes());
                }
            }
            1 => {
                let (from, which) = (usize::from(input.byte()) % images.len(), usize::from(input.byte()));
                let found = images[from].get(which).cloned();
                if images[block].len() < UNITS_PER_BLOCK {
                    images[block].extend(found);
                }
            }
            _ => images[block].truncate(unit % (UNITS_PER_BLOCK + 1)),
        }
    }
    for (block, units) in blocks.iter().zip(&images) {
        store(&mut device, *block, units);
    }
    let Ok(mut pool) = open(&mut device) else {
        return assert!(open(&mut device).is_err(), "nothing is changed by a refusal");
    };
    pool.begin_check(&mut device, Time::ZERO);
    run(&mut pool, &mut device);
    assert!(pool.is_checked());
    let before: Vec<VssdId> = pool.vssd_ids().collect();
    if let Ok(fresh) = pool.alloc_vssd(Isolation::Die, 0, 1) {
        assert!(!before.contains(&fresh), "ids are never given twice");
    }
    make_durable(&mut pool, &mut device);
    let left: Vec<VssdId> = pool.vssd_ids().collect();
    drop(pool);
    let pool = open(&mut device).expect("what a pool wrote can be opened");
    assert_eq!(pool.vssd_ids().collect::<Vec<_>>(), left);
}
