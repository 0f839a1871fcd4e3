//! Page marks of the log: any OOB area, and any page size.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::mark::{self, Mark};
use diecut_units::checksum;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    [0u32, 1, 4, 16]
        .into_iter()
        .map(|ius| {
            let mark = Mark { segment: 7, generation: 9, member: 3, stream: 1, place: 5 };
            let checksums: Vec<u32> = (0..ius).map(|iu| iu * 0x0101_0101).collect();
            let mut oob = vec![0; mark::size_bytes(ius)];
            mark::encode(&mark, &checksums, &mut oob);
            [&[0, ius as u8][..], &oob].concat()
        })
        .collect()
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let ius = u32::from(input.byte());
    let mut oob = input.rest().to_vec();
    let size = mark::size_bytes(ius);
    if sealed && oob.len() >= size {
        let sum = checksum(&oob[4..size]);
        oob[..4].copy_from_slice(&sum.to_le_bytes());
    }
    let Some(found) = bounded(0, || mark::decode(&oob, ius)) else {
        assert!(!sealed || oob.len() < size, "a whole, sealed mark is one");
        return;
    };
    let checksums: Vec<u32> = (0..ius).map(|iu| mark::checksum_of(&oob, iu)).collect();
    let mut again = vec![0; size];
    mark::encode(&found, &checksums, &mut again);
    assert_eq!(again, oob[..size]);
}
