//! A device that asks the server for all its I/O serves hosts from a file.
#![allow(clippy::disallowed_methods, reason = "drives real sockets")]

use crate::host;
use diecut_devices::{FileMedium, Profile};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_reactor::{IoFile, PageCache, Reactor, ReactorConfig, RingFile};
use diecut_shard::control::{
    ControlRequest, ControlResponse, SubsystemSpec, TenantSpec, VolumeSpec, VssdSpec,
};
use diecut_shard::{DeviceIndex, PoolConfig, Shard, ShardConfig};
use diecut_spec::Isolation;
use diecut_units::Buffer;
use host::Host;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const LBA_BYTES: usize = 4096;
const SPAN_LBAS: u32 = 16;

fn ask(reactor: &Reactor, request: ControlRequest) -> ControlResponse {
    let (sender, receiver) = channel();
    assert!(reactor.request(request, Box::new(move |response| sender.send(response).unwrap())));
    receiver.recv_timeout(Duration::from_secs(60)).expect("requests are answered")
}

fn content(first: u64, version: u64) -> Vec<u8> {
    let words = [first, version].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    words.into_iter().cycle().take(SPAN_LBAS as usize * LBA_BYTES).collect()
}

/// Goal: the way from a medium's intents to the file and back carries what hosts write, with cleaning. Method: a host writes a volume several
/// times over and reads it, while the shard's device touches no file by itself.
#[test]
fn what_hosts_write_is_in_the_file() {
    let mut geometry = Profile::named("tiny").unwrap().geometry;
    geometry.blocks_per_plane = 48;
    let file = Arc::new(tempfile::tempfile().unwrap());
    let config = ShardConfig { pool: PoolConfig::suited_to(&geometry), ..ShardConfig::default() };
    let reactor_config = ReactorConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        io: vec![(DeviceIndex(0), IoFile::Ring(RingFile::plain(Arc::clone(&file), PageCache::Used)))],
        ..ReactorConfig::default()
    };
    let make = move |now| Shard::new(FileMedium::new(geometry), config, now);
    let reactor = Reactor::start(&reactor_config, vec![make]).unwrap();
    let done = |request| assert_eq!(ask(&reactor, request), ControlResponse::Done);
    done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    done(ControlRequest::CreateVssd(VssdSpec::new("a", "a", Isolation::Channel, 280)));
    let ControlResponse::Status(status) = ask(&reactor, ControlRequest::Status) else { panic!("a status") };
    let size_bytes = status.vssds[0].space.exported_bytes;
    done(ControlRequest::CreateVolume(VolumeSpec {
        name: "a".to_owned(),
        vssd: "a".to_owned(),
        size: diecut_spec::Size(size_bytes),
        uuid: None,
        nguid: None,
        zones: Default::default(),
        placement: Vec::new(),
    }));
    done(ControlRequest::CreateSubsystem(SubsystemSpec {
        nqn: "nqn.2026-11.org.diecut:a".to_owned(),
        tenant: "a".to_owned(),
        serial: None,
        model: None,
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        paths: Vec::new(),
        namespaces: vec![diecut_spec::NamespaceSpec::new(1, "a")],
    }));
    let mut host = Host::connect(reactor.addresses()[0], "a").unwrap();
    let spans = size_bytes / LBA_BYTES as u64 / u64::from(SPAN_LBAS);
    // Over the whole volume, then over each third span again and again: the cleaner has what lives to copy.
    let rounds = (0..spans).map(|span| (span, 1));
    let again = (2..6).flat_map(|version| (0..spans).step_by(3).map(move |span| (span, version)));
    let writes: Vec<(u64, u64)> = rounds.chain(again).collect();
    let mut run = |commands: &mut dyn Iterator<Item = Command>| {
        let mut sink = Collect::default();
        let mut count = 0;
        for (token, command) in commands.enumerate() {
            host.queue.submit(Token(token as u64), command);
            count += 1;
        }
        while sink.completions.len() < count {
            host.exchange(&mut sink).unwrap();
        }
        assert!(sink.completions.iter().all(|done| done.status == Status::SUCCESS), "{:?}", sink.completions);
        sink.data
    };
    let span_of = |span: u64| LbaSpan { nsid: 1, first: span * u64::from(SPAN_LBAS), count: SPAN_LBAS };
    for some in writes.chunks(16) {
        run(&mut some.iter().map(|(span, version)| Command::Write {
            span: span_of(*span),
            data: Buffer::copy_from(&content(*span, *version)),
            force_unit_access: false,
        }));
    }
    for first in (0..spans).step_by(16) {
        let some: Vec<u64> = (first..spans.min(first + 16)).collect();
        let length_bytes = SPAN_LBAS * LBA_BYTES as u32;
        let read = run(&mut some.iter().map(|span| Command::Read { span: span_of(*span), length_bytes }));
        for (token, span) in some.iter().enumerate() {
            let version = if span % 3 == 0 { 5 } else { 1 };
            assert!(
                read[&Token(token as u64)] == content(*span, version),
                "span {span} holds something else"
            );
        }
    }
    done(ControlRequest::Shutdown);
    reactor.stop();
    let written_bytes = file.metadata().unwrap().len();
    assert!(written_bytes > size_bytes, "{written_bytes} bytes of file for {size_bytes} bytes of volume");
}
