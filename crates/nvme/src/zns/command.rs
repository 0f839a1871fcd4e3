//! Commands of zones, decoded from a submission entry.

use crate::submission::SubmissionEntry;

/// Zone Management Send (ZNS 1.1 section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneManagementSend {
    /// First logical block of a zone; of a flush of a random write area the last one to commit.
    pub lba: u64,
    /// See [`super::send_action`].
    pub action: u8,
    /// All zones: the address does not count.
    pub select_all: bool,
    /// ZSASO, bit 9 of dword 13: of Open Zone, that a random write area is wanted.
    pub option: bool,
}

impl ZoneManagementSend {
    /// From command dwords 10 to 13.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> ZoneManagementSend {
        let cdw13 = entry.cdw13.get();
        ZoneManagementSend {
            lba: entry.starting_lba(),
            action: cdw13 as u8,
            select_all: cdw13 & (1 << 8) != 0,
            option: cdw13 & (1 << 9) != 0,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (self.lba as u32).into();
        entry.cdw11 = ((self.lba >> 32) as u32).into();
        entry.cdw13 =
            (u32::from(self.action) | u32::from(self.select_all) << 8 | u32::from(self.option) << 9).into();
    }
}

/// Zone Management Receive (ZNS 1.1 section 3.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneManagementReceive {
    /// A logical block of the first zone to report.
    pub lba: u64,
    /// Bytes asked for: NUMD, 0's based dwords, converted.
    pub length_bytes: u64,
    /// See [`super::receive_action`].
    pub action: u8,
    /// ZRASF: 0 all zones; 1 empty, 2 implicitly open, 3 explicitly open, 4 closed, 5 full, 6 read-only, 7 offline ones.
    pub filter: u8,
    /// The count of zones is that of the descriptors that fit.
    pub partial: bool,
}

impl ZoneManagementReceive {
    /// From command dwords 10 to 13.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> ZoneManagementReceive {
        let cdw13 = entry.cdw13.get();
        ZoneManagementReceive {
            lba: entry.starting_lba(),
            length_bytes: (u64::from(entry.cdw12.get()) + 1) * 4,
            action: cdw13 as u8,
            filter: (cdw13 >> 8) as u8,
            partial: cdw13 & (1 << 16) != 0,
        }
    }

    /// Puts the fields into a submission entry.
    ///
    /// # Panics
    /// If the length is none in dwords.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let dwords = u32::try_from(self.length_bytes / 4 - 1).expect("NUMD has 32 bits");
        entry.cdw10 = (self.lba as u32).into();
        entry.cdw11 = ((self.lba >> 32) as u32).into();
        entry.cdw12 = dwords.into();
        entry.cdw13 =
            (u32::from(self.action) | u32::from(self.filter) << 8 | u32::from(self.partial) << 16).into();
    }
}

/// Zone Append (ZNS 1.1 section 3.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneAppend {
    /// First logical block of the zone.
    pub zone_lba: u64,
    /// Number of logical blocks: NLB converted from 0's based.
    pub count: u32,
    /// PRINFO, bits 29:26 of dword 12, and PIREMAP, bit 25.
    pub protection: u8,
    /// STC, bit 24.
    pub storage_tag_check: bool,
    /// DTYPE, bits 23:20.
    pub directive_type: u8,
}

impl ZoneAppend {
    /// From command dwords 10 to 12.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> ZoneAppend {
        let cdw12 = entry.cdw12.get();
        ZoneAppend {
            zone_lba: entry.starting_lba(),
            count: (cdw12 & 0xFFFF) + 1,
            protection: (cdw12 >> 25) as u8 & 0x1F,
            storage_tag_check: cdw12 & (1 << 24) != 0,
            directive_type: (cdw12 >> 20) as u8 & 0xF,
        }
    }

    /// Puts everything that [`ZoneAppend::decode`] reads into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (self.zone_lba as u32).into();
        entry.cdw11 = ((self.zone_lba >> 32) as u32).into();
        let cdw12 = (self.count - 1) & 0xFFFF
            | u32::from(self.protection & 0x1F) << 25
            | u32::from(self.storage_tag_check) << 24
            | u32::from(self.directive_type & 0xF) << 20;
        entry.cdw12 = cdw12.into();
    }
}
