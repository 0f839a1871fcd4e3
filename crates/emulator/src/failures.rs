//! What goes wrong: chance and appointments, counted and decided when a command begins at its die.

use crate::block::{Block, address_of};
use crate::command::{CommandState, Kind};
use crate::fault::{Fault, FaultPlan, FaultRates, FaultyDie, OperationKind};
use crate::raw::HardRead;
use diecut_media::MediaError;
use diecut_units::{DieAddress, Geometry, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The plan of a device, and how far it is carried out.
pub(crate) struct Failures {
    rates: FaultRates,
    has_rates: bool,
    faults: Vec<Fault>,
    /// Erases that each block is good for.
    endurance: Vec<u32>,
    /// Operations begun, by die and [`OperationKind`].
    begun: Vec<[u64; 4]>,
    /// Reads that were hard, where somebody wants to know: the number of the block, and the read.
    pub(crate) hard_reads: Option<Vec<(u64, HardRead)>>,
    /// Operations begun on the whole device.
    pub(crate) operations: u64,
    /// For all that happens by chance, torn pages too: one generator, so that one seed gives one run.
    pub(crate) random: Xoshiro256PlusPlus,
}

impl OperationKind {
    #[inline(always)]
    fn of(kind: Kind) -> OperationKind {
        match kind {
            Kind::Read | Kind::ReadOob => OperationKind::Read,
            Kind::Program => OperationKind::Program,
            Kind::Erase => OperationKind::Erase,
            Kind::Copy => OperationKind::Copy,
        }
    }
}

impl Failures {
    /// Of a new device, with the endurance of each block.
    pub(crate) fn new(plan: FaultPlan, endurance: Vec<u32>, dies: u32, seed: u64) -> Failures {
        Failures {
            has_rates: plan.rates != FaultRates::default(),
            rates: plan.rates,
            faults: plan.faults,
            endurance,
            begun: vec![[0; 4]; dies as usize],
            hard_reads: None,
            operations: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Of a part that holds no channel yet. Appointments that count the operations of a whole device stay with the first part.
    pub(crate) fn empty_part(&mut self) -> Failures {
        let per_device = |fault: &Fault| !matches!(fault, Fault::PowerCutAtOperation { .. });
        Failures {
            rates: self.rates.clone(),
            has_rates: self.has_rates,
            faults: self.faults.iter().copied().filter(per_device).collect(),
            endurance: self.endurance.clone(),
            begun: self.begun.clone(),
            hard_reads: self.hard_reads.as_ref().map(|_| Vec::new()),
            operations: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(self.random.random()),
        }
    }

    /// Takes over what some dies have begun.
    pub(crate) fn take_from(&mut self, other: &Failures, dies: std::ops::Range<usize>) {
        self.begun[dies.clone()].copy_from_slice(&other.begun[dies]);
    }

    /// The next read of a die fails.
    pub(crate) fn lose_next_read(&mut self, number: usize, die: DieAddress) {
        let nth = self.begun[number][OperationKind::Read as usize];
        let die = FaultyDie { channel: die.channel.0, die: die.die.0 };
        self.add_fault(Fault::Fail { die, kind: OperationKind::Read, nth });
    }

    /// Adds something that goes wrong from now on.
    pub(crate) fn add_fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// When the power goes by appointment of time, if ever.
    pub(crate) fn cut_time(&self) -> Option<Time> {
        let times = self.faults.iter().filter_map(|fault| match fault {
            Fault::PowerCutAtTime { time_ns } => Some(Time(*time_ns)),
            _ => None,
        });
        times.min()
    }

    /// Forgets appointments of power cuts: they were kept.
    pub(crate) fn forget_cuts(&mut self, now: Time) {
        let operations = self.operations;
        self.faults.retain(|fault| match fault {
            Fault::PowerCutAtTime { time_ns } => *time_ns > now.0,
            Fault::PowerCutAtOperation { nth } => *nth >= operations,
            _ => true,
        });
    }

    /// How long array work takes on this die now.
    #[inline(always)]
    pub(crate) fn stretched(&self, geometry: &Geometry, time: u64, die: u32, now: Time) -> u64 {
        if self.faults.is_empty() {
            return time;
        }
        match self.percent_by_plan(geometry.die_at(die), now) {
            100 => time,
            percent => time * percent / 100,
        }
    }

    fn percent_by_plan(&self, address: DieAddress, now: Time) -> u64 {
        let slow = self.faults.iter().filter_map(|fault| match fault {
            Fault::SlowDie { die, from_ns, until_ns, percent }
                if DieAddress::from(*die) == address && (*from_ns..*until_ns).contains(&now.0) =>
            {
                Some(u64::from(*percent))
            }
            _ => None,
        });
        slow.max().unwrap_or(100)
    }

    fn is_offline(&self, address: DieAddress, now: Time) -> bool {
        self.faults.iter().any(|fault| match fault {
            Fault::DieOffline { die, from_ns } => DieAddress::from(*die) == address && *from_ns <= now.0,
            Fault::ChannelOffline { channel, from_ns } => *channel == address.channel.0 && *from_ns <= now.0,
            _ => false,
        })
    }

    /// A command begins at its die: what will go wrong with it is decided. Returns whether the power goes while it is
    /// under way.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        command: &mut CommandState,
        blocks: &[Block],
        geometry: &Geometry,
        now: Time,
    ) -> bool {
        let nth_of_device = self.operations;
        self.operations += 1;
        let kind = OperationKind::of(command.kind);
        let begun = &mut self.begun[command.die as usize][kind as usize];
        let nth_of_die = *begun;
        *begun += 1;
        if self.has_rates {
            self.begin_by_chance(command, &blocks[command.block as usize], geometry, now);
        }
        let cut = !self.faults.is_empty()
            && self.begin_by_plan(command, (kind, nth_of_die), nth_of_device, geometry, now);
        if let Some(hard_reads) = &mut self.hard_reads
            && command.kind == Kind::Read
        {
            let CommandState { first_iu, iu_count, outcome, .. } = &*command;
            let (retries, is_lost) = (outcome.retries, outcome.error.is_some());
            if retries > 0 || is_lost {
                let read = HardRead { first_iu: *first_iu, iu_count: *iu_count, retries, is_lost };
                hard_reads.push((command.block, read));
            }
        }
        cut
    }

    fn begin_by_plan(
        &mut self,
        command: &mut CommandState,
        (kind, nth_of_die): (OperationKind, u64),
        nth_of_device: u64,
        geometry: &Geometry,
        now: Time,
    ) -> bool {
        let mut cut = false;
        let address = geometry.die_at(command.die);
        let failure = failure_of(command, geometry);
        for fault in &self.faults {
            match fault {
                Fault::Fail { die, kind: of, nth }
                    if *of == kind && *nth == nth_of_die && DieAddress::from(*die) == address =>
                {
                    command.outcome.error = Some(failure);
                }
                Fault::SilentFlip { die, nth, bit }
                    if kind == OperationKind::Read
                        && *nth == nth_of_die
                        && DieAddress::from(*die) == address =>
                {
                    command.outcome.flip_bit = Some(*bit);
                }
                Fault::PowerCutAtOperation { nth } if *nth == nth_of_device => cut = true,
                _ => {}
            }
        }
        if self.is_offline(address, now) {
            command.outcome.error =
                Some(MediaError::DieOffline { block: address_of(geometry, command.block) });
        }
        cut
    }

    fn begin_by_chance(&mut self, command: &mut CommandState, block: &Block, geometry: &Geometry, now: Time) {
        let kind = OperationKind::of(command.kind);
        let endurance = self.endurance[command.block as usize].max(1);
        let wear = f64::from(block.erase_count) / f64::from(endurance);
        let mut growth = 1.0 + self.rates.wear_growth * wear * wear;
        if kind == OperationKind::Read && block.programmed_page > 0 {
            let seconds = (now.0 / 1_000_000_000).saturating_sub(u64::from(block.programmed_at_s));
            growth += self.rates.retention_growth_per_day * seconds as f64 / 86_400.0;
        }
        let mut happens = |rate: f64| rate > 0.0 && self.random.random_range(0.0..1.0) < rate * growth;
        let fails = match kind {
            OperationKind::Read => {
                if happens(self.rates.silent_flip) {
                    command.outcome.flip_bit =
                        Some(command.block as u32 ^ command.first_iu.wrapping_mul(0x9e37));
                }
                let limit = self.rates.retry_limit.min(u8::MAX.into()) as u8;
                while command.outcome.retries < limit && happens(self.rates.read_retry) {
                    command.outcome.retries += 1;
                }
                happens(self.rates.uncorrectable_read)
            }
            OperationKind::Program | OperationKind::Copy => happens(self.rates.program_fail),
            OperationKind::Erase => {
                happens(self.rates.erase_fail) || (self.rates.wear_out && block.erase_count >= endurance)
            }
        };
        if fails {
            command.outcome.error = Some(failure_of(command, geometry));
        }
    }

    /// Whether there is no room by appointment.
    pub(crate) fn lacks_room(&self, now: Time) -> bool {
        let lacks = |fault: &Fault| matches!(fault, Fault::NoRoom { from_ns, until_ns } if (*from_ns..*until_ns).contains(&now.0));
        self.faults.iter().any(lacks)
    }
}

fn failure_of(command: &CommandState, geometry: &Geometry) -> MediaError {
    let block = address_of(geometry, command.block);
    match command.kind {
        Kind::Read => MediaError::Uncorrectable { block, page: command.first_iu / geometry.ius_per_page() },
        Kind::ReadOob => MediaError::Uncorrectable { block, page: command.first_page },
        Kind::Program | Kind::Copy => MediaError::ProgramFailed { block, page: command.first_page },
        Kind::Erase => MediaError::EraseFailed { block },
    }
}
