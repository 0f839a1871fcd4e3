//! How a namespace is claimed: by a reservation that lets its holder write alone (write exclusive), under a key of this server.
//!
//! Registering replaces an earlier key of this host. Whoever holds a reservation is preempted on the first connection, because a server that is started
//! on a drive is to have it; on later ones a reservation of somebody else says that it was taken over.

use diecut_nvme::reservation::{
    ACQUIRE, PERSISTENCE_STAYS, PERSISTS, PREEMPT, REPLACE, RESCAP_PERSIST, RegisteredController,
    ReservationCommand, ReservationKeys, ReservationKind, ReservationReport, ReservationStatus,
};
use diecut_nvme::{Status, SubmissionEntry, opcode::io as opcode};
use diecut_units::Buffer;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a report that are asked for: its head and 63 registrants, more than half of which hold nothing.
const REPORT_BYTES: u32 = 4096;

/// Which command of the claim is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Register,
    Acquire,
    /// Somebody else holds it: who?
    Report,
    Preempt,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Step(Claim),
    Done,
    /// Somebody else has it, and is to keep it.
    Lost,
    Failed(&'static str, Status),
}

/// A command: the entry, what it carries, and what it brings at most.
pub(crate) type Ask = (SubmissionEntry, Option<Buffer>, u32);

impl Claim {
    /// The command of this step. `holder_key` is known after a report.
    pub fn ask(self, nsid: u32, key: u64, holder_key: u64, capabilities: u8) -> Ask {
        let command = |opcode, command: ReservationCommand, keys: ReservationKeys| {
            let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), ..SubmissionEntry::default() };
            command.encode(&mut entry);
            (entry, Some(Buffer::copy_from(keys.as_bytes())), 0)
        };
        let kind = ReservationKind::WriteExclusive as u8;
        let plain =
            ReservationCommand { action: 0, ignores_key: false, kind: 0, persistence: PERSISTENCE_STAYS };
        match self {
            Claim::Register => {
                let persistence =
                    if capabilities & RESCAP_PERSIST != 0 { PERSISTS } else { PERSISTENCE_STAYS };
                let register =
                    ReservationCommand { action: REPLACE, ignores_key: true, persistence, ..plain };
                let keys = ReservationKeys { current: 0.into(), other: key.into() };
                command(opcode::RESERVATION_REGISTER, register, keys)
            }
            Claim::Acquire => {
                let keys = ReservationKeys { current: key.into(), other: 0.into() };
                let acquire = ReservationCommand { action: ACQUIRE, kind, ..plain };
                command(opcode::RESERVATION_ACQUIRE, acquire, keys)
            }
            Claim::Preempt => {
                let keys = ReservationKeys { current: key.into(), other: holder_key.into() };
                let preempt = ReservationCommand { action: PREEMPT, kind, ..plain };
                command(opcode::RESERVATION_ACQUIRE, preempt, keys)
            }
            Claim::Report => {
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

    /// The command of this step was answered. `is_first`: nobody was connected before. A report brings the key of whoever holds it.
    pub fn answered(self, status: Status, is_first: bool, holder_key: Option<u64>) -> Next {
        let conflict = status.same_code(Status::RESERVATION_CONFLICT);
        match self {
            Claim::Register if status.is_success() => Next::Step(Claim::Acquire),
            Claim::Register => Next::Failed("Reservation Register", status),
            Claim::Acquire | Claim::Preempt if status.is_success() => Next::Done,
            Claim::Acquire if conflict && is_first => Next::Step(Claim::Report),
            Claim::Acquire | Claim::Preempt if conflict => Next::Lost,
            Claim::Acquire | Claim::Preempt => Next::Failed("Reservation Acquire", status),
            Claim::Report if !status.is_success() => Next::Failed("Reservation Report", status),
            // Released meanwhile.
            Claim::Report if holder_key.is_none() => Next::Step(Claim::Acquire),
            Claim::Report => Next::Step(Claim::Preempt),
        }
    }
}

/// The key of the host that holds the reservation, from a report.
pub(crate) fn holder_key(report: &[u8]) -> Option<u64> {
    let (_, registrants) = ReservationStatus::read_from_prefix(report).ok()?;
    let registrants = registrants.chunks_exact(size_of::<RegisteredController>());
    let mut registrants = registrants.filter_map(|bytes| RegisteredController::read_from_bytes(bytes).ok());
    registrants.find(|registrant| registrant.rcsts & 1 != 0).map(|registrant| registrant.rkey.get())
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: bytes of each command are those of the specification. Method: words written by hand.
    #[test]
    fn the_words_of_a_claim() {
        let words = |(entry, data, expected): Ask| {
            let data = data.map(|data| data.to_vec());
            (entry.opcode, entry.nsid.get(), entry.cdw10.get(), entry.cdw11.get(), data, expected)
        };
        let keys = |current: u64, other: u64| Some([current.to_le_bytes(), other.to_le_bytes()].concat());
        let ask = |claim: Claim| words(claim.ask(7, 0x11, 0x22, RESCAP_PERSIST));
        assert_eq!(ask(Claim::Register), (0x0d, 7, 3 << 30 | 1 << 3 | 2, 0, keys(0, 0x11), 0));
        assert_eq!(ask(Claim::Acquire), (0x11, 7, 1 << 8, 0, keys(0x11, 0), 0));
        assert_eq!(ask(Claim::Preempt), (0x11, 7, 1 << 8 | 1, 0, keys(0x11, 0x22), 0));
        assert_eq!(ask(Claim::Report), (0x0e, 7, 1023, 1, None, 4096));
        assert_eq!(
            Claim::Register.ask(7, 1, 0, 0).0.cdw10.get(),
            1 << 3 | 2,
            "what cannot persist is not asked to"
        );
    }

    /// Goal: who comes first takes over, and who comes back does not.
    #[test]
    fn who_holds_it_is_preempted_once() {
        let (ok, conflict) = (Status::SUCCESS, Status::RESERVATION_CONFLICT);
        assert_eq!(Claim::Acquire.answered(conflict, true, None), Next::Step(Claim::Report));
        assert_eq!(Claim::Report.answered(ok, true, Some(5)), Next::Step(Claim::Preempt));
        assert_eq!(Claim::Report.answered(ok, true, None), Next::Step(Claim::Acquire));
        assert_eq!(Claim::Acquire.answered(conflict, false, None), Next::Lost);
        assert_eq!(Claim::Preempt.answered(ok, true, None), Next::Done);
    }

    #[test]
    fn the_holder_is_found_in_a_report() {
        let mut report = vec![0; 64 + 2 * 64];
        report[64 + 64 + 2] = 1;
        report[64 + 64 + 8..][..8].copy_from_slice(&0x1234u64.to_le_bytes());
        assert_eq!(holder_key(&report), Some(0x1234));
        report[64 + 64 + 2] = 0;
        assert_eq!(holder_key(&report), None);
        assert_eq!(holder_key(&report[..10]), None);
    }
}
