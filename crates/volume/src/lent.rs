use crate::map::Maps;
use diecut_log::Log;
use diecut_vssd::space::EraseBlockSpace;

/// What the parts of a store work on, lent for a step.
pub(crate) type Lent<'a> = LentOver<'a, dyn EraseBlockSpace + 'a>;

/// As [`Lent`], over a kind of space that is known: all that a read does is then done in one place.
pub(crate) struct LentOver<'a, S: EraseBlockSpace + ?Sized> {
    pub log: &'a mut Log,
    pub maps: &'a mut Maps,
    pub space: &'a mut S,
}
