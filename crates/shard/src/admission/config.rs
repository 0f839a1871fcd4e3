//! What an administrator of the core may choose of admission.

use super::qos::DeviceShaper;
use diecut_units::Span;

/// Limits of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Cost one connection may use before another one to its volume gets its turn: one for a command and one or two for each
    /// block. A piece of a large command costs more, so that others' turns come after each.
    pub source_quantum: u32,
    /// Commands of one volume that may be under way below admission.
    pub window_commands: u32,
    /// Cost admitted in one round of the shard before new events are looked at, while the core is contended: what
    /// a host sends meanwhile waits for all of it. The default is one piece of a large write, 16 reads or 10 writes: about 40 us
    /// with the costs of [`crate::CostModel`]. Sixteen times as much is half a millisecond beside large writes.
    pub round_cost: u32,
    /// The same for a tenant that is alone. Each round goes through receiving and sending, which is less work for many commands
    /// at once (`diecut-bench all --only b`), and nobody waits for them. A tenant that comes waits for such a round once.
    pub uncontended_round_cost: u32,
    /// How long the core counts as contended after something of another tenant was admitted last.
    pub contention_window: Span,
    /// What the device can do, of which QoS sets and what is in none get their parts; `None`: no shaper of the device.
    pub device_shaper: Option<DeviceShaper>,
}

impl Default for AdmissionConfig {
    fn default() -> AdmissionConfig {
        AdmissionConfig {
            source_quantum: 16,
            window_commands: 1024,
            round_cost: 32,
            uncontended_round_cost: 128,
            contention_window: Span::from_millis(10),
            device_shaper: None,
        }
    }
}
