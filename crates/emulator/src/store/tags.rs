//! Tags instead of content: 8 bytes per IU, and only for erase blocks that hold something.

use super::ReadFault;
use super::oob::OobBlock;
use diecut_units::{ContentMode, Geometry, IU_SIZE_BYTES, Payload, TAG_SIZE_BYTES};
use std::ops::Range;

/// What one erase block holds.
#[derive(Default)]
struct TagBlock {
    /// A tag per IU. Grows with the block and keeps its memory through erases.
    tags: Vec<u64>,
    /// IUs that were programmed as bytes, in order, without trailing zeros.
    bytes: Vec<(u32, Box<[u8]>)>,
    oob: OobBlock,
}

/// Tags of a whole device.
pub(crate) struct TagStore {
    blocks: Vec<Option<Box<TagBlock>>>,
    /// Memory of erased blocks, for the next ones.
    #[allow(clippy::vec_box, reason = "a block of tags moves between lists without being copied")]
    spare: Vec<Box<TagBlock>>,
    ius_per_erase_block: u32,
    unit_pages: u32,
    oob_size_bytes: usize,
    pages_per_erase_block: u32,
}

impl TagStore {
    pub(crate) fn new(geometry: &Geometry, unit_pages: u32) -> TagStore {
        TagStore {
            blocks: (0..geometry.erase_blocks()).map(|_| None).collect(),
            spare: Vec::new(),
            ius_per_erase_block: geometry.ius_per_erase_block(),
            unit_pages,
            oob_size_bytes: geometry.oob_size_bytes as usize,
            pages_per_erase_block: geometry.pages_per_erase_block(),
        }
    }

    /// A store that holds nothing yet, for another part of the device.
    pub(crate) fn empty_like(&self) -> TagStore {
        TagStore { blocks: self.blocks.iter().map(|_| None).collect(), spare: Vec::new(), ..*self }
    }

    /// Moves what some blocks hold from another store.
    pub(crate) fn take_from(&mut self, other: &mut TagStore, blocks: Range<usize>) {
        for (own, theirs) in self.blocks[blocks.clone()].iter_mut().zip(&mut other.blocks[blocks]) {
            *own = theirs.take();
        }
    }

    fn block_mut(&mut self, block: u64) -> &mut TagBlock {
        let capacity = self.ius_per_erase_block as usize;
        let spare = &mut self.spare;
        self.blocks[block as usize].get_or_insert_with(|| {
            let mut fresh = spare.pop().unwrap_or_default();
            fresh.tags.reserve_exact(capacity);
            fresh
        })
    }

    pub(crate) fn program(&mut self, block: u64, first_iu: u32, payload: &Payload) {
        let block = self.block_mut(block);
        assert_eq!(block.tags.len(), first_iu as usize, "IUs arrive in order");
        match payload.mode() {
            ContentMode::Tags => block.tags.extend(
                payload
                    .bytes()
                    .chunks_exact(TAG_SIZE_BYTES)
                    .map(|tag| u64::from_le_bytes(tag.try_into().expect("chunks are tags"))),
            ),
            ContentMode::Bytes => {
                for (index, bytes) in payload.bytes().chunks_exact(IU_SIZE_BYTES).enumerate() {
                    let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                    block.bytes.push((first_iu + index as u32, bytes[..len].into()));
                    block.tags.push(0);
                }
            }
        }
    }

    pub(crate) fn program_oob(&mut self, block: u64, first_page: u32, oob: &[u8]) {
        let (unit_pages, size, pages) = (self.unit_pages, self.oob_size_bytes, self.pages_per_erase_block);
        let areas = &mut self.block_mut(block).oob;
        for (index, area) in oob.chunks_exact(size).enumerate() {
            areas.push(first_page + index as u32, unit_pages, area);
        }
        if first_page + (oob.len() / size) as u32 == pages {
            areas.shrink();
        }
    }

    /// Stands for pages whose content is garbage that nobody can read. `zeros` has the size of an OOB area.
    pub(crate) fn program_nothing(&mut self, block: u64, first_page: u32, end_page: u32, zeros: &[u8]) {
        let ius_per_page = self.ius_per_erase_block / self.pages_per_erase_block;
        let unit_pages = self.unit_pages;
        let block = self.block_mut(block);
        assert_eq!(block.tags.len(), (first_page * ius_per_page) as usize, "IUs arrive in order");
        block.tags.resize((end_page * ius_per_page) as usize, 0);
        for page in first_page..end_page {
            block.oob.push(page, unit_pages, zeros);
        }
    }

    fn programmed(&self, block: u64) -> &TagBlock {
        self.blocks[block as usize].as_ref().expect("only programmed pages are read")
    }

    pub(crate) fn read(
        &self,
        block: u64,
        first_iu: u32,
        iu_count: u32,
        destination: &mut [u8],
    ) -> Result<(), ReadFault> {
        let block = self.programmed(block);
        // Most blocks hold tags alone, and most reads are of one.
        if block.bytes.is_empty()
            && iu_count == 1
            && let Ok(place) = <&mut [u8; TAG_SIZE_BYTES]>::try_from(&mut *destination)
        {
            *place = block.tags[first_iu as usize].to_le_bytes();
            return Ok(());
        }
        let mut stored = block.bytes.partition_point(|(iu, _)| *iu < first_iu);
        if destination.len() == iu_count as usize * TAG_SIZE_BYTES {
            if let Some((iu, _)) = block.bytes.get(stored).filter(|(iu, _)| *iu < first_iu + iu_count) {
                return Err(ReadFault::OtherMode { iu: *iu });
            }
            let tags = &block.tags[first_iu as usize..(first_iu + iu_count) as usize];
            for (place, tag) in destination.chunks_exact_mut(TAG_SIZE_BYTES).zip(tags) {
                place.copy_from_slice(&tag.to_le_bytes());
            }
            return Ok(());
        }
        for (index, place) in destination.chunks_exact_mut(IU_SIZE_BYTES).enumerate() {
            let wanted = first_iu + index as u32;
            match block.bytes.get(stored) {
                Some((iu, bytes)) if *iu == wanted => {
                    place[..bytes.len()].copy_from_slice(bytes);
                    place[bytes.len()..].fill(0);
                    stored += 1;
                }
                _ => return Err(ReadFault::OtherMode { iu: wanted }),
            }
        }
        Ok(())
    }

    pub(crate) fn read_oob(&self, block: u64, page: u32, oob: &mut [u8]) {
        self.programmed(block).oob.get(page, self.unit_pages, oob);
    }

    pub(crate) fn erase(&mut self, block: u64) {
        if let Some(mut content) = self.blocks[block as usize].take() {
            content.tags.clear();
            content.bytes.clear();
            content.oob.clear();
            self.spare.push(content);
        }
    }

    pub(crate) fn copy_ius(&mut self, source: u64, source_iu: u32, destination: u64, iu: u32, count: u32) {
        assert_ne!(source, destination, "a copy goes to another erase block");
        let from = self.blocks[source as usize].take().expect("only programmed pages are copied");
        let to = self.block_mut(destination);
        assert_eq!(to.tags.len(), iu as usize, "IUs arrive in order");
        to.tags.extend_from_slice(&from.tags[source_iu as usize..(source_iu + count) as usize]);
        let stored = from.bytes.partition_point(|(at, _)| *at < source_iu);
        for (at, bytes) in from.bytes[stored..].iter().take_while(|(at, _)| *at < source_iu + count) {
            to.bytes.push((at - source_iu + iu, bytes.clone()));
        }
        self.blocks[source as usize] = Some(from);
    }

    /// Bytes of memory taken by tags, stored bytes and OOB areas, spare ones included.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of = |block: &TagBlock| {
            size_of::<TagBlock>()
                + block.tags.capacity() * size_of::<u64>()
                + block.bytes.capacity() * size_of::<(u32, Box<[u8]>)>()
                + block.bytes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
                + block.oob.memory_bytes()
        };
        let held = self.blocks.iter().flatten().chain(&self.spare).map(|block| of(block)).sum::<usize>();
        (held + self.blocks.capacity() * size_of::<Option<Box<TagBlock>>>()) as u64
    }
}
