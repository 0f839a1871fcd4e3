use std::fmt;

/// Completion status: what stands in bits 15:1 of the status field of a completion queue entry (Base 2.0 figure
/// 92), without the phase tag.
///
/// | bits  | field | meaning                                        |
/// |-------|-------|------------------------------------------------|
/// | 7:0   | SC    | status code                                    |
/// | 10:8  | SCT   | status code type                               |
/// | 12:11 | CRD   | command retry delay                            |
/// | 13    | M     | more information is in the error log           |
/// | 14    | DNR   | do not retry: the same command will fail again |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status(($sct << 8) | $sc);)*

            /// The specification's name for type and code, if we know it.
            pub fn name(self) -> Option<&'static str> {
                match self.code_and_type() {
                    $(code if code == ($sct << 8) | $sc => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Base 2.0 figure 94.
    SUCCESS = 0, 0x00;
    /// The opcode is not supported here.
    INVALID_OPCODE = 0, 0x01;
    /// A reserved or unsupported value in a field of the command.
    INVALID_FIELD = 0, 0x02;
    /// The command id is in use.
    COMMAND_ID_CONFLICT = 0, 0x03;
    /// Data or metadata could not be transferred.
    DATA_TRANSFER_ERROR = 0, 0x04;
    /// The power goes.
    ABORTED_POWER_LOSS = 0, 0x05;
    /// Our fault.
    INTERNAL_ERROR = 0, 0x06;
    /// An Abort command took it.
    ABORT_REQUESTED = 0, 0x07;
    /// Its queue went away.
    ABORTED_SQ_DELETION = 0, 0x08;
    /// No such namespace, or its format does not fit.
    INVALID_NAMESPACE_OR_FORMAT = 0, 0x0B;
    /// Commands came in the wrong order.
    COMMAND_SEQUENCE_ERROR = 0, 0x0C;
    /// The descriptor's length does not fit the command.
    DATA_SGL_LENGTH_INVALID = 0, 0x0F;
    /// The type of descriptor is not supported here.
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11;
    /// The offset points outside the capsule.
    SGL_OFFSET_INVALID = 0, 0x16;
    /// The host id does not fit the format asked for.
    HOST_IDENTIFIER_INCONSISTENT = 0, 0x18;
    /// The keep-alive timer ran out.
    KEEP_ALIVE_EXPIRED = 0, 0x19;
    /// The keep-alive time is not supported.
    KEEP_ALIVE_INVALID = 0, 0x1A;
    /// Its host was preempted: its reservation is another's now.
    ABORTED_BY_PREEMPTION = 0, 0x1B;
    /// A sanitize operation failed.
    SANITIZE_FAILED = 0, 0x1C;
    /// A sanitize operation goes on.
    SANITIZE_IN_PROGRESS = 0, 0x1D;
    /// Writes are refused for now.
    NAMESPACE_WRITE_PROTECTED = 0, 0x20;
    /// Interrupted: try again.
    COMMAND_INTERRUPTED = 0, 0x21;
    /// The transport failed for this command only (digest errors): try again.
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22;
    /// The endurance group has no data placement (Base 2.1).
    FDP_DISABLED = 0, 0x29;
    /// Placement handles of a namespace that cannot be, or identifiers that name none (Base 2.1).
    INVALID_PLACEMENT_HANDLE_LIST = 0, 0x2A;
    /// Beyond the end of the namespace (NVM 1.0).
    LBA_OUT_OF_RANGE = 0, 0x80;
    /// No space behind the thin volume.
    CAPACITY_EXCEEDED = 0, 0x81;
    /// The namespace cannot serve yet.
    NAMESPACE_NOT_READY = 0, 0x82;
    /// A reservation of another host does not allow it.
    RESERVATION_CONFLICT = 0, 0x83;
    /// The namespace is being formatted.
    FORMAT_IN_PROGRESS = 0, 0x84;

    /// Command specific, Base 2.0 figure 95.
    INVALID_QUEUE_IDENTIFIER = 1, 0x01;
    /// The queue is larger than supported, or of size zero.
    INVALID_QUEUE_SIZE = 1, 0x02;
    /// More Abort commands than ACL.
    ABORT_COMMAND_LIMIT_EXCEEDED = 1, 0x03;
    /// More Asynchronous Event Requests than AERL.
    ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED = 1, 0x05;
    /// No such log page here.
    INVALID_LOG_PAGE = 1, 0x09;
    /// The format asked for is not supported.
    INVALID_FORMAT = 1, 0x0A;
    /// The feature cannot be saved.
    FEATURE_NOT_SAVEABLE = 1, 0x0D;
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 1, 0x0E;
    /// The feature has no namespace scope.
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0F;
    /// Fabrics: the connect record format is unknown (Base 2.0 section 6.3).
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80;
    /// Fabrics: no controller or queue is free, or the old association is still being torn down.
    CONNECT_CONTROLLER_BUSY = 1, 0x81;
    /// Fabrics: a field of Connect (command or data) is wrong; dword 0 says which.
    CONNECT_INVALID_PARAMETERS = 1, 0x82;
    /// Fabrics: ask discovery again.
    CONNECT_RESTART_DISCOVERY = 1, 0x83;
    /// Fabrics: this host may not use the subsystem.
    CONNECT_INVALID_HOST = 1, 0x84;
    /// Fabrics: a command on a queue that does not take it.
    INVALID_QUEUE_TYPE = 1, 0x85;
    /// The command's attributes contradict each other (NVM 1.0).
    CONFLICTING_ATTRIBUTES = 1, 0x80;
    /// Protection information of a format without it (NVM 1.0).
    INVALID_PROTECTION_INFORMATION = 1, 0x81;
    /// More LBAs than the command may name (NVM 1.0).
    COMMAND_SIZE_LIMIT_EXCEEDED = 1, 0x83;

    /// Media and data integrity, Base 2.0 figure 97.
    WRITE_FAULT = 2, 0x80;
    /// The data are gone.
    UNRECOVERED_READ_ERROR = 2, 0x81;
    /// Compare found a difference.
    COMPARE_FAILURE = 2, 0x85;
    /// Access is denied.
    ACCESS_DENIED = 2, 0x86;
    /// ZNS 1.1 figure 24: the zone's random write area does not allow the command, or it lacks one.
    INVALID_ZONE_OPERATION_REQUEST = 1, 0xB6;
    /// No more zones can have a random write area.
    ZRWA_RESOURCES_UNAVAILABLE = 1, 0xB7;
    /// The range goes beyond the zone's capacity.
    ZONE_BOUNDARY_ERROR = 1, 0xB8;
    /// The zone is full.
    ZONE_IS_FULL = 1, 0xB9;
    /// The zone is read-only.
    ZONE_IS_READ_ONLY = 1, 0xBA;
    /// The zone is offline.
    ZONE_IS_OFFLINE = 1, 0xBB;
    /// The write does not begin at the write pointer.
    ZONE_INVALID_WRITE = 1, 0xBC;
    /// As many zones are active as may be.
    TOO_MANY_ACTIVE_ZONES = 1, 0xBD;
    /// As many zones are open as may be.
    TOO_MANY_OPEN_ZONES = 1, 0xBE;
    /// The zone's state does not allow the transition.
    INVALID_ZONE_STATE_TRANSITION = 1, 0xBF;
    /// No data were ever written there (NVM 1.0).
    UNWRITTEN_BLOCK = 2, 0x87;
    /// Open-Channel 2.0: the number of logical blocks does not fit the command.
    INVALID_LBA_LIST = 1, 0xC1;
    /// The chunk cannot be used any more.
    OFFLINE_CHUNK = 2, 0xC0;
    /// The state of the chunk does not allow a reset.
    INVALID_RESET = 2, 0xC1;
    /// The data were read, and the next read may fail.
    HIGH_ECC = 2, 0xD0;
    /// The write unit failed; the next one can be written.
    WRITE_NEXT_UNIT = 2, 0xF0;
    /// The chunk was closed before its end: its write pointer says how far it is written.
    CHUNK_EARLY_CLOSE = 2, 0xF1;
    /// The write does not begin at the write pointer.
    OUT_OF_ORDER_WRITE = 2, 0xF2;
    /// Path related, Base 2.0 figure 98: our side of the path failed, another path may work.
    INTERNAL_PATH_ERROR = 3, 0x00;
    /// The path never reaches the namespace again.
    ASYMMETRIC_ACCESS_PERSISTENT_LOSS = 3, 0x01;
    /// The path does not reach the namespace at present.
    ASYMMETRIC_ACCESS_INACCESSIBLE = 3, 0x02;
    /// Whether the path reaches the namespace is about to change.
    ASYMMETRIC_ACCESS_TRANSITION = 3, 0x03;
}

impl Status {
    /// From the bits 14:0 described above.
    pub const fn from_bits(bits: u16) -> Status {
        Status(bits & 0x7FFF)
    }
    /// The bits 14:0 described above.
    pub const fn bits(self) -> u16 {
        self.0
    }
    /// With the hint that a retry will fail the same way.
    pub const fn do_not_retry(self) -> Status {
        Status(self.0 | DO_NOT_RETRY)
    }
    /// Whether the hint is set.
    pub const fn is_do_not_retry(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }
    /// Status code type and code without retry hints (bits 10:0), for comparison.
    pub const fn code_and_type(self) -> u16 {
        self.0 & 0x7FF
    }
    /// Whether the command did what it said.
    pub const fn is_success(self) -> bool {
        self.code_and_type() == 0
    }
    /// Whether both mean the same, retry hints aside.
    pub const fn same_code(self, other: Status) -> bool {
        self.code_and_type() == other.code_and_type()
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dnr = if self.is_do_not_retry() { ", do not retry" } else { "" };
        match self.name() {
            Some(name) => write!(f, "{name} ({:#05x}{dnr})", self.code_and_type()),
            None => write!(f, "status {:#05x}{dnr}", self.code_and_type()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn codes_are_the_tables_of_the_specification() {
        assert_eq!(Status::CONNECT_INVALID_HOST.bits(), 0x184);
        assert_eq!(Status::UNRECOVERED_READ_ERROR.bits(), 0x281);
        assert_eq!(Status::FDP_DISABLED.bits(), 0x29);
        assert_eq!(Status::INVALID_PLACEMENT_HANDLE_LIST.bits(), 0x2A);
        assert_eq!(Status::INVALID_FIELD.do_not_retry().bits(), 0x4002);
        assert!(Status::INVALID_FIELD.do_not_retry().same_code(Status::INVALID_FIELD));
        assert!(!Status::from_bits(0x4002).is_success());
        assert_eq!(format!("{}", Status::LBA_OUT_OF_RANGE), "LBA_OUT_OF_RANGE (0x080)");
    }
}
