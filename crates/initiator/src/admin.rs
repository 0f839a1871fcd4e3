//! The admin queue: brings a controller up, says what it has, keeps it alive and shuts it down.

use crate::command::{Completion, Sink, Token};
use crate::error::HostError;
use crate::facts::{ControllerFacts, NamespaceFacts, takes_chunks};
use crate::openchannel::{ChunkedNamespace, OpenChannel};
use crate::queue_pair::{QueuePair, QueueParameters};
use crate::stage::Stage;
use crate::zoned::ZonedNamespace;
use diecut_nvme::admin::{GetLogPage, Identify};
use diecut_nvme::fabrics::PropertyCommand;
use diecut_nvme::feature::{SetFeatures, fid, number_of_queues};
use diecut_nvme::identify::{
    CSI_NVM, IDENTIFY_SIZE_BYTES, IdentifyController, cns, parse_namespace_descriptors, parse_namespace_list,
};
use diecut_nvme::log_page::{CommandEffects, SmartLog, lid};
use diecut_nvme::property::{Capabilities, Configuration, ControllerStatus, offset, shutdown};
use diecut_nvme::zns::CSI_ZONED;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_units::{Span, Time};
use zerocopy::FromBytes;

/// CSS of CC: all I/O command sets that the controller has.
const ALL_COMMAND_SETS: u8 = 6;
/// NIDT of the command set, in a list of identification descriptors (Base 2.0 figure 277).
const NIDT_COMMAND_SET: u8 = 4;

/// Token of the bring-up's commands and of keep-alives; the owner's own use others.
const OWN: Token = Token(u64::MAX);

/// The admin queue of a controller; see the crate's documentation.
#[derive(Debug)]
pub struct Admin {
    queue: QueuePair,
    stage: Stage,
    facts: ControllerFacts,
    wishes: Wishes,
    page: Vec<u8>,
    /// Identify Namespace of the namespace that is asked about.
    namespace_page: Vec<u8>,
    namespace_ids: Vec<u32>,
    /// When patience for CSTS.RDY ends, and how long it was.
    ready_by: Option<(Time, u64)>,
    keep_alive_at: Time,
    keep_alive_under_way: bool,
    /// CSTS.CFS at the end of a shutdown.
    has_failed: bool,
    health: Option<SmartLog>,
}

/// What a controller is asked besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// How it is: [`Admin::health`].
    pub health: bool,
    /// What chunks (Open-Channel 2.0) its namespaces have, where it says that it takes their commands: [`NamespaceFacts::chunked`].
    pub chunks: bool,
}

/// What the owner wants of a controller.
#[derive(Clone, Copy, Debug)]
struct Wishes {
    io_queues: u16,
    questions: Questions,
    /// CSS: all I/O command sets, of one that has several to choose from (Base 2.0 section 3.1.3.5).
    command_sets: u8,
}

/// What one delivery of bytes brought.
struct Own<'a, S: Sink> {
    page: &'a mut Vec<u8>,
    completion: Option<Completion>,
    other: &'a mut S,
}

impl<S: Sink> Sink for Own<'_, S> {
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        if token == OWN {
            self.page.truncate(offset as usize);
            self.page.extend_from_slice(bytes);
        } else {
            self.other.data(token, offset, bytes);
        }
    }
    fn completed(&mut self, completion: Completion) {
        if completion.token == OWN {
            self.completion = Some(completion);
        } else {
            self.other.completed(completion);
        }
    }
}

impl Admin {
    /// The admin queue on a stream that was just opened. `io_queues` is how many I/O queues are wished for.
    ///
    /// # Panics
    /// If the parameters are not those of an admin queue, or no I/O queue is wished for.
    pub fn new(parameters: QueueParameters, io_queues: u16) -> Admin {
        assert!(parameters.queue_id == 0, "the admin queue is queue 0");
        assert!(io_queues >= 1, "a host has an I/O queue");
        Admin {
            queue: QueuePair::new(parameters),
            stage: Stage::Connecting,
            facts: ControllerFacts::default(),
            wishes: Wishes { io_queues, questions: Questions::default(), command_sets: 0 },
            page: Vec::new(),
            namespace_page: Vec::new(),
            namespace_ids: Vec::new(),
            ready_by: None,
            keep_alive_at: Time::NEVER,
            keep_alive_under_way: false,
            has_failed: false,
            health: None,
        }
    }

    /// The same, and the controller is asked for more.
    ///
    /// # Panics
    /// If the stream was used.
    pub fn asking(self, questions: Questions) -> Admin {
        assert!(self.stage == Stage::Connecting, "questions come before the controller is asked");
        Admin { wishes: Wishes { questions, ..self.wishes }, ..self }
    }

    /// What the controller says of its health, if it was asked ([`Questions::health`]) and says anything.
    pub fn health(&self) -> Option<&SmartLog> {
        self.health.as_ref()
    }

    /// What the controller is and has, once it is ready.
    pub fn facts(&self) -> Option<&ControllerFacts> {
        (self.stage == Stage::Ready).then_some(&self.facts)
    }

    /// Whether [`Admin::shut_down`] is through.
    pub fn is_down(&self) -> bool {
        self.stage == Stage::Down
    }

    /// Whether the controller said then that it has failed (CSTS.CFS): it could not make durable what was in its cache.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Parameters of I/O queue `queue_id` (from 1 on) with room for `depth` commands under way.
    ///
    /// # Panics
    /// If the controller is not ready, or does not have such a queue.
    pub fn io_queue(&self, queue_id: u16, depth: u16) -> QueueParameters {
        assert!(self.stage == Stage::Ready, "the controller is ready first");
        assert!(
            (1..=self.facts.io_queues).contains(&queue_id),
            "queue {queue_id} of {}",
            self.facts.io_queues
        );
        assert!(depth >= 1 && depth < self.facts.queue_entries_max, "depth {depth}");
        QueueParameters {
            controller_id: self.facts.controller_id,
            queue_id,
            entries: depth + 1,
            keep_alive_ms: 0,
            in_capsule_bytes: self.facts.in_capsule_bytes,
            ..self.queue.parameters().clone()
        }
    }

    /// Bytes to send next.
    pub fn output(&self) -> &[u8] {
        self.queue.output()
    }
    /// `len_bytes` of the output were sent.
    pub fn sent(&mut self, len_bytes: usize) {
        self.queue.sent(len_bytes);
    }

    /// Starts an admin command of the owner on a ready controller; see [`QueuePair::submit_entry`].
    ///
    /// # Panics
    /// If the controller is not ready, or the token is the highest there is.
    pub fn submit_entry(
        &mut self,
        token: Token,
        entry: SubmissionEntry,
        outgoing: Option<diecut_units::Buffer>,
        expected_bytes: u32,
    ) {
        assert!(self.stage == Stage::Ready && token != OWN, "the controller is ready first");
        self.queue.submit_entry(token, entry, outgoing, expected_bytes);
    }

    /// Takes bytes of the stream; what the owner's own commands brought goes to `sink`.
    ///
    /// # Errors
    /// Why the controller cannot be used.
    pub fn receive(&mut self, bytes: &[u8], now: Time, sink: &mut impl Sink) -> Result<(), HostError> {
        let mut own = Own { page: &mut self.page, completion: None, other: sink };
        self.queue.receive(bytes, &mut own)?;
        let completion = own.completion;
        if self.stage == Stage::Connecting && self.queue.is_ready() {
            self.facts.controller_id = self.queue.controller_id();
            self.plan_keep_alive(now);
            self.go(Stage::Capabilities);
        }
        match completion {
            Some(_) if self.keep_alive_under_way => {
                self.keep_alive_under_way = false;
                Ok(())
            }
            Some(completion) => self.further(completion, now),
            None => Ok(()),
        }
    }

    /// When [`Admin::tick`] is due.
    pub fn deadline(&self) -> Time {
        self.keep_alive_at
    }

    /// Sends a keep-alive if one is due.
    pub fn tick(&mut self, now: Time) {
        if now < self.keep_alive_at {
            return;
        }
        if self.stage == Stage::Ready && !self.keep_alive_under_way && self.queue.room() > 0 {
            let entry = SubmissionEntry { opcode: opcode::admin::KEEP_ALIVE, ..SubmissionEntry::default() };
            self.queue.submit_entry(OWN, entry, None, 0);
            self.keep_alive_under_way = true;
        }
        self.plan_keep_alive(now);
    }

    /// Resets the controller: [`Admin::facts`] are known again when it is ready again. The I/O queues are gone then. Whether it
    /// could be begun; it cannot while a keep-alive is under way.
    pub fn reset(&mut self) -> bool {
        let may = self.stage == Stage::Ready && self.queue.room() > 0 && !self.keep_alive_under_way;
        if may {
            self.go(Stage::Disable);
        }
        may
    }

    /// Asks the controller to shut down; [`Admin::is_down`] when it did.
    /// Whether it could be asked; it cannot while a keep-alive is under way.
    pub fn shut_down(&mut self) -> bool {
        let may = self.stage == Stage::Ready && self.queue.room() > 0 && !self.keep_alive_under_way;
        if may {
            self.go(Stage::ShuttingDown);
        }
        may
    }

    fn plan_keep_alive(&mut self, now: Time) {
        // Twice per time-out, as Linux does: one may be late.
        self.keep_alive_at = match self.queue.parameters().keep_alive_ms {
            0 => Time::NEVER,
            keep_alive_ms => now + Span::from_micros(u64::from(keep_alive_ms) * 500),
        };
    }

    fn send(&mut self, entry: SubmissionEntry, expected_bytes: u32) {
        self.page.clear();
        self.queue.submit_entry(OWN, entry, None, expected_bytes);
    }

    fn send_identify(&mut self, structure: u8, nsid: u32, command_set: u8) {
        let mut entry = SubmissionEntry {
            opcode: opcode::admin::IDENTIFY,
            nsid: nsid.into(),
            ..SubmissionEntry::default()
        };
        Identify { cns: structure, controller_id: 0, command_set, specific_id: 0 }.encode(&mut entry);
        self.send(entry, IDENTIFY_SIZE_BYTES as u32);
    }

    /// Enters a stage by sending its command.
    fn go(&mut self, stage: Stage) {
        self.stage = stage;
        let enable = Configuration::enable(self.wishes.command_sets).0;
        match stage {
            Stage::Capabilities => self.send(PropertyCommand::get(0, offset::CAP, true).entry(), 0),
            Stage::Enable => self.send(PropertyCommand::set(0, offset::CC, enable).entry(), 0),
            Stage::Disable => self.send(PropertyCommand::set(0, offset::CC, enable & !1).entry(), 0),
            Stage::AwaitReady | Stage::AwaitNotReady | Stage::AwaitShutDown => {
                self.send(PropertyCommand::get(0, offset::CSTS, false).entry(), 0)
            }
            Stage::Controller => self.send_identify(cns::CONTROLLER, 0, CSI_NVM),
            Stage::Commands => {
                let len = size_of::<CommandEffects>();
                self.send(log_page(lid::COMMAND_EFFECTS, 0, len), len as u32);
            }
            Stage::NamespaceList => self.send_identify(cns::ACTIVE_NAMESPACES, 0, CSI_NVM),
            Stage::Namespace(number) => {
                self.send_identify(cns::NAMESPACE, self.namespace_ids[number], CSI_NVM);
            }
            Stage::Descriptors(number) => {
                self.send_identify(cns::NAMESPACE_DESCRIPTORS, self.namespace_ids[number], CSI_NVM);
            }
            Stage::Zones(number) => {
                self.send_identify(cns::COMMAND_SET_NAMESPACE, self.namespace_ids[number], CSI_ZONED);
            }
            Stage::Chunks(number) => {
                let request = OpenChannel::ask_geometry(self.namespace_ids[number]);
                self.send(request.entry, request.expected_bytes);
            }
            Stage::Queues => {
                let mut entry =
                    SubmissionEntry { opcode: opcode::admin::SET_FEATURES, ..SubmissionEntry::default() };
                let wanted = self.wishes.io_queues - 1;
                let value = number_of_queues(wanted, wanted);
                SetFeatures { feature: fid::NUMBER_OF_QUEUES, save: false, value }.encode(&mut entry);
                self.send(entry, 0);
            }
            // Of the controller as a whole.
            Stage::Health => {
                let len = size_of::<SmartLog>();
                self.send(log_page(lid::SMART, u32::MAX, len), len as u32);
            }
            Stage::ShuttingDown => {
                // SHN is bits 15:14 of CC.
                let value = enable | u32::from(shutdown::NORMAL) << 14;
                self.send(PropertyCommand::set(0, offset::CC, value).entry(), 0);
            }
            Stage::Connecting | Stage::Ready | Stage::Down => {}
        }
    }

    /// The command of a stage was answered.
    fn further(&mut self, completion: Completion, now: Time) -> Result<(), HostError> {
        let Some(what) = self.stage.words() else { return Ok(()) };
        let failed = |status| Err(HostError::BringUp { what, status });
        // Controllers before NVMe 1.3 have no such list, and one command set. A namespace that nobody asks for may say what it likes of its zones and chunks.
        let is_optional = matches!(
            self.stage,
            Stage::Commands | Stage::Descriptors(_) | Stage::Zones(_) | Stage::Chunks(_) | Stage::Health
        );
        if !completion.status.is_success() && !is_optional {
            return failed(completion.status);
        }
        // A page that is shorter than the specification's, or nonsense in it.
        let nonsense = || failed(Status::DATA_TRANSFER_ERROR);
        match self.stage {
            Stage::Capabilities => {
                let capabilities = Capabilities::decode(completion.result);
                self.facts.queue_entries_max = capabilities.queue_entries_max.saturating_add(1);
                self.wishes.command_sets = if capabilities.command_sets { ALL_COMMAND_SETS } else { 0 };
                let patience_ms = u64::from(capabilities.timeout) * 500;
                self.ready_by = Some((now + Span::from_millis(patience_ms.max(500)), patience_ms.max(500)));
                self.go(Stage::Enable);
            }
            Stage::Enable => self.go(Stage::AwaitReady),
            Stage::AwaitReady => {
                let status = ControllerStatus::decode(completion.result as u32);
                match self.ready_by {
                    Some((_, patience_ms)) if status.fatal => return Err(HostError::NotReady(patience_ms)),
                    _ if status.ready => self.go(Stage::Controller),
                    Some((by, patience_ms)) if by <= now => return Err(HostError::NotReady(patience_ms)),
                    _ => self.go(Stage::AwaitReady),
                }
            }
            Stage::Controller => {
                let Ok(controller) = IdentifyController::read_from_bytes(&self.page) else {
                    return nonsense();
                };
                self.facts.take(&controller);
                let asks = self.wishes.questions.chunks && self.facts.tells_commands;
                self.go(if asks { Stage::Commands } else { Stage::NamespaceList });
            }
            Stage::Commands => {
                self.facts.takes.chunks = completion.status.is_success() && takes_chunks(&self.page);
                self.go(Stage::NamespaceList);
            }
            Stage::NamespaceList => {
                let page: Result<&[u8; IDENTIFY_SIZE_BYTES], _> = self.page.as_slice().try_into();
                let Some(ids) = page.ok().and_then(|page| parse_namespace_list(page).ok()) else {
                    return nonsense();
                };
                self.namespace_ids = ids;
                self.facts.namespaces.clear();
                self.go_namespace(0);
            }
            Stage::Namespace(number) => {
                let Some(namespace) = NamespaceFacts::of(self.namespace_ids[number], &self.page) else {
                    return nonsense();
                };
                self.facts.namespaces.push(namespace);
                self.namespace_page.clone_from(&self.page);
                self.go(Stage::Descriptors(number));
            }
            Stage::Descriptors(number) => {
                let page: Result<&[u8; IDENTIFY_SIZE_BYTES], _> = self.page.as_slice().try_into();
                let list = page.ok().and_then(|page| parse_namespace_descriptors(page).ok());
                let told = list.unwrap_or_default().into_iter().find(|(kind, _)| *kind == NIDT_COMMAND_SET);
                let command_set = told.map_or(CSI_NVM, |(_, set)| set[0]);
                if let Some(namespace) = self.facts.namespaces.last_mut() {
                    namespace.command_set = command_set;
                }
                if command_set == CSI_ZONED {
                    self.go(Stage::Zones(number));
                } else if command_set == CSI_NVM && self.facts.takes.chunks {
                    self.go(Stage::Chunks(number));
                } else {
                    self.go_namespace(number + 1);
                }
            }
            Stage::Chunks(number) => {
                // Other namespaces of its subsystem have none, and say so.
                let is_told = completion.status.is_success();
                let nsid = self.namespace_ids[number];
                if let Some(namespace) = self.facts.namespaces.last_mut().filter(|_| is_told) {
                    namespace.chunked = ChunkedNamespace::of(nsid, &self.page).ok();
                }
                self.go_namespace(number + 1);
            }
            Stage::Zones(number) => {
                let zoned = ZonedNamespace::new(self.namespace_ids[number], &self.namespace_page, &self.page);
                if let Some(namespace) = self.facts.namespaces.last_mut() {
                    namespace.zoned = zoned.ok();
                }
                self.go_namespace(number + 1);
            }
            Stage::Queues => {
                let given = completion.result as u32;
                let given = (given & 0xFFFF).min(given >> 16) as u16;
                self.facts.io_queues = given.saturating_add(1).min(self.wishes.io_queues);
                self.go(if self.wishes.questions.health { Stage::Health } else { Stage::Ready });
            }
            Stage::Health => {
                self.health = SmartLog::read_from_bytes(&self.page).ok();
                self.go(Stage::Ready);
            }
            Stage::Disable => {
                self.ready_by = self.ready_by.map(|(_, ms)| (now + Span::from_millis(ms), ms));
                self.go(Stage::AwaitNotReady);
            }
            Stage::AwaitNotReady => {
                let status = ControllerStatus::decode(completion.result as u32);
                match self.ready_by {
                    _ if !status.ready => self.go(Stage::Enable),
                    Some((by, patience_ms)) if by <= now => return Err(HostError::NotReady(patience_ms)),
                    _ => self.go(Stage::AwaitNotReady),
                }
            }
            Stage::ShuttingDown => self.go(Stage::AwaitShutDown),
            Stage::AwaitShutDown => {
                let status = ControllerStatus::decode(completion.result as u32);
                let is_down = status.shutdown == shutdown::COMPLETE;
                self.has_failed |= is_down && status.fatal;
                self.go(if is_down { Stage::Down } else { Stage::AwaitShutDown });
            }
            Stage::Connecting | Stage::Ready | Stage::Down => unreachable!("returned above"),
        }
        Ok(())
    }

    fn go_namespace(&mut self, number: usize) {
        self.go(if number < self.namespace_ids.len() { Stage::Namespace(number) } else { Stage::Queues });
    }
}

fn log_page(page: u8, nsid: u32, len_bytes: usize) -> SubmissionEntry {
    let code = opcode::admin::GET_LOG_PAGE;
    let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..SubmissionEntry::default() };
    GetLogPage::of(page, len_bytes as u64).encode(&mut entry);
    entry
}
