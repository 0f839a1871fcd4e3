//! Goal: a program in C works with the library as it is installed. Method: `scripts/install.sh` into a scratch folder, `cc` with
//! what `pkg-config` says, and the program (`program.c`) against an embedded device and against a server; both libraries.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../daemon/tests/block_server/mod.rs"]
mod block_server;

use block_server::{Server, write_setup};
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; make setup"));
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{problems}");
    said.into_owned()
}

/// Where cargo puts the libraries that it makes for this test.
fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libdiecut.so").exists(), "{} has no libdiecut.so", folder.display());
    folder
}

fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let said = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(arguments)
        .arg("diecut"));
    said.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_program_in_c_works_with_the_installed_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("installed");
    run(Command::new(root.join("scripts/install.sh")).arg(&prefix).arg(libraries()));
    assert_eq!(pkg_config(&prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    write_setup(folder.path());
    let server = Server::start(folder.path(), 1);
    let source = root.join("crates/abi/tests/program.c");
    let shared = pkg_config(&prefix, &["--cflags", "--libs"]);
    let mut fixed = pkg_config(&prefix, &["--cflags"]);
    fixed.push(prefix.join("lib/libdiecut.a").display().to_string());
    fixed.extend(["-lpthread", "-ldl", "-lm"].map(str::to_owned));
    for (name, libraries) in [("shared", shared), ("static", fixed)] {
        let program = folder.path().join(name);
        run(Command::new("cc")
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(&source)
            .args(libraries));
        let needed = run(Command::new("readelf").arg("-d").arg(&program)).contains("[libdiecut.so.1]");
        assert_eq!(needed, name == "shared", "the loader is asked for the library by its name with version");
        let start = || {
            let mut command = Command::new("timeout");
            command.arg("60").arg(&program).env("LD_LIBRARY_PATH", prefix.join("lib"));
            command
        };
        assert_eq!(run(start().arg("embedded")), "ok\n");
        assert_eq!(run(start().arg(server.socket()).arg("blocks-a")), "ok\n");
    }
}
