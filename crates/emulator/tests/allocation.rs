//! Once warm, a device allocates nothing for a command: every allocation of this process is counted. One test in this
//! file, so that no other thread allocates meanwhile.

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_media::{Command, Completion, Media, MediaToken, Operation, PayloadParts};
use diecut_units::{Buffer, BufferMut, BufferPool, ContentMode, EraseBlockAddress, Payload, Time};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(bytes, layout) }
    }
    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(bytes, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Fills two blocks of each die, reads them, copies one, erases all; what is needed comes from a pool that is warm too.
fn round(
    device: &mut Device,
    pool: &mut BufferPool,
    now: &mut Time,
    completions: &mut Vec<Completion>,
    blocks: &[[EraseBlockAddress; 3]],
    content: &Buffer,
    oob: &Buffer,
) {
    let geometry = *device.geometry();
    let capabilities = *device.capabilities();
    let unit = capabilities.program_unit_pages;
    let pages = geometry.pages_per_erase_block();
    let mode = capabilities.content_mode;
    let mut submitted = 0;
    let mut submit = |device: &mut Device, now: &Time, operation: Operation| {
        submitted += 1;
        device.submit(Command { token: MediaToken(submitted), operation }, *now);
    };
    for trio in blocks {
        for block in trio {
            submit(device, now, Operation::Erase { block: *block });
        }
        for page in (0..pages).step_by(unit as usize) {
            for block in &trio[..2] {
                let parts: PayloadParts = [Payload::new(mode, content.clone())].into_iter().collect();
                let operation =
                    Operation::Program { block: *block, first_page: page, parts, oob: oob.clone() };
                submit(device, now, operation);
            }
        }
        for iu in 0..32 {
            let destination: BufferMut = pool.take(mode.bytes_per_iu());
            let area = Some(pool.take(geometry.oob_size_bytes as usize));
            let operation = Operation::Read {
                block: trio[iu as usize % 2],
                first_iu: iu,
                iu_count: 1,
                destination,
                oob: area,
            };
            submit(device, now, operation);
        }
        let operation = Operation::Copy {
            source: trio[0],
            source_page: 0,
            destination: trio[2],
            destination_page: 0,
            page_count: unit * 2,
            oob: None,
        };
        submit(device, now, operation);
    }
    let mut done = 0;
    while done < submitted {
        *now = (*now).max(device.next_event());
        device.advance(*now, completions);
        for completion in completions.drain(..) {
            assert_eq!(completion.result, Ok(()));
            done += 1;
        }
    }
}

#[test]
fn a_warm_device_allocates_nothing() {
    let mut found = Vec::new();
    for profile in ["tiny", "tiny-one-shot"] {
        for backing in [Backing::Memory, Backing::Tags] {
            for pacing in [Pacing::Modelled, Pacing::Unpaced] {
                let name = format!("{profile} {backing:?} {pacing:?}");
                let profile = Profile::named(profile).unwrap();
                let options = Options { backing: backing.clone(), pacing, ..Options::default() };
                let mut device = Device::create(&profile, options).unwrap();
                let geometry = *device.geometry();
                let blocks: Vec<[EraseBlockAddress; 3]> = geometry
                    .all_dies()
                    .map(|die| {
                        let mut good = (0..geometry.erase_blocks_per_die())
                            .map(|index| die.erase_block(diecut_units::BlockIndex(index)))
                            .filter(|block| !device.is_factory_bad(*block));
                        std::array::from_fn(|_| good.next().unwrap())
                    })
                    .collect();
                let unit = device.capabilities().program_unit_pages;
                let mode: ContentMode = device.capabilities().content_mode;
                let size = (unit * geometry.ius_per_page()) as usize * mode.bytes_per_iu();
                let content = Buffer::copy_from(&vec![1; size]);
                let oob = Buffer::copy_from(&vec![2; (unit * geometry.oob_size_bytes) as usize]);
                let (mut pool, mut now, mut completions) = (BufferPool::new(), Time::ZERO, Vec::new());
                let mut before = 0;
                for warm in [false, false, false, true] {
                    if warm {
                        before = ALLOCATIONS.load(Ordering::Relaxed);
                    }
                    round(&mut device, &mut pool, &mut now, &mut completions, &blocks, &content, &oob);
                }
                let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
                found.push((name, allocations));
            }
        }
    }
    assert!(found.iter().all(|(_, allocations)| *allocations == 0), "{found:#?}");
}
