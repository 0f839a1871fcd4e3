//! SQLite, while what it lies on moves from drive to drive (`diecut device evacuate`).

use super::Stranger;
use super::rig::Rig;
use super::sqlite::Database;

/// What was committed, and where it lies.
pub struct Moving {
    database: Database,
    device: String,
    moves: u64,
}

impl Default for Moving {
    fn default() -> Moving {
        // Enough for a move to end now and then.
        Moving { database: Database::of(8000), device: String::new(), moves: 0 }
    }
}

impl Moving {
    /// How often a start found it elsewhere than the one before.
    pub fn moves(&self) -> u64 {
        self.moves
    }
}

impl Stranger for Moving {
    const HAS_FILES: bool = true;

    fn check(&mut self, rig: &Rig, what: &str) -> Result<(), String> {
        self.database.check(rig, what)?;
        let vssd = rig.ask(&["vssd", "show", "fast"])?;
        let device = vssd["device"].as_str().unwrap_or_else(|| panic!("{what}: {vssd}"));
        if device != self.device {
            self.moves += u64::from(!self.device.is_empty());
            self.device = device.to_owned();
        }
        Ok(())
    }

    fn work(&mut self, rig: &mut Rig, cut: u32) {
        rig.ask(&["device", "evacuate", &self.device, "--no-wait"]).unwrap();
        self.database.work(rig, cut);
    }

    fn acknowledged(&self) -> u64 {
        self.database.acknowledged()
    }
}
