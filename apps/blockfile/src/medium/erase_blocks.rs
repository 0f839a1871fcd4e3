//! The erase blocks of a vSSD, over rings in shared memory.

use super::{Append, Medium, Span};
use diecut_blockspace::wire::{HeldRecord, Shape, Status};
use diecut_blockspace::{Attach, AttachError, BlockError, Client, LogicalBlock, Purpose, UnitIndex};
use std::path::Path;
use std::time::Duration;

/// How often, and how long each time, an attach waits for who held the vSSD before.
const HELD_TRIES: u32 = 200;
const HELD_PAUSE: Duration = Duration::from_millis(10);

/// Attaches to a vSSD. Waits up to two seconds for a process before that just died.
///
/// # Errors
/// Of the server.
pub fn attach_held(socket: &Path, vssd: &str) -> Result<Client, AttachError> {
    let mut left = HELD_TRIES;
    loop {
        match Client::attach(Attach { socket, vssd }) {
            Err(AttachError::Refused { status: Status::Held, .. }) if left > 0 => {
                left -= 1;
                std::thread::sleep(HELD_PAUSE);
            }
            other => return other,
        }
    }
}

impl Medium for Client {
    fn shape(&self) -> Shape {
        *Client::shape(self)
    }

    fn append_max_bytes(&self) -> usize {
        Client::append_max_bytes(self)
    }

    fn side_by_side(&self) -> usize {
        // A ticket keeps its entry of the ring until it is waited for: more of them than entries would wait for each other.
        self.entries().div_ceil(2) as usize
    }

    fn open_max(&self) -> usize {
        usize::MAX
    }

    fn held_blocks(&self) -> Result<Vec<HeldRecord>, BlockError> {
        Client::held_blocks(self)
    }

    fn keep(&self, blocks: &[LogicalBlock]) -> Result<(), BlockError> {
        Client::keep(self, blocks).map(drop)
    }

    fn allocate(&self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, BlockError> {
        Client::allocate(self, unit, purpose)
    }

    fn append_all(&self, appends: &[Append<'_>]) -> Result<Vec<Result<u64, BlockError>>, BlockError> {
        let tickets = appends.iter().map(|append| self.begin_append(append.block, append.bytes));
        let tickets: Vec<_> = tickets.collect::<Result<_, _>>()?;
        let ended = tickets.into_iter().map(|ticket| match ticket.wait() {
            Err(BlockError::ServerGone) => Err(BlockError::ServerGone),
            other => Ok(other),
        });
        ended.collect()
    }

    fn can_copy(&self) -> bool {
        false
    }

    fn copy(&self, _block: LogicalBlock, _sources: &[Span]) -> Result<u64, BlockError> {
        Err(BlockError::Status(Status::Invalid))
    }

    fn read(&self, block: LogicalBlock, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        Client::read(self, block, offset_bytes, bytes)
    }

    fn close(&self, _block: LogicalBlock) -> Result<(), BlockError> {
        Ok(())
    }

    fn free(&self, block: LogicalBlock) -> Result<(), BlockError> {
        Client::free(self, block)
    }

    fn sync(&self) -> Result<(), BlockError> {
        Client::sync(self)
    }

    fn blocks_of_unit(&self, unit: UnitIndex) -> Result<(u32, u32), BlockError> {
        Client::blocks_of_unit(self, unit)
    }
}
