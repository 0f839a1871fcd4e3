//! Loads a live server: the shipped target over null namespaces behind real sockets. Goal: every form of load runs to
//! its end and counts what it did. Not timed: runs are short and only the patience of the driver ends a hanging one.
#![allow(clippy::disallowed_methods, reason = "drives real sockets")]

use diecut_load::drive::{DriveSettings, Endpoint, LoadError, probe, run};
use diecut_load::{Arrival, LoadSpec, Pattern};
use diecut_namespace::NullReads;
use diecut_nvme::QualifiedName;
use diecut_nvme::tcp::Digests;
use diecut_nvmf::TargetConfig;
use diecut_reactor::{Reactor, ReactorConfig};
use diecut_shard::null::NullShard;

const SUBSYSTEM: &str = "nqn.2026-11.org.diecut:null";

fn serve() -> (Reactor, Endpoint) {
    let config = ReactorConfig { listen: vec!["127.0.0.1:0".parse().unwrap()], ..ReactorConfig::default() };
    let make = |_now| NullShard::new(TargetConfig::default(), &[SUBSYSTEM], 1 << 20, NullReads::SharedZeros);
    let reactor = Reactor::start(&config, vec![make]).unwrap();
    let endpoint = Endpoint {
        address: reactor.addresses()[0],
        subsystem: QualifiedName::new(SUBSYSTEM).unwrap(),
        host: QualifiedName::new("nqn.2014-08.org.nvmexpress:uuid:load").unwrap(),
        host_id: [1; 16],
        nsid: None,
        digests: Digests::NONE,
    };
    (reactor, endpoint)
}

fn short() -> LoadSpec {
    LoadSpec { ramp_ns: 1_000_000, runtime_ns: 40_000_000, ..LoadSpec::default() }
}

#[test]
fn every_form_of_load_runs() {
    let (reactor, endpoint) = serve();
    let both = Digests { header: true, data: true };
    let loads = [
        (short(), Digests::NONE, 1),
        (LoadSpec { read_percent: 0, ..short() }, Digests::NONE, 1),
        (LoadSpec { read_percent: 50, block_bytes: 128 << 10, depth: 16, ..short() }, both, 1),
        (LoadSpec { jobs: 5, depth: 3, pattern: Pattern::Zipf(1.1), ..short() }, Digests::NONE, 2),
        (LoadSpec { pattern: Pattern::Sequential, arrival: Arrival::Open(5000.0), ..short() }, both, 1),
        (LoadSpec { depth: 1, arrival: Arrival::Closed(Some(2000.0)), ..short() }, Digests::NONE, 1),
    ];
    for (load, digests, threads) in loads {
        let endpoint = Endpoint { digests, ..endpoint.clone() };
        let settings = DriveSettings { threads, ..DriveSettings::default() };
        let report = run(&endpoint, &load, settings).unwrap_or_else(|error| panic!("{load:?}: {error}"));
        assert_eq!(report.errors(), 0, "{load:?}");
        assert_eq!(report.read.is_some(), load.read_percent > 0, "{load:?}");
        assert_eq!(report.write.is_some(), load.read_percent < 100, "{load:?}");
        assert!(report.operations_per_second() > 0.0, "{load:?}");
        for one in report.read.iter().chain(&report.write) {
            let rising = [one.min_us, one.p50_us, one.p90_us, one.p99_us, one.p99_9_us, one.p99_99_us];
            assert!(rising.is_sorted() && rising[0] > 0.0 && one.p99_99_us <= one.max_us * 1.001, "{one:?}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["load"]["block_bytes"], load.block_bytes);
        assert!(report.to_string().contains("p99.99"));
    }
    reactor.stop();
}

#[test]
fn what_cannot_be_says_what_to_do() {
    let (reactor, endpoint) = serve();
    let fails = |endpoint: &Endpoint, load: &LoadSpec| {
        run(endpoint, load, DriveSettings::default()).unwrap_err().to_string()
    };
    let other =
        Endpoint { subsystem: QualifiedName::new("nqn.2026-11.org.diecut:x").unwrap(), ..endpoint.clone() };
    assert!(fails(&other, &short()).contains("no subsystem of this NQN"));
    let other = Endpoint { nsid: Some(5), ..endpoint.clone() };
    assert!(fails(&other, &short()).contains("no namespace 5; it has: 1"));
    assert!(fails(&endpoint, &LoadSpec { depth: 5000, ..short() }).contains("a depth of 255"));
    assert!(
        fails(&endpoint, &LoadSpec { block_bytes: 2 << 20, ..short() }).contains("do not fit one command")
    );
    assert!(fails(&endpoint, &LoadSpec { block_bytes: 1000, ..short() }).contains("no multiple"));
    assert_eq!(probe(&endpoint).unwrap().namespaces[0].size_lbas, 1 << 20);
    let address = endpoint.address;
    reactor.stop();
    let error = run(&endpoint, &short(), DriveSettings::default()).unwrap_err();
    assert!(matches!(&error, LoadError::Connect { address: tried, .. } if *tried == address), "{error}");
}
