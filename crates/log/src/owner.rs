use crate::LogAddress;

/// The content of an IU got another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whose it is.
    pub tag: u64,
    /// Where it was.
    pub from: LogAddress,
    /// Where it is.
    pub to: LogAddress,
    /// Its checksum, as it was read or staged.
    pub checksum: u32,
    /// Its record has this sequence, or a later one.
    pub sequence: u64,
}

/// Who owns the maps. The log knows only opaque tags; it asks whether a place is still the owner's, and announces
/// moves, which the owner answers by compare-and-swap.
pub trait Owner {
    /// For each (tag, place): whether the owner's map still points there. Fills `live` in order.
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>);
    /// Whether the owner's map points to this place.
    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool;
    /// The content moved. Returns `false`, changing nothing, if the map no longer points to where it was.
    fn moved(&mut self, moved: Move) -> bool;
    /// A note is about to lose its place: appends to `renewed` what of it still has to be known at recovery.
    fn renew(&mut self, note: [u64; 3], renewed: &mut Vec<[u64; 3]>);
}
