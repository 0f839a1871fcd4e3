//! Applications over the rings, the checks, a pool and an emulated device, against an oracle that knows what every
//! erase block must hold. Bugs that were planted in the session, each seen failing here: a free that does not reach the
//! pool, a free after which the session still takes appends, a read that goes to the wrong place of the data area, an append that
//! names the place behind it, blocks that are kept though they were not named, and written pages forgotten at an attach.

use diecut_blockspace::embedded::Embedded;
use diecut_blockspace::wire::Status;
use diecut_blockspace::{BlockError, Client, LogicalBlock, Purpose, UnitIndex};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

type Held = BTreeMap<LogicalBlock, Vec<u8>>;

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut bytes = vec![0; len];
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.random::<u64>().to_le_bytes()));
    bytes
}

fn work(client: &Client, units: std::ops::Range<u16>, seed: u64, steps: u32, held: &mut Held) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let unit_bytes = client.shape().unit_of_append_bytes() as usize;
    let block_bytes = client.shape().block_size_bytes() as usize;
    for step in 0..steps {
        let at = if held.is_empty() { 0 } else { random.random_range(0..held.len()) };
        let chosen = held.keys().nth(at).copied();
        match (random.random_range(0..10), chosen) {
            (0..2, _) | (_, None) => {
                let unit = UnitIndex(random.random_range(units.clone()));
                match client.allocate(unit, Purpose(random.random())) {
                    Ok(block) => {
                        assert_eq!(block.unit, unit);
                        assert!(
                            held.insert(block, Vec::new()).is_none(),
                            "seed {seed} step {step}: {block:?} twice"
                        );
                    }
                    Err(error) => {
                        assert_eq!(error, BlockError::Status(Status::NoFreeBlock), "seed {seed} step {step}");
                        assert_eq!(client.blocks_of_unit(unit).unwrap().0, 0);
                    }
                }
            }
            (2..6, Some(block)) => {
                let bytes = content(random.random(), unit_bytes * random.random_range(1..=3));
                let own = held.get_mut(&block).unwrap();
                let appended = client.append(block, &bytes);
                if own.len() + bytes.len() > block_bytes {
                    assert_eq!(
                        appended,
                        Err(BlockError::Status(Status::BlockFull)),
                        "seed {seed} step {step}"
                    );
                    // Pieces that fit before the one that does not stay.
                    let pieces = bytes.chunks(client.append_max_bytes());
                    for piece in pieces {
                        if own.len() + piece.len() > block_bytes {
                            break;
                        }
                        own.extend(piece);
                    }
                } else {
                    assert_eq!(appended, Ok(own.len() as u64), "seed {seed} step {step}");
                    own.extend(bytes);
                }
            }
            (6..9, Some(block)) => {
                let own = &held[&block];
                let ius = own.len() / 4096;
                let first = random.random_range(0..=ius);
                let count = random.random_range(1..=40);
                let mut bytes = vec![0; count * 4096];
                let read = client.read(block, first as u64 * 4096, &mut bytes);
                if first + count <= ius {
                    assert_eq!(read, Ok(()), "seed {seed} step {step}");
                    assert!(
                        bytes == own[first * 4096..][..bytes.len()],
                        "seed {seed} step {step}: foreign bytes"
                    );
                } else {
                    let status =
                        if (first + count) * 4096 > block_bytes { Status::Invalid } else { Status::Erased };
                    let allowed = [BlockError::Status(status), BlockError::Status(Status::Erased)];
                    assert!(allowed.contains(&read.unwrap_err()), "seed {seed} step {step}");
                }
            }
            (_, Some(block)) => {
                client.free(block).unwrap();
                held.remove(&block);
                assert_eq!(client.free(block), Err(BlockError::Status(Status::NotAllocated)));
                let gone = Err(BlockError::Status(Status::NotAllocated));
                assert_eq!(client.read(block, 0, &mut [0; 4096]), gone);
                assert_eq!(
                    client.append(block, &vec![0; unit_bytes]).map(drop),
                    gone,
                    "seed {seed} step {step}"
                );
            }
        }
    }
}

fn check(client: &Client, held: &Held) {
    for (block, own) in held {
        let mut bytes = vec![0; own.len()];
        client.read(*block, 0, &mut bytes).unwrap();
        assert!(bytes == *own, "{block:?}");
    }
}

#[test]
fn erase_blocks_hold_what_was_appended_over_many_attachments() {
    for seed in 0..4 {
        let device = Embedded::new("tiny").unwrap();
        let mut held = Held::new();
        for round in 0..4 {
            let client = device.attach().unwrap();
            let records = client.held_blocks().unwrap();
            let mut expected: Vec<_> = held.keys().copied().collect();
            let mut found: Vec<_> = records.iter().map(|record| record.block).collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "seed {seed} round {round}");
            let page = client.shape().page_size_bytes as usize;
            for record in &records {
                assert_eq!(record.written_pages as usize * page, held[&record.block].len());
            }
            // Reading is allowed before naming: applications find out there what they need.
            check(&client, &held);
            assert_eq!(client.allocate(UnitIndex(0), Purpose(0)), Err(BlockError::Status(Status::NotNamed)));
            // Every third one is not needed any more.
            let kept: Vec<_> =
                found.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, block)| *block).collect();
            let freed = client.keep(&kept).unwrap();
            assert_eq!(freed as usize, found.len() - kept.len(), "seed {seed} round {round}");
            held.retain(|block, _| kept.contains(block));
            assert_eq!(client.held_blocks().unwrap().len(), held.len());
            assert_eq!(client.keep(&[]), Err(BlockError::Status(Status::Invalid)), "once");
            let units = client.shape().units;
            work(&client, 0..units, seed * 100 + round, 300, &mut held);
            client.sync().unwrap();
            check(&client, &held);
        }
    }
}

#[test]
fn naming_a_block_that_is_not_held_frees_nothing() {
    let device = Embedded::new("tiny").unwrap();
    let client = device.attach().unwrap();
    client.keep(&[]).unwrap();
    let block = client.allocate(UnitIndex(0), Purpose(7)).unwrap();
    let bytes = content(1, client.shape().unit_of_append_bytes() as usize);
    client.append(block, &bytes).unwrap();
    drop(client);
    let client = device.attach().unwrap();
    let other = LogicalBlock { index: block.index ^ 1, ..block };
    assert_eq!(client.keep(&[block, other]), Err(BlockError::Status(Status::NotAllocated)));
    let beyond = LogicalBlock { unit: UnitIndex(u16::MAX), index: u32::MAX };
    assert_eq!(client.keep(&[beyond]), Err(BlockError::Status(Status::Invalid)));
    let records = client.held_blocks().unwrap();
    assert_eq!((records.len(), records[0].block, records[0].purpose), (1, block, 7));
    assert_eq!(client.keep(&[block]), Ok(0));
}

#[test]
fn many_threads_share_an_attachment() {
    let device = Embedded::new("tiny").unwrap();
    let client = device.attach().unwrap();
    client.keep(&[]).unwrap();
    let units = client.shape().units;
    assert!(units >= 2, "tiny has several dies");
    std::thread::scope(|scope| {
        for thread in 0..units.min(4) {
            let client = &client;
            scope.spawn(move || {
                let mut held = Held::new();
                work(client, thread..thread + 1, 1000 + u64::from(thread), 300, &mut held);
                check(client, &held);
            });
        }
    });
}

#[test]
fn operations_under_way_are_polled_and_may_be_forgotten() {
    let device = Embedded::new("tiny").unwrap();
    let client = device.attach().unwrap();
    client.keep(&[]).unwrap();
    let block = client.allocate(UnitIndex(0), Purpose(0)).unwrap();
    let bytes = content(5, client.shape().unit_of_append_bytes() as usize);
    let first = client.begin_append(block, &bytes).unwrap();
    let second = client.begin_append(block, &bytes).unwrap();
    assert_eq!(second.wait(), Ok(bytes.len() as u64));
    assert!(first.poll(), "appends to one block are in order");
    assert_eq!(first.wait(), Ok(0));
    // More than there are places, none of them waited for.
    for _ in 0..1000 {
        drop(client.begin_read(block, 0, 4096).unwrap());
    }
    let tickets: Vec<_> = (0..64).map(|_| client.begin_read(block, 0, 4096).unwrap()).collect();
    for ticket in tickets {
        let mut read = [0; 4096];
        ticket.wait_for(&mut read).unwrap();
        assert!(read == bytes[..4096]);
    }
    assert!(matches!(client.begin_read(block, 5, 4096), Err(BlockError::Status(Status::Invalid))));
    assert!(matches!(client.begin_append(block, &bytes[..100]), Err(BlockError::Status(Status::Invalid))));
    let partial = client.begin_append(block, &bytes[..4096]).unwrap().wait();
    if bytes.len() > 4096 {
        assert_eq!(partial, Err(BlockError::Status(Status::Invalid)), "not a whole program unit");
    }
}
