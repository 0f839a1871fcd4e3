//! Commands at the door: the flash rules are checked, and the command gets a place among those under way.

use crate::block::FACTORY_BAD;
use crate::command::Kind;
use crate::device::Device;
use crate::nand::MUST_ERASE;
use diecut_media::{Command, Completion, MediaError, MediaToken, Operation};
use diecut_units::{BufferMut, ContentMode, EraseBlockAddress, IU_SIZE_BYTES, TAG_SIZE_BYTES};

impl Device {
    /// Checks the flash rules and puts the command into a command.
    #[inline(always)]
    pub(crate) fn accept(&mut self, command: Command) -> u32 {
        let Command { token, operation } = command;
        // Reads are most of what comes, and have the least to check.
        match operation {
            Operation::Read { block, first_iu, iu_count, destination, oob } => {
                self.accept_read(token, block, first_iu, iu_count, destination, oob)
            }
            other => self.accept_other(token, other),
        }
    }

    /// Die and number of an erase block that may be touched.
    #[inline(always)]
    fn place_of(&self, address: EraseBlockAddress) -> (u32, u64) {
        let geometry = &self.engine.nand.geometry;
        assert!(geometry.contains(address), "{address} is outside of the device");
        assert!(self.owned[usize::from(address.channel.0)], "{address} is another part's");
        let die = geometry.die_number(address.die_address());
        let block = geometry.erase_block_number(address);
        let state = &self.engine.nand.blocks[block as usize];
        assert!(!state.has(FACTORY_BAD), "{address} is a factory bad block and must not be touched");
        (die, block)
    }

    #[inline(always)]
    fn accept_read(
        &mut self,
        token: MediaToken,
        address: EraseBlockAddress,
        first_iu: u32,
        iu_count: u32,
        destination: BufferMut,
        oob: Option<BufferMut>,
    ) -> u32 {
        let (die, block) = self.place_of(address);
        let geometry = &self.engine.nand.geometry;
        let end_iu = first_iu.checked_add(iu_count).expect("IUs of one erase block");
        assert!(iu_count > 0 && end_iu <= geometry.ius_per_erase_block(), "{address}: read beyond its end");
        let bytes = destination.len();
        let tags = self.capabilities.content_mode == ContentMode::Tags;
        assert!(
            bytes == iu_count as usize * IU_SIZE_BYTES
                || (tags && bytes == iu_count as usize * TAG_SIZE_BYTES),
            "{address}: {bytes} bytes are not {iu_count} IUs"
        );
        let per_page = geometry.ius_per_page();
        let planes = u32::from(geometry.planes_per_die);
        // Most reads are of one IU; a division costs as much as the rest of this.
        let first_page = first_iu / per_page;
        let last_page = if iu_count == 1 { first_page } else { (end_iu - 1) / per_page };
        let page_count = last_page + 1 - first_page;
        let oob_len = oob.as_ref().map_or(0, |oob| oob.len());
        assert!(
            oob.is_none() || oob_len == page_count as usize * geometry.oob_size_bytes as usize,
            "{address}: OOB areas of every page"
        );
        let first_row = first_page / planes;
        let steps = if page_count == 1 { 1 } else { last_page / planes + 1 - first_row };
        let (index, command) = self.engine.commands.add(token, Kind::Read, die, block);
        (command.first_iu, command.iu_count) = (first_iu, iu_count);
        (command.first_page, command.page_count) = (first_page, page_count);
        (command.first_row, command.steps.total) = (first_row, steps);
        command.destination = Some(destination);
        command.oob = oob;
        if steps == 1 {
            command.row_bytes = iu_count * IU_SIZE_BYTES as u32 + oob_len as u32;
        }
        index
    }

    #[inline(never)]
    fn accept_other(&mut self, token: MediaToken, operation: Operation) -> u32 {
        let address = operation.block();
        let (die, block) = self.place_of(address);
        let geometry = self.engine.nand.geometry;
        let state = &mut self.engine.nand.blocks[block as usize];
        let pages = geometry.pages_per_erase_block();
        let per_page = geometry.ius_per_page();
        let unit_pages = self.capabilities.program_unit_pages;
        let planes = u32::from(geometry.planes_per_die);
        let (index, _) = self.engine.commands.add(token, Kind::Erase, die, block);
        let (command, payload) = self.engine.commands.loaded(index);
        let oob_size = geometry.oob_size_bytes as usize;
        match operation {
            Operation::Read { .. } => unreachable!("reads are taken by `accept_read`"),
            Operation::ReadOob { first_page, oob, .. } => {
                assert!(!oob.is_empty() && oob.len().is_multiple_of(oob_size), "{address}: whole OOB areas");
                command.kind = Kind::ReadOob;
                command.first_page = first_page;
                command.page_count = (oob.len() / oob_size) as u32;
                assert!(first_page + command.page_count <= pages, "{address}: read beyond its end");
                command.row_bytes = oob.len() as u32;
                command.oob = Some(oob);
                command.first_row = first_page / planes;
                command.steps.total =
                    (command.first_page + command.page_count).div_ceil(planes) - command.first_row;
            }
            Operation::Program { first_page, parts, oob, .. } => {
                let ius: u32 = parts.iter().map(|part| part.iu_count()).sum();
                assert!(
                    ius > 0 && ius.is_multiple_of(unit_pages * per_page),
                    "{address}: whole program units"
                );
                command.kind = Kind::Program;
                command.first_page = first_page;
                command.page_count = ius / per_page;
                command.steps.total = command.page_count / unit_pages;
                assert_eq!(oob.len(), command.page_count as usize * oob_size, "{address}: OOB of every page");
                payload.parts = parts;
                payload.oob = Some(oob);
            }
            Operation::Erase { .. } => {}
            Operation::Copy { source, source_page, destination_page, page_count, oob, .. } => {
                assert!(self.capabilities.copy_within_die, "the device cannot copy within a die");
                assert_eq!(source.die_address(), address.die_address(), "a copy stays on its die");
                assert!(
                    page_count > 0 && page_count.is_multiple_of(unit_pages),
                    "{address}: whole program units"
                );
                command.kind = Kind::Copy;
                payload.source = geometry.erase_block_number(source);
                payload.source_page = source_page;
                command.first_page = destination_page;
                command.page_count = page_count;
                command.steps.total = page_count / unit_pages;
                assert!(source_page + page_count <= pages, "{source}: copy beyond its end");
                payload.oob = oob;
            }
        }
        // I-E1: the rules hold for what was submitted, not for what is done.
        match command.kind {
            Kind::Erase => {
                state.submitted_page = 0;
                state.pending += 1;
            }
            Kind::Program | Kind::Copy => {
                assert!(
                    state.submitted_page != MUST_ERASE,
                    "{address} must be erased before it is programmed"
                );
                assert_eq!(
                    state.submitted_page, command.first_page,
                    "{address} is programmed in order, once"
                );
                state.submitted_page += command.page_count;
                assert!(state.submitted_page <= pages, "{address}: program beyond its end");
                state.pending += 1;
            }
            Kind::Read | Kind::ReadOob => {}
        }
        index
    }

    /// Answers a command that came while the power was off.
    pub(crate) fn refuse(&mut self, command: Command) {
        let (destination, oob) = match command.operation {
            Operation::Read { destination, oob, .. } => (Some(destination), oob),
            Operation::ReadOob { oob, .. } => (None, Some(oob)),
            _ => (None, None),
        };
        let MediaToken(token) = command.token;
        let result = Err(MediaError::PowerLost);
        self.engine.done.push(Completion { token: MediaToken(token), result, destination, oob, retries: 0 });
    }
}
