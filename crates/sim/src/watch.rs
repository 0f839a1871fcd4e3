//! What a host does on its admin queue besides bringing a controller up: it asks to be told of changes of namespaces and looks
//! again when it is, as Linux does; and it asks for commands to be aborted.

use crate::erasure::{Erase, Erasure};
use crate::system::PlacementStatistics;
use diecut_initiator::{Admin, Completion, Sink, Token};
use diecut_nvme::admin::{Abort, GetLogPage, Identify};
use diecut_nvme::fdp::StatisticsLog;
use diecut_nvme::feature::{EVENT_NAMESPACE_ATTRIBUTE, SetFeatures, fid};
use diecut_nvme::identify::{CSI_NVM, IDENTIFY_SIZE_BYTES, cns, parse_namespace_list};
use diecut_nvme::log_page::{CHANGED_NAMESPACES_LENGTH, lid};
use diecut_nvme::{SubmissionEntry, opcode};
use diecut_units::{Span, Time, mark};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

const CONFIGURE: Token = Token(1 << 62);
const EVENT: Token = Token(1 << 62 | 1);
const CHANGED: Token = Token(1 << 62 | 2);
const LIST: Token = Token(1 << 62 | 3);
const ABORT: Token = Token(1 << 62 | 4);
const STATISTICS: Token = Token(1 << 62 | 5);
const ERASURE: Token = Token(1 << 62 | 6);
/// The endurance group of subsystems whose namespaces have placement handles.
const ENDURANCE_GROUP: u16 = 1;

/// See the module. One of each association.
#[derive(Default)]
pub struct Watch {
    /// A request for events is with the controller.
    is_armed: bool,
    /// How long after an event, and after the start, it asks for the next one.
    delay: Span,
    /// When it asks for the next one.
    arms_at: Time,
    begun: bool,
    /// Commands under way, the request for events apart.
    under_way: u32,
    /// To be read when nothing is under way.
    wants_log: bool,
    wants_list: bool,
    wants_statistics: bool,
    statistics: Option<PlacementStatistics>,
    erasure: Option<Erasure>,
    page: Vec<u8>,
    known: Option<BTreeSet<u32>>,
}

/// What one delivery brought.
pub struct Heard<'a> {
    page: &'a mut Vec<u8>,
    completions: Vec<Completion>,
}

impl Sink for Heard<'_> {
    fn data(&mut self, _token: Token, offset: u32, bytes: &[u8]) {
        self.page.truncate(offset as usize);
        self.page.extend_from_slice(bytes);
    }
    fn completed(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
}

fn entry(opcode: u8) -> SubmissionEntry {
    SubmissionEntry { opcode, ..SubmissionEntry::default() }
}

impl Watch {
    /// One that asks for the next event so long after it was told of one.
    pub fn late_by(delay: Span) -> Watch {
        Watch { delay, ..Watch::default() }
    }
    /// Whether a request for events is with the controller.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }
    /// When it goes on by itself.
    pub fn deadline(&self) -> Time {
        if self.begun && !self.is_armed && self.is_quiet() { self.arms_at } else { Time::NEVER }
    }
    /// Namespaces that the host knows of, if it is not just looking.
    pub fn known(&self) -> Option<&BTreeSet<u32>> {
        self.known.as_ref().filter(|_| self.is_quiet() && !self.wants_any())
    }
    fn wants_any(&self) -> bool {
        self.wants_log
            || self.wants_list
            || self.wants_statistics
            || self.erasure.as_ref().is_some_and(Erasure::is_due)
    }
    /// Reads what is told of the endurance group as soon as nothing is under way.
    pub fn ask_statistics(&mut self) {
        (self.wants_statistics, self.statistics) = (true, None);
    }
    /// What was told of it since it was asked for.
    pub fn statistics(&self) -> Option<PlacementStatistics> {
        self.statistics
    }
    /// Has something erased as soon as nothing is under way.
    pub fn ask_erase(&mut self, what: Erase) {
        self.erasure = Some(Erasure::of(what));
    }
    /// The erasure that was asked for.
    pub fn erasure(&self) -> Option<&Erasure> {
        self.erasure.as_ref()
    }
    /// Whether nothing but the request for events is under way.
    pub fn is_quiet(&self) -> bool {
        self.under_way == 0
    }
    /// The controller was reset: it forgot what was configured, and kept the request for events.
    pub fn reset(&mut self) {
        *self = Watch { is_armed: self.is_armed, ..Watch::late_by(self.delay) };
    }

    /// Takes what a stream brought to the admin queue.
    ///
    /// # Errors
    /// Why the stream is of no use any more.
    pub fn receive(
        &mut self,
        admin: &mut Admin,
        bytes: &[u8],
        now: Time,
    ) -> Result<(), diecut_initiator::HostError> {
        let mut heard = Heard { page: &mut self.page, completions: Vec::new() };
        admin.receive(bytes, now, &mut heard)?;
        for completion in heard.completions {
            self.ended(&completion, now);
        }
        Ok(())
    }

    fn ended(&mut self, completion: &Completion, now: Time) {
        if completion.token == ABORT {
            self.under_way -= 1;
            return;
        }
        if completion.token == ERASURE {
            self.under_way -= 1;
            let erasure = self.erasure.as_mut().expect("it was asked for");
            return erasure.answered(completion.status, &self.page);
        }
        assert!(completion.status.is_success(), "{:?}: {}", completion.token, completion.status);
        match completion.token {
            EVENT => {
                mark!("hosts: told of changed namespaces");
                (self.is_armed, self.wants_log) = (false, true);
                self.arms_at = now + self.delay;
                return;
            }
            CONFIGURE | CHANGED => self.wants_list = true,
            LIST => {
                let page: &[u8; IDENTIFY_SIZE_BYTES] = self.page[..].try_into().expect("a whole page");
                let list = parse_namespace_list(page).expect("a list of namespaces");
                self.known = Some(list.into_iter().collect());
            }
            STATISTICS => {
                let told = StatisticsLog::read_from_bytes(&self.page).expect("a whole page");
                self.statistics = Some(PlacementStatistics {
                    host_written_bytes: told.host_written_bytes.get(),
                    media_written_bytes: told.media_written_bytes.get(),
                    media_erased_bytes: told.media_erased_bytes.get(),
                });
            }
            other => panic!("an answer to {other:?}"),
        }
        self.under_way -= 1;
    }

    /// Goes on; `admin` is ready. Whether it sent anything.
    pub fn go_on(&mut self, admin: &mut Admin, now: Time) -> bool {
        if !self.is_quiet() || admin.facts().is_none() {
            return false;
        }
        if !self.begun {
            self.begun = true;
            self.arms_at = now + self.delay;
            let mut configure = entry(opcode::admin::SET_FEATURES);
            let value = EVENT_NAMESPACE_ATTRIBUTE;
            let feature = fid::ASYNCHRONOUS_EVENT_CONFIGURATION;
            SetFeatures { feature, save: false, value }.encode(&mut configure);
            self.send(admin, CONFIGURE, configure, 0);
            return true;
        }
        if !self.is_armed && self.arms_at <= now {
            self.is_armed = true;
            admin.submit_entry(EVENT, entry(opcode::admin::ASYNCHRONOUS_EVENT_REQUEST), None, 0);
            return true;
        }
        if self.wants_log {
            self.wants_log = false;
            let mut log = entry(opcode::admin::GET_LOG_PAGE);
            let length_bytes = CHANGED_NAMESPACES_LENGTH as u64 * 4;
            GetLogPage::of(lid::CHANGED_NAMESPACES, length_bytes).encode(&mut log);
            self.send(admin, CHANGED, log, length_bytes as u32);
            return true;
        }
        if self.wants_statistics {
            self.wants_statistics = false;
            let mut log = entry(opcode::admin::GET_LOG_PAGE);
            let length_bytes = StatisticsLog::SIZE_BYTES as u64;
            GetLogPage { specific_id: ENDURANCE_GROUP, ..GetLogPage::of(lid::FDP_STATISTICS, length_bytes) }
                .encode(&mut log);
            self.send(admin, STATISTICS, log, length_bytes as u32);
            return true;
        }
        if let Some(erasure) = self.erasure.as_mut().filter(|erasure| erasure.is_due()) {
            let (command, expected_bytes) = erasure.command();
            self.send(admin, ERASURE, command, expected_bytes);
            return true;
        }
        if self.wants_list {
            self.wants_list = false;
            let mut identify = entry(opcode::admin::IDENTIFY);
            let structure = cns::ACTIVE_NAMESPACES;
            Identify { cns: structure, controller_id: 0, specific_id: 0, command_set: CSI_NVM }
                .encode(&mut identify);
            self.send(admin, LIST, identify, IDENTIFY_SIZE_BYTES as u32);
            return true;
        }
        false
    }

    fn send(&mut self, admin: &mut Admin, token: Token, entry: SubmissionEntry, expected_bytes: u32) {
        self.page.clear();
        self.under_way += 1;
        admin.submit_entry(token, entry, None, expected_bytes);
    }

    /// Asks for a command of an I/O queue to be aborted.
    pub fn abort(&mut self, admin: &mut Admin, queue_id: u16, command_id: u16) {
        let mut abort = entry(opcode::admin::ABORT);
        Abort { queue_id, command_id }.encode(&mut abort);
        self.under_way += 1;
        admin.submit_entry(ABORT, abort, None, 0);
    }
}
