//! Anchors of version 2: the joined content, and pieces.
#![no_main]

use diecut_fuzz::{Input, bounded};
use diecut_log::anchor2::{
    Amended, Anchor, AnchorMember, AnchorPart, AnchorSegment, ColumnState, Piece, SegmentProgress,
};
use diecut_units::checksum_append;
use diecut_vssd::LogicalBlock;

diecut_fuzz::target!(seeds, check);

/// Memory for each byte of input: lists in memory are larger than their bytes.
const MEMORY_PER_BYTE: usize = 8;

fn anchor(members: u32, is_short: bool) -> Anchor {
    let segment = |index: u32| AnchorSegment {
        index,
        generation: index,
        progress: SegmentProgress::Ended,
        format: 3,
        members: 2,
        parity: 1,
        strip: 2,
        head_ius: 1,
        end: 5,
        durable_units: 4,
        live_ius: 3,
        first_member: if members > 0 { 2 * index } else { 0 },
    };
    let member = |column| AnchorMember {
        part: 0,
        block: LogicalBlock::default(),
        allocation: 7,
        column,
        state: ColumnState::Whole,
        units_rebuilt: 0,
    };
    Anchor {
        features: 0,
        amends: is_short.then_some(Amended { number: 1, check: 2 }),
        sequence: 3,
        taken_at: 4,
        life: 5,
        next_generation: 6,
        generation_limit: 7,
        stride_ius: 64,
        parts: vec![AnchorPart { device: [8; 16], vssd: 9 }],
        segments: (0..3).map(segment).collect(),
        members: (0..members).map(|at| member((at % 2) as u8)).collect(),
        owner: vec![1, 2, 3],
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [anchor(0, false), anchor(6, false), anchor(6, true)]
        .iter()
        .map(|anchor| [&[0][..], &anchor.encode()].concat())
        .collect()
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_piece = input.byte() & 1 != 0;
    let mut content = input.rest().to_vec();
    if is_piece && content.len() > 8 {
        let sum = checksum_append(0, &content[8..]);
        content[..4].copy_from_slice(b"danc");
        content[4..8].copy_from_slice(&sum.to_le_bytes());
        let Some(piece) = bounded(0, || Piece::decode(None, &content)) else { return };
        let mut again = vec![0; content.len()];
        piece.encode(None, &mut again);
        assert_eq!(again, content, "what is read is written again");
        return;
    }
    let read = bounded(MEMORY_PER_BYTE * content.len(), || Anchor::decode(&content));
    let Ok(read) = read else { return };
    assert_eq!(read.encode(), content, "what is read is written again");
    for base in [anchor(0, false), anchor(6, false)] {
        if let Some(joined) = base.amended_by(&read) {
            assert_eq!(Anchor::decode(&joined.encode()), Ok(joined), "two that agree make one");
        }
    }
}
