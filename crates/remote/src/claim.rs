//! How a namespace is claimed: by a reservation under which who registered writes, and nobody else (write exclusive, registrants only).
//!
//! Each connection is a host of its own to the target, with an identifier and a key that no other one has. The upper half of a key is the server's, and then
//! comes which of the connections that a server has at a time it is. What the report shows as this one of before is preempted, and its commands are
//! aborted, so that nothing that it still has at the target lands behind what comes now. The others of the server stay, and whoever of them holds the
//! reservation, all write. A reservation of somebody else is respected, unless it is to be taken over.

use diecut_nvme::reservation::{
    ACQUIRE, PERSISTENCE_STAYS, PERSISTS, PREEMPT_AND_ABORT, REGISTER, RESCAP_PERSIST, RegisteredController,
    ReservationCommand, ReservationKeys, ReservationKind, ReservationReport, ReservationStatus, UNREGISTER,
};
use diecut_nvme::{Status, SubmissionEntry, opcode::io as opcode};
use diecut_units::{Buffer, mutant};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a report that are asked for where the target sends so much at once: its head and 255 registrants, two for each of 127 parts (one of before).
const REPORT_MAX_BYTES: u32 = 16 << 10;

/// What is wanted of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// To read it only. Nothing is claimed.
    Look,
    /// To have it alone, unless somebody else has it.
    Own,
    /// To have it alone, whoever has it.
    TakeOver,
}

/// What a connection is called in reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub u64);

impl Key {
    /// The upper half is the server's. Then [`Key::PART_BITS`] say which of its connections it is, and the rest tells it from those of before.
    pub fn new(server: u32, part: u16, number: u32) -> Key {
        assert!(part <= PART_MAX, "part {part} of a server");
        let number = number & ((1 << Key::NUMBER_BITS) - 1);
        Key(u64::from(server) << 32 | u64::from(part) << Key::NUMBER_BITS | u64::from(number))
    }

    const PART_BITS: u32 = 9;
    const NUMBER_BITS: u32 = 32 - Key::PART_BITS;

    fn server(self) -> u64 {
        self.0 >> 32
    }

    fn part(self) -> u64 {
        self.0 >> Key::NUMBER_BITS & u64::from(PART_MAX)
    }

    /// Whether another one is of this server, and writes beside it.
    fn is_beside(self, other: Key) -> bool {
        let parts = [self, other].map(Key::part);
        self.server() == other.server() && parts[0] != parts[1] && !parts.contains(&0)
    }
}

/// The last part that a server can have.
pub const PART_MAX: u16 = (1 << Key::PART_BITS) - 1;

/// Who changes something between a report and what follows from it is asked about once more, so often.
const REPORTS_MAX: u8 = 8;

/// Which command of the claim is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Register,
    /// Who is there?
    Report,
    /// The last one of [`Claim::to_preempt`].
    Preempt,
    Acquire,
    /// Somebody else has it: no trace is left.
    Withdraw,
    /// It is given up.
    Release,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next command; see [`Claim::ask`].
    Ask,
    Done,
    /// It is given up, as was wished.
    Released,
    /// Somebody else has it, with this key.
    Held(u64),
    Failed(&'static str, Status),
}

/// A command: the entry, what it carries, and what it brings at most.
pub(crate) type Ask = (SubmissionEntry, Option<Buffer>, u32);

/// A claim of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    kind: ClaimKind,
    key: Key,
    step: Step,
    to_preempt: Vec<u64>,
    /// Key of somebody else that holds it.
    held_by: Option<u64>,
    /// Another connection of this server holds it, and goes on.
    is_held_beside: bool,
    /// Reports so far.
    reports: u8,
}

impl Claim {
    pub fn new(kind: ClaimKind, key: Key) -> Claim {
        let step = if kind == ClaimKind::Look { Step::Report } else { Step::Register };
        let to_preempt = Vec::new();
        Claim { kind, key, step, to_preempt, held_by: None, is_held_beside: false, reports: 0 }
    }

    /// Gives up what was claimed.
    pub fn release(key: Key) -> Claim {
        Claim { step: Step::Release, ..Claim::new(ClaimKind::Own, key) }
    }

    /// Key of somebody else that holds it, where that was looked at.
    pub fn held_by(&self) -> Option<u64> {
        self.held_by
    }

    /// The command of this step, to a target that sends so much at once.
    pub fn ask(&self, nsid: u32, capabilities: u8, transfer_bytes_max: u32) -> Ask {
        let command = |opcode, command: ReservationCommand, current: u64, other: u64| {
            let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), ..SubmissionEntry::default() };
            command.encode(&mut entry);
            let keys = ReservationKeys { current: current.into(), other: other.into() };
            (entry, Some(Buffer::copy_from(keys.as_bytes())), 0)
        };
        let kind = ReservationKind::WriteExclusiveRegistrantsOnly as u8;
        let plain =
            ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: PERSISTENCE_STAYS };
        match self.step {
            Step::Register => {
                let persists = capabilities & RESCAP_PERSIST != 0;
                let persistence = if persists { PERSISTS } else { PERSISTENCE_STAYS };
                let register = ReservationCommand { action: REGISTER, persistence, ..plain };
                command(opcode::RESERVATION_REGISTER, register, 0, self.key.0)
            }
            Step::Withdraw | Step::Release => {
                let unregister = ReservationCommand { action: UNREGISTER, ..plain };
                command(opcode::RESERVATION_REGISTER, unregister, self.key.0, 0)
            }
            Step::Acquire => {
                let acquire = ReservationCommand { action: ACQUIRE, kind, ..plain };
                command(opcode::RESERVATION_ACQUIRE, acquire, self.key.0, 0)
            }
            Step::Preempt => {
                let preempt = ReservationCommand { action: PREEMPT_AND_ABORT, kind, ..plain };
                let of = *self.to_preempt.last().expect("a step for each of them");
                command(opcode::RESERVATION_ACQUIRE, preempt, self.key.0, of)
            }
            Step::Report => {
                let mut entry = SubmissionEntry {
                    opcode: opcode::RESERVATION_REPORT,
                    nsid: nsid.into(),
                    ..SubmissionEntry::default()
                };
                let length_bytes = REPORT_MAX_BYTES.min(transfer_bytes_max);
                ReservationReport { length_bytes: length_bytes.into(), extended: true }.encode(&mut entry);
                (entry, None, length_bytes)
            }
        }
    }

    /// The command of this step was answered; `report` is what a report brought.
    pub fn answered(&mut self, status: Status, report: &[u8]) -> Next {
        let conflict = status.same_code(Status::RESERVATION_CONFLICT);
        let failed = |what| Next::Failed(what, status);
        match self.step {
            Step::Withdraw => return Next::Held(self.held_by.unwrap_or(0)),
            Step::Release => return Next::Released,
            // Between the report and now somebody came, or is gone.
            Step::Preempt | Step::Acquire if conflict && self.reports < REPORTS_MAX => {
                self.to_preempt.clear();
                self.step = Step::Report;
            }
            Step::Preempt | Step::Acquire if conflict => return Next::Held(0),
            Step::Register if !status.is_success() => return failed("Reservation Register"),
            Step::Preempt if !status.is_success() => {
                return failed("Reservation Acquire (preempt and abort)");
            }
            Step::Acquire if !status.is_success() => return failed("Reservation Acquire"),
            Step::Report if !status.is_success() => return failed("Reservation Report"),
            Step::Acquire => return Next::Done,
            Step::Register => self.step = Step::Report,
            Step::Preempt => drop(self.to_preempt.pop()),
            Step::Report => self.take_report(report),
        }
        if self.kind == ClaimKind::Look {
            return Next::Done;
        }
        if self.step != Step::Report {
            self.step = match self.held_by {
                Some(_) if self.kind == ClaimKind::Own => Step::Withdraw,
                _ if !self.to_preempt.is_empty() => Step::Preempt,
                _ if self.is_held_beside => return Next::Done,
                _ => Step::Acquire,
            };
        }
        Next::Ask
    }

    fn take_report(&mut self, report: &[u8]) {
        self.reports += 1;
        (self.held_by, self.is_held_beside) = (None, false);
        for (key, holds) in registrants(report).filter(|(key, _)| *key != self.key) {
            // I-Q5.
            let is_ours = self.key.server() == key.server();
            let is_beside = self.key.is_beside(key) && !mutant!("remote: connections beside are preempted");
            if holds && !is_ours {
                self.held_by = Some(key.0);
            }
            self.is_held_beside |= holds && is_beside;
            let is_of_before =
                is_ours && !is_beside && !mutant!("remote: connections of before are not preempted");
            if is_of_before || self.kind == ClaimKind::TakeOver {
                self.to_preempt.push(key.0);
            }
        }
        self.to_preempt.dedup();
        // Anything but this one, for what follows.
        self.step = Step::Acquire;
    }
}

/// Keys of a report, and whether who has it holds the reservation.
fn registrants(report: &[u8]) -> impl Iterator<Item = (Key, bool)> {
    let (head, rest) = match ReservationStatus::read_from_prefix(report) {
        Ok((head, rest)) => (head, rest),
        Err(_) => (ReservationStatus::default(), &[][..]),
    };
    let registrants = rest.chunks_exact(size_of::<RegisteredController>()).take(head.regctl.get().into());
    let registrants = registrants.filter_map(|bytes| RegisteredController::read_from_bytes(bytes).ok());
    registrants.map(move |one| (Key(one.rkey.get()), head.rtype != 0 && one.rcsts & 1 != 0))
}

#[cfg(test)]
mod test {
    use super::*;

    const OURS: u64 = 0x11 << 32;
    const THEIRS: u64 = 0x22 << 32;

    fn report(of: &[(u64, bool)]) -> Vec<u8> {
        let rtype = u8::from(of.iter().any(|one| one.1));
        let head = ReservationStatus { rtype, regctl: (of.len() as u16).into(), ..Default::default() };
        let mut bytes = head.as_bytes().to_vec();
        for (key, holds) in of {
            let one = RegisteredController {
                rcsts: u8::from(*holds),
                rkey: (*key).into(),
                ..RegisteredController::default()
            };
            bytes.extend(one.as_bytes());
        }
        bytes.resize(REPORT_MAX_BYTES as usize, 0);
        bytes
    }

    /// Goal: bytes of each command are those of the specification. Method: words written by hand.
    #[test]
    fn the_words_of_a_claim() {
        let keys = |current: u64, other: u64| Some([current.to_le_bytes(), other.to_le_bytes()].concat());
        let ask = |step: Step, capabilities| {
            let claim = Claim { step, to_preempt: vec![0x22], ..Claim::new(ClaimKind::Own, Key(0x11)) };
            let (entry, data, expected) = claim.ask(7, capabilities, 4096);
            let data = data.map(|data| data.to_vec());
            (entry.opcode, entry.nsid.get(), entry.cdw10.get(), entry.cdw11.get(), data, expected)
        };
        assert_eq!(ask(Step::Register, RESCAP_PERSIST), (0x0d, 7, 3 << 30, 0, keys(0, 0x11), 0));
        assert_eq!(ask(Step::Register, 0).2, 0, "what cannot persist is not asked to");
        assert_eq!(ask(Step::Acquire, 0), (0x11, 7, 3 << 8, 0, keys(0x11, 0), 0));
        assert_eq!(ask(Step::Preempt, 0), (0x11, 7, 3 << 8 | 2, 0, keys(0x11, 0x22), 0));
        assert_eq!(ask(Step::Report, 0), (0x0e, 7, 1023, 1, None, 4096));
        assert_eq!(ask(Step::Release, 0), (0x0d, 7, 1, 0, keys(0x11, 0), 0));
        assert_eq!(ask(Step::Withdraw, 0), ask(Step::Release, 0));
    }

    /// The steps of a claim after its report, and how it ends.
    fn claimed(kind: ClaimKind, own: u64, of: &[(u64, bool)]) -> (Vec<Step>, Next) {
        let mut claim = Claim::new(kind, Key(own));
        let (report, mut steps) = (report(of), Vec::new());
        loop {
            match claim.answered(Status::SUCCESS, &report) {
                Next::Ask => steps.push(claim.step),
                end => return (steps, end),
            }
        }
    }

    /// Goal: connections of before are preempted, somebody else is respected, and who is to be taken over is not.
    #[test]
    fn who_is_there_says_what_follows() {
        use Step::{Acquire, Preempt, Report, Withdraw};
        let claimed = |kind, of: &[(u64, bool)]| claimed(kind, OURS + 5, of);
        let own = |of: &[(u64, bool)]| claimed(ClaimKind::Own, of);
        let mine = (OURS + 5, false);
        assert_eq!(own(&[mine]), (vec![Report, Acquire], Next::Done));
        let before = [(OURS + 1, true), mine, (OURS + 2, false), (THEIRS, false)];
        assert_eq!(own(&before), (vec![Report, Preempt, Preempt, Acquire], Next::Done));
        let theirs = [(THEIRS, true), (OURS + 1, false), mine];
        assert_eq!(own(&theirs), (vec![Report, Withdraw], Next::Held(THEIRS)));
        let taken = claimed(ClaimKind::TakeOver, &theirs);
        assert_eq!(taken, (vec![Report, Preempt, Preempt, Acquire], Next::Done));
        assert_eq!(claimed(ClaimKind::Look, &theirs), (vec![], Next::Done));
    }

    /// Goal: connections of a server at a time do not preempt each other, whoever of them holds the reservation, and each preempts what it was before, and
    /// the one that was alone.
    #[test]
    fn parts_of_a_server_stand_beside_each_other() {
        use Step::{Acquire, Preempt, Report, Withdraw};
        let key = |part, number| Key::new(0x11, part, number).0;
        assert_eq!(key(PART_MAX, u32::MAX), 0x11_ffff_ffff);
        let own = |of: &[(u64, bool)]| claimed(ClaimKind::Own, key(2, 7), of);
        let mine = (key(2, 7), false);
        assert_eq!(own(&[mine, (key(1, 3), true)]), (vec![Report], Next::Done));
        assert_eq!(own(&[mine, (key(1, 3), false)]), (vec![Report, Acquire], Next::Done));
        assert_eq!(own(&[mine, (key(2, 6), false), (key(1, 3), true)]), (vec![Report, Preempt], Next::Done));
        assert_eq!(
            own(&[(key(2, 6), true), (key(1, 3), false)]),
            (vec![Report, Preempt, Acquire], Next::Done)
        );
        let alone = [mine, (key(0, 9), true), (key(1, 3), false)];
        assert_eq!(own(&alone), (vec![Report, Preempt, Acquire], Next::Done));
        let theirs = [mine, (key(1, 3), false), (THEIRS, true)];
        assert_eq!(own(&theirs), (vec![Report, Withdraw], Next::Held(THEIRS)));
        let whole = claimed(ClaimKind::Own, key(0, 1), &[(key(1, 3), true), (key(2, 7), false)]);
        assert_eq!(whole, (vec![Report, Preempt, Preempt, Acquire], Next::Done));
    }

    /// Goal: what changed between the report and what follows from it is asked about once more, and not for ever.
    #[test]
    fn a_conflict_is_followed_by_another_report() {
        let beside = Key::new(0x11, 1, 3).0;
        let mut claim = Claim::new(ClaimKind::Own, Key::new(0x11, 2, 7));
        assert_eq!(claim.answered(Status::SUCCESS, &[]), Next::Ask);
        assert_eq!(claim.answered(Status::SUCCESS, &report(&[])), Next::Ask);
        assert_eq!(claim.step, Step::Acquire);
        let mut late = claim.clone();
        assert_eq!(claim.answered(Status::RESERVATION_CONFLICT, &[]), Next::Ask);
        assert_eq!(claim.answered(Status::SUCCESS, &report(&[(beside, true)])), Next::Done);
        let mut conflicts = 1;
        while late.answered(Status::RESERVATION_CONFLICT, &[]) == Next::Ask {
            conflicts += 1;
            assert_eq!(late.answered(Status::SUCCESS, &report(&[])), Next::Ask);
        }
        assert_eq!((conflicts, late.answered(Status::RESERVATION_CONFLICT, &[])), (8, Next::Held(0)));
    }

    #[test]
    fn a_report_that_is_cut_short_names_whom_it_has() {
        let whole = report(&[(THEIRS, true), (OURS, false)]);
        assert_eq!(registrants(&whole).collect::<Vec<_>>(), [(Key(THEIRS), true), (Key(OURS), false)]);
        assert_eq!(registrants(&whole[..64 + 64]).count(), 1);
        assert_eq!(registrants(&whole[..10]).count(), 0);
    }
}
