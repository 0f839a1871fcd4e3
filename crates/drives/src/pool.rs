//! Which devices make a pool, from their labels alone.

use crate::label::{Label, LabelDevice, Membership};
use diecut_units::mutant;
use std::collections::{BTreeMap, BTreeSet};

/// A view of a pool: its epoch, and the random bytes that tell two views of one epoch apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    /// Rises when a device joins, is lost or leaves.
    pub epoch: u64,
    /// Which of the views of that epoch.
    pub bytes: [u8; 8],
}

/// What the labels of the devices that can be reached say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOpening {
    /// The view that counts.
    pub view: View,
    /// All devices of the pool in that view.
    pub devices: Vec<LabelDevice>,
    /// Labels, by their place, of devices that have that view: what lies there counts.
    pub current: Vec<usize>,
    /// Labels of devices of the pool that have another view: they missed something, and of their blocks only those count that an anchor
    /// names (R18 in `docs/design/one-format.md`).
    pub stale: Vec<usize>,
    /// Labels of devices that the view does not know: removed, or never finished joining.
    pub strangers: Vec<usize>,
    /// Devices that should be there and have no label here.
    pub missing: Vec<[u8; 16]>,
}

/// Why labels make no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There are none.
    #[error("no device has a label of this server")]
    Empty,
    /// Two drives say that they are the same device, as after a copy of one.
    #[error("two drives have the label of one device: one is a copy of the other; take one of them away")]
    Twice([u8; 16]),
    /// So few devices are here that others may have gone on without them.
    #[error(
        "{present} of {needed_of} devices of the newest view are here, and it takes more than half of them: others may have gone on without these"
    )]
    NoMajority {
        /// Devices with a voice that are here.
        present: usize,
        /// Devices with a voice in that view.
        needed_of: usize,
        /// Those that are missing.
        missing: Vec<[u8; 16]>,
    },
}

impl PoolOpening {
    /// What the pool has a device as, if it knows it.
    pub fn membership(&self, device: [u8; 16]) -> Option<Membership> {
        membership_in(&self.devices, device)
    }

    /// Devices that were taken out of the pool.
    pub fn removed(&self) -> Vec<[u8; 16]> {
        let removed = self.devices.iter().filter(|one| one.membership == Membership::Removed);
        removed.map(|one| one.device).collect()
    }

    /// Devices with a voice: what they may know counts.
    pub fn voices(&self) -> usize {
        voters(&self.devices).count()
    }
}

impl Label {
    /// What it says that its own device is.
    pub fn own_membership(&self) -> Option<Membership> {
        membership_in(&self.devices, self.device)
    }

    /// Devices that it says were taken out of the pool.
    pub fn removed(&self) -> Vec<[u8; 16]> {
        let removed = self.devices.iter().filter(|one| one.membership == Membership::Removed);
        removed.map(|one| one.device).collect()
    }

    /// The view that it is of.
    pub fn view(&self) -> View {
        let is_one = mutant!("drives: views of one epoch are one");
        View { epoch: self.epoch, bytes: if is_one { [0; 8] } else { self.view } }
    }
}

fn membership_in(devices: &[LabelDevice], device: [u8; 16]) -> Option<Membership> {
    devices.iter().find(|one| one.device == device).map(|one| one.membership)
}

impl Membership {
    /// Whether a device has a voice in the view that lists it so.
    pub fn has_voice(self) -> bool {
        matches!(self, Membership::There | Membership::Leaving)
    }
}

/// What labels say of the devices of a pool while one comes to it (R13): the others as they are, and that one as this. One that began to join before, and
/// did not come to its end, is forgotten.
pub fn list_with(devices: &[LabelDevice], comes: LabelDevice) -> Vec<LabelDevice> {
    let is_other = |one: &&LabelDevice| one.membership != Membership::Joining && one.device != comes.device;
    devices.iter().filter(is_other).copied().chain([comes]).collect()
}

/// What they say when one was taken out of it (R13).
pub fn list_without(devices: &[LabelDevice], goes: [u8; 16]) -> Vec<LabelDevice> {
    let change = |one: &LabelDevice| match one.device == goes {
        true => LabelDevice { membership: Membership::Removed, ..*one },
        false => *one,
    };
    devices.iter().map(change).collect()
}

/// Devices with a voice.
fn voters(devices: &[LabelDevice]) -> impl Iterator<Item = [u8; 16]> {
    devices.iter().filter(|device| device.membership.has_voice()).map(|device| device.device)
}

/// A view, as the labels say together that have it.
struct Votes {
    devices: Vec<LabelDevice>,
    /// Labels of devices with a voice.
    present: usize,
    /// Devices with a voice.
    all: usize,
}

impl Votes {
    /// A device joins within a view (R13): all labels say that it joins, its own first, and then that it is there, its own last. So it has a voice
    /// as soon as one of them says so, and its own as well. One is taken out within a view, too: it has no voice any more as soon as one label says
    /// so. Only one joins or is taken out at a time, and all others have the labels before the next: any two majorities of before and after have a
    /// device in common.
    fn of(labels: &[&Label]) -> Votes {
        let mut devices: Vec<LabelDevice> = Vec::new();
        for one in labels.iter().flat_map(|label| &label.devices) {
            match devices.iter_mut().find(|known| known.device == one.device) {
                // Who was taken out never comes back.
                Some(known) if known.membership == Membership::Removed => {}
                Some(known)
                    if known.membership == Membership::Joining || one.membership == Membership::Removed =>
                {
                    *known = *one;
                }
                Some(_) => {}
                None => devices.push(*one),
            }
        }
        let has_label = |device: &[u8; 16]| labels.iter().any(|label| label.device == *device);
        let (present, all) = (voters(&devices).filter(has_label).count(), voters(&devices).count());
        Votes { devices, present, all }
    }

    fn are_most(&self) -> bool {
        2 * self.present > self.all
    }
}

/// Finds the view that counts among the labels of one server: of those of which more than half of the devices with a voice have a label
/// here, the newest one. A device votes only for the view that its own label has, and not while it joins (R13 in
/// `docs/design/one-format.md`). With `force` the newest view that any label with a voice has counts.
///
/// # Errors
/// If there is no such view, or a device is there twice.
pub fn open_pool(labels: &[Label], force: bool) -> Result<PoolOpening, PoolError> {
    let mut by_view: BTreeMap<View, Vec<&Label>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for label in labels {
        if !seen.insert(label.device) {
            return Err(PoolError::Twice(label.device));
        }
        by_view.entry(label.view()).or_default().push(label);
    }
    let views: Vec<(View, Votes)> =
        by_view.into_iter().rev().map(|(view, labels)| (view, Votes::of(&labels))).collect();
    let newest = views.iter().find(|(_, votes)| votes.present > 0).ok_or(PoolError::Empty)?;
    let chosen = if force { Some(newest) } else { views.iter().find(|(_, votes)| votes.are_most()) };
    let Some((view, votes)) = chosen else {
        let votes = &newest.1;
        let missing = voters(&votes.devices).filter(|device| !seen.contains(device)).collect();
        return Err(PoolError::NoMajority { present: votes.present, needed_of: votes.all, missing });
    };
    let devices = votes.devices.clone();
    let known = |label: &Label| devices.iter().any(|device| device.device == label.device);
    let places = |wanted: &dyn Fn(&Label) -> bool| {
        labels.iter().enumerate().filter(|(_, label)| wanted(label)).map(|(at, _)| at).collect()
    };
    Ok(PoolOpening {
        view: *view,
        current: places(&|label| label.view() == *view),
        stale: places(&|label| label.view() != *view && known(label)),
        strangers: places(&|label| label.view() != *view && !known(label)),
        missing: voters(&devices).filter(|device| !seen.contains(device)).collect(),
        devices,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::shape::DriveShape;
    use diecut_testing::Random;

    fn label(device: u8, epoch: u64, view: u8, devices: &[(u8, Membership)]) -> Label {
        Label {
            number: 1,
            server: [9; 16],
            device: [device; 16],
            epoch,
            view: [view; 8],
            secret: [0; 16],
            shape: DriveShape {
                lanes: 1,
                block_size_bytes: 1 << 20,
                blocks_per_lane: 8,
                zones: None,
                dies: None,
                lane_stride_bytes: None,
            },
            system: (0, 1),
            devices: devices
                .iter()
                .map(|(device, membership)| LabelDevice {
                    device: [*device; 16],
                    membership: *membership,
                    since: epoch,
                })
                .collect(),
        }
    }

    const ALL: [(u8, Membership); 3] =
        [(1, Membership::There), (2, Membership::There), (3, Membership::There)];
    const WITHOUT_3: [(u8, Membership); 3] =
        [(1, Membership::There), (2, Membership::There), (3, Membership::Lost)];

    #[test]
    fn a_majority_opens_and_says_who_is_missing() {
        let opening = open_pool(&[label(1, 1, 1, &ALL), label(3, 1, 1, &ALL)], false).unwrap();
        assert_eq!((opening.current, opening.missing), (vec![0, 1], vec![[2; 16]]));
        let error = open_pool(&[label(2, 1, 1, &ALL)], false).unwrap_err();
        assert_eq!(
            error,
            PoolError::NoMajority { present: 1, needed_of: 3, missing: vec![[1; 16], [3; 16]] }
        );
        assert_eq!(open_pool(&[label(2, 1, 1, &ALL)], true).unwrap().current, [0]);
        assert_eq!(open_pool(&[], true), Err(PoolError::Empty));
    }

    #[test]
    fn a_device_that_was_away_is_stale_and_has_no_voice() {
        let labels = [label(3, 1, 1, &ALL), label(1, 2, 2, &WITHOUT_3), label(2, 2, 2, &WITHOUT_3)];
        let opening = open_pool(&labels, false).unwrap();
        assert_eq!((opening.view.epoch, opening.current, opening.stale), (2, vec![1, 2], vec![0]));
        // The two others are not here: what they did without it nobody knows.
        assert!(matches!(open_pool(&labels[..1], false), Err(PoolError::NoMajority { .. })));
    }

    fn of_two_views_of_one_epoch() {
        let without_1 = [(1, Membership::Lost), (2, Membership::There), (3, Membership::There)];
        // Whichever of them has the greater bytes.
        for (one, other) in [(2, 3), (3, 2)] {
            let labels = [label(1, 2, one, &WITHOUT_3), label(2, 2, other, &without_1)];
            let error = open_pool(&labels, false).unwrap_err();
            assert!(matches!(error, PoolError::NoMajority { present: 1, needed_of: 2, .. }), "{error}");
            let [first, second] = labels;
            let labels = [first, second, label(3, 2, other, &without_1)];
            let opening = open_pool(&labels, false).unwrap();
            assert_eq!(opening.view, View { epoch: 2, bytes: [other; 8] });
            assert_eq!((opening.current, opening.stale), (vec![1, 2], vec![0]));
        }
    }

    /// Goal: labels of two views of one epoch do not vote together: the one counts that has its majority, and none if neither has.
    #[test]
    fn a_view_is_more_than_its_epoch() {
        of_two_views_of_one_epoch();
        diecut_testing::planted::is_noticed("drives: views of one epoch are one", of_two_views_of_one_epoch);
    }

    #[test]
    fn who_joins_has_no_voice_and_copies_are_refused() {
        let joining = [(1, Membership::There), (2, Membership::Joining)];
        let labels = [label(2, 2, 2, &joining), label(1, 1, 1, &[(1, Membership::There)])];
        let opening = open_pool(&labels, false).unwrap();
        assert_eq!((opening.view.epoch, opening.current, opening.strangers), (1, vec![1], vec![0]));
        let twice = [label(1, 1, 1, &ALL), label(1, 1, 1, &ALL)];
        assert_eq!(open_pool(&twice, false), Err(PoolError::Twice([1; 16])));
    }

    /// A device of the model: its label, the last write that it has, and whether it can be reached.
    #[derive(Clone)]
    struct Drive {
        label: Label,
        written: u64,
        is_reachable: bool,
    }

    /// A pool of which devices go and come back, and whose server is cut between any two labels.
    struct World {
        drives: Vec<Drive>,
        random: Random,
        acknowledged: u64,
        views: u8,
        /// A device may be taken for lost without the labels of a majority.
        is_hasty: bool,
        /// The label of a device that joins is written in the wrong order.
        joins_wrongly: bool,
    }

    impl World {
        fn new(seed: u64, count: u8) -> World {
            let devices: Vec<(u8, Membership)> =
                (1..=count).map(|device| (device, Membership::There)).collect();
            let drives = devices.iter().map(|(device, _)| Drive {
                label: label(*device, 1, 1, &devices),
                written: 0,
                is_reachable: true,
            });
            World {
                drives: drives.collect(),
                random: Random::of(seed),
                acknowledged: 0,
                views: 1,
                is_hasty: false,
                joins_wrongly: false,
            }
        }

        /// Writes a new view to devices, one after the other. `false` if a cut comes between.
        fn relabel(&mut self, devices: &[LabelDevice], epoch: u64, to: &[usize]) -> bool {
            self.views = self.views.wrapping_add(1);
            let mut to = to.to_vec();
            let mut order = Vec::new();
            while !to.is_empty() {
                order.push(to.swap_remove(self.random.below(to.len() as u64) as usize));
            }
            self.write(devices, View { epoch, bytes: [self.views; 8] }, &order)
        }

        /// Writes labels in an order. `false` if a cut comes between.
        fn write(&mut self, devices: &[LabelDevice], view: View, to: &[usize]) -> bool {
            for &at in to {
                if self.random.below(8) == 0 {
                    return false;
                }
                let label = &mut self.drives[at].label;
                (label.epoch, label.view, label.devices) = (view.epoch, view.bytes, devices.to_vec());
            }
            true
        }

        /// A life of the server, from an opening to a cut.
        fn live(&mut self, seed: u64) {
            let reachable: Vec<usize> =
                (0..self.drives.len()).filter(|at| self.drives[*at].is_reachable).collect();
            let labels: Vec<Label> = reachable.iter().map(|at| self.drives[*at].label.clone()).collect();
            let Ok(opening) = open_pool(&labels, false) else { return };
            let mut devices = opening.devices;
            let mut view = opening.view;
            let is = |devices: &[LabelDevice], drive: &Drive, wanted: Membership| {
                devices.iter().any(|one| one.device == drive.label.device && one.membership == wanted)
            };
            let mut active: Vec<usize> = opening.current.iter().map(|at| reachable[*at]).collect();
            for at in active.iter().filter(|at| is(&devices, &self.drives[**at], Membership::There)) {
                assert_eq!(
                    self.drives[*at].written, self.acknowledged,
                    "seed {seed}: device {at} missed writes and counts"
                );
            }
            let mut gone = !opening.missing.is_empty() || !opening.stale.is_empty();
            loop {
                active.retain(|at| self.drives[*at].is_reachable);
                if gone {
                    // Devices without the view, or that are not there, are lost from now on: R12.
                    let voters = devices.iter().filter(|one| one.membership.has_voice()).count();
                    let left = active
                        .iter()
                        .filter(|at| is(&devices, &self.drives[**at], Membership::There))
                        .count();
                    if 2 * left <= voters && !self.is_hasty {
                        return;
                    }
                    for one in &mut devices {
                        let is_active = active.iter().any(|at| self.drives[*at].label.device == one.device);
                        if !is_active {
                            one.membership = Membership::Lost;
                        }
                    }
                    view.epoch += 1;
                    if active.is_empty() || !self.relabel(&devices.clone(), view.epoch, &active.clone()) {
                        return;
                    }
                    view.bytes = [self.views; 8];
                    gone = false;
                }
                match self.random.below(6) {
                    0 => return,
                    1 => {
                        let at = self.random.below(self.drives.len() as u64) as usize;
                        self.drives[at].is_reachable = false;
                        gone = active.contains(&at);
                    }
                    2 => {
                        // A device that is lost joins again, or goes on with that: it gets all writes from now on, and what it missed. Nobody
                        // else is half way.
                        let is_half = |at: &usize| is(&devices, &self.drives[*at], Membership::Joining);
                        let half = (0..self.drives.len()).find(is_half);
                        let lost = |at: &usize| is(&devices, &self.drives[*at], Membership::Lost);
                        let next = half.or_else(|| (0..self.drives.len()).find(lost));
                        let Some(at) = next.filter(|at| self.drives[*at].is_reachable) else {
                            continue;
                        };
                        let device = self.drives[at].label.device;
                        for membership in [Membership::Joining, Membership::There] {
                            devices
                                .iter_mut()
                                .filter(|one| one.device == device)
                                .for_each(|one| one.membership = membership);
                            if membership == Membership::There {
                                self.drives[at].written = self.acknowledged;
                            }
                            // Within the view: its own label says first that it joins, and last that it is there.
                            let others = active.iter().copied().filter(|other| *other != at);
                            let mut to: Vec<usize> = others.collect();
                            let is_first = (membership == Membership::Joining) != self.joins_wrongly;
                            to.insert(if is_first { 0 } else { to.len() }, at);
                            if !self.write(&devices.clone(), view, &to) {
                                return;
                            }
                        }
                        if !active.contains(&at) {
                            active.push(at);
                        }
                    }
                    _ => {
                        // On some devices when the cut comes; acknowledged when it is on all.
                        self.acknowledged += 1;
                        for at in &active {
                            self.drives[*at].written = self.acknowledged;
                        }
                    }
                }
            }
        }
    }

    fn worlds(seeds: std::ops::Range<u64>, is_hasty: bool, joins_wrongly: bool) -> u32 {
        let mut opened = 0;
        for seed in seeds {
            let mut world = World::new(seed, 1 + (seed % 4) as u8);
            world.is_hasty = is_hasty;
            world.joins_wrongly = joins_wrongly;
            for _ in 0..30 {
                let before = world.acknowledged;
                world.live(seed);
                opened += u32::from(world.acknowledged > before);
                for drive in &mut world.drives {
                    drive.is_reachable = world.random.below(4) > 0;
                }
            }
        }
        opened
    }

    /// Goal: a pool never opens with a device that missed acknowledged writes, whatever goes, comes back and is cut between any two labels.
    #[test]
    fn no_device_that_missed_writes_counts() {
        assert!(worlds(0..3000, false, false) > 5000, "pools open and take writes");
    }

    /// Goal: after a join that was cut anywhere a pool opens with all of its devices, and any two sets of devices that open it have one in common
    /// that was there before. Method: every prefix of the labels that a join writes, for pools of one to five devices.
    #[test]
    fn a_join_that_is_cut_anywhere_neither_locks_nor_splits_a_pool() {
        for count in 1..=5u8 {
            let before: Vec<(u8, Membership)> =
                (1..=count).map(|device| (device, Membership::There)).collect();
            let with = |membership| [&before[..], &[(count + 1, membership)]].concat();
            let (joining, joined) = (with(Membership::Joining), with(Membership::There));
            let new = usize::from(count);
            let others: Vec<usize> = (0..new).collect();
            let steps: Vec<(usize, &[(u8, Membership)])> = [(new, &joining[..])]
                .into_iter()
                .chain(others.iter().map(|at| (*at, &joining[..])))
                .chain(others.iter().map(|at| (*at, &joined[..])))
                .chain([(new, &joined[..])])
                .collect();
            let mut drives: Vec<Option<Label>> =
                (1..=count).map(|device| Some(label(device, 1, 1, &before))).chain([None]).collect();
            let mut all_opening: Vec<Vec<u32>> = Vec::new();
            for done in 0..=steps.len() {
                let mut opening = Vec::new();
                for there in 1u32..1 << (count + 1) {
                    let is_there = |at: &usize| there >> at & 1 == 1;
                    let labels: Vec<Label> =
                        (0..=new).filter(is_there).filter_map(|at| drives[at].clone()).collect();
                    if let Ok(pool) = open_pool(&labels, false) {
                        // Who joins has missed nothing only when it has a voice.
                        let has_joined = pool
                            .devices
                            .iter()
                            .any(|one| one.device == [count + 1; 16] && one.membership == Membership::There);
                        opening.push(if has_joined { there } else { there & !(1 << count) });
                    }
                }
                let whole = (1 << count) - 1;
                assert!(
                    opening.iter().any(|there| there & whole == whole),
                    "{count} devices, {done} labels: all open it"
                );
                all_opening.push(opening);
                if let Some(&(at, devices)) = steps.get(done) {
                    drives[at] = Some(label(at as u8 + 1, 1, 1, devices));
                }
            }
            let sets: Vec<u32> = all_opening.into_iter().flatten().collect();
            let apart = sets.iter().any(|one| sets.iter().any(|other| one & other == 0));
            assert!(!apart, "{count} devices: two sets that have no device in common open the pool");
        }
    }

    /// Goal: after a removal that was cut anywhere, of a device that is there or is gone, the others open the pool, and any two sets of devices that
    /// open it have one in common that stays. Method: as with joins.
    #[test]
    fn a_removal_that_is_cut_anywhere_neither_locks_nor_splits_a_pool() {
        for count in 2..=6u8 {
            let before: Vec<(u8, Membership)> =
                (1..=count).map(|device| (device, Membership::There)).collect();
            let mut after = before.clone();
            after[usize::from(count) - 1].1 = Membership::Removed;
            let mut drives: Vec<Label> = (1..=count).map(|device| label(device, 1, 1, &before)).collect();
            let mut all_opening: Vec<u32> = Vec::new();
            let staying = (1u32 << (count - 1)) - 1;
            for done in 0..count {
                for there in 1u32..1 << count {
                    let is_there = |at: &usize| there >> at & 1 == 1;
                    let labels = (0..drives.len()).filter(is_there).map(|at| drives[at].clone());
                    if let Ok(pool) = open_pool(&labels.collect::<Vec<Label>>(), false) {
                        // Who was taken out may miss what comes.
                        let is_out = pool.membership([count; 16]) == Some(Membership::Removed);
                        all_opening.push(if is_out { there & staying } else { there });
                    } else {
                        let is_enough = there & staying == staying && (count > 2 || done > 0);
                        assert!(!is_enough, "{count} devices, {done} labels: those that stay open it");
                    }
                }
                drives[usize::from(done)].devices = label(1, 1, 1, &after).devices;
            }
            let apart = all_opening.iter().any(|one| all_opening.iter().any(|other| one & other == 0));
            assert!(!apart, "{count} devices: two sets that have none in common open the pool");
        }
    }

    /// Goal: the model finds what it is for. Method: a server that goes on without a majority; labels of a join in the wrong order.
    #[test]
    fn a_server_that_goes_on_without_a_majority_is_noticed() {
        assert!(std::panic::catch_unwind(|| worlds(0..3000, true, false)).is_err());
        assert!(std::panic::catch_unwind(|| worlds(0..3000, false, true)).is_err());
    }
}
