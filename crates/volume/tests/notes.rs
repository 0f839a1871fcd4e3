//! Goal: what the cleaner meets in a victim and no anchor covers yet is written again. Method: the log alone, over a space in memory,
//! with an owner that has a map of tags and hears of notes.

use crate::common;
use common::{FakeSpace, Random, shape};
use diecut_log::{Log, LogAddress, LogConfig, Move, Owner, Placement, Stream, TagForm};
use diecut_units::{ContentMode, Span, Time};
use std::collections::BTreeMap;

/// Tags that are overwritten again and again.
const TAGS: u64 = 300;
const NOTE: [u64; 3] = [4, 11, 13];

#[derive(Default)]
struct Places {
    places: BTreeMap<u64, LogAddress>,
    /// Notes that were about to lose their place.
    renewed: Vec<[u64; 3]>,
}

impl Owner for Places {
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>) {
        live.clear();
        live.extend(entries.iter().map(|(tag, place)| self.places.get(tag) == Some(place)));
    }
    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool {
        self.places.get(&tag) == Some(&place)
    }
    fn moved(&mut self, moved: Move) -> bool {
        let is_live = self.is_live(moved.tag, moved.from);
        if is_live {
            self.places.insert(moved.tag, moved.to);
        }
        is_live
    }
    fn renew(&mut self, note: [u64; 3], renewed: &mut Vec<[u64; 3]>) {
        self.renewed.push(note);
        renewed.push(note);
    }
}

struct World {
    log: Log,
    space: FakeSpace,
    random: Random,
    owner: Places,
    now: Time,
}

impl World {
    fn new() -> World {
        let space = FakeSpace::new(shape(ContentMode::Tags, 0), 3, 18);
        let config = LogConfig {
            user_slots: 6,
            placement: Placement::default(),
            format: common::format(),
            tags: TagForm::default(),
        };
        let log = Log::new(&config, &space, None);
        World { log, space, random: Random::of(5), owner: Places::default(), now: Time::ZERO }
    }

    fn step(&mut self) {
        self.now += Span::from_micros(10);
        self.log.begin_step();
        if let Some(completion) = self.space.step(&mut self.random) {
            self.log.complete(completion);
        }
        self.log.work(self.now, &mut self.space, &mut self.owner);
    }

    /// Overwrites a tag, when there is room.
    fn write(&mut self, tag: u64) {
        for _ in 0..100_000 {
            if let Some(appended) = self.log.append(Stream::USER, tag, &tag.to_le_bytes(), &mut self.space) {
                if let Some(old) = self.owner.places.insert(tag, appended.address) {
                    self.log.invalidate(old);
                }
                return self.log.publish();
            }
            self.step();
        }
        panic!("no room: {}", self.log.describe());
    }

    fn note(&mut self) -> u64 {
        for _ in 0..100_000 {
            if let Some(sequence) = self.log.note(NOTE, &mut self.space) {
                return sequence;
            }
            self.step();
        }
        panic!("no room: {}", self.log.describe());
    }

    fn anchor(&mut self, sequence: u64) {
        self.log.want_durable(self.log.next_sequence());
        for _ in 0..100_000 {
            if self.log.durable_before() >= self.log.next_sequence() && self.log.is_anchor_idle() {
                break;
            }
            self.step();
        }
        let anchor = self.log.take_anchor(common::format(), sequence, Vec::new());
        self.log.write_anchor(&anchor, &mut self.space);
        for _ in 0..100_000 {
            if self.log.anchored() == sequence {
                return;
            }
            self.step();
        }
        panic!("no anchor: {}", self.log.describe());
    }
}

/// A note is written, and an anchor so many sequences behind it; then everything else is overwritten until its segment must have been
/// cleaned. Whether the note was written again.
fn is_renewed(behind: u64) -> bool {
    let mut world = World::new();
    for tag in 0..TAGS {
        world.write(tag);
    }
    let sequence = world.note();
    world.write(0);
    world.anchor(sequence + behind);
    let freed_before = world.log.statistics().segments_freed;
    for round in 0..20 * TAGS {
        world.write(round % TAGS);
        if !world.owner.renewed.is_empty() {
            break;
        }
    }
    assert!(world.log.statistics().segments_freed > freed_before + 2, "{}", world.log.describe());
    world.owner.renewed.contains(&NOTE)
}

fn the_note_at_an_anchor_is_renewed() {
    assert!(is_renewed(0), "recovery replays records from the anchor's sequence on");
}

#[test]
fn a_note_that_no_anchor_covers_is_written_again() {
    the_note_at_an_anchor_is_renewed();
    assert!(!is_renewed(1), "recovery replays nothing before the anchor's sequence");
}

#[test]
fn a_note_that_is_forgotten_at_an_anchor_is_noticed() {
    diecut_testing::planted::is_noticed(
        "log: note at the anchor's sequence not renewed",
        the_note_at_an_anchor_is_renewed,
    );
}
