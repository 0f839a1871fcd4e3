//! Goal: what a host reads of its media's health is so: starts and cuts, what it read and wrote, how much of the life and of the reserve is
//! used. Method: shards in virtual time, hosts over NVMe/TCP, deaths and cuts between lives.

use crate::herd::{Herd, Host, device};
use diecut_nvme::SubmissionEntry;
use diecut_nvme::identify::{IdentifyNamespace, NSFEAT_THIN};
use diecut_nvme::log_page::{SmartLog, lid};
use diecut_nvme::opcode::admin;
use diecut_spec::Isolation;
use diecut_units::Time;
use zerocopy::FromBytes;

fn run(herd: &mut Herd, host: &mut Host, commands: u64) {
    let goal = host.done + commands;
    for _ in 0..2_000_000 {
        if host.done >= goal && host.is_idle() {
            return;
        }
        host.work(herd, host.done < goal);
        herd.step();
    }
    panic!("a host is never served");
}

fn smart(herd: &mut Herd, host: &mut Host) -> SmartLog {
    SmartLog::read_from_bytes(&host.log_page(herd, lid::SMART, 512)).expect("512 bytes")
}

/// Lets the shards look at all subsystems again.
fn look_again(herd: &mut Herd, host: &mut Host) -> SmartLog {
    let end = herd.now + diecut_units::Span::from_millis(3000);
    while herd.now < end {
        herd.now += diecut_units::Span::from_millis(100);
        host.work(herd, false);
        herd.step();
    }
    smart(herd, host)
}

fn figures_are_kept() {
    for shards in [1, 2] {
        let mut herd = Herd::new(device(shards.into()), shards, 5, Time::ZERO);
        herd.add_tenant("a", Isolation::Channel, 0);
        herd.add_tenant("b", Isolation::Channel, 0);
        let mut host = Host::new("b", 1);
        for (starts, cuts) in [(1, 0), (2, 1), (3, 2)] {
            run(&mut herd, &mut host, 50);
            let log = look_again(&mut herd, &mut host);
            let counted = (log.power_cycles.get(), log.unsafe_shutdowns.get());
            assert_eq!(counted, (starts, cuts), "{shards} shards");
            assert_eq!(log.available_spare_percent, 100);
            assert_eq!(log.critical_warning, 0);
            assert_eq!(log.media_errors.get(), 0);
            assert!(log.host_read_commands.get() > 0 && log.host_write_commands.get() > 0);
            let commands = log.host_read_commands.get() + log.host_write_commands.get();
            assert!((50..70).contains(&commands), "{commands} since the start");
            host.server_died();
            let (device, now) = herd.end(true);
            herd = Herd::new(device, shards, 5 + starts as u64, now);
        }
    }
}

#[test]
fn smart_logs_say_what_happened() {
    figures_are_kept();
}

/// The test above fails where nobody looks.
#[test]
fn health_that_nobody_looks_at_is_noticed() {
    diecut_testing::planted::is_noticed("shard: hosts are told of new flash for ever", figures_are_kept);
}

fn namespace(herd: &mut Herd, host: &mut Host) -> IdentifyNamespace {
    let entry = SubmissionEntry { opcode: admin::IDENTIFY, nsid: 1.into(), ..SubmissionEntry::default() };
    let (status, page) = host.admin_command(herd, entry, None, 4096);
    assert!(status.is_success(), "{status:?}");
    IdentifyNamespace::read_from_bytes(&page).expect("4096 bytes")
}

/// What hosts read as allocated (NUSE) is what volumes hold, after restarts and cuts too.
#[test]
fn namespaces_say_how_much_of_them_is_used() {
    for shards in [1, 2] {
        let mut herd = Herd::new(device(7 + u64::from(shards)), shards, 9, Time::ZERO);
        herd.add_tenant("a", Isolation::Channel, 0);
        herd.add_tenant("b", Isolation::Channel, 0);
        let mut host = Host::new("b", 1);
        for life in 0..2 {
            run(&mut herd, &mut host, 50);
            look_again(&mut herd, &mut host);
            let page = namespace(&mut herd, &mut host);
            let status = herd.status();
            let volume = status.volumes.iter().find(|one| one.spec.name == "volume-b").expect("it is there");
            assert_eq!(page.nuse.get() * 4096, volume.used_bytes, "life {life}, {shards} shards");
            assert!(page.nuse.get() > 0 && page.nuse.get() < page.ncap.get(), "life {life}");
            assert_ne!(page.nsfeat & NSFEAT_THIN, 0);
            host.server_died();
            let (device, now) = herd.end(life == 0);
            herd = Herd::new(device, shards, 10 + life, now);
        }
        // What was deallocated is not used any more.
        run(&mut herd, &mut host, 1);
        let entry =
            SubmissionEntry { opcode: admin::FORMAT_NVM, nsid: 1.into(), ..SubmissionEntry::default() };
        assert!(host.admin_command(&mut herd, entry, None, 0).0.is_success());
        look_again(&mut herd, &mut host);
        assert_eq!(namespace(&mut herd, &mut host).nuse.get(), 0);
    }
}
