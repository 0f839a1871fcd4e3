//! What a vSSD costs above flash: block maps, allocation and the exchange of dies, on `cnex-1tb` in tags, against the same
//! commands given to the event model of the flash itself. Processor time of this thread; the flash's time is virtual.

use super::cases::SuiteSettings;
use super::row::Row;
use diecut_devices::{Backing, Device, Options, Profile};
use diecut_media::{Command, Completion, Media, MediaToken, Operation};
use diecut_spec::Isolation;
use diecut_units::{BlockIndex, Buffer, BufferMut, ContentMode, Payload, Time};
use diecut_vssd::{
    BlockRun, EraseBlockSpace, IoClass, LogicalBlock, Pool, PoolConfig, Purpose, SpaceToken, UnitIndex,
    VssdId, WearConfig,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const READS: u64 = 2_000_000;
const ALLOCATIONS: u64 = 100_000;
/// Under way at a time, over the four dies of a channel.
const DEPTH: u64 = 16;
const MOVED_BLOCKS: u32 = 64;

/// A device without bad blocks, and what drives it.
struct Rig {
    device: Device,
    now: Time,
    completions: Vec<Completion>,
}

impl Rig {
    fn new() -> Outcome<Rig> {
        let mut profile = Profile::named("cnex-1tb")?;
        profile.bad_blocks.factory_percent = 0.0;
        let device = Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() })?;
        Ok(Rig { device, now: Time::ZERO, completions: Vec::new() })
    }

    /// To the next event of the flash.
    fn advance(&mut self) {
        self.now = self.now.max(self.device.next_event());
        self.device.advance(self.now, &mut self.completions);
    }

    /// A device, a pool on it, and a vSSD of a channel.
    fn with_vssd(rate_bytes_per_second: u64) -> Outcome<(Rig, Pool, [VssdId; 2])> {
        let rig = Rig::new()?;
        let config = PoolConfig::suited_to(rig.device.geometry());
        // Nothing moves by itself, and nothing holds up what is told to.
        let wear = WearConfig {
            channel_threshold_erases: 0,
            die_threshold_erases: 0,
            rate_bytes_per_second,
            ..config.wear
        };
        let mut pool = Pool::create(&rig.device, PoolConfig { wear, ..config });
        let ids = [pool.alloc_vssd(Isolation::Channel, 0, 1)?, pool.alloc_vssd(Isolation::Channel, 0, 1)?];
        Ok((rig, pool, ids))
    }

    /// Until everything that was asked for came back.
    fn settle(&mut self, pool: &mut Pool) -> Outcome<()> {
        let mut answers = Vec::new();
        loop {
            pool.work(self.now, &mut self.device);
            let next = self.device.next_event().min(pool.deadline());
            if next == Time::NEVER {
                return Ok(());
            }
            self.now = self.now.max(next);
            self.device.advance(self.now, &mut self.completions);
            for completion in self.completions.drain(..) {
                pool.complete(completion, self.now, &mut self.device, &mut answers);
            }
            pool.take_ready(&mut answers);
            for (_, answer) in answers.drain(..) {
                answer.result?;
            }
        }
    }

    fn fill(&mut self, pool: &mut Pool, id: VssdId, unit: UnitIndex, units: u32) -> Outcome<LogicalBlock> {
        let mut space = pool.space(id, &mut self.device, self.now);
        let shape = *space.shape();
        let block = space.allocate(unit, Purpose(1))?;
        for _ in 0..units {
            let tags = Buffer::copy_from(&vec![1; shape.program_unit_ius() as usize * 8]);
            let parts = [Payload::new(ContentMode::Tags, tags)].into_iter().collect();
            let oob = BufferMut::copy_from(&vec![0; shape.program_unit_oob_size_bytes() as usize]);
            space.append(SpaceToken(0), block, parts, oob, IoClass::HostWrite);
        }
        self.settle(pool)?;
        Ok(block)
    }
}

/// The rows of item i.
pub(crate) fn rows(settings: &SuiteSettings) -> Outcome<Vec<Row>> {
    // First: memory that others gave back would be taken without being seen.
    let (bytes, flash_bytes) = map_memory()?;
    let mut samples: [Vec<(f64, f64)>; 2] = Default::default();
    let mut moved = Vec::new();
    for _ in 0..settings.repetitions {
        samples[0].push((flash_reads()?, vssd_reads()?));
        samples[1].push((flash_erases()?, allocations()?));
        moved.push(exchange()?);
    }
    let what = "4 KiB reads of a channel-isolated vSSD: block map, die's queue, event model; reference: event model alone";
    let mut reads = Row::of("i read", what, "M/s", &samples[0]);
    let what = "erase blocks allocated, erased and freed; reference: erases of the event model alone";
    let mut allocations = Row::of("i allocate", what, "M/s", &samples[1]);
    for row in [&mut reads, &mut allocations] {
        let nanoseconds = 1e3 / row.value - 1e3 / row.reference.unwrap_or(f64::INFINITY);
        row.note = format!("{nanoseconds:.0} ns above the event model");
    }
    let what = "an erase block of 16 MiB moved by an exchange, both ways: each unit read twice, programmed; event model included";
    let mut migration = Row::absolute("i migrate", what, "us", super::row::median(&moved));
    migration.note = "processor time".to_owned();
    let what =
        "memory of the block maps of a device that is given away whole, per TB of flash (FlashBlox: 8)";
    let mut memory = Row::absolute("i memory", what, "MB", bytes / 1e6 / (flash_bytes / 1e12));
    memory.note = format!("{:.1} MB for {:.2} TB in erase blocks of 16 MiB", bytes / 1e6, flash_bytes / 1e12);
    Ok(vec![reads, allocations, migration, memory])
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0 >> 32) * u128::from(bound)) >> 32) as u32
    }
}

/// Millions a second of `count` operations that `body` does.
fn rate(count: u64, body: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let begun = processor_seconds();
    body()?;
    Ok(count as f64 / (processor_seconds() - begun) / 1e6)
}

fn flash_reads() -> Outcome<f64> {
    let mut rig = Rig::new()?;
    let geometry = *rig.device.geometry();
    let pages = rig.device.capabilities().program_unit_pages;
    let unit_ius = pages * geometry.ius_per_page();
    let block = |die: u32| geometry.die_at(die).erase_block(BlockIndex(0));
    for die in 0..u32::from(geometry.dies_per_channel) {
        let tags = Payload::new(ContentMode::Tags, Buffer::copy_from(&vec![1; unit_ius as usize * 8]));
        let oob = Buffer::copy_from(&vec![0; (pages * geometry.oob_size_bytes) as usize]);
        let operation =
            Operation::Program { block: block(die), first_page: 0, parts: [tags].into_iter().collect(), oob };
        rig.device.submit(Command { token: MediaToken(0), operation }, rig.now);
    }
    while rig.device.next_event() != Time::NEVER {
        rig.advance();
    }
    rig.completions.clear();
    let mut random = Random(88_172_645_463_325_252);
    let mut read = |device: &mut Device, token: u64, destination: BufferMut, now: Time| {
        let die = token as u32 % u32::from(geometry.dies_per_channel);
        let operation = Operation::Read {
            block: block(die),
            first_iu: random.below(unit_ius),
            iu_count: 1,
            destination,
            oob: None,
        };
        device.submit(Command { token: MediaToken(token), operation }, now);
    };
    for token in 0..DEPTH {
        read(&mut rig.device, token, BufferMut::copy_from(&[0; 8]), rig.now);
    }
    rate(READS, || {
        let mut done = 0;
        while done < READS {
            rig.advance();
            done += rig.completions.len() as u64;
            for completion in std::mem::take(&mut rig.completions) {
                let destination = completion.destination.ok_or("a read came back without its buffer")?;
                read(&mut rig.device, completion.token.0, destination, rig.now);
            }
        }
        Ok(())
    })
}

fn vssd_reads() -> Outcome<f64> {
    let (mut rig, mut pool, [id, _]) = Rig::with_vssd(0)?;
    let shape = *pool.shape();
    let units = rig.device.geometry().dies_per_channel;
    let blocks = (0..units)
        .map(|unit| rig.fill(&mut pool, id, UnitIndex(unit), 1))
        .collect::<Outcome<Vec<LogicalBlock>>>()?;
    let mut random = Random(88_172_645_463_325_252);
    let mut read = |rig: &mut Rig, pool: &mut Pool, token: u64, destination: BufferMut| {
        let block = blocks[token as usize % blocks.len()];
        let first_iu = random.below(shape.program_unit_ius());
        let mut space = pool.space(id, &mut rig.device, rig.now);
        space.read(
            SpaceToken(token),
            BlockRun { block, first_iu, iu_count: 1 },
            destination,
            None,
            IoClass::HostRead,
        );
    };
    for token in 0..DEPTH {
        read(&mut rig, &mut pool, token, BufferMut::copy_from(&[0; 8]));
    }
    rate(READS, || {
        let (mut done, mut answers, mut completions) = (0, Vec::new(), Vec::new());
        while done < READS {
            rig.advance();
            std::mem::swap(&mut completions, &mut rig.completions);
            for completion in completions.drain(..) {
                pool.complete(completion, rig.now, &mut rig.device, &mut answers);
            }
            pool.take_ready(&mut answers);
            done += answers.len() as u64;
            for (_, answer) in std::mem::take(&mut answers) {
                answer.result?;
                let destination = answer.destination.ok_or("a read came back without its buffer")?;
                read(&mut rig, &mut pool, answer.token.0, destination);
            }
        }
        Ok(())
    })
}

fn flash_erases() -> Outcome<f64> {
    let mut rig = Rig::new()?;
    let geometry = *rig.device.geometry();
    let per_die = geometry.erase_blocks_per_die();
    rate(ALLOCATIONS, || {
        for number in 0..ALLOCATIONS as u32 {
            let die = geometry.die_at(number % u32::from(geometry.dies_per_channel));
            let block = die.erase_block(BlockIndex(number / 4 % per_die));
            let operation = Operation::Erase { block };
            rig.device.submit(Command { token: MediaToken(0), operation }, rig.now);
            if u64::from(number) % DEPTH == DEPTH - 1 {
                while rig.device.next_event() != Time::NEVER {
                    rig.advance();
                }
                rig.completions.clear();
            }
        }
        Ok(())
    })
}

fn allocations() -> Outcome<f64> {
    let (mut rig, mut pool, [id, _]) = Rig::with_vssd(0)?;
    let units = rig.device.geometry().dies_per_channel;
    rate(ALLOCATIONS, || {
        let mut held = Vec::new();
        for number in 0..ALLOCATIONS {
            let mut space = pool.space(id, &mut rig.device, rig.now);
            held.push(space.allocate(UnitIndex((number % u64::from(units)) as u16), Purpose(1))?);
            if number % DEPTH == DEPTH - 1 {
                rig.settle(&mut pool)?;
                let mut space = pool.space(id, &mut rig.device, rig.now);
                held.drain(..).try_for_each(|block| space.free(block))?;
            }
        }
        Ok(())
    })
}

/// Microseconds of the processor for each block that two dies exchange.
fn exchange() -> Outcome<f64> {
    let (mut rig, mut pool, ids) = Rig::with_vssd(0)?;
    let units = pool.shape().program_units();
    for id in ids {
        for _ in 0..MOVED_BLOCKS / 2 {
            rig.fill(&mut pool, id, UnitIndex(0), units)?;
        }
    }
    pool.begin_migration();
    let all = 0..rig.device.geometry().dies();
    let [one, other] = all.filter(|&die| pool.die_erases(die) > 0).collect::<Vec<u32>>()[..] else {
        return Err("blocks of two vSSDs lie on two dies".into());
    };
    pool.exchange_dies(one, other)?;
    let begun = processor_seconds();
    rig.settle(&mut pool)?;
    let moved = pool.migration_status().moved_blocks;
    if moved != u64::from(MOVED_BLOCKS) {
        return Err(format!("{moved} blocks moved instead of {MOVED_BLOCKS}").into());
    }
    Ok((processor_seconds() - begun) * 1e6 / moved as f64)
}

/// Bytes that a pool over a whole device takes when all of it is given away, and bytes of that device.
fn map_memory() -> Outcome<(f64, f64)> {
    let rig = Rig::new()?;
    let geometry = *rig.device.geometry();
    let before = resident_bytes()?;
    let mut pool = Pool::create(&rig.device, PoolConfig::suited_to(&geometry));
    for _ in 0..geometry.channels {
        pool.alloc_vssd(Isolation::Channel, 0, 1)?;
    }
    let bytes = resident_bytes()? - before;
    drop(pool);
    let flash = geometry.erase_blocks() as f64
        * f64::from(geometry.pages_per_block)
        * f64::from(geometry.planes_per_die)
        * f64::from(geometry.page_size_bytes);
    Ok((bytes, flash))
}

fn resident_bytes() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split_whitespace().nth(1).ok_or("/proc/self/statm is empty")?.parse()?;
    // SAFETY: asks for a constant.
    let page_size_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * page_size_bytes as f64)
}

/// Processor time of this thread so far.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is what the call fills in.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "a thread has a clock");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
