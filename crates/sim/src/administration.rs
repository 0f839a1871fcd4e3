//! What administrators do in a run, as small data of a plan, and the words it becomes for a shard.

use crate::drives::drive_name;
use crate::plan::{ApplicationPlan, Lane, PlacementPlan, Plan, QosStep};
use crate::tag::VolumeNumber;
use diecut_shard::control::*;
use diecut_spec::{PlacementIsolation, ReclaimGroups, Serves, Size};
use serde::{Deserialize, Serialize};

/// Over-provisioning of every vSSD whose volumes fit with it.
pub const OVER_PROVISIONING_PERMILLE: u32 = 280;

/// One request of an administrator. Everything about the object stands in the plan under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The tenant of a lane.
    CreateTenant(Lane),
    /// The tenant of a lane, which must own nothing.
    DeleteTenant(Lane),
    /// The vSSD of a lane's tenant.
    CreateVssd(Lane),
    /// The vSSD of a lane's tenant, without volumes.
    DeleteVssd(Lane),
    /// A volume on its tenant's vSSD.
    CreateVolume(VolumeNumber),
    /// A volume that nothing shows.
    DeleteVolume(VolumeNumber),
    /// The subsystem of a lane's tenant, without namespaces and hosts.
    CreateSubsystem(Lane),
    /// The subsystem of a lane's tenant.
    DeleteSubsystem(Lane),
    /// Lets the lane's host in.
    AllowHost(Lane),
    /// Throws the lane's host out.
    DenyHost(Lane),
    /// Shows a volume in its tenant's subsystem.
    Attach(VolumeNumber),
    /// Takes a volume from its tenant's subsystem.
    Detach(VolumeNumber),
    /// Brings a lane's tenant to another shard, if the server has it.
    Move {
        /// The tenant.
        lane: Lane,
        /// Where to.
        shard: u16,
    },
    /// A second subsystem of a lane's tenant, which lets every host in.
    OpenToAll(Lane),
    /// Deletes it.
    CloseToAll(Lane),
    /// Shows a volume in it.
    ShowToAll(VolumeNumber),
    /// Has the vSSD of a lane's tenant repaired.
    Repair {
        /// The tenant.
        lane: Lane,
        /// Whether what is lost is accepted as lost.
        accepts_loss: bool,
    },
    /// Something about a QoS set.
    Qos(QosStep),
}

/// Name of a lane's vSSD, which is also that of its tenant if it has one of its own ([`Plan::tenant_of`]).
pub fn tenant_name(lane: Lane) -> String {
    format!("tenant-{}", lane.0)
}

/// Name of a volume.
pub fn volume_name(volume: VolumeNumber) -> String {
    format!("volume-{}", volume.0)
}

/// NQN of a lane's subsystem.
pub fn subsystem_name(lane: Lane) -> String {
    format!("nqn.2026-11.example:tenant-{}", lane.0)
}

/// NQN of the subsystem of a lane's tenant that lets every host in, and the number of the volume in it.
pub fn open_subsystem_name(lane: Lane) -> String {
    format!("nqn.2026-11.example:open-{}", lane.0)
}

/// See [`open_subsystem_name`].
pub const OPEN_NSID: u32 = 1;

/// NQN of a lane's host.
pub fn host_name(lane: Lane) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:host-{}", lane.0)
}

impl Change {
    /// The request.
    ///
    /// # Panics
    /// If the plan has no such tenant or volume: plans are consistent.
    pub fn request(self, plan: &Plan) -> ControlRequest {
        match self {
            Change::CreateTenant(lane) => {
                ControlRequest::CreateTenant(TenantSpec::new(&tenant_name(plan.tenant_of(lane))))
            }
            Change::Move { lane, shard } => {
                ControlRequest::MoveTenant { tenant: tenant_name(plan.tenant_of(lane)), shard }
            }
            Change::OpenToAll(lane) => ControlRequest::CreateSubsystem(SubsystemSpec {
                nqn: open_subsystem_name(lane),
                tenant: tenant_name(plan.tenant_of(lane)),
                serial: None,
                model: None,
                allow_any_host: true,
                allowed_hosts: Vec::new(),
                paths: Vec::new(),
                namespaces: Vec::new(),
            }),
            Change::CloseToAll(lane) => ControlRequest::DeleteSubsystem(open_subsystem_name(lane)),
            Change::ShowToAll(volume) => ControlRequest::AttachNamespace {
                subsystem: open_subsystem_name(plan.owner(volume)),
                nsid: OPEN_NSID,
                volume: volume_name(volume),
            },
            Change::Repair { lane, accepts_loss } => {
                ControlRequest::RepairVssd { vssd: tenant_name(lane), accepts_loss }
            }
            Change::Qos(step) => step.request(plan),
            Change::DeleteTenant(lane) => ControlRequest::DeleteTenant(tenant_name(lane)),
            Change::CreateVssd(lane) => {
                ControlRequest::CreateVssd(vssd_spec(plan, lane, OVER_PROVISIONING_PERMILLE))
            }
            Change::DeleteVssd(lane) => ControlRequest::DeleteVssd(tenant_name(lane)),
            Change::CreateVolume(volume) => ControlRequest::CreateVolume(VolumeSpec {
                name: volume_name(volume),
                vssd: tenant_name(plan.owner(volume)),
                size: Size(plan.volume(volume).iu_count * 4096),
                uuid: None,
                nguid: None,
                zones: Default::default(),
                placement: plan.placement_of(volume).unwrap_or_default(),
            }),
            Change::DeleteVolume(volume) => ControlRequest::DeleteVolume(volume_name(volume)),
            Change::CreateSubsystem(lane) => ControlRequest::CreateSubsystem(SubsystemSpec {
                nqn: subsystem_name(lane),
                tenant: tenant_name(plan.tenant_of(lane)),
                serial: None,
                model: None,
                allow_any_host: false,
                allowed_hosts: Vec::new(),
                paths: Vec::new(),
                namespaces: Vec::new(),
            }),
            Change::DeleteSubsystem(lane) => ControlRequest::DeleteSubsystem(subsystem_name(lane)),
            Change::AllowHost(lane) => {
                ControlRequest::AllowHost { subsystem: subsystem_name(lane), host: host_name(lane) }
            }
            Change::DenyHost(lane) => {
                ControlRequest::DenyHost { subsystem: subsystem_name(lane), host: host_name(lane) }
            }
            Change::Attach(volume) => ControlRequest::AttachNamespace {
                subsystem: subsystem_name(plan.owner(volume)),
                nsid: u32::from(volume.0),
                volume: volume_name(volume),
            },
            Change::Detach(volume) => ControlRequest::DetachNamespace {
                subsystem: subsystem_name(plan.owner(volume)),
                nsid: u32::from(volume.0),
            },
        }
    }
}

/// User that applications at erase blocks run as.
pub const APPLICATION_UID: u32 = 1000;

/// Definition of the vSSD of an application.
pub fn application_spec(plan: &Plan, lane: Lane, application: &ApplicationPlan) -> VssdSpec {
    let (name, owner) = (tenant_name(lane), tenant_name(plan.tenant_of(lane)));
    VssdSpec {
        throughput_level: 0,
        capacity: Size(application.capacity_bytes),
        serves: Serves::Blocks,
        uid: Some(APPLICATION_UID),
        ..VssdSpec::new(&name, &owner, application.isolation, OVER_PROVISIONING_PERMILLE)
    }
}

/// Definition of a lane's vSSD.
pub fn vssd_spec(plan: &Plan, lane: Lane, over_provisioning_permille: u32) -> VssdSpec {
    let tenant = &plan.tenants[usize::from(lane.0)];
    let (name, owner) = (tenant_name(lane), tenant_name(plan.tenant_of(lane)));
    let placement =
        tenant.placement.unwrap_or(PlacementPlan { handles: 0, persistent: false, groups: false });
    let plain = VssdSpec {
        weight: tenant.weight(),
        placement_handles: placement.handles,
        placement_isolation: match placement.persistent {
            true => PlacementIsolation::Persistent,
            false => PlacementIsolation::Initial,
        },
        device: tenant.drives.iter().map(|drive| drive_name(*drive)).collect(),
        parts: (tenant.drives.is_empty() && plan.system.drives.len() > 1)
            .then_some(plan.system.drives.len() as _),
        reclaim_groups: if placement.groups { ReclaimGroups::Die } else { ReclaimGroups::One },
        ..VssdSpec::new(&name, &owner, tenant.isolation, over_provisioning_permille)
    };
    match tenant.capacity_bytes {
        Some(capacity_bytes) => VssdSpec { throughput_level: 0, capacity: Size(capacity_bytes), ..plain },
        None => plain,
    }
}

/// What makes everything that exists when a run begins, in order.
pub fn set_up(plan: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    for (number, tenant) in plan.tenants.iter().enumerate() {
        let lane = Lane(number as u8);
        if tenant.guest {
            continue;
        }
        changes.extend([Change::CreateTenant(lane), Change::CreateVssd(lane)]);
        if plan.system.hosts {
            changes.extend([Change::CreateSubsystem(lane), Change::AllowHost(lane)]);
        }
        for volume in tenant.volumes.iter().filter(|volume| !volume.later) {
            changes.push(Change::CreateVolume(volume.number));
            if plan.system.hosts {
                changes.push(Change::Attach(volume.number));
            }
        }
    }
    changes
}
