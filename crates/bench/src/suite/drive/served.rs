//! The shipped server on a drive that is a file, and its initiator.

use super::super::servers::{STACK, stack_specs};
use super::{BLOCK_SIZE_BYTES, LANES, Outcome, VOLUME_BYTES, allocate};
use diecut_load::LoadSpec;
use diecut_load::drive::{Digests, DriveSettings, Endpoint, QualifiedName, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process of the command line, on a file in a folder of its own.
pub(super) struct Served {
    process: Child,
    endpoint: Endpoint,
}

/// The command line beside this program, where cargo puts it.
pub(super) fn program() -> Outcome<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("diecut");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} is not built: cargo build --release -p diecut-cli", path.display()).into())
}

impl Served {
    pub(super) fn start(folder: &Path, size_bytes: u64) -> Outcome<Served> {
        let program = program()?;
        let file = folder.join("served");
        allocate(&file, size_bytes)?;
        let (lanes, block) = (LANES.to_string(), BLOCK_SIZE_BYTES.to_string());
        let output = Command::new(&program)
            .args(["device", "format", "--lanes", &lanes, "--erase-block", &block])
            .arg(&file)
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let (capacity, over_provisioning) = stack_specs(VOLUME_BYTES);
        let setup = format!(
            r#"
[[device]]
kind = "file"
path = "served"
[[tenant]]
name = "bench"
[[vssd]]
name = "bench"
tenant = "bench"
isolation = "channel"
throughput_level = {LANES}
capacity = "{capacity}"
over_provisioning_permille = {over_provisioning}
[[volume]]
name = "bench"
vssd = "bench"
size = "{VOLUME_BYTES}"
[[subsystem]]
nqn = "{STACK}"
tenant = "bench"
allow_any_host = true
namespaces = [{{ nsid = 1, volume = "bench" }}]
"#
        );
        std::fs::write(folder.join("setup.toml"), setup)?;
        let log = std::fs::File::create(folder.join("server.log"))?;
        let mut process = Command::new(&program)
            .current_dir(folder)
            .args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut lines = BufReader::new(process.stdout.take().ok_or("its output is a pipe")?).lines();
        let address = lines.find_map(|line| {
            let line = line.ok()?;
            line.strip_prefix("listening")?.split(',').next()?.trim().parse().ok()
        });
        let Some(address) = address else {
            _ = process.wait();
            return Err(std::fs::read_to_string(folder.join("server.log"))?.into());
        };
        // Whatever else it says is read until it ends.
        std::thread::spawn(move || lines.for_each(drop));
        let name = |text: &str| QualifiedName::new(text).expect("a fixed name");
        let endpoint = Endpoint {
            address,
            subsystem: name(STACK),
            host: name("nqn.2026-11.org.diecut:bench"),
            host_id: [1; 16],
            nsid: Some(1),
            digests: Digests::NONE,
        };
        Ok(Served { process, endpoint })
    }

    /// Processor time of the process so far, in microseconds.
    pub(super) fn processor_us(&self) -> Outcome<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        // User and system time are fields 14 and 15 of proc_pid_stat(5); the state, field 3, is the first one here.
        let ticks = |at: usize| fields.get(at - 3).and_then(|field| field.parse::<u64>().ok());
        let ticks = ticks(14).zip(ticks(15)).ok_or("/proc/PID/stat has another form")?;
        // SAFETY: asks for a constant.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok((ticks.0 + ticks.1) as f64 * 1e6 / per_second as f64)
    }

    /// Operations a second, and operations in all.
    pub(super) fn rate(&self, spec: &LoadSpec) -> Outcome<(f64, u64)> {
        let report = run(&self.endpoint, spec, DriveSettings::default())?;
        match report.first_error() {
            Some(error) => Err(format!("a command failed with {error}").into()),
            None => Ok((report.operations_per_second(), report.operations)),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
