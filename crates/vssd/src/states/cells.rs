//! The bytes of block states: all of them in one region, or, where a device is divided among pools, a region for each channel
//! and for each entry of a vSSD, so that each pool holds what is its own and nothing else. The places are the same in both
//! forms: what one form wrote the other one reads.

use diecut_units::{ProtectedMemory, ProtectedRegion};

/// Where the parts of a table begin, and how large they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub header_bytes: usize,
    pub channels: usize,
    /// Of one channel.
    pub block_bytes: usize,
    /// Of one channel.
    pub page_bytes: usize,
    /// Of one channel.
    pub wear_bytes: usize,
    pub slots: usize,
    /// Of one vSSD: both copies.
    pub slot_bytes: usize,
}

/// What a table holds of one channel.
pub(crate) struct ChannelCells {
    blocks: ProtectedRegion,
    pages: ProtectedRegion,
    wear: ProtectedRegion,
}

pub(crate) enum Cells {
    Whole(ProtectedRegion),
    Divided(Divided),
}

pub(crate) struct Divided {
    shape: Shape,
    /// With the pool that divided; nobody needs it afterwards.
    _header: Option<ProtectedRegion>,
    channels: Vec<Option<ChannelCells>>,
    slots: Vec<Option<ProtectedRegion>>,
}

impl Divided {
    fn region(&self, at: usize) -> (&ProtectedRegion, usize) {
        let (part, first) = self.shape.part(at);
        let held = match part {
            Part::Blocks(channel) => self.channels[channel].as_ref().map(|cells| &cells.blocks),
            Part::Pages(channel) => self.channels[channel].as_ref().map(|cells| &cells.pages),
            Part::Wear(channel) => self.channels[channel].as_ref().map(|cells| &cells.wear),
            Part::Slot(slot) => self.slots[slot].as_ref(),
        };
        (held.expect("I-V3: a pool touches what it holds"), at - first)
    }

    fn region_mut(&mut self, at: usize) -> (&mut ProtectedRegion, usize) {
        let (part, first) = self.shape.part(at);
        let held = match part {
            Part::Blocks(channel) => self.channels[channel].as_mut().map(|cells| &mut cells.blocks),
            Part::Pages(channel) => self.channels[channel].as_mut().map(|cells| &mut cells.pages),
            Part::Wear(channel) => self.channels[channel].as_mut().map(|cells| &mut cells.wear),
            Part::Slot(slot) => self.slots[slot].as_mut(),
        };
        (held.expect("I-V3: a pool touches what it holds"), at - first)
    }
}

enum Part {
    Blocks(usize),
    Pages(usize),
    Wear(usize),
    Slot(usize),
}

impl Shape {
    /// The part that a place belongs to, and where it begins.
    fn part(&self, at: usize) -> (Part, usize) {
        let pages_at = self.header_bytes + self.channels * self.block_bytes;
        let wear_at = pages_at + self.channels * self.page_bytes;
        let slots_at = wear_at + self.channels * self.wear_bytes;
        assert!(at >= self.header_bytes, "the header is written before a table is divided");
        if at < pages_at {
            let channel = (at - self.header_bytes) / self.block_bytes;
            (Part::Blocks(channel), self.header_bytes + channel * self.block_bytes)
        } else if at < wear_at {
            let channel = (at - pages_at) / self.page_bytes;
            (Part::Pages(channel), pages_at + channel * self.page_bytes)
        } else if at < slots_at {
            let channel = (at - wear_at) / self.wear_bytes;
            (Part::Wear(channel), wear_at + channel * self.wear_bytes)
        } else {
            let slot = (at - slots_at) / self.slot_bytes;
            (Part::Slot(slot), slots_at + slot * self.slot_bytes)
        }
    }
}

/// These bytes, in memory of their own that no log and no file stands behind.
fn plain(bytes: &[u8]) -> ProtectedRegion {
    let mut region = ProtectedMemory::in_memory(bytes.len()).region(0..bytes.len());
    region.copy_from_slice(bytes);
    region
}

impl Cells {
    /// Of a pool that holds nothing yet.
    pub fn nothing(shape: Shape) -> Cells {
        Cells::Divided(Divided {
            shape,
            _header: None,
            channels: (0..shape.channels).map(|_| None).collect(),
            slots: (0..shape.slots).map(|_| None).collect(),
        })
    }

    #[inline]
    pub fn get(&self, at: usize, len: usize) -> &[u8] {
        match self {
            Cells::Whole(region) => &region[at..at + len],
            Cells::Divided(divided) => {
                let (region, at) = divided.region(at);
                &region[at..at + len]
            }
        }
    }

    #[inline]
    pub fn get_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        match self {
            Cells::Whole(region) => &mut region[at..at + len],
            Cells::Divided(divided) => {
                let (region, at) = divided.region_mut(at);
                &mut region[at..at + len]
            }
        }
    }

    /// See [`ProtectedRegion::publish`].
    #[inline]
    pub fn publish(&mut self, at: usize, word: u64) {
        match self {
            Cells::Whole(region) => region.publish(at, word),
            Cells::Divided(divided) => {
                let (region, at) = divided.region_mut(at);
                region.publish(at, word);
            }
        }
    }

    /// All bytes, as they lie.
    ///
    /// # Panics
    /// If they are divided: only media with protected memory can be.
    pub fn whole(&self) -> &[u8] {
        match self {
            Cells::Whole(region) => region,
            Cells::Divided(_) => panic!("I-V3: block states in a log are never divided"),
        }
    }

    /// Cuts the bytes into parts that can be handed out.
    pub fn divide(&mut self, shape: Shape) {
        if matches!(self, Cells::Divided(_)) {
            return;
        }
        let Cells::Whole(mut rest) = std::mem::replace(self, Cells::nothing(shape)) else {
            unreachable!("I-V3: looked at just now")
        };
        let header = rest.split_to(shape.header_bytes);
        let blocks: Vec<_> = (0..shape.channels).map(|_| rest.split_to(shape.block_bytes)).collect();
        let pages: Vec<_> = (0..shape.channels).map(|_| rest.split_to(shape.page_bytes)).collect();
        let wear: Vec<_> = (0..shape.channels).map(|_| rest.split_to(shape.wear_bytes)).collect();
        let slots = (0..shape.slots).map(|_| Some(rest.split_to(shape.slot_bytes))).collect();
        let channels = blocks.into_iter().zip(pages).zip(wear);
        *self = Cells::Divided(Divided {
            shape,
            _header: Some(header),
            channels: channels
                .map(|((blocks, pages), wear)| Some(ChannelCells { blocks, pages, wear }))
                .collect(),
            slots,
        });
    }

    /// A copy of what is said of a channel, in plain memory.
    ///
    /// # Panics
    /// If the bytes are divided.
    pub fn copy_channel(&self, shape: Shape, channel: u16) -> ChannelCells {
        let whole = self.whole();
        let at = |first: usize, size: usize| {
            let start = first + usize::from(channel) * size;
            plain(&whole[start..start + size])
        };
        let pages_at = shape.header_bytes + shape.channels * shape.block_bytes;
        let wear_at = pages_at + shape.channels * shape.page_bytes;
        ChannelCells {
            blocks: at(shape.header_bytes, shape.block_bytes),
            pages: at(pages_at, shape.page_bytes),
            wear: at(wear_at, shape.wear_bytes),
        }
    }

    /// A copy of an entry of a vSSD, in plain memory.
    ///
    /// # Panics
    /// If the bytes are divided.
    pub fn copy_slot(&self, shape: Shape, slot: usize) -> ProtectedRegion {
        let channel_bytes = shape.block_bytes + shape.page_bytes + shape.wear_bytes;
        let start = shape.header_bytes + shape.channels * channel_bytes + slot * shape.slot_bytes;
        plain(&self.whole()[start..start + shape.slot_bytes])
    }

    /// An entry that no vSSD has.
    pub fn blank_slot(shape: Shape) -> ProtectedRegion {
        plain(&vec![0; shape.slot_bytes])
    }

    fn divided(&mut self) -> &mut Divided {
        match self {
            Cells::Divided(divided) => divided,
            Cells::Whole(_) => panic!("I-V3: parts are handed out after the division"),
        }
    }

    pub fn take_channel(&mut self, channel: u16) -> ChannelCells {
        self.divided().channels[usize::from(channel)].take().expect("the pool holds the channel (I-V3)")
    }

    pub fn put_channel(&mut self, channel: u16, cells: ChannelCells) {
        let place = &mut self.divided().channels[usize::from(channel)];
        assert!(place.replace(cells).is_none(), "channel {channel} is held once (I-V3)");
    }

    pub fn holds_channel(&self, channel: u16) -> bool {
        match self {
            Cells::Whole(_) => true,
            Cells::Divided(divided) => divided.channels[usize::from(channel)].is_some(),
        }
    }

    pub fn take_slot(&mut self, slot: usize) -> ProtectedRegion {
        self.divided().slots[slot].take().expect("the pool holds the entry (I-V3)")
    }

    pub fn put_slot(&mut self, slot: usize, region: ProtectedRegion) {
        assert!(self.divided().slots[slot].replace(region).is_none(), "entry {slot} is held once (I-V3)");
    }

    pub fn holds_slot(&self, slot: usize) -> bool {
        match self {
            Cells::Whole(_) => true,
            Cells::Divided(divided) => divided.slots[slot].is_some(),
        }
    }
}
