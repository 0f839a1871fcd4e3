//! Log pages and features behind the UUID of OCP, telemetry, and the latencies that they tell of.

use crate::config::SubsystemConfig;
use crate::connection::Connection;
use crate::controller::{Answer, Notice, monitor_bytes, smart_of};
use crate::event::Action;
use crate::io::offer::{is_offered, takes};
use crate::ocp::{
    Capture, DEBUG_BLOCK, LatencyMonitor, MediaFigures, Ocp, PanicsTold, Question, Set, Tidings, strings,
};
use crate::placement;
use crate::queue::{SlotIndex, SlotState};
use crate::sanitize;
use crate::shared::Shared;
use crate::subsystems::Subsystem;
use crate::token::command_token;
use diecut_namespace::contract::{NamespaceId, PlacementTarget};
use diecut_nvme::admin::GetLogPage;
use diecut_nvme::feature::{CAPABILITY_CHANGEABLE, GetFeatures, Select, SetFeatures, fid};
use diecut_nvme::log_page::lid;
use diecut_nvme::ocp::{
    self, CommandKind, DeviceCapabilities, FirmwareActivationHistory, LatencyConfiguration, NOT_SUPPORTED,
    SmartExtended, UnsupportedRequirements,
};
use diecut_nvme::opcode::{admin as opcode, io};
use diecut_nvme::{QualifiedName, Status, SubmissionEntry, ascii_padded};
use diecut_units::{Span, Time};
use zerocopy::IntoBytes;

/// Requirements of the specification that are not met, by their names in it.
const UNSUPPORTED: &[&str] = &[
    "NVMe-AD-5",
    "NVMe-AD-8",
    "NVMe-AD-9",
    "NVMeR-2",
    "STD-LOG-21",
    "EREC-3",
    "HWCOMP-1",
    "TCGL-1",
    "SLOG-1",
    "PCIe-1",
    "FFC-1",
    "SEC-2",
    "PLP-2",
    "ERRI-1",
    "PLPI-1",
    "DSSDPS-1",
];

/// The index of our UUID in the list of UUIDs (Identify, CNS 17h).
const UUID_INDEX: u32 = 1;

const INVALID_FIELD: Answer = Answer::Fail(Status::INVALID_FIELD.do_not_retry());

/// Whether a command needs to know what media did.
fn needs_figures(config: &SubsystemConfig, entry: &SubmissionEntry) -> bool {
    if entry.opcode != opcode::GET_LOG_PAGE {
        return false;
    }
    let log = GetLogPage::decode(entry);
    match log.page {
        ocp::lid::SMART_EXTENDED => true,
        // Create Telemetry Host-Initiated Data.
        lid::TELEMETRY_HOST => log.specific & 1 != 0,
        _ => placement::needs_figures(config, &log),
    }
}

/// Serves an admin command that is about OCP or telemetry; nothing if it is not. `debug_log` is what was told for it.
pub(crate) fn execute(
    shared: &mut Shared,
    number: u32,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
    debug_log: &[u8],
) -> Option<Answer> {
    let index = shared.associations.kept(number).subsystem?;
    let now = shared.now;
    match entry.opcode {
        opcode::GET_LOG_PAGE => {
            let log = GetLogPage::decode(entry);
            let page = page(shared, number, index, &log, debug_log)?;
            if log.offset_is_index || !log.offset.is_multiple_of(4) || log.offset > page.len() as u64 {
                return Some(INVALID_FIELD);
            }
            if is_ours(log.page) && !is_our_uuid(entry) {
                return Some(INVALID_FIELD);
            }
            assert!(page.len().is_multiple_of(4), "I-T15: pages are whole dwords");
            let end = log.offset.saturating_add(log.length_bytes);
            let mut part = page[log.offset as usize..].to_vec();
            part.resize(log.length_bytes as usize, 0);
            if log.page == ocp::lid::LATENCY_DEBUG && end >= page.len() as u64 && !log.retain_event {
                shared.subsystems.get_mut(index).ocp.monitor.discard();
            }
            Some(Answer::Data(part))
        }
        opcode::SET_FEATURES => {
            let set = SetFeatures::decode(entry);
            let monitor = &mut shared.subsystems.get_mut(index).ocp.monitor;
            match set.feature {
                // Stamps of latencies are as of the last clock that a host of the subsystem set.
                fid::TIMESTAMP => {
                    let mut ms = [0; 8];
                    ms[..6].copy_from_slice(data?.get(..6)?);
                    monitor.set_clock(u64::from_le_bytes(ms), now);
                    None
                }
                ocp::fid::LATENCY_MONITOR => {
                    let answer = set_monitor(monitor, entry, data, now);
                    find_threshold(shared);
                    Some(answer)
                }
                _ => None,
            }
        }
        opcode::GET_FEATURES => {
            let get = GetFeatures::decode(entry);
            let monitor = &shared.subsystems.get(index).ocp.monitor;
            (get.feature == ocp::fid::LATENCY_MONITOR).then(|| get_monitor(monitor, entry, get.select))
        }
        _ => None,
    }
}

fn is_ours(page: u8) -> bool {
    (0xC0..=0xCF).contains(&page)
}

/// Whether a command names our UUID, or none.
fn is_our_uuid(entry: &SubmissionEntry) -> bool {
    entry.cdw14.get() & 0x7F <= UUID_INDEX
}

fn set_monitor(
    monitor: &mut LatencyMonitor,
    entry: &SubmissionEntry,
    data: Option<&[u8]>,
    now: Time,
) -> Answer {
    let configuration = data.and_then(LatencyConfiguration::decode).filter(|_| is_our_uuid(entry));
    match configuration.map(|one| monitor.set(one, now)) {
        Some(Set::Done) => Answer::Result(0),
        Some(Set::Invalid) | None => INVALID_FIELD,
    }
}

fn get_monitor(monitor: &LatencyMonitor, entry: &SubmissionEntry, select: Select) -> Answer {
    if !is_our_uuid(entry) {
        return INVALID_FIELD;
    }
    let configuration = match select {
        Select::Current => *monitor.configuration(),
        // Nothing is saved beyond the life of the server.
        Select::Default | Select::Saved => LatencyConfiguration::default(),
        Select::Capabilities => return Answer::Result(CAPABILITY_CHANGEABLE.into()),
        Select::Reserved(_) => return INVALID_FIELD,
    };
    let mut data = configuration.encode();
    data.truncate(monitor_bytes(entry) as usize);
    if data.is_empty() { Answer::Result(0) } else { Answer::Data(data) }
}

/// A page, whole; nothing if it is none of these.
fn page(shared: &mut Shared, number: u32, index: u32, log: &GetLogPage, debug_log: &[u8]) -> Option<Vec<u8>> {
    let (now, firmware) = (shared.now, ascii_padded(&shared.config.firmware));
    let subsystem = shared.subsystems.get_mut(index);
    Some(match log.page {
        ocp::lid::SMART_EXTENDED => extended(subsystem, firmware).as_bytes().to_vec(),
        ocp::lid::ERROR_RECOVERY => subsystem.ocp.panics.error_recovery().as_bytes().to_vec(),
        // No command brings other firmware.
        ocp::lid::FIRMWARE_ACTIVATION_HISTORY => FirmwareActivationHistory::default().as_bytes().to_vec(),
        ocp::lid::LATENCY_MONITOR => subsystem.ocp.monitor.page(DEBUG_BLOCK, now).as_bytes().to_vec(),
        ocp::lid::DEVICE_CAPABILITIES => capabilities(&subsystem.config).as_bytes().to_vec(),
        ocp::lid::UNSUPPORTED_REQUIREMENTS => UnsupportedRequirements::of(UNSUPPORTED).as_bytes().to_vec(),
        ocp::lid::TELEMETRY_STRINGS => strings(),
        ocp::lid::LATENCY_DEBUG => {
            let mut log = subsystem.ocp.monitor.debug_log().unwrap_or_default().to_vec();
            log.resize(log.len().next_multiple_of(4).max(4), 0);
            assert!(log.len().is_multiple_of(4), "I-T15: pages are whole dwords");
            log
        }
        lid::TELEMETRY_HOST => {
            if log.specific & 1 != 0 && log.offset == 0 {
                let errors = shared.associations.kept(number).errors.count;
                let mut capture = capture_of(subsystem, debug_log.to_vec(), firmware, now);
                capture.smart.error_log_entries = u128::from(errors).into();
                capture.latency_us = 0;
                subsystem.ocp.telemetry.capture_for_host(&capture);
            }
            subsystem.ocp.telemetry.page(log.page)
        }
        lid::TELEMETRY_CONTROLLER => {
            if !log.retain_event {
                subsystem.ocp.telemetry.read();
                shared.associations.kept_mut(number).events.telemetry = Notice::Quiet;
            }
            shared.subsystems.get(index).ocp.telemetry.page(log.page)
        }
        _ => return None,
    })
}

/// What the subsystem offers, as Identify has it.
fn capabilities(config: &SubsystemConfig) -> DeviceCapabilities {
    let of = |is_offered: bool, bits: u16| if is_offered { bits } else { 0 };
    let command = |code: u8, bits: u16| of(is_offered(config, |one| takes(one, code)), bits).into();
    DeviceCapabilities {
        // There, and it may deallocate.
        write_zeroes: command(io::WRITE_ZEROES, 0b11),
        // There; Block Erase, which leaves nothing allocated.
        sanitize: of(sanitize::is_offered(config), 0b1_0101).into(),
        // There, and it deallocates.
        dataset_management: command(io::DATASET_MANAGEMENT, 0b11),
        write_uncorrectable: command(io::WRITE_UNCORRECTABLE, 0b1),
        ..DeviceCapabilities::default()
    }
}

fn extended(subsystem: &Subsystem, firmware: [u8; 8]) -> SmartExtended {
    let figures = &subsystem.ocp.figures;
    let used = subsystem.config.namespaces.values().map(|one| one.used_lbas());
    SmartExtended {
        physical_media_bytes_written: u128::from(figures.written_bytes).into(),
        physical_media_bytes_read: u128::from(figures.read_bytes).into(),
        bad_user_blocks: figures.bad_blocks.into(),
        bad_user_blocks_normalized: u16::from(figures.spare_percent).into(),
        bad_system_blocks_normalized: NOT_SUPPORTED.into(),
        uncorrectable_reads: figures.uncorrectable_reads.into(),
        erases_max: figures.erases_max.into(),
        erases_min: figures.erases_min.into(),
        incomplete_shutdowns: figures.incomplete_shutdowns.into(),
        free_blocks_percent: figures.free_percent,
        total_nuse: used.sum::<u64>().into(),
        total_dies: figures.dies.into(),
        temperature_max_celsius: subsystem.health.temperature_kelvin.saturating_sub(273) as u8,
        erases_average: u64::from(figures.erases_average).into(),
        firmware_revision: firmware,
        die_in_use_bad_blocks: figures.bad_blocks.into(),
        die_in_use_bad_blocks_normalized: u16::from(figures.spare_percent).into(),
        ..SmartExtended::default()
    }
}

fn capture_of(subsystem: &Subsystem, debug_log: Vec<u8>, firmware: [u8; 8], now: Time) -> Capture {
    Capture {
        smart: smart_of(&subsystem.health, subsystem.traffic, now),
        extended: extended(subsystem, firmware),
        timestamp: subsystem.ocp.monitor.stamp(now).0.0,
        firmware,
        namespaces: subsystem.config.namespaces.len() as u64,
        latency_us: subsystem.ocp.outlier_us,
        debug_log,
    }
}

/// Which counters a command has.
fn kind_of(code: u8) -> Option<CommandKind> {
    match code {
        io::READ => Some(CommandKind::Read),
        io::WRITE => Some(CommandKind::Write),
        io::DATASET_MANAGEMENT => Some(CommandKind::Deallocate),
        _ => None,
    }
}

/// A command of a subsystem is answered after so long, which is long enough for some monitor.
#[cold]
pub(crate) fn record(
    shared: &mut Shared,
    subsystem: Option<u32>,
    code: u8,
    took: Span,
    actions: &mut Vec<Action>,
) {
    let (Some(index), Some(kind)) = (subsystem, kind_of(code)) else { return };
    let now = shared.now;
    let subsystem = shared.subsystems.get_mut(index);
    if subsystem.ocp.monitor.record(kind, took, now) {
        subsystem.ocp.outlier_us = u32::try_from(took.0 / 1000).unwrap_or(u32::MAX);
        let nqn = subsystem.config.nqn.clone();
        let question = Question { subsystem: nqn, waits: None, updates: Vec::new(), namespace: None };
        actions.push(Action::Ask(Box::new(question)));
    }
}

/// Finds again from how long on a latency is of interest to some monitor.
pub(crate) fn find_threshold(shared: &mut Shared) {
    let all = shared.subsystems.iter().map(|(_, one)| one.ocp.monitor.threshold());
    shared.monitored_from = all.min().unwrap_or(Span(u64::MAX));
}

/// Puts a command off that needs to know what media did. Says whether it did.
pub(crate) fn put_off(
    shared: &Shared,
    actions: &mut Vec<Action>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    entry: &SubmissionEntry,
) -> bool {
    let Some(index) = connection.subsystem else { return false };
    if !needs_figures(&shared.subsystems.get(index).config, entry) {
        return false;
    }
    assert!(connection.is_admin(), "I-T19: a page is asked for over an admin queue");
    ask(shared, actions, connection, slot_index, Vec::new(), None);
    true
}

/// Puts a command off until whoever knows media has given these reclaim unit handles a fresh reclaim unit, and has told what there is to
/// know. `namespace` is whose host wants that.
pub(crate) fn ask(
    shared: &Shared,
    actions: &mut Vec<Action>,
    connection: &mut Connection,
    slot_index: SlotIndex,
    updates: Vec<PlacementTarget>,
    namespace: Option<NamespaceId>,
) {
    let index = connection.subsystem.expect("I-T19: what is put off concerns a subsystem");
    let queue = connection.queue.as_mut().expect("I-T11: a live connection has a queue");
    let slot = &mut queue.slots[usize::from(slot_index)];
    slot.enter(SlotState::Submitted);
    queue.submitted += 1;
    let subsystem = shared.subsystems.get(index).config.nqn.clone();
    let waits = Some(command_token(connection.index, slot_index));
    actions.push(Action::Ask(Box::new(Question { subsystem, waits, updates, namespace })));
}

/// What media did for a subsystem is told. A command that triggered the debug log is explained by it: whether there is telemetry of that.
pub(crate) fn take(shared: &mut Shared, tidings: &Tidings) -> bool {
    let (now, firmware) = (shared.now, ascii_padded(&shared.config.firmware));
    let Some(index) = shared.subsystems.find(&tidings.subsystem) else { return false };
    let subsystem = shared.subsystems.get_mut(index);
    let MediaFigures { erases_max, erases_min, erases_average, free_percent, .. } = tidings.figures;
    assert!(erases_min <= erases_average && erases_average <= erases_max, "I-T19: figures of media agree");
    assert!(free_percent <= 100, "I-T19: figures of media agree");
    subsystem.ocp.figures = tidings.figures;
    subsystem.placement.figures = tidings.placement.clone();
    let is_captured = tidings.waits.is_none();
    if is_captured {
        capture(subsystem, tidings.debug_log.clone(), firmware, now);
    }
    is_captured
}

/// What hosts of a subsystem are told of panics. A new one is captured in controller-initiated telemetry: whether one was.
pub(crate) fn set_panics(shared: &mut Shared, nqn: &QualifiedName, told: PanicsTold) -> bool {
    let (now, firmware) = (shared.now, ascii_padded(&shared.config.firmware));
    let Some(index) = shared.subsystems.find(nqn) else { return false };
    let subsystem = shared.subsystems.get_mut(index);
    if subsystem.ocp.panics == told {
        return false;
    }
    // One of another subsystem, which is only counted, is no news of it.
    let is_captured = !told.record.is_empty() && told.record != subsystem.ocp.panics.record;
    if is_captured {
        let mut capture = capture_of(subsystem, told.record.clone(), firmware, now);
        capture.latency_us = 0;
        subsystem.ocp.telemetry.skip_generations(told.count - 1);
        subsystem.ocp.telemetry.capture(&capture, "panic: an inner check failed");
    }
    subsystem.ocp.panics = told;
    is_captured
}

/// A latency triggered the debug log, and this is what is known of it.
fn capture(subsystem: &mut Subsystem, debug_log: Vec<u8>, firmware: [u8; 8], now: Time) {
    let capture = capture_of(subsystem, debug_log, firmware, now);
    let Ocp { monitor, telemetry, .. } = &mut subsystem.ocp;
    telemetry.capture(&capture, "latency triggered the debug log");
    monitor.explain(capture.debug_log);
}
