//! Leaves of version 1.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::LogAddress;
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};
use diecut_volume::leaf::{LEAF_ENTRIES, Leaf, LeafEntry, LeafName, LeafState};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let leaf = |level, state, place, entries: usize| {
        let entry = LeafEntry { state, place, is_versioned: level > 0, ..LeafEntry::default() };
        let mut iu = vec![0; IU_SIZE_BYTES];
        let name = LeafName { level, volume: 1, number: 2, stamp: 3 };
        name.encode(std::iter::repeat_n(entry, entries), &mut iu);
        [&[1][..], &iu].concat()
    };
    vec![
        leaf(0, LeafState::Nothing, 0, 0),
        leaf(0, LeafState::Data, 7, LEAF_ENTRIES),
        leaf(1, LeafState::Data, (1 << 40) - 1, 9),
        leaf(0, LeafState::Uncorrectable, 0, 100),
    ]
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut iu = input.rest().to_vec();
    if sealed {
        iu.resize(IU_SIZE_BYTES, 0);
        iu[..4].copy_from_slice(b"dlef");
        let sum = checksum_append(checksum(&iu[..4]), &iu[8..]);
        iu[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(leaf) = bounded(0, || Leaf::decode(&iu)) else { return };
    for entry in leaf.entries() {
        // Whatever a medium says becomes an entry of a map, and only a place that there is becomes one.
        let end = LogAddress::at(1 << 30);
        let place = entry.in_map(end, |_| true).get();
        assert!(!place.is_place() || place < end);
    }
    let mut again = vec![0; IU_SIZE_BYTES];
    leaf.name.encode(leaf.entries(), &mut again);
    assert_eq!(again, iu, "what is read is written again");
}
