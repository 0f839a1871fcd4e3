//! Chunk heads of the log, and the walk over their records and notes.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::chunk::{ChunkHead, ChunkKind, HeadRoom, Record};
use diecut_log::head::{self, Head};
use diecut_log::{Check, Format, RecoveredChunk, TagForm};
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
        head.encode(None, &mut bytes);
        let mut sealed = bytes.clone();
        seal(&mut sealed, 2);
        assert_eq!(Head::decode(None, &sealed), Some(head), "a sealed head passes the door");
        [&[1][..], &bytes].concat()
    };
    let seeds =
        [head(0, 0, &[]), head(1, 1, &[]), head(60, 3, &[(1, 20), (2, 40)]), head(120, 90, &[(0, 0)])];
    let three = |kind, words: &[u64]| {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        let mut room =
            HeadRoom { head_ius: 1, kind: ChunkKind::Map, parity_count: 0, data_count: 0, note_bytes: 0 };
        (0..30).for_each(|_| room.put_record(&mut bytes, &Record::default()));
        room.put_note(&mut bytes, kind, 7, 90, words);
        let head = ChunkHead {
            room,
            reference: 0,
            segment: 1,
            generation: 2,
            offset: 3,
            unit_count: 4,
            copy: 0,
            sequence: 40,
            life: 0,
            origin: None,
        };
        head.encode(None, &mut bytes);
        [&[3][..], &bytes].concat()
    };
    [&seeds[..], &[three(1, &[2, 3]), three(9, &[17])]].concat()
}

/// Makes bytes pass the door: magic, version and checksum are those of a head.
fn seal(head_bytes: &mut Vec<u8>, version: u16) {
    let mut whole = vec![0; IU_SIZE_BYTES];
    Head { unit_count: 1, ..Head::default() }.encode(None, &mut whole);
    head_bytes.resize(IU_SIZE_BYTES, 0);
    head_bytes[..4].copy_from_slice(&whole[..4]);
    head_bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let sum = checksum_append(checksum_append(checksum(&head_bytes[..4]), &[0; 4]), &head_bytes[8..]);
    head_bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mut head_bytes = input.rest().to_vec();
    if flags & 1 != 0 {
        seal(&mut head_bytes, if flags & 2 == 0 { 2 } else { 3 });
    }
    let Some(found) = bounded(0, || Head::decode(None, &head_bytes)) else { return };
    assert!(head_bytes.len() >= IU_SIZE_BYTES && found.unit_count > 0);
    let mut again = head_bytes.clone();
    found.encode(None, &mut again);
    assert_eq!(Head::decode(None, &again), Some(found));

    let chunk = RecoveredChunk::new(found, &head_bytes, TagForm::default());
    for index in 0..u32::from(found.data_count) {
        chunk.record(index);
        assert_eq!(chunk.check(index) != Check::UNKNOWN, found.format == Format::Three);
    }
    let mut notes = 0u32;
    let _ = chunk.runs(
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
