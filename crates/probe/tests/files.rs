//! Goal: a file is measured, and nothing of it changes unless it is to be overwritten. Method: files beside the build, on a real file system.

use diecut_probe::{ProbeError, ProbeSpec, Report, run};
use diecut_testing::needs::left_out;
use std::path::{Path, PathBuf};

const SIZE: usize = 4 << 20;

/// Beside the build.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn file(folder: &Path, content: &[u8]) -> PathBuf {
    let path = folder.join("drive");
    std::fs::write(&path, content).unwrap();
    path
}

fn short() -> ProbeSpec {
    ProbeSpec { depths: vec![1, 8], seconds: 0.05, regions: 2, ..ProbeSpec::default() }
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7) as u8).collect()
}

/// What came of it; nothing where this machine cannot measure, which is said.
fn measure(path: &Path, spec: &ProbeSpec) -> Option<Report> {
    match run(path, spec, &mut |_| ()) {
        Ok(report) => Some(report),
        Err(error @ (ProbeError::Ring { .. } | ProbeError::Buffered { .. })) => {
            left_out(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn reads_are_measured_and_nothing_changes() {
    let folder = folder();
    let path = file(folder.path(), &content());
    let Some(report) = measure(&path, &short()) else { return };
    let [reads] = &report.curves[..] else { panic!("reads only: {:?}", report.curves) };
    assert_eq!(reads.points.iter().map(|point| point.depth).collect::<Vec<_>>(), [1, 8]);
    for point in &reads.points {
        assert!(
            point.operations > 0 && point.p50_us > 0.0 && point.p50_us <= point.max_us * 1.01,
            "{point:?}"
        );
    }
    let disturbance = report.disturbance.unwrap();
    assert_eq!((disturbance.region_bytes, disturbance.beside_p99_us.len()), (SIZE as u64 / 2, 2));
    assert_eq!(report.drive.size_bytes, SIZE as u64);
    assert_eq!(std::fs::read(&path).unwrap(), content());
}

#[test]
fn writes_are_measured_where_that_is_asked_for() {
    let folder = folder();
    let path = file(folder.path(), &content());
    let spec = ProbeSpec { overwrites: true, force: true, regions: 0, ..short() };
    let Some(report) = measure(&path, &spec) else { return };
    assert_eq!(
        report.curves.iter().map(|curve| curve.what.as_str()).collect::<Vec<_>>(),
        ["read", "write", "mixed"]
    );
    assert!(report.curves.iter().flat_map(|curve| &curve.points).all(|point| point.operations > 0));
    assert!(report.disturbance.is_none());
    let after = std::fs::read(&path).unwrap();
    assert!(after.len() == SIZE && after != content(), "it was written, and is as long as before");
}

/// Goal: what looks like something else is not written. Method: swap space, whose signature is ten bytes.
#[test]
fn what_is_recognized_is_not_written() {
    let folder = folder();
    let mut swap = vec![0; SIZE];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    swap[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    swap[1028..1032].copy_from_slice(&(SIZE as u32 / 4096 - 1).to_le_bytes());
    let path = file(folder.path(), &swap);
    let spec = ProbeSpec { overwrites: true, ..short() };
    let error = run(&path, &spec, &mut |_| ()).unwrap_err();
    match &error {
        ProbeError::Holds { found, .. } => assert!(found[0].starts_with("swap"), "{error}"),
        _ => panic!("{error}"),
    }
    assert_eq!(std::fs::read(&path).unwrap(), swap, "nothing was written");
}

#[test]
fn devices_of_diecut_are_recognized() {
    let folder = folder();
    let mut image = content();
    image[..8].copy_from_slice(b"DIECUTEM");
    let path = file(folder.path(), &image);
    match run(&path, &ProbeSpec { overwrites: true, ..short() }, &mut |_| ()).unwrap_err() {
        ProbeError::Holds { found, .. } => assert_eq!(found, ["an emulated device of diecut at byte 0"]),
        error => panic!("{error}"),
    }
    assert_eq!(std::fs::read(&path).unwrap(), image);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let folder = folder();
    let path = file(folder.path(), &[0; 8192]);
    let said = |path: &Path, spec: &ProbeSpec| run(path, spec, &mut |_| ()).unwrap_err().to_string();
    assert!(said(&folder.path().join("none"), &short()).contains("none cannot be examined"));
    assert!(said(folder.path(), &short()).contains("is a folder; name a file or a block device"));
    let small = said(&path, &short());
    assert!(small.contains("8192 bytes") || small.contains("O_DIRECT"), "{small}");
    assert!(said(&path, &ProbeSpec { block_bytes: 100, ..short() }).contains("100"));
}
