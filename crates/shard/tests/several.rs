//! Goal: a server on several drives serves what lies on those that are there, and finds everything again when all are. Method: lives on three
//! drives, each ended by a cut at some event; the drives change their order, one of them is away for a life, and catalogs that missed changes are
//! there again.

use crate::drives::{Known, LBAS, Labelled, SIZE_BYTES, World, find, requests, work};
use diecut_namespace::contract::*;
use diecut_shard::DeviceIndex;
use diecut_shard::control::*;
use diecut_spec::{Isolation, TenantSpec, VssdSpec};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::planted::is_noticed;
use diecut_units::{Buffer, BufferMut, IU_SIZE_BYTES, Span};
use std::collections::BTreeSet;

const DRIVES: u8 = 3;

fn forever() -> u64 {
    u64::MAX
}

fn done(answer: Option<ControlResponse>) {
    assert!(matches!(answer, Some(ControlResponse::Done | ControlResponse::Unchanged)), "{answer:?}");
}

fn refusal(answer: Option<ControlResponse>) -> String {
    let Some(ControlResponse::Refused(error)) = answer else { panic!("{answer:?}") };
    error.message
}

/// Three drives with a pool, each of another size.
fn made(seed: u64) -> Vec<Labelled> {
    let size_bytes = |device: u8| SIZE_BYTES + (u64::from(device) << 24);
    let drives =
        (1..=DRIVES).map(|device| Labelled::new(device, size_bytes(device), seed + u64::from(device)));
    let mut world = World::new(drives.collect(), 0, true);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    world.end(true)
}

/// What hosts and administrators know.
struct All {
    /// By drive, and one with parts on all of them.
    volumes: Vec<Known>,
    tenants: BTreeSet<String>,
}

impl All {
    /// Whether all that a volume lies on is there, if `away` is not.
    fn is_whole(volume: &Known, away: Option<&Labelled>) -> bool {
        away.is_none_or(|away| {
            volume.namespace <= DRIVES.into() && u32::from(away.device) != volume.namespace
        })
    }
}

/// A tenant with a volume on each drive, by name, and one with a volume on all of them.
fn settled(seed: u64) -> (Vec<Labelled>, All) {
    let mut world = World::new(made(seed), 0, false);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    let mut all = All { volumes: Vec::new(), tenants: BTreeSet::new() };
    for device in 1..=DRIVES {
        let name = format!("tenant{device}");
        for request in requests(&name, vec![format!("drive-{device:x}")]) {
            done(world.ask(request, &mut forever()));
        }
        all.volumes.push(Known::new(device.into()));
        all.tenants.insert(name);
    }
    // Units take turns in this order, whatever the order of the drives is later.
    let wide = ["drive-3", "drive-1", "drive-2"].map(str::to_owned);
    for request in requests("wide", wide.to_vec()) {
        done(world.ask(request, &mut forever()));
    }
    all.volumes.push(Known::new(u32::from(DRIVES) + 1));
    all.tenants.insert("wide".to_owned());
    for (at, drive) in world.drives.iter().enumerate() {
        assert_eq!(world.shard.pool_of(DeviceIndex(at as u16)).vssd_ids().count(), 2, "{}", drive.name());
    }
    (world.end(true), all)
}

fn shuffle(drives: &mut [Labelled], random: &mut Random) {
    for at in (1..drives.len()).rev() {
        drives.swap(at, random.below(at as u64 + 1) as usize);
    }
}

fn lives(seed: u64) {
    let mut random = Random::of(seed);
    let (mut drives, mut all) = settled(seed);
    let (mut away, mut asked) = (None::<Labelled>, None::<String>);
    for life in 0..8u64 {
        let place = format!("seed {seed}, life {life}");
        shuffle(&mut drives, &mut random);
        match away.take() {
            Some(back) => drives.push(back),
            None if random.below(3) == 0 => away = drives.pop(),
            None => {}
        }
        let mut world = World::new(drives, u16::from(away.is_some()), false);
        assert!(world.open(&mut forever()), "{place}: {:?}", world.shard.failure());
        let found: BTreeSet<String> = world.shard.state().tenants.keys().cloned().collect();
        let mut with = all.tenants.clone();
        with.extend(asked.take());
        assert!(found == all.tenants || found == with, "{place}: {found:?}, {:?} or {with:?}", all.tenants);
        all.tenants = found;
        for known in &mut all.volumes {
            if All::is_whole(known, away.as_ref()) {
                find(&mut world, known, &place);
            }
        }
        let mut events = 200 + random.below(2000);
        while events > 0 {
            let name = format!("life-{life}-{}", world.tokens);
            match world.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)), &mut events) {
                Some(answer) => {
                    done(Some(answer));
                    all.tenants.insert(name);
                }
                None => asked = Some(name),
            }
            let known = &mut all.volumes[random.below(u64::from(DRIVES) + 1) as usize];
            if All::is_whole(known, away.as_ref()) {
                let mut part = events.min(random.below(300));
                events -= part;
                work(&mut world, known, &mut random, &mut part);
            }
        }
        drives = world.end(random.below(4) > 0);
    }
}

fn all_lives() {
    (0..depth(6, 400)).for_each(lives);
}

#[test]
fn what_lies_on_several_drives_is_found_again() {
    all_lives();
}

#[test]
fn planted_bugs_of_several_drives_are_noticed() {
    is_noticed("shard: catalogs of several devices go on each from its own state", all_lives);
    is_noticed("shard: the oldest catalog counts", all_lives);
    is_noticed("shard: a change holds that one device has", two_slow_drives);
    is_noticed("vssd: a flush is answered at once", all_lives);
    is_noticed("vssd: one part answers for all", all_lives);
}

/// Goal: a vSSD lies on the drive that an administrator names, or on the one of which least was given away; its record says which, and numbers are
/// given once.
#[test]
fn a_vssd_lies_where_it_is_wanted_or_where_there_is_room() {
    let mut world = World::new(made(7), 0, false);
    assert!(world.open(&mut forever()));
    done(world.ask(ControlRequest::CreateTenant(TenantSpec::new("acme")), &mut forever()));
    let spec = |name: &str, device: Option<&str>| {
        let usual = VssdSpec::new(name, "acme", Isolation::Channel, 280);
        ControlRequest::CreateVssd(VssdSpec {
            device: device.map(str::to_owned).into_iter().collect(),
            ..usual
        })
    };
    let error = refusal(world.ask(spec("x", Some("drive-9")), &mut forever()));
    assert!(
        error.contains("there is no device \"drive-9\"; there is \"drive-1\", \"drive-2\", \"drive-3\""),
        "{error}"
    );
    done(world.ask(spec("wanted", Some("drive-2")), &mut forever()));
    for name in ["a", "b", "c", "d", "e"] {
        done(world.ask(spec(name, None), &mut forever()));
    }
    let vssds = &world.shard.state().vssds;
    assert_eq!(vssds["wanted"].device, ["drive-2"]);
    for device in 0..DRIVES {
        let ids: Vec<u32> =
            world.shard.pool_of(DeviceIndex(device.into())).vssd_ids().map(|id| id.0).collect();
        assert_eq!(ids.len(), 2, "they are spread");
        let name = format!("drive-{:x}", device + 1);
        let said = vssds.values().filter(|vssd| vssd.device == [name.as_str()]);
        assert_eq!(said.map(|vssd| vssd.number).collect::<BTreeSet<_>>(), ids.into_iter().collect());
    }
    // A drive that is full is full, whatever the others have.
    for name in ["f", "g"] {
        done(world.ask(spec(name, Some("drive-1")), &mut forever()));
    }
    let error = refusal(world.ask(spec("h", Some("drive-1")), &mut forever()));
    assert!(error.contains("vSSD \"h\""), "{error}");
    done(world.ask(spec("h", None), &mut forever()));
}

/// Goal: without one of its drives a server serves the rest, says what is away, and refuses by name what would change it.
#[test]
fn what_is_away_is_named_and_stays_as_it_is() {
    let (mut drives, mut all) = settled(11);
    let mut world = World::new(drives, 0, false);
    assert!(world.open(&mut forever()));
    let mut random = Random::of(11);
    for known in &mut all.volumes {
        work(&mut world, known, &mut random, &mut 500);
    }
    drives = world.end(false);
    let away = drives.remove(1);
    let mut world = World::new(drives, 1, false);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    for at in [0, 2] {
        find(&mut world, &mut all.volumes[at], "one is away");
    }
    let status = world.shard.status();
    let vssd = status.vssds.iter().find(|vssd| vssd.spec.name == "tenant2-vssd").unwrap();
    assert_eq!(vssd.health.read_only_reason.as_deref(), Some("its device \"drive-2\" is not there"));
    assert_eq!((status.vssds.len(), status.volumes.len(), status.devices.len()), (4, 4, 2));
    for request in [
        ControlRequest::DeleteVssd("tenant2-vssd".to_owned()),
        ControlRequest::RepairVssd { vssd: "tenant2-vssd".to_owned(), accepts_loss: true },
        ControlRequest::DeleteVolume("tenant2-data".to_owned()),
        ControlRequest::DeleteVssd("wide-vssd".to_owned()),
    ] {
        let error = refusal(world.ask(request, &mut forever()));
        assert!(error.contains("\"drive-2\" is not there"), "{error}");
    }
    // It is neither made again elsewhere, nor is its number given.
    let again = requests("tenant2", vec!["drive-2".to_owned()]);
    for request in again {
        let is_subsystem = matches!(request, ControlRequest::CreateSubsystem(_));
        let is_volume = matches!(request, ControlRequest::CreateVolume(_));
        let answer = world.ask(request, &mut forever());
        if is_subsystem || is_volume {
            assert!(refusal(answer).contains("is not there"));
        } else {
            done(answer);
        }
    }
    let other = VssdSpec::new("other", "tenant1", Isolation::Channel, 280);
    done(world.ask(ControlRequest::CreateVssd(other), &mut forever()));
    let numbers: BTreeSet<u32> = world.shard.state().vssds.values().map(|vssd| vssd.number).collect();
    assert_eq!(numbers.len(), 5);
    work(&mut world, &mut all.volumes[0], &mut random, &mut 500);
    drives = world.end(true);
    drives.insert(0, away);
    let mut world = World::new(drives, 0, false);
    assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
    for known in &mut all.volumes {
        find(&mut world, known, "all are there again");
    }
    assert_eq!(world.shard.state().vssds.len(), 5);
    done(
        world.ask(
            ControlRequest::DeleteSubsystem("nqn.2026-11.org.diecut:tenant2".to_owned()),
            &mut forever(),
        ),
    );
    done(world.ask(ControlRequest::DeleteVolume("tenant2-data".to_owned()), &mut forever()));
    done(world.ask(ControlRequest::DeleteVssd("tenant2-vssd".to_owned()), &mut forever()));
}

/// Goal: a drive of a pool that was not formatted for it, or whose catalog is gone, is not taken for one that missed changes.
#[test]
fn a_pool_needs_enough_of_its_drives() {
    let (mut drives, _) = settled(12);
    // Two of three are away: others may have gone on.
    drives.truncate(1);
    let mut world = World::new(drives, 2, false);
    let is_open = world.open(&mut forever());
    assert!(!is_open && world.shard.failure().is_some(), "one of three is too few");
}

/// Goal: a drive that goes while it is served is felt by nobody who does not lie on it, changes of administrators are made without it, and what was
/// flushed is there when it is back. Method: one of three drives fails all that it is asked; hosts of all volumes go on.
#[test]
fn a_drive_that_goes_is_felt_by_those_on_it_only() {
    for seed in 0..depth(4, 100) {
        let mut random = Random::of(seed);
        let (drives, mut all) = settled(20 + seed);
        let mut world = World::new(drives, 0, false);
        assert!(world.open(&mut forever()));
        for known in &mut all.volumes {
            work(&mut world, known, &mut random, &mut 400);
        }
        let gone = random.below(DRIVES.into()) as usize;
        world.drives[gone].model.faults_mut().is_gone = true;
        let is_whole = |known: &Known| known.namespace <= DRIVES.into() && known.namespace != gone as u32 + 1;
        for round in 0..6 {
            for known in &mut all.volumes {
                if is_whole(known) {
                    work(&mut world, known, &mut random, &mut 200);
                    continue;
                }
                // They are answered, well or not.
                let range = LbaRange { first_lba: random.below(LBAS), lba_count: 1 };
                let operation = match round % 3 {
                    0 => NamespaceOperation::Flush,
                    1 => NamespaceOperation::Read {
                        range,
                        destination: BufferMut::copy_from(&[0; IU_SIZE_BYTES]),
                    },
                    _ => {
                        known.version += 1;
                        known.versions.write(range.first_lba..range.first_lba + 1, known.version);
                        NamespaceOperation::Write {
                            range,
                            data: Buffer::copy_from(&known.version.to_le_bytes().repeat(IU_SIZE_BYTES / 8)),
                            force_unit_access: true,
                            placement: PlacementTarget::default(),
                        }
                    }
                };
                let answer = world.try_command(known.namespace, operation, &mut forever());
                assert!(answer.is_some(), "seed {seed}: it is answered");
            }
            let name = format!("late-{round}");
            done(world.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)), &mut forever()));
            all.tenants.insert(name);
        }
        // It is back, or still away, when the server starts the next time; then all are there.
        let mut drives = world.end(random.below(2) == 0);
        drives[gone].model.faults_mut().is_gone = false;
        let mut back = Some(drives.remove(gone));
        if random.below(2) == 0 {
            drives.extend(back.take());
        }
        for _ in 0..2 {
            let mut world = World::new(drives, u16::from(back.is_some()), false);
            assert!(world.open(&mut forever()), "seed {seed}: {:?}", world.shard.failure());
            let found: BTreeSet<String> = world.shard.state().tenants.keys().cloned().collect();
            assert_eq!(found, all.tenants, "seed {seed}");
            for known in &mut all.volumes {
                if back.is_none() || is_whole(known) {
                    find(&mut world, known, &format!("seed {seed}"));
                }
            }
            drives = world.end(true);
            drives.extend(back.take());
        }
    }
}

/// Lives in which one drive after the other answers nothing for a while, and then the power goes.
fn slow_drives() {
    let (mut drives, mut all) = settled(31);
    for life in 0..6usize {
        let mut world = World::new(drives, 0, false);
        assert!(world.open(&mut forever()), "{:?}", world.shard.failure());
        let found: BTreeSet<String> = world.shard.state().tenants.keys().cloned().collect();
        assert_eq!(found, all.tenants, "life {life}");
        for known in &mut all.volumes {
            find(&mut world, known, "all answer again");
        }
        let slow = life % usize::from(DRIVES);
        let until = world.now + Span::from_secs(3600);
        world.drives[slow].model.faults_mut().stalled_until = until;
        let name = format!("life-{life}");
        let other = format!("drive-{:x}", (slow + 1) % usize::from(DRIVES) + 1);
        done(world.ask(ControlRequest::CreateTenant(TenantSpec::new(&name)), &mut forever()));
        all.tenants.insert(name.clone());
        // One that lies elsewhere is made and deleted meanwhile.
        let vssd =
            VssdSpec { device: vec![other], ..VssdSpec::new("elsewhere", &name, Isolation::Channel, 280) };
        done(world.ask(ControlRequest::CreateVssd(vssd), &mut forever()));
        done(world.ask(ControlRequest::DeleteVssd("elsewhere".to_owned()), &mut forever()));
        let mut random = Random::of(life as u64);
        for known in all
            .volumes
            .iter_mut()
            .filter(|known| known.namespace <= DRIVES.into() && known.namespace as usize != slow + 1)
        {
            work(&mut world, known, &mut random, &mut 200);
        }
        assert!(world.now < until, "nobody waits for the drive that hangs");
        drives = world.end(true);
    }
}

/// Two of three drives answer nothing: a start without the third would not know of a change that it alone has.
fn two_slow_drives() {
    let mut world = World::new(settled(32).0, 0, false);
    assert!(world.open(&mut forever()));
    for slow in [0, 2] {
        world.drives[slow].model.faults_mut().stalled_until = world.now + Span::from_secs(3600);
    }
    let answer = world.ask(ControlRequest::CreateTenant(TenantSpec::new("late")), &mut 10_000);
    assert!(!matches!(answer, Some(ControlResponse::Done)), "{answer:?}");
}

/// Goal: what one of three drives has is not made yet.
#[test]
fn a_change_waits_for_enough_drives() {
    two_slow_drives();
}

/// Goal: a drive that hangs keeps neither administrators waiting nor hosts on others, and what was answered meanwhile holds when the power goes. Method: one of
/// three drives after the other answers nothing for an hour.
#[test]
fn a_drive_that_hangs_keeps_nobody_waiting() {
    slow_drives();
}

/// Goal: a drive that does not answer is waited for by those who lie on it only: hosts of others and administrators go on, nothing is given away there, and what
/// it missed it has when it answers again. Method: one of three drives says nothing for a while; later, one that was there all the time is away for a life, so that
/// what the first one missed counts.
#[test]
fn a_drive_that_says_nothing_is_waited_for_by_those_on_it_only() {
    for seed in 0..depth(4, 100) {
        let mut random = Random::of(seed);
        let (drives, mut all) = settled(40 + seed);
        let mut world = World::new(drives, 0, false);
        assert!(world.open(&mut forever()));
        for known in &mut all.volumes {
            work(&mut world, known, &mut random, &mut 400);
        }
        let silent = random.below(DRIVES.into()) as usize;
        let name = world.drives[silent].name();
        let is_whole =
            |known: &Known| known.namespace <= DRIVES.into() && known.namespace != silent as u32 + 1;
        world.hang(Some(silent));
        for round in 0..4 {
            for known in all.volumes.iter_mut().filter(|known| is_whole(known)) {
                work(&mut world, known, &mut random, &mut 200);
            }
            let tenant = format!("late-{round}");
            let made = world.ask(ControlRequest::CreateTenant(TenantSpec::new(&tenant)), &mut 100_000);
            done(made);
            all.tenants.insert(tenant);
        }
        // Nothing is given away there.
        let vssd = |name: &str, device: &[&str]| {
            let device = device.iter().map(|name| (*name).to_owned()).collect();
            let vssd = VssdSpec { device, ..VssdSpec::new(name, "late-0", Isolation::Channel, 280) };
            ControlRequest::CreateVssd(vssd)
        };
        let said = refusal(world.ask(vssd("there", &[&name]), &mut 100_000));
        assert!(said.contains(&name) && said.contains("does not answer"), "{said}");
        done(world.ask(vssd("elsewhere", &[]), &mut 100_000));
        // It answers again, and takes what it missed.
        world.hang(None);
        done(world.ask(ControlRequest::CreateTenant(TenantSpec::new("back")), &mut forever()));
        all.tenants.insert("back".to_owned());
        for known in &mut all.volumes {
            work(&mut world, known, &mut random, &mut 200);
        }
        let mut drives = world.end(true);
        let other = (silent + 1 + random.below(2) as usize) % usize::from(DRIVES);
        let mut away = Some(drives.remove(other));
        for _ in 0..2 {
            let missing = away.as_ref().map(|away| away.device);
            let mut world = World::new(drives, u16::from(missing.is_some()), false);
            assert!(world.open(&mut forever()), "seed {seed}: {:?}", world.shard.failure());
            let found: BTreeSet<String> = world.shard.state().tenants.keys().cloned().collect();
            assert_eq!(found, all.tenants, "seed {seed}");
            let is_there = |known: &Known| {
                missing.is_none_or(|device| {
                    known.namespace <= DRIVES.into() && known.namespace != u32::from(device)
                })
            };
            for known in all.volumes.iter_mut().filter(|known| is_there(known)) {
                find(&mut world, known, &format!("seed {seed}"));
            }
            drives = world.end(true);
            drives.extend(away.take());
        }
    }
}
