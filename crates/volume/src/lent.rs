use crate::map::Maps;
use diecut_log::Log;
use diecut_vssd::space::EraseBlockSpace;

/// What the parts of a store work on, lent for a step.
pub(crate) struct Lent<'a> {
    pub log: &'a mut Log,
    pub maps: &'a mut Maps,
    pub space: &'a mut dyn EraseBlockSpace,
}
