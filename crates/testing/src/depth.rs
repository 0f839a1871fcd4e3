//! How far tests go that could go on for ever: over seeds, over cuts, over virtual time. Every run of the tests has time for some of it, a
//! night (`cargo xtask night`) for more. Tests of planted bugs take no part: each bug is found in every run.

/// The variable of the environment that says that tests have a night.
pub const DEEP: &str = "DIECUT_TEST_DEEP";

/// The first where tests must be brief, the second where they have a night.
pub fn depth<T>(brief: T, deep: T) -> T {
    if std::env::var_os(DEEP).is_some() { deep } else { brief }
}
