//! Controllers: the state of one association between a host and a subsystem, and its admin queue.

mod access;
mod chunk_notices;
mod chunks;
mod feature;
mod identify;
mod log_page;
mod notice;
mod reservation_log;
mod warning;
mod zone_log;

use crate::config::{Health, SubsystemConfig, TargetConfig};
use crate::io::Plan;
use crate::placement;
use crate::queue::SlotIndex;
use crate::subsystems::{Subsystems, Traffic};
pub(crate) use access::PathAccess;
use chunk_notices::ChunkLog;
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage};
use diecut_nvme::identify::IDENTIFY_SIZE_BYTES;
use diecut_nvme::log_page::ErrorEntry;
use diecut_nvme::opcode::{admin as opcode, io};
use diecut_nvme::property::{Capabilities, Configuration, ControllerStatus, VERSION_2_0, offset, shutdown};
use diecut_nvme::{QualifiedName, Status, SubmissionEntry, openchannel::opcode::GEOMETRY};
use diecut_units::{Span, Time, mark, mutant};
pub(crate) use feature::monitor_bytes;
pub(crate) use identify::NSID_MAX;
pub(crate) use log_page::smart_of;
pub(crate) use notice::Notice;
use reservation_log::ReservationLog;
use std::collections::VecDeque;
pub(crate) use warning::{TemperatureRange, Warnings};
use zone_log::ZoneLog;

/// Asynchronous Event Requests a controller keeps (AERL + 1); Linux sends one.
pub(crate) const EVENT_REQUESTS_MAX: usize = 4;
/// Entries of the error information log (ELPE + 1).
const ERROR_ENTRIES_MAX: usize = 16;
/// Composite temperature at which the log warns, unless a host sets another threshold (WCTEMP): 70 degrees.
const WARNING_TEMPERATURE_KELVIN: u16 = 343;

/// A controller and its association.
#[derive(Debug)]
pub(crate) struct Association {
    /// `None`: the discovery subsystem.
    pub(crate) subsystem: Option<u32>,
    /// Its name, if it gave one.
    pub(crate) host: Option<QualifiedName>,
    pub(crate) host_id: [u8; 16],
    /// Its host in the budget.
    pub(crate) host_account: u32,
    pub(crate) controller_id: u16,
    life: Life,
    pub(crate) configuration: Configuration,
    pub(crate) keep_alive: KeepAlive,
    /// Connections with commands under way or to come, the admin queue first while it is there.
    pub(crate) connections: Vec<u32>,
    pub(crate) flushes: CacheFlushes,
    pub(crate) events: Events,
    pub(crate) errors: ErrorLog,
    pub(crate) timestamp: Option<(u64, Time)>,
    pub(crate) settings: Settings,
    pub(crate) path: PathAccess,
}

/// Features that a host set, until the controller is reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) temperature: TemperatureRange,
    /// It knows that commands can be interrupted (ACRE).
    pub(crate) knows_advanced_retry: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { temperature: TemperatureRange::DEFAULT, knows_advanced_retry: false }
    }
}

/// How far an association is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Its host has not enabled the controller, and it ends if that is not done by then.
    Fresh(Time),
    /// The controller was enabled; whether it is now says its configuration.
    Served,
    /// Nothing new is taken; it goes with its last connection.
    Ending,
}

impl Life {
    /// Whether an association may go from here to `next`.
    fn may_become(self, next: Life) -> bool {
        matches!((self, next), (Life::Fresh(_), Life::Served) | (Life::Fresh(_) | Life::Served, Life::Ending))
    }
}

/// When silence of a host ends its association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAlive {
    /// KATO; 0 for never.
    pub(crate) timeout_ms: u32,
    pub(crate) heard_at: Time,
}

/// Flushes of volatile caches that a shutdown waits for.
#[derive(Debug, Default)]
pub(crate) struct CacheFlushes {
    pub(crate) awaited: u32,
    /// One of them failed: what was in the cache may be lost.
    pub(crate) failed: bool,
}

impl CacheFlushes {
    /// A namespace answered one.
    pub(crate) fn answered(&mut self, worked: bool) {
        assert!(self.awaited > 0, "I-T8: a flush is answered once");
        self.awaited -= 1;
        self.failed |= !worked;
    }
}

/// What a host is told without asking each time.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Which kinds it wants to be told.
    pub(crate) configuration: u32,
    /// Requests that wait for an event.
    pub(crate) parked: Vec<SlotIndex>,
    pub(crate) namespaces: Notice,
    pub(crate) discovery: Notice,
    pub(crate) warnings: Warnings,
    pub(crate) reservations: ReservationLog,
    pub(crate) zones: ZoneLog,
    pub(crate) chunks: ChunkLog,
    /// Of the end of a sanitize operation.
    pub(crate) sanitize: Notice,
    /// Of controller-initiated telemetry.
    pub(crate) telemetry: Notice,
    /// NSIDs that changed since the host read the list.
    pub(crate) changed_namespaces: Vec<u32>,
}

/// The error information log, newest first.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    pub(crate) entries: VecDeque<ErrorEntry>,
    pub(crate) count: u64,
}

/// What a controller needs to see of the rest to serve its admin queue.
pub(crate) struct Surroundings<'a> {
    pub(crate) config: &'a TargetConfig,
    pub(crate) subsystem: Option<&'a SubsystemConfig>,
    pub(crate) health: Health,
    pub(crate) traffic: Traffic,
    pub(crate) all_subsystems: &'a Subsystems,
    pub(crate) now: Time,
    /// Controllers of the same subsystem.
    pub(crate) controllers: Vec<u16>,
}

/// What a write of CC begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing that others notice.
    GoOn,
    /// The I/O queues go.
    Reset,
    /// The I/O queues go, and volatile caches are flushed.
    ShutDown,
}

/// How an admin command ends.
#[derive(Debug)]
pub(crate) enum Answer {
    Result(u64),
    Data(Vec<u8>),
    /// Data, and dword 0.
    DataWith(Vec<u8>, u64),
    Fail(Status),
}

impl Association {
    /// One whose host has just connected, without name and connections.
    pub(crate) fn new(
        subsystem: Option<u32>,
        host_id: [u8; 16],
        host_account: u32,
        controller_id: u16,
        keep_alive: KeepAlive,
        enable_by: Time,
    ) -> Association {
        Association {
            subsystem,
            host: None,
            host_id,
            host_account,
            controller_id,
            life: Life::Fresh(enable_by),
            configuration: Configuration::default(),
            keep_alive,
            connections: Vec::new(),
            flushes: CacheFlushes::default(),
            events: Events::default(),
            errors: ErrorLog::default(),
            timestamp: None,
            settings: Settings::default(),
            path: PathAccess::default(),
        }
    }

    /// Whether it ends.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.life == Life::Ending
    }

    /// Begins to end.
    ///
    /// # Panics
    /// If it ends already.
    pub(crate) fn end(&mut self) {
        self.enter(Life::Ending);
    }

    fn enter(&mut self, next: Life) {
        assert!(self.life.may_become(next), "I-T3: an association goes from {:?} to {next:?}", self.life);
        self.life = next;
    }

    pub(crate) fn is_discovery(&self) -> bool {
        self.subsystem.is_none()
    }

    /// Whether it is of this host.
    pub(crate) fn is_of(&self, host: Option<&QualifiedName>, host_id: &[u8; 16]) -> bool {
        self.host.as_ref() == host && self.host_id == *host_id
    }

    /// When silence ends the association: KATO rounded up to the granularity of 100 ms told in KAS; or that it was never enabled.
    pub(crate) fn expires(&self) -> Time {
        let silent = match self.keep_alive.timeout_ms {
            0 => Time::NEVER,
            ms => self.keep_alive.heard_at + Span::from_millis(u64::from(ms).next_multiple_of(100)),
        };
        match self.life {
            Life::Fresh(enable_by) => silent.min(enable_by),
            Life::Served | Life::Ending => silent,
        }
    }

    /// Property Get. `io_quiet`: no I/O command is left in a namespace.
    pub(crate) fn property(
        &self,
        at: u32,
        eight_bytes: bool,
        config: &TargetConfig,
        io_quiet: bool,
    ) -> Result<u64, Status> {
        let invalid = Status::INVALID_FIELD.do_not_retry();
        match (at, eight_bytes) {
            (offset::CAP, true) => Ok(Capabilities {
                queue_entries_max: config.queue.queue_entries_max - 1,
                timeout: 30,
                command_sets: true,
            }
            .encode()),
            (offset::VS, false) => Ok(u64::from(VERSION_2_0)),
            (offset::CC, false) => Ok(u64::from(self.configuration.0)),
            (offset::CSTS, false) => {
                let shutdown = match (self.configuration.shutdown(), io_quiet && self.flushes.awaited == 0) {
                    (shutdown::NONE, _) => 0,
                    (_, true) => shutdown::COMPLETE,
                    (_, false) => shutdown::OCCURRING,
                };
                // After EN went to 0, RDY follows when the last I/O command has come back: nothing of the time
                // before the reset can land after it.
                let ready =
                    self.configuration.enabled() || (!io_quiet && !mutant!("nvmf: ready falls too early"));
                Ok(u64::from(ControllerStatus { ready, fatal: self.flushes.failed, shutdown }.encode()))
            }
            _ => Err(invalid),
        }
    }

    /// Property Set of CC. Answers what must be done.
    pub(crate) fn set_configuration(&mut self, value: u32) -> Result<Turn, Status> {
        let new = Configuration(value);
        let old = self.configuration;
        if new.enabled() && !old.enabled() {
            let sets = new.command_set();
            let bad = new.page_size() != 0
                || new.arbitration() != 0
                || !matches!(sets, 0 | 6 | 7)
                || (!self.is_discovery()
                    && (new.submission_entry_log2() != 6 || new.completion_entry_log2() != 4));
            if bad {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
        }
        // AMS, CSS and MPS may change while EN is 0 only, and IOSQES and IOCQES while there are no I/O queues (Base 2.0 section 3.1.3.5):
        // a host that changes them otherwise breaks its promise, what follows is not defined, and here they stay as they are.
        let new = if new.enabled() && old.enabled() { new.keeping_fixed_of(old) } else { new };
        self.configuration = new;
        if new.enabled() && matches!(self.life, Life::Fresh(_)) {
            self.enter(Life::Served);
        }
        let reset = old.enabled() && !new.enabled();
        let shut = old.shutdown() == shutdown::NONE && new.shutdown() != shutdown::NONE;
        if reset {
            self.events.configuration = 0;
            self.events.namespaces = Notice::Quiet;
            self.events.discovery = Notice::Quiet;
            self.events.changed_namespaces.clear();
            self.events.warnings = Warnings::default();
            self.events.reservations.reset();
            self.events.zones = ZoneLog::default();
            self.events.chunks = ChunkLog::default();
            self.events.sanitize = Notice::Quiet;
            self.events.telemetry = Notice::Quiet;
            self.path.reset();
            // What no feature saves is as it was before (Base 2.0 section 5.27).
            self.settings = Settings::default();
            self.flushes.failed = false;
        }
        Ok(match (shut, reset) {
            (true, _) => Turn::ShutDown,
            (false, true) => Turn::Reset,
            (false, false) => Turn::GoOn,
        })
    }

    /// Checks an admin command before its data move.
    pub(crate) fn plan(&self, entry: &SubmissionEntry, config: &TargetConfig) -> Result<Plan, Status> {
        let length = match entry.sgl.kind() {
            diecut_nvme::SglKind::Transport { length_bytes } => length_bytes,
            _ => 0,
        };
        let discovery_only = matches!(
            entry.opcode,
            opcode::IDENTIFY
                | opcode::GET_LOG_PAGE
                | opcode::KEEP_ALIVE
                | opcode::ASYNCHRONOUS_EVENT_REQUEST
                | opcode::SET_FEATURES
                | opcode::GET_FEATURES
        );
        if self.is_discovery() && !discovery_only {
            return Err(Status::INVALID_OPCODE.do_not_retry());
        }
        if !self.configuration.enabled() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
        }
        match entry.opcode {
            opcode::IDENTIFY | GEOMETRY => Ok(Plan::to_host(IDENTIFY_SIZE_BYTES as u32)),
            opcode::GET_LOG_PAGE => {
                let log = GetLogPage::decode(entry);
                if log.length_bytes > u64::from(config.queue.transfer_bytes_max) {
                    return Err(Status::INVALID_FIELD.do_not_retry());
                }
                if log.length_bytes > u64::from(length) {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
                }
                Ok(Plan::to_host(log.length_bytes as u32))
            }
            opcode::SET_FEATURES => {
                Ok(Plan { from_host_bytes: feature::host_data_bytes(entry), to_host_bytes: 0 })
            }
            opcode::GET_FEATURES => Ok(Plan::to_host(feature::host_buffer_bytes(entry))),
            opcode::DIRECTIVE_RECEIVE => {
                let bytes = placement::directive_receive_bytes(entry, config.queue.transfer_bytes_max)?;
                Ok(Plan::to_host(bytes))
            }
            // The one that there is has no data.
            opcode::DIRECTIVE_SEND => Ok(Plan::default()),
            opcode::KEEP_ALIVE
            | opcode::ABORT
            | opcode::ASYNCHRONOUS_EVENT_REQUEST
            | opcode::FORMAT_NVM
            | opcode::SANITIZE => Ok(Plan::default()),
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        }
    }

    /// Serves an admin command other than Abort and Asynchronous Event Request, which concern queues.
    pub(crate) fn execute(
        &mut self,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        around: Surroundings<'_>,
    ) -> Answer {
        match entry.opcode {
            opcode::IDENTIFY => identify::identify(self, entry, &around),
            opcode::GET_LOG_PAGE => log_page::log_page(self, entry, &around),
            opcode::SET_FEATURES => feature::set(self, entry, data, &around),
            opcode::GET_FEATURES => feature::get(self, entry, &around),
            opcode::KEEP_ALIVE => Answer::Result(0),
            _ => Answer::Fail(Status::INVALID_OPCODE.do_not_retry()),
        }
    }

    /// The next event that can be told now, and its dword 1; it counts as told.
    pub(crate) fn next_event(&mut self) -> Option<(AsynchronousEvent, u32)> {
        self.next_event_of_subsystem().map(|event| (event, 0)).or_else(|| self.events.zones.next_event())
    }

    fn next_event_of_subsystem(&mut self) -> Option<AsynchronousEvent> {
        if self.events.namespaces.is_to_be_told() {
            return Some(AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED);
        }
        if self.events.discovery.is_to_be_told() {
            return Some(AsynchronousEvent::DISCOVERY_LOG_CHANGED);
        }
        if self.events.sanitize.is_to_be_told() {
            return Some(AsynchronousEvent::SANITIZE_COMPLETED);
        }
        if self.events.telemetry.is_to_be_told() {
            return Some(AsynchronousEvent::TELEMETRY_CAPTURED);
        }
        let event = self.path.next_event().or_else(|| self.events.warnings.next_event());
        event.or_else(|| self.events.reservations.next_event()).or_else(|| self.events.chunks.next_event())
    }

    /// A namespace came, went or changed.
    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        if mutant!("nvmf: namespace change not told") {
            return;
        }
        self.events.zones.forget(nsid);
        self.events.chunks.forget(nsid);
        self.path.namespaces_changed();
        if let Err(at) = self.events.changed_namespaces.binary_search(&nsid) {
            self.events.changed_namespaces.insert(at, nsid);
        }
        let enabled = self.events.configuration & diecut_nvme::feature::EVENT_NAMESPACE_ATTRIBUTE != 0;
        if enabled && self.events.namespaces == Notice::Quiet {
            if self.events.parked.is_empty() {
                mark!("nvmf: event held without a parked request");
                if mutant!("nvmf: event lost without a parked request") {
                    return;
                }
            }
            self.events.namespaces = Notice::Pending;
        }
    }

    /// A sanitize operation of its subsystem is over.
    pub(crate) fn sanitized(&mut self) {
        if !mutant!("nvmf: the end of a sanitize is not told") {
            self.events.sanitize = Notice::Pending;
        }
    }

    /// There is controller-initiated telemetry that no host has read.
    pub(crate) fn telemetry_captured(&mut self) {
        let enabled = self.events.configuration & diecut_nvme::feature::EVENT_TELEMETRY != 0;
        let is_told = enabled && !mutant!("nvmf: telemetry that was captured is not told");
        if is_told && self.events.telemetry == Notice::Quiet {
            self.events.telemetry = Notice::Pending;
        }
    }

    /// What discovery tells has changed.
    pub(crate) fn discovery_changed(&mut self) {
        let enabled = self.events.configuration & diecut_nvme::feature::EVENT_DISCOVERY_CHANGE != 0;
        if enabled && self.events.discovery == Notice::Quiet {
            self.events.discovery = Notice::Pending;
        }
    }

    /// Keeps a failed command for the error information log.
    pub(crate) fn record_error(&mut self, queue_id: u16, entry: &SubmissionEntry, status: Status) {
        self.errors.count += 1;
        // Dwords 10 and 11 are an LBA for these only.
        let has_lba = queue_id != 0
            && matches!(entry.opcode, io::READ | io::WRITE | io::COMPARE | io::WRITE_ZEROES | io::VERIFY);
        let mut error = ErrorEntry {
            error_count: self.errors.count.into(),
            queue_id: queue_id.into(),
            command_id: entry.command_id,
            parameter_location: 0xFFFF.into(),
            lba: if has_lba { entry.starting_lba() } else { 0 }.into(),
            nsid: entry.nsid,
            transport_type: diecut_nvme::TRANSPORT_TYPE_TCP,
            ..ErrorEntry::default()
        };
        error.set_status(status);
        self.errors.entries.truncate(ERROR_ENTRIES_MAX - 1);
        self.errors.entries.push_front(error);
        assert!(
            self.errors.entries.len() <= ERROR_ENTRIES_MAX
                && self.errors.count >= self.errors.entries.len() as u64,
            "I-T14: an error log has as many entries as were told to the host"
        );
    }
}
