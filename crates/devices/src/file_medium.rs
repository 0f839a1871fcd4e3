//! A medium for tests whose content lies in a file that it never touches: it asks for every byte with an [`Intent`].
//!
//! It keeps the flash rules of the contract over a plain file: pages at fixed places, OOB areas behind all pages. A command begins
//! when those before it to the same erase block have taken effect; a program is answered when a sync covers it. States of erase
//! blocks are in memory only, so that it is not opened again.

use diecut_media::{
    Capabilities, Command, Completion, Divide, Intent, IntentDone, IntentError, IntentToken, IntentWork,
    Media, MediaError, MediaToken, Operation,
};
use diecut_units::{
    BlockIndex, Buffer, BufferMut, ContentMode, EraseBlockAddress, Geometry, IU_SIZE_BYTES, ProtectedMemory,
    Time,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// See the module.
pub struct FileMedium {
    geometry: Geometry,
    capabilities: Capabilities,
    blocks: Vec<Block>,
    /// What is asked for and was not taken yet.
    intents: Vec<Intent>,
    next_token: u64,
    /// Erase blocks of intents under way.
    asked: BTreeMap<u64, usize>,
    sync: Syncing,
    done: Vec<Completion>,
}

#[derive(Default)]
struct Block {
    /// Next page once everything submitted is done; what the rules are checked against.
    submitted_page: u32,
    /// Next page of the file.
    programmed_page: u32,
    /// Pages of programs that failed.
    garbage: Vec<std::ops::Range<u32>>,
    waiting: VecDeque<Command>,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    token: MediaToken,
    /// Pages that it reads or programs.
    pages: std::ops::Range<u32>,
    is_read: bool,
    /// Intents that are not answered.
    left: u32,
    /// Of the intent that reads content; another one reads OOB areas.
    content: u64,
    destination: Option<BufferMut>,
    oob: Option<BufferMut>,
    failed: Option<IntentError>,
}

/// Answers to programs, which wait for a sync.
#[derive(Default)]
struct Syncing {
    under_way: Option<u64>,
    covered: Vec<(EraseBlockAddress, Completion)>,
    held: Vec<(EraseBlockAddress, Completion)>,
    has_failed: bool,
}

impl FileMedium {
    /// Over an empty file.
    pub fn new(geometry: Geometry) -> FileMedium {
        let capabilities = Capabilities {
            program_unit_pages: u32::from(geometry.planes_per_die),
            unsafe_units: 0,
            volatile_cache: false,
            independent_units: false,
            copy_within_die: false,
            suspends: false,
            slc_blocks_per_die: 0,
            content_mode: ContentMode::Bytes,
            endurance_cycles: 0,
            die_times: None,
        };
        FileMedium {
            geometry,
            capabilities,
            blocks: (0..geometry.erase_blocks()).map(|_| Block::default()).collect(),
            intents: Vec::new(),
            next_token: 0,
            asked: BTreeMap::new(),
            sync: Syncing::default(),
            done: Vec::new(),
        }
    }

    fn number(&self, block: EraseBlockAddress) -> usize {
        assert!(self.geometry.contains(block), "{block} is outside of the device");
        self.geometry.erase_block_number(block) as usize
    }

    fn address(&self, number: usize) -> EraseBlockAddress {
        let per_die = self.geometry.erase_blocks_per_die();
        let die = self.geometry.die_at(number as u32 / per_die);
        die.erase_block(BlockIndex(number as u32 % per_die))
    }

    /// Checks the flash rules.
    fn check(&mut self, operation: &Operation) {
        let geometry = self.geometry;
        let address = operation.block();
        let number = self.number(address);
        let (pages, oob_size) = (geometry.pages_per_erase_block(), geometry.oob_size_bytes as usize);
        let block = &mut self.blocks[number];
        match operation {
            Operation::Read { first_iu, iu_count, destination, oob, .. } => {
                let end = first_iu.checked_add(*iu_count).expect("IUs of one erase block");
                assert!(
                    *iu_count > 0 && end <= geometry.ius_per_erase_block(),
                    "{address}: read beyond its end"
                );
                assert_eq!(destination.len(), *iu_count as usize * IU_SIZE_BYTES, "{address}: whole IUs");
                let per_page = geometry.ius_per_page();
                let touched = (end - 1) / per_page + 1 - first_iu / per_page;
                assert!(
                    oob.as_ref().is_none_or(|oob| oob.len() == touched as usize * oob_size),
                    "{address}: OOB areas of every page"
                );
            }
            Operation::ReadOob { first_page, oob, .. } => {
                let is_whole = !oob.is_empty() && oob.len().is_multiple_of(oob_size);
                assert!(
                    is_whole && first_page + (oob.len() / oob_size) as u32 <= pages,
                    "{address}: whole OOB areas"
                );
            }
            Operation::Program { first_page, parts, oob, .. } => {
                let ius: u32 = parts.iter().map(|part| part.iu_count()).sum();
                let count = ius / geometry.ius_per_page();
                let unit = self.capabilities.program_unit_pages;
                assert!(
                    ius > 0 && ius.is_multiple_of(unit * geometry.ius_per_page()),
                    "{address}: whole program units"
                );
                assert_eq!(oob.len(), count as usize * oob_size, "{address}: OOB of every page");
                assert_eq!(block.submitted_page, *first_page, "{address} is programmed in order, once");
                block.submitted_page += count;
                assert!(block.submitted_page <= pages, "{address}: program beyond its end");
            }
            Operation::Erase { .. } => block.submitted_page = 0,
            Operation::Copy { .. } => panic!("the device cannot copy within a die"),
        }
    }

    fn ask(&mut self, number: usize, work: IntentWork) -> u64 {
        self.next_token += 1;
        self.asked.insert(self.next_token, number);
        self.intents.push(Intent { token: IntentToken(self.next_token), work });
        self.next_token
    }

    fn content_at(&self, number: usize, iu: u32) -> u64 {
        (number as u64 * u64::from(self.geometry.ius_per_erase_block()) + u64::from(iu))
            * IU_SIZE_BYTES as u64
    }

    fn oob_at(&self, number: usize, page: u32) -> u64 {
        let pages = number as u64 * u64::from(self.geometry.pages_per_erase_block()) + u64::from(page);
        self.geometry.raw_capacity_bytes() + pages * u64::from(self.geometry.oob_size_bytes)
    }

    /// Begins what waits at an erase block, one command at a time.
    fn go_on(&mut self, number: usize) {
        while self.blocks[number].under_way.is_none()
            && let Some(Command { token, operation }) = self.blocks[number].waiting.pop_front()
        {
            match operation {
                Operation::Read { first_iu, iu_count, destination, oob, .. } => {
                    let per_page = self.geometry.ius_per_page();
                    let pages = first_iu / per_page..(first_iu + iu_count - 1) / per_page + 1;
                    self.read(number, token, pages, Some((first_iu, destination)), oob);
                }
                Operation::ReadOob { first_page, oob, .. } => {
                    let count = (oob.len() / self.geometry.oob_size_bytes as usize) as u32;
                    self.read(number, token, first_page..first_page + count, None, Some(oob));
                }
                Operation::Program { first_page, parts, oob, .. } => {
                    let parts: SmallVec<[Buffer; 2]> =
                        parts.into_iter().map(|part| part.into_buffer()).collect();
                    let bytes: usize = parts.iter().map(Buffer::len).sum();
                    let end = first_page + (bytes / self.geometry.page_size_bytes as usize) as u32;
                    let offset = self.content_at(number, first_page * self.geometry.ius_per_page());
                    let content = self.ask(number, IntentWork::Write { offset, parts, handle: 0 });
                    let offset = self.oob_at(number, first_page);
                    self.ask(
                        number,
                        IntentWork::Write { offset, parts: [oob].into_iter().collect(), handle: 0 },
                    );
                    self.begin(
                        number,
                        UnderWay {
                            token,
                            pages: first_page..end,
                            is_read: false,
                            left: 2,
                            content,
                            destination: None,
                            oob: None,
                            failed: None,
                        },
                    );
                }
                Operation::Erase { .. } => {
                    let block = &mut self.blocks[number];
                    block.programmed_page = 0;
                    block.garbage.clear();
                    self.done.push(Completion::plain(token, Ok(())));
                }
                Operation::Copy { .. } => unreachable!("refused when it was submitted"),
            }
        }
    }

    fn begin(&mut self, number: usize, under_way: UnderWay) {
        assert!(self.blocks[number].under_way.is_none(), "one command at a time works on an erase block");
        self.blocks[number].under_way = Some(under_way);
    }

    fn read(
        &mut self,
        number: usize,
        token: MediaToken,
        pages: std::ops::Range<u32>,
        content: Option<(u32, BufferMut)>,
        oob: Option<BufferMut>,
    ) {
        let address = self.address(number);
        let block = &self.blocks[number];
        let error = pages.clone().find_map(|page| match page {
            page if page >= block.programmed_page => Some(MediaError::Erased { block: address, page }),
            page if block.garbage.iter().any(|some| some.contains(&page)) => {
                Some(MediaError::Uncorrectable { block: address, page })
            }
            _ => None,
        });
        if let Some(error) = error {
            let destination = content.map(|(_, destination)| destination);
            return self.done.push(Completion { token, result: Err(error), destination, oob, retries: 0 });
        }
        let mut under_way = UnderWay {
            token,
            pages: pages.clone(),
            is_read: true,
            left: 0,
            content: 0,
            destination: None,
            oob: None,
            failed: None,
        };
        if let Some((first_iu, buffer)) = content {
            let offset = self.content_at(number, first_iu);
            under_way.content = self.ask(number, IntentWork::Read { offset, buffer });
            under_way.left += 1;
        }
        if let Some(buffer) = oob {
            let offset = self.oob_at(number, pages.start);
            self.ask(number, IntentWork::Read { offset, buffer });
            under_way.left += 1;
        }
        self.begin(number, under_way);
    }

    /// All of a command's intents were answered.
    fn end(&mut self, number: usize) {
        let ended = self.blocks[number].under_way.take().expect("looked up by the caller");
        let address = self.address(number);
        let page = ended.pages.start;
        let block = &mut self.blocks[number];
        let result = match ended.failed {
            None => Ok(()),
            Some(_) if ended.is_read => Err(MediaError::Uncorrectable { block: address, page }),
            Some(IntentError::Full) => Err(MediaError::NoRoom { block: address, page }),
            Some(IntentError::Failed | IntentError::Gone) => {
                Err(MediaError::ProgramFailed { block: address, page })
            }
        };
        if !ended.is_read {
            block.programmed_page = ended.pages.end;
            if result.is_err() {
                block.garbage.push(ended.pages);
            }
        }
        let waits = !ended.is_read && result.is_ok();
        let completion = Completion {
            token: ended.token,
            result,
            destination: ended.destination,
            oob: ended.oob,
            retries: 0,
        };
        match waits {
            true => self.hold(address, completion),
            false => self.done.push(completion),
        }
        self.go_on(number);
    }

    /// A program was written: it is answered when a sync covers it.
    fn hold(&mut self, block: EraseBlockAddress, mut completion: Completion) {
        if self.sync.has_failed {
            completion.result = Err(MediaError::DieOffline { block });
            return self.done.push(completion);
        }
        self.sync.held.push((block, completion));
        self.begin_sync();
    }

    fn begin_sync(&mut self) {
        if self.sync.under_way.is_some() || self.sync.held.is_empty() {
            return;
        }
        assert!(self.sync.covered.is_empty(), "one sync at a time covers answers");
        std::mem::swap(&mut self.sync.covered, &mut self.sync.held);
        self.next_token += 1;
        self.sync.under_way = Some(self.next_token);
        self.intents.push(Intent { token: IntentToken(self.next_token), work: IntentWork::Sync });
    }

    fn end_sync(&mut self, worked: bool) {
        self.sync.under_way = None;
        self.sync.has_failed |= !worked;
        let mut ended = std::mem::take(&mut self.sync.covered);
        if !worked {
            ended.append(&mut self.sync.held);
        }
        for (block, mut completion) in ended {
            if !worked {
                completion.result = Err(MediaError::DieOffline { block });
            }
            self.done.push(completion);
        }
        self.begin_sync();
    }
}

impl Media for FileMedium {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn is_factory_bad(&self, _block: EraseBlockAddress) -> bool {
        false
    }

    fn protected_memory(&self) -> Option<ProtectedMemory> {
        None
    }

    fn submit(&mut self, command: Command, _now: Time) {
        self.check(&command.operation);
        let number = self.number(command.operation.block());
        self.blocks[number].waiting.push_back(command);
        self.go_on(number);
    }

    fn advance(&mut self, _now: Time, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    fn take_intents(&mut self, intents: &mut Vec<Intent>) {
        intents.append(&mut self.intents);
    }

    fn intent_done(&mut self, done: IntentDone, _now: Time) {
        if self.sync.under_way == Some(done.token.0) {
            return self.end_sync(done.result.is_ok());
        }
        let number = self.asked.remove(&done.token.0).expect("an intent is answered once");
        let under_way = self.blocks[number].under_way.as_mut().expect("its command waits for it");
        under_way.left -= 1;
        under_way.failed = under_way.failed.or(done.result.err());
        if let Some(buffer) = done.buffer {
            match done.token.0 == under_way.content {
                true => under_way.destination = Some(buffer),
                false => under_way.oob = Some(buffer),
            }
        }
        if under_way.left == 0 {
            self.end(number);
        }
    }

    fn next_event(&self) -> Time {
        match self.done.is_empty() && self.intents.is_empty() {
            true => Time::NEVER,
            false => Time::ZERO,
        }
    }
}

/// It serves as a whole only.
impl Divide for FileMedium {
    fn empty_part(&mut self) -> FileMedium {
        panic!("a file in a test is not divided")
    }

    fn owns(&self, _channel: u16) -> bool {
        true
    }

    fn is_quiet(&self, channel: u16) -> bool {
        let per_channel = self.blocks.len() / usize::from(self.geometry.channels);
        let first = usize::from(channel) * per_channel;
        let blocks = &self.blocks[first..first + per_channel];
        blocks.iter().all(|block| block.under_way.is_none() && block.waiting.is_empty())
    }

    fn take_channel(&mut self, _from: &mut FileMedium, _channel: u16) {
        panic!("a file in a test is not divided")
    }
}
