//! Groups of tenants that change their shard while they are served.
//!
//! Ownership moves, and nothing of the path of a command does: there is no moment in which one shard serves what another
//! owns, so no ring for foreign erase blocks is needed, at the price of a delay for the group while what it has under way ends.
//! The first shard orders it, between other requests of administrators:
//!
//! 1. [`Step::Leave`] at the old home. Stores first quiesce while hosts are served, and program little at once: what waits at dies for
//!    a program otherwise is tens of milliseconds. Then the group's hosts are not listened to any more (`diecut_nvmf`'s `freeze`),
//!    nothing more is started for applications, and what is under way for both comes back. Then the stores are held: they see no answer and have no turn, so they start
//!    nothing, and what they and the pool have under way ends. What is left is values: channels, stores, namespaces.
//! 2. [`Step::Arrive`] at the new home puts them in. Nothing is recovered: a store goes on where it was.
//! 3. [`Step::Release`] everywhere. The old home gives the connections away, Connects that waited, and applications' rings; all shards learn the new
//!    home, so a Connect that comes to any of them finds it, and waits there until the last connection has arrived. Then it is
//!    over.
//!
//! A crash on the way loses nothing: on the medium and in protected memory nothing changes, and channels that are in a
//! message are [salvaged](crate::gather) with the rest.

use crate::blocks::MovedSession;
use crate::control::{ControlError, ControlErrorKind};
use crate::drive::ShardIndex;
use crate::execute::{Progress, Running, share_of};
use crate::flash::MovedStore;
use crate::ledger::Tied;
use crate::peer::{Message, Moved, Order, ShardMessage};
use crate::plan::Step;
use crate::shard::Shard;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_namespace::{MovedNamespace, StoreIndex};
use diecut_nvme::QualifiedName;
use diecut_nvmf::{Home, SubsystemFigures};
use diecut_units::{Time, mark, mutant};
use diecut_vssd::{VssdId, WearNews};

/// Tenants that move together, and all that is theirs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub tenants: Vec<String>,
    /// By number.
    pub vssds: Vec<u32>,
    pub channels: Vec<u16>,
    pub from: u16,
    pub to: u16,
}

impl Group {
    /// What is tied together, on its way.
    pub fn of(tied: Tied, from: u16, to: u16) -> Group {
        Group {
            tenants: tied.tenants.into_iter().collect(),
            vssds: tied.vssds.into_iter().collect(),
            channels: tied.channels.into_iter().collect(),
            from,
            to,
        }
    }
}

/// A group between two shards.
pub(crate) struct MovedGroup {
    pub moved: Moved,
    stores: Vec<MovedStore>,
    /// With the vSSD of each.
    namespaces: Vec<(VssdId, NamespaceId, MovedNamespace)>,
    /// Of applications.
    sessions: Vec<MovedSession>,
    figures: Vec<(String, SubsystemFigures)>,
}

fn refuse(kind: ControlErrorKind, message: String) -> Progress {
    Progress::Refused(ControlError { kind, message })
}

fn qualified(nqn: &str) -> QualifiedName {
    QualifiedName::new(nqn).expect("checked when it was made")
}

impl<M: Divide> Shard<M> {
    /// Finds out what moves with a tenant; the steps that move it come next.
    pub(crate) fn move_tenant(&mut self, tenant: &str, shard: u16, running: &mut Running) -> Progress {
        if shard >= self.shards {
            let message = format!(
                "tenant \"{tenant}\": there is no shard {shard}; the server has {}, numbered from 0",
                self.shards
            );
            return refuse(ControlErrorKind::Invalid, message);
        }
        let tenants = self.tenants_of_vssds();
        if !tenants.values().any(|owner| owner == tenant) {
            let message = format!("tenant \"{tenant}\" has no vSSD; its first one chooses its shard");
            return refuse(ControlErrorKind::Invalid, message);
        }
        let start = Tied { tenants: [tenant.to_owned()].into(), ..Tied::default() };
        let tied = self.ledger.tied_to(start, &tenants, self.flash.media.geometry());
        // Who is on a visit stays where the administrator says.
        self.evenness.forget_visits(&tied.channels);
        let from = self.ledger.home_of(tenant);
        if from != shard {
            running.steps.extend(self.moving_steps(Group::of(tied, from, shard)));
        }
        Progress::Done
    }

    /// What moves a group.
    pub(crate) fn moving_steps(&mut self, group: Group) -> Vec<Step> {
        let passed = self.orders.number();
        vec![Step::Leave(group.clone()), Step::Arrive(group.clone()), Step::Release(group, passed)]
    }

    /// Subsystems of a group's tenants.
    fn subsystems_of(&self, group: &Group) -> Vec<String> {
        let of_group =
            self.state.subsystems.iter().filter(|(_, record)| group.tenants.contains(&record.tenant));
        of_group.map(|(nqn, _)| nqn.clone()).collect()
    }

    /// Namespaces of a group that are open here, with their vSSDs.
    fn namespaces_of(&self, group: &Group) -> Vec<(VssdId, NamespaceId)> {
        let volumes = self.state.volumes.values();
        let placed =
            volumes.map(|volume| (self.state.vssds[&volume.vssd].number, NamespaceId(volume.namespace)));
        let of_group = placed.filter(|(vssd, id)| group.vssds.contains(vssd) && self.namespaces.is_open(*id));
        of_group.map(|(vssd, id)| (VssdId(vssd), id)).collect()
    }

    /// Takes a group out, when nothing of it is under way any more.
    pub(crate) fn leave(&mut self, group: &Group) -> Progress {
        let subsystems: Vec<QualifiedName> =
            self.subsystems_of(group).iter().map(|nqn| qualified(nqn)).collect();
        let stores: Vec<StoreIndex> = group.vssds.iter().filter_map(|&vssd| self.store_of(vssd)).collect();
        if self.duties.leaving.is_empty() {
            // The first shard may not have heard of the last exchange when it named the group.
            if !self.flash.pool.holds_just(&group.channels, &group.vssds) {
                mark!("shard: move of a group that is being exchanged");
                let message = format!(
                    "tenant \"{}\" stays on shard {}: what it holds is being exchanged for even wear; try again",
                    group.tenants.join("\", \""),
                    group.from
                );
                return refuse(ControlErrorKind::Busy, message);
            }
            self.flash.pool.hold_migration(true);
            self.duties.leaving.clone_from(&group.vssds);
            for &store in &stores {
                self.flash.store_mut(store).quiesce(true);
            }
        }
        if !self.duties.frozen {
            if !stores.iter().all(|&store| self.flash.store(store).is_quiesced()) {
                mark!("shard: move waits while its hosts are served");
                return Progress::Waits;
            }
            self.duties.frozen = true;
            subsystems.iter().for_each(|nqn| self.target.freeze(nqn));
            self.blocks.freeze(&group.vssds);
        }
        let namespaces = self.namespaces_of(group);
        let drained = subsystems.iter().all(|nqn| self.target.is_drained(nqn))
            && namespaces.iter().all(|(_, id)| self.namespaces.is_idle(*id))
            && self.blocks.is_drained(&group.vssds);
        if !drained {
            mark!("shard: move waits for commands under way");
            return Progress::Waits;
        }
        stores.iter().for_each(|&store| self.flash.hold_store(store));
        let channels = &group.channels;
        if !self.flash.pool.is_quiet(channels)
            || !channels.iter().all(|&channel| self.flash.media.is_quiet(channel))
        {
            mark!("shard: move waits for the medium");
            return Progress::Waits;
        }
        let figures = self.subsystems_of(group).into_iter().zip(&subsystems);
        let figures = figures.map(|(name, nqn)| (name, self.target.figures(nqn))).collect();
        let take = |(vssd, id): (VssdId, NamespaceId)| {
            self.admission.close(id);
            (vssd, id, self.namespaces.take_out(id))
        };
        let namespaces = namespaces.into_iter().map(take).collect();
        let stores = stores.into_iter().map(|store| self.flash.take_store(store)).collect();
        let sessions = self.blocks.take_out(&group.vssds);
        self.note_exchanges_elsewhere(channels);
        let part = self.flash.pool.detach(channels);
        self.flash.pool.hold_migration(false);
        let moved = Moved::new(channels.clone(), part, &mut self.flash.media);
        self.duties.leaving.clear();
        self.duties.frozen = false;
        self.duties.left = Some(Box::new(MovedGroup { moved, stores, namespaces, sessions, figures }));
        Progress::Done
    }

    /// The first shard keeps account of exchanges on channels that it gives away.
    pub(crate) fn note_exchanges_elsewhere(&mut self, channels: &[u16]) {
        if !self.is_member() {
            for dies in self.flash.pool.exchanges_on(channels) {
                self.flash.pool.heard_of(WearNews::Begun(dies));
            }
        }
    }

    /// Has a group put in at its new home.
    pub(crate) fn arrive_somewhere(&mut self, group: &Group, running: &mut Running, now: Time) -> Progress {
        if let Some(moved) = self.orders.moving.take() {
            self.ledger.rehome(group);
            if group.to == 0 {
                self.arrive(*moved, group, now);
                return Progress::Done;
            }
            running.awaited.push(self.order(group.to, Order::Arrive(moved, group.clone())));
        }
        let mut awaited = std::mem::take(&mut running.awaited);
        let arrived = self.all_answered(&mut awaited);
        running.awaited = awaited;
        if arrived { Progress::Done } else { Progress::Waits }
    }

    /// Puts a group in and serves it.
    pub(crate) fn arrive(&mut self, moved: MovedGroup, group: &Group, now: Time) {
        let MovedGroup { moved, stores, namespaces, sessions, figures } = moved;
        let part = moved.unpack(&mut self.flash.media);
        self.flash.pool.attach(part);
        // Limits were lifted for the move.
        for record in self.own_vssds().iter().filter(|record| group.vssds.contains(&record.number)) {
            self.flash.pool.set_share(VssdId(record.number), share_of(record), now);
        }
        for store in stores {
            self.flash.put_store(store);
        }
        for (vssd, id, namespace) in namespaces {
            let store = self.flash.store_of(vssd).expect("a namespace moves with its store");
            self.seat_namespace(id, vssd);
            self.namespaces.put_in(id, namespace, store);
        }
        sessions.into_iter().for_each(|session| self.blocks.put_in(session));
        self.ledger.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
        for (nqn, figures) in figures {
            let config = self.subsystem_config(&nqn).expect("a subsystem that moves exists");
            self.target.place(config, Some(figures), now, &mut self.target_actions);
            self.duties.arriving.push(qualified(&nqn));
        }
        mark!("shard: group moved while it was served");
    }

    /// The last connection of the group that came here last has come, and the last application.
    pub(crate) fn all_arrived(&mut self, now: Time) {
        for nqn in std::mem::take(&mut self.duties.arriving) {
            self.target.arrived(&nqn, now, &mut self.target_actions);
        }
        self.blocks.all_arrived();
    }

    /// Learns a group's new home, and gives its connections away, if they are here.
    pub(crate) fn release(&mut self, group: &Group, passed: u64, now: Time) {
        self.ledger.homes.extend(group.tenants.iter().map(|tenant| (tenant.clone(), group.to)));
        if self.index.0 == group.to {
            return;
        }
        let is_old_home = self.index.0 == group.from;
        for nqn in self.subsystems_of(group) {
            let mut config = self.subsystem_config(&nqn).expect("just listed");
            if is_old_home {
                if mutant!("shard: old home keeps its subsystem") {
                    config.home = Home::Here;
                }
                self.target.release(config, group.to, now, &mut self.target_actions);
            } else {
                self.target.place(config, None, now, &mut self.target_actions);
            }
        }
        if is_old_home {
            self.blocks.release(ShardIndex(group.to));
            // Behind the connections, on the same way.
            self.outgoing.push((ShardIndex(group.to), ShardMessage(Message::Passed(passed))));
        }
    }
}
