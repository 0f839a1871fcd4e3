//! The suite of the media contract against every backing, with and without time, on profiles that differ in cells, and
//! behind a host that costs time.

use diecut_emulator::{Arbitration, Backing, Device, Options, Pacing, Profile};
use diecut_media::conformance;

fn run(profile: &Profile, backing: &Backing, pacing: Pacing) {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        let options = Options { backing: backing.clone(), pacing, seed, ..Options::default() };
        Device::create(profile, options).unwrap()
    });
}

fn named(name: &str) -> Profile {
    Profile::named(name).unwrap()
}

#[test]
fn memory() {
    run(&named("tiny"), &Backing::Memory, Pacing::Modelled);
    run(&named("tiny"), &Backing::Memory, Pacing::Unpaced);
}

#[test]
fn tags() {
    run(&named("tiny"), &Backing::Tags, Pacing::Modelled);
    run(&named("tiny"), &Backing::Tags, Pacing::Unpaced);
}

#[test]
fn file() {
    let folder = tempfile::tempdir().unwrap();
    for pacing in [Pacing::Modelled, Pacing::Unpaced] {
        let mut seed = 0;
        conformance::all(&mut || {
            seed += 1;
            let path = folder.path().join(format!("device-{pacing:?}-{seed}"));
            // Made by one opening, used by the next.
            let options = Options { backing: Backing::File(path.clone()), seed, ..Options::default() };
            drop(Device::create(&named("tiny"), options).unwrap());
            Device::open(&path, Options { pacing, ..Options::default() }).unwrap()
        });
    }
}

#[test]
fn synced() {
    for pacing in [Pacing::Modelled, Pacing::Unpaced] {
        run(&named("tiny"), &Backing::SyncedModel, pacing);
        run(&named("tiny-one-shot"), &Backing::SyncedModel, pacing);
        let folder = tempfile::tempdir().unwrap();
        let mut seed = 0;
        conformance::all(&mut || {
            seed += 1;
            let path = folder.path().join(format!("device-{seed}"));
            let options = Options { backing: Backing::SyncedFile(path.clone()), seed, ..Options::default() };
            drop(Device::create(&named("tiny"), options).unwrap());
            Device::open(&path, Options { pacing, ..Options::default() }).unwrap()
        });
    }
}

#[test]
fn one_shot_cells_with_suspend() {
    run(&named("tiny-one-shot"), &Backing::Memory, Pacing::Modelled);
    run(&named("tiny-one-shot"), &Backing::Tags, Pacing::Modelled);
}

#[test]
fn plain_dies_behind_a_slow_host() {
    let mut profile = named("tiny");
    profile.die.multi_plane = false;
    profile.die.cache_read = false;
    profile.die.cache_program = false;
    profile.die.page_register_reuse = false;
    profile.bus.burst_size_bytes = 0;
    profile.bus.arbitration = Arbitration::RoundRobin;
    profile.host.latency_us = 8.0;
    profile.host.controller_us = 1.0;
    profile.host.link_mb_per_s = 500.0;
    run(&profile, &Backing::Memory, Pacing::Modelled);
}
