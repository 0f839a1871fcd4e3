//! Whether drives that no server serves are all of their pool, but for those that join it or leave it.

use crate::error::ServeError;
use crate::format::named;
use crate::held::Held;
use diecut_devices::{Label, PoolError, PoolOpening, open_pool};
use uuid::Uuid;

/// What becomes of the pool.
pub enum Change<'a> {
    /// A drive joins it, which may have a label of the pool already.
    Join(Option<[u8; 16]>),
    /// Devices leave it, there or not, and with force also where those that stay are no majority.
    Leave(&'a [Uuid], bool),
}

impl Change<'_> {
    /// How the others are named.
    fn advice(&self) -> &'static str {
        match self {
            Change::Join(_) => "name all of them (--to), so that each learns of the new one",
            Change::Leave(..) => {
                "name those that stay with --from, all of them, and what is gone for good as one that leaves"
            }
        }
    }

    /// Whether a device is missing because of the change.
    fn is_of(&self, device: [u8; 16]) -> bool {
        match self {
            Change::Join(joins) => *joins == Some(device),
            Change::Leave(leaving, _) => leaving.iter().any(|one| *one.as_bytes() == device),
        }
    }
}

/// The pool that these drives are: all of it that is there.
///
/// # Errors
/// Names drives that are of another pool or missed changes of this one, and devices that nobody named.
pub fn whole_pool<'a>(
    drives: impl Iterator<Item = &'a Held> + Clone,
    change: &Change<'_>,
) -> Result<PoolOpening, ServeError> {
    let first = drives.clone().next().expect("a pool has a drive");
    if let Some(other) = drives.clone().find(|one| one.label.server != first.label.server) {
        return Err(ServeError::Setup(format!(
            "{} and {} belong to different pools: name the drives of one",
            first.place(),
            other.place()
        )));
    }
    let labels: Vec<Label> = drives.clone().map(|one| one.label.clone()).collect();
    let is_forced = matches!(change, Change::Leave(_, true));
    let refused = |error: PoolError| {
        let forced = matches!((change, &error), (Change::Leave(..), PoolError::NoMajority { .. }));
        let advice = if forced { ". With --force they are taken for the pool" } else { "" };
        ServeError::Setup(format!("{error}{advice}"))
    };
    let opening = open_pool(&labels, is_forced).map_err(refused)?;
    let outdated = opening.stale.iter().chain(&opening.strangers).next();
    if let Some(one) = outdated.and_then(|at| drives.clone().nth(*at)) {
        return Err(named(one.place(), &"it is not of the pool as the others have it: leave it out"));
    }
    let words = |devices: Vec<[u8; 16]>| {
        let devices = devices.into_iter().map(|device| Uuid::from_bytes(device).to_string());
        devices.collect::<Vec<String>>().join(", ")
    };
    if let Change::Leave(leaving, _) = change
        && let Some(other) = leaving.iter().find(|device| opening.membership(*device.as_bytes()).is_none())
    {
        let known = words(opening.devices.iter().map(|one| one.device).collect());
        return Err(ServeError::Setup(format!("the pool has no device {other}; its devices are {known}")));
    }
    let others: Vec<_> = opening.missing.iter().copied().filter(|device| !change.is_of(*device)).collect();
    if others.is_empty() {
        return Ok(opening);
    }
    let (others, advice) = (words(others), change.advice());
    Err(ServeError::Setup(format!("the pool has more devices than were named: {others}; {advice}")))
}
