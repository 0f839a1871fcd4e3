//! Files of tests that are modules of one program.

use std::path::Path;

/// Checks that `main`, the text of `main.rs` in `folder`, names each file and each module's folder there, but those in `alone`, which are programs of
/// their own.
///
/// # Panics
/// Names the first that is not named: nothing would run its tests.
#[track_caller]
pub fn all_named(folder: impl AsRef<Path>, main: &str, alone: &[&str]) {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of tests is there") {
        let path = entry.expect("it is readable").path();
        let is_module =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("names of files are text");
        if !is_module || name == "main" || alone.contains(&name) {
            continue;
        }
        assert!(main.contains(&format!("\nmod {name};\n")), "main.rs lacks {name}");
        count += 1;
    }
    assert!(count > 1, "no tests beside main.rs");
}

#[cfg(test)]
mod test {
    use super::all_named;
    use std::path::{Path, PathBuf};

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
    }

    fn all_but(missing: &str) -> String {
        let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let names = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
        names.filter(|name| name != missing).map(|name| format!("\nmod {name};\n")).collect()
    }

    #[test]
    fn named_files_and_those_alone_are_fine() {
        all_named(folder(), &all_but("nothing"), &[]);
        all_named(folder(), &all_but("wait"), &["wait"]);
    }

    #[test]
    #[should_panic(expected = "main.rs lacks wait")]
    fn a_file_that_is_not_named_is_missed() {
        all_named(folder(), &all_but("wait"), &[]);
    }
}
