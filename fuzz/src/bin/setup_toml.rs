//! Set-up files, and the sizes in them.
#![no_main]

use diecut_api::setup::Setup;
use diecut_fuzz::bounded;
use diecut_spec::Size;

diecut_fuzz::target!(seeds, check);

const SHIPPED: &str = include_str!("../../../setups/two-tenants.toml");

fn seeds() -> Vec<Vec<u8>> {
    let setup = Setup::from_toml(SHIPPED).expect("the shipped set-up is right");
    let written = toml::to_string(&setup).expect("it can be written");
    let texts = [SHIPPED, &written, "", "64 GiB", "500MB", "[device]\nprotected_memory = \"1 MiB\"\n"];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.bytes().to_string().parse(), Ok(size));
        assert!(!size.to_string().is_empty());
    }
    match bounded((1 << 20) + 1024 * bytes.len(), || Setup::from_toml(text)) {
        Ok(setup) => {
            let _ = setup.server.socket_path();
            // TOML has no integers above 2^63; such a set-up is read nowhere but written nowhere either.
            if let Ok(written) = toml::to_string(&setup) {
                assert_eq!(Setup::from_toml(&written).expect("what was written is right"), setup);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
