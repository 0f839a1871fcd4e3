//! The lists of Identify, as a host reads them.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_nvme::identify::*;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let mut list = [0; IDENTIFY_SIZE_BYTES];
    namespace_list(&mut list, 1..=NAMESPACE_LIST_LENGTH as u32, 0);
    let mut descriptors = [0; IDENTIFY_SIZE_BYTES];
    namespace_descriptors(&mut descriptors, &[0xCD; 16], &[0xAB; 16], 2);
    let mut short = [0; IDENTIFY_SIZE_BYTES];
    namespace_list(&mut short, [1, 7, 9], 1);
    vec![list.to_vec(), descriptors.to_vec(), short[..16].to_vec()]
}

fn check(bytes: &[u8]) {
    let page: [u8; IDENTIFY_SIZE_BYTES] = Input::new(bytes).array();
    if let Ok(ids) = bounded(4 * IDENTIFY_SIZE_BYTES, || parse_namespace_list(&page)) {
        let mut again = [0; IDENTIFY_SIZE_BYTES];
        namespace_list(&mut again, ids.iter().copied(), 0);
        assert_eq!(parse_namespace_list(&again), Ok(ids));
    }
    // Each identifier is a small allocation of its own: at most one per five bytes of the page.
    if let Ok(found) = bounded(64 * IDENTIFY_SIZE_BYTES, || parse_namespace_descriptors(&page)) {
        let used: usize = found.iter().map(|(_, identifier)| 4 + identifier.len()).sum();
        assert!(used <= IDENTIFY_SIZE_BYTES && found.iter().all(|(kind, _)| *kind != 0));
    }
}
