//! The event model, pinned: digests of every completion (when, which, what came back) over long random mixes of
//! commands. Who makes the engine faster changes no digest; who changes what is modelled on purpose pins the new ones
//! (each failing line prints what it found) and says why in the commit.

use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

struct Digest(u64);

impl Digest {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
    fn add_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    fn add_error(&mut self, error: MediaError) {
        let (kind, block, page) = match error {
            MediaError::Uncorrectable { block, page } => (1, block, page),
            MediaError::Erased { block, page } => (2, block, page),
            MediaError::ProgramFailed { block, page } => (3, block, page),
            MediaError::EraseFailed { block } => (4, block, 0),
            MediaError::DieOffline { block } => (5, block, 0),
            MediaError::WrongContentMode { block, page } => (6, block, page),
            MediaError::PowerLost => (7, EraseBlockAddress::new(0, 0, 0), 0),
            MediaError::NoRoom { block, page } => (8, block, page),
            MediaError::FlushFailed => unreachable!("the emulator has no volatile cache"),
        };
        self.add(kind << 32 | u64::from(page));
        self.add(u64::from(block.channel.0) << 48 | u64::from(block.die.0) << 32 | u64::from(block.block.0));
    }
}

/// Blocks of each die that the mix uses.
const BLOCKS: usize = 5;

struct Mix {
    device: Device,
    random: Xoshiro256PlusPlus,
    now: Time,
    digest: Digest,
    completions: Vec<Completion>,
    /// Blocks with their submitted pages; `u32::MAX` before an erase.
    blocks: Vec<Vec<(EraseBlockAddress, u32)>>,
    token: u64,
    under_way: u64,
}

impl Mix {
    fn new(profile: &Profile, options: Options) -> Mix {
        let seed = options.seed;
        let device = Device::create(profile, options).unwrap();
        let geometry = *device.geometry();
        let good = |die: DieAddress| {
            let blocks =
                (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)));
            blocks.filter(|block| !device.is_factory_bad(*block)).take(BLOCKS).map(|block| (block, u32::MAX))
        };
        let blocks = geometry.all_dies().map(|die| good(die).collect()).collect();
        Mix {
            device,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed),
            now: Time::ZERO,
            digest: Digest(0xcbf2_9ce4_8422_2325),
            completions: Vec::new(),
            blocks,
            token: 0,
            under_way: 0,
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.random.random_range(0..limit)
    }

    fn operation(&mut self) -> Operation {
        let geometry = *self.device.geometry();
        let capabilities = *self.device.capabilities();
        let unit = capabilities.program_unit_pages;
        let pages = geometry.pages_per_erase_block();
        let ius = geometry.ius_per_page();
        let mode = capabilities.content_mode;
        let die = self.below(geometry.dies()) as usize;
        let at = self.below(BLOCKS as u32) as usize;
        let (block, submitted) = self.blocks[die][at];
        if submitted == u32::MAX || (submitted == pages && self.below(6) == 0) || self.below(60) == 0 {
            self.blocks[die][at].1 = 0;
            return Operation::Erase { block };
        }
        let kind = self.below(12);
        if kind < 3 && submitted < pages {
            let units = 1 + self.below(3.min((pages - submitted) / unit));
            let count = units * unit;
            self.blocks[die][at].1 += count;
            let content: Vec<u8> = (0..(count * ius) as usize * mode.bytes_per_iu())
                .map(|byte| (byte as u64 / 8 * 31 + self.token) as u8)
                .collect();
            let whole = Payload::new(mode, Buffer::copy_from(&content));
            let cut = 1 + self.below(count * ius - 1);
            let parts = [whole.slice(0, cut), whole.slice(cut, count * ius - cut)].into_iter().collect();
            let oob: Vec<u8> = (0..count * geometry.oob_size_bytes)
                .map(|byte| (u64::from(byte) ^ self.token) as u8)
                .collect();
            return Operation::Program { block, first_page: submitted, parts, oob: Buffer::copy_from(&oob) };
        }
        let other = self.below(BLOCKS as u32) as usize;
        let (destination, next) = self.blocks[die][other];
        if kind == 3 && capabilities.copy_within_die && other != at && next != u32::MAX {
            let count = unit * (1 + self.below(2));
            if submitted >= count && next + count <= pages {
                self.blocks[die][other].1 += count;
                let source_page = self.below((submitted - count) / unit + 1) * unit;
                let oob = (self.below(2) == 0).then(|| {
                    Buffer::copy_from(&vec![self.token as u8; (count * geometry.oob_size_bytes) as usize])
                });
                return Operation::Copy {
                    source: block,
                    source_page,
                    destination,
                    destination_page: next,
                    page_count: count,
                    oob,
                };
            }
        }
        if kind == 4 {
            let first_page = self.below(pages);
            let count = 1 + self.below((pages - first_page).min(5));
            let oob = BufferMut::copy_from(&vec![0xee; (count * geometry.oob_size_bytes) as usize]);
            return Operation::ReadOob { block, first_page, oob };
        }
        let first_iu = self.below(pages * ius);
        let most = if self.below(3) == 0 { 40 } else { 2 };
        let iu_count = 1 + self.below((pages * ius - first_iu).min(most));
        let touched = (first_iu + iu_count - 1) / ius - first_iu / ius + 1;
        let oob = (self.below(3) == 0)
            .then(|| BufferMut::copy_from(&vec![0xee; (touched * geometry.oob_size_bytes) as usize]));
        let destination = BufferMut::copy_from(&vec![0xee; iu_count as usize * mode.bytes_per_iu()]);
        Operation::Read { block, first_iu, iu_count, destination, oob }
    }

    fn advance(&mut self) {
        self.device.advance(self.now, &mut self.completions);
        for done in self.completions.drain(..) {
            self.under_way -= 1;
            self.digest.add(self.now.0);
            self.digest.add(done.token.0);
            match done.result {
                Ok(()) => {
                    self.digest.add_bytes(done.destination.as_deref().unwrap_or(&[]));
                    self.digest.add_bytes(done.oob.as_deref().unwrap_or(&[]));
                }
                Err(error) => self.digest.add_error(error),
            }
        }
        self.digest.add(self.device.next_event().0);
    }

    /// Takes over what a power cut or a death left, and starts again with erases.
    fn begin_again(&mut self) {
        self.under_way = 0;
        self.blocks.iter_mut().flatten().for_each(|(_, submitted)| *submitted = u32::MAX);
    }

    fn step(&mut self, depth: u64) {
        if !self.device.is_powered() {
            self.advance();
            self.device.power_on();
            self.begin_again();
        }
        while self.under_way < depth && self.device.is_powered() && self.below(5) != 0 {
            let operation = self.operation();
            self.token += 1;
            self.under_way += 1;
            // Sometimes a little after the last event, so that commands meet operations half done.
            let late = if self.below(4) == 0 { self.below(200_000).into() } else { 0 };
            self.now = Time(self.now.0 + late);
            self.device.submit(Command { token: MediaToken(self.token), operation }, self.now);
        }
        let next = self.device.next_event();
        if next < Time::NEVER {
            self.now = self.now.max(next);
        }
        self.advance();
    }

    fn finish(mut self) -> u64 {
        for die in 0..self.device.geometry().dies() {
            let of = *self.device.die_statistics(die);
            for word in
                [of.reads, of.program_units, of.erases, of.read_bytes, of.programmed_bytes, of.array_busy_ns]
            {
                self.digest.add(word);
            }
        }
        for channel in 0..self.device.geometry().channels {
            self.digest.add(self.device.bus_busy_ns(channel));
            self.digest.add(self.device.erases_of_channel(channel));
        }
        self.digest.add(self.device.operations());
        self.digest.0
    }
}

fn named(name: &str) -> Profile {
    Profile::named(name).unwrap()
}

/// A profile with few small blocks, so that memory and time of the test stay small.
fn small(name: &str, change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = named(name);
    profile.geometry.blocks_per_plane = 12;
    profile.geometry.pages_per_block = profile.geometry.pages_per_block.min(24);
    profile.protected_memory_bytes = 4096;
    change(&mut profile);
    profile
}

fn plain(profile: &mut Profile) {
    profile.die.multi_plane = false;
    profile.die.cache_read = false;
    profile.die.cache_program = false;
    profile.die.page_register_reuse = false;
    profile.bus.burst_size_bytes = 0;
    profile.bus.arbitration = Arbitration::RoundRobin;
    profile.host.latency_us = 8.0;
    profile.host.controller_us = 1.0;
    profile.host.link_mb_per_s = 500.0;
}

fn suspending(profile: &mut Profile) {
    (profile.die.suspend, profile.die.suspend_us, profile.die.resume_us) = (true, 20.0, 10.0);
    profile.die.suspend_limit = 3;
}

fn unlucky() -> FaultPlan {
    let (die, other) = (FaultyDie { channel: 0, die: 1 }, FaultyDie { channel: 1, die: 0 });
    let rates = FaultRates {
        program_fail: 0.01,
        erase_fail: 0.01,
        uncorrectable_read: 0.01,
        silent_flip: 0.01,
        read_retry: 0.05,
        retry_limit: 3,
        wear_growth: 4.0,
        retention_growth_per_day: 1000.0,
        wear_out: true,
    };
    let faults = vec![
        Fault::Fail { die, kind: OperationKind::Program, nth: 5 },
        Fault::SilentFlip { die, nth: 7, bit: 12345 },
        Fault::SlowDie { die: other, from_ns: 1_000_000, until_ns: 900_000_000, percent: 170 },
        Fault::DieOffline { die: other, from_ns: 2_000_000_000 },
        Fault::PowerCutAtOperation { nth: 900 },
        Fault::PowerCutAtTime { time_ns: 700_000_000 },
    ];
    FaultPlan { rates, faults }
}

#[test]
fn every_completion_comes_when_it_always_came() {
    let tags = || Options { backing: Backing::Tags, seed: 11, ..Options::default() };
    let memory = || Options { seed: 12, ..Options::default() };
    let unpaced = || Options { pacing: Pacing::Unpaced, seed: 13, ..Options::default() };
    let faulty = || Options { backing: Backing::Tags, seed: 14, faults: unlucky(), ..Options::default() };
    let steps = 20_000;
    let cases: Vec<(&str, Profile, Options, u64, u32, u64)> = vec![
        ("tiny", small("tiny", |_| ()), memory(), 24, steps, 0x4821_36d9_9346_bff4),
        ("tiny, tags, shallow", small("tiny", |_| ()), tags(), 3, steps, 0xa86d_7fd1_e2d0_5e00),
        ("tiny, unpaced", small("tiny", |_| ()), unpaced(), 8, steps, 0x6d4f_1f2e_768c_d9f1),
        ("tiny, plain dies", small("tiny", plain), tags(), 24, steps, 0xd120_3524_5a5e_29bf),
        ("tiny, suspending", small("tiny", suspending), tags(), 16, steps, 0xe0f0_7113_eb7e_1f64),
        ("tiny, faults", small("tiny", |_| ()), faulty(), 16, steps, 0x0815_a089_b0ed_3873),
        ("tiny, faults, suspending", small("tiny", suspending), faulty(), 16, steps, 0x6605_be1b_c004_6bca),
        ("one-shot", small("tiny-one-shot", |_| ()), tags(), 24, steps, 0x6b19_837e_4a6e_8343),
        ("one-shot, round robin", small("tiny-one-shot", plain), tags(), 24, steps, 0xd0dd_3adc_474d_6c52),
        ("cnex-1tb", small("cnex-1tb", |_| ()), tags(), 256, steps, 0x3881_a87b_4203_ef00),
        ("cnex-1tb, suspending", small("cnex-1tb", suspending), tags(), 300, steps, 0x161d_f97a_7bc0_82bc),
        ("westlake", small("westlake", |_| ()), tags(), 500, steps, 0xa78c_f81e_c068_5060),
        ("slc", small("slc", |_| ()), tags(), 100, steps, 0x0662_02f2_0722_206a),
        ("mlc", small("mlc", |_| ()), tags(), 100, steps, 0xfda3_fead_6ba0_9c05),
        ("tlc", small("tlc", |_| ()), tags(), 100, steps, 0x1d45_ac55_c146_9cde),
        ("qlc", small("qlc", |_| ()), tags(), 100, steps, 0x7c3a_25ae_ad45_5d3c),
    ];
    let mut changed = Vec::new();
    for (name, profile, options, depth, steps, pinned) in cases {
        let mut mix = Mix::new(&profile, options);
        for step in 0..steps {
            mix.step(depth);
            if step % 5000 == 4999 && name.contains("suspending") {
                mix.device.process_death(mix.now);
                mix.begin_again();
            }
        }
        let found = mix.finish();
        if found != pinned {
            changed.push(format!("(\"{name}\", {found:#018x})"));
        }
    }
    assert!(changed.is_empty(), "not as pinned:\n{}", changed.join("\n"));
}
