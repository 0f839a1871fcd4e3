//! Admin commands decoded from a submission entry (Base 2.0 section 5).

use crate::submission::SubmissionEntry;

/// Identify (Base 2.0 section 5.17, figures 270 to 272).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Which data structure; see [`crate::identify::cns`].
    pub cns: u8,
    /// Controller id that some structures start from.
    pub controller_id: u16,
    /// Command set.
    pub command_set: u8,
    /// CNS-specific identifier, bits 15:0 of dword 11: the first endurance group of a list of them.
    pub specific_id: u16,
}

impl Identify {
    /// From command dwords 10 and 11.
    pub fn decode(entry: &SubmissionEntry) -> Identify {
        let cdw10 = entry.cdw10.get();
        Identify {
            cns: cdw10 as u8,
            controller_id: (cdw10 >> 16) as u16,
            command_set: (entry.cdw11.get() >> 24) as u8,
            specific_id: entry.cdw11.get() as u16,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (u32::from(self.cns) | u32::from(self.controller_id) << 16).into();
        entry.cdw11 = (u32::from(self.command_set) << 24 | u32::from(self.specific_id)).into();
    }
}

/// Get Log Page (Base 2.0 section 5.16, figures 197 to 201).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Which page; see [`crate::log_page::lid`].
    pub page: u8,
    /// LSP, bits 14:8 of dword 10.
    pub specific: u8,
    /// RAE: the event that told of the page stays outstanding.
    pub retain_event: bool,
    /// LSI, bits 31:16 of dword 11: of pages of an endurance group its identifier.
    pub specific_id: u16,
    /// Bytes asked for: NUMD, 0's based dwords in two halves, converted.
    pub length_bytes: u64,
    /// First byte of the page: LPO in two halves. With OT set it would be an index.
    pub offset: u64,
    /// OT, bit 23 of dword 14: the offset is an index of entries.
    pub offset_is_index: bool,
    /// Command set.
    pub command_set: u8,
}

impl GetLogPage {
    /// The start of a page, so many bytes of it; reading it takes back the event that told of it.
    pub const fn of(page: u8, length_bytes: u64) -> GetLogPage {
        GetLogPage {
            page,
            specific: 0,
            retain_event: false,
            specific_id: 0,
            length_bytes,
            offset: 0,
            offset_is_index: false,
            command_set: 0,
        }
    }
    /// From command dwords 10 to 14.
    pub fn decode(entry: &SubmissionEntry) -> GetLogPage {
        let cdw10 = entry.cdw10.get();
        let cdw14 = entry.cdw14.get();
        let dwords = (u64::from(entry.cdw11.get() & 0xFFFF) << 16 | u64::from(cdw10 >> 16)) + 1;
        GetLogPage {
            page: cdw10 as u8,
            specific: (cdw10 >> 8) as u8 & 0x7F,
            retain_event: cdw10 & (1 << 15) != 0,
            specific_id: (entry.cdw11.get() >> 16) as u16,
            length_bytes: dwords * 4,
            offset: u64::from(entry.cdw12.get()) | u64::from(entry.cdw13.get()) << 32,
            offset_is_index: cdw14 & (1 << 23) != 0,
            command_set: (cdw14 >> 24) as u8,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let dwords = self.length_bytes / 4 - 1;
        let retain = if self.retain_event { 1 << 15 } else { 0 };
        let cdw10 =
            u32::from(self.page) | u32::from(self.specific) << 8 | retain | ((dwords & 0xFFFF) as u32) << 16;
        entry.cdw10 = cdw10.into();
        entry.cdw11 = ((dwords >> 16) as u32 & 0xFFFF | u32::from(self.specific_id) << 16).into();
        entry.cdw12 = (self.offset as u32).into();
        entry.cdw13 = ((self.offset >> 32) as u32).into();
        let index = if self.offset_is_index { 1 << 23 } else { 0 };
        entry.cdw14 = (index | u32::from(self.command_set) << 24).into();
    }
}

/// Abort (Base 2.0 section 5.1, figure 140).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Queue of the command.
    pub queue_id: u16,
    /// Id of the command.
    pub command_id: u16,
}

impl Abort {
    /// From command dword 10.
    pub fn decode(entry: &SubmissionEntry) -> Abort {
        let cdw10 = entry.cdw10.get();
        Abort { queue_id: cdw10 as u16, command_id: (cdw10 >> 16) as u16 }
    }
    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.cdw10 = (u32::from(self.queue_id) | u32::from(self.command_id) << 16).into();
    }
    /// Dword 0 of the answer when nothing was aborted (bit 0; Base 2.0 section 5.1.1).
    pub const NOT_ABORTED: u32 = 1;
}

/// Format NVM (Base 2.0 section 5.14, figure 187).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatNvm {
    /// LBAFL and LBAFU, bits 3:0 and 13:12 of dword 10: which LBA format.
    pub lba_format: u8,
    /// MSET, bit 4: metadata lie behind their block.
    pub has_metadata: bool,
    /// PI, bits 7:5: protection information.
    pub protection: u8,
    /// PIL, bit 8: where protection information lies.
    pub protection_first: bool,
    /// SES, bits 11:9: what is erased.
    pub erase: u8,
}

impl FormatNvm {
    /// SES: nothing has to be erased.
    pub const NO_ERASE: u8 = 0;
    /// SES: user data are erased.
    pub const USER_DATA_ERASE: u8 = 1;
    /// SES: keys are forgotten.
    pub const CRYPTOGRAPHIC_ERASE: u8 = 2;

    /// From command dword 10.
    pub fn decode(entry: &SubmissionEntry) -> FormatNvm {
        let cdw10 = entry.cdw10.get();
        FormatNvm {
            lba_format: (cdw10 & 0xF | (cdw10 >> 12 & 3) << 4) as u8,
            has_metadata: cdw10 & (1 << 4) != 0,
            protection: (cdw10 >> 5) as u8 & 7,
            protection_first: cdw10 & (1 << 8) != 0,
            erase: (cdw10 >> 9) as u8 & 7,
        }
    }

    /// Puts the fields into a submission entry.
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let cdw10 = u32::from(self.lba_format & 0xF)
            | u32::from(self.lba_format >> 4 & 3) << 12
            | u32::from(self.has_metadata) << 4
            | u32::from(self.protection & 7) << 5
            | u32::from(self.protection_first) << 8
            | u32::from(self.erase & 7) << 9;
        entry.cdw10 = cdw10.into();
    }
}

/// What an Asynchronous Event Request is answered with, dword 0 (Base 2.0 section 5.2, figure 143).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsynchronousEvent {
    /// Type, bits 2:0.
    pub kind: u8,
    /// Information, bits 15:8.
    pub information: u8,
    /// Page to read, bits 23:16.
    pub log_page: u8,
}

impl AsynchronousEvent {
    /// Notice: a namespace was added, removed or changed; read the changed namespace list (figure 147).
    pub const NAMESPACE_ATTRIBUTE_CHANGED: AsynchronousEvent =
        AsynchronousEvent { kind: 2, information: 0x00, log_page: crate::log_page::lid::CHANGED_NAMESPACES };
    /// Notice: the controller captured telemetry; read its page (figure 147).
    pub const TELEMETRY_CAPTURED: AsynchronousEvent = AsynchronousEvent {
        kind: 2,
        information: 0x02,
        log_page: crate::log_page::lid::TELEMETRY_CONTROLLER,
    };
    /// Notice: the state of a path changed; read the page of asymmetric namespace access (figure 147).
    pub const ACCESS_CHANGED: AsynchronousEvent = AsynchronousEvent {
        kind: 2,
        information: 0x03,
        log_page: crate::log_page::lid::ASYMMETRIC_NAMESPACE_ACCESS,
    };
    /// Notice of a discovery controller: read the discovery log page (figure 147).
    pub const DISCOVERY_LOG_CHANGED: AsynchronousEvent =
        AsynchronousEvent { kind: 2, information: 0xF0, log_page: crate::log_page::lid::DISCOVERY };

    /// Notice: a zone changed by itself; read the changed zone list of the namespace that dword 1 names (ZNS 1.1 figure 42).
    pub const ZONE_DESCRIPTOR_CHANGED: AsynchronousEvent =
        AsynchronousEvent { kind: 2, information: 0xEF, log_page: crate::zns::LID_CHANGED_ZONES };

    /// SMART: reliability is compromised, or the media are read-only (figure 146).
    pub const RELIABILITY: AsynchronousEvent =
        AsynchronousEvent { kind: 1, information: 0x00, log_page: crate::log_page::lid::SMART };
    /// SMART: a temperature is beyond a threshold (figure 146).
    pub const TEMPERATURE: AsynchronousEvent =
        AsynchronousEvent { kind: 1, information: 0x01, log_page: crate::log_page::lid::SMART };
    /// SMART: the spare is below its threshold (figure 146).
    pub const SPARE: AsynchronousEvent =
        AsynchronousEvent { kind: 1, information: 0x02, log_page: crate::log_page::lid::SMART };

    /// A reservation notification is there to be read (figure 149).
    pub const RESERVATION_LOG: AsynchronousEvent =
        AsynchronousEvent { kind: 6, information: 0x00, log_page: crate::log_page::lid::RESERVATION };

    /// A sanitize operation is over; read the sanitize status log page (figure 149).
    pub const SANITIZE_COMPLETED: AsynchronousEvent =
        AsynchronousEvent { kind: 6, information: 0x01, log_page: crate::log_page::lid::SANITIZE_STATUS };

    /// Vendor specific: something became known of a chunk; read the chunk notification log of Open-Channel.
    pub const CHUNK_NOTIFICATION: AsynchronousEvent = AsynchronousEvent {
        kind: 7,
        information: 0x00,
        log_page: crate::openchannel::lid::CHUNK_NOTIFICATION,
    };

    /// As dword 0.
    pub fn encode(self) -> u32 {
        u32::from(self.kind) | u32::from(self.information) << 8 | u32::from(self.log_page) << 16
    }
    /// From dword 0.
    pub fn decode(dword: u32) -> AsynchronousEvent {
        AsynchronousEvent {
            kind: dword as u8 & 7,
            information: (dword >> 8) as u8,
            log_page: (dword >> 16) as u8,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_log_page_length_has_two_halves() {
        // Page 70h, RAE, LSI 0203h, NUMD = 0001_00FFh (65792 dwords), offset 0x2_0000_0400; by hand from figures 197 to 200.
        let entry = SubmissionEntry {
            cdw10: 0x00FF_8070.into(),
            cdw11: 0x0203_0001.into(),
            cdw12: 0x0000_0400.into(),
            cdw13: 0x0000_0002.into(),
            ..SubmissionEntry::default()
        };
        let log = GetLogPage::decode(&entry);
        assert_eq!(log.page, 0x70);
        assert!(log.retain_event);
        assert_eq!(log.length_bytes, 65792 * 4);
        assert_eq!(log.specific_id, 0x0203);
        assert_eq!(log.offset, 0x2_0000_0400);
        let mut encoded = SubmissionEntry::default();
        log.encode(&mut encoded);
        assert_eq!(encoded, entry);
    }

    #[test]
    fn events_name_their_page() {
        assert_eq!(AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED.encode(), 0x0004_0002);
        assert_eq!(AsynchronousEvent::DISCOVERY_LOG_CHANGED.encode(), 0x0070_F002);
        assert_eq!(AsynchronousEvent::ACCESS_CHANGED.encode(), 0x000C_0302);
        assert_eq!(AsynchronousEvent::ZONE_DESCRIPTOR_CHANGED.encode(), 0x00BF_EF02);
        assert_eq!(AsynchronousEvent::TEMPERATURE.encode(), 0x0002_0101);
        assert_eq!(AsynchronousEvent::RESERVATION_LOG.encode(), 0x0080_0006);
        assert_eq!(AsynchronousEvent::SANITIZE_COMPLETED.encode(), 0x0081_0106);
        assert_eq!(AsynchronousEvent::SPARE.encode(), 0x0002_0201);
        assert_eq!(AsynchronousEvent::decode(0x0070_F002), AsynchronousEvent::DISCOVERY_LOG_CHANGED);
    }

    #[test]
    fn a_format_has_its_fields_where_the_figure_puts_them() {
        let entry = SubmissionEntry { cdw10: 0x0000_2375.into(), ..SubmissionEntry::default() };
        let format = FormatNvm::decode(&entry);
        let expected = FormatNvm {
            lba_format: 0x25,
            has_metadata: true,
            protection: 3,
            protection_first: true,
            erase: FormatNvm::USER_DATA_ERASE,
        };
        assert_eq!(format, expected);
        let mut encoded = SubmissionEntry::default();
        format.encode(&mut encoded);
        assert_eq!(encoded, entry);
    }

    #[test]
    fn identify_and_abort_come_from_their_dwords() {
        let entry = SubmissionEntry {
            cdw10: 0x0007_0013.into(),
            cdw11: 0x0200_0304.into(),
            ..SubmissionEntry::default()
        };
        let expected = Identify { cns: 0x13, controller_id: 7, command_set: 2, specific_id: 0x0304 };
        assert_eq!(Identify::decode(&entry), expected);
        let mut encoded = SubmissionEntry::default();
        Identify::decode(&entry).encode(&mut encoded);
        assert_eq!(encoded, entry);
        assert_eq!(Abort::decode(&entry), Abort { queue_id: 0x13, command_id: 7 });
    }
}
