//! Catalog frames.
#![no_main]

use diecut_catalog::fuzz::{decode_oob, encode_frame, encode_oob};
use diecut_catalog::{FRAME_HEADER_SIZE_BYTES, State, decode_frame};
use diecut_fuzz::{Input, bounded};
use diecut_units::checksum;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [State::default(), diecut_fuzz::catalog_state()]
        .iter()
        .map(|state| [&[1][..], &encode_frame(state, 9)].concat())
        .collect();
    let mut area = vec![0; 64];
    encode_oob(9, 0, 2, &mut area);
    seeds.push([&[0][..], &area].concat());
    seeds
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sealed = input.byte() & 1 != 0;
    let mut frame = input.rest().to_vec();
    if let Some((sequence, page, pages)) = bounded(0, || decode_oob(&frame)) {
        assert!(page < pages);
        let mut again = vec![0; frame.len()];
        encode_oob(sequence, page, pages, &mut again);
        assert_eq!(decode_oob(&again), Some((sequence, page, pages)));
    }
    if sealed && frame.len() >= FRAME_HEADER_SIZE_BYTES {
        frame[..8].copy_from_slice(b"DIECUTCT");
        frame[8..12].copy_from_slice(&1u32.to_le_bytes());
        let length = frame.len() - FRAME_HEADER_SIZE_BYTES;
        frame[24..32].copy_from_slice(&(length as u64).to_le_bytes());
        let sum = checksum(&frame[16..]);
        frame[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok((sequence, state)) = bounded((1 << 16) + 256 * bytes.len(), || decode_frame(&frame)) {
        assert_eq!(decode_frame(&encode_frame(&state, sequence)), Ok((sequence, state)));
    }
}
