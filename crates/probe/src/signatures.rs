//! What lies on a drive, by util-linux's prober: file systems, partition tables, parts of arrays and pools. Devices of diecut, which it does
//! not know, are recognized here.

use crate::ProbeError;
use serde::Deserialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// What an emulated device in a file begins with (`docs/format/device-file.md`).
const DIECUT: &[u8; 8] = b"DIECUTEM";

#[derive(Deserialize)]
struct Found {
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    r#type: String,
    offset: String,
}

/// Names of what is recognized at `path`, each once.
///
/// # Errors
/// [`ProbeError::Unknown`] if the prober is missing or fails.
pub(crate) fn find(path: &Path) -> Result<Vec<String>, ProbeError> {
    let unknown = |error: String| ProbeError::Unknown { path: path.to_owned(), error };
    let output = Command::new("wipefs").args(["--no-act", "--json", "--"]).arg(path).output();
    let output = output.map_err(|error| unknown(format!("wipefs cannot run: {error}")))?;
    if !output.status.success() {
        return Err(unknown(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let mut found = names(&output.stdout).map_err(unknown)?;
    let mut first = [0; DIECUT.len()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut first, 0));
    // What is shorter is no device.
    if read.is_ok() && first == *DIECUT {
        found.push("an emulated device of diecut".to_owned());
    }
    Ok(found)
}

fn names(json: &[u8]) -> Result<Vec<String>, String> {
    // Where nothing is found, nothing is printed.
    if json.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let found: Found = serde_json::from_slice(json).map_err(|error| format!("wipefs says: {error}"))?;
    let mut names: Vec<String> = Vec::new();
    for Signature { r#type, offset } in found.signatures {
        if names.iter().all(|name| name.split(' ').next() != Some(r#type.as_str())) {
            names.push(format!("{type} (at byte {offset})"));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_the_prober_prints_is_read() {
        assert_eq!(names(b""), Ok(Vec::new()));
        assert_eq!(names(b"{\"signatures\": []}\n"), Ok(Vec::new()));
        let two = br#"{"signatures": [
            {"device":"x","offset":"0x218","type":"LVM2_member","uuid":"u","label":null},
            {"device":"x","offset":"0x200","type":"gpt","uuid":null,"label":null},
            {"device":"x","offset":"0x3ffe00","type":"gpt","uuid":null,"label":null}]}"#;
        let expected = ["LVM2_member (at byte 0x218)", "gpt (at byte 0x200)"].map(str::to_owned);
        assert_eq!(names(two), Ok(expected.to_vec()));
        assert!(names(b"nonsense").is_err());
    }
}
