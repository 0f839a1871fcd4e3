//! The profile's times in whole nanoseconds, looked up on the hot path.

use crate::Profile;
use crate::cells::CellLayout;
use diecut_media::DieTimes;

pub(crate) struct Timing {
    /// By page type.
    read_ns: Vec<u64>,
    /// By page type; one value for one-shot cells.
    program_ns: Vec<u64>,
    pub(crate) erase_ns: u64,
    /// Bus time of one byte in 1/1024 nanoseconds, so that long transfers stay exact.
    byte_ns_1024: u64,
    pub(crate) command_ns: u64,
    pub(crate) burst_bytes: u32,
    pub(crate) suspend_ns: u64,
    pub(crate) resume_ns: u64,
    pub(crate) latency_ns: u64,
    pub(crate) controller_ns: u64,
    /// Link time of one byte in 1/1024 nanoseconds; 0 for no limit.
    link_byte_ns_1024: u64,
    /// Planes that one array operation works on; more take as many operations.
    pub(crate) planes_at_once: u32,
}

fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

impl Timing {
    pub(crate) fn new(profile: &Profile) -> Timing {
        let per_byte = |mb_per_s: f64| (1024.0 * 1000.0 / mb_per_s).round() as u64;
        Timing {
            read_ns: profile.timing.read_us.iter().map(|&us| ns(us)).collect(),
            program_ns: profile.timing.program_us.iter().map(|&us| ns(us)).collect(),
            erase_ns: ns(profile.timing.erase_us),
            byte_ns_1024: per_byte(profile.bus.channel_mb_per_s),
            command_ns: ns(profile.bus.command_overhead_us),
            burst_bytes: profile.bus.burst_size_bytes,
            suspend_ns: ns(profile.die.suspend_us),
            resume_ns: ns(profile.die.resume_us),
            latency_ns: ns(profile.host.latency_us),
            controller_ns: ns(profile.host.controller_us),
            link_byte_ns_1024: if profile.host.link_mb_per_s > 0.0 {
                per_byte(profile.host.link_mb_per_s)
            } else {
                0
            },
            planes_at_once: if profile.die.multi_plane {
                u32::from(profile.geometry.planes_per_die)
            } else {
                1
            },
        }
    }

    #[inline]
    pub(crate) fn bus_ns(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.byte_ns_1024) >> 10
    }

    /// Whether the host link takes time.
    #[inline]
    pub(crate) fn has_link(&self) -> bool {
        self.link_byte_ns_1024 > 0
    }

    #[inline]
    pub(crate) fn link_ns(&self, bytes: u64) -> u64 {
        (bytes * self.link_byte_ns_1024) >> 10
    }

    /// Array time of reading the slowest row.
    pub(crate) fn longest_read_ns(&self) -> u64 {
        self.read_ns.iter().max().copied().unwrap_or(0)
    }

    /// Array time of programming the slowest unit.
    pub(crate) fn longest_program_ns(&self) -> u64 {
        self.program_ns.iter().max().copied().unwrap_or(0)
    }

    /// What the contract says about them: means over the rows and units of an erase block.
    pub(crate) fn die_times(&self, cells: &CellLayout) -> DieTimes {
        let rows = cells.rows();
        let read_ns: u64 = (0..rows).map(|row| self.read_row_ns(cells, row)).sum();
        let units = (0..rows).step_by(cells.unit_rows() as usize);
        let program_ns: u64 = units.map(|row| self.program_unit_ns(cells, row, cells.planes())).sum();
        DieTimes {
            read_page_ns: read_ns / u64::from(rows),
            program_unit_ns: program_ns / u64::from(rows / cells.unit_rows()),
            erase_ns: self.erase_ns,
            iu_transfer_ns: self.bus_ns(diecut_units::IU_SIZE_BYTES as u32),
        }
    }

    /// Array time of reading one row.
    #[inline]
    pub(crate) fn read_row_ns(&self, cells: &CellLayout, row: u32) -> u64 {
        self.read_ns[cells.bit(row)]
    }

    /// Array time of programming the unit that begins at `row`, all planes.
    #[inline]
    pub(crate) fn program_unit_ns(&self, cells: &CellLayout, row: u32, planes: u32) -> u64 {
        let one =
            if self.program_ns.len() == 1 { self.program_ns[0] } else { self.program_ns[cells.bit(row)] };
        one * u64::from(planes.div_ceil(self.planes_at_once))
    }
}
