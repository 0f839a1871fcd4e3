//! Chunk heads of version 3: records, notes and checksums of parity.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::chunk::{ChunkHead, ChunkKind, HeadRoom, Record};
use diecut_units::{IU_SIZE_BYTES, checksum};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let head = |kind, parity_count, records: u8, notes: u8| {
        let mut bytes = vec![0; IU_SIZE_BYTES];
        let mut room = HeadRoom { head_ius: 1, kind, parity_count, data_count: 0, note_bytes: 0 };
        for index in 0..records {
            room.put_record(&mut bytes, &Record { tag: [index; 12], checksum: 9, death: [0; 4] });
        }
        for index in 0..notes {
            room.put_note(&mut bytes, index, 3, 4, &vec![5; index.into()]);
        }
        let head = ChunkHead {
            room,
            reference: 1,
            segment: 2,
            generation: 3,
            offset: 4,
            unit_count: 5,
            copy: 0,
            sequence: 6,
            life: 7,
            origin: None,
        };
        head.encode(None, &mut bytes);
        [&[1][..], &bytes].concat()
    };
    vec![
        head(ChunkKind::User, 0, 0, 0),
        head(ChunkKind::User, 2, 9, 5),
        head(ChunkKind::VersionCopies, 4, 100, 12),
        head(ChunkKind::Frames, 0, 250, 1),
    ]
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut head_bytes = input.rest().to_vec();
    if sealed && head_bytes.len() > 8 {
        let ius = head_bytes.len().div_ceil(IU_SIZE_BYTES);
        head_bytes.resize(ius * IU_SIZE_BYTES, 0);
        head_bytes[..4].copy_from_slice(b"dchk");
        head_bytes[4..8].fill(0);
        let sum = checksum(&head_bytes);
        head_bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(head) = bounded(0, || ChunkHead::decode(None, &head_bytes)) else { return };
    for index in 0..head.room.data_count {
        head.record(&head_bytes, index);
    }
    for index in 0..head.room.parity_count {
        head.parity_checksum(&head_bytes, index);
    }
    let words: usize = head
        .notes(&head_bytes)
        .map(|note| 2 + note.expect("a head that was read has whole notes").words().len())
        .sum();
    assert_eq!(8 * words, usize::from(head.room.note_bytes), "notes take all that is theirs");
    let mut again = head_bytes.clone();
    head.encode(None, &mut again);
    assert_eq!(ChunkHead::decode(None, &again), Some(head));
}
