//! What a controller and its namespaces say of themselves.

use crate::openchannel::ChunkedNamespace;
use crate::zoned::ZonedNamespace;
use diecut_nvme::identify::{
    CSI_NVM, CTRATT_DATA_PLACEMENT, IdentifyController, IdentifyNamespace, LPA_EFFECTS, OCFS_FORMAT_0,
    ONCS_COPY, ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS,
};
use diecut_nvme::log_page::{CommandEffects, EFFECT_SUPPORTED};
use diecut_nvme::openchannel::opcode as openchannel;
use diecut_nvme::tcp::CapsuleCommand;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// A namespace as Identify tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// NSID.
    pub nsid: u32,
    /// Size in LBAs.
    pub size_lbas: u64,
    /// Bytes of an LBA.
    pub lba_bytes: u32,
    /// RESCAP: which reservations it takes; 0: none.
    pub reservation_capabilities: u8,
    /// NGUID; zeros if it has none.
    pub nguid: [u8; 16],
    /// EUI64; zeros if it has none.
    pub eui64: [u8; 8],
    /// Bytes of metadata of an LBA.
    pub metadata_bytes: u16,
    /// DPS: whether blocks carry protection information.
    pub has_protection: bool,
    /// NSATTR: it takes no writes.
    pub is_write_protected: bool,
    /// CSI: which I/O command set it has ([`CSI_NVM`]); that one where the controller tells none.
    pub command_set: u8,
    /// What its zones are, if it is zoned.
    pub zoned: Option<ZonedNamespace>,
    /// What its chunks are, if it has some and was asked ([`crate::Questions::chunks`]).
    pub chunked: Option<ChunkedNamespace>,
}

/// What a controller takes besides reads, writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Whether some namespace takes Copy with source ranges of format 0h.
    pub copies: bool,
    /// Whether it takes Dataset Management, and so deallocations.
    pub deallocations: bool,
    /// Whether it takes reservations.
    pub reservations: bool,
    /// Whether it may place data by handle (FDP).
    pub placement: bool,
    /// Whether it takes the commands of Open-Channel; unknown where it was not asked ([`crate::Questions::chunks`]).
    pub chunks: bool,
}

/// A controller as Identify and its properties tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerFacts {
    /// Controller id.
    pub controller_id: u16,
    /// Largest queue in entries.
    pub queue_entries_max: u16,
    /// I/O queues it gives.
    pub io_queues: u16,
    /// Data that a command of an I/O queue may carry in its capsule.
    pub in_capsule_bytes: u32,
    /// Largest transfer of one command.
    pub transfer_bytes_max: u32,
    /// Whether it has a volatile cache: only a flush makes writes durable.
    pub has_volatile_cache: bool,
    /// What it takes besides.
    pub takes: Takes,
    /// Whether it tells which commands it takes (LPA bit 1).
    pub tells_commands: bool,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Active namespaces in rising order.
    pub namespaces: Vec<NamespaceFacts>,
}

impl NamespaceFacts {
    /// From an Identify page; `None` if that is too short, or tells of no logical block from 512 to 65536 bytes.
    pub(crate) fn of(nsid: u32, page: &[u8]) -> Option<NamespaceFacts> {
        let namespace = IdentifyNamespace::read_from_bytes(page).ok()?;
        // FLBAS: bits 3:0, and bits 6:5 above them.
        let format = namespace.lbaf[usize::from(namespace.flbas & 0xF | (namespace.flbas >> 1) & 0x30)];
        if !(9..=16).contains(&format.lba_size_log2) {
            return None;
        }
        Some(NamespaceFacts {
            nsid,
            size_lbas: namespace.nsze.get(),
            lba_bytes: 1 << format.lba_size_log2,
            reservation_capabilities: namespace.rescap,
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            metadata_bytes: format.metadata_size_bytes.get(),
            has_protection: namespace.dps & 7 != 0,
            is_write_protected: namespace.nsattr & 1 != 0,
            command_set: CSI_NVM,
            zoned: None,
            chunked: None,
        })
    }
}

impl ControllerFacts {
    /// What Identify Controller says.
    pub(crate) fn take(&mut self, controller: &IdentifyController) {
        let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end().to_owned();
        self.model = text(&controller.mn);
        self.serial = text(&controller.sn);
        // IOCCSZ counts 16 bytes and includes the 64 of the entry.
        let capsule_bytes = controller.ioccsz.get().saturating_mul(16);
        let entry_bytes = (CapsuleCommand::SIZE_BYTES - 8) as u32;
        self.in_capsule_bytes = capsule_bytes.saturating_sub(entry_bytes);
        // MDTS counts pages of 2^12 bytes; 0 is no limit, and ours is what a test would ever ask.
        self.transfer_bytes_max = match controller.mdts {
            0 => 1 << 25,
            mdts => 4096u32 << mdts.min(13),
        };
        let optional = controller.oncs.get();
        self.takes.copies = optional & ONCS_COPY != 0 && controller.ocfs.get() & OCFS_FORMAT_0 != 0;
        self.tells_commands = controller.lpa & LPA_EFFECTS != 0;
        self.has_volatile_cache = controller.vwc & 1 != 0;
        self.takes.deallocations = optional & ONCS_DATASET_MANAGEMENT != 0;
        self.takes.reservations = optional & ONCS_RESERVATIONS != 0;
        self.takes.placement = controller.ctratt.get() & CTRATT_DATA_PLACEMENT != 0;
    }
}

/// Whether a controller takes the commands of Open-Channel, from what it says of all commands. Their opcodes belong to vendors, so that one alone says nothing.
pub(crate) fn takes_chunks(page: &[u8]) -> bool {
    let Ok(told) = CommandEffects::read_from_bytes(page) else { return false };
    let is_taken = |effects: &U32| effects.get() & EFFECT_SUPPORTED != 0;
    let of_chunks = [openchannel::VECTOR_RESET, openchannel::VECTOR_WRITE, openchannel::VECTOR_READ];
    is_taken(&told.admin[usize::from(openchannel::GEOMETRY)])
        && of_chunks.iter().all(|code| is_taken(&told.io[usize::from(*code)]))
}
