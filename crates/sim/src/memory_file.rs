//! A file in memory for devices that ask for their I/O.

use diecut_media::{Intent, IntentDone, IntentWork};
use std::collections::BTreeMap;

const PAGE_SIZE_BYTES: u64 = 4096;

/// A file in memory on which intents are carried out: as a drive does. Bytes that were never written read as zeros; a
/// sync does nothing, for memory has no cut.
#[derive(Debug, Default)]
pub struct MemoryFile {
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl MemoryFile {
    /// Carries out an intent now. The answer may be given later.
    pub fn execute(&mut self, intent: Intent) -> IntentDone {
        let mut done = IntentDone { token: intent.token, buffer: None, result: Ok(()) };
        match intent.work {
            IntentWork::Read { offset, mut buffer } => {
                self.read(offset, &mut buffer);
                done.buffer = Some(buffer);
            }
            IntentWork::Write { mut offset, parts, .. } => {
                for part in parts {
                    self.write(offset, &part);
                    offset += part.len() as u64;
                }
            }
            IntentWork::Discard { offset, len_bytes } => {
                let whole = offset.div_ceil(PAGE_SIZE_BYTES)..(offset + len_bytes) / PAGE_SIZE_BYTES;
                self.pages.retain(|page, _| !whole.contains(page));
            }
            IntentWork::ResetZone { .. } | IntentWork::FinishZone { .. } => panic!("a file has no zones"),
            IntentWork::Sync => {}
        }
        done
    }

    fn read(&self, mut offset: u64, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let within = (offset % PAGE_SIZE_BYTES) as usize;
            let len = bytes.len().min(PAGE_SIZE_BYTES as usize - within);
            let (some, rest) = bytes.split_at_mut(len);
            match self.pages.get(&(offset / PAGE_SIZE_BYTES)) {
                Some(page) => some.copy_from_slice(&page[within..within + len]),
                None => some.fill(0),
            }
            (offset, bytes) = (offset + len as u64, rest);
        }
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = (offset % PAGE_SIZE_BYTES) as usize;
            let (some, rest) = bytes.split_at(bytes.len().min(PAGE_SIZE_BYTES as usize - within));
            let page = self.pages.entry(offset / PAGE_SIZE_BYTES);
            let page = page.or_insert_with(|| vec![0; PAGE_SIZE_BYTES as usize].into());
            page[within..within + some.len()].copy_from_slice(some);
            (offset, bytes) = (offset + some.len() as u64, rest);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_media::IntentToken;
    use diecut_units::{Buffer, BufferMut};

    /// Goal: bytes come back wherever they lie. Method: parts across the borders of pages, and holes.
    #[test]
    fn what_was_written_is_read() {
        let mut file = MemoryFile::default();
        let mut execute = |work| file.execute(Intent { token: IntentToken(3), work });
        let parts = [Buffer::copy_from(&[1; 5000]), Buffer::copy_from(&[2; 100])].into_iter().collect();
        assert!(execute(IntentWork::Write { offset: 4000, parts, handle: 0 }).result.is_ok());
        let buffer = BufferMut::copy_from(&[9; 9000]);
        let done = execute(IntentWork::Read { offset: 1000, buffer });
        let expected = [vec![0; 3000], vec![1; 5000], vec![2; 100], vec![0; 900]].concat();
        assert_eq!(&done.buffer.unwrap()[..], expected);
        assert_eq!(execute(IntentWork::Sync).token, IntentToken(3));
    }
}
