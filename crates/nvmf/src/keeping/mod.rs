//! What the target asks to be made durable, and the answers: reservations that persist through power loss, sanitize operations, and events of
//! placement.

mod answer;

pub(crate) use answer::kept;

use crate::placement::{KeepPlacement, KeptPlacement};
use crate::reservation::{KeepReservation, KeptReservation};
use crate::sanitize::{KeepSanitize, KeptSanitize};
use diecut_namespace::contract::NamespaceId;
use diecut_nvme::QualifiedName;

/// What is to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The reservation of a namespace.
    Reservation(KeepReservation),
    /// The most recent sanitize operation of a subsystem.
    Sanitize(KeepSanitize),
    /// Events of placement of a subsystem, and which of them are kept.
    Placement(KeepPlacement),
}

/// The answer to [`Keep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Of a reservation.
    Reservation(KeptReservation),
    /// Of a sanitize operation.
    Sanitize(KeptSanitize),
    /// Of events of placement.
    Placement(KeptPlacement),
}

impl Keep {
    /// The answer of whoever keeps it.
    pub fn kept(&self) -> Kept {
        match self {
            Keep::Reservation(keep) => Kept::Reservation(keep.kept()),
            Keep::Sanitize(keep) => Kept::Sanitize(keep.kept()),
            Keep::Placement(keep) => Kept::Placement(keep.kept()),
        }
    }
}

impl Kept {
    /// The answer where it is durable, or could not be made so: then nothing of it will be found after a power loss.
    pub fn with(self, is_kept: bool) -> Kept {
        match self {
            Kept::Reservation(kept) => Kept::Reservation(KeptReservation { is_kept, ..kept }),
            Kept::Sanitize(kept) => Kept::Sanitize(KeptSanitize { is_kept, ..kept }),
            Kept::Placement(kept) => Kept::Placement(KeptPlacement { is_kept, ..kept }),
        }
    }
}

/// What a command changed that is to be durable before it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The reservation of this namespace.
    Reservation(NamespaceId),
    /// The sanitize operation of this subsystem.
    Sanitize(QualifiedName),
    /// Which events of placement of this subsystem are kept.
    Placement(QualifiedName),
}

/// A change, by its number.
pub(crate) type Change = (Whose, u64);
