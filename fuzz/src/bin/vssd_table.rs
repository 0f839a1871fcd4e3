//! Block states in protected memory: a pool opens what it finds there, or says what is wrong with it.
#![no_main]

use diecut_emulator::{Backing, Device, Options, Profile};
use diecut_fuzz::{Input, bounded};
use diecut_spec::Isolation;
use diecut_units::{ProtectedMemory, checksum, checksum_append};
use diecut_vssd::{Pool, PoolConfig, VssdId};

diecut_fuzz::target!(seeds, check);

// As `diecut_vssd::states::table` describes the layout.
const HEADER_SIZE_BYTES: usize = 64;
const SLOT_SIZE_BYTES: usize = 32;
const DIES: usize = 4;
const BLOCKS: usize = DIES * 24;
const UNITS: usize = DIES * 4;
const VSSD_SLOT_SIZE_BYTES: usize = 32 + 8 * UNITS;
const PAGES_AT: usize = HEADER_SIZE_BYTES + BLOCKS * 2 * SLOT_SIZE_BYTES;
const VSSDS_AT: usize = PAGES_AT + BLOCKS * 8;

/// What two pools, one after the other, take for 96 blocks; and the table of ids, two bytes for each that was given (2^24
/// at most), while it grows.
const MEMORY_MAX_BYTES: usize = (4 << 20) + (96 << 20);

const BLOCK_SLOT: u8 = 0;
const VSSD_SLOT: u8 = 1;
const PAGES: u8 = 2;
const RAW: u8 = 3;

fn device() -> Device {
    let mut profile = Profile::named("tiny").expect("a built-in profile");
    (profile.geometry.channels, profile.geometry.dies_per_channel) = (2, 2);
    profile.geometry.blocks_per_plane = 24;
    profile.bad_blocks.factory_percent = 2.0;
    Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() }).expect("a device")
}

fn config(device: &Device) -> PoolConfig {
    PoolConfig::suited_to(&device.profile().geometry)
}

fn block_edit(block: u8, owner: u32, unit: u16, index: u32, state: u8) -> Vec<u8> {
    let front = [BLOCK_SLOT, block, 0];
    let (counter, erases, sequence) = (1u32.to_le_bytes(), 3u32.to_le_bytes(), 9u64.to_le_bytes());
    let (owner, unit, index) = (owner.to_le_bytes(), unit.to_le_bytes(), index.to_le_bytes());
    [&front[..], &counter, &owner, &unit, &[1, state], &index, &erases, &sequence].concat()
}

fn vssd_edit(slot: u8, id: u32, placed: u8, isolation: u8, units: &[(u32, u16)]) -> Vec<u8> {
    let mut edit = vec![VSSD_SLOT, slot, 0, units.len() as u8];
    edit.extend(1u32.to_le_bytes());
    edit.extend(id.to_le_bytes());
    edit.extend([placed, isolation]);
    edit.extend((units.len() as u16).to_le_bytes());
    for (die, plane) in units {
        edit.extend(die.to_le_bytes());
        edit.extend(plane.to_le_bytes());
        edit.extend([0, 0]);
    }
    edit
}

fn seeds() -> Vec<Vec<u8>> {
    let whole = vssd_edit(0, 1, 1, 0, &[(0, u16::MAX), (1, u16::MAX)]);
    let shared = vssd_edit(1, 2, 1, 2, &[(2, 0), (3, 1)]);
    let pages = [&[PAGES, 10][..], &5u32.to_le_bytes(), &9u32.to_le_bytes()].concat();
    vec![
        vec![0],
        [&[0][..], &whole, &block_edit(10, 1, 0, 0, 1), &pages].concat(),
        [&[0][..], &whole, &shared, &block_edit(60, 2, 0, 1, 2), &block_edit(61, 0, 0, 0, 3)].concat(),
        [&[1][..], &block_edit(20, 1, 0, 0, 0), &[RAW, 8, 0, 1, 2]].concat(),
        // More erases by one cause than by all.
        vec![0, 1, 0, 15, 0, 1, 1, 0, 20, 0, 1, 0, 0, 0],
    ]
}

fn seal(slot: &mut [u8], counter: u32) {
    slot[..4].copy_from_slice(&counter.to_le_bytes());
    let sum = checksum_append(checksum(&counter.to_le_bytes()), &slot[8..]);
    slot[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn edit(region: &mut [u8], input: &mut Input<'_>) {
    match input.byte() % 4 {
        BLOCK_SLOT => {
            let (block, second, counter) = (input.byte(), input.byte() & 1, input.u32());
            let at =
                HEADER_SIZE_BYTES + (usize::from(block) % BLOCKS * 2 + usize::from(second)) * SLOT_SIZE_BYTES;
            let slot = &mut region[at..at + SLOT_SIZE_BYTES];
            slot[8..].copy_from_slice(&input.array::<24>());
            seal(slot, counter);
        }
        VSSD_SLOT => {
            let (number, second, units, counter) =
                (input.byte(), input.byte() & 1, input.byte(), input.u32());
            let at =
                VSSDS_AT + (usize::from(number) % UNITS * 2 + usize::from(second)) * VSSD_SLOT_SIZE_BYTES;
            let slot = &mut region[at..at + VSSD_SLOT_SIZE_BYTES];
            slot[8..].fill(0);
            slot[8..16].copy_from_slice(&input.array::<8>());
            let units = input.bytes(usize::from(units) % (UNITS + 1) * 8);
            slot[32..32 + units.len()].copy_from_slice(units);
            seal(slot, counter);
        }
        PAGES => {
            let (block, pages, sequence) = (usize::from(input.byte()) % BLOCKS, input.u32(), input.u32());
            let pages = pages & 0x00FF_FFFF;
            let words = [block as u32, pages, sequence].map(u32::to_le_bytes).concat();
            let word = pages | checksum(&words) << 24;
            let at = PAGES_AT + block * 8;
            region[at..at + 4].copy_from_slice(&word.to_le_bytes());
            region[at + 4..at + 8].copy_from_slice(&sequence.to_le_bytes());
        }
        _ => {
            let (at, length) = (usize::from(input.u16()), usize::from(input.byte()));
            let bytes = input.bytes(length);
            let at = at.min(region.len());
            let room = bytes.len().min(region.len() - at);
            region[at..at + room].copy_from_slice(&bytes[..room]);
        }
    }
}

fn check(bytes: &[u8]) {
    thread_local!(static DEVICE: Device = device());
    DEVICE.with(|device| bounded(MEMORY_MAX_BYTES, || check_on(device, Input::new(bytes))));
}

fn check_on(device: &Device, mut input: Input<'_>) {
    let config = config(device);
    let size = Pool::block_states_size_bytes(&device.profile().geometry, &config);
    assert!(VSSDS_AT + UNITS * 2 * VSSD_SLOT_SIZE_BYTES <= size, "the layout is the one described");
    let memory = ProtectedMemory::in_memory(size);
    let open = || Pool::open(device, config.clone(), memory.region(0..size));
    let mut pool = open().expect("zeros are made new");
    if input.byte() & 1 != 0 {
        let _ = pool.alloc_vssd(Isolation::Die, 1, 1 << 20).expect("there is room");
        let _ = pool.alloc_vssd(Isolation::None, 0, 1 << 20).expect("there is room");
    }
    drop(pool);
    let mut region = memory.region(0..size);
    while !input.is_empty() {
        edit(&mut region, &mut input);
    }
    let before = region.to_vec();
    drop(region);
    let mut pool = match open() {
        Ok(pool) => pool,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // A header that is all zeros at its start is made new; anything that is refused stays as it was.
            assert!(*memory.region(0..size) == before, "nothing is changed by a refusal");
            return;
        }
    };
    pool.check_invariants();
    // What was taken over can be worked with, and what is written then can be opened.
    let ids: Vec<VssdId> = pool.vssd_ids().collect();
    for &id in &ids {
        let _ = (pool.size_of(id), pool.placement(id), pool.vssd_erases(id));
    }
    let fresh = pool.alloc_vssd(Isolation::Die, 0, 1);
    if let Ok(fresh) = fresh {
        assert!(!ids.contains(&fresh), "ids are never given twice");
    }
    if let Some(&first) = ids.first() {
        pool.dealloc_vssd(first).expect("it has nothing under way");
    }
    pool.check_invariants();
    let left: Vec<VssdId> = pool.vssd_ids().collect();
    drop(pool);
    let pool = open().expect("what a pool wrote can be opened");
    pool.check_invariants();
    let mut found: Vec<VssdId> = pool.vssd_ids().collect();
    found.sort();
    let mut left = left;
    left.sort();
    assert_eq!(found, left);
}
