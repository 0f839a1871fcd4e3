//! Goal: files hold what was written, over attachments, power cuts and deaths of the server, however full the vSSD is. Method: random
//! operations against files in memory. After an end, what was synced must be there, and each IU of what came after is one that
//! the files had since. Bugs that were planted, each seen failing here: a sync that does not fill behind itself, blocks of batches
//! after the checkpoint that are not kept at an attach, no zeros behind the end of a file that was cut, a file set to the size it has
//! whose growth is not logged, parts of extents that are not counted as freed, a checkpoint with sizes of what waits; of names: links,
//! paths of symlinks or times that are not logged, exchanges that are replayed as renames, holders that do not count, inodes without a
//! name that stay after an attach, folders in themselves, names in folders that are gone.

use diecut_blockfile::format::{Header, Kind};
use diecut_blockfile::{
    Attributes, Child, FileError, FileId, Files, HINTS, InodeKind, Made, Name, ROOT, Replace, Time,
};
use diecut_blockspace::embedded::{Embedded, Ending};
use diecut_blockspace::{BlockError, Purpose, UnitIndex};
use diecut_emulator::Profile;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

#[path = "model/oracle.rs"]
mod oracle;
use oracle::{Model, Node, try_whole, whole};

type Random = Xoshiro256PlusPlus;

fn open(device: &Embedded, ending: Ending) -> Result<Files, FileError> {
    let client = device.attach_until(ending).map_err(|_| FileError::Block(BlockError::ServerGone))?;
    Files::open_or_format(Arc::new(client))
}

fn fill(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        let word = random.random::<u64>().to_le_bytes();
        let len = chunk.len();
        chunk.copy_from_slice(&word[..len]);
    }
    bytes
}

/// Where a name is made.
fn place(files: &Files, path: &str) -> (FileId, Name) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parts = folder.split('/').filter(|part| !part.is_empty());
    let folder = parts.fold(ROOT, |folder, part| files.lookup(folder, part.as_bytes()).unwrap().unwrap());
    (folder, Name::new(name.as_bytes()).unwrap())
}

/// One random operation on the files and on the model.
fn step(
    files: &Files,
    model: &mut Model,
    random: &mut Random,
    file_bytes_max: usize,
) -> Result<(), FileError> {
    if random.random_range(0..3) == 0 {
        return step_of_names(files, model, random);
    }
    let name = model.some_path(random, "file", 4);
    let (folder, last) = place(files, &name);
    let file = files.lookup(folder, last.bytes())?;
    assert_eq!(file.map(|file| file.0), model.entries.get(&name).copied());
    // Names are exchanged, too.
    if file.is_some_and(|file| model.inodes[&file.0].kind != InodeKind::File) {
        return Ok(());
    }
    match (random.random_range(0..20), file) {
        (_, None) => {
            let file = files.create(&name, random.random_range(0..HINTS))?;
            model.add(name, file, InodeKind::File, 0o644, Vec::new());
        }
        (0, Some(file)) => {
            // What has no name is still there for those who hold it.
            files.hold(file)?;
            files.remove(&name)?;
            let content = model.inodes[&file.0].bytes.clone();
            model.unlink(&name);
            check_some(files, file, &content, random)?;
            let bytes = fill(random, 9000);
            if let Some(node) = model.inodes.get_mut(&file.0) {
                node.bytes.extend(&bytes);
            }
            files.write(file, content.len() as u64, &bytes)?;
            if random.random() {
                files.checkpoint()?;
            }
            check_some(files, file, &[content, bytes].concat(), random)?;
            files.release(file, 1)?;
            if !model.inodes.contains_key(&file.0) {
                assert_eq!(files.size(file), Err(FileError::NotFound));
            }
        }
        (1, Some(_)) => {
            let other = model.some_path(random, "file", 4);
            assert_eq!(files.rename(&name, &other), model.rename(&name, &other, Replace::Yes));
        }
        (2, Some(file)) => {
            let same = random.random_range(0..3) == 0;
            let content = &mut model.inodes.get_mut(&file.0).unwrap().bytes;
            let size = if same { content.len() } else { random.random_range(0..file_bytes_max / 2) };
            content.resize(size, 0);
            files.set_size(file, size as u64)?;
        }
        (3, Some(file)) => files.set_hint(file, random.random_range(0..HINTS))?,
        (4..9, Some(file)) => check_some(files, file, &model.inodes[&file.0].bytes, random)?,
        (_, Some(file)) => {
            let offset = random.random_range(0..file_bytes_max / 2);
            let len = if random.random_range(0..4) == 0 { 40_000 } else { 5_000 };
            let len = random.random_range(1..len);
            let bytes = fill(random, len);
            // First in the model: a part of a write that fails may be there.
            let content = &mut model.inodes.get_mut(&file.0).unwrap().bytes;
            content.resize(content.len().max(offset + bytes.len()), 0);
            content[offset..offset + bytes.len()].copy_from_slice(&bytes);
            files.write(file, offset as u64, &bytes)?;
        }
    }
    Ok(())
}

/// One random operation on names, links and attributes, which must end as it does in the model.
fn step_of_names(files: &Files, model: &mut Model, random: &mut Random) -> Result<(), FileError> {
    let any = |model: &Model, random: &mut Random| {
        let stem = ["file", "dir", "symlink"][random.random_range(0..3)];
        model.some_path(random, stem, 3)
    };
    match random.random_range(0..12) {
        0..2 => {
            let path = model.some_path(random, "dir", 3);
            let (folder, name) = place(files, &path);
            let attributes = Attributes::new(0o755, 0, 0);
            let made = Made { kind: InodeKind::Folder, hint: 0, attributes, target: &[] };
            match files.make(folder, &name, made) {
                Ok(made) => model.add(path, made.file, InodeKind::Folder, 0o755, Vec::new()),
                Err(error) => {
                    assert_eq!(error, FileError::Exists);
                    assert!(model.entries.contains_key(&path));
                }
            }
        }
        2 => {
            let path = any(model, random);
            assert_eq!(files.remove_folder(&path), model.remove_folder(&path));
        }
        3..6 => {
            let (from, to) = (any(model, random), any(model, random));
            let replace = [Replace::Yes, Replace::No, Replace::Exchange][random.random_range(0..3)];
            let (from_place, to_place) = (place(files, &from), place(files, &to));
            let outcome =
                files.rename_entry((from_place.0, &from_place.1), (to_place.0, &to_place.1), replace);
            assert_eq!(outcome, model.rename(&from, &to, replace), "{from} to {to}, {replace:?}");
        }
        6..8 => {
            let (from, to) = (any(model, random), any(model, random));
            assert_eq!(files.link_path(&from, &to), model.link(&from, &to), "{from} to {to}");
        }
        8 => {
            let path = model.some_path(random, "symlink", 3);
            let (folder, name) = place(files, &path);
            // Longer than one record of it.
            let target = vec![b'x'; random.random_range(1..4096)];
            let attributes = Attributes::new(0o777, 0, 0);
            let made = Made { kind: InodeKind::Symlink, hint: 0, attributes, target: &target };
            match files.make(folder, &name, made) {
                Ok(made) => {
                    assert_eq!(made.size_bytes, target.len() as u64);
                    model.add(path, made.file, InodeKind::Symlink, 0o777, target);
                }
                Err(error) => {
                    assert_eq!(error, FileError::Exists);
                    if model.inodes[&model.entries[&path]].kind == InodeKind::Folder {
                        assert_eq!(files.unlink(folder, &name), Err(FileError::IsFolder));
                    } else {
                        files.unlink(folder, &name)?;
                        model.unlink(&path);
                    }
                }
            }
        }
        _ => {
            let path = any(model, random);
            if let Some(file) = model.entries.get(&path) {
                let (mode, seconds) = (random.random_range(0..0o7777), random.random::<i64>() / 4);
                files.set_attributes(FileId(*file), |attributes| {
                    attributes.mode = mode;
                    attributes.accessed = Time { seconds, nanoseconds: 5 };
                })?;
                let node = model.inodes.get_mut(file).unwrap();
                (node.mode, node.accessed_seconds) = (mode, Some(seconds));
            }
        }
    }
    Ok(())
}

fn check_some(files: &Files, file: FileId, content: &[u8], random: &mut Random) -> Result<(), FileError> {
    assert_eq!(files.size(file)?, content.len() as u64);
    let offset = random.random_range(0..content.len() + 100);
    let mut bytes = vec![0xee; random.random_range(1..30_000)];
    let len = files.read(file, offset as u64, &mut bytes)?;
    let expected = content.get(offset..).unwrap_or(&[]);
    let expected = &expected[..expected.len().min(bytes.len())];
    assert_eq!(len, expected.len());
    assert!(bytes[..len] == *expected, "offset {offset}");
    Ok(())
}

#[test]
fn files_hold_what_was_written_over_attachments_and_cleaning() {
    for seed in 0..3 {
        let device = Embedded::with_seed("tiny", seed).unwrap();
        let mut random = Random::seed_from_u64(seed);
        let mut model = Model::default();
        let mut freed = 0;
        for round in 0..4 {
            let files = open(&device, Ending::Never).unwrap();
            assert!(whole(&files) == model, "seed {seed} round {round}");
            for number in 0..1500 {
                step(&files, &mut model, &mut random, 3_000_000)
                    .unwrap_or_else(|error| panic!("seed {seed} round {round} step {number}: {error}"));
                if number % 40 == 0 {
                    files.sync().unwrap();
                }
            }
            if round % 2 == 0 {
                files.sync().unwrap();
            } else {
                files.checkpoint().unwrap();
            }
            assert!(whole(&files) == model, "seed {seed} round {round}");
            freed += files.statistics().unwrap().freed_blocks;
        }
        assert!(freed > 20, "blocks were used again: {freed}");
    }
}

#[test]
fn files_of_one_hint_share_erase_blocks_that_are_freed_without_a_copy() {
    let device = Embedded::new("tiny").unwrap();
    let files = open(&device, Ending::Never).unwrap();
    let lasting = files.create("lasting", 3).unwrap();
    let mut random = Random::seed_from_u64(2);
    // All files are made with one hint, as a database does that says its hint with the first write.
    for round in 0..60u64 {
        let name = format!("brief-{round}");
        let brief = files.create(&name, 3).unwrap();
        files.set_hint(brief, 0).unwrap();
        for piece in 0..8 {
            files.write(lasting, round * 65536 + piece * 8192, &fill(&mut random, 8192)).unwrap();
            files.write(brief, piece * 131_072, &fill(&mut random, 131_072)).unwrap();
        }
        files.sync().unwrap();
        files.remove(&name).unwrap();
    }
    let statistics = files.statistics().unwrap();
    assert!(statistics.freed_blocks > 60, "{statistics:?}");
    assert_eq!(statistics.cleaned_bytes, 0, "{statistics:?}");
}

/// The cleaner of large erase blocks copies more batches in a round than the ring to the server has entries: it waited for ever.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test that waits for ever is to fail")]
fn a_round_of_the_cleaner_may_have_more_batches_than_the_ring_has_entries() {
    let tiny = include_str!("../../../crates/emulator/profiles/tiny.toml");
    let pages = tiny.lines().find(|line| line.starts_with("pages_per_block")).unwrap();
    let large =
        tiny.replace(pages, "pages_per_block = 64").replace("blocks_per_plane = 40", "blocks_per_plane = 24");
    let profile = Profile::from_toml(&large).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let device = Embedded::of_profile(&profile, 1).unwrap();
        let client = Arc::new(device.attach().unwrap());
        let files = Files::open_or_format(client.clone()).unwrap();
        let file = files.create("file", 0).unwrap();
        let capacity = files.statistics().unwrap().capacity_bytes;
        let ius = capacity / 4096 * 4 / 5;
        let mut random = Random::seed_from_u64(3);
        for iu in 0..ius {
            files.write(file, iu * 4096, &[1; 4096]).unwrap();
        }
        let mut most = 0;
        let enough = u64::from(client.entries()) * client.append_max_bytes() as u64;
        for _ in 0..ius * 2 {
            let before = files.statistics().unwrap().cleaned_bytes;
            files.write(file, random.random_range(0..ius) * 4096, &[2; 4096]).unwrap();
            most = most.max(files.statistics().unwrap().cleaned_bytes - before);
            if most > enough {
                break;
            }
        }
        done.send((most, enough)).unwrap();
    });
    let (most, enough) = wait.recv_timeout(std::time::Duration::from_secs(120)).expect("the cleaner goes on");
    assert!(most > enough, "a round of {most} bytes is what fits into the ring ({enough})");
}

#[test]
fn folders_hold_what_was_put_into_them() {
    let device = Embedded::new("tiny").unwrap();
    let files = open(&device, Ending::Never).unwrap();
    for folder in ["/db", "/db/empty", "/d"] {
        assert!(!files.has_folder(folder).unwrap());
        files.make_folder(folder).unwrap();
        assert_eq!(files.make_folder(folder), Err(FileError::Exists));
    }
    for name in ["/db/b", "/db/a", "/db/sub/c", "/db/sub/d", "/db-1", "/db/sub.x"] {
        files.create(name, 0).unwrap();
    }
    assert_eq!(files.create("/db/empty", 0), Err(FileError::Exists));
    files.sync().unwrap();
    drop(files);
    let files = open(&device, Ending::Never).unwrap();
    let child = |name: &str, is_folder| Child { name: name.to_owned(), is_folder };
    let inside = [
        child("a", false),
        child("b", false),
        child("empty", true),
        child("sub", true),
        child("sub.x", false),
    ];
    assert_eq!(files.children("/db").unwrap(), inside);
    assert_eq!(files.children("/db/").unwrap(), inside);
    assert_eq!(files.children("/db/sub").unwrap(), [child("c", false), child("d", false)]);
    assert_eq!(files.children("/").unwrap(), [child("d", true), child("db", true), child("db-1", false)]);
    assert_eq!(files.children("/nowhere").unwrap(), []);
    assert!(files.has_folder("/").unwrap() && files.has_folder("/db/sub").unwrap());
    assert!(!files.has_folder("/db/a").unwrap());
    assert_eq!(files.remove_folder("/db"), Err(FileError::NotEmpty));
    files.remove_folder("/db/empty").unwrap();
    assert_eq!(files.remove_folder("/db/empty"), Err(FileError::NotFound));
    files.rename("/db/a", "/d/a").unwrap();
    assert_eq!(files.children("/d").unwrap(), [child("a", false)]);
    // With what is in it.
    files.rename("/db/sub", "/d/moved").unwrap();
    assert_eq!(files.children("/d/moved").unwrap(), [child("c", false), child("d", false)]);
    assert!(files.find("/db/sub/c").unwrap().is_none() && files.find("/d/moved/c").unwrap().is_some());
    assert_eq!(files.rename("/d", "/d/moved/d"), Err(FileError::Inside));
}

#[test]
fn what_was_removed_stays_for_holders_and_goes_at_the_next_attach() {
    let device = Embedded::new("tiny").unwrap();
    let files = open(&device, Ending::Never).unwrap();
    let live = |files: &Files| {
        files.checkpoint().unwrap();
        files.statistics().unwrap().live_bytes
    };
    let (empty, file) = (live(&files), files.create("a", 0).unwrap());
    files.hold(file).unwrap();
    files.hold(file).unwrap();
    files.write(file, 0, &[7; 500_000]).unwrap();
    files.remove("a").unwrap();
    assert_eq!(files.metadata(file).unwrap().links, 0);
    assert!((500_000..600_000).contains(&files.metadata(file).unwrap().allocated_bytes));
    files.sync().unwrap();
    files.set_size(file, 100_000).unwrap();
    assert!((100_000..110_000).contains(&files.metadata(file).unwrap().allocated_bytes));
    files.write(file, 0, &[7; 500_000]).unwrap();
    // It gets no name again, either.
    assert_eq!(files.link(file, ROOT, &Name::new(b"b").unwrap()), Err(FileError::NotFound));
    files.release(file, 1).unwrap();
    assert!(live(&files) >= empty + 500_000);
    files.write(file, 0, &[8; 500_000]).unwrap();
    let mut bytes = vec![0; 500_000];
    assert_eq!(files.read(file, 0, &mut bytes), Ok(bytes.len()));
    assert!(bytes.iter().all(|byte| *byte == 8));
    files.release(file, 1).unwrap();
    assert_eq!(files.metadata(file), Err(FileError::NotFound));
    assert_eq!(live(&files), empty);
    // Nothing gets a name in a folder without one.
    files.make_folder("d").unwrap();
    let folder = files.lookup(ROOT, b"d").unwrap().unwrap();
    files.hold(folder).unwrap();
    files.remove_folder("d").unwrap();
    let other = files.create("a", 0).unwrap();
    let name = Name::new(b"a").unwrap();
    let attributes = Attributes::new(0o644, 0, 0);
    let made = Made { kind: InodeKind::File, hint: 0, attributes, target: &[] };
    assert_eq!(files.make(folder, &name, made), Err(FileError::NotFound));
    assert_eq!(files.link(other, folder, &name), Err(FileError::NotFound));
    assert_eq!(files.rename_entry((ROOT, &name), (folder, &name), Replace::Yes), Err(FileError::NotFound));
    files.remove("a").unwrap();
    drop(files);
    // Once more, over an attach, in the log and in a checkpoint.
    for is_in_checkpoint in [false, true] {
        let files = open(&device, Ending::Never).unwrap();
        let file = files.create("a", 0).unwrap();
        files.hold(file).unwrap();
        files.write(file, 0, &[9; 500_000]).unwrap();
        files.sync().unwrap();
        files.remove("a").unwrap();
        files.write(file, 100_000, &[10; 100_000]).unwrap();
        if is_in_checkpoint {
            files.checkpoint().unwrap()
        } else {
            files.sync().unwrap()
        }
        drop(files);
        let files = open(&device, Ending::Never).unwrap();
        assert_eq!(files.metadata(file), Err(FileError::NotFound));
        assert_eq!(live(&files), empty);
    }
}

#[test]
fn times_follow_what_was_done_and_last() {
    let device = Embedded::new("tiny").unwrap();
    let files = open(&device, Ending::Never).unwrap();
    let file = files.create("d/a", 0).unwrap();
    let folder = files.lookup(ROOT, b"d").unwrap().unwrap();
    let old = Time { seconds: -5, nanoseconds: 7 };
    let age = |file| {
        let set = |attributes: &mut Attributes| {
            (attributes.accessed, attributes.modified, attributes.changed) = (old, old, old);
        };
        files.set_attributes(file, set).unwrap();
    };
    // What was changed since: content, anything.
    let changed = |file| {
        let known = files.metadata(file).unwrap().attributes;
        assert_eq!(known.accessed, old);
        (known.modified != old, known.changed != old)
    };
    let both_after = |work: &dyn Fn()| {
        age(file);
        age(folder);
        work();
        (changed(file), changed(folder))
    };
    let (no, all, only_changed) = ((false, false), (true, true), (false, true));
    assert_eq!(both_after(&|| files.write(file, 0, b"x").unwrap()), (all, no));
    assert_eq!(both_after(&|| files.set_size(file, 100).unwrap()), (all, no));
    assert_eq!(both_after(&|| files.link_path("d/a", "d/b").unwrap()), (only_changed, all));
    assert_eq!(both_after(&|| files.rename("d/b", "c").unwrap()), (only_changed, all));
    assert_eq!(both_after(&|| files.remove("c").unwrap()), (only_changed, no));
    let mode = |attributes: &mut Attributes| attributes.mode = 0o4711;
    assert_eq!(
        both_after(&|| assert_eq!(files.set_attributes(file, mode).unwrap().attributes.mode, 0o4711)),
        (only_changed, no)
    );
    let known = files.metadata(file).unwrap();
    // Times of writes last, too.
    files.sync().unwrap();
    files.write(file, 0, b"y").unwrap();
    let after = files.metadata(file).unwrap();
    assert_ne!(after, known);
    files.sync().unwrap();
    drop(files);
    let files = open(&device, Ending::Never).unwrap();
    assert_eq!(files.metadata(file).unwrap(), after);
}

/// Batches of version 1 are those of a format without inodes.
#[test]
fn a_store_of_another_version_is_refused_and_kept() {
    let device = Embedded::new("tiny").unwrap();
    drop(open(&device, Ending::Never).unwrap());
    let client = device.attach().unwrap();
    client.keep(&[]).unwrap();
    for purpose in [1, 2] {
        let header = Header {
            kind: Kind::Log,
            sequence: 1,
            ius: 8,
            data_ius: 0,
            length_bytes: 0,
            part: 0,
            parts: 0,
            data_check: 0,
        };
        let mut bytes = header.encode(&[]);
        bytes[4..6].copy_from_slice(&1u16.to_le_bytes());
        bytes[32..36].fill(0);
        let sum = diecut_units::checksum(&bytes);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        let mut batch = bytes.to_vec();
        batch.resize(8 * 4096, 0);
        let block = client.allocate(UnitIndex(0), Purpose(purpose)).unwrap();
        client.append(block, &batch).unwrap();
        client.sync().unwrap();
    }
    drop(client);
    for _ in 0..2 {
        assert_eq!(open(&device, Ending::Never).err(), Some(FileError::Version { found: 1 }));
    }
}

#[test]
fn a_full_vssd_says_so_and_works_on() {
    let device = Embedded::new("tiny").unwrap();
    let files = open(&device, Ending::Never).unwrap();
    let file = files.create("a", 0).unwrap();
    let capacity = files.statistics().unwrap().capacity_bytes;
    let (mut written, mut random) = (0, Random::seed_from_u64(1));
    let mut content = Vec::new();
    loop {
        let bytes = fill(&mut random, 100_000);
        match files.write(file, written, &bytes) {
            Ok(()) => content.extend(&bytes),
            Err(error) => break assert_eq!(error, FileError::NoSpace),
        }
        written += bytes.len() as u64;
    }
    assert!(written > capacity - 300_000, "{written} of {capacity}");
    // Three overwrites of all of it, in pieces at random places: the cleaner keeps up.
    for _ in 0..3 * written / 20_000 {
        let offset = random.random_range(0..content.len() - 20_000) / 4096 * 4096;
        let bytes = fill(&mut random, 16_384);
        files.write(file, offset as u64, &bytes).unwrap();
        content[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
    files.sync().unwrap();
    let statistics = files.statistics().unwrap();
    assert!(statistics.cleaned_bytes > 0, "{statistics:?}");
    assert!(content_of(&files, "a") == content);
    drop(files);
    let files = open(&device, Ending::Never).unwrap();
    assert!(content_of(&files, "a") == content);
    files.remove("a").unwrap();
    let file = files.create("b", 0).unwrap();
    files.write(file, 0, &content).unwrap();
    files.sync().unwrap();
}

/// Whether it ended, and states of all files, as they were after each operation since the last sync (first) that came back.
fn run_until_it_ends(device: &Embedded, ending: Ending, seed: u64, before: &Model) -> (bool, Vec<Model>) {
    let mut random = Random::seed_from_u64(seed);
    let mut states = vec![before.clone()];
    let Ok(files) = open(device, ending) else { return (true, states) };
    assert!(whole_or_gone(&files).is_none_or(|found| found == *before), "seed {seed}");
    let mut model = before.clone();
    for number in 0..80 {
        let outcome = step(&files, &mut model, &mut random, 400_000);
        states.push(model.clone());
        let synced = outcome.and_then(|()| if number % 7 == 6 { files.sync() } else { Ok(()) });
        if number % 20 == 19 && big(&files, &mut model, &mut random).is_err() {
            states.push(model);
            return (true, states);
        }
        states.push(model.clone());
        match synced {
            Ok(()) if number % 7 == 6 => states = vec![model.clone()],
            Ok(()) => {}
            Err(FileError::Block(_) | FileError::Failed) => return (true, states),
            Err(error) => panic!("seed {seed} step {number}: {error}"),
        }
        if number == 30 && files.checkpoint().is_err() {
            return (true, states);
        }
    }
    (false, states)
}

/// A write that fills more batches than go out at once, over several dies, into a file that is long enough: whatever of it
/// is cut off, the file has that length.
fn big(files: &Files, model: &mut Model, random: &mut Random) -> Result<(), FileError> {
    let name = model.some_path(random, "file", 4);
    let Some(file) = files.find(&name)? else { return Ok(()) };
    if model.inodes[&file.0].kind != InodeKind::File {
        return Ok(());
    }
    let bytes = fill(random, 300 * 4096);
    let content = &mut model.inodes.get_mut(&file.0).unwrap().bytes;
    content.resize(content.len().max(bytes.len()), 0);
    content[..bytes.len()].copy_from_slice(&bytes);
    let len = files.size(file)?.max(bytes.len() as u64);
    files.set_size(file, len)?;
    files.sync()?;
    files.write(file, 0, &bytes)
}

fn whole_or_gone(files: &Files) -> Option<Model> {
    try_whole(files).ok()
}

fn content_of(files: &Files, path: &str) -> Vec<u8> {
    let model = whole(files);
    model.inodes[&model.entries[path]].bytes.clone()
}

/// Whether what was found is what a cut may leave: names and attributes of one moment, each IU of each file from the last sync or
/// later.
fn is_allowed(found: &Model, states: &[Model]) -> bool {
    let is_of = |state: &Model, file: &u64, node: &Node| {
        let own = &state.inodes[file];
        let same = (own.kind, own.mode) == (node.kind, node.mode)
            && (own.accessed_seconds.is_none() || own.accessed_seconds == node.accessed_seconds);
        same && if node.kind == InodeKind::File {
            is_content(*file, &node.bytes, states)
        } else {
            own.bytes == node.bytes
        }
    };
    states.iter().any(|state| {
        found.entries == state.entries && found.inodes.iter().all(|(file, node)| is_of(state, file, node))
    })
}

fn is_content(file: u64, bytes: &[u8], states: &[Model]) -> bool {
    let versions = || states.iter().filter_map(|state| state.inodes.get(&file)).map(|node| &node.bytes[..]);
    versions().any(|content| content.len() == bytes.len())
        && bytes.chunks(4096).enumerate().all(|(at, iu)| {
            let begin = at * 4096;
            versions().any(|content| {
                let end = content.len().min(begin + iu.len());
                let own = content.get(begin..end).unwrap_or(&[]);
                // What is not written there yet is zeros.
                iu.starts_with(own) && iu[own.len()..].iter().all(|byte| *byte == 0)
            })
        })
}

#[test]
fn what_was_synced_survives_an_end_at_any_operation() {
    for (kind, name) in [(0, "cut"), (1, "death")] {
        let mut ended = 0;
        for nth in (0..).step_by(3) {
            let device = Embedded::with_seed("tiny", nth).unwrap();
            let ending = if kind == 0 { Ending::PowerCut(nth) } else { Ending::ServerDeath(nth) };
            let (has_ended, states) = run_until_it_ends(&device, ending, 7, &Model::default());
            if !has_ended {
                break;
            }
            ended += 1;
            // The recovery is ended on its way, too.
            let _ = open(&device, Ending::ServerDeath(3 + nth * 7 % 150));
            let files = open(&device, Ending::Never).unwrap_or_else(|error| panic!("{name} {nth}: {error}"));
            let found = whole(&files);
            assert!(is_allowed(&found, &states), "{name} at operation {nth}");
            drop(files);
            // Again, without anything between: recovery repeats itself.
            let files = open(&device, Ending::Never).unwrap();
            assert!(whole(&files) == found, "{name} at operation {nth}, opened again");
        }
        assert!(ended > 40, "{ended} ends by {name}");
    }
}

#[test]
fn ends_that_follow_one_another_leave_what_was_synced() {
    for seed in 0..10 {
        let device = Embedded::with_seed("tiny", seed).unwrap();
        let mut random = Random::seed_from_u64(seed);
        let mut model = Model::default();
        for round in 0..12 {
            let nth = random.random_range(0..150);
            let ending = if random.random() { Ending::PowerCut(nth) } else { Ending::ServerDeath(nth) };
            let (_, states) = run_until_it_ends(&device, ending, seed * 100 + round, &model);
            // A cut that did not come yet comes now.
            let found = (0..2).find_map(|_| whole_or_gone(&open(&device, Ending::Never).ok()?));
            let found = found.unwrap_or_else(|| panic!("seed {seed} round {round} {ending:?}"));
            assert!(is_allowed(&found, &states), "seed {seed} round {round} {ending:?}");
            model = found;
        }
    }
}

/// Blocks with nothing that is needed, whose batches the replay still walks over: freed too early, a second replay ends there.
#[test]
fn a_recovery_that_is_ended_anywhere_is_repeated() {
    let page = |version: u8| vec![version; 4096];
    for nth in 0..200 {
        let device = Embedded::new("tiny").unwrap();
        let files = open(&device, Ending::Never).unwrap();
        let file = files.create("a", 0).unwrap();
        // Two syncs fill an erase block: the first blocks hold old versions only.
        for version in 1..=6 {
            files.write(file, 0, &page(version)).unwrap();
            files.sync().unwrap();
        }
        drop(files);
        let has_ended = open(&device, Ending::ServerDeath(nth)).is_err();
        let files = open(&device, Ending::Never).unwrap();
        assert!(content_of(&files, "a") == page(6), "ended at operation {nth} of the recovery");
        if !has_ended {
            assert!(nth > 5, "a recovery reads more than {nth} times");
            return;
        }
    }
    panic!("recovery takes no end");
}

/// A file grows after its data: whatever ends the store while it makes room, what was only appended to has no holes.
#[test]
fn a_file_that_is_appended_to_has_no_holes_after_an_end() {
    let device = Embedded::new("tiny").unwrap();
    let mut random = Random::seed_from_u64(11);
    let mut ended = 0;
    for round in 0..60u64 {
        // At first it fills; then each flush makes room, with checkpoints while writes wait. A round has about 540 operations, by the
        // real clock of the device: nearly every one ends on its way.
        let nth = random.random_range(0..500);
        let ending = match round {
            0 => Ending::Never,
            _ if random.random() => Ending::PowerCut(nth),
            _ => Ending::ServerDeath(nth),
        };
        let Ok(files) = open(&device, ending) else {
            ended += 1;
            continue;
        };
        let outcome = append_and_overwrite(&files, &mut random, if round == 0 { 1000 } else { 300 });
        ended += u32::from(outcome.is_err());
        drop(files);
        let found = (0..2).find_map(|_| whole_or_gone(&open(&device, Ending::Never).ok()?)).unwrap();
        let log = found.entries.get("log").map(|file| &found.inodes[file].bytes);
        let hole = log.and_then(|log| log.iter().position(|byte| *byte == 0));
        assert_eq!(hole, None, "round {round}, {ending:?}");
    }
    assert!(ended > 20, "{ended} ends");
}

fn append_and_overwrite(files: &Files, random: &mut Random, count: u32) -> Result<(), FileError> {
    let file = |name| files.find(name)?.map_or_else(|| files.create(name, 1), Ok);
    let (bulk, log) = (file("bulk")?, file("log")?);
    // Nearly full: there is little room to make, and often.
    let pieces = (files.statistics()?.capacity_bytes - 3_000_000) / 32_768 * 9 / 10;
    if files.size(bulk)? == 0 {
        (0..pieces).try_for_each(|piece| files.write(bulk, piece * 32_768, &vec![0xff; 32_768]))?;
    }
    for _ in 0..count {
        if files.size(log)? > 2_000_000 {
            files.set_size(log, 0)?;
        }
        files.write(log, files.size(log)?, &vec![0x5a; random.random_range(1..20_000)])?;
        files.write(bulk, random.random_range(0..pieces) * 32_768, &vec![0xff; 32_768])?;
    }
    files.sync()
}
