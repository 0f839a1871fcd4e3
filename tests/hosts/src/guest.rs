//! One virtual machine: QEMU without acceleration, a kernel, an initial RAM disk, a serial console that is read line by line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::archive::Archive;

/// A running guest; killed when dropped.
pub struct Guest {
    process: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

/// What a guest consists of.
pub struct GuestPlan<'a> {
    /// Folder that prepare.sh filled.
    pub cache: &'a Path,
    /// Kernel folder in it.
    pub kernel: &'a str,
    /// Folder for the RAM disk and the console log.
    pub work: &'a Path,
    /// Scenario script, by file name in `guest/`.
    pub script: &'a str,
    /// A folder of programs that the guest finds in `/programs`.
    pub programs: Option<&'a Path>,
    /// Shell variables the script finds set.
    pub variables: &'a [(&'a str, String)],
    /// Argument of QEMU's `-netdev user,id=net` beyond the id, such as a forwarded port.
    pub network: &'a str,
    /// A second network card, of a network of its own.
    pub second_network: bool,
    /// Raw images to attach as virtio disks.
    pub disks: &'a [std::path::PathBuf],
    /// Drives that QEMU models, and the guest may reset itself, while QEMU and these go on.
    pub drives: bool,
    /// Virtual processors; also the number of NVMe I/O queues Linux opens.
    pub processor_count: u32,
}

/// What waiting for the next console line gave.
pub enum Console {
    /// A line, without its end.
    Line(String),
    /// Nothing within the time asked for.
    Quiet,
    /// The guest powered off or died.
    Ended,
}

impl Guest {
    /// Boots a guest that must end within `time_limit`.
    ///
    /// # Errors
    /// When files cannot be read or written or QEMU cannot be started.
    pub fn boot(plan: &GuestPlan<'_>, time_limit: Duration) -> std::io::Result<Self> {
        fs::create_dir_all(plan.work)?;
        let initrd = plan.work.join("initrd.cpio");
        write_initrd(plan, &initrd)?;
        // Drives with placement handles are in a later QEMU than this machine may have.
        let own = plan.cache.join("qemu/qemu-system-x86_64");
        let mut command = match plan.drives {
            true => kill_with_parent(&own.display().to_string()),
            false => kill_with_parent("qemu-system-x86_64"),
        };
        command
            // /dev/kvm may exist and still not work; emulation always does.
            .args(["-accel", "tcg", "-cpu", "Nehalem", "-m", "1024", "-nodefaults", "-display", "none"])
            .args((!plan.drives).then_some("-no-reboot"))
            .args(["-smp", &plan.processor_count.to_string()])
            .args(["-serial", "stdio", "-monitor", "none"])
            .arg("-kernel")
            .arg(plan.cache.join(plan.kernel).join("vmlinuz"))
            .arg("-initrd")
            .arg(&initrd)
            // The kernel's own tests of its ciphers show nothing of a server, and one that runs for ever keeps a guest from coming up.
            .args(["-append", "console=ttyS0 panic=-1 loglevel=1 cryptomgr.notests=1 rdinit=/init"])
            .args(["-netdev", &format!("user,id=net{}", plan.network)])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        if plan.second_network {
            // The machine that runs QEMU is 10.0.3.2 there.
            command.args(["-netdev", "user,id=net2,net=10.0.3.0/24"]);
            command.args(["-device", "virtio-net-pci,netdev=net2,romfile="]);
        }
        for (index, disk) in plan.disks.iter().enumerate() {
            command.arg("-drive").arg(format!("if=none,id=disk{index},format=raw,file={}", disk.display()));
            command.arg("-device").arg(format!("virtio-blk-pci,drive=disk{index}"));
        }
        if plan.drives {
            command.args(model_drives(plan.work)?);
        }
        let errors = fs::File::create(plan.work.join("qemu.log"))?;
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn()?;
        let console = process.stdout.take().expect("stdout was asked to be piped");
        let mut log = fs::File::create(plan.work.join("console.log"))?;
        let (sender, lines) = channel();
        // Ends when QEMU closes its end, at the latest when `Drop` kills it.
        std::thread::spawn(move || {
            let mut console = BufReader::new(console);
            let mut bytes = Vec::new();
            while matches!(console.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
                // Failing to keep the log must not fail the test.
                let _ = log.write_all(&bytes);
                let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
                bytes.clear();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines, deadline: Instant::now() + time_limit })
    }

    /// Waits up to `patience` for a line of the console.
    pub fn next(&mut self, patience: Duration) -> Console {
        match self.lines.recv_timeout(patience.min(self.time_left())) {
            Ok(line) => Console::Line(line),
            Err(RecvTimeoutError::Timeout) => Console::Quiet,
            Err(RecvTimeoutError::Disconnected) => Console::Ended,
        }
    }

    /// Time until the guest is given up; zero when it has passed.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command whose process dies with this one, so that an interrupted run leaves nothing behind.
pub fn kill_with_parent(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Drives of QEMU's for `drives.sh`, on sparse images in a folder: a little one for what the script keeps over resets (serial `notes`), one of virtio, one of
/// NVMe with a volatile cache, a zoned one (ZNS) of 256 zones of 4 MiB, of which 3 can be written, and one with six placement handles (FDP) in two reclaim
/// groups. Zones, and what was written to which handle, are known to QEMU for as long as it lives.
fn model_drives(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for (name, size_bytes) in [
        ("notes", 1 << 20),
        ("virtio", 1 << 30),
        ("nvme", 1 << 30),
        ("zoned", 1u64 << 30),
        ("placed", 1 << 30),
    ] {
        let image = folder.join(format!("{name}.img"));
        fs::File::create(&image)?.set_len(size_bytes)?;
        let drive =
            format!("if=none,id={name},format=raw,cache=writeback,discard=unmap,file={}", image.display());
        let device = match name {
            "nvme" => format!("nvme,serial={name},drive={name}"),
            "zoned" => {
                arguments.extend(["-device".to_owned(), format!("nvme,id=bus-{name},serial={name}")]);
                format!(
                    "nvme-ns,drive={name},bus=bus-{name},zoned=on,zoned.zone_size=4M,zoned.zone_capacity=3M,zoned.max_open=20,zoned.max_active=20"
                )
            }
            "placed" => {
                let group = format!("nvme-subsys,id=group-{name},fdp=on,fdp.runs=16M,fdp.nrg=2,fdp.nruh=8");
                let controller = format!("nvme,id=bus-{name},serial={name},subsys=group-{name}");
                arguments.extend(["-device".to_owned(), group, "-device".to_owned(), controller]);
                format!("nvme-ns,drive={name},bus=bus-{name},fdp.ruhs=1-6")
            }
            _ => format!("virtio-blk-pci,serial={name},drive={name}"),
        };
        arguments.extend(["-drive".to_owned(), drive, "-device".to_owned(), device]);
    }
    Ok(arguments)
}

fn write_initrd(plan: &GuestPlan<'_>, path: &Path) -> std::io::Result<()> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    let mut archive = Archive::default();
    archive.file("init", &fs::read(scripts.join("init"))?);
    archive.folder("scenario");
    for name in ["library.sh", plan.script] {
        archive.file(&format!("scenario/{name}"), &fs::read(scripts.join(name))?);
    }
    let mut environment = format!("export SCENARIO='{}'\n", plan.script);
    for (name, value) in plan.variables {
        assert!(!value.contains('\''), "{name} would break out of its quotes: {value}");
        environment.push_str(&format!("export {name}='{value}'\n"));
    }
    archive.file("scenario/environment", environment.as_bytes());
    if let Some(programs) = plan.programs {
        archive.folder("programs");
        add_folder(&mut archive, programs, "programs")?;
    }
    let mut initrd = fs::File::create(path)?;
    for part in [plan.cache.join("base.cpio"), plan.cache.join(plan.kernel).join("modules.cpio")] {
        std::io::copy(&mut fs::File::open(part)?, &mut initrd)?;
    }
    initrd.write_all(&archive.finish())
}

/// Adds what is in a folder. What a symbolic link leads to is added in its place.
fn add_folder(archive: &mut Archive, folder: &Path, path: &str) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| std::io::Error::other(format!("{name:?} is not UTF-8")))?;
        let (from, to) = (entry.path(), format!("{path}/{name}"));
        if from.is_dir() {
            archive.folder(&to);
            add_folder(archive, &from, &to)?;
        } else {
            archive.file(&to, &fs::read(from)?);
        }
    }
    Ok(())
}
