use super::*;
use diecut_vssd::UnitIndex;

const UNIT_SIZE_BYTES: usize = 256;

fn member(part: u16, column: u8) -> AnchorMember {
    let block = LogicalBlock { unit: UnitIndex(0x4142), index: 0x5453_5251 };
    AnchorMember { part, block, allocation: 0x61, column, state: ColumnState::Whole, units_rebuilt: 0 }
}

fn segment(index: u32, first_member: u32) -> AnchorSegment {
    AnchorSegment {
        index,
        generation: 5,
        progress: SegmentProgress::Closed,
        format: 3,
        members: 2,
        parity: 1,
        strip: 4,
        head_ius: 1,
        end: 12,
        durable_units: 9,
        live_ius: 77,
        first_member,
    }
}

/// Of life 7, with a segment that has a list of two members, and one of three while a column is rebuilt.
fn anchor() -> Anchor {
    let rebuilding = AnchorMember { state: ColumnState::Rebuilding, units_rebuilt: 3, ..member(1, 1) };
    let lost = AnchorMember { state: ColumnState::Lost, ..member(1, 1) };
    let part = |number| AnchorPart { device: [number; 16], vssd: number.into() };
    Anchor {
        features: 0,
        amends: None,
        sequence: 0x0807_0605_0403_0201,
        taken_at: 0x0e0d_0c0b_0a09_0807,
        life: 7,
        next_generation: 6,
        generation_limit: 0x0100_0000,
        stride_ius: 0x4000,
        parts: vec![part(0xa1), part(0xa2)],
        segments: vec![segment(3, 0), segment(4, 2)],
        members: vec![member(0, 0), member(1, 1), member(0, 0), lost, rebuilding],
        owner: b"owner".to_vec(),
    }
}

/// Without lists of members, as a store on one part is.
fn plain_anchor() -> Anchor {
    let segments = [3, 4].map(|index| segment(index, 0)).to_vec();
    Anchor { segments, members: Vec::new(), ..anchor() }
}

/// What an opening writes that walked a segment, and found another one that is new.
fn short_of(base: &Anchor) -> Anchor {
    let ended = |index, first_member| AnchorSegment {
        progress: SegmentProgress::Ended,
        end: 20,
        durable_units: 20,
        ..segment(index, first_member)
    };
    let has_lists = !base.members.is_empty();
    let members =
        if has_lists { vec![member(0, 0), member(1, 1), member(1, 0), member(0, 1)] } else { Vec::new() };
    Anchor {
        amends: Some(Amended { number: 1, check: checksum(&base.encode()) }),
        life: 8,
        next_generation: 0x0100_0000,
        generation_limit: 0x0100_0010,
        segments: vec![ended(3, 0), ended(9, if has_lists { 2 } else { 0 })],
        members,
        owner: Vec::new(),
        ..base.clone()
    }
}

/// Puts an anchor into program units, and takes those that `keeps` names. The program units.
fn put(found: &mut FoundPieces, anchor: &Anchor, number: u64, keeps: impl Fn(u32) -> bool) -> u32 {
    let content = anchor.encode();
    let chunks: Vec<&[u8]> = content.chunks(UNIT_SIZE_BYTES - PIECE_HEADER_SIZE_BYTES).collect();
    let of = AnchorName {
        number,
        life: anchor.life,
        opening: [9; 8],
        content_check: checksum(&content),
        count: chunks.len() as u32,
    };
    for (index, content) in (0..).zip(&chunks) {
        let mut unit = vec![0xee; UNIT_SIZE_BYTES];
        Piece { of, index, content }.encode(Some([1; 8]), &mut unit);
        if keeps(index) {
            found.add(Some([1; 8]), LogicalBlock::default(), number as u32 * 100 + index, &unit);
        }
    }
    of.count
}

/// Goal: the layout is pinned. Method: bytes written by hand.
#[test]
fn the_bytes_of_an_anchor() {
    let mut anchor = anchor();
    anchor.features = FEATURE_PARITY | FEATURE_PAGED_MAPS;
    anchor.amends = Some(Amended { number: 0x1122, check: 0x3344_5566 });
    anchor.parts.truncate(1);
    anchor.segments = vec![AnchorSegment {
        progress: SegmentProgress::Ended,
        first_member: 1,
        members: 1,
        parity: 0,
        ..segment(0x0102, 0)
    }];
    anchor.members.truncate(2);
    anchor.members[1] =
        AnchorMember { part: 0, state: ColumnState::Rebuilding, units_rebuilt: 0x71, ..member(0, 2) };
    let golden: Vec<u8> = [
        &[9, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0][..],
        &[1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10, 11, 12, 13, 14, 7, 0, 0, 0, 0, 0, 0, 0],
        &[0x66, 0x55, 0x44, 0x33, 6, 0, 0, 0, 0, 0, 0, 1, 0, 0x40, 0, 0],
        &[1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        &[0xa1; 16],
        &[0xa1, 0, 0, 0, 0, 0, 0, 0],
        &[2, 1, 0, 0, 5, 0, 0, 0, 1, 3, 1, 0, 4, 1, 0, 0],
        &[12, 0, 0, 0, 9, 0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0],
        &[0, 0, 0x42, 0x41, 0x51, 0x52, 0x53, 0x54, 0x61, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0x42, 0x41, 0x51, 0x52, 0x53, 0x54, 0x61, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0x71, 0, 0, 0],
        b"owner",
    ]
    .concat();
    assert_eq!(anchor.encode(), golden);
    assert_eq!(golden.len(), Anchor::size_bytes(1, 1, 2, 5));
    assert_eq!(Anchor::decode(&golden), Err(AnchorRefusal::Features(9)), "nobody here knows parity");
    let mut known = golden;
    known[0] = 0;
    assert_eq!(Anchor::decode(&known), Ok(Anchor { features: 0, ..anchor }));
    let of = AnchorName { number: 0x0102, life: 0x0203, opening: [4; 8], content_check: 0x0506, count: 5 };
    let mut unit = [0xee; 128];
    Piece { of, index: 3, content: b"part" }.encode(Some([8; 8]), &mut unit);
    let mut golden = [0; 128];
    golden[..4].copy_from_slice(b"danc");
    golden[8..36].copy_from_slice(&[
        2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0,
    ]);
    golden[40..50].copy_from_slice(&[4, 4, 4, 4, 4, 4, 4, 4, 6, 5]);
    golden[64..68].copy_from_slice(b"part");
    let check = checksum(&[&[8; 8], &golden[8..]].concat()).to_le_bytes();
    golden[4..8].copy_from_slice(&check);
    assert_eq!(unit, golden);
}

/// Goal: a piece is read under its nonce only, no flipped bit passes, and a reader of version 1 does not take it.
#[test]
fn a_damaged_piece_is_refused() {
    let of = AnchorName { number: 1, life: 2, opening: [3; 8], content_check: 4, count: 1 };
    let piece = Piece { of, index: 0, content: &[5; 100] };
    for nonce in [None, Some([6; 8])] {
        let mut unit = vec![0xee; UNIT_SIZE_BYTES];
        piece.encode(nonce, &mut unit);
        assert_eq!(Piece::decode(nonce, &unit), Some(piece));
        for other in [None, Some([6; 8]), Some([7; 8])] {
            assert_eq!(Piece::decode(other, &unit).is_some(), other == nonce, "{other:?}");
        }
        assert_eq!(crate::anchor::Piece::decode(&unit), None);
        for at in 0..unit.len() {
            unit[at] ^= 0x40;
            assert_eq!(Piece::decode(nonce, &unit), None, "byte {at}");
            unit[at] ^= 0x40;
        }
    }
}

/// Goal: an anchor is read as it was written, and what no anchor says is refused. Method: bytes of a good one are changed one at a time.
#[test]
fn what_makes_no_sense_is_refused() {
    for good in [anchor(), plain_anchor(), short_of(&anchor())] {
        let bytes = good.encode();
        assert_eq!(Anchor::decode(&bytes), Ok(good.clone()));
        for len in 0..bytes.len() - good.owner.len() {
            assert_eq!(Anchor::decode(&bytes[..len]), Err(AnchorRefusal::Impossible), "{len} bytes");
        }
    }
    let good = anchor().encode();
    for (what, at, value) in [
        ("taken before its sequence", 31, 1),
        ("taken after the end of sequences", 31, 0x50),
        ("a check of nothing that it amends", 40, 1),
        ("a segment of the next generation", 44, 5),
        ("a limit below the next generation", 51, 0),
        ("a stride that is no power of two", 52, 1),
        ("zeros", 68, 1),
        ("no parts", 56, 0),
        ("more segments than there are", 62, 1),
        ("more members than there are", 66, 1),
        ("zeros of a part", 92, 1),
        ("segments that do not rise", 120, 4),
        ("state 3", 128, 3),
        ("format 1", 129, 1),
        ("format 4", 129, 4),
        ("no members", 130, 0),
        ("65 members", 130, 65),
        ("nothing but parity", 131, 2),
        ("a strip of 2^32", 132, 32),
        ("a head of 5 IUs", 133, 5),
        ("zeros of a segment", 134, 1),
        ("durable behind its end", 140, 13),
        ("more that lives than it holds", 145, 0x41),
        ("members beyond the list", 180, 4),
        ("members that are those of the next one", 148, 1),
        ("a member of a part that is not there", 184, 2),
        ("column 64", 200, 64),
        ("state 3 of a member", 201, 3),
        ("zeros of a member", 202, 1),
    ] {
        let mut bad = good.clone();
        assert_ne!(bad[at], value, "{what}");
        bad[at] = value;
        assert_eq!(Anchor::decode(&bad), Err(AnchorRefusal::Impossible), "{what}");
    }
    let mut open = good.clone();
    open[128] = 2;
    assert_eq!(Anchor::decode(&open), Err(AnchorRefusal::Impossible), "an open one that has an end");
    (open[136], open[140]) = (0, 0xff);
    assert!(Anchor::decode(&open).is_ok(), "its durable units are not bounded by that");
}

/// Goal: the newest anchor counts of which all pieces are there, and pieces of two openings never make one.
#[test]
fn the_newest_whole_anchor_counts() {
    let (older, newer) = (anchor(), Anchor { life: 8, ..anchor() });
    let mut found = FoundPieces::default();
    assert_eq!((found.newest(), found.next_number()), (Ok(None), 1));
    let count = put(&mut found, &older, 1, |_| true);
    assert!(count > 0);
    put(&mut found, &newer, 2, |index| index > 0);
    let whole = found.newest().unwrap().expect("the older one");
    assert_eq!((whole.anchor, found.next_number()), (older.clone(), 3));
    assert_eq!(whole.pieces.len(), count as usize);
    // The piece that lacks is of another opening with the same number.
    put(&mut found, &Anchor { owner: b"other".to_vec(), ..newer.clone() }, 2, |index| {
        index == 0 && count > 1
    });
    assert_eq!(found.newest().unwrap().expect("the older one").anchor, older);
    put(&mut found, &newer, 2, |index| index == 0);
    assert_eq!(found.newest().unwrap().expect("the newer one").anchor, newer);
}

/// Goal: an anchor is taken as a whole, and one that amends needs a whole one. Method: a piece that says another content than the check of the
/// whole, and a short anchor that amends a short one.
#[test]
fn what_is_not_whole_does_not_count() {
    let mut found = FoundPieces::default();
    let content = plain_anchor().encode();
    let of =
        AnchorName { number: 1, life: 7, opening: [9; 8], content_check: checksum(&content) ^ 1, count: 1 };
    let mut unit = vec![0; 512];
    Piece { of, index: 0, content: &content }.encode(None, &mut unit);
    found.add(None, LogicalBlock::default(), 0, &unit);
    assert_eq!((found.newest(), found.next_number()), (Ok(None), 2));
    let base = plain_anchor();
    let short = short_of(&base);
    let of_short = Amended { number: 2, check: checksum(&short.encode()) };
    put(&mut found, &short, 2, |_| true);
    put(&mut found, &Anchor { life: 9, amends: Some(of_short), ..short.clone() }, 3, |_| true);
    assert_eq!(found.newest(), Ok(None));
    put(&mut found, &base, 1, |_| true);
    assert_eq!(found.newest().unwrap().expect("the first short one").anchor.life, 8);
}

/// Goal: what a program does not understand is not opened by an older anchor.
#[test]
fn unknown_features_are_refused() {
    for feature in [FEATURE_PARITY, FEATURE_VERSIONS, FEATURE_FRAMES, FEATURE_PAGED_MAPS, 1 << 63] {
        let mut found = FoundPieces::default();
        put(&mut found, &anchor(), 1, |_| true);
        let newer = Anchor { features: feature, ..anchor() };
        put(&mut found, &newer, 2, |index| index > 0);
        assert!(found.newest().is_ok(), "a cut took a part of it, and nobody went on from there");
        put(&mut found, &newer, 2, |_| true);
        assert_eq!(found.newest(), Err(AnchorRefusal::Features(feature)));
    }
}

/// Goal: what no anchor says is not opened by an older anchor. Method: a whole one with another life than its pieces, and one with a generation that
/// comes behind its limit.
#[test]
fn what_no_anchor_says_is_refused() {
    for is_of_other_life in [false, true] {
        let mut found = FoundPieces::default();
        put(&mut found, &anchor(), 1, |_| true);
        let mut content = anchor().encode();
        let life = anchor().life + u64::from(is_of_other_life);
        if !is_of_other_life {
            content[48..52].fill(0);
        }
        let of = AnchorName { number: 2, life, opening: [9; 8], content_check: checksum(&content), count: 1 };
        let mut unit = vec![0; 1024];
        Piece { of, index: 0, content: &content }.encode(None, &mut unit);
        found.add(None, LogicalBlock::default(), 0, &unit);
        assert_eq!(found.newest(), Err(AnchorRefusal::Impossible), "{is_of_other_life}");
    }
}

/// Goal: a short anchor counts with the one that it amends, and not without. Method: with and without lists of members, which lie elsewhere
/// in the joined list.
#[test]
fn a_short_anchor_amends_another_one() {
    for base in [anchor(), plain_anchor()] {
        let short = short_of(&base);
        let mut found = FoundPieces::default();
        let pieces_of_short = put(&mut found, &short, 2, |_| true);
        assert_eq!(found.newest(), Ok(None), "what it amends is gone");
        put(&mut found, &Anchor { owner: b"other".to_vec(), ..base.clone() }, 1, |_| true);
        assert_eq!(found.newest().unwrap().unwrap().anchor.life, 7, "that is another one");
        let pieces_of_base = put(&mut found, &base, 1, |_| true);
        let whole = found.newest().unwrap().expect("both are there");
        assert_eq!(whole.pieces.len() as u32, pieces_of_short + pieces_of_base);
        let joined = whole.anchor;
        assert_eq!((joined.life, joined.next_generation, &joined.owner[..]), (8, 0x0100_0000, &b"owner"[..]));
        let ends: Vec<_> = joined.segments.iter().map(|segment| (segment.index, segment.end)).collect();
        assert_eq!(ends, [(3, 20), (4, 12), (9, 20)]);
        for (at, segment) in joined.segments.iter().enumerate() {
            let of = if segment.index == 4 { &base } else { &short };
            let there = of.segments.iter().position(|there| there.index == segment.index).unwrap();
            assert_eq!(joined.members_of(at), of.members_of(there), "segment {}", segment.index);
        }
        for contradiction in [
            Anchor { sequence: base.sequence - 1, ..short.clone() },
            Anchor { taken_at: base.taken_at + 1, ..short.clone() },
            Anchor { stride_ius: base.stride_ius * 2, ..short.clone() },
            Anchor { life: 7, ..short.clone() },
            Anchor { next_generation: 5, ..short.clone() },
        ] {
            assert_eq!(base.amended_by(&contradiction), None);
        }
        let other = if base.members.is_empty() { anchor() } else { plain_anchor() };
        assert_eq!(other.amended_by(&short), None, "one has lists of members, and one has none");
    }
}
