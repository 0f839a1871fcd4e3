//! Goal: whatever order a volume answers in, every command is answered once, with the content a plain array
//! would give, and nothing beyond the namespace is ever asked of the volume.
//! Method: random commands, a volume that takes effect in order but answers in random order, an array as oracle.
//! Because commands take effect in the order of submission, the oracle has one right answer for each.

use diecut_namespace::contract::*;
use diecut_namespace::{
    Backing, MAP_PIECE_LBAS, NamespaceDefinition, Namespaces, Outputs, READ_PIECE_LBAS, StoreIndex,
    WRITE_PIECE_LBAS,
};
use diecut_units::{Buffer, BufferPool, ContentMode, Time};
use diecut_volume::contract::{VolumeCommand, VolumeCompletion, VolumeIndex, VolumeOperation};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

const SIZE_LBAS: u64 = 256;
/// Several pieces of a read, and of a write.
const TRANSFER_MAX_LBAS: u32 = 80;

/// Content of one logical block in tag mode.
type Tag = [u8; 8];

#[derive(Debug)]
enum Expected {
    Content(Vec<Tag>),
    Plain(Result<(), NamespaceError>),
}

struct FakeVolume {
    content: Vec<Tag>,
    answers: Vec<VolumeCompletion>,
}

impl FakeVolume {
    fn take(&mut self, command: VolumeCommand) {
        let mut answer = VolumeCompletion { token: command.token, result: Ok(()), destination: None };
        match command.operation {
            VolumeOperation::Read { first_iu, iu_count, mut destination } => {
                assert!(iu_count <= READ_PIECE_LBAS);
                assert_eq!(destination.len(), iu_count as usize * 8);
                // As a store does: parts are lent on, and reclaimed.
                let (loan, part) = destination.lend();
                drop(part);
                destination = loan.reclaim();
                for (tag, iu) in destination.chunks_exact_mut(8).zip(first_iu..) {
                    tag.copy_from_slice(&self.content[iu as usize]);
                }
                answer.destination = Some(destination);
            }
            VolumeOperation::Write { first_iu, payload, .. } => {
                assert!(payload.iu_count() <= WRITE_PIECE_LBAS);
                for iu in 0..payload.iu_count() {
                    self.content[first_iu as usize + iu as usize] = payload.iu(iu).try_into().unwrap();
                }
            }
            VolumeOperation::Deallocate { first_iu, iu_count }
            | VolumeOperation::WriteZeroes { first_iu, iu_count, .. } => {
                self.content[first_iu as usize..(first_iu + iu_count) as usize].fill([0; 8]);
            }
            VolumeOperation::Verify { first_iu, iu_count } => {
                assert!(iu_count <= READ_PIECE_LBAS);
                assert!(first_iu + u64::from(iu_count) <= SIZE_LBAS);
            }
            VolumeOperation::Copy(copy) => {
                let content: Vec<Tag> = copy
                    .sources
                    .iter()
                    .flat_map(|one| one.first_iu as usize..one.first_iu as usize + one.iu_count as usize)
                    .map(|iu| self.content[iu])
                    .collect();
                self.content[copy.first_iu as usize..][..content.len()].copy_from_slice(&content);
            }
            VolumeOperation::WriteUncorrectable { .. } => unreachable!("not asked for"),
            VolumeOperation::Flush | VolumeOperation::Purge => {}
        }
        self.answers.push(answer);
    }
}

fn run(seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut namespaces = Namespaces::new();
    let id = NamespaceId(0);
    namespaces.open(
        id,
        NamespaceDefinition {
            size_lbas: SIZE_LBAS,
            transfer_max_lbas: TRANSFER_MAX_LBAS,
            content_mode: ContentMode::Tags,
            volatile_cache: false,
            preferred_write_lbas: 1,
            read_only: false,
            zones: None,
            placement: None,
            chunks: None,
            erases: true,
        },
        Backing::Volume { store: StoreIndex(0), volume: VolumeIndex(0) },
    );
    let mut volume = FakeVolume { content: vec![[0; 8]; SIZE_LBAS as usize], answers: Vec::new() };
    let mut oracle = volume.content.clone();
    let mut pool = BufferPool::new();
    let mut outputs = Outputs::default();
    let mut expected = BTreeMap::new();
    let (mut submitted, mut answered) = (0_u64, 0_u64);
    for step in 0..400_u64 {
        if rng.random_bool(0.6) {
            let lba_count_max = if rng.random_bool(0.7) { 8 } else { TRANSFER_MAX_LBAS };
            let lba_count = rng.random_range(1..=lba_count_max);
            let first_lba = rng.random_range(0..SIZE_LBAS + 4);
            let range = LbaRange { first_lba, lba_count };
            let inside = first_lba + u64::from(lba_count) <= SIZE_LBAS;
            let places =
                first_lba as usize..(first_lba as usize + lba_count as usize).min(SIZE_LBAS as usize);
            let tags: Vec<u8> =
                (0..lba_count).flat_map(|lba| ((step + 1) << 8 | u64::from(lba)).to_le_bytes()).collect();
            let beyond = Err(NamespaceError::LbaOutOfRange { size_lbas: SIZE_LBAS });
            let plain = |inside_result| Expected::Plain(if inside { inside_result } else { beyond.clone() });
            let (operation, answer) = match rng.random_range(0..7) {
                0 | 1 => {
                    let answer =
                        if inside { Expected::Content(oracle[places].to_vec()) } else { plain(Ok(())) };
                    let destination = pool.take(lba_count as usize * 8);
                    (NamespaceOperation::Read { range, destination }, answer)
                }
                2 => {
                    if inside {
                        for (place, tag) in places.zip(tags.chunks_exact(8)) {
                            oracle[place] = tag.try_into().unwrap();
                        }
                    }
                    let data = Buffer::copy_from(&tags);
                    (
                        NamespaceOperation::Write {
                            range,
                            data,
                            force_unit_access: false,
                            placement: PlacementTarget::default(),
                        },
                        plain(Ok(())),
                    )
                }
                3 => {
                    if inside {
                        oracle[places].fill([0; 8]);
                    }
                    let ranges = (0..lba_count)
                        .map(|lba| LbaRange { first_lba: first_lba + u64::from(lba), lba_count: 1 })
                        .collect();
                    (NamespaceOperation::Deallocate { ranges }, plain(Ok(())))
                }
                5 => {
                    // Twice the same source, so that pieces begin in the midst of a range; often onto itself.
                    let to = if rng.random_bool(0.5) { first_lba.saturating_sub(3) } else { 0 };
                    let copy = NamespaceCopy {
                        sources: [range, range].into_iter().collect(),
                        first_lba: to,
                        force_unit_access: false,
                        placement: PlacementTarget::default(),
                    };
                    let fits = inside && to + 2 * u64::from(lba_count) <= SIZE_LBAS;
                    let is_small = 2 * lba_count <= COPY_LBAS_MAX;
                    if fits && is_small {
                        let content = oracle[places].to_vec().repeat(2);
                        oracle[to as usize..][..content.len()].copy_from_slice(&content);
                    }
                    let too_large =
                        NamespaceError::InvalidField { what: "the copy is larger than the maximum" };
                    let answer = match (fits, is_small) {
                        (false, _) => beyond.clone(),
                        (true, false) => Err(too_large),
                        (true, true) => Ok(()),
                    };
                    (NamespaceOperation::Copy(Box::new(copy)), Expected::Plain(answer))
                }
                4 => {
                    let equal = inside && oracle[places].as_flattened() == tags;
                    let data = if inside && rng.random_bool(0.5) {
                        Buffer::copy_from(oracle[first_lba as usize..][..lba_count as usize].as_flattened())
                    } else {
                        assert!(!equal, "tags of this step are fresh");
                        Buffer::copy_from(&tags)
                    };
                    let same = inside
                        && oracle[first_lba as usize..][..lba_count as usize].as_flattened() == &data[..];
                    let answer = if same { Ok(()) } else { Err(NamespaceError::CompareFailure) };
                    (NamespaceOperation::Compare { range, data }, plain(answer))
                }
                _ => (NamespaceOperation::Verify { range }, plain(Ok(()))),
            };
            let token = CommandToken(step);
            expected.insert(token, answer);
            let source = SourceId(step as u32 % 3);
            let command = NamespaceCommand { token, namespace: id, source, arrived: Time(step), operation };
            let rest = namespaces.submit(command, Time(step), &mut outputs, &mut |_| MAP_PIECE_LBAS);
            while rest.is_some_and(|token| {
                namespaces.go_on(token, Time(step), &mut outputs, &mut |_| MAP_PIECE_LBAS)
            }) {}
            submitted += 1;
            outputs.volume_commands.drain(..).for_each(|(_, command)| volume.take(command));
        } else if !volume.answers.is_empty() {
            let answer = volume.answers.swap_remove(rng.random_range(0..volume.answers.len()));
            outputs.finished.extend(namespaces.complete(answer, Time(step)));
        }
        answered += check(&mut outputs, &mut expected, seed);
    }
    while let Some(answer) = volume.answers.pop() {
        outputs.finished.extend(namespaces.complete(answer, Time(1000)));
    }
    answered += check(&mut outputs, &mut expected, seed);
    assert_eq!(submitted, answered, "seed {seed}");
    assert!(expected.is_empty() && namespaces.is_idle(id) && namespaces.under_way() == 0, "seed {seed}");
}

fn check(outputs: &mut Outputs, expected: &mut BTreeMap<CommandToken, Expected>, seed: u64) -> u64 {
    let count = outputs.finished.len() as u64;
    for finished in outputs.finished.drain(..) {
        let token = finished.completion.token;
        assert_eq!(finished.source, SourceId(token.0 as u32 % 3), "seed {seed}");
        match expected.remove(&token).expect("answered once") {
            Expected::Content(content) => {
                let data = finished.completion.data.expect("reads carry content");
                assert_eq!(&data[..], content.as_flattened(), "seed {seed} {token:?}");
            }
            Expected::Plain(result) => {
                assert_eq!(finished.completion.result, result, "seed {seed} {token:?}")
            }
        }
    }
    count
}

#[test]
fn random_commands_agree_with_an_array() {
    (0..100).for_each(run);
}

/// The test above fails where a copy reads what its first pieces have written.
#[test]
fn copies_that_overtake_themselves_are_noticed() {
    diecut_testing::planted::is_noticed("namespace: copies overtake themselves", || (0..100).for_each(run));
}
