use crate::LogAddress;

/// Who owns the maps. The log knows only opaque tags; it asks whether a place is still the owner's, and announces
/// moves, which the owner answers by compare-and-swap.
pub trait Owner {
    /// For each (tag, place): whether the owner's map still points there. Fills `live` in order.
    fn live(&mut self, entries: &[(u64, LogAddress)], live: &mut Vec<bool>);
    /// Whether the owner's map points to this place.
    fn is_live(&mut self, tag: u64, place: LogAddress) -> bool;
    /// The content moved; its record has this sequence, or a later one. Returns `false`, changing nothing, if the map no
    /// longer points to `old`.
    fn moved(&mut self, tag: u64, old: LogAddress, new: LogAddress, sequence: u64) -> bool;
    /// A note is about to lose its place: appends to `renewed` what of it still has to be known at recovery.
    fn renew(&mut self, note: [u64; 3], renewed: &mut Vec<[u64; 3]>);
}
