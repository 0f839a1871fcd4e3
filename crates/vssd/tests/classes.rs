//! Goal: a host's write does not wait for work of later classes that happens to be queued before the erase of its block. Method: a
//! die with more programs of the cleaner queued than it takes at once, then a new block, whose erase is the cleaner's too, and
//! one write of a host to it, on an emulated device with its exact timing.

use diecut_emulator::{Backing, Device, Options, Profile};
use diecut_media::Media;
use diecut_spec::Isolation;
use diecut_units::*;
use diecut_vssd::*;

const OF_HOST: SpaceToken = SpaceToken(1 << 32);

struct World {
    device: Device,
    pool: Pool,
    id: VssdId,
    now: Time,
}

impl World {
    fn new() -> World {
        let options = Options { backing: Backing::Tags, seed: 1, ..Options::default() };
        let device = Device::create(&Profile::named("tiny").unwrap(), options).unwrap();
        let mut pool = Pool::create(&device, PoolConfig::suited_to(device.geometry()));
        let id = pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
        World { device, pool, id, now: Time::ZERO }
    }

    fn block(&mut self) -> LogicalBlock {
        let mut space = self.pool.space(self.id, &mut self.device, self.now);
        space.allocate(UnitIndex(0), Purpose(0)).unwrap()
    }

    fn append(&mut self, token: SpaceToken, block: LogicalBlock, class: IoClass) {
        let mut space = self.pool.space(self.id, &mut self.device, self.now);
        let shape = *space.shape();
        let content = Buffer::copy_from(&vec![1; shape.program_unit_ius() as usize * 8]);
        let parts = [Payload::new(ContentMode::Tags, content)];
        let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
        space.append(token, block, parts.into_iter().collect(), oob, class);
    }

    /// Tokens of what ends from now on, in this order, up to and with `last`.
    fn run_until(&mut self, last: SpaceToken) -> Vec<SpaceToken> {
        let (mut ended, mut completions, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        while ended.last() != Some(&last) {
            let next = self.device.next_event().min(self.pool.deadline());
            assert_ne!(next, Time::NEVER, "{last:?} ends");
            self.now = self.now.max(next);
            self.device.advance(self.now, &mut completions);
            for completion in completions.drain(..) {
                self.pool.complete(completion, self.now, &mut self.device, &mut answers);
            }
            self.pool.work(self.now, &mut self.device);
            self.pool.take_ready(&mut answers);
            for (_, answer) in answers.drain(..) {
                answer.result.unwrap();
                if ended.last() != Some(&last) {
                    ended.push(answer.token);
                }
            }
        }
        ended
    }
}

/// Programs of the cleaner that end before the host's write, as a part of those that were queued before.
fn share_before_a_host() -> f64 {
    let mut world = World::new();
    let of_cleaner = world.block();
    world.append(SpaceToken(0), of_cleaner, IoClass::Cleaner);
    world.run_until(SpaceToken(0));
    let queued =
        u64::from(world.pool.space(world.id, &mut world.device, world.now).shape().program_units()) - 1;
    for token in 1..=queued {
        world.append(SpaceToken(token), of_cleaner, IoClass::Cleaner);
    }
    let of_host = world.block();
    world.append(OF_HOST, of_host, IoClass::HostWrite);
    (world.run_until(OF_HOST).len() - 1) as f64 / queued as f64
}

#[test]
fn a_host_does_not_wait_behind_the_cleaner_for_an_erase() {
    let before = share_before_a_host();
    assert!(before < 0.5, "{before}");
    if diecut_units::marks::plant_mutant(Some("vssd: erases keep the cleaner's turn")) {
        let before = share_before_a_host();
        let reached = diecut_units::marks::mutant_reached_count();
        diecut_units::marks::plant_mutant(None);
        assert!(reached > 0 && before >= 0.5, "{before}");
    } else {
        eprintln!("skipped: this build carries no planted bugs");
    }
}
