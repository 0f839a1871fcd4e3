//! Chunk heads of the log, and the walk over their records and notes.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::head::{self, Head};
use diecut_log::walk;
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let head = |data_count: u16, note_count: u32, skips: &[(usize, u64)]| {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        for index in 0..usize::from(data_count) {
            head::put_record(&mut bytes, index, 0x0001_0000_0000 + index as u64);
        }
        for index in 0..note_count as usize {
            head::put_note(&mut bytes, index, 50 + index as u64, [1, 2, 3]);
        }
        for &(index, record) in skips {
            head::put_note(&mut bytes, index, 90 + record, [head::SKIP, record, 0]);
        }
        let head =
            Head { segment: 4, data_count, unit_count: 2, note_count, sequence: 40, ..Head::default() };
        head.encode(&mut bytes);
        let mut sealed = bytes.clone();
        seal(&mut sealed);
        assert_eq!(Head::decode(&sealed), Some(head), "a sealed head passes the door");
        [&[1][..], &bytes].concat()
    };
    vec![head(0, 0, &[]), head(1, 1, &[]), head(60, 3, &[(1, 20), (2, 40)]), head(120, 90, &[(0, 0)])]
}

/// Makes bytes pass the door: magic, version and checksum are those of a head.
fn seal(head_bytes: &mut Vec<u8>) {
    let mut whole = vec![0; IU_SIZE_BYTES];
    Head { unit_count: 1, ..Head::default() }.encode(&mut whole);
    head_bytes.resize(IU_SIZE_BYTES, 0);
    head_bytes[..4].copy_from_slice(&whole[..4]);
    head_bytes[8..10].copy_from_slice(&whole[8..10]);
    let sum = checksum_append(checksum_append(checksum(&head_bytes[..4]), &[0; 4]), &head_bytes[8..]);
    head_bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut head_bytes = input.rest().to_vec();
    if sealed {
        seal(&mut head_bytes);
    }
    let Some(found) = bounded(0, || Head::decode(&head_bytes)) else { return };
    assert!(head_bytes.len() >= IU_SIZE_BYTES && found.unit_count > 0);
    let mut again = head_bytes.clone();
    found.encode(&mut again);
    assert_eq!(Head::decode(&again), Some(found));

    for index in 0..usize::from(found.data_count) {
        head::record(&head_bytes, index);
    }
    let mut notes = 0u32;
    let _ = walk::runs(
        &found,
        &head_bytes,
        |_, _, words| {
            assert_ne!(words[0], head::SKIP);
            notes += 1;
        },
        |run| {
            assert!(run.count > 0);
            assert!(run.first + run.count <= u32::from(found.data_count), "runs stay inside");
        },
    );
    assert!(notes <= found.note_count);
}
