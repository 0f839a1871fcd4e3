//! Goal: a sanitize that was begun is carried out whatever comes between, restarts and power cuts; its hosts find zeros
//! and its result afterwards, hosts of others find what they wrote, and administrators take nothing away meanwhile. Method: shards in virtual
//! time, hosts over NVMe/TCP, power cuts at random moments.

use crate::herd::{Herd, Host, device, subsystem, volume, vssd};
use diecut_emulator::{Device, Fault, FaultyDie};
use diecut_initiator::openchannel::{OpenChannel, Request};
use diecut_media::Media;
use diecut_nvme::admin::FormatNvm;
use diecut_nvme::log_page::lid;
use diecut_nvme::openchannel::chunk_state;
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, action};
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_shard::control::*;
use diecut_spec::{Isolation, Serves, Size, ZoneSpec};
use diecut_testing::planted;
use diecut_units::{Buffer, Time};
use diecut_vssd::VssdId;
use zerocopy::FromBytes;

/// Blocks that hosts write.
const LBAS: u64 = 64;
const CDW10: u32 = 0x0A;

/// A host of a tenant.
struct Owner(Host);

impl Owner {
    fn new(name: &str, number: u8) -> Owner {
        Owner(Host::with_id(name, number.into(), [number; 16]))
    }

    fn meet(&mut self, herd: &mut Herd) {
        for _ in 0..200_000 {
            if self.0.is_ready() {
                return;
            }
            self.0.work(herd, false);
            herd.step();
        }
        panic!("a host is never served");
    }

    fn io(&mut self, herd: &mut Herd, code: u8, lba: u64, data: Option<u64>) -> (Status, Vec<u8>) {
        self.meet(herd);
        let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), ..Default::default() };
        diecut_nvme::io::LbaRange::plain(lba, 1).encode(&mut entry);
        let room = if data.is_none() { 8 } else { 0 };
        let data = data.map(|tag| Buffer::copy_from(&tag.to_le_bytes()));
        self.0.io_command(herd, entry, data, room)
    }

    fn fill(&mut self, herd: &mut Herd, seed: u64) {
        for lba in 0..LBAS {
            let (status, _) = self.io(herd, opcode::io::WRITE, lba, Some((seed << 32) | (lba + 1)));
            assert_eq!(status, Status::SUCCESS);
        }
    }

    /// Checks that all of it is what [`Owner::fill`] wrote, or zeros.
    fn look(&mut self, herd: &mut Herd, seed: Option<u64>) {
        for lba in 0..LBAS {
            let (status, data) = self.io(herd, opcode::io::READ, lba, None);
            let expected = seed.map_or(0, |seed| (seed << 32) | (lba + 1));
            assert_eq!((status, data), (Status::SUCCESS, expected.to_le_bytes().to_vec()), "block {lba}");
        }
    }

    fn entry() -> SubmissionEntry {
        let mut entry = SubmissionEntry { opcode: opcode::admin::SANITIZE, ..Default::default() };
        let sanitize = Sanitize { action: action::BLOCK_ERASE, unrestricted: true, ..Default::default() };
        sanitize.encode(&mut entry);
        entry
    }

    fn sanitize(&mut self, herd: &mut Herd) -> Status {
        self.meet(herd);
        self.0.admin_command(herd, Owner::entry(), None, 0).0
    }

    /// SPROG, SSTAT and SCDW10.
    fn figures(&mut self, herd: &mut Herd) -> (u16, u16, u32) {
        self.meet(herd);
        let page = self.0.log_page(herd, lid::SANITIZE_STATUS, 512);
        let log = SanitizeLog::read_from_bytes(&page).unwrap();
        (log.sprog.get(), log.sstat.get(), log.scdw10.get())
    }

    /// Waits until nothing goes on. How it ended.
    fn wait(&mut self, herd: &mut Herd) -> u16 {
        for _ in 0..100_000 {
            let (progress, status, _) = self.figures(herd);
            if status & 7 != 2 {
                assert_eq!(progress, 0xFFFF);
                return status;
            }
        }
        panic!("a sanitize never ends");
    }
}

fn cut(herd: Herd, owners: &mut [Owner], shards: u16, seed: u64, power: bool) -> Herd {
    owners.iter_mut().for_each(|one| one.0.server_died());
    let (device, now) = herd.end(power);
    Herd::new(device, shards, seed, now)
}

/// Two tenants with data.
fn world(shards: u16, seed: u64) -> (Herd, [Owner; 2]) {
    let mut herd = Herd::new(device(seed), shards, seed, Time::ZERO);
    let mut owners = [Owner::new("a", 1), Owner::new("b", 2)];
    for (owner, name) in owners.iter_mut().zip(["a", "b"]) {
        herd.add_tenant(name, Isolation::Channel, 0);
        owner.fill(&mut herd, seed);
    }
    (herd, owners)
}

fn told(herd: &mut Herd, name: &str) -> Option<SanitizeStatus> {
    let nqn = subsystem(name).nqn;
    herd.status().subsystems.into_iter().find(|one| one.spec.nqn == nqn).unwrap().sanitize
}

#[test]
fn a_subsystem_is_sanitized_and_others_are_not() {
    for (shards, seed) in [(1, 1), (2, 2), (3, 3)] {
        let (mut herd, mut owners) = world(shards, seed);
        let nqn = subsystem("a").nqn;
        assert_eq!(told(&mut herd, "a"), None);
        assert_eq!(owners[0].figures(&mut herd), (0xFFFF, 0, 0));
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        // Whoever asks now is told, and nothing is taken away or added.
        if owners[0].figures(&mut herd).1 & 7 == 2 {
            assert_eq!(told(&mut herd, "a").unwrap().state, SanitizeState::InProgress);
        }
        owners[1].look(&mut herd, Some(seed));
        assert_eq!(owners[0].wait(&mut herd), 0x101);
        owners[0].look(&mut herd, None);
        owners[1].look(&mut herd, Some(seed));
        // Also after a restart, and another one.
        for round in 0..2 {
            herd = cut(herd, &mut owners, shards, seed + 20 + round, round == 0);
            assert_eq!(owners[0].figures(&mut herd), (0xFFFF, 0x101, CDW10));
        }
        let state = SanitizeState::Completed;
        assert_eq!(told(&mut herd, "a"), Some(SanitizeStatus { state, progress_percent: None }));
        assert_eq!(told(&mut herd, "b"), None);
        // The result stands after a restart, and what is written since stays.
        owners[0].fill(&mut herd, 77);
        let nothing_is_erased = |herd: &Herd| !herd.shards[0].state().sanitizes[&nqn].is_erased;
        assert!((0..10_000).any(|_| {
            herd.step();
            nothing_is_erased(&herd)
        }));
        let mut herd = cut(herd, &mut owners, 1 + shards % 3, seed + 10, seed % 2 == 0);
        assert_eq!(owners[0].figures(&mut herd), (0xFFFF, 0x001, CDW10));
        owners[0].look(&mut herd, Some(77));
        owners[1].look(&mut herd, Some(seed));
        // A subsystem of the name that comes later was never sanitized.
        herd.done(ControlRequest::DeleteSubsystem(nqn));
        assert!(herd.shards[0].state().sanitizes.is_empty());
        herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
        assert_eq!(told(&mut herd, "a"), None);
    }
}

/// Cuts and deaths at any moment of it: once it was answered it is carried out.
fn cuts_at_any_moment() {
    let mut seen = [0; 3];
    for seed in 0..24u64 {
        let (mut herd, mut owners) = world(1 + (seed % 2) as u16, 100 + seed);
        owners[0].meet(&mut herd);
        // It begins, perhaps, and perhaps ends.
        let mut is_answered = false;
        if seed % 4 != 0 {
            assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
            is_answered = true;
        } else {
            owners[0].0.begin_admin(Owner::entry());
        }
        for _ in 0..1u64 << (seed * 2 / 3) {
            owners[0].0.work(&mut herd, false);
            herd.step();
        }
        let mut herd = cut(herd, &mut owners, 1 + (seed % 3) as u16, seed + 200, seed % 3 != 0);
        let known = herd.shards[0].state().sanitizes.get(&subsystem("a").nqn).copied();
        let Some(known) = known else {
            assert!(!is_answered, "seed {seed}: what was answered is forgotten");
            owners[0].look(&mut herd, Some(100 + seed));
            seen[0] += 1;
            continue;
        };
        seen[if known.state == SanitizeState::InProgress { 1 } else { 2 }] += 1;
        assert_eq!(owners[0].wait(&mut herd), 0x101, "seed {seed}: nothing was written since");
        assert_eq!(owners[0].figures(&mut herd).2, CDW10);
        owners[0].look(&mut herd, None);
        owners[1].look(&mut herd, Some(100 + seed));
    }
    assert!(seen.iter().all(|one| *one > 0), "cuts come before, amid and after: {seen:?}");
}

#[test]
fn a_sanitize_that_was_answered_is_carried_out() {
    cuts_at_any_moment();
}

/// One that goes on after a restart is not over before its subsystem is erased, whichever shard that lives on: the server goes once more meanwhile.
fn cuts_of_one_that_goes_on() {
    let mut amid = 0;
    for seed in 0..24u64 {
        let shards = 2 + (seed % 2) as u16;
        let (mut herd, mut owners) = world(shards, 300 + seed);
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        for round in 0..2 {
            herd = cut(herd, &mut owners, shards, 400 + 10 * seed + round, seed % 3 != 0);
            (0..seed * 4).for_each(|_| herd.step());
        }
        amid += u32::from(
            herd.shards[0].state().sanitizes[&subsystem("a").nqn].state == SanitizeState::InProgress,
        );
        assert_eq!(owners[0].wait(&mut herd), 0x101, "seed {seed}");
        owners[0].look(&mut herd, None);
        owners[1].look(&mut herd, Some(300 + seed));
    }
    assert!(amid > 6, "{amid} of 24 went on after two restarts");
}

#[test]
fn a_sanitize_that_goes_on_is_not_over_for_other_shards() {
    cuts_of_one_that_goes_on();
}

/// Its namespaces stay while it goes on, and no tenant moves.
fn administrators_wait() {
    let (mut herd, mut owners) = world(2, 40);
    let nqn = subsystem("a").nqn;
    let spare = VolumeSpec { name: "spare".to_owned(), ..volume("a") };
    herd.done(ControlRequest::CreateVolume(spare));
    let mut refused = 0;
    for round in 0..12u16 {
        owners[0].fill(&mut herd, u64::from(round));
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        let requests = [
            ControlRequest::DetachNamespace { subsystem: nqn.clone(), nsid: 1 },
            ControlRequest::AttachNamespace { subsystem: nqn.clone(), nsid: 2, volume: "spare".to_owned() },
            ControlRequest::DeleteSubsystem(nqn.clone()),
            ControlRequest::MoveTenant { tenant: "a".to_owned(), shard: 0 },
        ];
        let goes_on = |herd: &Herd| {
            let record = herd.shards[0].state().sanitizes.get(&nqn);
            record.is_some_and(|one| one.state == SanitizeState::InProgress)
        };
        if goes_on(&herd) {
            match herd.ask(requests[usize::from(round) % 4].clone()) {
                ControlResponse::Refused(error) => {
                    assert!(error.message.contains("is being sanitized"), "{}", error.message);
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(owners[0].wait(&mut herd), 0x101);
        owners[0].look(&mut herd, None);
        // Its result goes along.
        let shard = round % 2;
        herd.done(ControlRequest::MoveTenant { tenant: "a".to_owned(), shard });
        assert_eq!(owners[0].figures(&mut herd), (0xFFFF, 0x101, CDW10));
    }
    assert!(refused > 8, "requests met it: {refused}");
    owners[1].look(&mut herd, Some(40));
}

#[test]
fn namespaces_stay_while_they_are_sanitized() {
    administrators_wait();
}

/// The tests above fail where a bug is planted.
#[test]
fn planted_bugs_are_noticed() {
    planted::is_noticed("shard: sanitize operations are not restored", cuts_at_any_moment);
    planted::is_noticed("shard: namespaces go while sanitized", administrators_wait);
    planted::is_noticed("nvmf: a sanitize is gone on with by all shards", cuts_of_one_that_goes_on);
}

/// Goal: a move beside a Format that erases holds neither up, and hosts are not left waiting for its end: the tenant stays, and who asked is told.
/// Method: moves that are asked for at many moments of a Format.
#[test]
fn a_tenant_does_not_move_while_its_namespace_is_erased() {
    let (mut stayed, mut moved) = (0, 0);
    for moment in 0..40 {
        let (mut herd, mut owners) = world(2, moment);
        let (herd, owner) = (&mut herd, &mut owners[0]);
        let to = 1 - herd.home("vssd-a") as u16;
        owner.meet(herd);
        let mut entry =
            SubmissionEntry { opcode: opcode::admin::FORMAT_NVM, nsid: 1.into(), ..Default::default() };
        FormatNvm { erase: FormatNvm::USER_DATA_ERASE, ..FormatNvm::decode(&entry) }.encode(&mut entry);
        owner.0.begin_admin(entry);
        for _ in 0..moment * moment / 2 {
            owner.0.work(herd, false);
            herd.step();
        }
        let move_tenant = || ControlRequest::MoveTenant { tenant: "a".to_owned(), shard: to };
        let mut tries = 0;
        loop {
            let asked = herd.begin(move_tenant());
            let answer = loop {
                // Hosts are served meanwhile.
                owner.figures(herd);
                if let Some(answer) = herd.answer(asked) {
                    break answer;
                }
            };
            match answer {
                ControlResponse::Done => break,
                ControlResponse::Refused(error) => {
                    assert!(error.message.contains("erased"), "{}", error.message)
                }
                other => panic!("{other:?}"),
            }
            tries += 1;
            assert!(tries < 10_000, "moment {moment}: a tenant never moves");
        }
        if tries > 0 {
            stayed += 1
        } else {
            moved += 1
        }
        owner.look(herd, None);
        owners[1].look(herd, Some(moment));
    }
    assert!(stayed > 3 && moved > 0, "{stayed} stayed, {moved} moved");
}

/// IUs of a zone on one erase block of the device, zones that are written, and IUs that are written of each.
const ZONE_LBAS: u64 = 64;
const ZONES: u64 = 4;
const ZONE_WRITTEN: u64 = 20;

/// A tenant with a zoned namespace that has data. What may be forgotten is kept on the medium.
fn zoned_world(seed: u64) -> (Herd, [Owner; 1]) {
    let mut device = device(seed);
    device.keep_discarded();
    let mut herd = Herd::new(device, 1, seed, Time::ZERO);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let flash = VssdSpec { serves: Serves::Zones, ..vssd("a", "a", Isolation::Channel, 0) };
    herd.done(ControlRequest::CreateVssd(flash));
    let zones = ZoneSpec { units: Some(1), active: Some(5), open: Some(5), ..ZoneSpec::default() };
    herd.done(ControlRequest::CreateVolume(VolumeSpec { zones, ..volume("a") }));
    herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
    let mut owner = Owner::new("a", 1);
    fill_zones(&mut herd, &mut owner, seed);
    (herd, [owner])
}

fn zone_lbas() -> impl Iterator<Item = u64> {
    (0..ZONES).flat_map(|zone| (0..ZONE_WRITTEN).map(move |at| zone * ZONE_LBAS + at))
}

fn fill_zones(herd: &mut Herd, owner: &mut Owner, seed: u64) {
    for lba in zone_lbas() {
        let (status, _) = owner.io(herd, opcode::io::WRITE, lba, Some(MARK | (seed << 32) | lba));
        assert_eq!(status, Status::SUCCESS, "block {lba}");
    }
}

/// In front of what is looked for on the medium.
const MARK: u64 = 0x5a17 << 48;

/// IUs with data of hosts that lie anywhere.
fn remains(herd: &Herd) -> usize {
    let (mut found, device): (usize, &Device) = (0, herd.shards[0].media());
    let mut look = |bytes: &[u8]| {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        found += words.filter(|word| word >> 48 == MARK >> 48).count();
    };
    device.look_through(|_, iu| look(&iu[..8]));
    if let Some(memory) = device.protected_memory() {
        look(&memory.snapshot());
    }
    found
}

/// Goal: zones that are sanitized are empty, read as zeros, and nothing of them lies anywhere, also if the server goes meanwhile. Method: a
/// device that keeps what may be forgotten, power cuts and deaths at many moments.
#[test]
fn zones_are_sanitized() {
    for seed in 0..12 {
        let (mut herd, mut owners) = zoned_world(seed);
        assert!(remains(&herd) >= (ZONES * ZONE_WRITTEN) as usize, "seed {seed}: it lies somewhere");
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        if seed % 3 != 0 {
            (0..seed * 7).for_each(|_| herd.step());
            herd = cut(herd, &mut owners, 1, seed, seed % 3 == 1);
        }
        assert_eq!(owners[0].wait(&mut herd), 0x101, "seed {seed}: nothing was written since");
        assert_eq!(remains(&herd), 0, "seed {seed}");
        for lba in zone_lbas() {
            let (status, data) = owners[0].io(&mut herd, opcode::io::READ, lba, None);
            assert_eq!((status, data), (Status::SUCCESS, vec![0; 8]), "seed {seed}, block {lba}");
        }
        // Their write pointers are where they begin.
        fill_zones(&mut herd, &mut owners[0], seed);
    }
}

/// Goal: a zone that cannot be written to any more cannot be erased, and the sanitize says that it failed. Method: a die that does not answer
/// from some moment on.
#[test]
fn a_zone_that_is_read_only_is_not_sanitized() {
    let (mut herd, mut owners) = zoned_world(3);
    let number = herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(herd.shards[0].pool(), VssdId(number));
    let place = held[1].1;
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    let fault = Fault::DieOffline { die, from_ns: herd.now.0 };
    herd.shards[0].media_mut().add_fault(fault);
    for zone in 0..ZONES {
        for at in ZONE_WRITTEN..ZONE_LBAS {
            let (status, _) = owners[0].io(&mut herd, opcode::io::WRITE, zone * ZONE_LBAS + at, Some(MARK));
            if status != Status::SUCCESS {
                break;
            }
        }
    }
    assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
    assert_eq!(owners[0].wait(&mut herd) & 7, 3, "it failed");
}

/// Logical blocks of a chunk and of a program unit of the device, chunks of a die, and program units that are written of each.
const CHUNK_LBAS: u64 = 64;
const UNIT_LBAS: u32 = 8;
const CHUNKS_OF_DIE: u64 = 3;
const CHUNKS: u32 = 2 * CHUNKS_OF_DIE as u32;

/// A tenant with a namespace of chunks that has data, on two dies.
fn chunk_world(seed: u64) -> (Herd, [Owner; 1]) {
    let mut device = device(seed);
    device.keep_discarded();
    let mut herd = Herd::new(device, 1, seed, Time::ZERO);
    herd.done(ControlRequest::CreateTenant(TenantSpec::new("a")));
    let flash = VssdSpec { serves: Serves::OpenChannel, ..vssd("a", "a", Isolation::Channel, 0) };
    herd.done(ControlRequest::CreateVssd(flash));
    let size = Size(2 * CHUNKS_OF_DIE * CHUNK_LBAS * 4096);
    herd.done(ControlRequest::CreateVolume(VolumeSpec { size, ..volume("a") }));
    herd.done(ControlRequest::CreateSubsystem(subsystem("a")));
    let mut owner = Owner::new("a", 1);
    let mut open = look_at_chunks(&mut herd, &mut owner);
    for chunk in 0..CHUNKS {
        assert_eq!(write_chunk(&mut herd, &mut owner, &mut open, chunk), Status::SUCCESS);
    }
    (herd, [owner])
}

fn look_at_chunks(herd: &mut Herd, owner: &mut Owner) -> OpenChannel {
    owner.meet(herd);
    let ask = |herd: &mut Herd, owner: &mut Owner, request: Request| {
        let (status, data) = owner.0.admin_command(herd, request.entry, None, request.expected_bytes);
        assert_eq!(status, Status::SUCCESS);
        data
    };
    let geometry = ask(herd, owner, OpenChannel::ask_geometry(1));
    let mut open = OpenChannel::new(1, &geometry).expect("a geometry");
    let page = ask(herd, owner, open.ask_chunks(0, CHUNKS));
    open.take_chunks(0, &page);
    open
}

/// Writes to a chunk: the first one is full then, others are open.
fn write_chunk(herd: &mut Herd, owner: &mut Owner, open: &mut OpenChannel, chunk: u32) -> Status {
    let blocks = if chunk == 0 { CHUNK_LBAS as u32 } else { UNIT_LBAS * (1 + chunk % 3) };
    let data: Vec<u8> =
        (0..blocks).flat_map(|block| (MARK | u64::from(chunk << 8 | block)).to_le_bytes()).collect();
    let request = open.write(&[(chunk, blocks)], &data).expect("it takes writes");
    owner.meet(herd);
    let (status, _) = owner.0.io_command(herd, request.entry, request.data, 0);
    open.ended(&request.effect, status);
    status
}

fn states(open: &OpenChannel) -> Vec<(u8, u32)> {
    open.chunks().iter().map(|chunk| (chunk.state, chunk.written)).collect()
}

/// Goal: chunks that are sanitized are free, and nothing of them lies anywhere, also if the server goes meanwhile; then they are written anew.
/// Method: as for zones.
fn sanitize_chunks() {
    for seed in 0..12 {
        let (mut herd, mut owners) = chunk_world(seed);
        assert!(remains(&herd) >= CHUNK_LBAS as usize, "seed {seed}: it lies somewhere");
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        if seed % 3 != 0 {
            (0..seed * 5).for_each(|_| herd.step());
            herd = cut(herd, &mut owners, 1, seed, seed % 3 == 1);
        }
        assert_eq!(owners[0].wait(&mut herd), 0x101, "seed {seed}: nothing was written since");
        assert_eq!(remains(&herd), 0, "seed {seed}");
        let free = vec![(chunk_state::FREE, 0); CHUNKS as usize];
        assert_eq!(states(&look_at_chunks(&mut herd, &mut owners[0])), free, "seed {seed}");
        // Who looks after a restart finds nothing, too.
        let mut herd = cut(herd, &mut owners, 1, seed, seed % 2 == 0);
        assert_eq!(owners[0].figures(&mut herd), (0xFFFF, 0x101, CDW10), "seed {seed}");
        let mut open = look_at_chunks(&mut herd, &mut owners[0]);
        assert_eq!(states(&open), free, "seed {seed}");
        // Their write pointers are where they begin, and what is written is a write since.
        for chunk in 0..CHUNKS {
            assert_eq!(write_chunk(&mut herd, &mut owners[0], &mut open, chunk), Status::SUCCESS);
        }
        let mut herd = cut(herd, &mut owners, 1, seed, false);
        assert_eq!(owners[0].figures(&mut herd).1, 0x001, "seed {seed}");
    }
}

#[test]
fn chunks_are_sanitized() {
    sanitize_chunks();
}

/// Goal: hosts are not told that nothing was written since, when a write came to flash right before the server went, and before the catalog said
/// so. Method: deaths at each moment of the first write.
fn write_behind_a_sanitize() {
    let mut unknown = 0;
    for moment in 0..24 {
        let (mut herd, mut owners) = chunk_world(moment);
        assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
        assert_eq!(owners[0].wait(&mut herd), 0x101);
        let open = look_at_chunks(&mut herd, &mut owners[0]);
        let data: Vec<u8> = (0..u64::from(UNIT_LBAS)).flat_map(u64::to_le_bytes).collect();
        let request = open.clone().write(&[(3, UNIT_LBAS)], &data).expect("it takes writes");
        // The catalog has something else to write down before.
        for tenant in ["b", "c", "d"] {
            herd.begin(ControlRequest::CreateTenant(TenantSpec::new(tenant)));
        }
        owners[0].0.begin_io(request.entry, request.data, 0);
        for _ in 0..moment {
            owners[0].0.work(&mut herd, false);
            herd.step();
        }
        let mut herd = cut(herd, &mut owners, 1, moment, false);
        let is_known = !herd.shards[0].state().sanitizes[&subsystem("a").nqn].is_erased;
        let is_erased = owners[0].figures(&mut herd).1 == 0x101;
        let found = states(&look_at_chunks(&mut herd, &mut owners[0]));
        let is_written = found.iter().any(|(state, _)| *state != chunk_state::FREE);
        assert!(!(is_written && is_erased), "moment {moment}: {found:?}");
        unknown += u32::from(is_written && !is_known);
    }
    assert!(unknown > 0, "no write is there that the catalog does not know of");
}

#[test]
fn a_write_behind_a_sanitize_is_seen() {
    write_behind_a_sanitize();
}

/// Goal: what an offline chunk holds is not left out: where its die does not answer it cannot be erased, and the sanitize says that it failed.
/// Method: a die that does not answer while its chunks are written.
fn sanitize_offline_chunks() {
    let (mut herd, mut owners) = chunk_world(3);
    let number = herd.shards[0].state().vssds["vssd-a"].number;
    let held = diecut_vssd::held_blocks(herd.shards[0].pool(), VssdId(number));
    // The die without a chunk that is full: such a one is closed, and can be read for ever.
    let place = held.iter().find(|(held, _)| held.block.unit.0 == 1).expect("chunks have erase blocks").1;
    let die = FaultyDie { channel: place.channel.0, die: place.die.0 };
    let fault = Fault::DieOffline { die, from_ns: herd.now.0 };
    herd.shards[0].media_mut().add_fault(fault);
    let mut open = look_at_chunks(&mut herd, &mut owners[0]);
    for chunk in CHUNKS_OF_DIE as u32..CHUNKS {
        write_chunk(&mut herd, &mut owners[0], &mut open, chunk);
    }
    let found = states(&look_at_chunks(&mut herd, &mut owners[0]));
    assert!(found.iter().any(|(state, written)| *state == chunk_state::OFFLINE && *written > 0), "{found:?}");
    assert_eq!(owners[0].sanitize(&mut herd), Status::SUCCESS);
    assert_eq!(owners[0].wait(&mut herd) & 7, 3, "it failed");
}

#[test]
fn chunks_that_are_offline_are_not_sanitized() {
    sanitize_offline_chunks();
}

/// The tests of chunks fail where a bug is planted.
#[test]
fn planted_bugs_of_chunks_are_noticed() {
    planted::is_noticed("openchannel: what is offline is not cleared", sanitize_offline_chunks);
    planted::is_noticed("shard: data of chunks are not seen", write_behind_a_sanitize);
}
