//! The server under test: started from a command line, asked over the wire whether it is up, killed, started again.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{Guest, GuestPlan, kill_with_parent};
use crate::options::Options;

/// How a server is started.
#[derive(Clone, Debug)]
pub enum Launch {
    /// Linux's own target in a guest of its own: the known good peer.
    Reference,
    /// A shell command with `{port}` and `{folder}` to fill in.
    Command(String),
}

impl Launch {
    /// `reference`, or else a command.
    pub fn parse(text: String) -> Self {
        if text == "reference" { Self::Reference } else { Self::Command(text) }
    }
}

/// Kernel of the guest that plays the reference target.
const REFERENCE_KERNEL: &str = "6.12";
/// Size of one tenant's disk on the reference target; xfs refuses less than 300 MB.
const REFERENCE_DISK_BYTES: u64 = 512 << 20;
/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(90);

enum Process {
    Command(Child),
    // Held for its Drop, which kills QEMU.
    Reference { _guest: Guest },
}

/// A server with a port and a data folder that both outlive its processes.
pub struct Server<'a> {
    options: &'a Options,
    work: PathBuf,
    port: u16,
    second_port: u16,
    /// The story that it is for.
    scenario: &'static str,
    shards: Option<u16>,
    process: Option<Process>,
    start_count: u32,
}

impl<'a> Server<'a> {
    /// A server that is not running yet, with an empty data folder below `work`, two free ports, and so many shards if that
    /// is said.
    ///
    /// # Errors
    /// When the folder cannot be made or no ports can be had.
    pub fn new(
        options: &'a Options,
        work: &Path,
        scenario: &'static str,
        shards: Option<u16>,
    ) -> std::io::Result<Self> {
        // Both are held until both are known, so that they differ.
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (one, other) = (free()?, free()?);
        let (port, second_port) = (one.local_addr()?.port(), other.local_addr()?.port());
        fs::create_dir_all(work.join("data"))?;
        let work = fs::canonicalize(work)?;
        Ok(Self { options, work, port, second_port, scenario, shards, process: None, start_count: 0 })
    }

    /// TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The second TCP port on 127.0.0.1 that the server listens on.
    pub fn second_port(&self) -> u16 {
        self.second_port
    }

    /// Starts the process and waits until it answers an NVMe/TCP connection.
    ///
    /// # Errors
    /// With a sentence when it cannot be started or does not answer in time.
    pub fn start(&mut self) -> Result<(), String> {
        assert!(self.process.is_none(), "the server is already running");
        self.start_count += 1;
        let process = match &self.options.launch {
            Launch::Command(command) => self.start_command(command),
            Launch::Reference => self.start_reference(),
        };
        self.process = Some(process.map_err(|error| format!("the server could not be started: {error}"))?);
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(Process::Command(child)) = &mut self.process
                && let Ok(Some(status)) = child.try_wait()
            {
                self.process = None;
                return Err(format!(
                    "the server ended at once ({status}); see server-{}.log",
                    self.start_count
                ));
            }
            if answers(self.port) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("the server did not answer on port {} within {} s", self.port, START_LIMIT.as_secs()))
    }

    /// Kills the process with signal 9: no handler runs, nothing is flushed.
    pub fn kill(&mut self) {
        match self.process.take() {
            Some(Process::Command(mut child)) => {
                child.kill().expect("the child is ours and not yet waited for");
                child.wait().expect("the child is ours");
            }
            // Dropping the guest kills QEMU.
            Some(Process::Reference { .. }) | None => {}
        }
    }

    /// Has the administrator's command do something and says what it said where it failed; `None` if there is no such
    /// command.
    pub fn administer(&self, what: &str) -> Option<Result<(), String>> {
        let command = match (&self.options.launch, &self.options.administer) {
            (Launch::Command(_), Some(command)) => self.fill_in(command),
            (Launch::Reference | Launch::Command(_), _) => return None,
        };
        let output = Command::new("sh").args(["-c", &format!("exec {command} {what}")]).output();
        Some(match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                Err(format!("{}: {}", output.status, String::from_utf8_lossy(&said).trim()))
            }
            Err(error) => Err(format!("the administrator's command could not be started: {error}")),
        })
    }

    /// A command of the options with its placeholders filled in.
    fn fill_in(&self, command: &str) -> String {
        command
            .replace("{port}", &self.port.to_string())
            .replace("{folder}", &self.work.join("data").display().to_string())
    }

    fn start_command(&self, command: &str) -> std::io::Result<Process> {
        let filled = self.fill_in(command);
        let log = fs::File::create(self.work.join(format!("server-{}.log", self.start_count)))?;
        let child = kill_with_parent("sh")
            // exec: the process that is killed must be the server, not a shell around it.
            .args(["-c", &format!("exec {filled}")])
            .env("NQN_A", &self.options.nqn_a)
            .env("NQN_B", &self.options.nqn_b)
            .env("HOST_NQN", crate::scenario::HOST_NQN)
            .env("NQN_ZONES", crate::scenario::NQN_ZONES)
            .env("NQN_PLACED", crate::scenario::NQN_PLACED)
            .env("SCENARIO", self.scenario)
            .env("SECOND_PORT", self.second_port.to_string())
            .envs(self.shards.map(|count| ("SHARDS", count.to_string())))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Process::Command(child))
    }

    fn start_reference(&self) -> std::io::Result<Process> {
        let mut disks = Vec::new();
        for name in ["a.img", "b.img"] {
            let path = self.work.join("data").join(name);
            if !path.exists() {
                fs::File::create(&path)?.set_len(REFERENCE_DISK_BYTES)?;
            }
            disks.push(path);
        }
        let work = self.work.join(format!("reference-{}", self.start_count));
        let variables = [
            ("NQN_A", self.options.nqn_a.clone()),
            ("NQN_B", self.options.nqn_b.clone()),
            ("HOST_NQN", crate::scenario::HOST_NQN.into()),
            ("PORT", self.port.to_string()),
            ("PORT_2", self.second_port.to_string()),
        ];
        let forward = |port: u16| format!(",hostfwd=tcp:127.0.0.1:{port}-:{port}");
        let plan = GuestPlan {
            cache: &self.options.cache,
            kernel: REFERENCE_KERNEL,
            work: &work,
            script: "reference-target.sh",
            programs: None,
            variables: &variables,
            network: &(forward(self.port) + &forward(self.second_port)),
            second_network: false,
            disks: &disks,
            drives: false,
            processor_count: 1,
        };
        Ok(Process::Reference { _guest: Guest::boot(&plan, Duration::from_secs(3600))? })
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether something on the port answers an ICReq with an ICResp. An open port alone proves nothing: QEMU forwards
/// connections to a guest that is still booting.
fn answers(port: u16) -> bool {
    // ICReq: type 00h, HLEN and PLEN 128; PFV 0, HPDA 0, no digests, MAXR2T 0 (one).
    let mut request = [0_u8; 128];
    request[2] = 128;
    request[4] = 128;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let exchange = || -> std::io::Result<[u8; 8]> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(&request)?;
        let mut response = [0_u8; 8];
        stream.read_exact(&mut response)?;
        Ok(response)
    };
    // ICResp: type 01h, HLEN and PLEN 128.
    matches!(exchange(), Ok([0x01, _, 128, _, 128, 0, 0, 0]))
}
