//! What is known of the zones of a namespace.

use diecut_initiator::zoned::{ZoneFacts, ZonedNamespace};
use diecut_nvme::zns::zone_state;
use diecut_units::IU_SIZE_BYTES;

/// What an extension of this store begins with; the purpose follows.
const EXTENSION_MAGIC: [u8; 4] = *b"DCFZ";
/// The purpose of a zone that another application wrote: none that the store uses.
const PURPOSE_FOREIGN: u8 = 0xFF;

/// What is known of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub state: Use,
    pub purpose: u8,
    /// IUs behind which nothing was appended; the whole zone where that is not known any more.
    pub written_ius: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Empty,
    /// Written, or about to be.
    Held,
    /// Written or finished: nothing is to be done that it takes no more.
    Full,
    /// It can be read and neither be written nor reset.
    ReadOnly,
    Offline,
}

impl Known {
    /// A zone that was just allocated.
    pub fn allocated(purpose: u8) -> Known {
        Known { state: Use::Held, purpose, written_ius: 0 }
    }

    /// A zone that was just reset.
    pub fn empty() -> Known {
        Known { state: Use::Empty, purpose: 0, written_ius: 0 }
    }

    /// A zone that no report tells.
    pub fn untold() -> Known {
        Known { state: Use::Offline, purpose: 0, written_ius: 0 }
    }

    /// As a report tells it, of a namespace whose zones hold so many IUs.
    pub fn of(zone: &ZoneFacts, namespace: &ZonedNamespace, pages: u32) -> Known {
        let lbas_of_iu = IU_SIZE_BYTES as u64 / u64::from(namespace.lba_bytes);
        let written = u32::try_from(zone.written_lbas / lbas_of_iu).unwrap_or(u32::MAX).min(pages);
        let (state, written_ius) = match zone.state {
            zone_state::EMPTY => (Use::Empty, 0),
            zone_state::FULL => (Use::Full, pages),
            zone_state::READ_ONLY => (Use::ReadOnly, pages),
            zone_state::OFFLINE => (Use::Offline, 0),
            _ => (Use::Held, written),
        };
        let purpose = match zone.extension.as_deref() {
            Some([m0, m1, m2, m3, purpose, ..]) if [*m0, *m1, *m2, *m3] == EXTENSION_MAGIC => *purpose,
            _ => PURPOSE_FOREIGN,
        };
        Known { state, purpose, written_ius }
    }
}

/// The descriptor extension of a zone for a purpose.
pub(super) fn extension_for(purpose: u8) -> Vec<u8> {
    let mut extension = EXTENSION_MAGIC.to_vec();
    extension.push(purpose);
    extension
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_initiator::zoned::CopyLimits;

    /// Goal: a zone that another application wrote is not taken for one of the store. Method: facts by hand.
    #[test]
    fn zones_of_others_are_told_apart() {
        let namespace = ZonedNamespace {
            nsid: 1,
            lba_bytes: 512,
            zone_size_lbas: 4096,
            zones: 8,
            extension_size_bytes: 64,
            write_min_lbas: 1,
            active_max: None,
            open_max: None,
            copy_limits: CopyLimits { range_lbas_max: 0, lbas_max: 0, ranges_max: 1 },
        };
        let zone = |state, extension: Option<&[u8]>| {
            let extension = extension.map(<[u8]>::to_vec);
            let facts = ZoneFacts { zone: 0, state, capacity_lbas: 4096, written_lbas: 100, extension };
            Known::of(&facts, &namespace, 500)
        };
        let own = zone(zone_state::CLOSED, Some(b"DCFZ\x02\0\0"));
        assert_eq!((own.state, own.purpose, own.written_ius), (Use::Held, 2, 12));
        let written = (zone(zone_state::CLOSED, None), Use::Held);
        let full = (zone(zone_state::FULL, Some(b"XXXX\x02\0")), Use::Full);
        for (foreign, state) in [written, full] {
            assert_eq!((foreign.state, foreign.purpose), (state, PURPOSE_FOREIGN));
        }
        assert_eq!(zone(zone_state::FULL, None).written_ius, 500, "where its last write ended is not known");
        assert_eq!(zone(zone_state::EMPTY, None).state, Use::Empty);
        assert_eq!(zone(zone_state::READ_ONLY, None).state, Use::ReadOnly);
    }
}
