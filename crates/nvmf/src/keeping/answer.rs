//! Answers of whoever keeps what was to be made durable go to whom they concern.

use super::Kept;
use crate::event::Action;
use crate::target::Target;
use crate::{placement, reserving, sanitize};

/// What was to be kept is durable, or cannot be: whoever asked goes on.
pub(crate) fn kept(target: &mut Target, kept: &Kept, actions: &mut Vec<Action>) {
    match kept {
        Kept::Reservation(kept) => {
            reserving::kept(&mut target.shared, &mut target.connections, kept, actions);
        }
        Kept::Sanitize(kept) => sanitize::kept(target, kept, actions),
        Kept::Placement(kept) => placement::kept(target, kept, actions),
    }
}
