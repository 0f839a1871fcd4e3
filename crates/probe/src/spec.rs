use crate::ProbeError;
use serde::Serialize;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeSpec {
    /// Bytes of a command: a multiple of the drive's logical blocks.
    pub block_bytes: u32,
    /// Commands under way, one measurement for each.
    pub depths: Vec<u16>,
    /// How long each measurement takes.
    pub seconds: f64,
    /// Regions of equal size that are measured beside each other; 0 for none.
    pub regions: u16,
    /// Of offsets and directions.
    pub seed: u64,
    /// Writes are measured, too: what the drive holds is lost.
    pub overwrites: bool,
    /// Also where something is recognized on the drive.
    pub force: bool,
}

/// Commands under way at most.
const DEPTH_MAX: u16 = 1024;
/// Each pair of regions is a measurement.
const REGIONS_MAX: u16 = 32;
const BLOCK_MAX_BYTES: u32 = 1 << 20;

impl Default for ProbeSpec {
    /// 4 KiB, depths 1 to 64, a second each, four regions, reads only.
    fn default() -> ProbeSpec {
        ProbeSpec {
            block_bytes: 4096,
            depths: vec![1, 4, 16, 64],
            seconds: 1.0,
            regions: 4,
            seed: 1,
            overwrites: false,
            force: false,
        }
    }
}

impl ProbeSpec {
    /// Whether it can be, on a drive of any kind.
    ///
    /// # Errors
    /// What cannot, with what can.
    pub fn check(&self) -> Result<(), ProbeError> {
        let refuse = |what: String| Err(ProbeError::Spec(what));
        if !self.block_bytes.is_power_of_two() || !(512..=BLOCK_MAX_BYTES).contains(&self.block_bytes) {
            return refuse(format!(
                "blocks of {} bytes: write a power of two from 512 to 1M",
                self.block_bytes
            ));
        }
        if self.depths.is_empty() || self.depths.iter().any(|depth| !(1..=DEPTH_MAX).contains(depth)) {
            return refuse(format!("depths {:?}: write numbers from 1 to {DEPTH_MAX}", self.depths));
        }
        if !self.seconds.is_finite() || !(0.01..=3600.0).contains(&self.seconds) {
            return refuse(format!("{} seconds: write 0.01 to 3600", self.seconds));
        }
        if self.regions == 1 || self.regions > REGIONS_MAX {
            return refuse(format!("{} regions: write 2 to {REGIONS_MAX}, or 0 for none", self.regions));
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        ProbeSpec::default().check().expect("the default can be");
        let wrong = |change: &dyn Fn(&mut ProbeSpec)| {
            let mut spec = ProbeSpec::default();
            change(&mut spec);
            spec.check().expect_err("it cannot be").to_string()
        };
        assert!(wrong(&|spec| spec.block_bytes = 5000).contains("5000"));
        assert!(wrong(&|spec| spec.block_bytes = 256).contains("256"));
        assert!(wrong(&|spec| spec.depths = vec![1, 0]).contains("[1, 0]"));
        assert!(wrong(&|spec| spec.depths.clear()).contains("[]"));
        assert!(wrong(&|spec| spec.seconds = f64::NAN).contains("NaN"));
        assert!(wrong(&|spec| spec.seconds = 0.0).contains("0 seconds"));
        assert!(wrong(&|spec| spec.regions = 1).contains("1 regions"));
        assert!(wrong(&|spec| spec.regions = 33).contains("33"));
    }
}
