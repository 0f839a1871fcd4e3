//! How a namespace is claimed: by a reservation that lets its holder write alone (write exclusive).
//!
//! Each connection is a host of its own to the target, with an identifier and a key that no other one has. The upper half of a key is the server's. What
//! the report shows with that half are connections of before: they are preempted, and their commands aborted, so that nothing that they still have at the
//! target lands behind what comes now. A reservation of somebody else is respected, unless it is to be taken over.

use diecut_nvme::reservation::{
    ACQUIRE, PERSISTENCE_STAYS, PERSISTS, PREEMPT_AND_ABORT, REGISTER, RESCAP_PERSIST, RegisteredController,
    ReservationCommand, ReservationKeys, ReservationKind, ReservationReport, ReservationStatus, UNREGISTER,
};
use diecut_nvme::{Status, SubmissionEntry, opcode::io as opcode};
use diecut_units::{Buffer, mutant};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a report that are asked for: its head and 63 registrants, more than half of which hold nothing.
const REPORT_BYTES: u32 = 4096;

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
    key: u64,
    step: Step,
    to_preempt: Vec<u64>,
    /// Key of somebody else that holds it.
    held_by: Option<u64>,
}

impl Claim {
    pub fn new(kind: ClaimKind, key: u64) -> Claim {
        let step = if kind == ClaimKind::Look { Step::Report } else { Step::Register };
        Claim { kind, key, step, to_preempt: Vec::new(), held_by: None }
    }

    /// Gives up what was claimed.
    pub fn release(key: u64) -> Claim {
        Claim { step: Step::Release, ..Claim::new(ClaimKind::Own, key) }
    }

    /// Key of somebody else that holds it, where that was looked at.
    pub fn held_by(&self) -> Option<u64> {
        self.held_by
    }

    /// The command of this step.
    pub fn ask(&self, nsid: u32, capabilities: u8) -> Ask {
        let command = |opcode, command: ReservationCommand, current: u64, other: u64| {
            let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), ..SubmissionEntry::default() };
            command.encode(&mut entry);
            let keys = ReservationKeys { current: current.into(), other: other.into() };
            (entry, Some(Buffer::copy_from(keys.as_bytes())), 0)
        };
        let kind = ReservationKind::WriteExclusive as u8;
        let plain =
            ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: PERSISTENCE_STAYS };
        match self.step {
            Step::Register => {
                let persists = capabilities & RESCAP_PERSIST != 0;
                let persistence = if persists { PERSISTS } else { PERSISTENCE_STAYS };
                let register = ReservationCommand { action: REGISTER, persistence, ..plain };
                command(opcode::RESERVATION_REGISTER, register, 0, self.key)
            }
            Step::Withdraw | Step::Release => {
                let unregister = ReservationCommand { action: UNREGISTER, ..plain };
                command(opcode::RESERVATION_REGISTER, unregister, self.key, 0)
            }
            Step::Acquire => {
                let acquire = ReservationCommand { action: ACQUIRE, kind, ..plain };
                command(opcode::RESERVATION_ACQUIRE, acquire, self.key, 0)
            }
            Step::Preempt => {
                let preempt = ReservationCommand { action: PREEMPT_AND_ABORT, kind, ..plain };
                let of = *self.to_preempt.last().expect("a step for each of them");
                command(opcode::RESERVATION_ACQUIRE, preempt, self.key, of)
            }
            Step::Report => {
                let mut entry = SubmissionEntry {
                    opcode: opcode::RESERVATION_REPORT,
                    nsid: nsid.into(),
                    ..SubmissionEntry::default()
                };
                ReservationReport { length_bytes: REPORT_BYTES.into(), extended: true }.encode(&mut entry);
                (entry, None, REPORT_BYTES)
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
            // Between the report and now.
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
                _ => Step::Acquire,
            };
        }
        Next::Ask
    }

    fn take_report(&mut self, report: &[u8]) {
        let server = |key: u64| key >> 32;
        for (key, holds) in registrants(report).filter(|(key, _)| *key != self.key) {
            // I-Q5.
            let is_ours = server(key) == server(self.key);
            if holds && !is_ours {
                self.held_by = Some(key);
            }
            let is_of_before = is_ours && !mutant!("remote: connections of before are not preempted");
            if is_of_before || self.kind == ClaimKind::TakeOver {
                self.to_preempt.push(key);
            }
        }
        self.to_preempt.dedup();
        // Anything but this one, for what follows.
        self.step = Step::Acquire;
    }
}

/// Keys of a report, and whether who has it holds the reservation.
fn registrants(report: &[u8]) -> impl Iterator<Item = (u64, bool)> {
    let (head, rest) = match ReservationStatus::read_from_prefix(report) {
        Ok((head, rest)) => (head, rest),
        Err(_) => (ReservationStatus::default(), &[][..]),
    };
    let registrants = rest.chunks_exact(size_of::<RegisteredController>()).take(head.regctl.get().into());
    let registrants = registrants.filter_map(|bytes| RegisteredController::read_from_bytes(bytes).ok());
    registrants.map(move |one| (one.rkey.get(), head.rtype != 0 && one.rcsts & 1 != 0))
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
        bytes.resize(REPORT_BYTES as usize, 0);
        bytes
    }

    /// Goal: bytes of each command are those of the specification. Method: words written by hand.
    #[test]
    fn the_words_of_a_claim() {
        let keys = |current: u64, other: u64| Some([current.to_le_bytes(), other.to_le_bytes()].concat());
        let ask = |step: Step, capabilities| {
            let claim = Claim { step, to_preempt: vec![0x22], ..Claim::new(ClaimKind::Own, 0x11) };
            let (entry, data, expected) = claim.ask(7, capabilities);
            let data = data.map(|data| data.to_vec());
            (entry.opcode, entry.nsid.get(), entry.cdw10.get(), entry.cdw11.get(), data, expected)
        };
        assert_eq!(ask(Step::Register, RESCAP_PERSIST), (0x0d, 7, 3 << 30, 0, keys(0, 0x11), 0));
        assert_eq!(ask(Step::Register, 0).2, 0, "what cannot persist is not asked to");
        assert_eq!(ask(Step::Acquire, 0), (0x11, 7, 1 << 8, 0, keys(0x11, 0), 0));
        assert_eq!(ask(Step::Preempt, 0), (0x11, 7, 1 << 8 | 2, 0, keys(0x11, 0x22), 0));
        assert_eq!(ask(Step::Report, 0), (0x0e, 7, 1023, 1, None, 4096));
        assert_eq!(ask(Step::Release, 0), (0x0d, 7, 1, 0, keys(0x11, 0), 0));
        assert_eq!(ask(Step::Withdraw, 0), ask(Step::Release, 0));
    }

    /// The steps of a claim after its report, and how it ends.
    fn claimed(kind: ClaimKind, of: &[(u64, bool)]) -> (Vec<Step>, Next) {
        let mut claim = Claim::new(kind, OURS + 5);
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
        let mut late = Claim { step: Acquire, ..Claim::new(ClaimKind::Own, OURS) };
        assert_eq!(late.answered(Status::RESERVATION_CONFLICT, &[]), Next::Held(0));
    }

    #[test]
    fn a_report_that_is_cut_short_names_whom_it_has() {
        let whole = report(&[(THEIRS, true), (OURS, false)]);
        assert_eq!(registrants(&whole).collect::<Vec<_>>(), [(THEIRS, true), (OURS, false)]);
        assert_eq!(registrants(&whole[..64 + 64]).count(), 1);
        assert_eq!(registrants(&whole[..10]).count(), 0);
    }
}
