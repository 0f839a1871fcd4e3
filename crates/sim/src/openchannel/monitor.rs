//! A host of the same chunks over NVMe/TCP, when nothing else is under way: it waits for events and reads the chunk notification log, reads with
//! media feedback on and off, and sanitizes. What that says is compared with what the device did.

use crate::scene::Server;
use diecut_initiator::openchannel::{Notification, OpenChannel, Request};
use diecut_initiator::{Admin, Collect, Completion, QueuePair, QueueParameters, Token};
use diecut_nvme::admin::{AsynchronousEvent, GetLogPage};
use diecut_nvme::log_page::lid;
use diecut_nvme::openchannel::{ChunkNotification, LOG_ENTRIES_MAX, lid as chunk_lid};
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, action};
use diecut_nvme::{QualifiedName, SubmissionEntry, opcode::admin as opcode};
use diecut_shard::drive::{ConnectionId, Event};
use diecut_units::{Buffer, Span};
use zerocopy::FromBytes;

const NSID: u32 = 1;
const ADMIN: ConnectionId = ConnectionId(0);
const IO: ConnectionId = ConnectionId(1);
const EVENT: Token = Token(1 << 60);
/// Turns in which a command is answered, at most.
const TURNS_MAX: u32 = 100_000;

/// How a sanitize is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitized {
    GoesOn,
    Done,
    Failed,
}

/// See the module. One of each life of the server.
pub struct Monitor {
    admin: Admin,
    io: Option<QueuePair>,
    received: Collect,
    next: u64,
    /// A request for events is with the controller.
    is_armed: bool,
    /// It was told of entries of the log.
    was_told: bool,
    /// Count of the entry that it read last.
    count: u64,
    open: Option<OpenChannel>,
}

/// The subsystem of the chunks.
pub fn subsystem() -> QualifiedName {
    QualifiedName::new("nqn.2026-11.org.diecut:chunks").expect("a short name")
}

impl Monitor {
    /// One that is connected. `before`: the one of the life before, which knows the geometry: that is not told while all is sanitized.
    pub fn connect(server: &mut Server, before: Option<Monitor>) -> Result<Monitor, String> {
        let own = QualifiedName::new("nqn.2014-08.org.nvmexpress:uuid:monitor").expect("a short name");
        let mut monitor = Monitor {
            admin: Admin::new(QueueParameters::admin(own, [7; 16], subsystem()), 1),
            io: None,
            received: Collect::default(),
            next: 0,
            is_armed: false,
            was_told: false,
            count: 0,
            open: before.and_then(|before| before.open),
        };
        server.tell(Event::Accepted { connection: ADMIN, local: None });
        monitor.turn_until(server, |monitor| monitor.admin.facts().is_some())?;
        monitor.io = Some(QueuePair::new(monitor.admin.io_queue(1, 8)));
        server.tell(Event::Accepted { connection: IO, local: None });
        monitor.turn_until(server, |monitor| monitor.io.as_ref().is_some_and(QueuePair::is_ready))?;
        if monitor.open.is_none() {
            let (_, geometry) = monitor.ask(server, OpenChannel::ask_geometry(NSID), false)?;
            monitor.open = Some(OpenChannel::new(NSID, &geometry).map_err(|error| error.to_string())?);
        }
        monitor.arm(server)?;
        Ok(monitor)
    }

    fn open(&self) -> &OpenChannel {
        self.open.as_ref().expect("it is connected")
    }

    /// Carries what it and the server have for each other.
    pub fn carry(&mut self, server: &mut Server) -> Result<(), String> {
        loop {
            let mut is_moved = false;
            let bytes = self.admin.output().to_vec();
            self.admin.sent(bytes.len());
            let own =
                [(ADMIN, bytes), (IO, self.io.as_ref().map_or_else(Vec::new, |io| io.output().to_vec()))];
            if let Some(io) = &mut self.io {
                io.sent(own[1].1.len());
            }
            for (connection, bytes) in own.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
                server.tell(Event::Received { connection, bytes: Buffer::copy_from(&bytes) });
                is_moved = true;
            }
            while let Some(bytes) = server.output_of(ADMIN) {
                self.admin
                    .receive(&bytes, server.now, &mut self.received)
                    .map_err(|error| error.to_string())?;
                is_moved = true;
            }
            if let Some(io) = &mut self.io {
                while let Some(bytes) = server.output_of(IO) {
                    io.receive(&bytes, &mut self.received).map_err(|error| error.to_string())?;
                    is_moved = true;
                }
            }
            if !is_moved {
                return self.hear();
            }
        }
    }

    /// Takes events.
    fn hear(&mut self) -> Result<(), String> {
        let Some(event) = self.take(EVENT) else { return Ok(()) };
        self.is_armed = false;
        match AsynchronousEvent::decode(event.result as u32) {
            AsynchronousEvent::CHUNK_NOTIFICATION if self.was_told => {
                Err("a host is told of chunks twice, and did not read the log between".to_owned())
            }
            AsynchronousEvent::CHUNK_NOTIFICATION => {
                self.was_told = true;
                Ok(())
            }
            // Others are of the flash as a whole, and of sanitizes.
            _ => Ok(()),
        }
    }

    fn take(&mut self, token: Token) -> Option<Completion> {
        let at = self.received.completions.iter().position(|one| one.token == token)?;
        Some(self.received.completions.remove(at))
    }

    fn turn_until(&mut self, server: &mut Server, is_over: impl Fn(&Monitor) -> bool) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.carry(server)?;
            if is_over(self) {
                return Ok(());
            }
            self.turn(server)?;
        }
        Err("a host of chunks is never answered".to_owned())
    }

    fn turn(&mut self, server: &mut Server) -> Result<(), String> {
        match server.turn() {
            Some(completions) if !completions.is_empty() => Err(format!("nobody asked: {completions:?}")),
            Some(_) => self.carry(server),
            None => {
                server.now += Span::from_millis(1);
                Ok(())
            }
        }
    }

    /// Lets so much time pass, and asks for something then: the server looks after chunks while somebody does.
    pub fn wait(&mut self, server: &mut Server, span: Span) -> Result<(), String> {
        let until = server.now + span;
        while server.now < until {
            match server.turn() {
                Some(completions) if !completions.is_empty() => {
                    return Err(format!("nobody asked: {completions:?}"));
                }
                Some(_) => self.carry(server)?,
                None => server.now = until,
            }
        }
        self.sanitize_log(server).map(|_| ())
    }

    /// Has a command carried out.
    fn ask(
        &mut self,
        server: &mut Server,
        request: Request,
        is_io: bool,
    ) -> Result<(Completion, Vec<u8>), String> {
        self.next += 1;
        let token = Token(self.next);
        let Request { entry, data, expected_bytes, .. } = request;
        match self.io.as_mut().filter(|_| is_io) {
            Some(io) => {
                io.submit_entry(token, entry, data, expected_bytes);
            }
            None => self.admin.submit_entry(token, entry, data, expected_bytes),
        }
        self.turn_until(server, |monitor| monitor.received.completions.iter().any(|one| one.token == token))?;
        let completion = self.take(token).expect("just found");
        if !is_io && !completion.status.is_success() {
            return Err(format!("{entry:?}: {}", completion.status));
        }
        Ok((completion, self.received.data.remove(&token).unwrap_or_default()))
    }

    fn admin(
        &mut self,
        server: &mut Server,
        entry: SubmissionEntry,
        expected_bytes: u32,
    ) -> Result<Vec<u8>, String> {
        let request = Request { entry, data: None, expected_bytes, effect: Default::default() };
        Ok(self.ask(server, request, false)?.1)
    }

    /// Asks for the next event, if it has not.
    fn arm(&mut self, server: &mut Server) -> Result<(), String> {
        if !self.is_armed {
            self.is_armed = true;
            let entry =
                SubmissionEntry { opcode: opcode::ASYNCHRONOUS_EVENT_REQUEST, ..SubmissionEntry::default() };
            self.admin.submit_entry(EVENT, entry, None, 0);
        }
        self.carry(server)
    }

    /// Reads up to `entries` entries of the chunk notification log, if it was told of some, and says what they are; the log has no others
    /// of which nobody told. Whether some went before it read them.
    pub fn read_log(
        &mut self,
        server: &mut Server,
        entries: usize,
    ) -> Result<(Vec<Notification>, bool), String> {
        // Another event may have taken its place: this one is answered before the log of sanitizes is.
        self.arm(server)?;
        self.sanitize_log(server)?;
        if !self.was_told {
            return Ok((Vec::new(), false));
        }
        let length_bytes = (entries * ChunkNotification::SIZE_BYTES) as u64;
        let page = |retain_event: bool| {
            let mut entry =
                SubmissionEntry { opcode: opcode::GET_LOG_PAGE, nsid: NSID.into(), ..Default::default() };
            let log = GetLogPage::of(chunk_lid::CHUNK_NOTIFICATION, length_bytes);
            GetLogPage { retain_event, ..log }.encode(&mut entry);
            entry
        };
        // One that is only looked at stays as it is.
        let before = self.admin(server, page(true), length_bytes as u32)?;
        // Who reads it may be told again at once.
        self.was_told = false;
        let bytes = self.admin(server, page(false), length_bytes as u32)?;
        if !bytes.starts_with(&before) {
            return Err("entries of the log go though its event is retained".to_owned());
        }
        self.arm(server)?;
        let told = self.open().notifications(&bytes).map_err(|error| error.to_string())?;
        if told.is_empty() {
            return Err("a host is told of chunks, and the log has no entry".to_owned());
        }
        let mut have_gone = false;
        for (one, place) in told.iter().zip(1..) {
            // The oldest of those that are too many go, and nothing else.
            have_gone |= place == 1 && one.count > self.count + 1 && one.count > LOG_ENTRIES_MAX as u64;
            if one.count != self.count + 1 && !(place == 1 && have_gone) {
                return Err(format!("entry {} of the log follows {}", one.count, self.count));
            }
            self.count = one.count;
        }
        Ok((told, have_gone))
    }

    /// Sets media feedback for it.
    pub fn set_feedback(&mut self, server: &mut Server, is_on: bool) -> Result<(), String> {
        let request = self.open().set_feedback(is_on);
        self.ask(server, request, false).map(|_| ())
    }

    /// Reads a run of a chunk by a vector command. How it ended, and what it brought.
    pub fn read(
        &mut self,
        server: &mut Server,
        (chunk, first, count): (u32, u32, u32),
    ) -> Result<(Completion, Vec<u8>), String> {
        let request = self.open().read(chunk, first, count, 8).map_err(|error| error.to_string())?;
        self.ask(server, request, true)
    }

    /// Begins a sanitize, or leaves the failure of one.
    pub fn sanitize(&mut self, server: &mut Server, leaves_failure: bool) -> Result<(), String> {
        let mut entry = SubmissionEntry { opcode: opcode::SANITIZE, ..SubmissionEntry::default() };
        let action = if leaves_failure { action::EXIT_FAILURE_MODE } else { action::BLOCK_ERASE };
        Sanitize { action, unrestricted: true, ..Sanitize::default() }.encode(&mut entry);
        self.admin(server, entry, 0).map(|_| ())
    }

    /// How the sanitize is that was begun, also before the server went.
    pub fn sanitized(&mut self, server: &mut Server) -> Result<Sanitized, String> {
        match self.sanitize_log(server)?.sstat.get() & 7 {
            1 => Ok(Sanitized::Done),
            2 => Ok(Sanitized::GoesOn),
            3 => Ok(Sanitized::Failed),
            state => Err(format!("a sanitize that was answered has the state {state}")),
        }
    }

    fn sanitize_log(&mut self, server: &mut Server) -> Result<SanitizeLog, String> {
        let size_bytes = size_of::<SanitizeLog>() as u64;
        let mut entry = SubmissionEntry { opcode: opcode::GET_LOG_PAGE, ..SubmissionEntry::default() };
        GetLogPage::of(lid::SANITIZE_STATUS, size_bytes).encode(&mut entry);
        let page = self.admin(server, entry, size_bytes as u32)?;
        SanitizeLog::read_from_bytes(&page).map_err(|_| "a page of another length".to_owned())
    }
}
