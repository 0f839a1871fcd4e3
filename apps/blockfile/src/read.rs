//! Reads: the view says what is in memory and where the rest is; no lock is held while the device is at work.

use crate::FileError;
use crate::blocks;
use crate::files::Files;
use crate::types::FileId;
use crate::view::Pins;
use diecut_units::IU_SIZE_BYTES;

impl Files {
    /// Reads from `offset` on; returns how many bytes there are, fewer at the end of the file.
    ///
    /// # Errors
    /// [`FileError::NotFound`], the medium.
    pub fn read(&self, file: FileId, offset: u64, bytes: &mut [u8]) -> Result<usize, FileError> {
        let shared = self.views.get(file.0)?;
        let view = shared.look();
        if view.is_gone {
            return Err(FileError::NotFound);
        }
        let len = view.bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..len];
        let parts = view.plan(offset, bytes);
        let _pins = Pins::of(&self.views, &parts);
        drop(view);
        for part in parts {
            let wanted = &mut bytes[part.first..part.first + part.len];
            // A read that fails, for instance of a lost page, says nothing about others.
            if part.skip == 0 && part.len.is_multiple_of(IU_SIZE_BYTES) {
                blocks::read(&*self.medium, part.place, wanted)?;
            } else {
                let mut whole = vec![0; (part.skip + part.len).next_multiple_of(IU_SIZE_BYTES)];
                blocks::read(&*self.medium, part.place, &mut whole)?;
                wanted.copy_from_slice(&whole[part.skip..part.skip + part.len]);
            }
        }
        Ok(len)
    }

    /// Length of a file.
    ///
    /// # Errors
    /// [`FileError::NotFound`].
    pub fn size(&self, file: FileId) -> Result<u64, FileError> {
        let shared = self.views.get(file.0)?;
        let view = shared.look();
        if view.is_gone { Err(FileError::NotFound) } else { Ok(view.bytes) }
    }
}
