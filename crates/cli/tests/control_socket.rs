//! Goal: what the command line sends is what a shard is asked, and refusals reach the user with what to do.
//! Method: the real binary against the real HTTP routes on a Unix socket, with a port that records requests.

use diecut_daemon::control_port::{Answer, ControlPort};
use diecut_shard::control::{
    ControlError, ControlErrorKind, ControlRequest, ControlResponse, DeviceStatus, Status, SubsystemStatus,
    UnitLocation, VolumeStatus, VssdHealth, VssdSpace, VssdStatus, VssdTraffic, WearSettings,
};
use diecut_spec::{Isolation, Size};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Recorder(Mutex<Vec<ControlRequest>>);

impl ControlPort for Recorder {
    fn request(&self, request: ControlRequest) -> Answer {
        let response = match &request {
            ControlRequest::Status => {
                ControlResponse::Status(Box::new(status_after(&self.0.lock().unwrap())))
            }
            ControlRequest::DeleteTenant(name) => ControlResponse::Refused(ControlError {
                kind: ControlErrorKind::InUse,
                message: format!("tenant `{name}` owns vssd `x`; delete that first"),
            }),
            _ => ControlResponse::Done,
        };
        self.0.lock().unwrap().push(request);
        Box::pin(async move { Ok(response) })
    }
}

/// What a server says of itself that did all of it.
fn status_after(requests: &[ControlRequest]) -> Status {
    let mut status = Status { devices: vec![DeviceStatus::default()], ..Status::default() };
    for request in requests {
        match request.clone() {
            ControlRequest::SetWear(change) => {
                let wear = &mut status.devices[0].wear;
                wear.settings.follow_age = change.follow_age.unwrap_or(wear.settings.follow_age);
                wear.settings.rate = change.rate.unwrap_or(wear.settings.rate);
            }
            ControlRequest::CreateTenant(spec) => status.tenants.push(spec),
            ControlRequest::CreateVssd(spec) => status.vssds.push(VssdStatus {
                unit_devices: Vec::new(),
                spec,
                placement: vec![UnitLocation { channel: 0, die: 0, soft_plane: None }],
                shard: None,
                space: VssdSpace { units: 1, ..VssdSpace::default() },
                traffic: VssdTraffic::default(),
                health: VssdHealth::default(),
            }),
            ControlRequest::CreateVolume(spec) => status.volumes.push(VolumeStatus {
                spec,
                used_bytes: 0,
                reads: 0,
                writes: 0,
                read_bytes: 0,
                written_bytes: 0,
                read_latency_ns: [0; 4],
                write_latency_ns: [0; 4],
            }),
            ControlRequest::CreateSubsystem(spec) => {
                status.subsystems.push(SubsystemStatus { spec, controllers: Vec::new(), sanitize: None });
            }
            _ => {}
        }
    }
    status
}

/// Runs `scenario` with a server behind the socket it is given.
fn with_server(scenario: impl FnOnce(&Path, &Recorder)) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let recorder = Arc::new(Recorder::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket) }).unwrap();
    let router = diecut_daemon::http::router(recorder.clone(), "127.0.0.1:4420".to_string());
    runtime.spawn(async move { axum::serve(listener, router).await });
    scenario(&socket, &recorder);
}

fn diecut(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diecut")).arg("--socket").arg(socket).args(arguments).output().unwrap()
}

#[test]
fn a_creation_arrives_whole() {
    with_server(|socket, recorder| {
        let output = diecut(
            socket,
            &["vssd", "create", "fast", "--tenant", "a", "--isolation", "channel", "--capacity", "64 GiB"],
        );
        assert!(output.status.success(), "{output:?}");
        let requests = recorder.0.lock().unwrap();
        let [ControlRequest::CreateVssd(spec)] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!((spec.name.as_str(), spec.tenant.as_str()), ("fast", "a"));
        assert_eq!((spec.isolation, spec.capacity), (Isolation::Channel, Size(64 << 30)));
        assert_eq!(spec.over_provisioning_permille, 280);
    });
}

#[test]
fn names_with_reserved_characters_survive_the_way() {
    with_server(|socket, recorder| {
        let host = "nqn.2014-08.org.nvmexpress:uuid:1/2 3";
        let output = diecut(socket, &["host", "deny", host, "--subsystem", "nqn.2026-11.org.diecut:a/b"]);
        assert!(output.status.success(), "{output:?}");
        let expected = ControlRequest::DenyHost {
            subsystem: "nqn.2026-11.org.diecut:a/b".to_string(),
            host: host.to_string(),
        };
        // Then it asks whether any host may connect there anyway.
        assert_eq!(*recorder.0.lock().unwrap(), [expected, ControlRequest::Status]);
    });
}

#[test]
fn a_refusal_is_told_in_words_and_as_json() {
    with_server(|socket, _| {
        assert!(diecut(socket, &["tenant", "create", "a"]).status.success());
        let output = diecut(socket, &["tenant", "delete", "a", "--yes"]);
        assert!(!output.status.success());
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: tenant `a` owns vssd `x`; delete that first\n"
        );
        let output = diecut(socket, &["--json", "tenant", "delete", "a", "--yes"]);
        let problem: diecut_api::problem::Problem = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(problem.kind, diecut_api::problem::ProblemKind::InUse);
    });
}

#[test]
fn a_file_is_applied_in_the_order_of_need_and_shown() {
    with_server(|socket, recorder| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("setup.toml");
        std::fs::write(
            &file,
            r#"
            [wear]
            follow_age = true
            rate = "20 MB"
            [[subsystem]]
            nqn = "nqn.2026-11.org.diecut:a"
            tenant = "a"
            namespaces = [{ nsid = 1, volume = "disk" }]
            [[volume]]
            name = "disk"
            vssd = "flash"
            size = "1 GiB"
            [[vssd]]
            name = "flash"
            tenant = "a"
            isolation = "software"
            capacity = "2 GiB"
            [[tenant]]
            name = "a"
            "#,
        )
        .unwrap();
        let output = diecut(socket, &["apply", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let kinds: Vec<&str> = recorder
            .0
            .lock()
            .unwrap()
            .iter()
            .filter(|request| !matches!(request, ControlRequest::Status))
            .map(|request| match request {
                ControlRequest::SetWear(change) => {
                    let (follow_age, rate) = (Some(true), Some(Size(20_000_000)));
                    let rest = WearSettings { follow_age, rate, ..WearSettings::default() };
                    assert_eq!(*change, rest);
                    "wear"
                }
                ControlRequest::CreateTenant(_) => "tenant",
                ControlRequest::CreateVssd(_) => "vssd",
                ControlRequest::CreateVolume(_) => "volume",
                ControlRequest::CreateSubsystem(_) => "subsystem",
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ["wear", "tenant", "vssd", "volume", "subsystem"]);
        let set = [
            "wear",
            "set",
            "--follow-age",
            "false",
            "--die-threshold",
            "9",
            "--endurance",
            "500",
            "--delta",
            "50",
        ];
        assert!(diecut(socket, &set).status.success());
        let change = WearSettings {
            follow_age: Some(false),
            die_threshold_erases: Some(9),
            endurance_cycles: Some(500),
            delta_permille: Some(50),
            ..WearSettings::default()
        };
        assert_eq!(recorder.0.lock().unwrap().last(), Some(&ControlRequest::SetWear(change)));
        let output = diecut(socket, &["subsystem", "list"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("nqn.2026-11.org.diecut:a") && text.contains("1=disk"), "{text}");
        let output = diecut(socket, &["subsystem", "show", "nqn.2026-11.org.diecut:b"]);
        assert!(String::from_utf8(output.stderr).unwrap().contains("diecut subsystem list"));
    });
}

#[test]
fn a_missing_server_and_a_bad_file_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = diecut(&folder.path().join("none.sock"), &["status"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("start one with `make run`"));
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "[[tenant]]\nnom = \"a\"\n").unwrap();
    let output = diecut(&folder.path().join("none.sock"), &["apply", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("bad.toml") && text.contains("nom"), "{text}");
}

/// `--socket` means the same to the server as to those who ask it.
#[test]
fn a_server_listens_at_the_socket_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("elsewhere.sock");
    let mut server = Command::new(env!("CARGO_BIN_EXE_diecut"))
        .args(["serve", "--listen", "127.0.0.1:0", "--socket"])
        .arg(&socket)
        .arg("--data")
        .arg(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    let announced = lines.any(|line| line.unwrap().starts_with("listening"));
    let output = diecut(&socket, &["status"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(announced && output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A device that cannot hold a pool: the reason reaches whoever started the server, and nothing is left at the socket.
#[test]
fn a_device_that_does_not_do_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    // As it stands in a file: the built-in one is served with as much as a server needs.
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../emulator/profiles/tiny.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_diecut"))
        .args(["serve", "--listen", "127.0.0.1:0", "--profile", profile, "--data"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("protected memory"), "{said}");
    assert!(!socket.exists() && !folder.path().join("device.img").exists());
}
