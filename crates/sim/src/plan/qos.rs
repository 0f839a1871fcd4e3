//! QoS sets in a plan: which there are from the start, what is in them, what the device gives out in all, and how administrators change
//! them.

use super::{Lane, Plan};
use crate::administration::{tenant_name, volume_name};
use crate::tag::VolumeNumber;
use diecut_shard::control::{ControlRequest, QosSetChange, QosSetSpec};
use diecut_shard::{BucketSize, DeviceShaper, TokenUnit};
use diecut_spec::{Amount, Size};
use serde::{Deserialize, Serialize};

/// Bytes that a token of the device is worth, where it counts bytes.
const DEVICE_TOKEN_BYTES: u32 = 4096;

/// QoS sets of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosPlan {
    /// Whether sets and device count commands; `false`: bytes.
    pub in_commands: bool,
    /// What the device gives out to all; absent: there is no second stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DevicePlan>,
    /// The sets. Their members are there from the start, and nothing is in two.
    pub sets: Vec<QosSetPlan>,
    /// A lane whose host keeps to half of its set's rate in the calm, while all others ask for more than there is; absent: nothing is
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modest: Option<Lane>,
}

/// What the device gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicePlan {
    /// Units in a second.
    pub rate: u64,
    /// Units at once.
    pub bucket: u64,
}

/// One set; amounts are bytes or commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosSetPlan {
    /// What is committed to it in a second.
    pub rate: u64,
    /// What its bucket holds.
    pub bucket: u64,
    /// From where on it is in the committed state.
    pub threshold: u64,
    /// What it gets besides in the second state; absent: all that is idle.
    pub second_rate: Option<u64>,
    /// Bytes that a token is worth.
    pub token_bytes: u32,
    /// Lanes whose vSSDs are in it.
    pub vssds: Vec<Lane>,
    /// Volumes that are in it by themselves.
    pub volumes: Vec<VolumeNumber>,
}

/// What an administrator does with a set, by its place in [`QosPlan::sets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QosStep {
    /// Makes it again.
    Create {
        /// Which.
        set: u8,
    },
    /// Gives it so many percent of all that the plan says.
    Scale {
        /// Which.
        set: u8,
        /// At most 100, so that it fits the device.
        percent: u8,
    },
    /// Deletes it.
    Delete {
        /// Which.
        set: u8,
    },
}

/// Name of a set.
pub fn set_name(set: u8) -> String {
    format!("set-{set}")
}

impl QosPlan {
    /// So many units.
    fn amount(&self, units: u64) -> Amount {
        if self.in_commands { Amount::Commands(units) } else { Amount::Bytes(Size(units)) }
    }

    /// The definition of a set.
    pub fn spec(&self, set: u8, percent: u8) -> QosSetSpec {
        let plan = &self.sets[usize::from(set)];
        let part = |units: u64| self.amount(units * u64::from(percent) / 100);
        QosSetSpec {
            token: Size(plan.token_bytes.into()),
            bucket: Some(part(plan.bucket)),
            threshold: Some(part(plan.threshold)),
            second_rate: plan.second_rate.map(part),
            vssds: plan.vssds.iter().map(|lane| tenant_name(*lane)).collect(),
            volumes: plan.volumes.iter().map(|volume| volume_name(*volume)).collect(),
            ..QosSetSpec::new(&set_name(set), part(plan.rate))
        }
    }

    /// The definitions of all sets.
    pub fn specs(&self) -> impl Iterator<Item = QosSetSpec> + '_ {
        (0..self.sets.len() as u8).map(|set| self.spec(set, 100))
    }

    /// What each of so many shards gives out.
    pub fn device_shaper(&self, shards: u16) -> Option<DeviceShaper> {
        let shards = u64::from(shards.max(1));
        let unit = if self.in_commands { TokenUnit::Command } else { TokenUnit::Bytes(DEVICE_TOKEN_BYTES) };
        let of = |device: DevicePlan| BucketSize {
            rate_per_second: device.rate / shards,
            size: (device.bucket / shards).max(1),
        };
        self.device.map(|device| DeviceShaper { unit, bucket: of(device) })
    }

    /// Units that a command takes which moves so many bytes, if a token is worth so many.
    pub fn units_of(&self, bytes: u64, token_bytes: u32) -> u64 {
        let token = u64::from(token_bytes);
        if self.in_commands { 1 } else { bytes.div_ceil(token).max(1) * token }
    }

    /// The same at the device.
    pub fn device_units_of(&self, bytes: u64) -> u64 {
        self.units_of(bytes, DEVICE_TOKEN_BYTES)
    }
}

impl QosStep {
    /// The request.
    ///
    /// # Panics
    /// If the plan has no such set: plans are consistent.
    pub fn request(self, plan: &Plan) -> ControlRequest {
        let sets = plan.qos.as_ref().expect("who changes sets has some");
        match self {
            QosStep::Create { set } => ControlRequest::CreateQosSet(sets.spec(set, 100)),
            QosStep::Scale { set, percent } => {
                let spec = sets.spec(set, percent);
                let change = QosSetChange {
                    rate: Some(spec.rate),
                    bucket: spec.bucket,
                    threshold: spec.threshold,
                    second_rate: spec.second_rate,
                    ..QosSetChange::default()
                };
                ControlRequest::ChangeQosSet { set: set_name(set), change }
            }
            QosStep::Delete { set } => ControlRequest::DeleteQosSet(set_name(set)),
        }
    }
}

impl Plan {
    /// The set that a volume is in, if it is in one.
    pub fn qos_set_of(&self, volume: VolumeNumber) -> Option<u8> {
        let owner = self.owner(volume);
        let has_it = |set: &QosSetPlan| set.volumes.contains(&volume) || set.vssds.contains(&owner);
        let at = self.qos.as_ref()?.sets.iter().position(has_it);
        at.map(|at| at as u8)
    }
}
