//! One staging slot: where a program unit of a zone gathers before it is programmed, straight from here.
//!
//! Slot in protected memory, little endian:
//!
//! | offset | size | field      | meaning                                                                |
//! |-------:|-----:|------------|------------------------------------------------------------------------|
//! |      0 |    8 | word       | published last: DC5Ah, flags (16 bits: 1 committed, 2 random), CRC-32C of bytes 8 to 28 and the flags |
//! |      8 |    4 | set        | whose zone                                                             |
//! |     12 |    4 | zone       | which zone                                                             |
//! |     16 |    4 | generation | generation of the zone                                                 |
//! |     20 |    4 | unit       | program unit of the zone                                               |
//! |     24 |    4 | version    | 1                                                                      |
//! |     28 |    4 | -          | not used                                                               |
//! |     32 |  8*n | IU words   | for each IU of the unit: 0, or 8000h, place (16 bits), CRC-32C         |
//! |    ... |  ... | places     | n + 1 IUs; where each IU lies its word says                             |
//!
//! An IU is there when its word is. The spare place lets an IU be written again (random write area) without a moment in which neither
//! content is whole. A word of zeros says that the slot is empty; words of IUs are cleared before it is published.

use diecut_units::mutant;
use diecut_units::{
    Buffer, BufferLoan, BufferMut, ContentMode, Payload, ProtectedRegion, checksum, checksum_append,
};
use diecut_vssd::space::PayloadParts;
use std::sync::atomic::{Ordering, compiler_fence};

/// Bytes before the words of IUs.
const HEADER_SIZE_BYTES: usize = 32;
const MAGIC: u64 = 0xdc5a;
const VERSION: u32 = 1;
const COMMITTED: u64 = 1;
const RANDOM: u64 = 2;
const IU_VALID: u64 = 0x8000;

/// Which program unit a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotName {
    pub set: u32,
    pub zone: u32,
    pub generation: u32,
    pub unit: u32,
    /// It belongs to the random write area of its zone, or did.
    pub is_random: bool,
}

/// What a slot holds after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundSlot {
    Empty,
    /// What it held is lost.
    Damaged,
    Unit {
        name: SlotName,
        is_committed: bool,
    },
}

enum Body {
    Open(BufferMut),
    /// Programs read it.
    Shared(BufferLoan, Buffer),
    /// Given back, but someone below still holds a part.
    Returning(BufferLoan),
    Moving,
}

/// An IU of a slot.
#[derive(Clone, Copy)]
struct Iu {
    place: u16,
    checksum: u32,
    is_there: bool,
}

pub(crate) struct Slot {
    /// In protected memory only: header and words of IUs.
    words: Option<BufferMut>,
    body: Body,
    ius: Box<[Iu]>,
    spare: u16,
    iu_bytes: usize,
    /// Somebody below read it when what does not count was to be cleared.
    must_wipe: bool,
}

/// What the word of a slot has as its check.
fn check_of(words: &[u8], flags: u64) -> u32 {
    checksum_append(checksum(&words[8..28]), &(flags as u16).to_le_bytes())
}

impl Slot {
    /// Bytes of a slot in protected memory, for units of so many IUs.
    pub fn size_bytes(unit_ius: u32, iu_bytes: usize) -> usize {
        let words = HEADER_SIZE_BYTES + 8 * unit_ius as usize;
        (words + (unit_ius as usize + 1) * iu_bytes).next_multiple_of(64)
    }

    /// In ordinary memory.
    pub fn plain(unit_ius: u32, iu_bytes: usize) -> Slot {
        let bytes = vec![0; (unit_ius as usize + 1) * iu_bytes];
        Slot::new(None, BufferMut::copy_from(&bytes), unit_ius, iu_bytes)
    }

    /// In protected memory; what it holds stays.
    pub fn protected(mut region: ProtectedRegion, unit_ius: u32, iu_bytes: usize) -> Slot {
        let words = region.split_to(HEADER_SIZE_BYTES + 8 * unit_ius as usize).into_buffer();
        Slot::new(Some(words), region.into_buffer(), unit_ius, iu_bytes)
    }

    fn new(words: Option<BufferMut>, body: BufferMut, unit_ius: u32, iu_bytes: usize) -> Slot {
        let ius = (0..unit_ius as u16).map(|place| Iu { place, checksum: 0, is_there: false }).collect();
        Slot { words, body: Body::Open(body), ius, spare: unit_ius as u16, iu_bytes, must_wipe: false }
    }

    fn field(&self, at: usize) -> u32 {
        let words = self.words.as_ref().expect("asked of a protected slot");
        u32::from_le_bytes(words[at..at + 4].try_into().expect("4 bytes"))
    }

    fn word(&self, at: usize) -> u64 {
        let words = self.words.as_ref().expect("asked of a protected slot");
        u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"))
    }

    /// Stores a word after everything that was stored before it.
    fn publish(&mut self, at: usize, word: u64) {
        if let Some(words) = &mut self.words {
            compiler_fence(Ordering::SeqCst);
            let place: &mut [u8; 8] = (&mut words[at..at + 8]).try_into().expect("8 bytes");
            *place = word.to_le_bytes();
            compiler_fence(Ordering::SeqCst);
        }
    }

    fn publish_name(&mut self, is_committed: bool, is_random: bool) {
        let Some(words) = &self.words else { return };
        let flags = (COMMITTED * u64::from(is_committed)) | (RANDOM * u64::from(is_random));
        let check = check_of(words, flags);
        self.publish(0, MAGIC << 48 | flags << 32 | u64::from(check));
    }

    /// Begins a unit.
    pub fn start(&mut self, name: SlotName) {
        debug_assert!(matches!(self.body, Body::Open(_)), "I-Z5: a unit begins in a slot that is free");
        self.clear();
        self.wipe_again();
        self.ius.iter_mut().for_each(|iu| iu.is_there = false);
        if let Some(words) = &mut self.words {
            words[32..].fill(0);
            for (at, value) in
                [name.set, name.zone, name.generation, name.unit, VERSION].into_iter().enumerate()
            {
                words[8 + 4 * at..12 + 4 * at].copy_from_slice(&value.to_le_bytes());
            }
        }
        self.publish_name(!name.is_random, name.is_random);
    }

    /// What a unit of a random write area holds is committed: the write pointer lies behind it.
    pub fn commit(&mut self) {
        self.publish_name(true, true);
    }

    /// Puts an IU at its place, or another content in its place.
    #[inline]
    pub fn put(&mut self, iu: u32, content: &[u8]) {
        let sum = checksum(content);
        let was = self.ius[iu as usize];
        let place = if was.is_there { self.spare } else { was.place };
        let at = usize::from(place) * self.iu_bytes;
        let Body::Open(body) = &mut self.body else {
            panic!("I-Z5: a unit that is programmed does not change")
        };
        body[at..at + self.iu_bytes].copy_from_slice(content);
        if was.is_there {
            self.spare = was.place;
        }
        self.ius[iu as usize] = Iu { place, checksum: sum, is_there: true };
        self.publish(32 + 8 * iu as usize, IU_VALID << 48 | u64::from(place) << 32 | u64::from(sum));
    }

    /// Whether an IU is there.
    #[inline]
    pub fn has(&self, iu: u32) -> bool {
        self.ius[iu as usize].is_there
    }

    /// IUs that are there from the first on without a gap.
    pub fn prefix_ius(&self) -> u32 {
        self.ius.iter().take_while(|iu| iu.is_there).count() as u32
    }

    /// An IU that is there.
    #[inline]
    pub fn iu(&self, iu: u32) -> &[u8] {
        debug_assert!(self.has(iu), "I-Z5: what is read of a slot is there");
        let at = usize::from(self.ius[iu as usize].place) * self.iu_bytes;
        &self.bytes()[at..at + self.iu_bytes]
    }

    /// The checksum of an IU that is there.
    pub fn checksum_of(&self, iu: u32) -> u32 {
        self.ius[iu as usize].checksum
    }

    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Open(body) => body,
            Body::Shared(_, body) => body,
            _ => panic!("I-Z5: an empty slot has no content"),
        }
    }

    /// The content of the unit, all of which is there, for a program.
    pub fn payload(&mut self, mode: ContentMode) -> PayloadParts {
        assert!(self.ius.iter().all(|iu| iu.is_there), "I-Z5: a unit that is programmed is whole");
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Open(buffer) => {
                let (loan, whole) = buffer.lend();
                Body::Shared(loan, whole.freeze())
            }
            other => other,
        };
        let Body::Shared(_, body) = &self.body else { panic!("I-Z5: an empty slot has no content") };
        let mut parts = PayloadParts::new();
        let mut first = 0;
        while first < self.ius.len() {
            let follows = |at: &usize| self.ius[*at].place == self.ius[first].place + (*at - first) as u16;
            let end = (first + 1..self.ius.len()).find(|at| !follows(at)).unwrap_or(self.ius.len());
            let start = usize::from(self.ius[first].place) * self.iu_bytes;
            parts.push(Payload::new(mode, body.slice(start..start + (end - first) * self.iu_bytes)));
            first = end;
        }
        parts
    }

    /// Says that nothing in it counts.
    pub fn clear(&mut self) {
        self.publish(0, 0);
    }

    /// Makes it empty.
    pub fn release(&mut self) {
        self.clear();
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Shared(loan, buffer) => {
                drop(buffer);
                Body::Returning(loan)
            }
            other => other,
        };
    }

    /// Whether a unit can begin here.
    pub fn is_free(&mut self) -> bool {
        self.body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Returning(loan) => loan.try_reclaim().map_or_else(Body::Returning, Body::Open),
            other => other,
        };
        matches!(self.body, Body::Open(_))
    }

    /// What of it does not count is cleared: at once, or, while somebody below reads it, later ([`Slot::wipe_again`]).
    pub fn wipe_unused(&mut self) {
        let is_free = self.word(0) == 0;
        let was_shared = matches!(self.body, Body::Shared(..));
        let mut body = match std::mem::replace(&mut self.body, Body::Moving) {
            Body::Open(body) => body,
            Body::Shared(loan, whole) => match loan.try_reclaim_from(whole) {
                Ok(body) => body,
                Err((loan, whole)) => {
                    (self.body, self.must_wipe) = (Body::Shared(loan, whole), true);
                    return;
                }
            },
            Body::Returning(loan) => match loan.try_reclaim() {
                Ok(body) => body,
                Err(loan) => {
                    (self.body, self.must_wipe) = (Body::Returning(loan), true);
                    return;
                }
            },
            Body::Moving => unreachable!("I-Z5: a slot has its body between calls"),
        };
        let used = |place: usize| self.ius.iter().any(|iu| iu.is_there && usize::from(iu.place) == place);
        for (place, bytes) in body.chunks_exact_mut(self.iu_bytes).enumerate() {
            if (is_free || !used(place)) && !mutant!("zoned: slots are not cleared") {
                bytes.fill(0);
            }
        }
        self.must_wipe = false;
        self.body = if was_shared {
            let (loan, whole) = body.lend();
            Body::Shared(loan, whole.freeze())
        } else {
            Body::Open(body)
        };
    }

    /// Clears it if that is still to be done. Whether nothing is to be done any more.
    pub fn wipe_again(&mut self) -> bool {
        if self.must_wipe {
            self.wipe_unused();
        }
        !self.must_wipe
    }

    /// What it holds after a restart; takes over which IUs are there.
    pub fn found(&mut self) -> FoundSlot {
        if self.words.is_none() {
            return FoundSlot::Empty;
        }
        let word = self.word(0);
        if word == 0 {
            return FoundSlot::Empty;
        }
        let words = self.words.as_ref().expect("just looked at");
        let flags = word >> 32 & 0xffff;
        if word >> 48 != MAGIC || word as u32 != check_of(words, flags) || self.field(24) != VERSION {
            return FoundSlot::Damaged;
        }
        let places = self.ius.len() + 1;
        let mut taken = vec![false; places];
        for iu in 0..self.ius.len() {
            let word = self.word(32 + 8 * iu);
            if word == 0 {
                continue;
            }
            let (place, sum) = ((word >> 32) as u16, word as u32);
            if word >> 48 != IU_VALID || usize::from(place) >= places || taken[usize::from(place)] {
                return FoundSlot::Damaged;
            }
            let at = usize::from(place) * self.iu_bytes;
            if checksum(&self.bytes()[at..at + self.iu_bytes]) != sum {
                return FoundSlot::Damaged;
            }
            taken[usize::from(place)] = true;
            self.ius[iu] = Iu { place, checksum: sum, is_there: true };
        }
        let mut free = (0..places as u16).filter(|place| !taken[usize::from(*place)]);
        for iu in self.ius.iter_mut().filter(|iu| !iu.is_there) {
            iu.place = free.next().expect("one place more than IUs");
        }
        self.spare = free.next().expect("one place more than IUs");
        let name = SlotName {
            set: self.field(8),
            zone: self.field(12),
            generation: self.field(16),
            unit: self.field(20),
            is_random: flags & RANDOM != 0,
        };
        FoundSlot::Unit { name, is_committed: flags & COMMITTED != 0 }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_units::ProtectedMemory;

    const NAME: SlotName =
        SlotName { set: 0x0403_0201, zone: 0x0807_0605, generation: 0x0c0b_0a09, unit: 7, is_random: false };

    fn slot(memory: &ProtectedMemory) -> Slot {
        Slot::protected(memory.region(0..memory.size_bytes()), 3, 8)
    }

    /// Goal: the layout is pinned. Method: bytes written by hand.
    #[test]
    fn the_bytes_of_a_slot() {
        let memory = ProtectedMemory::in_memory(Slot::size_bytes(3, 8));
        let mut one = slot(&memory);
        one.start(NAME);
        one.put(1, &[9; 8]);
        let fields = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 7, 0, 0, 0, 1, 0, 0, 0];
        let check = checksum(&[&fields[..], &[1, 0]].concat()).to_le_bytes();
        let sum = checksum(&[9; 8]).to_le_bytes();
        let golden =
            [&check[..], &[1, 0, 0x5a, 0xdc], &fields, &[0; 4], &[0; 8], &sum, &[1, 0, 0x00, 0x80], &[0; 8]];
        assert_eq!(one.words.as_deref(), Some(&golden.concat()[..]));
        assert_eq!(one.bytes()[8..16], [9; 8]);
        drop(one);
        let mut again = slot(&memory);
        assert_eq!(again.found(), FoundSlot::Unit { name: NAME, is_committed: true });
        assert!(again.has(1) && !again.has(0) && again.prefix_ius() == 0 && again.iu(1) == [9; 8]);
    }

    /// Goal: writing an IU again loses neither content at any instant. Method: the memory is copied between the two stores of a
    /// `put`, which a content that goes to the spare place makes visible.
    #[test]
    fn an_iu_that_is_written_again_lies_elsewhere() {
        let memory = ProtectedMemory::in_memory(Slot::size_bytes(3, 8));
        let mut one = slot(&memory);
        one.start(SlotName { is_random: true, ..NAME });
        (0..3).for_each(|iu| one.put(iu, &[iu as u8; 8]));
        let before = one.bytes()[8..16].to_vec();
        one.put(1, &[7; 8]);
        assert_eq!(
            (&one.bytes()[8..16], one.iu(1)),
            (&before[..], &[7; 8][..]),
            "the old place is untouched"
        );
        one.put(1, &[8; 8]);
        assert_eq!(one.spare, 3, "places change by turns");
        one.put(0, &[6; 8]);
        let parts = one.payload(ContentMode::Tags);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
        assert_eq!(bytes, [[6; 8], [8; 8], [2; 8]].concat());
        assert_eq!(parts.len(), 2, "what lies together goes together");
        drop((parts, one));
        let mut again = slot(&memory);
        let FoundSlot::Unit { name, is_committed } = again.found() else { panic!("it is whole") };
        assert!(name.is_random && !is_committed && again.prefix_ius() == 3 && again.iu(0) == [6; 8]);
        again.commit();
        drop(again);
        assert!(matches!(slot(&memory).found(), FoundSlot::Unit { is_committed: true, .. }));
    }

    /// Goal: rot in a slot is found. Method: every bit that counts is flipped once.
    #[test]
    fn damage_is_found() {
        let memory = ProtectedMemory::in_memory(Slot::size_bytes(3, 8));
        let mut one = slot(&memory);
        one.start(NAME);
        (0..2).for_each(|iu| one.put(iu, &[iu as u8 + 1; 8]));
        drop(one);
        let counts = (0..28).chain(32..48).chain(56..72);
        for (at, bit) in counts.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let flip = || memory.region(0..memory.size_bytes())[at] ^= 1 << bit;
            flip();
            assert_eq!(slot(&memory).found(), FoundSlot::Damaged, "byte {at} bit {bit}");
            flip();
        }
    }

    #[test]
    fn a_slot_that_is_read_below_is_not_free() {
        let mut one = Slot::plain(2, 8);
        one.start(NAME);
        (0..2).for_each(|iu| one.put(iu, &[iu as u8; 8]));
        let parts = one.payload(ContentMode::Tags);
        one.release();
        assert!(!one.is_free());
        drop(parts);
        assert!(one.is_free());
    }
}
