//! Goal: a host hears of a zone that its medium cannot write to any more. Method: a shard in virtual time, a die that does not answer from some
//! moment on, and a host over NVMe/TCP that reads the changed zone list.

use crate::herd::{Herd, Host, device, subsystem, volume, vssd};
use diecut_emulator::{Fault, FaultyDie};
use diecut_namespace::contract::*;
use diecut_nvme::zns::{ChangedZoneList, LID_CHANGED_ZONES};
use diecut_shard::DOOR_SOURCE_BIT;
use diecut_shard::control::{ControlRequest, TenantSpec, VolumeSpec, VssdSpec};
use diecut_spec::{Isolation, Serves, ZoneSpec};
use diecut_units::{Buffer, Span, Time};
use diecut_vssd::VssdId;
use zerocopy::FromBytes;

/// IUs of a zone on one erase block of the device.
const ZONE_IUS: u64 = 64;

fn append(herd: &mut Herd, zone: u64, count: u32) {
    let namespace = NamespaceId(herd.shards[0].state().volumes["volume-a"].namespace);
    let data = Buffer::copy_from(&vec![7; count as usize * 8]);
    let request = ZoneRequest::Append { zone_lba: zone * ZONE_IUS, lba_count: count, data };
    let command = NamespaceCommand {
        token: CommandToken(zone),
        namespace,
        source: SourceId(DOOR_SOURCE_BIT | 1),
        arrived: herd.now,
        operation: NamespaceOperation::Zone(request),
    };
    herd.shards[0].submit(command);
}

/// Lets time pass, so that the shard looks at all subsystems again; then the zones of the list.
fn changed(herd: &mut Herd, host: &mut Host) -> Option<Vec<u64>> {
    let end = herd.now + Span::from_millis(3000);
    while herd.now < end {
        herd.now += Span::from_millis(10);
        host.work(herd, false);
        herd.step();
    }
    let page = host.log_page_of(herd, 1, LID_CHANGED_ZONES, 4096);
    ChangedZoneList::read_from_bytes(&page).expect("4096 bytes").zones()
}

#[test]
fn a_zone_that_wears_out_is_told() {
    let mut herd = Herd::new(device(3), 1, 5, Time::ZERO);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let flash = VssdSpec { serves: Serves::Zones, ..vssd("a", "a", Isolation::Channel, 0) };
    herd.done(ControlRequest::CreateVssd(flash));
    let zones = ZoneSpec { units: Some(1), active: Some(3), open: Some(3), ..ZoneSpec::default() };
    herd.done(ControlRequest::CreateVolume(VolumeSpec { zones, ..volume("a") }));
    herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
    let mut host = Host::new("a", 1);
    append(&mut herd, 2, 1);
    assert_eq!(changed(&mut herd, &mut host), Some(vec![]));
    let number = herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(herd.shards[0].pool(), VssdId(number));
    let [(_, place)] = held[..] else { panic!("one zone holds one block: {held:?}") };
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    let fault = Fault::DieOffline { die, from_ns: herd.now.0 };
    herd.shards[0].media_mut().add_fault(fault);
    append(&mut herd, 2, 32);
    assert_eq!(changed(&mut herd, &mut host), Some(vec![2 * ZONE_IUS]));
    assert_eq!(changed(&mut herd, &mut host), Some(vec![]), "each change is told once");
}
