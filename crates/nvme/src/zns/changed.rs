//! Changed Zone List.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log page: changed zone list, of one namespace (ZNS 1.1 figure 45).
pub const LID_CHANGED_ZONES: u8 = 0xBF;
/// Zones that a changed zone list has room for.
pub const CHANGED_ZONES_LENGTH: usize = 511;
/// More zones changed than a list has room for; it names none then.
const TOO_MANY: u16 = u16::MAX;

/// Log page BFh (ZNS 1.1 section 4.1.4.1).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChangedZoneList {
    count: U16,
    reserved: [u8; 6],
    zones: [U64; CHANGED_ZONES_LENGTH],
}

const _: () = assert!(size_of::<ChangedZoneList>() == 4096);

impl ChangedZoneList {
    /// Zones by their first logical blocks; `None`, or more than there is room for: the host looks at all zones.
    pub fn new(zones: Option<&[u64]>) -> ChangedZoneList {
        let mut page = ChangedZoneList {
            count: TOO_MANY.into(),
            reserved: [0; 6],
            zones: [0.into(); CHANGED_ZONES_LENGTH],
        };
        if let Some(zones) = zones.filter(|zones| zones.len() <= CHANGED_ZONES_LENGTH) {
            page.count = (zones.len() as u16).into();
            page.zones.iter_mut().zip(zones).for_each(|(place, zone)| *place = (*zone).into());
        }
        page
    }

    /// The first logical blocks of zones; `None`: of more than are named.
    pub fn zones(&self) -> Option<Vec<u64>> {
        let zones = self.zones.get(..usize::from(self.count.get()))?;
        Some(zones.iter().map(|zone| zone.get()).collect())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the bytes of the page are those of the figure. Method: by hand, and one zone more than there is room for.
    #[test]
    fn the_bytes_of_a_list() {
        let page = ChangedZoneList::new(Some(&[0x0102, 0x0304]));
        let bytes = page.as_bytes();
        assert_eq!(bytes[..24], [2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page.zones(), Some(vec![0x0102, 0x0304]));
        let all: Vec<u64> = (1..=CHANGED_ZONES_LENGTH as u64 + 1).collect();
        assert_eq!(ChangedZoneList::new(Some(&all[1..])).as_bytes()[..2], [0xFF, 1]);
        for too_many in [Some(&all[..]), None] {
            let page = ChangedZoneList::new(too_many);
            assert_eq!((&page.as_bytes()[..2], &page.as_bytes()[2..]), (&[0xFF, 0xFF][..], &[0; 4094][..]));
            assert_eq!(page.zones(), None);
        }
    }
}
