//! Everything that can be said of the code without running it.

use std::path::Path;
use std::process::Command;

pub fn all(root: &Path) -> Result<String, Vec<String>> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    cargo(root, &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"], &[])?;
    println!("{}", crate::arrows::check(root)?);
    println!("{}", crate::tidy::check(root)?);
    println!("{}", crate::house::check(root)?);
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    println!("cargo clippy of fuzz/");
    crate::fuzz::lint(root)?;
    cargo(
        root,
        &["doc", "--workspace", "--no-deps", "--document-private-items"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    Ok("check: format, arrows, tidy, house, lints, documentation".to_string())
}

fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), Vec<String>> {
    println!("cargo {}", arguments.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| vec![format!("cargo cannot run: {error}")])?;
    if status.success() { Ok(()) } else { Err(vec![format!("cargo {} failed", arguments.join(" "))]) }
}
