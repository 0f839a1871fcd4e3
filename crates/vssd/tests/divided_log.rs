//! Two pools divide a drive whose block states are in a log: the first one keeps it for both.
//!
//! Goal: what the second pool changes is durable when the first one says so and not before, and after a cut one pool, or two others, find all of it.
//! Method: both on the model of a drive, with what they say to each other carried, held back, or lost with the power.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_emulator::drive::{Drive, DriveProfile};
use diecut_media::{Divide, Intent, IntentDone, IntentToken, Media};
use diecut_spec::Isolation;
use diecut_units::*;
use diecut_vssd::*;
use std::collections::BTreeMap;

const SIZE_BYTES: u64 = 66 << 20;
/// Of three lanes the first pool keeps two, where the log is written.
const LANES: u16 = 3;
const OTHERS_LANE: u16 = 2;

/// The drive, and the parts of it that pools have.
struct Rig {
    drive: Drive,
    parts: Vec<(DriveMedium, Pool)>,
    asked: BTreeMap<u64, (usize, IntentToken)>,
    next_token: u64,
    answers: Vec<(VssdId, SpaceCompletion)>,
    now: Time,
    /// What the first pool says is not told to the second.
    is_deaf: bool,
}

fn config(geometry: &Geometry) -> PoolConfig {
    let nonces = Some(Nonces::new([0x5e; 16], [0xd1; 16]));
    PoolConfig { nonces, ..PoolConfig::suited_to(geometry) }
}

impl Rig {
    fn over(drive: Drive, open: impl FnOnce(&mut DriveMedium, PoolConfig) -> Pool) -> Rig {
        let shape = DriveShape::plan(SIZE_BYTES, LANES, Some(1 << 20)).unwrap();
        let mut medium = DriveMedium::new(shape, true, true);
        let config = config(medium.geometry());
        let mut first = open(&mut medium, config.clone());
        first.follow();
        let other = medium.empty_part();
        let mut second = Pool::empty_part(&other, config);
        second.follow();
        let (asked, next_token, answers, now) = (BTreeMap::new(), 0, Vec::new(), Time::ZERO);
        let parts = vec![(medium, first), (other, second)];
        Rig { drive, parts, asked, next_token, answers, now, is_deaf: false }
    }

    fn made() -> Rig {
        let drive = Drive::new(DriveProfile::nvme(SIZE_BYTES), 1);
        let mut rig = Rig::over(drive, |medium, config| {
            let mut pool = Pool::make_on_flash(medium, config).unwrap();
            pool.will_divide();
            pool.make_durable(medium, Time::ZERO);
            pool
        });
        rig.run();
        assert!(rig.parts[0].1.is_durable());
        rig
    }

    /// The power goes, or the process dies; one pool finds what there is.
    fn found(mut self, cut: bool) -> Rig {
        if cut {
            self.drive.cut()
        } else {
            self.drive.process_death()
        }
        let mut rig = Rig::over(self.drive, |medium, config| {
            let mut pool = Pool::open_from_flash(medium, config, Time::ZERO);
            pool.will_divide();
            pool
        });
        rig.run();
        let (medium, pool) = &mut rig.parts[0];
        assert!(pool.is_open(), "{:?}", pool.open_error());
        pool.begin_check(medium, rig.now);
        rig.run();
        assert!(rig.parts[0].1.is_checked());
        rig
    }

    /// Lets the second pool have its lane, and a vSSD there, if it has none yet.
    fn divide(&mut self) {
        let [(medium, first), (other, second)] = &mut self.parts[..] else { panic!("two parts") };
        assert_eq!(first.log_channels(), [0, 1]);
        let mut part = first.detach(&[OTHERS_LANE]);
        first.lend_slot(&mut part);
        other.take_channel(medium, OTHERS_LANE);
        second.attach(part);
    }

    fn made_and_divided() -> (Rig, VssdId) {
        let mut rig = Rig::made();
        rig.divide();
        let [(_, first), (_, second)] = &mut rig.parts[..] else { panic!("two parts") };
        let places =
            first.choose_places(Isolation::Channel, 0, 4 << 20, |channel| channel == OTHERS_LANE).unwrap();
        let id = first.new_vssd_id().unwrap();
        first.reserve(id, &places);
        second.admit(id, Isolation::Channel, &places);
        (rig, id)
    }

    /// The lane goes back.
    fn unite(&mut self) {
        self.carry(true);
        let [(medium, first), (other, second)] = &mut self.parts[..] else { panic!("two parts") };
        let mut part = second.detach(&[OTHERS_LANE]);
        second.return_slots(&mut part);
        medium.take_channel(other, OTHERS_LANE);
        first.attach(part);
    }

    /// What the pools have to say to each other.
    fn carry(&mut self, all: bool) {
        let now = self.now;
        let [(medium, first), (other, second)] = &mut self.parts[..] else { panic!("two parts") };
        if let Some(changes) = second.take_changes(all) {
            first.take_in(1, changes, medium, now);
        }
        if self.is_deaf {
            return;
        }
        for (to, durable) in first.take_durable() {
            assert_eq!(to, 1);
            second.states_are(durable, other, now);
        }
    }

    /// Until nothing is under way.
    fn run(&mut self) {
        loop {
            let (mut intents, mut completions, mut done) = (Vec::new(), Vec::new(), Vec::new());
            for at in 0..self.parts.len() {
                let (medium, pool) = &mut self.parts[at];
                medium.advance(self.now, &mut completions);
                for completion in completions.drain(..) {
                    pool.complete(completion, self.now, medium, &mut self.answers);
                }
                pool.work(self.now, medium);
                pool.take_ready(&mut self.answers);
                medium.take_intents(&mut intents);
                for Intent { token, work } in intents.drain(..) {
                    self.asked.insert(self.next_token, (at, token));
                    self.drive.submit(Intent { token: IntentToken(self.next_token), work }, self.now);
                    self.next_token += 1;
                }
            }
            self.carry(false);
            self.drive.advance(self.now, &mut done);
            for one in done {
                let (at, token) = self.asked.remove(&one.token.0).unwrap();
                self.parts[at].0.intent_done(IntentDone { token, ..one }, self.now);
            }
            let next = self.parts.iter().map(|(medium, _)| medium.next_event()).min().unwrap();
            let has_ready = self.parts.iter().any(|(_, pool)| pool.has_ready());
            match next.min(self.drive.next_event()) {
                _ if has_ready => {}
                Time::NEVER => return,
                due => self.now = self.now.max(due),
            }
        }
    }

    fn space(&mut self, at: usize, id: VssdId) -> Space<'_, DriveMedium> {
        let (medium, pool) = &mut self.parts[at];
        pool.space(id, medium, self.now)
    }

    fn append(&mut self, at: usize, id: VssdId, block: LogicalBlock) {
        let bytes = vec![0x5a; self.space(at, id).shape().program_unit_ius() as usize * IU_SIZE_BYTES];
        let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes));
        let parts = [payload].into_iter().collect();
        let oob = BufferMut::copy_from(&[]);
        self.space(at, id).append(SpaceToken(1), block, parts, oob, IoClass::HostWrite);
    }

    fn answered(&mut self) -> Vec<u64> {
        self.run();
        self.answers.drain(..).map(|(_, answer)| answer.result.map(|()| answer.token.0).unwrap()).collect()
    }
}

/// A block is held and another one given back; a sync says so.
fn change(rig: &mut Rig, at: usize, id: VssdId) -> LogicalBlock {
    let unit = UnitIndex(0);
    let [kept, given] = [3, 4].map(|purpose| rig.space(at, id).allocate(unit, Purpose(purpose)).unwrap());
    rig.append(at, id, kept);
    assert_eq!(rig.answered(), [1]);
    rig.space(at, id).free(given).unwrap();
    rig.space(at, id).flush(SpaceToken(2));
    rig.space(at, id).sync(SpaceToken(3));
    kept
}

fn held(rig: &mut Rig, at: usize, id: VssdId) -> Vec<LogicalBlock> {
    rig.space(at, id).held_blocks().iter().map(|held| held.block).collect()
}

/// Goal: a restart finds what another pool than the one that keeps the log changed.
#[test]
fn what_the_second_pool_changed_is_found() {
    for cut in [true, false] {
        let (mut rig, id) = Rig::made_and_divided();
        let kept = change(&mut rig, 1, id);
        assert_eq!(rig.answered(), [2, 3]);
        let mut rig = rig.found(cut);
        assert_eq!(rig.parts[0].1.vssd_ids().collect::<Vec<_>>(), [id]);
        assert_eq!(held(&mut rig, 0, id), [kept]);
        rig.parts[0].1.check_invariants();
        // Divided again it goes on, and so once more.
        rig.divide();
        let second = change(&mut rig, 1, id);
        assert_eq!(rig.answered(), [2, 3]);
        rig.parts.iter().for_each(|(_, pool)| pool.check_invariants());
        let mut rig = rig.found(cut);
        assert_eq!(held(&mut rig, 0, id), [kept, second]);
    }
}

/// Goal: the second pool answers nobody before the first one says that its changes are durable.
#[test]
fn the_second_pool_waits_for_the_first() {
    let (mut rig, id) = Rig::made_and_divided();
    rig.is_deaf = true;
    let unit = UnitIndex(0);
    let block = rig.space(1, id).allocate(unit, Purpose(3)).unwrap();
    rig.append(1, id, block);
    rig.space(1, id).sync(SpaceToken(3));
    assert!(rig.answered().is_empty(), "the allocation is not known to be durable");
    rig.is_deaf = false;
    assert_eq!(rig.answered(), [3, 1]);
    // Of what was never told nothing is there.
    let (mut rig, id) = Rig::made_and_divided();
    rig.carry(true);
    let now = rig.now;
    let (medium, first) = &mut rig.parts[0];
    first.make_durable(medium, now);
    rig.run();
    let mut rig = rig.found(true);
    assert_eq!(held(&mut rig, 0, id), []);
}

/// Goal: channels go back and forth, and what was done on them meanwhile is known on either side.
#[test]
fn channels_come_back_with_all_that_was_done() {
    let (mut rig, id) = Rig::made_and_divided();
    let kept = change(&mut rig, 1, id);
    assert_eq!(rig.answered(), [2, 3]);
    rig.unite();
    assert_eq!(held(&mut rig, 0, id), [kept]);
    let second = change(&mut rig, 0, id);
    assert_eq!(rig.answered(), [2, 3]);
    rig.parts[0].1.check_invariants();
    let mut rig = rig.found(true);
    assert_eq!(held(&mut rig, 0, id), [kept, second]);
}

/// Goal: a failed flush of the log, or no place left for it, ends the promises of all pools.
#[test]
fn a_log_that_is_lost_is_lost_for_all() {
    let (mut rig, id) = Rig::made_and_divided();
    let block = rig.space(1, id).allocate(UnitIndex(0), Purpose(3)).unwrap();
    rig.append(1, id, block);
    assert_eq!(rig.answered(), [1]);
    rig.drive.faults_mut().flush_failures = 1;
    rig.space(1, id).free(block).unwrap();
    rig.space(1, id).sync(SpaceToken(3));
    rig.run();
    let answers: Vec<_> = rig.answers.drain(..).map(|(_, answer)| answer.result).collect();
    assert_eq!(answers, [Err(SpaceError::ReadOnly)]);
    assert!(rig.parts.iter().all(|(_, pool)| pool.is_state_log_lost()));
    assert!(rig.space(1, id).is_read_only());
}
