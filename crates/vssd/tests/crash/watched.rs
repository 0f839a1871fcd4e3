//! What is asked of the device is looked at.

use super::oracle::Event;
use diecut_emulator::Device;
use diecut_media::*;
use diecut_testing::tapped::Tap;
use diecut_units::*;
use diecut_vssd::{OobKind, OobRecord};

#[derive(Default)]
pub struct Watched {
    /// Blocks of the journal, by die.
    pub journal: Vec<Vec<EraseBlockAddress>>,
    /// What changed flash, since the test looked last.
    pub events: Vec<Event>,
}

impl Tap for Watched {
    fn pass(&mut self, command: Command, device: &Device) -> Vec<Result<Command, (Command, MediaError)>> {
        match &command.operation {
            Operation::Erase { block } => self.events.push(Event::Erase { block: *block }),
            Operation::Program { block, first_page, oob, .. } => {
                let record = OobRecord::decode(oob).expect("every page carries a record");
                if record.kind == OobKind::StateLog {
                    let keeps = self.journal.iter().any(|of_die| of_die.contains(block));
                    assert!(keeps, "the journal keeps to its blocks");
                } else {
                    let (block, page) = (*block, *first_page);
                    let erase_count = device.erase_count(block);
                    self.events.push(Event::Program { block, page, record, erase_count });
                }
            }
            _ => {}
        }
        vec![Ok(command)]
    }
}
