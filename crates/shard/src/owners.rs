//! The owners of what is on one shard. Steps, orders and messages work on them; the shard wires them together.

use crate::admission::DeviceShaper;
use crate::answers::Answers;
use crate::at_work::For;
use crate::config::ShardConfig;
use crate::data_plane::DataPlane;
use crate::drive;
use crate::flash::Standing;
use crate::health_turns::HealthTurns;
use crate::lanes::{Lane, by_device};
use crate::media_figures;
use crate::newcomer::Newcomer;
use crate::notice::Notice;
use crate::panics::WorkOutline;
use crate::peer::{Message, ShardMessage, World};
use crate::placement::Placement;
use crate::qos;
use crate::reach::Reaches;
use crate::registry::Registry;
use crate::seat::ShardIndex;
use crate::steps::moving::Moving;
use diecut_catalog::VssdRecord;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_nvmf as target;
use diecut_spec::Serves;
use diecut_units::{Time, mutant};
use diecut_vssd::{VssdId, WearNews};
use std::sync::Arc;

/// See the module.
pub(crate) struct Owners<M: Divide> {
    pub config: ShardConfig,
    /// The path of commands.
    pub plane: DataPlane<M>,
    /// What exists.
    pub registry: Registry,
    /// What lives where.
    pub placement: Placement,
    /// Devices that were brought, and that nobody has made some of the pool.
    pub newcomers: Vec<Newcomer>,
    /// A vSSD that moves to other devices.
    pub moving: Option<Moving>,
    /// The server is to stop.
    pub is_stopping: bool,
    /// What stores answered jobs.
    pub answers: Answers,
    /// Whose health is told next.
    pub health: HealthTurns,
    /// For the driver.
    pub notices: Vec<Notice>,
}

impl<M: Divide> Owners<M> {
    /// What exists, and where.
    pub fn world(&self) -> Arc<World> {
        Arc::new(World {
            state: self.registry.state.clone(),
            homes: self.placement.ledger.homes.clone(),
            away: self.registry.away.clone(),
        })
    }

    /// The shaper of the device for all shards together; each has the same part.
    pub fn device_shaper(&self) -> Option<DeviceShaper> {
        let shards = u64::from(self.placement.shards);
        let whole = |mut device: DeviceShaper| {
            device.bucket.rate_per_second *= shards;
            device.bucket.size *= shards;
            device
        };
        self.config.admission.device_shaper.map(whole)
    }

    /// vSSDs that live here, of those that exist.
    pub fn own_vssds(&self) -> Vec<VssdRecord> {
        let ids = self.plane.flash.devices.vssd_ids().map(|id| id.0);
        // A part of one whose others are missing is not the vSSD.
        let held: Vec<u32> = ids.filter(|number| !self.registry.away.contains_key(number)).collect();
        let records = self.registry.state.vssds.values();
        records.filter(|record| held.contains(&record.number)).cloned().collect()
    }

    /// For whom the shard works.
    pub fn at_work(&self) -> WorkOutline {
        let flash = &self.plane.flash;
        let state = &self.registry.state;
        let number = match flash.at_work.now_for {
            For::All => None,
            For::Vssd(vssd) => Some(vssd.0),
            For::Store(store) => flash.vssd_of(store).map(|vssd| vssd.0),
            For::Namespace(id) => {
                let volume = state.volumes.values().find(|volume| volume.namespace == id.0);
                volume.and_then(|volume| state.vssds.get(&volume.vssd)).map(|vssd| vssd.number)
            }
        };
        let vssd = number.map(|number| (number, self.registry.name_of_vssd(VssdId(number))));
        WorkOutline { vssd, commands: flash.at_work.commands() }
    }

    /// Has the commands of a namespace on a vSSD take turns of its tenant.
    pub fn seat_namespace(&mut self, id: NamespaceId, vssd: VssdId) {
        let tenant = self.registry.tenant_of_vssd(vssd);
        let is_held = !self.plane.flash.devices.has_room(vssd);
        self.plane.admission.open(id, tenant, vssd, is_held);
        qos::seat_namespace(&mut self.plane, &self.registry, id);
    }

    /// Has the entries of an application at a vSSD take turns of its tenant, if the vSSD serves erase blocks.
    pub fn seat_blocks(&mut self, vssd: &VssdRecord) {
        if vssd.serves == Serves::Blocks {
            let id = VssdId(vssd.number);
            let is_held = !self.plane.flash.devices.has_room(id);
            self.plane.admission.open_blocks(&self.registry.state.tenants[&vssd.tenant], id, is_held);
            qos::seat_blocks(&mut self.plane, &self.registry, vssd);
        }
    }

    /// The first shard keeps account of exchanges on lanes that it gives away.
    pub fn note_exchanges_elsewhere(&mut self, lanes: &[Lane]) {
        if self.placement.is_member() {
            return;
        }
        for (device, channels) in by_device(lanes) {
            let pool = &mut self.plane.flash.devices.get_mut(device).pool;
            for dies in pool.exchanges_on(&channels) {
                pool.heard_of(WearNews::Begun(dies));
            }
        }
    }

    /// All channels of all devices, for catalogs.
    pub fn reaches(&mut self) -> Reaches<'_, M> {
        Reaches {
            devices: &mut self.plane.flash.devices,
            owners: &self.placement.ledger.owners,
            outgoing: &mut self.placement.outgoing,
            elsewhere: &mut self.placement.attendance.media,
        }
    }

    /// The medium answered somebody else than the pool: the catalog, which is the first shard's.
    pub fn take_foreign(&mut self, now: Time) {
        for (device, completion) in std::mem::take(&mut self.plane.flash.foreign) {
            if self.placement.is_member() {
                let message = ShardMessage(Message::MediaDone(device, completion));
                self.placement.outgoing.push((ShardIndex(0), message));
                continue;
            }
            let mut reaches = Reaches {
                devices: &mut self.plane.flash.devices,
                owners: &self.placement.ledger.owners,
                outgoing: &mut self.placement.outgoing,
                elsewhere: &mut self.placement.attendance.media,
            };
            self.registry.catalog.complete(device, completion, &mut reaches, now);
            let lost = self.registry.catalog.lost_copies();
            if lost > std::mem::replace(&mut self.registry.lost_catalog_copies, lost) {
                self.notices.push(Notice::CatalogCopyLost);
            }
        }
    }

    /// Takes what stores answered: jobs, or namespaces.
    pub fn take_results(&mut self, now: Time) {
        let answers = &mut self.answers;
        let of_jobs = |token: u64, worked: bool| {
            let is_for_job = Answers::is_for_job(token);
            if is_for_job {
                answers.put(token, worked);
            }
            is_for_job
        };
        self.plane.take_results(of_jobs, now);
    }

    /// Says what happened below: stores that take no writes, blocks that failed.
    pub fn notice_flash(&mut self) {
        for (vssd, standing) in std::mem::take(&mut self.plane.flash.standings) {
            let vssd = self.registry.name_of_vssd(vssd);
            let notice = match standing {
                Standing::ReadOnly(_) | Standing::NoRoom(_)
                    if mutant!("shard: a read-only vSSD is not told of") =>
                {
                    continue;
                }
                Standing::ReadOnly(reason) => Notice::ReadOnly { vssd, reason },
                Standing::NoRoom(reason) => Notice::NoRoom { vssd, reason },
                Standing::TakesWrites => Notice::RoomAgain { vssd },
                Standing::Full => Notice::Full { vssd },
            };
            self.notices.push(notice);
        }
        let limits_met = self.plane.flash.devices.iter_mut().flat_map(|own| own.pool.take_limits_met());
        for vssd in limits_met.collect::<Vec<_>>() {
            let vssd = self.registry.name_of_vssd(vssd);
            self.notices.push(Notice::RateLimited { vssd });
        }
        self.plane.notice_retired(&mut self.notices);
    }

    /// Hands what was asked for out: commands to admission, the rest to the driver.
    pub fn hand_out(&mut self, now: Time, actions: &mut Vec<drive::Action>) {
        self.plane.sort_actions(actions);
        for keep in std::mem::take(&mut self.plane.keeps) {
            if self.placement.is_member() {
                let message = ShardMessage(Message::Keep(Box::new(keep)));
                self.placement.outgoing.push((ShardIndex(0), message));
            } else {
                self.placement.reservations.ask(ShardIndex(0), keep);
            }
        }
        while let Some(question) = self.plane.questions.pop() {
            let tidings = media_figures::answer(&mut self.plane, &self.registry, question, now);
            self.plane.nvme.handle(target::Event::Told(Box::new(tidings)), now);
            self.plane.sort_actions(actions);
        }
        if !self.notices.is_empty() {
            actions.extend(self.notices.drain(..).map(|notice| drive::Action::Notice(Box::new(notice))));
        }
        actions.extend(self.plane.blocks.actions.drain(..).map(drive::Action::Blocks));
        for (to, message) in self.placement.outgoing.drain(..) {
            actions.push(drive::Action::Tell { to, message });
        }
        if std::mem::take(&mut self.placement.attendance.is_over) {
            actions.push(drive::Action::BeginAnew);
        }
    }
}
