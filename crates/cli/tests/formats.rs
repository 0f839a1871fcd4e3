//! Goal: an image that an earlier diecut left opens for ever, with all that was acknowledged in it. Method: `fixtures/` holds images that a
//! server was killed over, one for each way to keep block states and staged data; each is unpacked, served by the real binary, and
//! read by a host through NVMe/TCP; then it is written to, and read after a restart.
//!
//! A new format gets a new image beside the old ones: `cargo test -p diecut-cli --test cli -- --ignored --exact formats::make_images` writes those that
//! are missing, and never touches one that is there.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_units::Buffer;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use host::Host;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use served::{Server, done};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LBAS: u64 = 384;
const LBA_BYTES: usize = 4096;
/// Enough writes that erase blocks were reclaimed: about two and a half times what the vSSD stores.
const WRITES: u64 = 6000;
const SEED: u64 = 1;

/// A way to keep block states and staged data: the name of its image, and the lines of `[device]` that make it.
const KINDS: [(&str, &str); 3] = [
    ("v1-protected", ""),
    ("v1-machine", "durability = \"machine\""),
    ("v1-volatile-cache", "protected_memory = 0\nvolatile_cache = true"),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn write_setup(folder: &Path, device: &str) {
    let setup = format!(
        "[device]\nprofile = \"tiny\"\n{device}\n[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"\n\
         [[vssd]]\nname = \"vssd-a\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"8 MiB\"\n\
         [[vssd]]\nname = \"vssd-b\"\ntenant = \"b\"\nisolation = \"die\"\ncapacity = \"8 MiB\"\n\
         [[volume]]\nname = \"volume-a\"\nvssd = \"vssd-a\"\nsize = \"2 MiB\"\n\
         [[volume]]\nname = \"volume-b\"\nvssd = \"vssd-b\"\nsize = \"1 MiB\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"volume-a\" }}]\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:b\"\ntenant = \"b\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 7, volume = \"volume-b\" }}]\n"
    );
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    // A folder that is open to others is a warning, and the test looks for warnings.
    std::fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; LBA_BYTES];
    }
    [lba, version].iter().flat_map(|word| word.to_le_bytes()).cycle().take(LBA_BYTES).collect()
}

/// What a host does with its volume: an LBA and its new version, 0 where it is deallocated. The same for each image, so that
/// what an image must hold needs no file of its own.
fn history(tenant: &str, lbas: u64, writes: u64) -> Vec<(u64, u64)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED + u64::from(tenant.as_bytes()[0]));
    // Most writes go to a quarter of the volume: segments with much and with little in them.
    let lba = |random: &mut Xoshiro256PlusPlus| {
        let hot = random.random_ratio(3, 4);
        random.random_range(0..if hot { lbas / 4 } else { lbas })
    };
    (1..=writes)
        .map(|version| (lba(&mut random), if random.random_ratio(1, 16) { 0 } else { version }))
        .collect()
}

/// Runs commands sixteen at a time; each must succeed. LBAs do not repeat within a batch, as commands under way have no order.
fn run(host: &mut Host, nsid: u32, changes: &[(u64, u64)]) {
    let mut rest = changes;
    while !rest.is_empty() {
        let repeats = |n: &usize| rest[..*n].iter().any(|(lba, _)| *lba == rest[*n].0);
        let count = (1..rest.len().min(16)).find(repeats).unwrap_or(rest.len().min(16));
        for (lba, version) in &rest[..count] {
            let span = LbaSpan { nsid, first: *lba, count: 1 };
            let command = if *version == 0 {
                Command::Deallocate { span }
            } else {
                Command::Write {
                    span,
                    data: Buffer::copy_from(&content(*lba, *version)),
                    force_unit_access: false,
                }
            };
            host.queue.submit(Token(*lba), command);
        }
        settle(host, count);
        rest = &rest[count..];
    }
}

fn settle(host: &mut Host, count: usize) -> Collect {
    let mut sink = Collect::default();
    while sink.completions.len() < count {
        host.exchange(&mut sink).unwrap();
    }
    assert!(sink.completions.iter().all(|done| done.status == Status::SUCCESS));
    sink
}

/// Each LBA holds its last version.
fn check(host: &mut Host, nsid: u32, lbas: u64, changes: &[(u64, u64)], what: &str) {
    let mut last = vec![0; lbas as usize];
    changes.iter().for_each(|(lba, version)| last[*lba as usize] = *version);
    for lba in 0..lbas {
        let span = LbaSpan { nsid, first: lba, count: 1 };
        host.queue.submit(Token(lba), Command::Read { span, length_bytes: LBA_BYTES as u32 });
        let found = settle(host, 1).data.remove(&Token(lba)).unwrap();
        let expected = content(lba, last[lba as usize]);
        assert!(found == expected, "{what}: LBA {lba} does not hold version {}", last[lba as usize]);
    }
}

/// The pages of a sparse file that hold something: their places and contents, deflated.
fn pack(image: &Path, packed: &Path) {
    let (file, mut page) = (File::open(image).unwrap(), [0; 4096]);
    let len = file.metadata().unwrap().len();
    let mut out = DeflateEncoder::new(File::create_new(packed).unwrap(), Compression::best());
    out.write_all(&len.to_le_bytes()).unwrap();
    for at in (0..len).step_by(page.len()) {
        let bytes = &mut page[..(len - at).min(4096) as usize];
        file.read_exact_at(bytes, at).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            out.write_all(&at.to_le_bytes()).unwrap();
            out.write_all(bytes).unwrap();
        }
    }
    out.finish().unwrap();
}

fn unpack(packed: &Path, image: &Path) {
    let mut packed = DeflateDecoder::new(File::open(packed).unwrap());
    let mut word = [0; 8];
    packed.read_exact(&mut word).unwrap();
    let (len, file) = (u64::from_le_bytes(word), File::create_new(image).unwrap());
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    file.set_len(len).unwrap();
    while packed.read_exact(&mut word).is_ok() {
        let at = u64::from_le_bytes(word);
        let mut bytes = vec![0; (len - at).min(4096) as usize];
        packed.read_exact(&mut bytes).unwrap();
        file.write_all_at(&bytes, at).unwrap();
    }
}

/// Names of the files in a folder that a server left and that are not sockets, sorted.
fn left(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut names: Vec<String> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "setup.toml" && name != "server.stderr");
    names.sort();
    names
}

#[test]
#[ignore = "writes images into the tree that are not there yet"]
fn make_images() {
    for (name, device) in KINDS {
        if fixtures().join(name).exists() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path(), device);
        let server = Server::in_folder(folder.path(), &[]);
        // What is decided while it runs is in the catalog, too.
        done(folder.path(), &["wear", "set", "--rate", "64M", "--socket", "control.sock"]);
        let mut a = Host::connect(server.socket_address(), "a").unwrap();
        let mut b = Host::connect(server.socket_address(), "b").unwrap();
        let (of_a, of_b) = (history("a", LBAS, WRITES), history("b", LBAS / 2, WRITES / 8));
        run(&mut a, 1, &of_a);
        run(&mut b, 7, &of_b);
        for (host, nsid) in [(&mut a, 1), (&mut b, 7)] {
            host.queue.submit(Token(0), Command::Flush { nsid });
            settle(host, 1);
        }
        // After the flush, something that only protected memory or a sync keeps.
        if !device.contains("volatile") {
            run(&mut a, 1, &[(3, WRITES + 1), (5, 0), (300, WRITES + 2)]);
        }
        server.kill();
        std::fs::create_dir_all(fixtures().join(name)).unwrap();
        for file in left(folder.path()) {
            pack(&folder.path().join(&file), &fixtures().join(name).join(file));
        }
    }
}

/// What a server wrote down of hosts that write, read back, and deallocate.
const RECORDING: &str = "v1.rec";

#[test]
#[ignore = "writes a recording into the tree that is not there yet"]
fn make_recording() {
    if fixtures().join(RECORDING).exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup(folder.path(), "");
    let server = Server::in_folder(folder.path(), &["--record", RECORDING]);
    let mut a = Host::connect(server.socket_address(), "a").unwrap();
    let changes = history("a", LBAS, 2000);
    run(&mut a, 1, &changes);
    check(&mut a, 1, LBAS, &changes, "while it is recorded");
    server.stop();
    pack(&folder.path().join(RECORDING), &fixtures().join(RECORDING));
}

/// A replay compares erase counts of all blocks, write amplification, operations and latencies with what the server had at its end.
#[test]
fn recordings_of_earlier_formats_replay_to_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    unpack(&fixtures().join(RECORDING), &folder.path().join(RECORDING));
    let said = done(folder.path(), &["sim", "--replay", RECORDING]);
    assert!(said.contains("the same"), "{said}");
}

#[test]
fn images_of_earlier_formats_open_for_ever() {
    for (name, device) in KINDS {
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path(), device);
        for file in left(&fixtures().join(name)) {
            unpack(&fixtures().join(name).join(&file), &folder.path().join(&file));
        }
        let (mut of_a, of_b) = (history("a", LBAS, WRITES), history("b", LBAS / 2, WRITES / 8));
        if !device.contains("volatile") {
            of_a.extend([(3, WRITES + 1), (5, 0), (300, WRITES + 2)]);
        }
        for life in 0..3 {
            let server = Server::in_folder(folder.path(), &[]);
            let said = server.said();
            let expected = |line: &&str| !line.contains("opened after an unclean end");
            let said: Vec<&str> = said.lines().filter(expected).collect();
            let odd = said.iter().find(|line| line.contains("WARN") || line.contains("ERROR"));
            assert_eq!(odd, None, "{name}, life {life}");
            assert!(
                done(folder.path(), &["wear", "--socket", "control.sock"]).contains("64 MiB"),
                "{name}: the rate that was set"
            );
            let mut a = Host::connect(server.socket_address(), "a").unwrap();
            let mut b = Host::connect(server.socket_address(), "b").unwrap();
            check(&mut a, 1, LBAS, &of_a, &format!("{name}, a, life {life}"));
            check(&mut b, 7, LBAS / 2, &of_b, &format!("{name}, b, life {life}"));
            // What is written now lies beside what was there, and both are cleaned together.
            let more: Vec<(u64, u64)> = history("c", LBAS, WRITES / 4);
            run(&mut a, 1, &more);
            a.queue.submit(Token(0), Command::Flush { nsid: 1 });
            settle(&mut a, 1);
            of_a.extend(more);
            if life == 1 { server.kill() } else { drop(server.stop()) }
        }
    }
}
