//! NAND profiles.
#![no_main]

use diecut_emulator::Profile;
use diecut_fuzz::bounded;
use diecut_units::ContentMode;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    Profile::names()
        .flat_map(|name| {
            let shipped = Profile::text_of(name).expect("a built-in profile has a text");
            let written = Profile::named(name).expect("it is right").to_toml();
            [shipped.as_bytes().to_vec(), written.into_bytes()]
        })
        .collect()
}

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match bounded((1 << 20) + 1024 * bytes.len(), || Profile::from_toml(text)) {
        Ok(profile) => {
            assert_eq!(Profile::from_toml(&profile.to_toml()).expect("what was written is right"), profile);
            let capabilities = bounded(1 << 20, || profile.capabilities(ContentMode::Bytes));
            assert!(capabilities.program_unit_pages > 0);
            let geometry = profile.geometry;
            assert!(geometry.raw_capacity_bytes() > 0 && geometry.dies() > 0);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
