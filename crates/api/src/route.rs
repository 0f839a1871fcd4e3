//! Routes of the control interface. `{name}` stands for the percent-encoded name of an object.
//!
//! | method and path | what it does | body | answer |
//! |---|---|---|---|
//! | `GET /v1/status` | tells what exists, with figures | - | [`crate::status::Status`] |
//! | `GET /v1/latency` | tells where the time of slow commands went | - | [`diecut_spec::latency::LatencyReport`] |
//! | `GET /v1/panics` | tells which inner checks failed, and which vSSDs are fenced for it | - | [`crate::panics::PanicReport`] |
//! | `POST /v1/tenants` | makes a tenant | [`diecut_spec::TenantSpec`] | 204 |
//! | `DELETE /v1/tenants/{name}` | deletes it | - | 204 |
//! | `POST /v1/tenants/{name}/home` | moves it to another shard | [`crate::object::Home`] | 204 |
//! | `POST /v1/tenants/{name}/weight` | sets what is due to it beside others | [`crate::object::Weight`] | 204 |
//! | `POST /v1/vssds` | makes a vSSD | [`diecut_spec::VssdSpec`] | 204 |
//! | `DELETE /v1/vssds/{name}` | deletes it | - | 204 |
//! | `POST /v1/vssds/{name}/repair` | looks for what is missing, and gives it up if asked to | [`crate::object::Repair`] | [`crate::status::RepairReport`] |
//! | `POST /v1/vssds/{name}/unfence` | lets hosts write it again | - | 204 |
//! | `POST /v1/volumes` | makes a volume | [`diecut_spec::VolumeSpec`] | 204 |
//! | `DELETE /v1/volumes/{name}` | deletes it | - | 204 |
//! | `POST /v1/subsystems` | makes a subsystem | [`diecut_spec::SubsystemSpec`] | 204 |
//! | `DELETE /v1/subsystems/{nqn}` | deletes it | - | 204 |
//! | `POST /v1/subsystems/{nqn}/hosts` | lets a host in | [`diecut_spec::HostSpec`] | 204 |
//! | `DELETE /v1/subsystems/{nqn}/hosts/{host}` | shuts it out | - | 204 |
//! | `POST /v1/subsystems/{nqn}/namespaces` | shows a volume | [`diecut_spec::NamespaceSpec`] | 204 |
//! | `DELETE /v1/subsystems/{nqn}/namespaces/{nsid}` | hides it | - | 204 |
//! | `POST /v1/subsystems/{nqn}/paths` | says how good a path to it is | [`diecut_spec::PathSpec`] | 204 |
//! | `POST /v1/qos` | makes a QoS set | [`diecut_spec::QosSetSpec`] | 204 |
//! | `POST /v1/qos/{name}` | changes it | [`diecut_spec::QosSetChange`] | 204 |
//! | `DELETE /v1/qos/{name}` | deletes it | - | 204 |
//! | `POST /v1/wear` | changes settings of even wear | [`diecut_spec::WearSettings`] | 204 |
//! | `POST /v1/devices` | adds a drive to the pool | [`crate::object::NewDevice`] | [`crate::object::AddedDevice`] |
//! | `DELETE /v1/devices/{device}` | takes one out, by name, path or UUID | - | [`crate::object::RemovedDevice`] |
//! | `POST /v1/devices/{device}/evacuate` | begins to move what lies there to other devices; the status says how far that is | - | 204 |
//! | `DELETE /v1/devices/{device}/evacuate` | calls that off: what did not move yet stays | - | 204 |
//! | `POST /v1/shutdown` | stops the server in order | - | 204 |
//!
//! A change answers 200 instead of 204 where what it asks for was so already.
//!
//! Every change takes the header [`TIMEOUT_HEADER`].
//! A refusal has the status of its [`crate::problem::ProblemKind`] and a [`crate::problem::Problem`] as body.

/// Header of a change: whole seconds after which it is answered, done or not (504); 0 for as long as it takes. What is not done goes on.
/// Without it the server chooses (60 s).
pub const TIMEOUT_HEADER: &str = "diecut-timeout";

/// Figures and everything that exists.
pub const STATUS: &str = "/v1/status";
/// Where the time of slow commands went.
pub const LATENCY: &str = "/v1/latency";
/// Panics of the server.
pub const PANICS: &str = "/v1/panics";
/// Tenants.
pub const TENANTS: &str = "/v1/tenants";
/// vSSDs.
pub const VSSDS: &str = "/v1/vssds";
/// Volumes.
pub const VOLUMES: &str = "/v1/volumes";
/// Subsystems.
pub const SUBSYSTEMS: &str = "/v1/subsystems";
/// QoS sets.
pub const QOS: &str = "/v1/qos";
/// Devices.
pub const DEVICES: &str = "/v1/devices";
/// Settings of even wear.
pub const WEAR: &str = "/v1/wear";
/// Orderly stop of the server.
pub const SHUTDOWN: &str = "/v1/shutdown";

/// The path of the repair of a vSSD.
pub fn repair(vssd: &str) -> String {
    format!("{VSSDS}/{}/repair", encode(vssd))
}

/// The path of the end of a vSSD's fence.
pub fn unfence(vssd: &str) -> String {
    format!("{VSSDS}/{}/unfence", encode(vssd))
}

/// The path of the evacuation of a device.
pub fn evacuate(device: &str) -> String {
    format!("{DEVICES}/{}/evacuate", encode(device))
}

/// The path of one object of a kind.
pub fn of(kind: &str, name: &str) -> String {
    format!("{kind}/{}", encode(name))
}

/// The path of an object within a subsystem.
pub fn within(subsystem: &str, kind: &str, name: &str) -> String {
    format!("{SUBSYSTEMS}/{}/{kind}/{}", encode(subsystem), encode(name))
}

/// The path of a list within a subsystem.
pub fn list_within(subsystem: &str, kind: &str) -> String {
    format!("{SUBSYSTEMS}/{}/{kind}", encode(subsystem))
}

/// Percent-encodes everything but the unreserved characters of RFC 3986 section 2.3.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod test {
    #[test]
    fn names_cannot_leave_their_path_segment() {
        assert_eq!(super::of(super::TENANTS, "a/../b c"), "/v1/tenants/a%2F..%2Fb%20c");
        assert_eq!(
            super::within("nqn.2026-11.org.diecut:a", "hosts", "h"),
            "/v1/subsystems/nqn.2026-11.org.diecut%3Aa/hosts/h"
        );
    }
}
