//! What a set-up declares beside what exists. What exists is never changed to fit a file unasked: a server tells its
//! administrator what differs when it starts, and `diecut apply` after it did what it can.

use crate::setup::Setup;
use crate::socket::is_default_socket;
use crate::status::Status;
use diecut_spec::{QosSetSpec, SubsystemSpec, TenantSpec, WearSettings, WearStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// Something that is not as a set-up declares it. What only exists, and is not declared, is no difference: other files or
/// an administrator may have made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Kind of the object: `tenant`, `vssd`, `volume`, `subsystem`, `qos`, `wear`, `device`.
    pub kind: String,
    /// Its name; empty for even wear.
    pub name: String,
    /// The field, as the file calls it; absent if the object does not exist.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// What the file declares.
    pub declared: String,
    /// What exists; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exists: Option<String>,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { kind, name, field, declared, exists, remedy } = self;
        let object = if name.is_empty() { kind.clone() } else { format!("{kind} \"{name}\"") };
        match (field, exists) {
            (Some(field), Some(exists)) => {
                write!(f, "{object}: {field} is {exists}, the set-up says {declared}; {remedy}")
            }
            (Some(field), None) => {
                write!(f, "{object}: {field} lacks {declared}, which the set-up names; {remedy}")
            }
            (None, _) => write!(f, "{object} does not exist, the set-up declares it; {remedy}"),
        }
    }
}

/// Gathers the differences of one object.
struct Object<'a> {
    kind: &'static str,
    name: &'a str,
    found: &'a mut Vec<Difference>,
}

impl Object<'_> {
    fn push(&mut self, field: &str, declared: &str, exists: Option<&str>, remedy: String) {
        self.found.push(Difference {
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            field: Some(field.to_owned()),
            declared: declared.to_owned(),
            exists: exists.map(str::to_owned),
            remedy,
        });
    }

    /// A field that no command changes.
    fn fixed(&mut self, field: &str, declared: impl fmt::Display, exists: impl fmt::Display) {
        let (declared, exists) = (declared.to_string(), exists.to_string());
        if declared == exists {
            return;
        }
        let (kind, name) = (self.kind, self.name);
        let remedy = format!(
            "it stays as it is: write what exists into the file, or delete it with all it holds (`diecut {kind} delete {name}`) \
             and apply the file"
        );
        self.push(field, &declared, Some(&exists), remedy);
    }

    fn missing(&mut self, file: &str) {
        self.found.push(Difference {
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            field: None,
            declared: self.name.to_owned(),
            exists: None,
            remedy: format!("`diecut apply {file}` creates it"),
        });
    }
}

/// Everything that is not as `setup` declares it, in the order of the file's kinds. `file` is named in remedies, and so is the `socket`
/// of the server that they are for, unless commands ask there unasked.
pub fn differences(setup: &Setup, status: &Status, file: &str, socket: &Path) -> Vec<Difference> {
    let mut found = gather(setup, status, file);
    if !is_default_socket(socket) {
        let diecut = format!("`diecut --socket {} ", socket.display());
        found.iter_mut().for_each(|one| one.remedy = one.remedy.replace("`diecut ", &diecut));
    }
    found
}

fn gather(setup: &Setup, status: &Status, file: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(device) = status.devices.first() {
        of_wear(&setup.wear, &device.wear, &mut found);
    }
    for declared in &setup.tenants {
        let exists = status.tenants.iter().find(|tenant| tenant.name == declared.name);
        of_tenant(declared, exists, file, &mut found);
    }
    for declared in &setup.vssds {
        let mut object = Object { kind: "vssd", name: &declared.name, found: &mut found };
        let exists = status.vssds.iter().map(|vssd| &vssd.vssd).find(|vssd| vssd.name == declared.name);
        let Some(exists) = exists else {
            object.missing(file);
            continue;
        };
        // The server chose what was not said.
        for ((field, declared), (_, exists)) in declared.or(exists).fields().into_iter().zip(exists.fields())
        {
            object.fixed(field, declared, exists);
        }
    }
    for declared in &setup.volumes {
        let mut object = Object { kind: "volume", name: &declared.name, found: &mut found };
        let exists =
            status.volumes.iter().map(|volume| &volume.volume).find(|volume| volume.name == declared.name);
        let Some(exists) = exists else {
            object.missing(file);
            continue;
        };
        // The server made what was not chosen.
        for ((field, declared), (_, exists)) in declared.or(exists).fields().into_iter().zip(exists.fields())
        {
            object.fixed(field, declared, exists);
        }
    }
    for declared in &setup.subsystems {
        let mut object = Object { kind: "subsystem", name: &declared.nqn, found: &mut found };
        let exists = status.subsystems.iter().map(|one| &one.subsystem).find(|one| one.nqn == declared.nqn);
        match exists {
            Some(exists) => of_subsystem(declared, exists, &mut object),
            None => object.missing(file),
        }
    }
    for declared in &setup.qos_sets {
        let exists = status.qos_sets.iter().map(|one| &one.set).find(|set| set.name == declared.name);
        of_qos_set(declared, exists, file, &mut found);
    }
    found
}

fn of_qos_set(declared: &QosSetSpec, exists: Option<&QosSetSpec>, file: &str, found: &mut Vec<Difference>) {
    let name = &declared.name;
    let mut object = Object { kind: "qos", name, found };
    let Some(exists) = exists else { return object.missing(file) };
    for ((field, declared), (_, exists)) in declared.fields().into_iter().zip(exists.fields()) {
        if declared != exists {
            let remedy = match qos_option(field, &declared) {
                Some(option) => format!("to set it: `diecut qos set {name} {option}`"),
                None => format!("delete it (`diecut qos delete {name}`) and apply the file"),
            };
            object.push(field, &declared, Some(&exists), remedy);
        }
    }
}

/// The option that gives a field of a QoS set this value; what a set has where nothing is said has none, nor has no member at all.
fn qos_option(field: &str, declared: &str) -> Option<String> {
    let members = |option: &str| {
        let named: Vec<String> = declared.split(',').map(|name| format!("--{option} {name}")).collect();
        (!declared.is_empty()).then(|| named.join(" "))
    };
    match field {
        "volumes" => members("volume"),
        "vssds" => members("vssd"),
        _ if declared.starts_with(|letter: char| letter.is_ascii_digit()) => {
            Some(format!("--{} '{declared}'", field.replace('_', "-")))
        }
        _ => None,
    }
}

fn of_tenant(declared: &TenantSpec, exists: Option<&TenantSpec>, file: &str, found: &mut Vec<Difference>) {
    let TenantSpec { name, weight } = declared;
    let mut object = Object { kind: "tenant", name, found };
    match exists {
        None => object.missing(file),
        Some(exists) if exists.weight != *weight => {
            let remedy = format!("to set it: `diecut tenant set {name} --weight {weight}`");
            object.push("weight", &weight.to_string(), Some(&exists.weight.to_string()), remedy);
        }
        Some(_) => {}
    }
}

fn of_subsystem(declared: &SubsystemSpec, exists: &SubsystemSpec, object: &mut Object<'_>) {
    let nqn = &declared.nqn;
    object.fixed("tenant", &declared.tenant, &exists.tenant);
    if let (Some(declared), Some(exists)) = (&declared.serial, &exists.serial) {
        object.fixed("serial", declared, exists);
    }
    if let (Some(declared), Some(exists)) = (&declared.model, &exists.model) {
        object.fixed("model", declared, exists);
    }
    object.fixed("allow_any_host", declared.allow_any_host, exists.allow_any_host);
    let field = "allowed_hosts";
    for host in declared.allowed_hosts.iter().filter(|host| !exists.allowed_hosts.contains(host)) {
        object.push(field, host, None, format!("to let it in: `diecut host allow {host} --subsystem {nqn}`"));
    }
    for host in exists.allowed_hosts.iter().filter(|host| !declared.allowed_hosts.contains(host)) {
        let remedy = format!(
            "add it to the file, or take the permission back: `diecut host deny {host} --subsystem {nqn}`"
        );
        object.push(field, "nothing of it", Some(&format!("also {host}")), remedy);
    }
    let field = "namespaces";
    let shown = |list: &SubsystemSpec, nsid| list.volume(nsid).map(str::to_owned);
    for one in &declared.namespaces {
        let (nsid, volume) = (one.nsid, &one.volume);
        let attach = format!("diecut subsystem attach {nqn} --nsid {nsid} --volume {volume}");
        match shown(exists, nsid) {
            Some(other) if other != *volume => {
                let remedy = format!(
                    "write what exists into the file, or: `diecut subsystem detach {nqn} --nsid {nsid}`, then `{attach}`"
                );
                object.push(field, &format!("{nsid}={volume}"), Some(&format!("{nsid}={other}")), remedy);
            }
            Some(_) => {}
            None => object.push(field, &format!("{nsid}={volume}"), None, format!("to show it: `{attach}`")),
        }
    }
    for one in exists.namespaces.iter().filter(|one| shown(declared, one.nsid).is_none()) {
        let (nsid, volume) = (one.nsid, &one.volume);
        let remedy =
            format!("add it to the file, or take it away: `diecut subsystem detach {nqn} --nsid {nsid}`");
        object.push(field, "nothing of it", Some(&format!("also {nsid}={volume}")), remedy);
    }
    of_paths(declared, exists, object);
}

fn of_paths(declared: &SubsystemSpec, exists: &SubsystemSpec, object: &mut Object<'_>) {
    let nqn = &declared.nqn;
    let paths = declared.paths.iter().chain(&exists.paths);
    let addresses: BTreeSet<SocketAddr> = paths.map(|path| path.address).collect();
    for address in addresses {
        let [declared, exists] = [declared, exists].map(|one| one.path_state(address).name());
        if declared != exists {
            let set = format!("diecut subsystem path {nqn} --address {address} --state {declared}");
            let (declared, exists) = (format!("{address}={declared}"), format!("{address}={exists}"));
            object.push("paths", &declared, Some(&exists), format!("to set it: `{set}`"));
        }
    }
}

pub(crate) fn of_wear(declared: &WearSettings, exists: &WearStatus, found: &mut Vec<Difference>) {
    let mut object = Object { kind: "wear", name: "", found };
    let mut setting = |field: &str, command: &str, declared: Option<String>, exists: String| {
        if let Some(declared) = declared.filter(|declared| *declared != exists) {
            object.push(field, &declared, Some(&exists), format!("to set it: `diecut wear {command}`"));
        }
    };
    let text = |value: &dyn fmt::Display| value.to_string();
    let paused = declared.paused.map(|paused| text(&paused));
    let command = if declared.paused == Some(true) { "pause" } else { "resume" };
    setting("paused", command, paused, text(&exists.settings.paused));
    let rate = declared.rate.map(diecut_spec::Size::exact);
    let command = format!("set --rate {}", declared.rate.unwrap_or_default().bytes());
    setting("rate", &command, rate, exists.settings.rate.exact());
    let follow_age = declared.follow_age.map(|follow| text(&follow));
    let command = format!("set --follow-age {}", declared.follow_age.unwrap_or_default());
    setting("follow_age", &command, follow_age, text(&exists.settings.follow_age));
    for (field, option, declared, exists_erases) in [
        (
            "channel_threshold_erases",
            "channel-threshold",
            declared.channel_threshold_erases,
            exists.settings.channel_threshold_erases,
        ),
        (
            "die_threshold_erases",
            "die-threshold",
            declared.die_threshold_erases,
            exists.settings.die_threshold_erases,
        ),
    ] {
        // What follows the age is not what was set, but for 0.
        let declared = declared.filter(|erases| !exists.settings.follow_age || *erases == 0);
        let command = format!("set --{option} {}", declared.unwrap_or_default());
        setting(field, &command, declared.map(|erases| text(&erases)), text(&exists_erases));
    }
    let command = format!("set --endurance {}", declared.endurance_cycles.unwrap_or_default());
    let cycles = declared.endurance_cycles.map(|cycles| text(&cycles));
    setting("endurance_cycles", &command, cycles, text(&exists.settings.endurance_cycles));
    let command = format!("set --delta {}", declared.delta_permille.unwrap_or_default());
    let delta = declared.delta_permille.map(|delta| text(&delta));
    setting("delta_permille", &command, delta, text(&exists.settings.delta_permille));
    let rule = if declared.literal_rule == Some(true) { "literal" } else { "quiet" };
    let literal = declared.literal_rule.map(|literal| text(&literal));
    setting("literal_rule", &format!("set --rule {rule}"), literal, text(&exists.settings.literal_rule));
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::lacking::{Lacking, lacking};
    use crate::status::{DeviceStatus, SubsystemStatus, VolumeStatus, VssdStatus};
    use diecut_spec::{Amount, Size};

    /// Goal: a remedy of a QoS set is a command that can be given. Method: each field as a file may have it.
    #[test]
    fn what_differs_of_a_qos_set_has_a_command() {
        let exists =
            QosSetSpec { volumes: vec!["x".to_owned()], ..QosSetSpec::new("s", Amount::Commands(100)) };
        let declared = QosSetSpec {
            second_rate: Some(Amount::Commands(7)),
            volumes: vec!["x".to_owned(), "y".to_owned()],
            ..QosSetSpec::new("s", Amount::Commands(200))
        };
        let mut found = Vec::new();
        of_qos_set(&declared, Some(&exists), "f", &mut found);
        let remedies: Vec<&str> = found.iter().map(|one| one.remedy.as_str()).collect();
        assert_eq!(
            remedies,
            [
                "to set it: `diecut qos set s --rate '200 commands'`",
                "to set it: `diecut qos set s --second-rate '7 commands'`",
                "to set it: `diecut qos set s --volume x --volume y`"
            ]
        );
        found.clear();
        of_qos_set(&exists, Some(&declared), "f", &mut found);
        assert!(found[1].remedy.contains("delete it (`diecut qos delete s`)"), "{}", found[1]);
        found.clear();
        of_qos_set(&exists, None, "f", &mut found);
        assert!(found[0].to_string().contains("qos \"s\" does not exist"), "{}", found[0]);
    }

    const FILE: &str = r#"
        [wear]
        rate = "20M"
        follow_age = false
        channel_threshold_erases = 9
        [[tenant]]
        name = "a"
        [[vssd]]
        name = "flash"
        tenant = "a"
        isolation = "channel"
        capacity = "1G"
        [[volume]]
        name = "disk"
        vssd = "flash"
        size = "512M"
        [[subsystem]]
        nqn = "nqn.x:a"
        tenant = "a"
        allowed_hosts = ["nqn.x:one"]
        namespaces = [{ nsid = 1, volume = "disk" }]
    "#;

    /// A server that has what the file declares.
    fn exactly(setup: &Setup) -> Status {
        let vssds = setup.vssds.iter().map(|vssd| {
            let figures = serde_json::json!({
                "name": "", "tenant": "", "isolation": "none", "throughput_level": 0, "capacity": 0,
                "over_provisioning_permille": 0, "weight": 0, "rate_limit": 0, "sharing": "strict", "placement": { "channels": [], "dies": [] },
                "units": 1, "physical": 0, "exported": 0, "used": 0, "host_written": 0, "programmed_user": 0,
                "programmed_cleaner": 0, "programmed_metadata": 0, "erases": 0
            });
            let status: VssdStatus = serde_json::from_value(figures).unwrap();
            VssdStatus { vssd: vssd.clone(), ..status }
        });
        let volumes = setup.volumes.iter().map(|volume| VolumeStatus {
            volume: volume.clone(),
            used: Size(0),
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            read_latency: Default::default(),
            write_latency: Default::default(),
        });
        let subsystems = setup.subsystems.iter().map(|subsystem| SubsystemStatus {
            subsystem: subsystem.clone(),
            controllers: Vec::new(),
            sanitize: None,
        });
        let device = serde_json::json!({
            "name": "tiny", "channels": 1, "dies_per_channel": 1, "raw_capacity": 0, "free_channels": 0,
            "free_dies": 0, "bad_erase_blocks": 0, "erases_per_channel": []
        });
        let mut device: DeviceStatus = serde_json::from_value(device).unwrap();
        device.wear.settings.rate = setup.wear.rate.unwrap_or_default();
        device.wear.settings.channel_threshold_erases =
            setup.wear.channel_threshold_erases.unwrap_or_default();
        Status {
            devices: vec![device],
            tenants: setup.tenants.clone(),
            vssds: vssds.collect(),
            volumes: volumes.collect(),
            subsystems: subsystems.collect(),
            ..Status::default()
        }
    }

    fn texts(setup: &Setup, status: &Status) -> Vec<String> {
        let socket = Path::new("setups/../diecut-data/control.sock");
        differences(setup, status, "my.toml", socket).iter().map(Difference::to_string).collect()
    }

    /// Goal: who does what a remedy says does it to the server that it is about. Method: a server at another socket than commands ask
    /// unasked, which lacks everything, and then has another weight of a tenant.
    #[test]
    fn remedies_name_the_socket_of_their_server() {
        let setup = Setup::from_toml(FILE).unwrap();
        let socket = Path::new("/run/other.sock");
        let lacking_all = differences(&setup, &Status::default(), "my.toml", socket);
        assert!(!lacking_all.is_empty());
        for one in lacking_all {
            assert_eq!(one.remedy, "`diecut --socket /run/other.sock apply my.toml` creates it");
        }
        let mut status = exactly(&setup);
        status.tenants[0].weight += 1;
        let remedy = &differences(&setup, &status, "my.toml", socket)[0].remedy;
        assert!(remedy.starts_with("to set it: `diecut --socket /run/other.sock tenant set "), "{remedy}");
    }

    #[test]
    fn what_is_as_declared_does_not_differ() {
        let setup = Setup::from_toml(FILE).unwrap();
        let mut status = exactly(&setup);
        assert_eq!(texts(&setup, &status), [""; 0]);
        assert_eq!(lacking(&setup, &status), []);
        // The server fills identities in, and others make what no file declares.
        status.volumes[0].volume.uuid = Some(uuid::Uuid::nil());
        status.volumes[0].volume.zones.active = Some(14);
        status.subsystems[0].subsystem.serial = Some("0".to_owned());
        status.tenants.push(diecut_spec::TenantSpec::new("other"));
        assert_eq!(texts(&setup, &status), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_creates_it() {
        let setup = Setup::from_toml(FILE).unwrap();
        let mut empty = exactly(&setup);
        (empty.tenants, empty.vssds, empty.volumes, empty.subsystems) = Default::default();
        let lacking: Vec<String> = lacking(&setup, &empty).iter().map(Lacking::to_string).collect();
        assert_eq!(lacking, ["tenant \"a\"", "vSSD \"flash\"", "volume \"disk\"", "subsystem nqn.x:a"]);
        let texts = texts(&setup, &empty);
        assert_eq!(texts.len(), 4, "{texts:?}");
        for (text, object) in
            texts.iter().zip(["tenant \"a\"", "vssd \"flash\"", "volume \"disk\"", "subsystem \"nqn.x:a\""])
        {
            assert!(text.contains(object) && text.contains("`diecut apply my.toml` creates it"), "{text}");
        }
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values_and_what_to_do() {
        let mut setup = Setup::from_toml(FILE).unwrap();
        let mut status = exactly(&setup);
        status.tenants[0].weight = 300;
        status.vssds[0].vssd.capacity = Size(2 << 30);
        status.vssds[0].vssd.weight = 7;
        status.volumes[0].volume.size = Size((512 << 20) + 4096);
        setup.volumes[0].zones.active = Some(3);
        setup.volumes[0].placement = vec![0, 2];
        let subsystem = &mut status.subsystems[0].subsystem;
        subsystem.allowed_hosts = vec!["nqn.x:two".to_owned()];
        subsystem.namespaces = vec![
            diecut_spec::NamespaceSpec { nsid: 1, volume: "else".to_owned() },
            diecut_spec::NamespaceSpec { nsid: 2, volume: "more".to_owned() },
        ];
        subsystem.paths = vec!["192.0.2.1:4420=change".parse().unwrap()];
        status.devices[0].wear.settings.paused = true;
        status.devices[0].wear.settings.rate = Size(0);
        let lacking: Vec<String> = lacking(&setup, &status).iter().map(Lacking::to_string).collect();
        assert_eq!(lacking, ["settings of even wear", "host nqn.x:one of subsystem nqn.x:a"]);
        let texts = texts(&setup, &status);
        for words in [
            &["tenant \"a\": weight is 300", "says 100", "diecut tenant set a --weight 100"],
            &["wear: rate is 0 bytes", "says 20 MiB", "diecut wear set --rate 20971520"][..],
            &[
                "vssd \"flash\": capacity is 2 GiB",
                "says 1 GiB",
                "stays as it is",
                "diecut vssd delete flash",
            ],
            &["vssd \"flash\": weight is 7", "says 100"],
            &["volume \"disk\": size is 524292 KiB", "says 512 MiB"],
            &["volume \"disk\": zones.active is absent", "says 3", "diecut volume delete disk"],
            &["volume \"disk\": placement is given", "says 0,2"],
            &["allowed_hosts lacks nqn.x:one", "diecut host allow nqn.x:one --subsystem nqn.x:a"],
            &["allowed_hosts is also nqn.x:two", "diecut host deny nqn.x:two --subsystem nqn.x:a"],
            &[
                "namespaces is 1=else",
                "says 1=disk",
                "detach nqn.x:a --nsid 1",
                "attach nqn.x:a --nsid 1 --volume disk",
            ],
            &[
                "paths is 192.0.2.1:4420=change",
                "says 192.0.2.1:4420=optimized",
                "path nqn.x:a --address 192.0.2.1:4420 --state optimized",
            ],
            &["namespaces is also 2=more", "diecut subsystem detach nqn.x:a --nsid 2"],
        ] {
            assert!(
                texts.iter().any(|text| words.iter().all(|word| text.contains(word))),
                "{words:?} in {texts:#?}"
            );
        }
        assert_eq!(texts.len(), 12, "{texts:#?}");
    }
}
