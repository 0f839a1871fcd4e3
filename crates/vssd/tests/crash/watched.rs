//! A medium that looks at what is asked of the device behind it.

use super::oracle::Event;
use diecut_emulator::Device;
use diecut_media::*;
use diecut_units::*;
use diecut_vssd::{OobKind, OobRecord};

pub struct Watched {
    pub device: Device,
    /// Blocks of the journal, by die.
    pub journal: Vec<Vec<EraseBlockAddress>>,
    /// What changed flash, since the test looked last.
    pub events: Vec<Event>,
}

impl Media for Watched {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }
    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        self.device.is_factory_bad(block)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        self.device.protected_memory()
    }
    fn submit(&mut self, command: Command, now: Time) {
        match &command.operation {
            Operation::Erase { block } => {
                self.events.push(Event::Erase { block: *block });
            }
            Operation::Program { block, first_page, oob, .. } => {
                let record = OobRecord::decode(oob).expect("every page carries a record");
                if record.kind == OobKind::StateLog {
                    assert!(
                        self.journal.iter().any(|of_die| of_die.contains(block)),
                        "the journal keeps to its blocks"
                    );
                    return self.device.submit(command, now);
                }
                let (block, page) = (*block, *first_page);
                let erase_count = self.device.erase_count(block);
                self.events.push(Event::Program { block, page, record, erase_count });
            }
            _ => {}
        }
        self.device.submit(command, now);
    }
    fn advance(&mut self, now: Time, completions: &mut Vec<Completion>) {
        self.device.advance(now, completions);
    }
    fn next_event(&self) -> Time {
        self.device.next_event()
    }
}
