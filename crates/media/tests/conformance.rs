//! The conformance suite itself: a plain medium passes, and each planted bug is caught.

use diecut_media::conformance;
use diecut_media::*;
use diecut_units::*;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is wrong with a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// OOB areas are not stored.
    OobLost,
    /// Blocks of all dies share their pages.
    DiesMixedUp,
    /// An erase leaves the pages.
    EraseDoesNothing,
    /// A read without error leaves its destination alone.
    DestinationLeftAlone,
    /// Erased pages read as zeros.
    ErasedReadsZeros,
    /// Destinations do not come back with an error.
    DestinationLostWithError,
    /// Some commands complete twice.
    CompletesTwice,
    /// Some commands never complete.
    NeverCompletes,
    /// Reads overtake programs and erases.
    ReadsOvertake,
    /// The token is another.
    WrongToken,
    /// Programs are taken in any order.
    AnyOrder,
    /// A page may be programmed twice.
    Twice,
    /// Nothing outside is refused.
    Outside,
    /// Destinations of any size are taken.
    AnySize,
    /// Copies cross dies.
    CopyCrossesDies,
    /// A copy ignores the OOB given.
    CopyKeepsOob,
    /// Only the first part of a payload is stored.
    SecondPartLost,
    /// Each handle of protected memory is memory of its own.
    ProtectedIsMany,
}

struct Medium {
    bug: Bug,
    geometry: Geometry,
    capabilities: Capabilities,
    /// Content and OOB of each page.
    pages: BTreeMap<(EraseBlockAddress, u32), (Vec<u8>, Vec<u8>)>,
    submitted: BTreeMap<EraseBlockAddress, u32>,
    queue: VecDeque<Command>,
    protected: ProtectedMemory,
    executed: u64,
}

impl Medium {
    fn new(bug: Bug) -> Medium {
        let geometry = Geometry {
            channels: 2,
            dies_per_channel: 2,
            planes_per_die: 1,
            blocks_per_plane: 8,
            pages_per_block: 6,
            page_size_bytes: 8192,
            oob_size_bytes: 64,
        };
        let capabilities = Capabilities {
            program_unit_pages: 1,
            unsafe_units: 0,
            volatile_cache: false,
            independent_units: true,
            copy_within_die: true,
            suspends: false,
            slc_blocks_per_die: 0,
            content_mode: ContentMode::Bytes,
            endurance_cycles: 0,
            die_times: None,
        };
        let protected = ProtectedMemory::in_memory(4096);
        let (pages, submitted, queue) = Default::default();
        Medium { bug, geometry, capabilities, pages, submitted, queue, protected, executed: 0 }
    }

    fn key(&self, block: EraseBlockAddress, page: u32) -> (EraseBlockAddress, u32) {
        let block =
            if self.bug == Bug::DiesMixedUp { DieAddress::new(0, 0).erase_block(block.block) } else { block };
        (block, page)
    }

    fn check(&mut self, operation: &Operation) {
        let block = operation.block();
        assert!(self.geometry.contains(block) || self.bug == Bug::Outside, "outside");
        let (first, count) = match operation {
            Operation::Program { first_page, parts, oob, .. } => {
                let ius: u32 = parts.iter().map(|part| part.iu_count()).sum();
                assert!(ius.is_multiple_of(2) && oob.len() == ius as usize / 2 * 64, "whole units");
                (*first_page, ius / 2)
            }
            Operation::Copy { source, destination_page, page_count, .. } => {
                let crosses = source.die_address() != block.die_address();
                assert!(!crosses || self.bug == Bug::CopyCrossesDies, "crosses dies");
                (*destination_page, *page_count)
            }
            Operation::Erase { .. } => {
                self.submitted.insert(block, 0);
                return;
            }
            Operation::Read { first_iu, iu_count, destination, .. } => {
                assert!(first_iu + iu_count <= 12 || self.bug == Bug::Outside, "outside");
                let size = *iu_count as usize * IU_SIZE_BYTES;
                assert!(destination.len() == size || self.bug == Bug::AnySize, "size");
                return;
            }
            Operation::ReadOob { .. } => return,
        };
        let next = self.submitted.entry(block).or_insert(0);
        let allowed = match self.bug {
            Bug::AnyOrder => first >= *next,
            Bug::Twice => first <= *next,
            _ => first == *next,
        };
        assert!(allowed, "order");
        assert!(first + count <= 6 || self.bug == Bug::Outside, "beyond the end");
        *next = first + count;
    }

    fn read_page(&self, block: EraseBlockAddress, page: u32) -> Result<(Vec<u8>, Vec<u8>), MediaError> {
        match self.pages.get(&self.key(block, page)) {
            Some(found) => Ok(found.clone()),
            None if self.bug == Bug::ErasedReadsZeros => Ok((vec![0; 8192], vec![0; 64])),
            None => Err(MediaError::Erased { block, page }),
        }
    }

    fn read(&mut self, operation: &mut Operation) -> Result<(), MediaError> {
        match operation {
            Operation::Read { block, first_iu, iu_count, destination, oob } => {
                let (first, last) = (*first_iu / 2, (*first_iu + *iu_count - 1) / 2);
                let (mut content, mut areas) = (Vec::new(), Vec::new());
                for page in first..=last {
                    let (bytes, area) = self.read_page(*block, page)?;
                    content.extend(bytes);
                    areas.extend(area);
                }
                let start = (*first_iu % 2) as usize * IU_SIZE_BYTES;
                if self.bug != Bug::DestinationLeftAlone {
                    let len = destination.len();
                    if let Some(found) = content.get(start..start + len) {
                        destination.copy_from_slice(found);
                    }
                }
                if let Some(oob) = oob {
                    oob.copy_from_slice(&areas);
                }
            }
            Operation::ReadOob { block, first_page, oob } => {
                for (index, area) in oob.chunks_exact_mut(64).enumerate() {
                    area.copy_from_slice(&self.read_page(*block, *first_page + index as u32)?.1);
                }
            }
            _ => unreachable!("only reads"),
        }
        Ok(())
    }

    fn execute(&mut self, mut command: Command) -> Completion {
        let result = match &mut command.operation {
            Operation::Read { .. } | Operation::ReadOob { .. } => self.read(&mut command.operation),
            Operation::Erase { block } => {
                let of = self.key(*block, 0).0;
                if self.bug != Bug::EraseDoesNothing {
                    self.pages.retain(|(block, _), _| *block != of);
                }
                Ok(())
            }
            Operation::Program { block, first_page, parts, oob } => {
                let mut content = Vec::new();
                for (index, part) in parts.iter().enumerate() {
                    let lost = index > 0 && self.bug == Bug::SecondPartLost;
                    content.extend(if lost { vec![0; part.bytes().len()] } else { part.bytes().to_vec() });
                }
                for (index, bytes) in content.chunks_exact(8192).enumerate() {
                    let area =
                        if self.bug == Bug::OobLost { vec![0; 64] } else { oob[index * 64..][..64].to_vec() };
                    let key = self.key(*block, *first_page + index as u32);
                    self.pages.insert(key, (bytes.to_vec(), area));
                }
                Ok(())
            }
            Operation::Copy { source, source_page, destination, destination_page, page_count, oob } => {
                for index in 0..*page_count {
                    let Ok((bytes, mut area)) = self.read_page(*source, *source_page + index) else { break };
                    if let Some(oob) = oob.as_ref().filter(|_| self.bug != Bug::CopyKeepsOob) {
                        area = oob[index as usize * 64..][..64].to_vec();
                    }
                    let key = self.key(*destination, *destination_page + index);
                    self.pages.insert(key, (bytes, area));
                }
                Ok(())
            }
        };
        let (mut destination, mut oob) = match command.operation {
            Operation::Read { destination, oob, .. } => (Some(destination), oob),
            Operation::ReadOob { oob, .. } => (None, Some(oob)),
            _ => (None, None),
        };
        if result.is_err() && self.bug == Bug::DestinationLostWithError {
            (destination, oob) = (None, None);
        }
        let token = MediaToken(command.token.0 + u64::from(self.bug == Bug::WrongToken));
        Completion { token, result, destination, oob, retries: 0 }
    }
}

impl Media for Medium {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn is_factory_bad(&self, block: EraseBlockAddress) -> bool {
        block == EraseBlockAddress::new(0, 0, 0)
    }
    fn protected_memory(&self) -> Option<ProtectedMemory> {
        match self.bug {
            Bug::ProtectedIsMany => Some(ProtectedMemory::in_memory(4096)),
            _ => Some(self.protected.clone()),
        }
    }
    fn submit(&mut self, command: Command, _now: Time) {
        self.check(&command.operation);
        match command.operation {
            Operation::Read { .. } if self.bug == Bug::ReadsOvertake => self.queue.push_front(command),
            _ => self.queue.push_back(command),
        }
    }
    fn advance(&mut self, _now: Time, completions: &mut Vec<Completion>) {
        let Some(command) = self.queue.pop_front() else { return };
        self.executed += 1;
        let token = command.token;
        if self.bug == Bug::NeverCompletes && self.executed.is_multiple_of(50) {
            return;
        }
        let completion = self.execute(command);
        completions.push(completion);
        if self.bug == Bug::CompletesTwice && self.executed.is_multiple_of(50) {
            completions.push(Completion::plain(token, Ok(())));
        }
    }
    fn next_event(&self) -> Time {
        if self.queue.is_empty() { Time::NEVER } else { Time::ZERO }
    }
}

#[test]
fn a_plain_medium_passes() {
    conformance::all(&mut || Medium::new(Bug::None));
    // What is known only when it runs is a medium, too.
    conformance::all(&mut || Box::new(Medium::new(Bug::None)) as Box<dyn Media>);
}

#[test]
fn every_planted_bug_is_caught() {
    let bugs = [
        Bug::OobLost,
        Bug::DiesMixedUp,
        Bug::EraseDoesNothing,
        Bug::DestinationLeftAlone,
        Bug::ErasedReadsZeros,
        Bug::DestinationLostWithError,
        Bug::CompletesTwice,
        Bug::NeverCompletes,
        Bug::ReadsOvertake,
        Bug::WrongToken,
        Bug::AnyOrder,
        Bug::Twice,
        Bug::Outside,
        Bug::AnySize,
        Bug::CopyCrossesDies,
        Bug::CopyKeepsOob,
        Bug::SecondPartLost,
        Bug::ProtectedIsMany,
    ];
    let missed: Vec<Bug> = bugs
        .into_iter()
        .filter(|&bug| catch_unwind(AssertUnwindSafe(|| conformance::all(&mut || Medium::new(bug)))).is_ok())
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
