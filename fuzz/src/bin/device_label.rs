//! Labels of drives: one copy, and both of which either may be anything.
#![no_main]

use diecut_drives::{DieCut, DriveShape, Label, LabelDevice, Membership, ZoneCut};
use diecut_fuzz::{Input, bounded};
use diecut_units::{checksum, checksum_append};

diecut_fuzz::target!(seeds, check);

/// Of a drive that is written in zones.
const ZONES: ZoneCut = ZoneCut { zone_size_bytes: 64 << 20, first_zone: 4 };

/// Of one that shows its dies.
const CHUNKS: ZoneCut = ZoneCut { zone_size_bytes: 64 << 20, first_zone: 1 };
const DIES: DieCut = DieCut { dies_per_lane: 2, die_zones: 51, program_unit_pages: 16 };

fn seeds() -> Vec<Vec<u8>> {
    (0..4u8)
        .map(|number| {
            let device = |byte, membership| LabelDevice { device: [byte; 16], membership, since: 3 };
            let label = Label {
                number: number.into(),
                server: [1; 16],
                device: [2; 16],
                epoch: 9,
                view: [3; 8],
                secret: [4; 16],
                shape: DriveShape {
                    lanes: 4,
                    block_size_bytes: 64 << 20,
                    blocks_per_lane: 100,
                    zones: [None, None, Some(ZONES), Some(CHUNKS)][usize::from(number)],
                    dies: (number == 3).then_some(DIES),
                    lane_stride_bytes: (number == 1).then_some(7 << 30),
                },
                system: (3, 5),
                devices: vec![device(2, Membership::There), device(5, Membership::Leaving)],
            };
            [&[number & 1][..], &label.encode()].concat()
        })
        .collect()
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut copy = input.rest().to_vec();
    copy.resize(Label::SIZE_BYTES, 0);
    if sealed {
        let sum = checksum_append(checksum(&copy[..12]), &copy[16..]);
        copy[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    let decoded = bounded(4096, || Label::decode(&copy));
    assert_eq!(Label::choose(&copy, &copy).map(|(label, _)| label), decoded);
    let Ok(label) = decoded else { return };
    assert_eq!(Label::decode(&label.encode()).as_ref(), Ok(&label), "what is read is written again");
    assert!(label.shape.needed_bytes() > 0);
}
