//! What an administrator sets for a pool.

use crate::Nonces;
use crate::owners::resources::{DiePlacement, LevelTable};
use crate::wear::policy::{DeviceAge, DieLayout, SwapRule, threshold_by_age, threshold_erases};
use diecut_media::DieTimes;

/// Scale of shares on a medium that does not know its times: MLC-class figures (FEMU's L95B set, a page's transfer with its
/// read). They only weigh commands against each other.
pub(crate) const UNKNOWN_DIE_TIMES: DieTimes =
    DieTimes { read_page_ns: 100_000, program_unit_ns: 1_600_000, erase_ns: 3_000_000, iu_transfer_ns: 0 };

/// Settings of even wear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearConfig {
    /// Window of the moving averages of erases, in nanoseconds.
    pub window_ns: u64,
    /// What copies for wear may read per second, both directions together; 0 for no limit. As much is programmed.
    pub rate_bytes_per_second: u64,
    /// How many erases a channel with hot content may be ahead of the least worn one; with the literal rule, what a content may
    /// erase since it moved: the gamma of FlashBlox. In erase blocks; 0: nothing is swapped. See [`crate::threshold_erases`].
    pub channel_threshold_erases: u64,
    /// The same of a die, where vSSDs hold single dies.
    pub die_threshold_erases: u64,
    /// The thresholds that are not 0 follow the device's age instead of being what is said here; see
    /// [`crate::threshold_by_age`].
    pub follow_age: bool,
    /// Cycles of an erase block, for thresholds that follow the age.
    pub endurance_cycles: u32,
    /// How far the most worn part may be ahead of the average, in thousandths, for thresholds that follow the age.
    pub delta_permille: u32,
    /// Which channels are swapped.
    pub rule: SwapRule,
}

impl WearConfig {
    /// The thresholds in force, of a channel and of a die, on a device of this age.
    pub fn thresholds(&self, layout: &DieLayout, age: DeviceAge) -> [u64; 2] {
        let fixed = [self.channel_threshold_erases, self.die_threshold_erases];
        if !self.follow_age {
            return fixed;
        }
        let cycles = threshold_by_age(age, self.endurance_cycles.into(), self.delta_permille.into());
        let die_erases = cycles * layout.blocks_per_die;
        let by_age = [die_erases * layout.dies_per_channel as u64, die_erases];
        [0, 1].map(|which| if fixed[which] == 0 { 0 } else { by_age[which] })
    }
}

impl Default for WearConfig {
    fn default() -> WearConfig {
        WearConfig {
            // A choice: a day, beside swaps that are weeks apart.
            window_ns: 24 * 3600 * 1_000_000_000,
            // What FlashBlox measured with one thread (docs/sources.md, a migration).
            rate_bytes_per_second: 78_900_000,
            channel_threshold_erases: 0,
            die_threshold_erases: 0,
            // Under the worst writer this keeps 96 % of the ideal life, fixed thresholds 90 % (`diecut repro run lifetime`).
            follow_age: true,
            // FlashBlox's values (docs/sources.md, wear between channels): the least of the endurances it assumes, and delta 0.1.
            endurance_cycles: 3000,
            delta_permille: 100,
            rule: SwapRule::Quiet,
        }
    }
}

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Soft-planes a shared die is cut into (FlashBlox: 4).
    pub soft_planes_per_die: u16,
    /// Commands handed to a die at a time.
    pub die_window: u16,
    /// Programs and erases among them: two keep a cache program busy.
    pub program_window: u16,
    /// Operations that may wait at a die, over all vSSDs on it (FlashBlox: 256); each has an equal part.
    pub die_queue_depth: u16,
    /// How much a vSSD with a rate may save up while it is idle, in nanoseconds of its rate.
    pub rate_burst_ns: u64,
    /// Held blocks of each unit whose OOB records are compared with their states at opening: so many of the latest, and so
    /// many others.
    pub checked_blocks_per_unit: u32,
    /// Good blocks of a die set aside for blocks that go bad, in thousandths (FlashBlox: 10).
    pub bad_block_reserve_permille: u32,
    /// Erase blocks per die kept for exchanges, apart from the reserve; at least 2.
    pub spare_blocks_per_die: u32,
    /// Erase blocks per die for the catalog.
    pub catalog_blocks_per_die: u32,
    /// Erase blocks per die for the log of block states.
    pub state_log_blocks_per_die: u32,
    /// A die with fewer good blocks than this share is not used at all, in percent.
    pub usable_die_percent: u32,
    /// Throughput levels.
    pub levels: LevelTable,
    /// Where die-isolated vSSDs go.
    pub die_placement: DiePlacement,
    /// Even wear.
    pub wear: WearConfig,
    /// Scale of shares; `None`: the times that the medium states.
    pub costs: Option<DieTimes>,
    /// Of a medium whose pages have no OOB areas: what its label says. Others need none.
    pub nonces: Option<Nonces>,
}

impl PoolConfig {
    /// The defaults, with throughput levels that match the device: level `n` is worth `n` of its channels.
    pub fn suited_to(geometry: &diecut_units::Geometry) -> PoolConfig {
        let config = PoolConfig::default();
        let levels = PoolConfig::levels_of(geometry, config.soft_planes_per_die);
        // FlashBlox's values: delta 0.1, alpha 0.9; 3,000 cycles is the least of the endurances it assumes (docs/sources.md, wear between channels).
        let die_threshold_erases = threshold_erases(geometry.erase_blocks_per_die().into(), 3000, 100, 900);
        let channel_threshold_erases = die_threshold_erases * u64::from(geometry.dies_per_channel);
        let wear = WearConfig { channel_threshold_erases, die_threshold_erases, ..config.wear };
        let config = PoolConfig { levels, wear, ..config };
        if geometry.has_oob() { config } else { config.for_a_drive(geometry) }
    }

    /// For a drive that hides its flash. Its lanes are no dies: many commands keep one busy, and a few erase blocks of them hold what the system
    /// writes, because they are large.
    fn for_a_drive(self, geometry: &diecut_units::Geometry) -> PoolConfig {
        let (log, catalog) = match geometry.dies() {
            1 => (4, 4),
            2..=3 => (2, 2),
            _ => (1, 2),
        };
        PoolConfig {
            // A choice: four lanes have 128 commands under way, which is as much as a drive of the data centre makes use of.
            die_window: 32,
            program_window: 16,
            state_log_blocks_per_die: log,
            catalog_blocks_per_die: catalog,
            ..self
        }
    }

    /// For a drive that shows its dies and has no OOB areas: commands wait here, and not at the drive, where nobody would know whose they are.
    pub fn for_dies(self) -> PoolConfig {
        let PoolConfig { die_window, program_window, .. } = PoolConfig::default();
        PoolConfig { die_window, program_window, ..self }
    }

    /// Channels of a device that stay with the first of several pools, because the log of block states of all is written there: none where
    /// pages have OOB areas.
    pub fn log_channels(&self, geometry: &diecut_units::Geometry) -> u16 {
        // Each of two copies takes turns of two erase blocks at least, and lies on every other channel.
        let of_a_copy = 2u16.div_ceil(self.state_log_blocks_per_die.clamp(1, 2) as u16);
        if geometry.has_oob() { 0 } else { geometry.channels.min(2 * of_a_copy) }
    }

    /// Throughput levels in channels of a device.
    pub fn levels_of(geometry: &diecut_units::Geometry, soft_planes_per_die: u16) -> LevelTable {
        let dies = geometry.dies_per_channel.into();
        LevelTable::proportional(geometry.channels.into(), dies, soft_planes_per_die.into())
    }
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            soft_planes_per_die: 4,
            die_window: 4,
            program_window: 2,
            die_queue_depth: 256,
            // A choice: long enough for a large command in one piece, short enough that nobody feels it.
            rate_burst_ns: 10_000_000,
            // A choice: 16 OOB reads of each die, about a millisecond, on any device.
            checked_blocks_per_unit: 4,
            bad_block_reserve_permille: 10,
            spare_blocks_per_die: 2,
            catalog_blocks_per_die: 2,
            state_log_blocks_per_die: 2,
            usable_die_percent: 75,
            levels: LevelTable::proportional(16, 4, 4),
            die_placement: DiePlacement::Pack,
            wear: WearConfig::default(),
            costs: None,
            nonces: None,
        }
    }
}
