//! Which devices make a pool, from their labels alone.

use crate::label::{Label, LabelDevice, Membership};
use std::collections::BTreeMap;

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
    #[error(
        "two drives have the label of one device ({0:02x?}): one is a copy of the other; take one of them away"
    )]
    Twice([u8; 16]),
    /// So few devices are here that others may have gone on without them.
    #[error(
        "{present} of {needed_of} devices of the newest view are here; without more than half of them a pool is opened with --force only"
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

impl Label {
    /// The view that it is of.
    pub fn view(&self) -> View {
        View { epoch: self.epoch, bytes: self.view }
    }

    /// What the label says of its own device.
    fn own_membership(&self) -> Option<Membership> {
        self.devices.iter().find(|device| device.device == self.device).map(|device| device.membership)
    }
}

/// Whether a device has a voice in the view that lists it so.
fn has_voice(membership: Membership) -> bool {
    matches!(membership, Membership::There | Membership::Leaving)
}

/// Devices with a voice in the view that this label is of.
fn voters(label: &Label) -> impl Iterator<Item = [u8; 16]> {
    label.devices.iter().filter(|device| has_voice(device.membership)).map(|device| device.device)
}

/// Finds the view that counts among the labels of one server: of those of which more than half of the devices with a voice have a label
/// here, the newest one. A device votes only for the view that its own label has, and not while it joins (R13 in
/// `docs/design/one-format.md`). With `force` the newest view that any label with a voice has counts.
///
/// # Errors
/// If there is no such view, or a device is there twice.
pub fn open_pool(labels: &[Label], force: bool) -> Result<PoolOpening, PoolError> {
    let mut by_view: BTreeMap<View, Vec<&Label>> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for label in labels {
        if seen.insert(label.device, ()).is_some() {
            return Err(PoolError::Twice(label.device));
        }
        if label.own_membership().is_some_and(has_voice) {
            by_view.entry(label.view()).or_default().push(label);
        }
    }
    let has_majority = |labels: &[&Label]| 2 * labels.len() > voters(labels[0]).count();
    let newest = by_view.iter().next_back().ok_or(PoolError::Empty)?;
    let chosen = by_view.iter().rev().find(|(_, labels)| has_majority(labels));
    let (view, with_voice) = match chosen {
        Some(chosen) if !force => chosen,
        _ if force => newest,
        _ => {
            let (present, needed_of) = (newest.1.len(), voters(newest.1[0]).count());
            let missing = voters(newest.1[0]).filter(|device| !seen.contains_key(device)).collect();
            return Err(PoolError::NoMajority { present, needed_of, missing });
        }
    };
    let devices = with_voice[0].devices.clone();
    let known = |label: &Label| devices.iter().any(|device| device.device == label.device);
    let places = |wanted: &dyn Fn(&Label) -> bool| {
        labels.iter().enumerate().filter(|(_, label)| wanted(label)).map(|(at, _)| at).collect()
    };
    Ok(PoolOpening {
        view: *view,
        current: places(&|label| label.view() == *view),
        stale: places(&|label| label.view() != *view && known(label)),
        strangers: places(&|label| label.view() != *view && !known(label)),
        missing: voters(with_voice[0]).filter(|device| !seen.contains_key(device)).collect(),
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
            shape: DriveShape { lanes: 1, block_size_bytes: 1 << 20, blocks_per_lane: 8 },
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
            }
        }

        /// Writes a view to devices, one after the other. `false` if a cut comes between.
        fn relabel(&mut self, devices: &[LabelDevice], epoch: u64, to: &[usize]) -> bool {
            self.views = self.views.wrapping_add(1);
            let mut to = to.to_vec();
            while !to.is_empty() {
                if self.random.below(8) == 0 {
                    return false;
                }
                let at = to.swap_remove(self.random.below(to.len() as u64) as usize);
                let label = &mut self.drives[at].label;
                (label.epoch, label.view, label.devices) = (epoch, [self.views; 8], devices.to_vec());
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
            let mut epoch = opening.view.epoch;
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
                    let voters = devices.iter().filter(|one| has_voice(one.membership)).count();
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
                    epoch += 1;
                    if active.is_empty() || !self.relabel(&devices.clone(), epoch, &active.clone()) {
                        return;
                    }
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
                        // A device that is lost joins again: it gets all writes from now on, and what it missed.
                        let Some(at) = (0..self.drives.len()).find(|at| {
                            self.drives[*at].is_reachable && is(&devices, &self.drives[*at], Membership::Lost)
                        }) else {
                            continue;
                        };
                        let device = self.drives[at].label.device;
                        for membership in [Membership::Joining, Membership::There] {
                            devices
                                .iter_mut()
                                .filter(|one| one.device == device)
                                .for_each(|one| one.membership = membership);
                            epoch += 1;
                            if membership == Membership::There {
                                self.drives[at].written = self.acknowledged;
                            }
                            let mut to = active.clone();
                            to.push(at);
                            if !self.relabel(&devices.clone(), epoch, &to) {
                                return;
                            }
                        }
                        active.push(at);
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

    fn worlds(seeds: std::ops::Range<u64>, is_hasty: bool) -> u32 {
        let mut opened = 0;
        for seed in seeds {
            let mut world = World::new(seed, 1 + (seed % 4) as u8);
            world.is_hasty = is_hasty;
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
        assert!(worlds(0..3000, false) > 5000, "pools open and take writes");
    }

    /// Goal: the model finds what it is for. Method: a server that goes on without a majority.
    #[test]
    fn a_server_that_goes_on_without_a_majority_is_noticed() {
        assert!(std::panic::catch_unwind(|| worlds(0..3000, true)).is_err());
    }
}
