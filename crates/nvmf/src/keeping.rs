//! What the target asks to be made durable, and the answers: reservations that persist through power loss, and sanitize operations.

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
}

/// The answer to [`Keep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Of a reservation.
    Reservation(KeptReservation),
    /// Of a sanitize operation.
    Sanitize(KeptSanitize),
}

impl Keep {
    /// The answer of whoever keeps it.
    pub fn kept(&self) -> Kept {
        match self {
            Keep::Reservation(keep) => Kept::Reservation(keep.kept()),
            Keep::Sanitize(keep) => Kept::Sanitize(keep.kept()),
        }
    }
}

impl Kept {
    /// The answer where it is durable, or could not be made so: then nothing of it will be found after a power loss.
    pub fn with(self, is_kept: bool) -> Kept {
        match self {
            Kept::Reservation(kept) => Kept::Reservation(KeptReservation { is_kept, ..kept }),
            Kept::Sanitize(kept) => Kept::Sanitize(KeptSanitize { is_kept, ..kept }),
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
}

/// A change, by its number.
pub(crate) type Change = (Whose, u64);
