//! OOB records of the vSSD room.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_units::checksum;
use diecut_vssd::{LogicalBlock, OOB_RECORD_SIZE_BYTES, OobKind, OobRecord, Purpose, UnitIndex, VssdId};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    [OobKind::Data, OobKind::Copy, OobKind::StateLog]
        .into_iter()
        .enumerate()
        .map(|(number, kind)| {
            let record = OobRecord {
                kind,
                purpose: Purpose(7),
                owner: VssdId(0x1234_5678),
                block: LogicalBlock { unit: UnitIndex(513), index: 70_000 },
                page_or_length: 1024,
                sequence: 3 << 40 | 17,
                erase_count: 90_000,
                is_lost: number == 1,
            };
            let mut bytes = vec![0; OOB_RECORD_SIZE_BYTES];
            record.encode(&mut bytes);
            [&[(number & 1) as u8][..], &bytes].concat()
        })
        .collect()
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut record_bytes = input.rest().to_vec();
    if sealed && record_bytes.len() >= OOB_RECORD_SIZE_BYTES {
        let sum = checksum(&record_bytes[4..OOB_RECORD_SIZE_BYTES]);
        record_bytes[..4].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(record) = bounded(0, || OobRecord::decode(&record_bytes)) else { return };
    let mut again = [0; OOB_RECORD_SIZE_BYTES];
    record.encode(&mut again);
    assert_eq!(OobRecord::decode(&again), Some(record));
}
