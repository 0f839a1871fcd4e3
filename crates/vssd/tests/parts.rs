//! One device, two pools: vSSDs change hands with their channels, each pool goes on by itself, and one pool over the whole
//! device opens what both wrote, also when the process died in between. Seen to fail with blocks that stay with the first pool
//! when their channel leaves, and with a sequence of allocations that starts again in the second one.

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_media::*;
use diecut_spec::Isolation;
use diecut_units::*;
use diecut_vssd::*;

struct Half {
    pool: Pool,
    device: Device,
}

impl Half {
    fn settle(&mut self) -> Vec<(VssdId, SpaceCompletion)> {
        self.settle_at(Time::ZERO)
    }
    fn settle_at(&mut self, now: Time) -> Vec<(VssdId, SpaceCompletion)> {
        let (mut media, mut done) = (Vec::new(), Vec::new());
        self.pool.take_ready(&mut done);
        while self.device.next_event() != Time::NEVER {
            self.device.advance(self.device.next_event(), &mut media);
            for completion in media.drain(..) {
                self.pool.complete(completion, now, &mut self.device, &mut done);
            }
        }
        self.pool.check_invariants();
        done
    }
    /// A new block on a unit, its first program unit filled with a byte.
    fn write(&mut self, id: VssdId, unit: u16, byte: u8) -> LogicalBlock {
        let shape = *self.pool.shape();
        let mut space = self.pool.space(id, &mut self.device, Time::ZERO);
        let block = space.allocate(UnitIndex(unit), Purpose(1)).unwrap();
        let ius = shape.program_unit_pages * shape.ius_per_page();
        let payload = Payload::new(ContentMode::Tags, Buffer::copy_from(&vec![byte; ius as usize * 8]));
        let oob = BufferMut::copy_from(&vec![0; (shape.program_unit_pages * shape.oob_size_bytes) as usize]);
        let parts = [payload].into_iter().collect();
        space.append(SpaceToken(1), block, parts, oob, IoClass::HostWrite);
        let done = self.settle();
        assert!(done.iter().all(|(_, done)| done.result.is_ok()), "{done:?}");
        block
    }
    fn read(&mut self, id: VssdId, block: LogicalBlock) -> u8 {
        let destination = BufferMut::copy_from(&[0; 8]);
        let mut space = self.pool.space(id, &mut self.device, Time::ZERO);
        space.read(
            SpaceToken(2),
            BlockRun { block, first_iu: 1, iu_count: 1 },
            destination,
            None,
            IoClass::HostRead,
        );
        let (_, done) = self.settle().pop().unwrap();
        done.result.unwrap();
        done.destination.unwrap()[3]
    }
    fn give(&mut self, to: &mut Half, channels: &[u16]) {
        let mut carrier = self.device.empty_part();
        for &channel in channels {
            carrier.take_channel(&mut self.device, channel);
            to.device.take_channel(&mut carrier, channel);
        }
        let mut part = self.pool.detach(channels);
        self.pool.lend_slot(&mut part);
        to.pool.attach(part);
    }
}

fn config(geometry: &Geometry) -> PoolConfig {
    PoolConfig { soft_planes_per_die: 2, ..PoolConfig::suited_to(geometry) }
}

fn open(device: Device) -> Half {
    let memory = device.protected_memory().unwrap();
    let config = config(device.geometry());
    let size = Pool::block_states_size_bytes(device.geometry(), &config);
    let pool = Pool::open(&device, config, memory.region(0..size)).unwrap();
    Half { pool, device }
}

/// A pool exchanges what its own dies hold, and no others; who keeps account of all of them hears of it, and gives back the
/// right places afterwards.
#[test]
fn a_part_levels_itself_and_tells() {
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 4 << 20;
    let options = Options { backing: Backing::Tags, pacing: Pacing::Unpaced, seed: 2, ..Options::default() };
    let mut first = open(Device::create(&profile, options).unwrap());
    let geometry = *first.device.geometry();
    let a = first.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    let b = first.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let block = first.write(b, 0, 7);
    let mut account = first.pool.places_of(b);
    let channels: Vec<u16> = account.channels(&geometry).into_iter().collect();
    let theirs = first.pool.places_of(a).channels(&geometry).into_iter().next().unwrap();
    let device = first.device.empty_part();
    let pool = Pool::empty_part(&device, config(&geometry));
    let mut second = Half { pool, device };
    first.give(&mut second, &channels);
    second.pool.begin_migration();

    let dies_of = |channel: u16| {
        let first = u32::from(channel) * u32::from(geometry.dies_per_channel);
        first..first + u32::from(geometry.dies_per_channel)
    };
    let own: Vec<u32> = channels.iter().flat_map(|&channel| dies_of(channel)).collect();
    let foreign = dies_of(theirs).next().unwrap();
    assert!(
        matches!(second.pool.exchange_dies(own[0], foreign), Err(ExchangeError::Elsewhere(die)) if die == foreign)
    );
    let used = own.iter().copied().find(|&die| second.pool.die_views()[die as usize].is_able).unwrap();
    let other = own.iter().copied().find(|&die| die != used).unwrap();
    second.pool.exchange_dies(used, other).unwrap();
    for step in 0..1000 {
        // Copies rest where nothing can move, and keep to a rate.
        let now = Time::ZERO + Span::from_millis(step);
        second.pool.work(now, &mut second.device);
        second.settle_at(now);
    }
    let news: Vec<WearNews> = second.pool.take_wear_news().collect();
    let dies = [used, other];
    assert_eq!(news, [WearNews::Begun(dies), WearNews::Finished(dies)]);
    news.into_iter().for_each(|news| account.heard_of(news));
    first.pool.heard_of(WearNews::Finished(dies));
    assert_eq!(account, second.pool.places_of(b));
    assert_eq!(second.read(b, block), 7);
    second.pool.dealloc_vssd(b).unwrap();
    first.pool.release(&account);
}

#[test]
fn channels_change_hands_and_come_back() {
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 4 << 20;
    let options = Options { backing: Backing::Tags, pacing: Pacing::Unpaced, seed: 2, ..Options::default() };
    let mut first = open(Device::create(&profile, options).unwrap());
    let a = first.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    let b = first.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let geometry = *first.device.geometry();
    let kept = first.write(a, 0, 1);
    let moved = first.write(b, 0, 2);
    let (of_a, of_b) = (first.pool.places_of(a), first.pool.places_of(b));
    let channels: Vec<u16> = of_b.channels(&geometry).into_iter().collect();
    assert!(of_a.channels(&geometry).iter().all(|channel| !channels.contains(channel)));

    let device = first.device.empty_part();
    let pool = Pool::empty_part(&device, config(&geometry));
    let mut second = Half { pool, device };
    first.give(&mut second, &channels);
    assert_eq!(first.pool.vssd_ids().collect::<Vec<_>>(), [a]);
    assert_eq!(second.pool.vssd_ids().collect::<Vec<_>>(), [b]);
    assert_eq!(second.read(b, moved), 2);

    // Each goes on by itself; a third vSSD beside the second, chosen by the first pool.
    let on_b = |channel: u16| channels.contains(&channel);
    let places = first.pool.choose_places(Isolation::Software, 0, 1, on_b).unwrap();
    assert_eq!(places.channels(&geometry).into_iter().collect::<Vec<_>>(), channels);
    let c = first.pool.new_vssd_id().unwrap();
    first.pool.reserve(c, &places);
    second.pool.admit(c, Isolation::Software, &places);
    let more_a = first.write(a, 1, 3);
    let more_b = second.write(b, 0, 4);
    let only_c = second.write(c, 0, 5);
    let held = second.pool.space(b, &mut second.device, Time::ZERO).held_blocks();
    let opened = |block| held.iter().find(|held| held.block == block).unwrap().allocation_sequence;
    assert!(opened(more_b) > opened(moved), "the order of allocations goes on");
    assert!(first.pool.choose_places(Isolation::Channel, 0, 1, |_| true).is_err(), "nothing whole is left");

    // The processes die; one pool opens all of it, with the same device.
    let (Half { pool, mut device }, Half { pool: other, device: mut part }) = (first, second);
    drop((pool, other));
    for &channel in &channels {
        device.take_channel(&mut part, channel);
    }
    device.process_death(Time::ZERO);
    let mut whole = open(device);
    assert_eq!(whole.pool.vssd_ids().collect::<Vec<_>>(), [a, b, c]);
    whole.pool.begin_check(&mut whole.device, Time::ZERO);
    whole.settle();
    assert!(whole.pool.is_checked() && whole.pool.quarantined().is_empty(), "{:?}", whole.pool.quarantined());
    for (id, block, byte) in [(a, kept, 1), (b, moved, 2), (a, more_a, 3), (b, more_b, 4), (c, only_c, 5)] {
        assert_eq!(whole.read(id, block), byte, "{id:?} {block:?}");
    }

    // Deleted by the second pool, the channel is free for the first one, its entries too.
    let device = whole.device.empty_part();
    let pool = Pool::empty_part(&device, config(&geometry));
    let mut second = Half { pool, device };
    whole.give(&mut second, &channels);
    for id in [b, c] {
        second.pool.dealloc_vssd(id).unwrap();
    }
    whole.pool.release(&of_b);
    whole.pool.release(&places);
    assert!(channels.iter().all(|&channel| second.pool.is_free_channel(channel)));
    second.give(&mut whole, &channels);
    let d = whole.pool.alloc_vssd(Isolation::Channel, 0, 1).unwrap();
    assert!(d > c, "numbers are never used again");
    let block = whole.write(d, 0, 6);
    assert_eq!(whole.read(d, block), 6);
}

/// Goal: whoever keeps account of all channels gives none away whose content is being exchanged in a part that began again, and all others. Method:
/// what such a part says it has, and for each channel whether a vSSD could lie there.
#[test]
fn exchanges_of_a_part_that_began_again_are_accounted_for() {
    let options = Options { backing: Backing::Tags, pacing: Pacing::Unpaced, seed: 2, ..Options::default() };
    let mut profile = Profile::named("tiny").unwrap();
    profile.geometry.channels = 4;
    let Half { mut pool, device } = open(Device::create(&profile, options).unwrap());
    let channels = 0..device.geometry().channels;
    let dies_per_channel = u32::from(device.geometry().dies_per_channel);
    let free = |pool: &Pool| -> Vec<u16> {
        let can = |channel: &u16| pool.choose_places(Isolation::Channel, 0, 1, |one| one == *channel).is_ok();
        channels.clone().filter(can).collect()
    };
    assert_eq!(free(&pool), [0, 1, 2, 3]);
    account_for_exchanges(&mut pool, &[1, 2], &[[dies_per_channel, 2 * dies_per_channel]]);
    assert_eq!(free(&pool), [0, 3]);
    account_for_exchanges(&mut pool, &[0, 3], &[]);
    assert_eq!(free(&pool), [0, 3], "another part says nothing of them");
    account_for_exchanges(&mut pool, &[1, 2], &[]);
    assert_eq!(free(&pool), [0, 1, 2, 3], "it was forgotten");
}
