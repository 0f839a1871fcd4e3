use crate::claim::{Claim, Next, holder_key};
use crate::error::RemoteError;
use crate::work::{Ended, Limits, Works};
use diecut_initiator::{
    Admin, Completion, ControllerFacts, NamespaceFacts, QueuePair, QueueParameters, Sink, Token,
};
use diecut_media::{Intent, IntentDone, IntentError};
use diecut_nvme::{QualifiedName, Status};
use diecut_units::{Span, Time, mark, mutant};

/// Kept writes beyond this are flushed though nobody asked.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// The token of commands of a claim; pieces of intents have their places.
const CLAIM: Token = Token(1 << 32);

/// Which namespace, and as whom.
#[derive(Clone, Debug)]
pub struct RemoteParameters {
    /// NQN of this server as a host.
    pub host: QualifiedName,
    /// HOSTID of this server: reservations are kept under it.
    pub host_id: [u8; 16],
    /// NQN of the subsystem.
    pub subsystem: QualifiedName,
    /// NSID.
    pub nsid: u32,
    /// Commands under way at a time.
    pub depth: u16,
    /// Key of the reservation; not 0.
    pub key: u64,
    /// KATO: a target that says nothing for so long is not there.
    pub keep_alive: Span,
    /// How long is waited for a target that is not there, until the drive is gone.
    pub patience: Span,
    /// How long is waited between two tries.
    pub pause: Span,
}

/// What a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFacts {
    /// Its size.
    pub size_bytes: u64,
    /// Its LBAs.
    pub lba_bytes: u32,
    /// Whether only a flush makes writes durable.
    pub has_volatile_cache: bool,
    /// Whether it takes deallocations.
    pub takes_discard: bool,
    /// Model number of the controller.
    pub model: String,
    /// Serial number of the subsystem.
    pub serial: String,
    /// NGUID.
    pub nguid: [u8; 16],
}

/// One of the two streams to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The admin queue's.
    Admin,
    /// The I/O queue's.
    Io,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No stream; the next try is at [`RemoteDrive::retry_at`].
    Down,
    /// The admin queue comes up.
    Admin,
    /// The I/O queue comes up.
    Queue,
    /// The namespace is claimed.
    Claim(Claim),
    Up,
    Gone,
}

/// A namespace as a drive; see the crate's documentation.
///
/// A driver opens the stream that [`RemoteDrive::wants`] names, to the address of the target, and carries bytes. After anything that it told, it takes
/// [`RemoteDrive::output`] of both streams and [`RemoteDrive::end`], and calls [`RemoteDrive::tick`] at [`RemoteDrive::deadline`].
pub struct RemoteDrive {
    parameters: RemoteParameters,
    phase: Phase,
    admin: Option<Admin>,
    io: Option<QueuePair>,
    /// Of the first connection; later ones have the same.
    facts: Option<RemoteFacts>,
    limits: Option<Limits>,
    reservation_capabilities: u8,
    works: Works,
    /// Intents that came before the first connection.
    early: Vec<Intent>,
    report: Vec<u8>,
    holder_key: u64,
    was_up: bool,
    error: Option<RemoteError>,
    /// When bytes came last.
    heard_at: Time,
    retry_at: Time,
    /// Since when nobody is connected.
    lost_since: Option<Time>,
}

/// What came on the I/O queue.
struct Taken<'a> {
    works: &'a mut Works,
    report: &'a mut Vec<u8>,
    completions: Vec<Completion>,
}

impl Sink for Taken<'_> {
    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        if token == CLAIM {
            self.report.truncate(offset as usize);
            self.report.extend_from_slice(bytes);
        } else {
            self.works.data(token.0 as u32, offset, bytes);
        }
    }
    fn completed(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
}

/// Whether a command is asked again, because not the namespace but the way to it failed: status code type 3h.
fn is_of_path(status: Status) -> bool {
    status.code_and_type() >> 8 == 3
}

impl RemoteDrive {
    /// A drive that nobody is connected to yet.
    ///
    /// # Panics
    /// If the key or the depth is 0.
    pub fn new(parameters: RemoteParameters, now: Time) -> RemoteDrive {
        assert!(parameters.key != 0 && parameters.depth > 0, "a claim has a key, and a queue room");
        RemoteDrive {
            parameters,
            phase: Phase::Down,
            admin: None,
            io: None,
            facts: None,
            limits: None,
            reservation_capabilities: 0,
            works: Works::default(),
            early: Vec::new(),
            report: Vec::new(),
            holder_key: 0,
            was_up: false,
            error: None,
            heard_at: now,
            retry_at: now,
            lost_since: Some(now),
        }
    }

    /// What it is, once it was connected to.
    pub fn facts(&self) -> Option<&RemoteFacts> {
        self.facts.as_ref()
    }

    /// Whether commands go through now.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Why it is gone, or why the last try failed.
    pub fn error(&self) -> Option<&RemoteError> {
        self.error.as_ref()
    }

    /// Whether it is gone for good.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// The stream that the driver is to open now, and tell with [`RemoteDrive::opened`] or [`RemoteDrive::closed`].
    pub fn wants(&self, now: Time) -> Option<Stream> {
        match self.phase {
            Phase::Down if now >= self.retry_at => Some(Stream::Admin),
            Phase::Queue if self.io.is_none() => Some(Stream::Io),
            _ => None,
        }
    }

    /// A stream is open.
    pub fn opened(&mut self, stream: Stream, now: Time) {
        self.heard_at = now;
        match stream {
            Stream::Admin => {
                let RemoteParameters { host, host_id, subsystem, keep_alive, .. } = self.parameters.clone();
                let admin = QueueParameters::admin(host, host_id, subsystem);
                let keep_alive_ms = u32::try_from(keep_alive.0 / 1_000_000).unwrap_or(u32::MAX);
                self.admin = Some(Admin::new(QueueParameters { keep_alive_ms, ..admin }, 1));
                self.phase = Phase::Admin;
            }
            Stream::Io => {
                let admin = self.admin.as_ref().expect("I-Q3: the admin queue comes first");
                let entries = admin.facts().map_or(2, |facts| facts.queue_entries_max);
                let depth = self.parameters.depth.min(entries - 1).max(1);
                self.io = Some(QueuePair::new(admin.io_queue(1, depth)));
            }
        }
    }

    /// A stream could not be opened, or is closed.
    pub fn closed(&mut self, _stream: Stream, now: Time) {
        self.lose(now);
    }

    /// Bytes to send next.
    pub fn output(&self, stream: Stream) -> &[u8] {
        match stream {
            Stream::Admin => self.admin.as_ref().map_or(&[], Admin::output),
            Stream::Io => self.io.as_ref().map_or(&[], QueuePair::output),
        }
    }

    /// So many bytes of the output were sent.
    pub fn sent(&mut self, stream: Stream, len_bytes: usize) {
        match stream {
            Stream::Admin => self.admin.as_mut().expect("it had output").sent(len_bytes),
            Stream::Io => self.io.as_mut().expect("it had output").sent(len_bytes),
        }
    }

    /// Takes bytes of a stream. Those of one that was given up are dropped.
    pub fn received(&mut self, stream: Stream, bytes: &[u8], now: Time) {
        self.heard_at = now;
        let result = match stream {
            Stream::Admin => self.received_admin(bytes, now),
            Stream::Io => self.received_io(bytes, now),
        };
        if let Err(error) = result {
            self.trouble(error, now);
        }
    }

    fn received_admin(&mut self, bytes: &[u8], now: Time) -> Result<(), RemoteError> {
        let Some(admin) = &mut self.admin else { return Ok(()) };
        admin.receive(bytes, now, &mut Vec::new())?;
        if self.phase == Phase::Admin
            && let Some(facts) = admin.facts()
        {
            let facts = facts.clone();
            self.learn(&facts)?;
            self.phase = Phase::Queue;
        }
        Ok(())
    }

    /// Looks at what the target has. Later connections find the same namespace, or none is used.
    fn learn(&mut self, controller: &ControllerFacts) -> Result<(), RemoteError> {
        let nsid = self.parameters.nsid;
        let namespace = controller.namespaces.iter().find(|namespace| namespace.nsid == nsid);
        let NamespaceFacts { size_lbas, lba_bytes, reservation_capabilities, nguid, .. } =
            *namespace.ok_or(RemoteError::NoNamespace(nsid))?;
        if !matches!(lba_bytes, 512 | 4096) {
            return Err(RemoteError::LbaSize { nsid, lba_bytes });
        }
        if !controller.takes_reservations || reservation_capabilities == 0 {
            return Err(RemoteError::NoReservations(nsid));
        }
        let facts = RemoteFacts {
            size_bytes: size_lbas * u64::from(lba_bytes),
            lba_bytes,
            has_volatile_cache: controller.has_volatile_cache,
            takes_discard: controller.takes_deallocations,
            model: controller.model.clone(),
            serial: controller.serial.clone(),
            nguid,
        };
        if self.facts.as_ref().is_some_and(|before| *before != facts) {
            return Err(RemoteError::OtherNamespace(nsid));
        }
        // NLB has 16 bits.
        let lbas_max = (controller.transfer_bytes_max / lba_bytes).clamp(1, 1 << 16);
        let keeps = facts.has_volatile_cache && !mutant!("remote: what was not flushed is not kept");
        self.limits = Some(Limits {
            nsid,
            lba_bytes,
            transfer_bytes_max: lbas_max * lba_bytes,
            takes_deallocate: facts.takes_discard,
            keeps,
        });
        self.reservation_capabilities = reservation_capabilities;
        self.facts = Some(facts);
        Ok(())
    }

    fn received_io(&mut self, bytes: &[u8], now: Time) -> Result<(), RemoteError> {
        let Some(io) = &mut self.io else { return Ok(()) };
        let mut taken = Taken { works: &mut self.works, report: &mut self.report, completions: Vec::new() };
        io.receive(bytes, &mut taken)?;
        let completions = taken.completions;
        if self.phase == Phase::Queue && io.is_ready() {
            self.claim(Claim::Register);
        }
        for completion in completions {
            self.completed(completion, now)?;
        }
        self.pump();
        Ok(())
    }

    fn claim(&mut self, step: Claim) {
        let RemoteParameters { nsid, key, .. } = self.parameters;
        let (entry, data, expected_bytes) =
            step.ask(nsid, key, self.holder_key, self.reservation_capabilities);
        self.phase = Phase::Claim(step);
        self.report.clear();
        let io = self.io.as_mut().expect("I-Q3: a claim goes over a queue");
        io.submit_entry(CLAIM, entry, data, expected_bytes);
    }

    fn completed(&mut self, completion: Completion, now: Time) -> Result<(), RemoteError> {
        let Completion { token, status, .. } = completion;
        let nsid = self.parameters.nsid;
        if let (CLAIM, Phase::Claim(step)) = (token, self.phase) {
            let key = holder_key(&self.report);
            self.holder_key = key.unwrap_or(0);
            match step.answered(status, !self.was_up || mutant!("remote: a lost claim is taken back"), key) {
                Next::Step(step) => self.claim(step),
                Next::Done => {
                    mark!("remote: namespace claimed");
                    self.phase = Phase::Up;
                    (self.was_up, self.lost_since, self.error) = (true, None, None);
                    let limits = self.limits.expect("I-Q3: it is known what is claimed");
                    for intent in std::mem::take(&mut self.early) {
                        self.works.begin(intent.token, intent.work, &limits);
                    }
                }
                Next::Lost => return Err(RemoteError::Claimed(nsid)),
                Next::Failed(what, status) => return Err(RemoteError::Claim { nsid, what, status }),
            }
            return Ok(());
        }
        if is_of_path(status) {
            // The way to it, not the namespace.
            self.lose(now);
            return Ok(());
        }
        if status.same_code(Status::RESERVATION_CONFLICT) {
            return Err(RemoteError::Claimed(nsid));
        }
        let ended = match status {
            status if status.is_success() => Ended::Well,
            status if status.same_code(Status::CAPACITY_EXCEEDED) => Ended::Badly(IntentError::Full),
            _ => Ended::Badly(IntentError::Failed),
        };
        let keeps = self.limits.is_some_and(|limits| limits.keeps);
        self.works.ended(token.0 as u32, ended, keeps);
        Ok(())
    }

    /// Sends as many commands as the queue takes.
    fn pump(&mut self) {
        // I-Q1: nothing is sent before the claim.
        let (Phase::Up, Some(io), Some(limits)) = (self.phase, &mut self.io, &self.limits) else { return };
        if self.works.kept.bytes() > KEPT_MAX_BYTES {
            mark!("remote: what is kept is flushed");
            self.works.flush_kept();
        }
        while io.room() > 0
            && let Some((at, command)) = self.works.next(limits)
        {
            io.submit(Token(at.into()), command);
        }
    }

    /// Takes intents; none is left in the list.
    pub fn begin(&mut self, intents: &mut Vec<Intent>) {
        for intent in intents.drain(..) {
            match &self.limits {
                _ if self.phase == Phase::Gone => self.works.refuse(intent.token, intent.work),
                Some(limits) => self.works.begin(intent.token, intent.work, limits),
                None => self.early.push(intent),
            }
        }
        self.pump();
    }

    /// Takes the answers that there are.
    pub fn end(&mut self, done: &mut Vec<IntentDone>) {
        done.append(&mut self.works.done);
    }

    /// When [`RemoteDrive::tick`] has something to do.
    pub fn deadline(&self) -> Time {
        let gives_up = self.lost_since.map_or(Time::NEVER, |since| since + self.parameters.patience);
        match self.phase {
            Phase::Gone => Time::NEVER,
            Phase::Down => self.retry_at.min(gives_up),
            _ => {
                let silent = self.heard_at + self.parameters.keep_alive;
                let admin = self.admin.as_ref().map_or(Time::NEVER, Admin::deadline);
                silent.min(admin).min(gives_up)
            }
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Time) {
        if let Some(admin) = &mut self.admin {
            admin.tick(now);
        }
        let is_silent = !matches!(self.phase, Phase::Down | Phase::Gone)
            && now >= self.heard_at + self.parameters.keep_alive;
        if is_silent {
            mark!("remote: a target says nothing");
            self.lose(now);
            // It may have commands of the old connection yet. By then it has given that up, too: it hears nothing either.
            self.retry_at = self.retry_at.max(now + self.parameters.keep_alive);
        }
        if self.lost_since.is_some_and(|since| now >= since + self.parameters.patience) {
            let seconds = self.parameters.patience.0 / 1_000_000_000;
            let error = self.error.take().unwrap_or(RemoteError::Silent(seconds));
            self.give_up(error);
        }
    }

    /// The connection is lost, and is made again. What was sent goes out again (I-Q4).
    fn lose(&mut self, now: Time) {
        if matches!(self.phase, Phase::Down | Phase::Gone) {
            self.retry_at = self.retry_at.max(now + self.parameters.pause);
            return;
        }
        mark!("remote: connection lost");
        (self.admin, self.io) = (None, None);
        self.phase = Phase::Down;
        self.retry_at = now + self.parameters.pause;
        self.lost_since = self.lost_since.or(Some(now));
        self.works.lost();
    }

    /// What cannot be helped by another try ends it.
    fn trouble(&mut self, error: RemoteError, now: Time) {
        match error {
            // The target is being started, or has trouble: another try may find it well.
            RemoteError::Host(_) | RemoteError::NoNamespace(_) => {
                self.error = Some(error);
                self.lose(now);
            }
            _ => self.give_up(error),
        }
    }

    fn give_up(&mut self, error: RemoteError) {
        mark!("remote: drive given up");
        (self.admin, self.io) = (None, None);
        self.phase = Phase::Gone;
        self.lost_since = None;
        self.error = Some(error);
        for intent in std::mem::take(&mut self.early) {
            self.works.refuse(intent.token, intent.work);
        }
        self.works.give_up();
    }
}
