//! What a host sets of its latency monitor, and the page that it reads of it.
#![no_main]

use diecut_nvme::ocp::{Bucket, CommandKind, LatencyConfiguration, LatencyLog, TriggerBits};
use zerocopy::{FromBytes, IntoBytes};

diecut_fuzz::target!(seeds, check);

fn seeds() -> Vec<Vec<u8>> {
    let mut odd = LatencyConfiguration::default().encode();
    odd[13] = 1;
    vec![
        LatencyConfiguration::default().encode(),
        odd,
        LatencyConfiguration { thresholds: [9, 8, 7, 6], ..LatencyConfiguration::default() }.encode(),
        LatencyLog::default().as_bytes().to_vec(),
    ]
}

fn check(bytes: &[u8]) {
    if let Some(configuration) = LatencyConfiguration::decode(bytes) {
        assert_eq!(configuration.encode(), bytes[..LatencyConfiguration::SIZE_BYTES]);
        if configuration.is_sound() {
            let mut before = None;
            for ms in 0..1300 {
                let bucket = configuration.bucket_of(ms).map(Bucket::index);
                assert!(bucket >= before, "a longer latency is in no lower bucket");
                before = bucket;
            }
            let trigger = TriggerBits(configuration.debug_trigger.get());
            let set = Bucket::ALL
                .iter()
                .flat_map(|bucket| CommandKind::ALL.iter().filter(move |kind| trigger.has(*bucket, **kind)));
            assert_eq!(set.count() as u32, trigger.0.count_ones());
        }
    }
    if let Ok((log, _)) = LatencyLog::read_from_prefix(bytes) {
        let mut side = log.active;
        for bucket in Bucket::ALL {
            for kind in CommandKind::ALL {
                let before = side.counter(bucket, kind);
                side.count(bucket, kind);
                assert!(side.counter(bucket, kind) >= before);
                let (ms, stamp) = side.measured(bucket, kind);
                side.keep(bucket, kind, ms, stamp, true);
                assert_eq!(side.measured(bucket, kind), (ms, stamp));
            }
        }
    }
}
