//! Controller properties (Base 2.0 section 3.1.3): what Property Get and Property Set reach on fabrics.

/// Offsets (Base 2.0 figure 35).
pub mod offset {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1C;
    pub const NSSR: u32 = 0x20;
}

/// VS of NVMe 2.0.0 (Base 2.0 section 3.1.3.2): major, minor, tertiary.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Controller capabilities (Base 2.0 section 3.1.3.1, figure 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES, bits 15:0: largest queue, 0's based.
    pub queue_entries_max: u16,
    /// TO, bits 31:24: longest time for CSTS.RDY to follow CC.EN, in 500 ms.
    pub timeout: u8,
    /// IOCSS, bit 43 (CSS bit 6): several command sets can be chosen.
    pub command_sets: bool,
}

impl Capabilities {
    /// As the 64-bit property. CQR (bit 16) is set: fabrics queues are contiguous by nature; CSS bit 0 (bit 37):
    /// NVM command set; pages are 4 KiB (MPSMIN and MPSMAX 0).
    pub fn encode(self) -> u64 {
        u64::from(self.queue_entries_max)
            | 1 << 16
            | u64::from(self.timeout) << 24
            | 1 << 37
            | u64::from(self.command_sets) << 43
    }
    /// From the property; what a host needs of it.
    pub fn decode(value: u64) -> Capabilities {
        Capabilities {
            queue_entries_max: value as u16,
            timeout: (value >> 24) as u8,
            command_sets: value & (1 << 43) != 0,
        }
    }
}

/// Controller configuration (Base 2.0 section 3.1.3.5, figure 46).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

/// SHN and SHST values.
pub mod shutdown {
    /// SHN: no notification.
    pub const NONE: u8 = 0;
    /// SHN: normal shutdown.
    pub const NORMAL: u8 = 1;
    /// SHN: abrupt shutdown.
    pub const ABRUPT: u8 = 2;
    /// SHST: shutdown processing occurs.
    pub const OCCURRING: u8 = 1;
    /// SHST: shutdown processing is complete.
    pub const COMPLETE: u8 = 2;
}

impl Configuration {
    /// CSS, MPS and AMS (bits 13:4), IOSQES and IOCQES (bits 23:16).
    const FIXED: u32 = 0x00ff_3ff0;

    /// With those fields of `old` that a host must not change while the controller is enabled.
    #[must_use]
    pub fn keeping_fixed_of(self, old: Configuration) -> Configuration {
        Configuration(self.0 & !Configuration::FIXED | old.0 & Configuration::FIXED)
    }
    /// EN, bit 0.
    pub fn enabled(self) -> bool {
        self.0 & 1 != 0
    }
    /// CSS, bits 6:4: 0 = NVM, 6 = all supported, 7 = admin only.
    pub fn command_set(self) -> u8 {
        (self.0 >> 4) as u8 & 7
    }
    /// MPS, bits 10:7: memory page size 2^(12+MPS).
    pub fn page_size(self) -> u8 {
        (self.0 >> 7) as u8 & 0xF
    }
    /// AMS, bits 13:11: arbitration.
    pub fn arbitration(self) -> u8 {
        (self.0 >> 11) as u8 & 7
    }
    /// SHN, bits 15:14.
    pub fn shutdown(self) -> u8 {
        (self.0 >> 14) as u8 & 3
    }
    /// IOSQES, bits 19:16: log2 of the I/O submission entry.
    pub fn submission_entry_log2(self) -> u8 {
        (self.0 >> 16) as u8 & 0xF
    }
    /// IOCQES, bits 23:20: log2 of the I/O completion entry.
    pub fn completion_entry_log2(self) -> u8 {
        (self.0 >> 20) as u8 & 0xF
    }
    /// What an ordinary host writes: enabled, 64-byte and 16-byte entries, the given CSS.
    pub fn enable(command_set: u8) -> Configuration {
        Configuration(1 | u32::from(command_set & 7) << 4 | 6 << 16 | 4 << 20)
    }
}

/// Controller status (Base 2.0 section 3.1.3.6, figure 47).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// RDY, bit 0.
    pub ready: bool,
    /// CFS, bit 1: fatal.
    pub fatal: bool,
    /// SHST, bits 3:2.
    pub shutdown: u8,
}

impl ControllerStatus {
    /// As the 32-bit property.
    pub fn encode(self) -> u32 {
        u32::from(self.ready) | u32::from(self.fatal) << 1 | u32::from(self.shutdown & 3) << 2
    }
    /// From the property.
    pub fn decode(value: u32) -> ControllerStatus {
        ControllerStatus { ready: value & 1 != 0, fatal: value & 2 != 0, shutdown: (value >> 2) as u8 & 3 }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn bits_are_where_the_figures_put_them() {
        let capabilities = Capabilities { queue_entries_max: 127, timeout: 15, command_sets: true };
        assert_eq!(capabilities.encode(), 0x0000_0820_0F01_007F);
        assert_eq!(Capabilities::decode(0x0000_0820_0F01_007F), capabilities);
        // What Linux 6.1 writes to enable a controller with several command sets.
        assert_eq!(Configuration::enable(6).0, 0x0046_0061);
        let shutdown = Configuration(0x0046_4061);
        assert_eq!((shutdown.shutdown(), shutdown.enabled(), shutdown.command_set()), (1, true, 6));
        assert_eq!((shutdown.submission_entry_log2(), shutdown.completion_entry_log2()), (6, 4));
        assert_eq!(ControllerStatus { ready: true, fatal: false, shutdown: 2 }.encode(), 0x9);
        assert_eq!(ControllerStatus::decode(0x6).shutdown, 1);
    }
}
