//! Goal: appends that no program has begun for can be taken back, as if they had never been made; those that have begun cannot, and the
//! block goes on where it is then. Method: a paced die with more appends than it takes at once.

use diecut_emulator::{Device, Options, Profile};
use diecut_media::*;
use diecut_spec::Isolation;
use diecut_units::*;
use diecut_vssd::*;

const APPENDS: u32 = 8;

fn append(space: &mut dyn EraseBlockSpace, block: LogicalBlock, token: u64) {
    let shape = *space.shape();
    let bytes = vec![token as u8; shape.program_unit_ius() as usize * IU_SIZE_BYTES];
    let parts = [Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes))].into_iter().collect();
    let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
    space.append(SpaceToken(token), block, parts, oob, IoClass::HostWrite);
}

/// Lets the device end what it has; tokens of the answers.
fn settle(pool: &mut Pool, device: &mut Device, now: &mut Time) -> Vec<u64> {
    let mut answers = Vec::new();
    while device.next_event() != Time::NEVER {
        *now = (*now).max(device.next_event());
        let mut completions = Vec::new();
        device.advance(*now, &mut completions);
        completions.into_iter().for_each(|one| pool.complete(one, *now, device, &mut answers));
    }
    assert!(answers.iter().all(|(_, answer)| answer.result.is_ok()));
    answers.into_iter().map(|(_, answer)| answer.token.0).collect()
}

/// Also before the block is erased: there all wait.
#[test]
fn appends_that_wait_are_taken_back() {
    for is_erased in [true, false] {
        let profile = Profile::named("tiny").unwrap();
        let mut device = Device::create(&profile, Options { seed: 5, ..Options::default() }).unwrap();
        let levels = PoolConfig::levels_of(device.geometry(), 2);
        let config = PoolConfig { soft_planes_per_die: 2, levels, ..PoolConfig::default() };
        let mut pool = Pool::create(&device, config);
        let mut now = Time::ZERO;
        let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        let block = pool.space(id, &mut device, now).allocate(UnitIndex(0), Purpose(1)).unwrap();
        if is_erased {
            settle(&mut pool, &mut device, &mut now);
        }
        let mut space = pool.space(id, &mut device, now);
        let pages = space.shape().program_unit_pages;
        (0..APPENDS).for_each(|at| append(&mut space, block, at.into()));
        let begun = space.begun_pages(block);
        assert_eq!(begun > 0, is_erased);
        let kept = begun / pages + 1;
        assert!(kept < APPENDS, "{begun} pages have begun");
        space.withdraw(block, kept * pages);
        assert_eq!(space.begun_pages(block), begun);
        // Another one takes the place.
        append(&mut space, block, 100);
        let answered = settle(&mut pool, &mut device, &mut now);
        assert_eq!(answered, (0..u64::from(kept)).chain([100]).collect::<Vec<_>>());
        let space = pool.space(id, &mut device, now);
        assert_eq!(space.held_blocks()[0].written_pages, (kept + 1) * pages);
        assert_eq!(space.begun_pages(block), (kept + 1) * pages);
        pool.check_invariants();
    }
}
