//! The suite that every medium passes: what the contract promises, checked from outside.
//!
//! Each check takes a closure that makes a fresh medium (all good blocks erased or never touched). A medium that loses a
//! page, mixes up blocks, forgets an OOB area, completes twice, or lets a flash rule pass fails.
//!
//! Whoever writes a medium, in this tree or another, takes this crate with the feature `conformance` among the dev-dependencies
//! and calls [`all`] in a test with a closure that makes one:
//!
//! ```
//! # use diecut_media::{Media, conformance};
//! # fn test(make_my_medium: impl Fn(u64) -> Box<dyn Media>) {
//! let mut seed = 0;
//! conformance::all(&mut || {
//!     seed += 1;
//!     make_my_medium(seed)
//! });
//! # }
//! ```
//!
//! It asks for nothing but [`Media`]: a boxed one will do, `next_event` says when to come back, and a medium on a real clock
//! may complete when it likes. Each check can be
//! called alone; where a medium does not have what one is about (copies, tags, protected memory), it passes. The suite's own test
//! (`tests/conformance.rs` of this crate) runs it against a plain medium and against eighteen media with a planted bug each.

use crate::conformance_sync::sync;
use crate::{Command, Completion, Media, MediaError, MediaToken, Operation, PayloadParts};
use diecut_units::{
    BlockIndex, Buffer, BufferMut, BufferPool, ContentMode, EraseBlockAddress, IU_SIZE_BYTES, Payload, Time,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rounds of [`finish`] until a medium that makes no progress is given up.
const ROUNDS_MAX: u32 = 1_000_000;

/// Runs every check.
///
/// # Panics
/// If the medium breaks the contract; the message says which part.
pub fn all<M: Media>(make: &mut dyn FnMut() -> M) {
    content_comes_back(&mut make());
    erased_pages_say_so(&mut make());
    protected_memory_is_one(&make());
    metadata_beside_tags(&mut make());
    copies_carry_content(&mut make());
    flushes_are_answered(&mut make());
    broken_rules_panic(make);
    for seed in 0..4 {
        random_work(&mut make(), seed);
    }
}

/// Waits until `count` completions have arrived.
///
/// # Panics
/// If they do not.
pub fn finish(medium: &mut dyn Media, now: &mut Time, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    for _ in 0..ROUNDS_MAX {
        medium.advance(*now, &mut completions);
        if completions.len() >= count {
            assert_eq!(completions.len(), count, "one completion for each command");
            return completions;
        }
        if sync(medium, *now) {
            continue;
        }
        let next = medium.next_event();
        assert!(next < Time::NEVER, "{} of {count} commands never complete", count - completions.len());
        *now = (*now).max(next);
    }
    panic!("no progress");
}

/// Goes through a sync where one is wanted, else to the next event.
fn step_on(medium: &mut dyn Media, now: &mut Time, completions: &mut Vec<Completion>) {
    if !sync(medium, *now) {
        let next = medium.next_event();
        assert!(next < Time::NEVER, "commands never complete: no event, and no sync is wanted");
        *now = (*now).max(next);
    }
    medium.advance(*now, completions);
}

/// Runs one command to its end.
pub fn execute(medium: &mut dyn Media, now: &mut Time, operation: Operation) -> Completion {
    medium.submit(Command { token: MediaToken(7), operation }, *now);
    let completion = finish(medium, now, 1).remove(0);
    assert_eq!(completion.token, MediaToken(7), "the token comes back");
    completion
}

/// Content of one IU that names its place and version: bytes, or a tag.
fn iu_content(mode: ContentMode, block: EraseBlockAddress, iu: u32, version: u32) -> Vec<u8> {
    let die = u64::from(block.channel.0) << 8 | u64::from(block.die.0);
    let word =
        die << 48 ^ u64::from(block.block.0) << 32 ^ u64::from(iu) << 16 ^ u64::from(version) ^ 0x5a << 56;
    word.to_le_bytes().repeat(mode.bytes_per_iu() / 8)
}

fn oob_content(medium: &dyn Media, block: EraseBlockAddress, page: u32, version: u32) -> Vec<u8> {
    let size = medium.geometry().oob_size_bytes as usize;
    let mut area = vec![0; size];
    if size == 0 {
        return area;
    }
    area[..4].copy_from_slice(&page.to_le_bytes());
    area[4..8].copy_from_slice(&version.to_le_bytes());
    area[size - 4..].copy_from_slice(&block.block.0.to_le_bytes());
    area
}

/// A program of whole units with the content of `version`.
pub fn program_of(
    medium: &dyn Media,
    block: EraseBlockAddress,
    first_page: u32,
    pages: u32,
    version: u32,
) -> Operation {
    let mode = medium.capabilities().content_mode;
    let ius = medium.geometry().ius_per_page();
    let mut content = Vec::new();
    for iu in first_page * ius..(first_page + pages) * ius {
        content.extend(iu_content(mode, block, iu, version));
    }
    let mut oob = Vec::new();
    for page in first_page..first_page + pages {
        oob.extend(oob_content(medium, block, page, version));
    }
    let payload = Payload::new(mode, Buffer::copy_from(&content));
    // In two parts where there is more than one IU, to see that parts are joined.
    let count = payload.iu_count();
    let parts: PayloadParts = if count > 1 {
        [payload.slice(0, 1), payload.slice(1, count - 1)].into_iter().collect()
    } else {
        [payload].into_iter().collect()
    };
    Operation::Program { block, first_page, parts, oob: Buffer::copy_from(&oob) }
}

/// A read of IUs with the OOB areas of the pages touched.
pub fn read_of(medium: &dyn Media, block: EraseBlockAddress, first_iu: u32, iu_count: u32) -> Operation {
    let mode = medium.capabilities().content_mode;
    let geometry = medium.geometry();
    let ius = geometry.ius_per_page();
    let pages = (first_iu + iu_count - 1) / ius - first_iu / ius + 1;
    // Not zeros: a medium that leaves a destination alone is found out.
    let mut pool = BufferPool::new();
    let mut destination = pool.take(iu_count as usize * mode.bytes_per_iu());
    destination.fill(0xee);
    let oob = geometry.has_oob().then(|| {
        let mut oob = pool.take((pages * geometry.oob_size_bytes) as usize);
        oob.fill(0xee);
        oob
    });
    Operation::Read { block, first_iu, iu_count, destination, oob }
}

/// Checks what a read returned.
fn assert_content(
    medium: &dyn Media,
    done: &Completion,
    block: EraseBlockAddress,
    iu: u32,
    count: u32,
    version: u32,
) {
    assert_eq!(done.result, Ok(()), "{block} IU {iu}");
    let mode = medium.capabilities().content_mode;
    let destination = done.destination.as_ref().expect("the destination comes back");
    for index in 0..count {
        let size = mode.bytes_per_iu();
        let found = &destination[index as usize * size..(index as usize + 1) * size];
        assert!(
            found == iu_content(mode, block, iu + index, version),
            "{block} IU {} holds other content",
            iu + index
        );
    }
    if !medium.geometry().has_oob() {
        return assert!(done.oob.is_none(), "there are no OOB areas");
    }
    let oob = done.oob.as_ref().expect("the OOB destination comes back");
    let size = medium.geometry().oob_size_bytes as usize;
    let first_page = iu / medium.geometry().ius_per_page();
    for (index, area) in oob.chunks_exact(size).enumerate() {
        let page = first_page + index as u32;
        assert!(area == oob_content(medium, block, page, version), "{block} page {page} has other OOB");
    }
}

/// The first good blocks of the device, die after die in turn.
pub fn good_blocks(medium: &dyn Media, count: usize) -> Vec<EraseBlockAddress> {
    let geometry = *medium.geometry();
    let mut blocks = Vec::new();
    for index in 0..geometry.erase_blocks_per_die() {
        for die in geometry.all_dies() {
            let block = die.erase_block(BlockIndex(index));
            if !medium.is_factory_bad(block) && blocks.len() < count {
                blocks.push(block);
            }
        }
    }
    blocks
}

/// A block programmed to its end returns every IU, alone and together, and every OOB area; after an erase other content.
pub fn content_comes_back(medium: &mut dyn Media) {
    let mut now = Time::ZERO;
    let unit = medium.capabilities().program_unit_pages;
    let pages = medium.geometry().pages_per_erase_block();
    let ius = medium.geometry().ius_per_erase_block();
    let block = good_blocks(medium, 1)[0];
    for version in 1..3 {
        assert_eq!(execute(medium, &mut now, Operation::Erase { block }).result, Ok(()));
        for page in (0..pages).step_by(unit as usize) {
            let operation = program_of(medium, block, page, unit, version);
            assert_eq!(execute(medium, &mut now, operation).result, Ok(()));
        }
        for (first, count) in [(0, ius), (0, 1), (ius - 1, 1), (1, 7), (ius / 2 - 1, 2)] {
            let operation = read_of(medium, block, first, count);
            let done = execute(medium, &mut now, operation);
            assert_content(medium, &done, block, first, count, version);
        }
        let size = medium.geometry().oob_size_bytes;
        if size == 0 {
            continue;
        }
        let oob = BufferPool::new().take((2 * size) as usize);
        let done = execute(medium, &mut now, Operation::ReadOob { block, first_page: 1, oob });
        assert_eq!(done.result, Ok(()));
        let expected =
            [oob_content(medium, block, 1, version), oob_content(medium, block, 2, version)].concat();
        assert!(done.oob.expect("the OOB destination comes back")[..] == expected[..], "OOB areas alone");
    }
}

/// Pages that were not programmed read as erased, also above the write position, and the first is named. Of a medium without OOB
/// areas, too, as long as it is not opened again: what an earlier owner left is nobody's.
pub fn erased_pages_say_so(medium: &mut dyn Media) {
    let mut now = Time::ZERO;
    let unit = medium.capabilities().program_unit_pages;
    let ius = medium.geometry().ius_per_page();
    let block = good_blocks(medium, 1)[0];
    execute(medium, &mut now, Operation::Erase { block });
    let operation = program_of(medium, block, 0, unit, 1);
    execute(medium, &mut now, operation);
    let operation = read_of(medium, block, unit * ius - 1, 2);
    let done = execute(medium, &mut now, operation);
    assert_eq!(done.result, Err(MediaError::Erased { block, page: unit }));
    assert!(
        done.destination.is_some() && done.oob.is_some() == medium.geometry().has_oob(),
        "destinations come back with an error too"
    );
    execute(medium, &mut now, Operation::Erase { block });
    let operation = read_of(medium, block, 0, 1);
    assert_eq!(execute(medium, &mut now, operation).result, Err(MediaError::Erased { block, page: 0 }));
}

/// All handles of protected memory are the same memory.
pub fn protected_memory_is_one(medium: &dyn Media) {
    let Some(memory) = medium.protected_memory() else { return };
    memory.region(0..64)[0] = 0x77;
    let again = medium.protected_memory().expect("it does not go away");
    assert_eq!((again.region(0..64)[0], again.size_bytes()), (0x77, memory.size_bytes()));
}

/// In tag mode, IUs that were programmed as bytes come back as bytes, and each mode refuses the other.
pub fn metadata_beside_tags(medium: &mut dyn Media) {
    if medium.capabilities().content_mode != ContentMode::Tags {
        return;
    }
    let mut now = Time::ZERO;
    let geometry = *medium.geometry();
    let unit = medium.capabilities().program_unit_pages;
    let ius = unit * geometry.ius_per_page();
    let block = good_blocks(medium, 1)[0];
    execute(medium, &mut now, Operation::Erase { block });
    let bytes = vec![0xa5; IU_SIZE_BYTES];
    let tags = vec![0x11; (ius as usize - 1) * 8];
    let parts: PayloadParts = [
        Payload::new(ContentMode::Bytes, Buffer::copy_from(&bytes)),
        Payload::new(ContentMode::Tags, Buffer::copy_from(&tags)),
    ]
    .into_iter()
    .collect();
    let oob = Buffer::copy_from(&vec![0; (unit * geometry.oob_size_bytes) as usize]);
    let done = execute(medium, &mut now, Operation::Program { block, first_page: 0, parts, oob });
    assert_eq!(done.result, Ok(()));
    let mut read = |first_iu: u32, size: usize| {
        let destination = BufferMut::copy_from(&vec![0; size]);
        execute(medium, &mut now, Operation::Read { block, first_iu, iu_count: 1, destination, oob: None })
    };
    let wrong = Err(MediaError::WrongContentMode { block, page: 0 });
    assert!(read(0, IU_SIZE_BYTES).destination.expect("it comes back")[..] == bytes[..], "bytes come back");
    assert_eq!(read(0, 8).result, wrong);
    assert_eq!(read(1, 8).destination.expect("it comes back")[..], tags[..8]);
    assert_eq!(read(1, IU_SIZE_BYTES).result, wrong);
}

/// A copy within a die carries content and OOB, or the OOB given.
pub fn copies_carry_content(medium: &mut dyn Media) {
    if !medium.capabilities().copy_within_die {
        return;
    }
    let mut now = Time::ZERO;
    let geometry = *medium.geometry();
    let unit = medium.capabilities().program_unit_pages;
    let source = good_blocks(medium, 1)[0];
    let target = (source.block.0 + 1..geometry.erase_blocks_per_die())
        .map(|index| source.die_address().erase_block(BlockIndex(index)))
        .find(|block| !medium.is_factory_bad(*block))
        .expect("a die has two good blocks");
    for block in [source, target] {
        execute(medium, &mut now, Operation::Erase { block });
    }
    let operation = program_of(medium, source, 0, 2 * unit, 3);
    execute(medium, &mut now, operation);
    let area: Vec<u8> = (0..unit).flat_map(|page| oob_content(medium, target, page, 9)).collect();
    for (page, oob) in [(0, None), (unit, Some(Buffer::copy_from(&area)))] {
        let fresh = oob.is_some();
        let operation = Operation::Copy {
            source,
            source_page: page,
            destination: target,
            destination_page: page,
            page_count: unit,
            oob,
        };
        assert_eq!(execute(medium, &mut now, operation).result, Ok(()));
        let ius = geometry.ius_per_page();
        let operation = read_of(medium, target, page * ius, unit * ius);
        let mut done = execute(medium, &mut now, operation);
        if fresh {
            assert!(done.oob.as_ref().expect("it comes back")[..] == area[..], "the copy has the OOB given");
            let size = geometry.oob_size_bytes;
            let expected: Vec<u8> =
                (page..page + unit).flat_map(|page| oob_content(medium, source, page, 3)).collect();
            assert_eq!(expected.len() as u32, unit * size);
            done.oob = Some(BufferMut::copy_from(&expected));
        }
        assert_content(medium, &done, source, page * ius, unit * ius, 3);
    }
}

/// Each flush is answered once, whatever is under way and however many wait; programs go on meanwhile.
pub fn flushes_are_answered(medium: &mut dyn Media) {
    if !medium.capabilities().volatile_cache {
        return;
    }
    let mut now = Time::ZERO;
    let flush = |medium: &mut dyn Media, now: &mut Time| {
        medium.flush(MediaToken(8), *now);
        let completion = finish(medium, now, 1).remove(0);
        assert_eq!((completion.token, completion.result), (MediaToken(8), Ok(())));
    };
    flush(medium, &mut now);
    let block = good_blocks(medium, 1)[0];
    execute(medium, &mut now, Operation::Erase { block });
    let unit = medium.capabilities().program_unit_pages;
    for page in 0..4 {
        let operation = program_of(medium, block, page * unit, unit, 1);
        medium.submit(Command { token: MediaToken(100 + u64::from(page)), operation }, now);
        medium.flush(MediaToken(200 + u64::from(page)), now);
    }
    let mut tokens: Vec<u64> =
        finish(medium, &mut now, 8).iter().map(|done| (done.result, done.token.0).1).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [100, 101, 102, 103, 200, 201, 202, 203], "each one is answered");
    flush(medium, &mut now);
    let ius = 4 * unit * medium.geometry().ius_per_page();
    let operation = read_of(medium, block, 0, ius);
    let done = execute(medium, &mut now, operation);
    assert_content(medium, &done, block, 0, ius, 1);
}

/// What a flush covered is there after a cut, whatever else was under way. `cut` takes the power away at once and opens the medium
/// again. For media with a volatile cache; the seed says what is done and when it is cut.
pub fn flushed_content_survives_cuts<M: Media>(mut medium: M, seed: u64, cut: &mut dyn FnMut(M) -> M) {
    assert!(medium.capabilities().volatile_cache, "there is nothing to flush");
    let mut below = numbers(seed);
    let geometry = *medium.geometry();
    let (unit, pages) = (medium.capabilities().program_unit_pages, geometry.pages_per_erase_block());
    let blocks = good_blocks(&medium, 8);
    for life in 0..4u32 {
        let mut now = Time::ZERO;
        // Pages answered, and of these the ones that a complete flush covers.
        let mut written = vec![0; blocks.len()];
        let mut covered = vec![0; blocks.len()];
        let version = |at: usize| life * 100 + at as u32;
        let mut token = 0u64;
        let mut programs: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
        let mut flushes: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for block in &blocks {
            execute(&mut medium, &mut now, Operation::Erase { block: *block });
        }
        let mut submitted = vec![0; blocks.len()];
        let mut completions = Vec::new();
        for _ in 0..20 + below(300) {
            token += 1;
            let at = below(blocks.len() as u32) as usize;
            match below(8) {
                0 => {
                    medium.flush(MediaToken(token), now);
                    flushes.insert(token, written.clone());
                }
                1..=2 if submitted[at] + unit <= pages => {
                    let operation = program_of(&medium, blocks[at], submitted[at], unit, version(at));
                    submitted[at] += unit;
                    programs.insert(token, (at, submitted[at]));
                    medium.submit(Command { token: MediaToken(token), operation }, now);
                }
                _ if !programs.is_empty() || !flushes.is_empty() => {
                    step_on(&mut medium, &mut now, &mut completions);
                }
                _ => {}
            }
            for done in completions.drain(..) {
                assert_eq!(done.result, Ok(()), "seed {seed}");
                if let Some((at, end)) = programs.remove(&done.token.0) {
                    assert_eq!(
                        written[at] + unit,
                        end,
                        "seed {seed}: programs of an erase block are answered in order"
                    );
                    written[at] = end;
                } else {
                    let sure = flushes.remove(&done.token.0).expect("answered once");
                    for (covered, sure) in covered.iter_mut().zip(sure) {
                        *covered = sure.max(*covered);
                    }
                }
            }
        }
        medium = cut(medium);
        now = Time::ZERO;
        for (at, block) in blocks.iter().enumerate().filter(|(at, _)| covered[*at] > 0) {
            let ius = covered[at] * geometry.ius_per_page();
            let operation = read_of(&medium, *block, 0, ius);
            let done = execute(&mut medium, &mut now, operation);
            assert_content(&medium, &done, *block, 0, ius, version(at));
        }
    }
}

/// Every broken flash rule panics.
pub fn broken_rules_panic<M: Media>(make: &mut dyn FnMut() -> M) {
    type Breach = fn(&mut dyn Media, EraseBlockAddress, &mut Time);
    let breaches: [(&str, Breach); 8] = [
        ("a program out of order", |medium, block, now| {
            let unit = medium.capabilities().program_unit_pages;
            let operation = program_of(medium, block, unit, unit, 1);
            execute(medium, now, operation);
        }),
        ("a program of a programmed page", |medium, block, now| {
            let unit = medium.capabilities().program_unit_pages;
            for _ in 0..2 {
                let operation = program_of(medium, block, 0, unit, 1);
                execute(medium, now, operation);
            }
        }),
        ("a program beyond the end", |medium, block, now| {
            let unit = medium.capabilities().program_unit_pages;
            let pages = medium.geometry().pages_per_erase_block();
            let operation = program_of(medium, block, 0, pages + unit, 1);
            execute(medium, now, operation);
        }),
        ("a program of part of a unit", |medium, block, now| {
            // Where a unit is one page: half an OOB area instead, and where there is none, nothing at all.
            let unit = medium.capabilities().program_unit_pages;
            let mut operation = program_of(medium, block, 0, unit, 1);
            if let Operation::Program { parts, oob, .. } = &mut operation {
                parts.truncate(if medium.geometry().has_oob() { 1 } else { 0 });
                *oob = oob.slice(0..oob.len() / 2);
            }
            execute(medium, now, operation);
        }),
        ("a read beyond the block", |medium, block, now| {
            let ius = medium.geometry().ius_per_erase_block();
            let operation = read_of(medium, block, ius - 1, 2);
            execute(medium, now, operation);
        }),
        ("a read into a destination of another size", |medium, block, now| {
            let destination = BufferMut::copy_from(&[0; 5000]);
            let operation = Operation::Read { block, first_iu: 0, iu_count: 1, destination, oob: None };
            execute(medium, now, operation);
        }),
        ("an erase outside of the device", |medium, block, now| {
            let blocks = medium.geometry().erase_blocks_per_die();
            let block = block.die_address().erase_block(BlockIndex(blocks));
            execute(medium, now, Operation::Erase { block });
        }),
        ("a copy across dies", |medium, block, now| {
            let geometry = *medium.geometry();
            let unit = medium.capabilities().program_unit_pages;
            let other = geometry.die_at((geometry.die_number(block.die_address()) + 1) % geometry.dies());
            assert_ne!(other, block.die_address(), "a device of one die: nothing to cross");
            let operation = Operation::Copy {
                source: block,
                source_page: 0,
                destination: other.erase_block(block.block),
                destination_page: 0,
                page_count: unit,
                oob: None,
            };
            execute(medium, now, operation);
        }),
    ];
    for (name, breach) in breaches {
        let mut medium = make();
        let block = good_blocks(&medium, 1)[0];
        let mut now = Time::ZERO;
        execute(&mut medium, &mut now, Operation::Erase { block });
        let outcome = catch_unwind(AssertUnwindSafe(|| breach(&mut medium, block, &mut now)));
        assert!(outcome.is_err(), "{name} passed");
    }
}

/// Numbers below a limit, from a seed.
fn numbers(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |limit| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(limit)) as u32
    }
}

/// Many commands at once on many blocks, against an oracle: every token comes back once, every read holds what was
/// programmed before it was submitted, and nothing else changes.
pub fn random_work(medium: &mut dyn Media, seed: u64) {
    struct Oracle {
        version: u32,
        pages: u32,
        erased: bool,
    }
    let mut below = numbers(seed);
    let geometry = *medium.geometry();
    let unit = medium.capabilities().program_unit_pages;
    let (pages, ius) = (geometry.pages_per_erase_block(), geometry.ius_per_page());
    let blocks = good_blocks(medium, 12);
    let mut oracle: Vec<Oracle> =
        blocks.iter().map(|_| Oracle { version: 0, pages: 0, erased: false }).collect();
    let mut expected: BTreeMap<u64, Option<(usize, u32, u32, u32)>> = BTreeMap::new();
    let mut now = Time::ZERO;
    let mut completions = Vec::new();
    let check = |medium: &dyn Media, completions: &mut Vec<Completion>, expected: &mut BTreeMap<_, _>| {
        for done in completions.drain(..) {
            let known: Option<Option<(usize, u32, u32, u32)>> = expected.remove(&done.token.0);
            match known.unwrap_or_else(|| panic!("seed {seed}: {:?} completes again", done.token)) {
                None => assert_eq!(done.result, Ok(()), "seed {seed}"),
                Some((at, iu, count, version)) => {
                    assert_content(medium, &done, blocks[at], iu, count, version);
                }
            }
        }
    };
    for step in 0..600u64 {
        let at = below(blocks.len() as u32) as usize;
        let (block, of) = (blocks[at], &mut oracle[at]);
        let readable = of.pages;
        let operation = match below(4) {
            0 | 1 if of.erased && of.pages < pages => {
                let units = 1 + below(2.min((pages - of.pages) / unit));
                of.pages += units * unit;
                program_of(medium, block, readable, units * unit, of.version)
            }
            0 | 1 => {
                *of = Oracle { version: of.version + 1, pages: 0, erased: true };
                Operation::Erase { block }
            }
            _ if readable > 0 => {
                let first = below(readable * ius);
                let count = 1 + below((readable * ius - first).min(40));
                expected.insert(step, Some((at, first, count, of.version)));
                read_of(medium, block, first, count)
            }
            _ => continue,
        };
        expected.entry(step).or_insert(None);
        medium.submit(Command { token: MediaToken(step), operation }, now);
        while expected.len() > 40 || (below(3) == 0 && !expected.is_empty()) {
            step_on(medium, &mut now, &mut completions);
            check(medium, &mut completions, &mut expected);
        }
    }
    while !expected.is_empty() {
        step_on(medium, &mut now, &mut completions);
        check(medium, &mut completions, &mut expected);
    }
    assert_eq!(medium.next_event(), Time::NEVER, "nothing is under way");
}
