//! Opcodes (Base 2.0 figures 138 and 388, NVM 1.0 figure 12) and their data direction.

/// Admin commands (Base 2.0 section 5, figure 138).
pub mod admin {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0A;
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0C;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const DIRECTIVE_SEND: u8 = 0x19;
    pub const DIRECTIVE_RECEIVE: u8 = 0x1A;
    pub const FORMAT_NVM: u8 = 0x80;
    pub const SANITIZE: u8 = 0x84;
}

/// I/O commands of the NVM command set (NVM 1.0 section 3, figure 12).
pub mod io {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0C;
    pub const RESERVATION_REGISTER: u8 = 0x0D;
    pub const RESERVATION_REPORT: u8 = 0x0E;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
    pub const RESERVATION_RELEASE: u8 = 0x15;
    pub const COPY: u8 = 0x19;
    pub const IO_MANAGEMENT_SEND: u8 = 0x1D;
}

/// The one opcode of all fabrics commands (Base 2.0 section 6); which one is in FCTYPE.
pub const FABRICS: u8 = 0x7F;

/// Where the data of a command goes (Base 2.0 figure 138: bits 1:0 of every opcode; for fabrics commands, of
/// FCTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirection {
    /// No data.
    None,
    /// From the host: a write.
    HostToController,
    /// To the host: a read.
    ControllerToHost,
    /// Both ways; no command we know of.
    Both,
}

/// The direction that an opcode (or FCTYPE) declares.
pub const fn data_direction(opcode: u8) -> DataDirection {
    match opcode & 3 {
        0 => DataDirection::None,
        1 => DataDirection::HostToController,
        2 => DataDirection::ControllerToHost,
        _ => DataDirection::Both,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn opcodes_carry_their_direction() {
        assert_eq!(data_direction(io::WRITE), DataDirection::HostToController);
        assert_eq!(data_direction(io::READ), DataDirection::ControllerToHost);
        assert_eq!(data_direction(io::FLUSH), DataDirection::None);
        assert_eq!(data_direction(io::WRITE_ZEROES), DataDirection::None);
        assert_eq!(data_direction(admin::GET_LOG_PAGE), DataDirection::ControllerToHost);
        assert_eq!(data_direction(admin::SET_FEATURES), DataDirection::HostToController);
        assert_eq!(data_direction(admin::SANITIZE), DataDirection::None);
        assert_eq!(data_direction(admin::DIRECTIVE_SEND), DataDirection::HostToController);
        assert_eq!(data_direction(admin::DIRECTIVE_RECEIVE), DataDirection::ControllerToHost);
        assert_eq!(data_direction(io::IO_MANAGEMENT_RECEIVE), DataDirection::ControllerToHost);
        assert_eq!(data_direction(io::IO_MANAGEMENT_SEND), DataDirection::HostToController);
    }
}
