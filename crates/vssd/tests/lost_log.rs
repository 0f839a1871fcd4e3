//! Goal: an append that waits for the end of a move is answered when the log of block states is lost meanwhile, and what was
//! acknowledged is there after the death of the process. Method: without protected memory a block that takes appends changes its
//! die; all writes of the log fail from its n-th one on, for each n, with an append that came when the move began, or when the copy had
//! just taken the place of the original. The process dies and the pool is opened again from flash.

use diecut_emulator::{Device, Options, Profile};
use diecut_media::*;
use diecut_spec::Isolation;
use diecut_testing::pool::PoolWorld;
use diecut_testing::tapped::{Tap, Tapped};
use diecut_units::*;
use diecut_vssd::*;

/// Program units before the move.
const WRITTEN_UNITS: u64 = 2;
/// More writes of the log than a move needs.
const LOG_WRITES_MAX: u64 = 40;

/// Programs of the log fail from some moment on.
struct LogFails {
    /// Programs of the log that still work.
    programs_left: u64,
}

impl Tap for LogFails {
    fn pass(&mut self, command: Command, _device: &Device) -> Vec<Result<Command, (Command, MediaError)>> {
        let failed = match &command.operation {
            Operation::Program { block, first_page, oob, .. }
                if OobRecord::decode(oob).is_some_and(|record| record.kind == OobKind::StateLog) =>
            {
                let error = MediaError::ProgramFailed { block: *block, page: *first_page };
                let fails = self.programs_left == 0;
                self.programs_left = self.programs_left.saturating_sub(1);
                fails.then_some(error)
            }
            _ => None,
        };
        vec![match failed {
            Some(error) => Err((command, error)),
            None => Ok(command),
        }]
    }
}

type World = PoolWorld<Tapped<LogFails>>;

fn world() -> World {
    let mut profile = Profile::named("tiny").unwrap();
    profile.protected_memory_bytes = 0;
    profile.bad_blocks.factory_percent = 0.0;
    let device = Device::create(&profile, Options { seed: 7, ..Options::default() }).unwrap();
    let wear = WearConfig { follow_age: false, rate_bytes_per_second: 0, ..WearConfig::default() };
    let config = PoolConfig { wear, ..PoolConfig::suited_to(device.geometry()) };
    World::open(Tapped::new(device, LogFails { programs_left: u64::MAX }), config, Time::ZERO)
}

fn append(world: &mut World, id: VssdId, block: LogicalBlock, unit: u64) {
    world.append(id, SpaceToken(unit), block, unit as u8 + 1, IoClass::HostWrite);
}

/// When the append comes that is to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    MoveBegins,
    CopyTookThePlace,
}

/// What became of it, and whether the log was lost before it was answered.
fn run(moment: Moment, log_programs: u64) -> (Result<(), SpaceError>, bool) {
    let mut world = world();
    let id = world.pool.alloc_vssd(Isolation::Die, 0, 1).unwrap();
    let block = world.allocate(id, 0);
    (0..WRITTEN_UNITS).for_each(|unit| append(&mut world, id, block, unit));
    world.pool.make_durable(&mut world.media, world.now);
    world.run();
    assert!(world.pool.is_durable());
    assert_eq!(world.answers.drain(..).filter(|(_, answer)| answer.result.is_ok()).count(), 2);
    let place = world.pool.placement(id)[0];
    let die = u32::from(place.channel * world.media.geometry().dies_per_channel + place.die);
    let origin = world.pool.place_of_block(id, block);
    world.pool.begin_migration();
    world.pool.exchange_dies(die, (die + 1) % world.media.geometry().dies()).unwrap();
    world.media.tap.programs_left = log_programs;
    let mut is_asked = false;
    loop {
        let is_time = match moment {
            Moment::MoveBegins => world.pool.is_moving(),
            Moment::CopyTookThePlace => world.pool.place_of_block(id, block) != origin,
        };
        if is_time && !is_asked {
            append(&mut world, id, block, WRITTEN_UNITS);
            is_asked = true;
        }
        if !world.step() {
            break;
        }
        world.pool.check_invariants();
        if world.pool.is_state_log_lost() && !is_asked {
            // It never came so far.
            return (Ok(()), false);
        }
    }
    let lost = world.pool.is_state_log_lost();
    assert_eq!(world.answers.len(), 1, "{moment:?}, {log_programs} writes of the log: {:?}", world.answers);
    let (_, answer) = world.answers.pop().expect("counted");
    assert_eq!(answer.token, SpaceToken(WRITTEN_UNITS));
    // As after the death of the process, on a device that works again.
    world.media.device.process_death(world.now);
    world.media.tap.programs_left = u64::MAX;
    let mut world = world.open_again();
    let acknowledged = WRITTEN_UNITS + u64::from(answer.result.is_ok());
    for unit in 0..acknowledged {
        let read = world.read(id, block, unit as u32 * world.pool.shape().program_unit_ius());
        assert_eq!(read, Ok(unit as u8 + 1), "{moment:?}, {log_programs} writes of the log, unit {unit}");
    }
    world.pool.check_invariants();
    (answer.result, lost)
}

#[test]
fn an_append_held_by_a_move_is_answered_when_the_log_is_lost() {
    for moment in [Moment::MoveBegins, Moment::CopyTookThePlace] {
        let outcomes: Vec<_> = (0..LOG_WRITES_MAX).map(|writes| run(moment, writes)).collect();
        let refused = outcomes.iter().filter(|(result, lost)| *lost && result.is_err()).count();
        assert!(refused > 0, "{moment:?}: the log is lost while the new place is not durable: {outcomes:?}");
        let unharmed = outcomes.iter().filter(|(_, lost)| !lost).count();
        assert!(unharmed > 0, "{moment:?}: in {LOG_WRITES_MAX} writes of the log a move is through");
        for (result, _) in outcomes {
            assert!(matches!(result, Ok(()) | Err(SpaceError::AppendFailed { .. })), "{result:?}");
        }
    }
}
