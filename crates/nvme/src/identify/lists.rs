use super::IDENTIFY_SIZE_BYTES;
use crate::error::DecodeError;

/// Namespace ids that one list holds (Base 2.0 section 4.4.3).
pub const NAMESPACE_LIST_LENGTH: usize = 1024;

/// Fills a namespace list, CNS 02h (Base 2.0 section 5.17.2.2): ids in rising order, zeros at its end.
///
/// `ids` must rise; those up to `after` are left out, as the command asks.
pub fn namespace_list(page: &mut [u8; IDENTIFY_SIZE_BYTES], ids: impl IntoIterator<Item = u32>, after: u32) {
    page.fill(0);
    let listed = ids.into_iter().filter(|&id| id > after).take(NAMESPACE_LIST_LENGTH);
    for (slot, id) in page.chunks_exact_mut(4).zip(listed) {
        slot.copy_from_slice(&id.to_le_bytes());
    }
}

/// Reads a namespace list.
///
/// # Errors
/// If ids do not rise strictly before the zeros at its end.
pub fn parse_namespace_list(page: &[u8; IDENTIFY_SIZE_BYTES]) -> Result<Vec<u32>, DecodeError> {
    let mut ids = Vec::new();
    for slot in page.chunks_exact(4) {
        let id = u32::from_le_bytes(slot.try_into().expect("chunks of four"));
        if id == 0 {
            break;
        }
        if ids.last().is_some_and(|&last| last >= id) {
            return Err(DecodeError::Field { field: "NSID order", value: u64::from(id) });
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Fills a controller list, CNS 12h and 13h (Base 2.0 section 4.4.1): a count, then 16-bit ids in rising order.
pub fn controller_list(page: &mut [u8; IDENTIFY_SIZE_BYTES], ids: impl IntoIterator<Item = u16>, first: u16) {
    page.fill(0);
    let mut count = 0u16;
    for (slot, id) in page[2..].chunks_exact_mut(2).zip(ids.into_iter().filter(|&id| id >= first)) {
        slot.copy_from_slice(&id.to_le_bytes());
        count += 1;
    }
    page[..2].copy_from_slice(&count.to_le_bytes());
}

/// Fills an endurance group list, CNS 19h (Base 2.0 section 5.17.2.18): a count, then 16-bit ids in rising order.
pub fn endurance_group_list(
    page: &mut [u8; IDENTIFY_SIZE_BYTES],
    ids: impl IntoIterator<Item = u16>,
    first: u16,
) {
    controller_list(page, ids, first);
}

/// Fills the UUID list, CNS 17h (Base 2.0 section 5.17.2.16): entries of 32 bytes, the first of which is reserved, so that index 1 names the
/// first UUID.
pub fn uuid_list(page: &mut [u8; IDENTIFY_SIZE_BYTES], uuids: &[[u8; 16]]) {
    page.fill(0);
    for (entry, uuid) in page.chunks_exact_mut(32).skip(1).zip(uuids) {
        entry[16..].copy_from_slice(uuid);
    }
}

/// Fills the namespace identification descriptor list, CNS 03h (Base 2.0 section 5.17.2.3, figure 277): NGUID,
/// UUID and the command set.
///
/// | offset | size | field                                         |
/// |-------:|-----:|-----------------------------------------------|
/// |      0 |    1 | NIDT: 1 EUI64, 2 NGUID, 3 UUID, 4 command set |
/// |      1 |    1 | NIDL: length of the identifier                |
/// |      4 | NIDL | identifier                                    |
pub fn namespace_descriptors(
    page: &mut [u8; IDENTIFY_SIZE_BYTES],
    nguid: &[u8; 16],
    uuid: &[u8; 16],
    command_set: u8,
) {
    page.fill(0);
    let mut offset = 0;
    let mut put = |kind: u8, identifier: &[u8]| {
        page[offset] = kind;
        page[offset + 1] = identifier.len() as u8;
        page[offset + 4..offset + 4 + identifier.len()].copy_from_slice(identifier);
        offset += 4 + identifier.len();
    };
    if *nguid != [0; 16] {
        put(2, nguid);
    }
    if *uuid != [0; 16] {
        put(3, uuid);
    }
    put(4, &[command_set]);
}

/// Reads a namespace identification descriptor list into (NIDT, identifier) pairs.
///
/// # Errors
/// If a descriptor runs beyond the page or has length zero.
pub fn parse_namespace_descriptors(
    page: &[u8; IDENTIFY_SIZE_BYTES],
) -> Result<Vec<(u8, Vec<u8>)>, DecodeError> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset + 4 <= page.len() && page[offset] != 0 {
        let length = usize::from(page[offset + 1]);
        let Some(identifier) = page.get(offset + 4..offset + 4 + length).filter(|bytes| !bytes.is_empty())
        else {
            return Err(DecodeError::Field { field: "NIDL", value: length as u64 });
        };
        found.push((page[offset], identifier.to_vec()));
        offset += 4 + length;
    }
    Ok(found)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lists_hold_what_comes_after() {
        let mut page = [0xFF; IDENTIFY_SIZE_BYTES];
        namespace_list(&mut page, [1, 2, 0x0102_0304], 1);
        assert_eq!(page[..12], [2, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(page[4095], 0);
        assert_eq!(parse_namespace_list(&page).unwrap(), [2, 0x0102_0304]);
        page[..4].copy_from_slice(&[0xFF; 4]);
        assert!(parse_namespace_list(&page).is_err());

        controller_list(&mut page, [1, 5, 0x0203], 5);
        assert_eq!(page[..8], [2, 0, 5, 0, 0x03, 0x02, 0, 0]);
        endurance_group_list(&mut page, [1, 2], 2);
        assert_eq!(page[..8], [1, 0, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn descriptors_follow_each_other() {
        let mut page = [0xFF; IDENTIFY_SIZE_BYTES];
        namespace_descriptors(&mut page, &[0xAA; 16], &[0xBB; 16], 0);
        assert_eq!(page[..4], [2, 16, 0, 0]);
        assert_eq!(page[4..20], [0xAA; 16]);
        assert_eq!(page[20..24], [3, 16, 0, 0]);
        assert_eq!(page[24..40], [0xBB; 16]);
        assert_eq!(page[40..48], [4, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_namespace_descriptors(&page).unwrap().len(), 3);
        for length in [0, 255] {
            page[4092..4094].copy_from_slice(&[3, length]);
            assert!(parse_namespace_descriptors(&page).is_ok(), "the list ends at the first zero NIDT");
        }
        page.fill(1);
        assert!(parse_namespace_descriptors(&page).is_err() || page[1] == 1);
    }
}
