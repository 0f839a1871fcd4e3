//! A catalog over erase blocks with any content: it finds a state, says what is wrong, or starts anew; what is put then is
//! found at the next opening.
#![no_main]

use diecut_catalog::fuzz::{Part, apply_records, encode_frame, encode_oob, encode_records, encode_state};
use diecut_catalog::{Catalog, State};
use diecut_emulator::{Device, Options, Pacing, Profile};
use diecut_fuzz::{Input, bounded, catalog_state};
use diecut_media::{Command, Completion, Media, MediaToken, Operation};
use diecut_spec::TenantSpec;
use diecut_units::{Buffer, ContentMode, EraseBlockAddress, Payload, Time};
use diecut_vssd::SystemArea;

diecut_fuzz::target!(seeds, check);

/// Frames that an input can write.
const FRAMES_MAX: usize = 12;

fn device() -> Device {
    let mut profile = Profile::named("tiny").expect("a built-in profile");
    (profile.geometry.channels, profile.geometry.dies_per_channel) = (2, 1);
    (profile.geometry.blocks_per_plane, profile.geometry.planes_per_die) = (8, 1);
    profile.protected_memory_bytes = 0;
    let options = Options { pacing: Pacing::Unpaced, ..Options::default() };
    Device::create(&profile, options).expect("a device")
}

fn blocks(device: &Device) -> [[EraseBlockAddress; 2]; 2] {
    let area = SystemArea::probe(device, 2, 0);
    let dies: Vec<Vec<EraseBlockAddress>> = (0..2).map(|die| area.catalog_blocks(die).to_vec()).collect();
    Catalog::choose_blocks(&dies).expect("the system area has blocks")
}

/// One frame: where it lies, what its OOB areas say, and its content.
fn frame(at: u8, sequence: u8, claims: [u8; 3], content: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16).to_le_bytes();
    [&[at, sequence][..], &claims, &[content], &length, bytes].concat()
}

const AS_IT_IS: u8 = 0;
const STATE: u8 = 1;
const RECORDS: u8 = 2;
const CHANGE: u8 = 3;
const CLAIMS_ARE_RIGHT: [u8; 3] = [0, 0, 0];

fn seeds() -> Vec<Vec<u8>> {
    let records = encode_state(&catalog_state());
    let at = |copy: u8, block: u8| copy | block << 1;
    vec![
        vec![],
        frame(at(0, 0), 3, CLAIMS_ARE_RIGHT, STATE, &[]),
        [
            frame(at(0, 0), 3, CLAIMS_ARE_RIGHT, STATE, &[]),
            frame(at(1, 0), 3, CLAIMS_ARE_RIGHT, RECORDS, &records),
        ]
        .concat(),
        [frame(at(0, 0), 3, CLAIMS_ARE_RIGHT, STATE, &[]), frame(at(0, 0), 4, CLAIMS_ARE_RIGHT, CHANGE, &[])]
            .concat(),
        [frame(at(0, 1), 4, [1, 9, 0], AS_IT_IS, &[7; 40]), frame(at(1, 1), 3, [2, 1, 1], STATE, &[])]
            .concat(),
    ]
}

struct Bench {
    device: Device,
    now: Time,
}

impl Bench {
    /// Everything that the device has to say, until it has nothing to do.
    fn run(&mut self, mut told: impl FnMut(Completion, &mut Device, Time)) {
        let mut completions = Vec::new();
        for _ in 0..10_000 {
            let next = self.device.next_event();
            if next == Time::NEVER {
                return;
            }
            self.now = self.now.max(next);
            self.device.advance(self.now, &mut completions);
            for completion in completions.drain(..) {
                told(completion, &mut self.device, self.now);
            }
        }
        panic!("a catalog comes to an end");
    }

    fn write_frame(&mut self, block: EraseBlockAddress, next_page: &mut u32, input: &mut Input<'_>) {
        let geometry = *self.device.geometry();
        let unit_pages = self.device.capabilities().program_unit_pages;
        let (sequence, claims) = (u64::from(input.byte()), input.array::<3>());
        let (kind, length) = (input.byte(), usize::from(input.u16()));
        let bytes = input.bytes(length);
        let sealed = |follows: u64, records: &[u8]| {
            encode_frame(&Part { sequence, follows, part: 0, parts: 1, records }, None)
        };
        let mut content = match kind % 4 {
            STATE => sealed(0, &encode_state(&catalog_state())),
            RECORDS => sealed(0, bytes),
            CHANGE if bytes.is_empty() => {
                let mut next = catalog_state();
                next.tenants.insert("zeta".to_owned(), TenantSpec::new("zeta"));
                sealed(sequence.saturating_sub(1), &encode_records(&catalog_state().changes_to(&next)))
            }
            CHANGE => sealed(sequence.saturating_sub(1), bytes),
            _ => bytes.to_vec(),
        };
        let page = geometry.page_size_bytes as usize;
        let room = geometry.pages_per_erase_block() - *next_page;
        let pages = (content.len().div_ceil(page).max(1) as u32).next_multiple_of(unit_pages);
        if pages > room {
            return;
        }
        content.resize(pages as usize * page, 0);
        let mut oob = vec![0; (pages * geometry.oob_size_bytes) as usize];
        for (number, area) in oob.chunks_exact_mut(geometry.oob_size_bytes as usize).enumerate() {
            let claimed = u32::from(claims[1]) << (claims[2] & 31);
            let pages = if claims[1] == 0 { pages } else { claimed };
            encode_oob(sequence, number as u32 + u32::from(claims[0]), pages, area);
        }
        let payload = Payload::new(ContentMode::Bytes, Buffer::copy_from(&content));
        let operation = Operation::Program {
            block,
            first_page: *next_page,
            parts: [payload].into_iter().collect(),
            oob: Buffer::copy_from(&oob),
        };
        *next_page += pages;
        self.device.submit(Command { token: MediaToken(0), operation }, self.now);
        self.run(|completion, _, _| assert!(completion.result.is_ok(), "no fault is planned"));
    }

    fn open(&mut self) -> Catalog {
        let blocks = blocks(&self.device);
        let mut catalog = Catalog::open(&mut self.device, [0; 16], blocks, self.now);
        self.run(|completion, device, now| catalog.complete(completion, device, now));
        assert!(catalog.is_open());
        catalog
    }
}

fn check(bytes: &[u8]) {
    bounded((16 << 20) + 64 * bytes.len(), || check_all(Input::new(bytes)));
}

fn check_all(mut input: Input<'_>) {
    let mut bench = Bench { device: device(), now: Time::ZERO };
    let blocks = blocks(&bench.device);
    for block in blocks.iter().flatten() {
        bench.device.submit(
            Command { token: MediaToken(0), operation: Operation::Erase { block: *block } },
            bench.now,
        );
        bench.run(|completion, _, _| assert!(completion.result.is_ok(), "no fault is planned"));
    }
    let mut next_pages = [0; 4];
    for _ in 0..FRAMES_MAX {
        if input.is_empty() {
            break;
        }
        let at = usize::from(input.byte() & 3);
        bench.write_frame(blocks[at & 1][at >> 1], &mut next_pages[at], &mut input);
    }
    let mut catalog = bench.open();
    let found = catalog.take_state();
    if let Some(error) = catalog.error() {
        assert!(found.is_none() && !error.to_string().is_empty());
        return;
    }
    let state = found.unwrap_or_default();
    state.check().expect("a state that was found makes sense");
    let mut again = State::default();
    apply_records(&mut again, &encode_state(&state)).expect("what was written is read");
    assert_eq!(again, state);
    let mut changed = state.clone();
    changed.pool.starts = changed.pool.starts.wrapping_add(1);
    let changes = state.changes_to(&changed);
    let Ok(wanted) = catalog.put(changes, &mut bench.device, bench.now) else { return };
    bench.run(|completion, device, now| catalog.complete(completion, device, now));
    assert_eq!(catalog.durable(), wanted, "a state that was put is durable");
    let mut again = bench.open();
    assert_eq!(again.take_state(), Some(changed));
    assert_eq!(again.error(), None);
}
