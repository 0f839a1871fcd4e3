//! FDP Configurations, LID 20h.

use super::{first, u16_at};
use crate::error::DecodeError;

/// RUHT: data of the handle are apart from others when they are written; later they may be moved next to others.
pub const INITIALLY_ISOLATED: u8 = 1;
/// RUHT: data of the handle never lie in one reclaim unit with those of another handle.
pub const PERSISTENTLY_ISOLATED: u8 = 2;

const HEADER_SIZE_BYTES: usize = 16;
const DESCRIPTOR_SIZE_BYTES: usize = 64;
const HANDLE_SIZE_BYTES: usize = 4;
/// FDPA bit 7: the configuration can be used.
const VALID: u8 = 1 << 7;
/// FDPA bit 4: placement is kept in a volatile write cache.
const VOLATILE_CACHE: u8 = 1 << 4;

/// A configuration of data placement, as log page 20h lists it.
///
/// | offset | size | field                                              |
/// |-------:|-----:|----------------------------------------------------|
/// |      0 |    2 | DSZE: size of the descriptor, a multiple of 8      |
/// |      2 |    1 | FDPA: RGIF in 3:0, volatile cache 4, valid 7       |
/// |      3 |    1 | bytes of vendors behind the handles                |
/// |      4 |    4 | NRG                                                |
/// |      8 |    2 | NRUH                                               |
/// |     10 |    2 | MAXPIDS, 0's based                                 |
/// |     12 |    4 | NNSS                                               |
/// |     16 |    8 | RUNS                                               |
/// |     24 |    4 | ERUTL                                              |
/// |     64 | 4 NRUH | RUHT and three reserved bytes for each handle    |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementConfiguration {
    /// RGIF, 0 to 15: bits of a placement identifier that name the reclaim group.
    pub rgif: u8,
    /// Writes may wait in a volatile cache.
    pub volatile_cache: bool,
    /// It can be used.
    pub valid: bool,
    /// NRG: reclaim groups.
    pub groups: u32,
    /// MAXPIDS: the most placement identifiers of one update, 0's based.
    pub pids_less_one: u16,
    /// NNSS: namespaces that it can have.
    pub namespaces: u32,
    /// RUNS: nominal size of a reclaim unit.
    pub unit_bytes: u64,
    /// ERUTL: seconds after which a reclaim unit is changed for another one; 0: never for its age.
    pub unit_seconds_max: u32,
    /// RUHT of each handle; see [`INITIALLY_ISOLATED`]. Their number is NRUH.
    pub handles: Vec<u8>,
}

impl PlacementConfiguration {
    fn encode_to(&self, page: &mut Vec<u8>) {
        let start = page.len();
        let unpadded = DESCRIPTOR_SIZE_BYTES + HANDLE_SIZE_BYTES * self.handles.len();
        let size_bytes = unpadded.next_multiple_of(8);
        let size = u16::try_from(size_bytes).expect("DSZE has 16 bits");
        let attributes = self.rgif & 0xF
            | if self.volatile_cache { VOLATILE_CACHE } else { 0 }
            | if self.valid { VALID } else { 0 };
        page.extend_from_slice(&size.to_le_bytes());
        page.extend_from_slice(&[attributes, 0]);
        page.extend_from_slice(&self.groups.to_le_bytes());
        page.extend_from_slice(&(self.handles.len() as u16).to_le_bytes());
        page.extend_from_slice(&self.pids_less_one.to_le_bytes());
        page.extend_from_slice(&self.namespaces.to_le_bytes());
        page.extend_from_slice(&self.unit_bytes.to_le_bytes());
        page.extend_from_slice(&self.unit_seconds_max.to_le_bytes());
        page.resize(start + DESCRIPTOR_SIZE_BYTES, 0);
        for handle in &self.handles {
            page.extend_from_slice(&[*handle, 0, 0, 0]);
        }
        page.resize(start + size_bytes, 0);
    }

    /// The first descriptor of `bytes`, and its size.
    fn decode(bytes: &[u8]) -> Result<(PlacementConfiguration, usize), DecodeError> {
        const NAME: &str = "FDP Configuration Descriptor";
        let head = first(bytes, NAME, DESCRIPTOR_SIZE_BYTES)?;
        let (size_bytes, handle_count) = (usize::from(u16_at(head, 0)), usize::from(u16_at(head, 8)));
        let needed = DESCRIPTOR_SIZE_BYTES + HANDLE_SIZE_BYTES * handle_count + usize::from(head[3]);
        if size_bytes < needed || !size_bytes.is_multiple_of(8) {
            return Err(DecodeError::Field { field: "DSZE", value: size_bytes as u64 });
        }
        let all = first(bytes, NAME, size_bytes)?;
        let handles = &all[DESCRIPTOR_SIZE_BYTES..][..HANDLE_SIZE_BYTES * handle_count];
        let u32_at =
            |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes of the head"));
        let configuration = PlacementConfiguration {
            rgif: head[2] & 0xF,
            volatile_cache: head[2] & VOLATILE_CACHE != 0,
            valid: head[2] & VALID != 0,
            groups: u32_at(4),
            pids_less_one: u16_at(head, 10),
            namespaces: u32_at(12),
            unit_bytes: u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32,
            unit_seconds_max: u32_at(24),
            handles: handles.chunks_exact(HANDLE_SIZE_BYTES).map(|handle| handle[0]).collect(),
        };
        Ok((configuration, size_bytes))
    }
}

/// FDP Configurations, LID 20h.
///
/// # Panics
/// If there is no configuration, or one has more than 16366 handles: the page has no words for that.
pub fn configurations_page(configurations: &[PlacementConfiguration]) -> Vec<u8> {
    let last = configurations.len().checked_sub(1).expect("a page has a configuration");
    let mut page = vec![0; HEADER_SIZE_BYTES];
    configurations.iter().for_each(|one| one.encode_to(&mut page));
    let size = u32::try_from(page.len()).expect("SIZE has 32 bits");
    page[..2].copy_from_slice(&(last as u16).to_le_bytes());
    page[4..8].copy_from_slice(&size.to_le_bytes());
    page
}

/// The configurations of log page 20h.
///
/// # Errors
/// If it is cut off, of another version, or a descriptor is smaller than what it says to hold.
pub fn parse_configurations(page: &[u8]) -> Result<Vec<PlacementConfiguration>, DecodeError> {
    const NAME: &str = "FDP Configurations";
    let head = first(page, NAME, HEADER_SIZE_BYTES)?;
    if head[2] != 0 {
        return Err(DecodeError::Field { field: "VERSION", value: head[2].into() });
    }
    let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let mut rest = first(page, NAME, size.max(HEADER_SIZE_BYTES as u32) as usize)?
        .get(HEADER_SIZE_BYTES..)
        .unwrap_or_default();
    let mut found = Vec::new();
    for _ in 0..=u16_at(head, 0) {
        let (configuration, size_bytes) = PlacementConfiguration::decode(rest)?;
        rest = &rest[size_bytes..];
        found.push(configuration);
    }
    Ok(found)
}
