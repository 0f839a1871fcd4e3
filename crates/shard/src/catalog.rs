//! Between the catalog and requests of administrators.

use crate::control::{ControlError, ControlErrorKind};
use crate::devices::DeviceIndex;
use crate::reach::Reaches;
use diecut_catalog::{Catalog, CatalogError, Changes, State};
use diecut_media::{Completion, Divide, Media};
use diecut_units::{EraseBlockAddress, Time, mutant};

/// The catalog of a device. It is the first shard's; nobody asks another's. `is_new`: nothing is read of what lies there. `None` on a device that has no room for one. `device` is its UUID, where
/// pages have no OOB areas.
pub(crate) fn new_catalog<M: Media>(
    media: &mut M,
    device: [u8; 16],
    dies: &[Vec<EraseBlockAddress>],
    is_new: bool,
    now: Time,
) -> Option<Catalog> {
    let blocks = Catalog::choose_blocks(dies)?;
    if is_new {
        return Some(Catalog::create(media, device, blocks));
    }
    // What exists can be written down also while the file system under the device is full. On the first start all channels are here
    // still.
    for block in blocks.as_flattened() {
        media.make_room(*block, now);
    }
    Some(Catalog::open(media, device, blocks, now))
}

/// The catalogs of all devices of a server: each change goes to each of them, and the newest state that any has counts.
///
/// A change is durable when enough devices have it: of `members` devices, any majority that a later start finds has one of them.
pub(crate) struct Catalogs {
    of: Vec<Catalog>,
    /// Devices of the pool, those that are not there included.
    members: usize,
}

impl Catalogs {
    /// # Panics
    /// If there is no catalog, or one of a device that is not of the pool.
    pub fn new(of: Vec<Catalog>, members: usize) -> Catalogs {
        assert!(!of.is_empty() && of.len() <= members, "I-S37: each device has a catalog");
        Catalogs { of, members }
    }

    /// Whether opening is over; [`Catalogs::error`] says if it failed.
    pub fn is_open(&self) -> bool {
        self.of.iter().all(Catalog::is_open)
    }

    /// Why they cannot be used, if so: too few of them can.
    pub fn error(&self) -> Option<&CatalogError> {
        let failed = self.of.iter().filter_map(Catalog::error);
        if self.of.len() - failed.clone().count() >= self.needed() { None } else { failed.into_iter().next() }
    }

    /// Whether so many catalogs can be read that one of them has the last change that was durable. Why not, else.
    pub fn too_few(&self) -> Option<String> {
        let (readable, members) = (self.of.iter().filter(|one| one.error().is_none()).count(), self.members);
        (2 * readable <= members && members > 1).then(|| {
            format!("the catalogs of {readable} of {members} devices of the pool can be read, and it takes more than half of them")
        })
    }

    /// Devices that have a change when it is durable.
    fn needed(&self) -> usize {
        self.members - self.members / 2
    }

    /// The newest state that opening found; `None` where there is no catalog. All go on from it. Only once.
    pub fn take_state(&mut self) -> Option<State> {
        let highest = self.of.iter().map(|one| one.found_numbers().1).max().unwrap_or_default();
        let oldest_counts = mutant!("shard: the oldest catalog counts");
        let age = |one: &&mut Catalog| {
            let number = one.found_numbers().0;
            if oldest_counts { u64::MAX - number } else { number }
        };
        let newest = self.of.iter_mut().filter(|one| one.error().is_none()).max_by_key(age)?;
        let number = newest.found_numbers().0;
        let state = newest.take_state()?;
        if self.of.len() > 1 && !mutant!("shard: catalogs of several devices go on each from its own state") {
            self.of.iter_mut().for_each(|one| one.go_on_from(number, highest, &state));
        }
        Some(state)
    }

    /// See [`Catalog::put`].
    ///
    /// # Errors
    /// [`CatalogError::Full`] if the state is too large for one of them: nothing is changed.
    pub fn put<M: Divide>(
        &mut self,
        changes: &Changes,
        reaches: &mut Reaches<'_, M>,
        now: Time,
    ) -> Result<u64, CatalogError> {
        // All take it, or none.
        self.of.iter().filter(|one| one.error().is_none()).try_for_each(|one| one.takes(changes))?;
        let mut number = 0;
        for (device, catalog) in (0..).map(DeviceIndex).zip(&mut self.of) {
            if catalog.error().is_some() {
                continue;
            }
            let own = catalog.put(changes.clone(), &mut reaches.at(device), now)?;
            assert!(number == 0 || number == own, "I-S37: a change has the same number on each device");
            number = own;
        }
        Ok(number)
    }

    /// See [`Catalog::fits`].
    ///
    /// # Errors
    /// As of [`Catalog::fits`], of any of them.
    pub fn fits(&self, changes: &Changes, permille: u64) -> Result<(), CatalogError> {
        self.of.iter().filter(|one| one.error().is_none()).try_for_each(|one| one.fits(changes, permille))
    }

    /// Number of the newest state that is durable on so many devices that it holds. The others follow: a drive that hangs keeps nobody waiting.
    pub fn durable(&self) -> u64 {
        let alive = self.of.iter().filter(|one| one.error().is_none());
        let mut durable: Vec<u64> = alive.map(Catalog::durable).collect();
        durable.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        let needed = if mutant!("shard: a change holds that one device has") { 1 } else { self.needed() };
        durable.get(needed - 1).copied().unwrap_or_default()
    }

    /// See [`Catalog::is_idle`], of the catalog of a device.
    pub fn is_idle(&self, device: DeviceIndex) -> bool {
        self.of[usize::from(device.0)].is_idle()
    }

    /// Copies that cannot be written any more.
    pub fn lost_copies(&self) -> usize {
        let lost = |one: &Catalog| if one.error().is_some() { 2 } else { one.lost_copies() };
        self.of.iter().map(lost).sum()
    }

    /// IUs programmed and erases asked for since they were opened.
    pub fn work(&self) -> (u64, u64) {
        let work = self.of.iter().map(Catalog::work);
        work.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Takes a completion of a device's medium.
    pub fn complete<M: Divide>(
        &mut self,
        device: DeviceIndex,
        completion: Completion,
        reaches: &mut Reaches<'_, M>,
        now: Time,
    ) {
        self.of[usize::from(device.0)].complete(completion, &mut reaches.at(device), now);
    }
}

/// Whether the catalog has room for what a request leads to. Asked before anything is touched: later, erase blocks would have to be given
/// back.
pub(crate) fn has_room(catalog: &Catalogs, base: &State, next: &State) -> Result<(), ControlError> {
    catalog.fits(&base.changes_to(next), 1000).map_err(|error| refusal(&error))
}

/// Part of the catalog's room that hosts may fill with what they want to be kept. A choice: the rest is administrators' alone.
const HOSTS_PERMILLE: u64 = 500;

/// Whether the catalog has room for what hosts want to be kept.
pub(crate) fn has_room_for_hosts(catalog: &Catalogs, base: &State, next: &State) -> bool {
    catalog.error().is_none() && catalog.fits(&base.changes_to(next), HOSTS_PERMILLE).is_ok()
}

/// What an administrator is told when the catalog takes no change.
pub(crate) fn refusal(error: &CatalogError) -> ControlError {
    let kind = match error {
        CatalogError::Full { .. } => ControlErrorKind::Exhausted,
        CatalogError::Damaged(_)
        | CatalogError::Version(_)
        | CatalogError::FlushFailed
        | CatalogError::Failed => ControlErrorKind::Media,
    };
    ControlError { kind, message: format!("nothing was changed: {error}") }
}
