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

/// A device that comes to the pool or leaves it: labels are being written one after the other, and either pool may be the one that a start finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turning {
    Joins(DeviceIndex),
    Leaves(DeviceIndex),
}

/// The catalogs of all devices of a server: each change goes to each of them, and the newest state that any has counts.
///
/// A change is durable when enough devices have it: of `members` devices, any majority that a later start finds has one of them. While a device comes
/// or leaves, that has to be so of the pool with it and of the one without.
pub(crate) struct Catalogs {
    /// By the index of the device; those of devices that are gone are none.
    of: Vec<Option<Catalog>>,
    /// Devices of the pool, those that are not there included; without one that joins, and with one that leaves.
    members: usize,
    turning: Option<Turning>,
}

/// How many of so many devices have a change when it is durable.
fn needed(members: usize) -> usize {
    members - members / 2
}

impl Catalogs {
    /// # Panics
    /// If there is no catalog, or one of a device that is not of the pool.
    pub fn new(of: Vec<Catalog>, members: usize) -> Catalogs {
        assert!(!of.is_empty() && of.len() <= members, "I-S37: each device has a catalog");
        Catalogs { of: of.into_iter().map(Some).collect(), members, turning: None }
    }

    fn iter(&self) -> impl Iterator<Item = &Catalog> + Clone {
        self.of.iter().flatten()
    }

    fn alive(&self) -> impl Iterator<Item = (DeviceIndex, &Catalog)> + Clone {
        let numbered = (0..).map(DeviceIndex).zip(&self.of);
        numbered
            .filter_map(|(device, one)| Some((device, one.as_ref()?)))
            .filter(|(_, one)| one.error().is_none())
    }

    /// Of each pool that a start may find: the device that is not of it, and how many of the others have a change when it is durable.
    fn pools(&self) -> impl Iterator<Item = (Option<DeviceIndex>, usize)> + use<> {
        let members = self.members;
        let [now, next] = match self.turning {
            _ if mutant!("shard: what a device that comes or leaves has counts at once") => {
                [Some((None, members)), None]
            }
            None => [Some((None, members)), None],
            Some(Turning::Joins(device)) => [Some((Some(device), members)), Some((None, members + 1))],
            Some(Turning::Leaves(device)) => [Some((None, members)), Some((Some(device), members - 1))],
        };
        now.into_iter().chain(next).map(|(without, members)| (without, needed(members)))
    }

    /// Whether opening is over; [`Catalogs::error`] says if it failed.
    pub fn is_open(&self) -> bool {
        self.iter().all(Catalog::is_open)
    }

    /// Why they cannot be used, if so: too few of them can.
    pub fn error(&self) -> Option<&CatalogError> {
        let lacks = |(without, needed): (Option<DeviceIndex>, usize)| {
            self.alive().filter(|(device, _)| Some(*device) != without).count() < needed
        };
        if self.pools().any(lacks) { self.iter().find_map(Catalog::error) } else { None }
    }

    /// Whether so many catalogs can be read that one of them has the last change that was durable. Why not, else.
    pub fn too_few(&self) -> Option<String> {
        let (readable, members) = (self.alive().count(), self.members);
        (2 * readable <= members && members > 1).then(|| {
            format!("the catalogs of {readable} of {members} devices of the pool can be read, and it takes more than half of them")
        })
    }

    /// The newest state that opening found; `None` where there is no catalog. All go on from it. Only once.
    pub fn take_state(&mut self) -> Option<State> {
        let highest = self.iter().map(|one| one.found_numbers().1).max().unwrap_or_default();
        let oldest_counts = mutant!("shard: the oldest catalog counts");
        let age = |one: &&mut Catalog| {
            let number = one.found_numbers().0;
            if oldest_counts { u64::MAX - number } else { number }
        };
        let readable = self.of.iter_mut().flatten().filter(|one| one.error().is_none());
        let newest = readable.max_by_key(age)?;
        let number = newest.found_numbers().0;
        let state = newest.take_state()?;
        if self.iter().count() > 1
            && !mutant!("shard: catalogs of several devices go on each from its own state")
        {
            self.of.iter_mut().flatten().for_each(|one| one.go_on_from(number, highest, &state));
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
        self.alive().try_for_each(|(_, one)| one.takes(changes))?;
        let mut number = 0;
        for (device, catalog) in (0..).map(DeviceIndex).zip(&mut self.of) {
            let Some(catalog) = catalog.as_mut().filter(|one| one.error().is_none()) else { continue };
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
        self.alive().try_for_each(|(_, one)| one.fits(changes, permille))
    }

    /// Number of the newest state that is durable on so many devices that it holds. The others follow: a drive that hangs keeps nobody waiting.
    pub fn durable(&self) -> u64 {
        let in_pool = |(without, needed): (Option<DeviceIndex>, usize)| {
            let of_it = self.alive().filter(|(device, _)| Some(*device) != without);
            let mut durable: Vec<u64> = of_it.map(|(_, one)| one.durable()).collect();
            durable.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
            let needed = if mutant!("shard: a change holds that one device has") { 1 } else { needed };
            durable.get(needed - 1).copied().unwrap_or_default()
        };
        self.pools().map(in_pool).min().unwrap_or_default()
    }

    /// A device is brought to the pool, with a catalog that holds nothing. It is given what all have, which no change is being made to. Labels may say
    /// that it joins when [`Catalogs::has_all`].
    ///
    /// # Errors
    /// [`CatalogError::Full`] if that is too large for it: it does not join.
    ///
    /// # Panics
    /// If another one comes or leaves.
    pub fn join<M: Divide>(
        &mut self,
        device: DeviceIndex,
        mut catalog: Catalog,
        state: &State,
        reaches: &mut Reaches<'_, M>,
        now: Time,
    ) -> Result<(), CatalogError> {
        assert!(self.turning.is_none(), "I-S37: one device comes or leaves at a time");
        let number = self.alive().map(|(_, one)| one.found_numbers().1).max().unwrap_or_default();
        assert!(number > 1, "I-S37: the catalog of a server that runs was written");
        // Written as a whole, under the number that it has everywhere.
        catalog.go_on_from(number - 1, number - 1, state);
        let own = catalog.put(Changes::default(), &mut reaches.at(device), now)?;
        assert_eq!(own, number, "I-S37: a change has the same number on each device");
        self.of.resize_with(usize::from(device.0), || None);
        self.of.push(Some(catalog));
        self.turning = Some(Turning::Joins(device));
        Ok(())
    }

    /// A device is to leave the pool. Labels may say so when all that stay have everything: [`Catalogs::has_all`].
    ///
    /// # Panics
    /// If another one comes or leaves.
    pub fn leave(&mut self, device: DeviceIndex) {
        let turning = Turning::Leaves(device);
        assert!(
            self.turning.is_none_or(|other| other == turning),
            "I-S37: one device comes or leaves at a time"
        );
        self.turning = Some(turning);
    }

    /// Whether a device has all that was changed so far. Why it never will, else.
    ///
    /// # Errors
    /// Why its catalog cannot be written.
    pub fn has_all(&self, device: DeviceIndex) -> Result<bool, CatalogError> {
        let newest = self.alive().map(|(_, one)| one.found_numbers().1).max().unwrap_or_default();
        let Some(own) = self.of.get(usize::from(device.0)).and_then(Option::as_ref) else { return Ok(false) };
        match own.error() {
            Some(error) => Err(error.clone()),
            None => Ok(own.durable() == newest),
        }
    }

    /// Labels of all devices say that one has come.
    pub fn joined(&mut self, device: DeviceIndex) {
        if self.turning.take_if(|turning| *turning == Turning::Joins(device)).is_some() {
            self.members += 1;
        }
    }

    /// A device is gone, as labels say by now; or it did not join, as they never said.
    pub fn forget(&mut self, device: DeviceIndex) {
        let Some(gone) = self.of.get_mut(usize::from(device.0)) else { return };
        if gone.take().is_some() && self.turning.take() == Some(Turning::Leaves(device)) {
            self.members -= 1;
        }
    }

    /// See [`Catalog::is_idle`], of the catalog of a device; one that has none is.
    pub fn is_idle(&self, device: DeviceIndex) -> bool {
        self.of.get(usize::from(device.0)).and_then(Option::as_ref).is_none_or(Catalog::is_idle)
    }

    /// Copies that cannot be written any more.
    pub fn lost_copies(&self) -> usize {
        let lost = |one: &Catalog| if one.error().is_some() { 2 } else { one.lost_copies() };
        self.iter().map(lost).sum()
    }

    /// IUs programmed and erases asked for since they were opened.
    pub fn work(&self) -> (u64, u64) {
        let work = self.iter().map(Catalog::work);
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
        if let Some(catalog) = self.of.get_mut(usize::from(device.0)).and_then(Option::as_mut) {
            catalog.complete(completion, &mut reaches.at(device), now);
        }
    }
}

/// Whether all of these devices have all that was changed so far. Why they never will, else.
pub(crate) fn has_all_of(
    catalog: &Catalogs,
    mut devices: impl Iterator<Item = DeviceIndex>,
) -> Result<bool, CatalogError> {
    devices.try_fold(true, |all, device| Ok(catalog.has_all(device)? && all))
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
