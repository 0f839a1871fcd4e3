//! The newest anchor of which all pieces can be read.

use super::marks::MarkSearch;
use super::{AGAIN, Found, is_again, numbers, token};
use crate::lent::Lent;
use crate::loss::Missing;
use crate::map::LeafKind;
use crate::owner_bytes::{self, OwnedVolume, OwnerBytes};
use diecut_log::anchor::PURPOSE_ANCHOR;
use diecut_log::anchor2::AnchorRefusal;
use diecut_log::any_anchor::{FoundAnchor, FoundNumbers, FoundPieces};
use diecut_log::chunk::nonce_of;
use diecut_log::walk::SEQUENCE_MAX;
use diecut_log::{Format, PURPOSE_SEGMENT};
use diecut_units::IU_SIZE_BYTES;
use diecut_vssd::space::{BlockRun, HeldBlock, IoClass, LogicalBlock, SpaceCompletion, SpaceError};

pub(super) struct AnchorSearch {
    /// Blocks of anchors.
    held: Vec<HeldBlock>,
    /// Blocks of segments, in the order of their allocation.
    of_segments: Vec<HeldBlock>,
    pieces: FoundPieces,
    /// Program units that cannot be read.
    unread: Vec<(HeldBlock, u32)>,
}

impl AnchorSearch {
    /// Reads all of them.
    pub fn start(found: &mut Found, lent: &mut Lent) -> AnchorSearch {
        let all = lent.space.held_blocks();
        let held: Vec<_> = all.iter().filter(|held| held.purpose == PURPOSE_ANCHOR).copied().collect();
        let mut of_segments = all;
        of_segments.retain(|held| held.purpose == PURPOSE_SEGMENT);
        of_segments.sort_by_key(|held| held.allocation_sequence);
        let search = AnchorSearch { held, of_segments, pieces: FoundPieces::default(), unread: Vec::new() };
        for (index, held) in search.held.iter().enumerate() {
            let shape = lent.space.shape();
            // Without OOB areas nobody knows how much was written: piece by piece, until one is none.
            let units = if shape.has_oob() { held.written_pages / shape.program_unit_pages } else { 1 };
            for unit in 0..units {
                search.read(index as u32, unit, 0, found, lent);
            }
        }
        search
    }

    fn read(&self, index: u32, unit: u32, flags: u64, found: &mut Found, lent: &mut Lent) {
        let unit_ius = lent.space.shape().program_unit_ius();
        found.outstanding += 1;
        let block = self.held[index as usize].block;
        let buffer = lent.log.pool().take(unit_ius as usize * IU_SIZE_BYTES);
        let run = BlockRun { block, first_iu: unit * unit_ius, iu_count: unit_ius };
        lent.space.read(token(flags, unit, index), run, buffer, None, IoClass::Metadata);
    }

    /// A program unit was read, or cannot be.
    pub fn arrived(&mut self, completion: &SpaceCompletion, found: &mut Found, lent: &mut Lent) {
        let (unit, index) = numbers(completion.token);
        let held = self.held[index as usize];
        match (&completion.result, &completion.destination) {
            (Ok(()), Some(bytes)) => {
                let is_piece = self.pieces.add(nonce_of(held.block, lent.space), held.block, unit, bytes);
                let shape = *lent.space.shape();
                if is_piece && !shape.has_oob() && unit + 1 < shape.program_units() {
                    self.read(index, unit + 1, 0, found, lent);
                }
            }
            (Err(SpaceError::Erased { .. }), _) => {}
            _ if !is_again(completion.token) => self.read(index, unit, AGAIN, found, lent),
            _ => {
                let shape = lent.space.shape();
                let written = held.written_pages / shape.program_unit_pages;
                // A cut can tear the last units, and an anchor that ends there never counted.
                if shape.has_oob() && shape.is_settled(unit, written) {
                    diecut_units::mark!("volume: anchor lost");
                    self.unread.push((held, unit));
                }
            }
        }
    }

    /// Takes the newest one, and gives the blocks of others back.
    pub fn end(mut self, found: &mut Found, lent: &mut Lent) -> MarkSearch {
        let FoundNumbers { next_number, life } = self.pieces.numbers();
        lent.log.pass_life(life);
        let newest = self.pieces.newest().unwrap_or_else(|refusal| {
            found.findings.miss(match refusal {
                AnchorRefusal::Features(features) => Missing::Features { features },
                AnchorRefusal::Impossible => Missing::AnchorContent,
            });
            None
        });
        self.miss_newer_than(newest.as_ref(), found);
        // An anchor that cannot be read may have had the next numbers.
        let next_number = next_number.saturating_add(found.findings.records);
        let mut kept = Vec::new();
        if let Some(newest) = newest {
            diecut_units::mark!("volume: anchor found");
            kept = newest.blocks.clone();
            adopt(newest, found, lent);
        }
        if found.has_lost_records() || found.findings.is_of_other_version() {
            // Of an anchor that cannot be read today nothing is given back before there is another one.
            kept = self.held.iter().map(|held| held.block).collect();
        }
        lent.log.adopt_anchor(&found.anchor, &kept, next_number);
        for held in &self.held {
            if !kept.contains(&held.block) {
                lent.space.free(held.block).expect("held");
            }
        }
        MarkSearch::start(self.of_segments, found, lent)
    }

    /// What was written before the newest anchor is needed no more. Without one, anything may have been it.
    fn miss_newer_than(&mut self, newest: Option<&FoundAnchor>, found: &mut Found) {
        let sequence_of = |block: LogicalBlock| {
            let held = self.held.iter().find(|held| held.block == block);
            held.map_or(0, |held| held.allocation_sequence)
        };
        let newest_at = newest.map(|anchor| (sequence_of(anchor.blocks[0]), anchor.first_unit));
        for (held, unit) in &self.unread {
            if newest_at.is_none_or(|newest_at| (held.allocation_sequence, *unit) > newest_at) {
                found.findings.miss(Missing::Anchor { block: held.block, unit: *unit });
            }
        }
    }
}

/// Takes over what an anchor says.
fn adopt(newest: FoundAnchor, found: &mut Found, lent: &mut Lent) {
    let FoundAnchor { mut anchor, format, listed, .. } = newest;
    match format {
        Format::Two => found.has_anchor_of_one = true,
        Format::Three => {
            lent.maps.kind = LeafKind::New;
            lent.log.adopt_listed(listed);
        }
    }
    if !anchor.is_possible() {
        found.findings.miss(Missing::AnchorContent);
        anchor.taken_at = anchor.taken_at.min(SEQUENCE_MAX - 1);
        anchor.sequence = anchor.sequence.min(anchor.taken_at);
    }
    let room = lent.log.map_ius_max();
    match owner_bytes::decode(format, &anchor.owner).filter(|owner| owner.size_ius() <= room) {
        Some(OwnerBytes { volumes, accepted, figures }) => {
            found.records_empty_leaves = accepted.is_some();
            found.accepted = accepted.unwrap_or_default();
            found.figures = figures.unwrap_or_default();
            for OwnedVolume { number, size_ius, leaves, old } in volumes {
                let volume = lent.maps.volume(number);
                volume.exists = true;
                volume.resize(size_ius, anchor.sequence);
                (volume.leaves, volume.old) = (leaves, old);
            }
        }
        None => found.findings.miss(Missing::AnchorContent),
    }
    found.anchor = anchor;
}
