//! Users of the machine, as the command line names them.

/// The number of a user.
pub(crate) fn read_uid(text: &str) -> Result<u32, String> {
    let expected = "the number of a user is expected, 0 to 4294967295, as `id -u NAME` prints it";
    text.parse().map_err(|_| expected.to_owned())
}
