//! The profile of a device: one that comes with diecut, or a file.

use diecut_devices::{Profile, ProfileError};

/// A built-in profile by its name, or else the profile in the file of that path.
pub(crate) fn named_or_file(name: &str) -> Result<Profile, ProfileError> {
    if !name.ends_with(".toml") {
        return Profile::named(name);
    }
    let text = std::fs::read_to_string(name)
        .map_err(|source| ProfileError::Unreadable { path: name.into(), source })?;
    Profile::parse(&text, name)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_profile_comes_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.toml").display().to_string();
        let missing = named_or_file(&path).unwrap_err().to_string();
        assert!(missing.contains(&path), "{missing}");
        std::fs::write(&path, Profile::text_of("tiny").unwrap()).unwrap();
        assert_eq!(named_or_file(&path).unwrap(), Profile::named("tiny").unwrap());
        std::fs::write(&path, "name = 1").unwrap();
        let wrong = named_or_file(&path).unwrap_err().to_string();
        assert!(wrong.contains(&path), "{wrong}");
    }
}
