//! Data of Connect, with both names in it.
#![no_main]

use diecut_fuzz::bounded;
use diecut_nvme::fabrics::ConnectData;
use diecut_nvme::{DISCOVERY_SUBSYSTEM_NQN, QualifiedName};
use zerocopy::IntoBytes;

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let name = |text: &str| QualifiedName::new(text).expect("an NQN");
    let host = name("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001");
    let longest = name(&format!("nqn.{}", "x".repeat(219)));
    vec![
        ConnectData::new([9; 16], 0xFFFF, &name(DISCOVERY_SUBSYSTEM_NQN), &host).as_bytes().to_vec(),
        ConnectData::new([9; 16], 1, &longest, &host).as_bytes().to_vec(),
    ]
}

fn check(bytes: &[u8]) {
    let Ok(data) = bounded(0, || ConnectData::decode(bytes)) else {
        assert!(bytes.len() < ConnectData::SIZE_BYTES);
        return;
    };
    assert_eq!(data.as_bytes(), &bytes[..ConnectData::SIZE_BYTES]);
    let names = bounded(1024, || (data.subsystem(), data.host()));
    if let (Ok(subsystem), Ok(Some(host))) = names {
        let again = ConnectData::new(data.host_id, data.controller_id.get(), &subsystem, &host);
        let again = ConnectData::decode(again.as_bytes()).expect("1024 bytes");
        assert_eq!((again.subsystem(), again.host()), (Ok(subsystem), Ok(Some(host))));
        assert_eq!((again.host_id, again.controller_id), (data.host_id, data.controller_id));
    }
}
