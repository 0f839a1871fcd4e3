//! Routes of the control interface. `{name}` stands for the percent-encoded name of an object.
//!
//! | method and path | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | - | [`crate::status::Status`] |
//! | `POST /v1/tenants`, `/v1/vssds`, `/v1/volumes`, `/v1/subsystems` | the object | 204 |
//! | `DELETE /v1/tenants/{name}` and so on | - | 204 |
//! | `POST /v1/tenants/{name}/home` | [`crate::object::Home`] | 204 |
//! | `POST /v1/subsystems/{nqn}/hosts` | [`diecut_spec::HostSpec`] | 204 |
//! | `DELETE /v1/subsystems/{nqn}/hosts/{host}` | - | 204 |
//! | `POST /v1/subsystems/{nqn}/namespaces` | [`diecut_spec::NamespaceSpec`] | 204 |
//! | `DELETE /v1/subsystems/{nqn}/namespaces/{nsid}` | - | 204 |
//! | `POST /v1/vssds/{name}/repair` | [`crate::object::Repair`] | [`crate::status::RepairReport`] |
//! | `POST /v1/wear` | [`diecut_spec::WearSettings`] | 204 |
//! | `POST /v1/shutdown` | - | 204 |
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
/// Tenants.
pub const TENANTS: &str = "/v1/tenants";
/// vSSDs.
pub const VSSDS: &str = "/v1/vssds";
/// Volumes.
pub const VOLUMES: &str = "/v1/volumes";
/// Subsystems.
pub const SUBSYSTEMS: &str = "/v1/subsystems";
/// Settings of even wear.
pub const WEAR: &str = "/v1/wear";
/// Orderly stop of the server.
pub const SHUTDOWN: &str = "/v1/shutdown";

/// The path of the repair of a vSSD.
pub fn repair(vssd: &str) -> String {
    format!("{VSSDS}/{}/repair", encode(vssd))
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
