//! Catalog frames and the records in them.
#![no_main]

use diecut_catalog::State;
use diecut_catalog::fuzz::{
    FRAME_HEADER_SIZE_BYTES, Frame, Part, Place, apply_records, decode_frame, decode_oob, encode_frame,
    encode_oob, encode_state, read_document,
};
use diecut_fuzz::{Input, bounded};
use diecut_units::checksum;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [State::default(), diecut_fuzz::catalog_state()]
        .iter()
        .map(|state| {
            let part = Part { sequence: 9, follows: 0, part: 0, parts: 1, records: &encode_state(state) };
            [&[2][..], &encode_frame(&part, None)].concat()
        })
        .collect();
    let records = encode_state(&diecut_fuzz::catalog_state());
    let part = Part { sequence: 9, follows: 0, part: 0, parts: 1, records: &records };
    seeds.push([&[3][..], &encode_frame(&part, PLACE)].concat());
    seeds.push([&[1][..], include_bytes!("../../../crates/catalog/tests/fixtures/frame-v1.bin")].concat());
    let mut area = vec![0; 64];
    encode_oob(9, 0, 2, &mut area);
    seeds.push([&[0][..], &area].concat());
    seeds
}

/// Where frames of version 3 lie.
const PLACE: Option<Place> = Some(Place { device: [7; 16], previous: 5 });

/// Makes magic, version, length and checksum right.
fn seal(frame: &mut [u8], version: u32, header_bytes: usize) {
    frame[..8].copy_from_slice(b"DIECUTCT");
    frame[8..12].copy_from_slice(&version.to_le_bytes());
    let length = frame.len() - header_bytes;
    frame[24..32].copy_from_slice(&(length as u64).to_le_bytes());
    let mut checked = Vec::new();
    if version == 3 {
        checked.extend([7; 16]);
        checked.extend(5u32.to_le_bytes());
    }
    checked.extend_from_slice(&frame[16..]);
    let sum = checksum(&checked);
    frame[12..16].copy_from_slice(&sum.to_le_bytes());
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let version = u32::from(input.byte() & 3);
    let mut frame = input.rest().to_vec();
    if let Some((sequence, page, pages)) = bounded(0, || decode_oob(&frame)) {
        assert!(page < pages);
        let mut again = vec![0; frame.len()];
        encode_oob(sequence, page, pages, &mut again);
        assert_eq!(decode_oob(&again), Some((sequence, page, pages)));
    }
    let header_bytes = if version == 1 { 32 } else { FRAME_HEADER_SIZE_BYTES };
    if version > 0 && frame.len() >= header_bytes {
        seal(&mut frame, version, header_bytes);
    }
    let place = PLACE.filter(|_| version == 3);
    let mut state = State::default();
    let read = match bounded(0, || decode_frame(&frame, place)) {
        Ok(Frame::Document { text, .. }) => {
            bounded((1 << 16) + 1024 * bytes.len(), || read_document(text).map(|found| state = found))
        }
        Ok(Frame::Part(part)) => {
            assert_eq!(decode_frame(&encode_frame(&part, place), place), Ok(Frame::Part(part)));
            bounded((1 << 16) + 1024 * bytes.len(), || apply_records(&mut state, part.records))
        }
        Err(error) => Err(error.to_string()),
    };
    match read {
        Ok(()) => {
            let mut again = State::default();
            apply_records(&mut again, &encode_state(&state)).expect("what was written is read");
            assert_eq!(again, state);
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
