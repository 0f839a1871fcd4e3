//! Asks `wipefs` of util-linux, which prints all signatures with their offsets and writes nothing (`--no-act`).

use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Deserialize)]
struct Printed {
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    r#type: String,
    offset: String,
}

/// Folders of programs for administrators, which the path of ordinary users lacks.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join("wipefs")).find(|program| program.is_file())
}

/// Kinds and offsets; `None` if the program is not installed.
pub(super) fn signatures(path: &Path) -> Result<Option<Vec<(String, u64)>>, String> {
    let Some(program) = program() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(["--no-act", "--json", "--"]).arg(path).stdin(Stdio::null()).env_clear();
    let output = command.output().map_err(|error| format!("it cannot run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    parse(&output.stdout).map(Some)
}

fn parse(json: &[u8]) -> Result<Vec<(String, u64)>, String> {
    // Where nothing is found, nothing is printed.
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let printed: Printed = serde_json::from_slice(json).map_err(|error| format!("it prints: {error}"))?;
    let signatures = printed.signatures.into_iter().map(|signature| {
        let digits = signature.offset.trim_start_matches("0x");
        let offset = u64::from_str_radix(digits, 16);
        let offset = offset.map_err(|_| format!("it prints the offset {}", signature.offset))?;
        Ok((signature.r#type, offset))
    });
    signatures.collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_it_prints_is_read() {
        assert_eq!(parse(b""), Ok(Vec::new()));
        assert_eq!(parse(b"{\"signatures\": []}\n"), Ok(Vec::new()));
        let two = br#"{"signatures": [
            {"device":"x","offset":"0x218","type":"LVM2_member","uuid":"u","label":null},
            {"device":"x","offset":"0x3ffe00","type":"gpt","uuid":null,"label":null}]}"#;
        let expected = [("LVM2_member".to_owned(), 0x218), ("gpt".to_owned(), 0x3f_fe00)];
        assert_eq!(parse(two), Ok(expected.to_vec()));
        assert!(parse(b"nonsense").is_err());
        assert!(parse(br#"{"signatures": [{"offset":"here","type":"gpt"}]}"#).is_err());
    }
}
