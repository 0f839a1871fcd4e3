use crate::claim::{Claim, ClaimKind, Key, Next};
use crate::error::RemoteError;
use crate::facts::{Learned, RemoteFacts, RemoteParameters};
use crate::look::{Found, Look, Looking, Question};
use crate::stream::Stream;
use crate::work::{Ended, Limits, Works};
use diecut_initiator::{Admin, Completion, Questions, QueuePair, QueueParameters, Sink, Token};
use diecut_media::{Intent, IntentDone, IntentError};
use diecut_nvme::Status;
use diecut_units::{Span, Time, mark};

/// Kept writes beyond this are flushed though nobody asked.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// The token of commands of a claim and of a look; pieces of intents have their places.
const OWN: Token = Token(1 << 32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No stream; the next try is at [`RemoteDrive::retry_at`].
    Down,
    /// The admin queue comes up.
    Admin,
    /// The I/O queue comes up.
    Queue,
    /// The namespace is claimed.
    Claim,
    /// It is asked what it is like now.
    Look,
    Up,
    /// It is given up.
    Release,
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
    /// RESCAP, where it takes reservations.
    reservations: Option<u8>,
    works: Works,
    /// Intents that came before the first connection.
    early: Vec<Intent>,
    report: Vec<u8>,
    claim: Claim,
    look: Look,
    /// Questions that are under way.
    looking: Option<Looking>,
    /// Connections so far.
    connections: u32,
    was_up: bool,
    error: Option<RemoteError>,
    /// When bytes came last.
    heard_at: Time,
    retry_at: Time,
    /// The pause before the try after the next one.
    pause: Span,
    /// Since when nothing is answered.
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
        if token == OWN {
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

/// Whether a command is asked again, because not the namespace but the way to it failed: status code type 3h, or what the target says it cannot do now.
fn is_of_path(status: Status) -> bool {
    let for_now =
        [Status::NAMESPACE_NOT_READY, Status::COMMAND_INTERRUPTED, Status::TRANSIENT_TRANSPORT_ERROR];
    status.code_and_type() >> 8 == 3 || for_now.iter().any(|one| status.same_code(*one))
}

/// Whether there is no room for what was written: the target has none, or closed the chunk. A chunk that is closed can be reset; one that is offline says so.
fn takes_no_more(status: Status) -> bool {
    let of = [Status::CAPACITY_EXCEEDED, Status::CHUNK_EARLY_CLOSE, Status::OUT_OF_ORDER_WRITE];
    of.iter().any(|one| status.same_code(*one))
}

impl RemoteDrive {
    /// A drive that nobody is connected to yet.
    ///
    /// # Panics
    /// If there is no server or no depth.
    pub fn new(parameters: RemoteParameters, now: Time) -> RemoteDrive {
        assert!(parameters.server != 0 && parameters.depth > 0, "a claim has a key, and a queue room");
        RemoteDrive {
            claim: Claim::new(parameters.kind, Key(0)),
            connections: 0,
            pause: parameters.pause,
            facts: parameters.known.clone(),
            parameters,
            phase: Phase::Down,
            admin: None,
            io: None,
            limits: None,
            reservations: None,
            works: Works::default(),
            early: Vec::new(),
            report: Vec::new(),
            look: Look::default(),
            looking: None,
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

    /// Asks how its zones are now. It is up again when that is told.
    ///
    /// # Panics
    /// If it is not up, or something is under way.
    pub fn look_at_zones(&mut self) {
        assert!(self.phase == Phase::Up && self.is_idle(), "zones are looked at while nobody writes");
        self.go_look();
    }

    /// How the namespace answered the last command that failed.
    pub fn last_failure(&self) -> Option<Status> {
        self.works.last_failure
    }

    /// Whether commands go through now.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Why it is gone, or why the last try failed.
    pub fn error(&self) -> Option<&RemoteError> {
        self.error.as_ref()
    }

    /// Since when nothing is answered, if it is to come back.
    pub fn away_since(&self) -> Option<Time> {
        self.lost_since
    }

    /// Key of somebody else that holds the namespace, where it was only looked at.
    pub fn held_by(&self) -> Option<u64> {
        self.claim.held_by()
    }

    /// Whether nothing is under way or waits.
    pub fn is_idle(&self) -> bool {
        self.early.is_empty() && self.works.is_idle()
    }

    /// Gives up the namespace. It is gone when that is done.
    ///
    /// # Panics
    /// If it is not up.
    pub fn release(&mut self) {
        assert!(self.phase == Phase::Up, "what is not claimed is not given up");
        self.phase = Phase::Release;
        self.go_claim(Claim::release(self.parameters.key(self.connections)));
    }

    /// Whether it is gone because it was given up ([`RemoteDrive::release`]).
    pub fn is_released(&self) -> bool {
        self.phase == Phase::Gone && self.error.is_none()
    }

    /// What it was made with.
    pub fn parameters(&self) -> &RemoteParameters {
        &self.parameters
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
                self.connections = self.connections.wrapping_add(1);
                let host_id = self.parameters.host_id(self.connections);
                let RemoteParameters { host, subsystem, keep_alive, .. } = self.parameters.clone();
                let admin = QueueParameters::admin(host, host_id, subsystem);
                let keep_alive_ms = u32::try_from(keep_alive.0 / 1_000_000).unwrap_or(u32::MAX);
                let admin = Admin::new(QueueParameters { keep_alive_ms, ..admin }, 1);
                let health = self.parameters.kind == ClaimKind::Look;
                self.admin = Some(admin.asking(Questions { health, chunks: true }));
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
    pub fn closed(&mut self, stream: Stream, now: Time) {
        // One that was given up already, because of the other one, is no news.
        if self.keeps(stream) || self.wants(now) == Some(stream) {
            self.lose(now);
        }
    }

    /// Whether a stream that is open is still of use.
    pub fn keeps(&self, stream: Stream) -> bool {
        match stream {
            Stream::Admin => self.admin.is_some(),
            Stream::Io => self.io.is_some(),
        }
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
        let mut taken = Taken { works: &mut self.works, report: &mut self.report, completions: Vec::new() };
        admin.receive(bytes, now, &mut taken)?;
        let completions = taken.completions;
        if self.phase == Phase::Admin
            && let Some(facts) = admin.facts()
        {
            let nsid = self.parameters.nsid;
            let Learned { facts: learned, reservations, look } = Learned::of(facts, &self.parameters)?;
            // I-Q6.
            let what = self.facts.as_ref().map_or(String::new(), |before| learned.differences(before));
            if !what.is_empty() {
                return Err(RemoteError::OtherNamespace { nsid, what });
            }
            self.limits = Some(Limits::of(&learned, look.chunked, nsid, facts.transfer_bytes_max));
            let learned = RemoteFacts { health: admin.health().cloned(), ..learned };
            (self.facts, self.reservations, self.look) = (Some(learned), reservations, look);
            self.phase = Phase::Queue;
        }
        for completion in completions {
            self.completed(completion, now)?;
        }
        self.pump();
        Ok(())
    }

    fn received_io(&mut self, bytes: &[u8], now: Time) -> Result<(), RemoteError> {
        let Some(io) = &mut self.io else { return Ok(()) };
        let mut taken = Taken { works: &mut self.works, report: &mut self.report, completions: Vec::new() };
        io.receive(bytes, &mut taken)?;
        let completions = taken.completions;
        if self.phase == Phase::Queue && io.is_ready() {
            if self.reservations.is_some() {
                self.phase = Phase::Claim;
                self.go_claim(Claim::new(self.parameters.kind, self.parameters.key(self.connections)));
            } else {
                self.go_look();
            }
        }
        for completion in completions {
            self.completed(completion, now)?;
        }
        self.pump();
        Ok(())
    }

    fn go_claim(&mut self, claim: Claim) {
        let limits = self.limits.expect("I-Q3: it is known what is claimed");
        let (entry, data, expected_bytes) =
            claim.ask(limits.nsid, self.reservations.unwrap_or(0), limits.transfer_bytes_max);
        self.claim = claim;
        self.report.clear();
        let io = self.io.as_mut().expect("I-Q3: a claim goes over a queue");
        io.submit_entry(OWN, entry, data, expected_bytes);
    }

    /// The namespace is claimed: nobody moves its write pointers any more.
    fn go_look(&mut self) {
        let limits = self.limits.expect("I-Q3: it is known what is claimed");
        let looking = self.looking.get_or_insert_with(|| Looking::new(self.look, limits.lba_bytes));
        let Some(question) = looking.ask(limits.nsid, limits.transfer_bytes_max) else {
            return self.come_up();
        };
        self.phase = Phase::Look;
        self.report.clear();
        let Question { stream, entry, data, expected_bytes } = question;
        match (stream, &mut self.admin, &mut self.io) {
            (Stream::Admin, Some(admin), _) => admin.submit_entry(OWN, entry, data, expected_bytes),
            (Stream::Io, _, Some(io)) => drop(io.submit_entry(OWN, entry, data, expected_bytes)),
            _ => panic!("I-Q3: a look comes over a queue"),
        }
    }

    fn look_answered(&mut self, status: Status) -> Result<(), RemoteError> {
        let told = self.looking.as_mut().map_or(Ok(()), |looking| looking.take(status, &self.report));
        told.map_err(|what| RemoteError::Zones { nsid: self.parameters.nsid, what })?;
        self.go_look();
        Ok(())
    }

    fn come_up(&mut self) {
        mark!("remote: namespace claimed");
        self.phase = Phase::Up;
        self.was_up = true;
        let limits = self.limits.expect("I-Q3: it is known what is claimed");
        if let (Some(looking), Some(facts)) = (self.looking.take(), &mut self.facts) {
            let Found { pids, zones } = looking.into_found();
            facts.handles = pids.handles();
            self.works.settle(&zones, &limits);
            self.works.pids = pids;
            if let Some(of) = &mut facts.zones {
                of.zones = zones;
            }
        }
        for intent in std::mem::take(&mut self.early) {
            self.works.begin(intent.token, intent.work, &limits);
        }
        if self.works.is_idle() {
            self.goes_well();
        }
    }

    /// The target does what it is asked for.
    fn goes_well(&mut self) {
        (self.lost_since, self.error, self.pause) = (None, None, self.parameters.pause);
    }

    fn claim_answered(&mut self, status: Status) -> Result<(), RemoteError> {
        let nsid = self.parameters.nsid;
        let mut claim = self.claim.clone();
        match claim.answered(status, &self.report) {
            Next::Ask => self.go_claim(claim),
            Next::Done => {
                self.claim = claim;
                self.go_look();
            }
            Next::Released => {
                (self.admin, self.io, self.phase) = (None, None, Phase::Gone);
                self.lost_since = None;
            }
            Next::Held(_) if self.was_up => return Err(RemoteError::TakenOver(nsid)),
            Next::Held(key) => return Err(RemoteError::Held { nsid, key }),
            Next::Failed(what, status) => return Err(RemoteError::Claim { nsid, what, status }),
        }
        Ok(())
    }

    fn completed(&mut self, completion: Completion, now: Time) -> Result<(), RemoteError> {
        let Completion { token, status, .. } = completion;
        if token == OWN {
            match self.phase {
                _ if is_of_path(status) => self.lose(now),
                Phase::Look => return self.look_answered(status),
                _ => return self.claim_answered(status),
            }
            return Ok(());
        }
        // The connection was given up for what came before.
        if self.phase != Phase::Up {
            return Ok(());
        }
        if is_of_path(status) {
            // The way to it, not the namespace.
            self.lose(now);
            return Ok(());
        }
        if [Status::RESERVATION_CONFLICT, Status::ABORTED_BY_PREEMPTION]
            .iter()
            .any(|one| status.same_code(*one))
        {
            return Err(RemoteError::TakenOver(self.parameters.nsid));
        }
        self.goes_well();
        if !status.is_success() {
            self.works.last_failure = Some(status);
        }
        let ended = match status {
            status if status.is_success() => Ended::Well,
            status if takes_no_more(status) => Ended::Badly(IntentError::Full),
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
        let gives_up = self.parameters.gives_up_at(self.lost_since);
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
        }
        if self.phase != Phase::Gone && now >= self.parameters.gives_up_at(self.lost_since) {
            let seconds = self.parameters.patience.map_or(0, |patience| patience.0 / 1_000_000_000);
            let error = self.error.take().unwrap_or(RemoteError::Silent(seconds));
            self.give_up(error);
        }
    }

    /// The connection is lost, and is made again. What was sent goes out again (I-Q4).
    fn lose(&mut self, now: Time) {
        if self.phase == Phase::Gone {
            return;
        }
        if self.phase != Phase::Down {
            mark!("remote: connection lost");
            (self.admin, self.io, self.looking) = (None, None, None);
            self.phase = Phase::Down;
            self.lost_since = self.lost_since.or(Some(now));
            self.works.lost();
        }
        self.retry_at = now + self.pause;
        self.pause = Span(self.pause.0.saturating_mul(2)).min(self.parameters.pause_max);
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
