//! Headers of erase blocks on media without OOB areas.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append};
use diecut_vssd::{BlockHeader, LogicalBlock, Nonces, Purpose, UnitIndex, VssdId};

diecut_fuzz::target!(seeds, check);

const ALLOCATION: u64 = 77;

fn nonces() -> Nonces {
    Nonces::new([3; 16], [4; 16])
}

fn seeds() -> Vec<Vec<u8>> {
    [false, true]
        .into_iter()
        .map(|is_rebuilding| {
            let header = BlockHeader {
                purpose: Purpose(1),
                is_rebuilding,
                block: 2,
                allocation: ALLOCATION,
                owner: VssdId(5),
                part: 6,
                logical: LogicalBlock { unit: UnitIndex(7), index: 8 },
                erase_count: 9,
            };
            let mut iu = vec![0; IU_SIZE_BYTES];
            header.encode(&nonces(), &[1, 2, 3], &mut iu);
            [&[1][..], &iu].concat()
        })
        .collect()
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut iu = input.rest().to_vec();
    if sealed {
        iu.resize(IU_SIZE_BYTES, 0);
        let sum = checksum_append(checksum(&iu[..4]), &iu[8..]);
        iu[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    let Some((header, holder)) = bounded(0, || BlockHeader::decode(&iu, &nonces(), ALLOCATION)) else {
        return;
    };
    let mut again = vec![0; IU_SIZE_BYTES];
    header.encode(&nonces(), holder, &mut again);
    assert_eq!(again, iu, "what is read is written again");
}
