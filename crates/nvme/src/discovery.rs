use crate::ascii_padded;
use crate::qualified_name::QualifiedName;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The well-known name of every discovery subsystem (Base 2.0 section 4.5).
pub const DISCOVERY_SUBSYSTEM_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// TRTYPE: TCP (Base 2.0 figure 264).
pub const TRANSPORT_TYPE_TCP: u8 = 3;
/// ADRFAM: IPv4.
pub const ADDRESS_FAMILY_IPV4: u8 = 1;
/// ADRFAM: IPv6.
pub const ADDRESS_FAMILY_IPV6: u8 = 2;
/// SUBTYPE: another discovery subsystem.
pub const SUBSYSTEM_TYPE_REFERRAL: u8 = 1;
/// SUBTYPE: a subsystem with I/O controllers.
pub const SUBSYSTEM_TYPE_NVM: u8 = 2;
/// SUBTYPE: this discovery subsystem itself.
pub const SUBSYSTEM_TYPE_CURRENT_DISCOVERY: u8 = 3;
/// CNTLID of the dynamic controller model: ask for any.
pub const CNTLID_DYNAMIC: u16 = 0xFFFF;
/// EFLAGS bit 0: the same information is returned on every port of the subsystem.
pub const ENTRY_FLAG_DUPLICATE_INFORMATION: u16 = 1 << 0;
/// EFLAGS bit 1: explicit persistent connections are supported.
pub const ENTRY_FLAG_PERSISTENT_CONNECTION: u16 = 1 << 1;

/// Size of the head of the discovery log page; entries follow.
pub const DISCOVERY_HEADER_SIZE_BYTES: usize = 1024;
/// Size of an entry of the discovery log page.
pub const DISCOVERY_ENTRY_SIZE_BYTES: usize = 1024;

/// Head of the discovery log page, LID 70h (Base 2.0 section 5.16.1.23, figure 263).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR: rises with each change; a host that read parts reads it again at the end.
    pub generation: U64,
    /// NUMREC: entries that follow.
    pub record_count: U64,
    /// RECFMT: 0.
    pub record_format: U16,
    reserved: [u8; 1006],
}

const _: () = assert!(size_of::<DiscoveryHeader>() == DISCOVERY_HEADER_SIZE_BYTES);

impl DiscoveryHeader {
    /// From its parts.
    pub fn new(generation: u64, record_count: u64) -> DiscoveryHeader {
        let mut header = DiscoveryHeader::new_zeroed();
        header.generation = generation.into();
        header.record_count = record_count.into();
        header
    }
}

/// One entry of the discovery log page (Base 2.0 figure 264).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub transport_type: u8,
    /// ADRFAM.
    pub address_family: u8,
    /// SUBTYPE.
    pub subsystem_type: u8,
    /// TREQ: secure channel in bits 1:0 (0 = not specified, 1 = required, 2 = not required); bit 2: no SQ flow
    /// control possible.
    pub transport_requirements: u8,
    /// PORTID.
    pub port_id: U16,
    /// CNTLID; FFFFh = dynamic.
    pub controller_id: U16,
    /// ASQSZ: largest admin submission queue.
    pub admin_queue_size_max: U16,
    /// EFLAGS.
    pub flags: U16,
    reserved_12: [u8; 20],
    /// TRSVCID: port number, ASCII.
    pub transport_service: [u8; 32],
    reserved_64: [u8; 192],
    /// SUBNQN.
    pub subnqn: [u8; 256],
    /// TRADDR: address, ASCII.
    pub transport_address: [u8; 256],
    /// TSAS: for TCP, byte 0 = SECTYPE (0 none, 2 = TLS 1.3).
    pub transport_specific: [u8; 256],
}

const _: () = {
    assert!(size_of::<DiscoveryEntry>() == DISCOVERY_ENTRY_SIZE_BYTES);
    assert!(offset_of!(DiscoveryEntry, transport_service) == 32);
    assert!(offset_of!(DiscoveryEntry, subnqn) == 256);
    assert!(offset_of!(DiscoveryEntry, transport_address) == 512);
    assert!(offset_of!(DiscoveryEntry, transport_specific) == 768);
};

impl DiscoveryEntry {
    /// A subsystem at an address of the TCP transport, dynamic controllers, no secure channel.
    pub fn tcp(
        subsystem_type: u8,
        subsystem: &QualifiedName,
        address: std::net::SocketAddr,
        port_id: u16,
        admin_queue_size_max: u16,
    ) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.transport_type = TRANSPORT_TYPE_TCP;
        entry.address_family = if address.is_ipv4() { ADDRESS_FAMILY_IPV4 } else { ADDRESS_FAMILY_IPV6 };
        entry.subsystem_type = subsystem_type;
        // Secure channel: not specified, as Linux's own target says. To "not required" libnvme 1.3 (Debian 12, say) asks its kernel
        // for TLS, whatever SECTYPE says, and `nvme connect-all` connects nothing.
        entry.transport_requirements = 0;
        entry.port_id = port_id.into();
        entry.controller_id = CNTLID_DYNAMIC.into();
        entry.admin_queue_size_max = admin_queue_size_max.into();
        entry.transport_service = ascii_padded(&address.port().to_string());
        entry.subnqn = subsystem.encode();
        entry.transport_address = ascii_padded(&address.ip().to_string());
        entry
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_entry_has_its_fields_where_the_figure_puts_them() {
        let name = QualifiedName::new("nqn.2026-11.example:tenant-a").unwrap();
        let entry = DiscoveryEntry::tcp(SUBSYSTEM_TYPE_NVM, &name, "192.0.2.7:4420".parse().unwrap(), 1, 32);
        let wire = entry.as_bytes();
        assert_eq!(wire[..12], [3, 1, 2, 0, 1, 0, 0xFF, 0xFF, 32, 0, 0, 0]);
        assert_eq!(&wire[32..40], b"4420    ");
        assert_eq!(&wire[256..285], b"nqn.2026-11.example:tenant-a\0");
        assert_eq!(&wire[512..524], b"192.0.2.7   ");
        assert_eq!(wire[768], 0);
        let header = DiscoveryHeader::new(3, 2);
        assert_eq!(header.as_bytes()[..18], [3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
