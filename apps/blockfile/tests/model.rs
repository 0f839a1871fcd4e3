//! Goal: files hold what was written, over attachments, power cuts and deaths of the server, however full the vSSD is. Method: random
//! operations against files in memory. After an end, what was synced must be there, and each IU of what came after is one that
//! the files had since. Bugs that were planted, each seen failing here: a sync that does not fill behind itself, blocks of batches
//! after the checkpoint that are not kept at an attach, no zeros behind the end of a file that was cut, a file set to the size it has
//! whose growth is not logged, parts of extents that are not counted as freed, a checkpoint with sizes of what waits.

use diecut_blockfile::{Child, FileError, FileId, Files, HINTS};
use diecut_blockspace::BlockError;
use diecut_blockspace::embedded::{Embedded, Ending};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::Arc;

type Random = Xoshiro256PlusPlus;
/// Content by name.
type Model = BTreeMap<String, Vec<u8>>;

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

/// One random operation on the files and on the model.
fn step(
    files: &Files,
    model: &mut Model,
    random: &mut Random,
    file_bytes_max: usize,
) -> Result<(), FileError> {
    let name = format!("file-{}", random.random_range(0..6));
    let file = files.find(&name)?;
    assert_eq!(file.is_some(), model.contains_key(&name));
    match (random.random_range(0..20), file) {
        (_, None) => {
            files.create(&name, random.random_range(0..HINTS))?;
            model.insert(name, Vec::new());
        }
        (0, Some(_)) => {
            files.remove(&name)?;
            model.remove(&name);
        }
        (1, Some(_)) => {
            let other = format!("file-{}", random.random_range(0..6));
            files.rename(&name, &other)?;
            let content = model.remove(&name).unwrap();
            model.insert(other, content);
        }
        (2, Some(file)) => {
            let same = random.random_range(0..3) == 0;
            let size = if same { model[&name].len() } else { random.random_range(0..file_bytes_max / 2) };
            model.get_mut(&name).unwrap().resize(size, 0);
            files.set_size(file, size as u64)?;
        }
        (3, Some(file)) => files.set_hint(file, random.random_range(0..HINTS))?,
        (4..9, Some(file)) => check_some(files, file, &model[&name], random)?,
        (_, Some(file)) => {
            let offset = random.random_range(0..file_bytes_max / 2);
            let len = if random.random_range(0..4) == 0 { 40_000 } else { 5_000 };
            let len = random.random_range(1..len);
            let bytes = fill(random, len);
            // First in the model: a part of a write that fails may be there.
            let content = model.get_mut(&name).unwrap();
            content.resize(content.len().max(offset + bytes.len()), 0);
            content[offset..offset + bytes.len()].copy_from_slice(&bytes);
            files.write(file, offset as u64, &bytes)?;
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

fn whole(files: &Files) -> Model {
    let mut model = Model::new();
    for (name, size) in files.list().unwrap() {
        let mut bytes = vec![0xee; size as usize];
        let file = files.find(&name).unwrap().unwrap();
        assert_eq!(files.read(file, 0, &mut bytes).unwrap(), bytes.len());
        model.insert(name, bytes);
    }
    model
}

#[test]
fn files_hold_what_was_written_over_attachments_and_cleaning() {
    for seed in 0..3 {
        let device = Embedded::with_seed("tiny", seed).unwrap();
        let mut random = Random::seed_from_u64(seed);
        let mut model = Model::new();
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
        child("sub.x", false),
        child("sub", true),
    ];
    assert_eq!(files.children("/db").unwrap(), inside);
    assert_eq!(files.children("/db/").unwrap(), inside);
    assert_eq!(files.children("/db/sub").unwrap(), [child("c", false), child("d", false)]);
    assert_eq!(files.children("/").unwrap(), [child("d", true), child("db-1", false), child("db", true)]);
    assert_eq!(files.children("/nowhere").unwrap(), []);
    assert!(files.has_folder("/").unwrap() && files.has_folder("/db/sub").unwrap());
    assert!(!files.has_folder("/db/a").unwrap());
    assert_eq!(files.remove_folder("/db"), Err(FileError::NotEmpty));
    files.remove_folder("/db/empty").unwrap();
    assert_eq!(files.remove_folder("/db/empty"), Err(FileError::NotFound));
    files.rename("/db/a", "/d/a").unwrap();
    assert_eq!(files.children("/d").unwrap(), [child("a", false)]);
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
    assert!(whole(&files)["a"] == content);
    drop(files);
    let files = open(&device, Ending::Never).unwrap();
    assert!(whole(&files)["a"] == content);
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
    let name = format!("file-{}", random.random_range(0..6));
    let Some(file) = files.find(&name)? else { return Ok(()) };
    let bytes = fill(random, 300 * 4096);
    let content = model.get_mut(&name).unwrap();
    content.resize(content.len().max(bytes.len()), 0);
    content[..bytes.len()].copy_from_slice(&bytes);
    let len = files.size(file)?.max(bytes.len() as u64);
    files.set_size(file, len)?;
    files.sync()?;
    files.write(file, 0, &bytes)
}

fn whole_or_gone(files: &Files) -> Option<Model> {
    files.statistics().ok()?;
    let names = files.list().ok()?;
    let mut model = Model::new();
    for (name, size) in names {
        let mut bytes = vec![0xee; size as usize];
        let file = files.find(&name).ok()??;
        files.read(file, 0, &mut bytes).ok()?;
        model.insert(name, bytes);
    }
    Some(model)
}

/// Whether what was found is what a cut may leave: each IU of each file from the last sync or later, names of one moment.
fn is_allowed(found: &Model, states: &[Model]) -> bool {
    states.iter().any(|state| {
        found.len() == state.len()
            && found.iter().all(|(name, bytes)| {
                state.contains_key(name)
                    && states.iter().any(|other| other.values().any(|content| content.len() == bytes.len()))
                    && bytes.chunks(4096).enumerate().all(|(at, iu)| {
                        let begin = at * 4096;
                        states.iter().any(|other| {
                            other.values().any(|content| {
                                let end = content.len().min(begin + iu.len());
                                let own = content.get(begin..end).unwrap_or(&[]);
                                // What is not written there yet is zeros.
                                iu.starts_with(own) && iu[own.len()..].iter().all(|byte| *byte == 0)
                            })
                        })
                    })
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
            let (has_ended, states) = run_until_it_ends(&device, ending, 7, &Model::new());
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
        let mut model = Model::new();
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
        assert!(whole(&files)["a"] == page(6), "ended at operation {nth} of the recovery");
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
        let hole = found.get("log").and_then(|log| log.iter().position(|byte| *byte == 0));
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
