//! Names of things.

use diecut_units::Shown;

/// Whether something new may have this name. Those that exist stay as they are: one that begins with "-" or "." was allowed once.
///
/// # Errors
/// Names it, with what it is, and says what a name is made of.
pub fn check_name(kind: &str, name: &str) -> Result<(), String> {
    let is_sound = !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    if !is_sound {
        let name = Shown(name);
        return Err(format!("{kind} name \"{name}\": use 1 to 64 letters, digits, \"-\", \"_\" or \".\""));
    }
    if name.starts_with(['-', '.']) {
        return Err(format!(
            "{kind} name \"{name}\": begin it with a letter, a digit or \"_\"; commands take what begins with \"-\" for an option, and \
             \".\" and \"..\" are folders"
        ));
    }
    Ok(())
}
