//! A frame: the whole state as it lies in program units of a catalog block.
//!
//! Little endian, from the start of a program unit; what follows the state up to the end of the last unit is zeros:
//!
//! | offset | size | field    | meaning                                            |
//! |-------:|-----:|----------|----------------------------------------------------|
//! |      0 |    8 | magic    | `DIECUTCT`                                         |
//! |      8 |    4 | version  | 1                                                  |
//! |     12 |    4 | checksum | CRC-32C of all bytes of the frame after this field |
//! |     16 |    8 | sequence | rises with each frame; the highest complete one wins |
//! |     24 |    8 | length   | bytes of the state                                 |
//! |     32 |  ... | state    | JSON                                               |
//!
//! A field that a later server added to the state is absent where it says nothing new, and means what was before it where it is
//! absent (`serves` of a vSSD, `wear` of the pool). A server that does not know a field that is there refuses the frame.
//!
//! The OOB area of each of its pages begins with `DCAT` (4 bytes), the sequence (8), the page within the frame (4),
//! pages of the frame (4) and a CRC-32C of those 20 bytes (4): a reader finds frames without reading content.

use crate::State;
use diecut_units::checksum;

/// Bytes before the state.
pub const FRAME_HEADER_SIZE_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"DIECUTCT";
const OOB_MAGIC: &[u8; 4] = b"DCAT";
const VERSION: u32 = 1;
pub(crate) const OOB_SIZE_BYTES: usize = 24;

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Cut off, another magic, or a wrong checksum: torn or never written.
    #[error("no complete catalog frame")]
    Incomplete,
    /// Written by another version.
    #[error("the catalog has format version {0}; this program knows version 1")]
    Version(u32),
    /// Complete, but its state makes no sense.
    #[error("the catalog's state cannot be read: {0}")]
    State(String),
}

/// The bytes of a state.
pub fn encode_frame(state: &State, sequence: u64) -> Vec<u8> {
    let text = serde_json::to_vec(state).expect("plain data can be written as JSON");
    let mut frame = vec![0; FRAME_HEADER_SIZE_BYTES];
    frame[..8].copy_from_slice(MAGIC);
    frame[8..12].copy_from_slice(&VERSION.to_le_bytes());
    frame[16..24].copy_from_slice(&sequence.to_le_bytes());
    frame[24..32].copy_from_slice(&(text.len() as u64).to_le_bytes());
    frame.extend_from_slice(&text);
    let sum = checksum(&frame[16..]);
    frame[12..16].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// Reads a frame; any bytes may come, also more than the frame.
///
/// # Errors
/// Torn, of another version, or without sense.
pub fn decode_frame(bytes: &[u8]) -> Result<(u64, State), FrameError> {
    if bytes.len() < FRAME_HEADER_SIZE_BYTES || &bytes[..8] != MAGIC {
        return Err(FrameError::Incomplete);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let version = word(8) as u32;
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let sum = (word(8) >> 32) as u32;
    let end = usize::try_from(word(24)).ok().and_then(|len| len.checked_add(FRAME_HEADER_SIZE_BYTES));
    let Some(end) = end.filter(|end| *end <= bytes.len()) else { return Err(FrameError::Incomplete) };
    if checksum(&bytes[16..end]) != sum {
        return Err(FrameError::Incomplete);
    }
    let state: State = serde_json::from_slice(&bytes[FRAME_HEADER_SIZE_BYTES..end])
        .map_err(|error| FrameError::State(error.to_string()))?;
    state.check().map_err(FrameError::State)?;
    Ok((word(16), state))
}

/// What the OOB area of a frame's page begins with.
pub fn encode_oob(sequence: u64, page: u32, pages: u32, area: &mut [u8]) {
    area.fill(0);
    area[..4].copy_from_slice(OOB_MAGIC);
    area[4..12].copy_from_slice(&sequence.to_le_bytes());
    area[12..16].copy_from_slice(&page.to_le_bytes());
    area[16..20].copy_from_slice(&pages.to_le_bytes());
    let sum = checksum(&area[..20]);
    area[20..24].copy_from_slice(&sum.to_le_bytes());
}

/// Sequence, page within the frame, pages of the frame.
pub fn decode_oob(area: &[u8]) -> Option<(u64, u32, u32)> {
    let area = area.get(..OOB_SIZE_BYTES)?;
    let word = |at: usize| u32::from_le_bytes(area[at..at + 4].try_into().expect("four bytes"));
    if &area[..4] != OOB_MAGIC || checksum(&area[..20]) != word(20) {
        return None;
    }
    let (page, pages) = (word(12), word(16));
    let sequence = u64::from_le_bytes(area[4..12].try_into().expect("eight bytes"));
    (page < pages).then_some((sequence, page, pages))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_no_damage_goes_unseen() {
        let mut state = State::default();
        state.tenants.insert("a".to_owned(), Default::default());
        let frame = encode_frame(&state, 9);
        assert_eq!(decode_frame(&frame), Ok((9, state)));
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..frame.len() {
            assert_eq!(decode_frame(&frame[..len]), Err(FrameError::Incomplete));
        }
    }

    /// A frame from before settings of even wear were kept says what a frame without any says.
    #[test]
    fn settings_of_even_wear_are_kept_and_may_be_absent() {
        let mut state = State::default();
        let text = |state: &State| {
            String::from_utf8(encode_frame(state, 1)[FRAME_HEADER_SIZE_BYTES..].to_vec()).unwrap()
        };
        let before = r#"{"pool":{"uuid":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"starts":0,"unclean_starts":0,"closed":false,"namespaces_given":0},"tenants":{},"vssds":{},"volumes":{},"subsystems":{}}"#;
        assert_eq!(text(&state), before);
        state.pool.wear.follow_age = Some(true);
        state.pool.wear.rate_bytes_per_second = Some(0);
        assert!(text(&state).contains(r#""wear":{"rate_bytes_per_second":0,"follow_age":true}"#));
        assert_eq!(decode_frame(&encode_frame(&state, 1)), Ok((1, state.clone())));
        state.pool.wear.delta_permille = Some(0);
        let error = decode_frame(&encode_frame(&state, 1)).unwrap_err().to_string();
        assert!(error.contains("delta_permille"), "{error}");
    }

    #[test]
    fn a_page_beyond_its_frame_is_none() {
        let mut area = [0; OOB_SIZE_BYTES];
        for (page, pages, found) in [(0, 1, true), (1, 2, true), (0, 0, false), (2, 2, false)] {
            encode_oob(7, page, pages, &mut area);
            assert_eq!(decode_oob(&area), found.then_some((7, page, pages)));
        }
    }

    #[test]
    fn a_state_without_sense_is_refused() {
        let mut state = State::default();
        let volume = crate::VolumeRecord {
            vssd: "nowhere".to_owned(),
            index: 0,
            size_bytes: 0,
            uuid: [0; 16],
            nguid: [0; 16],
            namespace: 1,
        };
        state.volumes.insert("v".to_owned(), volume);
        let error = decode_frame(&encode_frame(&state, 1)).unwrap_err().to_string();
        assert!(error.contains("\"v\"") && error.contains("\"nowhere\""), "{error}");
    }
}
