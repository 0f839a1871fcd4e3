//! Fabrics commands (Base 2.0 section 6): all have opcode 7Fh and name themselves in FCTYPE.

use crate::error::DecodeError;
use crate::opcode;
use crate::qualified_name::{NameError, QualifiedName};
use crate::submission::SubmissionEntry;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// FCTYPE values (Base 2.0 figure 379).
pub mod fctype {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// CATTR bit 2: the host does without SQ flow control.
pub const CONNECT_DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// Connect as a submission entry (Base 2.0 section 6.3, figure 381).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectCommand {
    opcode: u8,
    flags: u8,
    /// Command id.
    pub command_id: U16,
    fctype: u8,
    reserved_5: [u8; 19],
    /// Where the data is.
    pub sgl: crate::SglDescriptor,
    /// RECFMT; only 0 is defined.
    pub record_format: U16,
    /// Queue: 0 admin, else I/O.
    pub queue_id: U16,
    /// SQSIZE, 0's based.
    pub queue_size: U16,
    /// CATTR.
    pub attributes: u8,
    reserved_47: u8,
    /// KATO in ms; 0 = no keep-alive. Admin queue only.
    pub keep_alive_ms: U32,
    reserved_52: [u8; 12],
}

const _: () = {
    assert!(size_of::<ConnectCommand>() == SubmissionEntry::SIZE_BYTES);
    assert!(offset_of!(ConnectCommand, sgl) == 24);
    assert!(offset_of!(ConnectCommand, queue_id) == 42);
    assert!(offset_of!(ConnectCommand, attributes) == 46);
    assert!(offset_of!(ConnectCommand, keep_alive_ms) == 48);
};

impl ConnectCommand {
    /// A Connect with its data in the capsule.
    pub fn new(command_id: u16, queue_id: u16, queue_size: u16, keep_alive_ms: u32) -> ConnectCommand {
        let mut connect = ConnectCommand::new_zeroed();
        connect.opcode = opcode::FABRICS;
        connect.flags = 1 << 6; // PSDT: SGL
        connect.command_id = command_id.into();
        connect.fctype = fctype::CONNECT;
        connect.sgl = crate::SglDescriptor::in_capsule(ConnectData::SIZE_BYTES as u32);
        connect.queue_id = queue_id.into();
        connect.queue_size = queue_size.into();
        connect.keep_alive_ms = keep_alive_ms.into();
        connect
    }
    /// The same bytes under their general name.
    pub fn entry(&self) -> SubmissionEntry {
        zerocopy::transmute!(*self)
    }
    /// Reads the entry as Connect; whether it is one, the caller has seen from FCTYPE.
    pub fn of(entry: &SubmissionEntry) -> ConnectCommand {
        zerocopy::transmute!(*entry)
    }
}

/// Data of Connect, 1024 bytes (Base 2.0 section 6.3, figure 382).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID: 128 bits that name the host, the same on all its ports.
    pub host_id: [u8; 16],
    /// CNTLID: FFFFh = any (dynamic controller model); for I/O queues the controller's.
    pub controller_id: U16,
    reserved_18: [u8; 238],
    subnqn: [u8; 256],
    hostnqn: [u8; 256],
    reserved_768: [u8; 256],
}

const _: () = {
    assert!(size_of::<ConnectData>() == ConnectData::SIZE_BYTES);
    assert!(offset_of!(ConnectData, subnqn) == ConnectData::SUBNQN_OFFSET);
    assert!(offset_of!(ConnectData, hostnqn) == ConnectData::HOSTNQN_OFFSET);
};

impl ConnectData {
    /// Size on the wire.
    pub const SIZE_BYTES: usize = 1024;
    /// Offset of CNTLID, as dword 0 of a refusal reports it.
    pub const CNTLID_OFFSET: usize = 16;
    /// Offset of SUBNQN, as dword 0 of a refusal reports it.
    pub const SUBNQN_OFFSET: usize = 256;
    /// Offset of HOSTNQN, as dword 0 of a refusal reports it.
    pub const HOSTNQN_OFFSET: usize = 512;

    /// From its parts.
    pub fn new(
        host_id: [u8; 16],
        controller_id: u16,
        subsystem: &QualifiedName,
        host: &QualifiedName,
    ) -> ConnectData {
        let mut data = ConnectData::new_zeroed();
        data.host_id = host_id;
        data.controller_id = controller_id.into();
        data.subnqn = subsystem.encode();
        data.hostnqn = host.encode();
        data
    }
    /// From the wire.
    ///
    /// # Errors
    /// If there are fewer than 1024 bytes.
    pub fn decode(bytes: &[u8]) -> Result<ConnectData, DecodeError> {
        match ConnectData::read_from_prefix(bytes) {
            Ok((data, _)) => Ok(data),
            Err(_) => Err(DecodeError::Short {
                structure: "Connect data",
                needed: ConnectData::SIZE_BYTES,
                got: bytes.len(),
            }),
        }
    }
    /// SUBNQN.
    ///
    /// # Errors
    /// If it is not an NQN.
    pub fn subsystem(&self) -> Result<QualifiedName, NameError> {
        QualifiedName::decode(&self.subnqn)
    }
    /// HOSTNQN; nothing if it is empty, as programs leave it that were told no name.
    ///
    /// # Errors
    /// If it is not an NQN.
    pub fn host(&self) -> Result<Option<QualifiedName>, NameError> {
        if self.hostnqn[0] == 0 {
            return Ok(None);
        }
        QualifiedName::decode(&self.hostnqn).map(Some)
    }
}

/// Dword 0 of the answer to a refused Connect (Base 2.0 section 6.3, figure 384): IPO in bits 15:0, and IATTR bit 16,
/// 1 if the offset counts in the data and not in the command.
pub fn invalid_parameter(offset: usize, in_data: bool) -> u32 {
    (offset as u32 & 0xFFFF) | u32::from(in_data) << 16
}

/// Property Get and Property Set (Base 2.0 sections 6.5 and 6.6, figures 387 and 390).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PropertyCommand {
    opcode: u8,
    flags: u8,
    /// Command id.
    pub command_id: U16,
    fctype: u8,
    reserved_5: [u8; 35],
    /// ATTRIB, bits 2:0: 0 = 4 bytes, 1 = 8 bytes.
    pub size: u8,
    reserved_41: [u8; 3],
    /// OFST; see [`crate::property::offset`].
    pub offset: U32,
    /// Value of Property Set.
    pub value: U64,
    reserved_56: [u8; 8],
}

const _: () = {
    assert!(size_of::<PropertyCommand>() == SubmissionEntry::SIZE_BYTES);
    assert!(offset_of!(PropertyCommand, size) == 40);
    assert!(offset_of!(PropertyCommand, offset) == 44);
};

impl PropertyCommand {
    fn new(command_id: u16, fctype: u8, offset: u32) -> PropertyCommand {
        let mut property = PropertyCommand::new_zeroed();
        property.opcode = opcode::FABRICS;
        property.flags = 1 << 6; // PSDT: SGL
        property.command_id = command_id.into();
        property.fctype = fctype;
        property.offset = offset.into();
        property
    }
    /// Reads a property of 4 or 8 bytes.
    pub fn get(command_id: u16, offset: u32, eight_bytes: bool) -> PropertyCommand {
        let mut property = PropertyCommand::new(command_id, fctype::PROPERTY_GET, offset);
        property.size = u8::from(eight_bytes);
        property
    }
    /// Writes a property of 4 bytes.
    pub fn set(command_id: u16, offset: u32, value: u32) -> PropertyCommand {
        let mut property = PropertyCommand::new(command_id, fctype::PROPERTY_SET, offset);
        property.value = u64::from(value).into();
        property
    }
    /// The same bytes under their general name.
    pub fn entry(&self) -> SubmissionEntry {
        zerocopy::transmute!(*self)
    }
    /// Reads the entry as a property command; whether it is one, the caller has seen from FCTYPE.
    pub fn of(entry: &SubmissionEntry) -> PropertyCommand {
        zerocopy::transmute!(*entry)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn connect_has_its_fields_where_the_figure_puts_them() {
        // I/O queue 3 of 128 entries, no flow control; by hand from figure 381.
        let mut wire = [0u8; 64];
        wire[0] = 0x7F;
        wire[1] = 0x40;
        wire[2..4].copy_from_slice(&[0x01, 0x00]);
        wire[4] = 0x01;
        wire[32..36].copy_from_slice(&[0x00, 0x04, 0x00, 0x00]); // SGL length 1024
        wire[39] = 0x01; // in the capsule
        wire[42..44].copy_from_slice(&[0x03, 0x00]);
        wire[44..46].copy_from_slice(&[0x7F, 0x00]);
        wire[46] = 0x04;
        wire[48..52].copy_from_slice(&[0x98, 0x3A, 0x00, 0x00]); // 15000 ms
        let mut connect = ConnectCommand::new(1, 3, 127, 15000);
        connect.attributes = CONNECT_DISABLE_FLOW_CONTROL;
        assert_eq!(connect.as_bytes(), wire);
        let entry = SubmissionEntry::read_from_bytes(&wire).unwrap();
        assert_eq!(entry.fabrics_type(), Some(fctype::CONNECT));
        assert_eq!(ConnectCommand::of(&entry), connect);
    }

    #[test]
    fn connect_data_has_its_fields_where_the_figure_puts_them() {
        let mut wire = [0u8; 1024];
        wire[..16].fill(0x11);
        wire[16..18].copy_from_slice(&[0xFF, 0xFF]);
        wire[256..267].copy_from_slice(b"nqn.subsys1");
        wire[512..521].copy_from_slice(b"nqn.host1");
        let data = ConnectData::decode(&wire).unwrap();
        assert_eq!(data.host_id, [0x11; 16]);
        assert_eq!(data.controller_id.get(), 0xFFFF);
        assert_eq!(data.subsystem().unwrap().as_str(), "nqn.subsys1");
        let host = data.host().unwrap().expect("a name");
        assert_eq!(host.as_str(), "nqn.host1");
        let rebuilt = ConnectData::new([0x11; 16], 0xFFFF, &data.subsystem().unwrap(), &host);
        assert_eq!(rebuilt.as_bytes(), wire);
        assert!(ConnectData::decode(&wire[..1023]).is_err());
    }

    #[test]
    fn properties_have_their_fields_where_the_figures_put_them() {
        // Property Set CC = 0x00460061.
        let mut wire = [0u8; 64];
        wire[..5].copy_from_slice(&[0x7F, 0x40, 0x02, 0x00, 0x00]);
        wire[44] = 0x14;
        wire[48..52].copy_from_slice(&[0x61, 0x00, 0x46, 0x00]);
        assert_eq!(PropertyCommand::set(2, crate::property::offset::CC, 0x0046_0061).as_bytes(), wire);
        let get = PropertyCommand::get(2, crate::property::offset::CAP, true);
        assert_eq!((get.as_bytes()[4], get.as_bytes()[40]), (0x04, 0x01));
        assert_eq!(PropertyCommand::of(&get.entry()), get);
        assert_eq!(invalid_parameter(ConnectData::SUBNQN_OFFSET, true), 0x0001_0100);
    }
}
