use diecut_namespace::contract::{NamespaceId, NamespaceProperties};
use diecut_nvme::QualifiedName;
use diecut_nvme::log_page::AnaState;
use diecut_units::{ContentMode, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Limits and identity of one shard's target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Addresses told by discovery, with every subsystem at each: where the server listens, or what the administrator knows
    /// that hosts must dial (address translation). One that stands for all addresses of the machine (`0.0.0.0`, `::`), or has
    /// port 0, is told as the address that the asking host's connection came to.
    pub advertised: Vec<SocketAddr>,
    /// Firmware revision, at most 8 ASCII characters.
    pub firmware: String,
    /// What one queue may have.
    pub queue: QueueLimits,
    /// What all connections may hold together.
    pub memory: MemoryLimits,
    /// How many controllers there may be.
    pub controllers: ControllerLimits,
    /// The same for those of discovery.
    pub discovery: DiscoveryLimits,
}

impl Default for TargetConfig {
    fn default() -> TargetConfig {
        TargetConfig {
            advertised: Vec::new(),
            firmware: "0.1".to_owned(),
            queue: QueueLimits::default(),
            memory: MemoryLimits::default(),
            controllers: ControllerLimits::default(),
            discovery: DiscoveryLimits::default(),
        }
    }
}

/// What one queue, which is one connection, may have.
#[derive(Clone, Debug)]
pub struct QueueLimits {
    /// Largest queue in entries; reported as CAP.MQES and MAXCMD.
    pub queue_entries_max: u16,
    /// Data in a command capsule of an I/O queue; reported as IOCCSZ. Writes up to this size need no R2T.
    pub in_capsule_bytes: u32,
    /// MAXH2CDATA: data per H2CData PDU, and per R2T.
    pub h2c_data_bytes_max: u32,
    /// Largest transfer of one command; reported as MDTS. 4096 times a power of two.
    pub transfer_bytes_max: u32,
    /// Commands taken from one connection before others get their turn.
    pub commands_per_round: u32,
    /// Bytes that reads under way and unsent output of one connection may hold; beyond it no command is parsed.
    pub output_bytes_max: usize,
    /// Bytes of buffers that R2Ts of one connection may have open; further writes wait for their R2T.
    pub gather_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            queue_entries_max: 256,
            in_capsule_bytes: 8192,
            h2c_data_bytes_max: 1 << 20,
            transfer_bytes_max: 1 << 20,
            commands_per_round: 64,
            output_bytes_max: 8 << 20,
            gather_bytes_max: 8 << 20,
        }
    }
}

/// Memory for connections: queues, buffers of commands, unsent answers, unread bytes.
#[derive(Clone, Debug)]
pub struct MemoryLimits {
    /// All of it. Each subsystem can count on its part of half of it; see `budget.rs`.
    /// [`Target::set_memory`](crate::Target::set_memory) changes it.
    pub limit_bytes: usize,
    /// What of it each queue always has for itself: so many bytes of commands never wait for those of others.
    pub queue_reserve_bytes: usize,
    /// When memory is short, a host that takes none of its answers and sends none of the data asked for is hung up on after this.
    pub stall_time: Span,
}

impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        MemoryLimits { limit_bytes: 1 << 30, queue_reserve_bytes: 64 << 10, stall_time: Span::from_secs(30) }
    }
}

/// How many controllers there may be, without those of discovery.
#[derive(Clone, Debug)]
pub struct ControllerLimits {
    /// Controllers at once; further hosts are told that the controller is busy. A subsystem that has few always gets its next one: up to
    /// `associations_kept`, or its part of half of all.
    pub associations_max: usize,
    /// See `associations_max`.
    pub associations_kept: usize,
    /// Controllers of one host in one subsystem.
    pub associations_per_host_max: usize,
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// From accepting a connection to its Connect; slower hosts are hung up on.
    pub connect_time: Span,
    /// From Connect to CC.EN; controllers that are not enabled by then end.
    pub enable_time: Span,
}

impl Default for ControllerLimits {
    fn default() -> ControllerLimits {
        ControllerLimits {
            associations_max: 1024,
            associations_kept: 16,
            associations_per_host_max: 256,
            io_queues_max: 64,
            connect_time: Span::from_secs(10),
            enable_time: Span::from_secs(30),
        }
    }
}

/// How many discovery controllers there may be.
#[derive(Clone, Debug)]
pub struct DiscoveryLimits {
    /// At once.
    pub controllers_max: usize,
    /// Of one host.
    pub controllers_per_host_max: usize,
    /// One whose host gave no keep-alive timeout ends after this silence: two minutes (Base 2.0 section 3.1.2.3).
    pub keep_alive_ms: u32,
}

impl Default for DiscoveryLimits {
    fn default() -> DiscoveryLimits {
        DiscoveryLimits { controllers_max: 256, controllers_per_host_max: 64, keep_alive_ms: 120_000 }
    }
}

impl TargetConfig {
    /// The least [`MemoryLimits::limit_bytes`] that a few hosts can work with.
    pub fn memory_bytes_min(transfer_bytes_max: u32) -> usize {
        16 * transfer_bytes_max as usize
    }

    /// The keep-alive timeout of a controller whose host asks for `asked_ms`, with Connect or later; a discovery controller has one anyway.
    pub(crate) fn keep_alive_ms(&self, discovery: bool, asked_ms: u32) -> u32 {
        if discovery && asked_ms == 0 { self.discovery.keep_alive_ms } else { asked_ms }
    }

    /// # Panics
    /// If a limit cannot be kept: the composer's bug.
    pub(crate) fn assert_sound(&self) {
        let TargetConfig { queue, memory, controllers, .. } = self;
        let transfer_bytes_max = queue.transfer_bytes_max;
        assert!(transfer_bytes_max.is_power_of_two() && transfer_bytes_max >= 4096);
        assert!(queue.h2c_data_bytes_max >= 4096 && queue.h2c_data_bytes_max.is_multiple_of(4));
        assert!(queue.in_capsule_bytes.is_multiple_of(16), "IOCCSZ counts 16 bytes");
        assert!((2..=4096).contains(&queue.queue_entries_max));
        assert!(controllers.io_queues_max >= 1 && queue.commands_per_round >= 1);
        assert!(queue.gather_bytes_max >= transfer_bytes_max as usize);
        assert!(queue.output_bytes_max >= transfer_bytes_max as usize);
        assert!(memory.limit_bytes >= TargetConfig::memory_bytes_min(transfer_bytes_max));
    }
}

/// Where the controllers of a subsystem live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On this shard.
    Here,
    /// On the shard of this index; its connections are handed over.
    Elsewhere(u16),
}

/// A subsystem as the administrator defined it. All identities are his and survive restarts.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: QualifiedName,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect otherwise.
    pub allowed_hosts: BTreeSet<QualifiedName>,
    /// Namespaces by NSID (1 or more).
    pub namespaces: BTreeMap<u32, NamespaceConfig>,
    /// How good the paths over these addresses are; others are optimized.
    pub paths: BTreeMap<SocketAddr, AnaState>,
    /// Where it lives.
    pub home: Home,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// What the namespace contract calls it.
    pub namespace: NamespaceId,
    /// UUID, all zeros for none.
    pub uuid: [u8; 16],
    /// NGUID, all zeros for none.
    pub nguid: [u8; 16],
    /// Size, block size and what it can do.
    pub properties: NamespaceProperties,
    /// What travels as a logical block; [`ContentMode::Tags`] (8 bytes for each 4096) in simulations only.
    pub content: ContentMode,
}

impl NamespaceConfig {
    /// Whether it stands on erase blocks without a map: blocks that were never written cost nothing, and no size is promised twice.
    pub(crate) fn is_direct(&self) -> bool {
        self.properties.zones.is_some() || self.properties.chunks.is_some()
    }

    /// Logical blocks that are allocated (NUSE). Where none are provided thinly all of them are, at all times.
    pub(crate) fn used_lbas(&self) -> u64 {
        if self.is_direct() { self.properties.capacity_lbas } else { self.properties.used_lbas }
    }

    /// Bytes that stand for `lba_count` logical blocks on the wire and in buffers.
    #[inline]
    pub(crate) fn transfer_bytes(&self, lba_count: u32) -> u64 {
        let bytes = u64::from(lba_count) << self.properties.lba_size_log2;
        match self.content {
            ContentMode::Bytes => bytes,
            ContentMode::Tags => bytes / (4096 / 8),
        }
    }
}

/// Health of a subsystem for its SMART log; figures of hosts' traffic are counted by the target itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Spare erase blocks left, percent of what there was.
    pub available_spare_percent: u8,
    /// Life used, percent.
    pub percentage_used: u8,
    /// Reads that could not be recovered.
    pub media_errors: u64,
    /// The media take no more writes.
    pub read_only: bool,
    /// Composite temperature in kelvins; an emulated device has none of its own, so this is what its profile says.
    pub temperature_kelvin: u16,
    /// Times the server started.
    pub power_cycles: u64,
    /// Times it started without having been shut down.
    pub unsafe_shutdowns: u64,
}

impl Default for Health {
    /// New, cool and never started.
    fn default() -> Health {
        Health {
            available_spare_percent: 100,
            percentage_used: 0,
            media_errors: 0,
            read_only: false,
            temperature_kelvin: 300,
            power_cycles: 0,
            unsafe_shutdowns: 0,
        }
    }
}
