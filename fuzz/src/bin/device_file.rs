//! Device images: the header, the block table and the page marks of a file that anyone may have written.
#![no_main]

use diecut_emulator::{Backing, Device, Options, Pacing, Profile};
use diecut_fuzz::{Input, bounded};
use diecut_media::{Command, Completion, Media, MediaToken, Operation};
use diecut_units::{BlockIndex, Buffer, BufferMut, Time, checksum};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

diecut_fuzz::target!(seeds, check);

const HEADER_SIZE_BYTES: usize = 16384;
const PROFILE_OFFSET: usize = 128;
/// Table and marks of this small device lie in the pages behind the header.
const EDITABLE_SIZE_BYTES: usize = HEADER_SIZE_BYTES + 3 * 4096;

const HEADER: u8 = 0;
const PROFILE: u8 = 1;
const BEHIND: u8 = 2;
const LENGTH: u8 = 3;

fn profile() -> Profile {
    let mut profile = Profile::named("tiny").expect("a built-in profile");
    (profile.geometry.channels, profile.geometry.dies_per_channel) = (1, 2);
    (profile.geometry.blocks_per_plane, profile.geometry.planes_per_die) = (10, 1);
    profile.protected_memory_bytes = 4096;
    profile
}

fn options() -> Options {
    Options { pacing: Pacing::Unpaced, ..Options::default() }
}

/// A device file that is bent, opened and put right again.
struct Image {
    file: tempfile::NamedTempFile,
    front: Vec<u8>,
    length: u64,
}

impl Image {
    fn new() -> Image {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::remove_file(file.path()).expect("it is ours");
        let options = Options { backing: Backing::File(file.path().to_owned()), ..options() };
        let mut device = Device::create(&profile(), options).expect("a device");
        work(&mut device);
        drop(device);
        let mut front = vec![0; EDITABLE_SIZE_BYTES];
        let written = File::open(file.path()).expect("it is there");
        written.read_exact_at(&mut front, 0).expect("it is that long");
        let length = written.metadata().expect("it is there").len();
        Image { file, front, length }
    }

    fn check(&self, mut input: Input<'_>) {
        let mut front = self.front.clone();
        let mut length = self.length;
        let mode = input.byte();
        while !input.is_empty() {
            let (kind, at, count) = (input.byte() % 4, usize::from(input.u16()), usize::from(input.byte()));
            let (first, end) = match kind {
                HEADER => (0, HEADER_SIZE_BYTES),
                PROFILE => (PROFILE_OFFSET, HEADER_SIZE_BYTES),
                BEHIND => (HEADER_SIZE_BYTES, EDITABLE_SIZE_BYTES),
                LENGTH => {
                    length = (at as u64) << (count & 15);
                    continue;
                }
                _ => unreachable!("four kinds"),
            };
            let bytes = input.bytes(count);
            let at = first + at % (end - first);
            let room = bytes.len().min(end - at);
            front[at..at + room].copy_from_slice(&bytes[..room]);
        }
        if mode & 1 != 0 {
            if mode & 2 != 0 {
                // The text ends where its zeros begin.
                let text = &front[PROFILE_OFFSET..HEADER_SIZE_BYTES];
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                front[80..84].copy_from_slice(&(end as u32).to_le_bytes());
            }
            front[12..16].fill(0);
            let sum = checksum(&front[..HEADER_SIZE_BYTES]);
            front[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        let file = File::options().write(true).open(self.file.path()).expect("it is there");
        file.write_all_at(&front, 0).expect("it can be written");
        // A file that was cut is grown to its length again: what was behind the cut is zeros then.
        file.set_len(length).expect("it can be cut or grown");
        let opened = bounded(16 << 20, || Device::open(self.file.path(), options()));
        match opened {
            Ok(mut device) => {
                device.profile().validate().expect("the profile of a device is right");
                work(&mut device);
                let profile = device.profile().clone();
                drop(device);
                let again = Device::open(self.file.path(), options()).expect("what was used opens again");
                assert_eq!(*again.profile(), profile);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        file.set_len(self.length).expect("it can be cut or grown");
        file.write_all_at(&self.front, 0).expect("it can be written");
    }
}

/// Reads, erases, programs and reads a block of each die: the flash rules hold whatever the file said.
fn work(device: &mut Device) {
    let geometry = *device.geometry();
    let unit_pages = device.capabilities().program_unit_pages;
    let (page, oob) = (geometry.page_size_bytes as usize, geometry.oob_size_bytes as usize);
    let mut completions: Vec<Completion> = Vec::new();
    let mut now = Time::ZERO;
    for die in geometry.all_dies().take(4) {
        let blocks = (0..geometry.blocks_per_plane.min(16)).map(|block| die.erase_block(BlockIndex(block)));
        for block in blocks.filter(|&block| !device.is_factory_bad(block)).collect::<Vec<_>>() {
            let content = Buffer::copy_from(&vec![0x5A; page * unit_pages as usize]);
            let payload = diecut_units::Payload::new(diecut_units::ContentMode::Bytes, content);
            let spare = || BufferMut::copy_from(&vec![0; oob]);
            let operations = [
                Operation::ReadOob { block, first_page: 0, oob: spare() },
                Operation::Erase { block },
                Operation::Program {
                    block,
                    first_page: 0,
                    parts: [payload].into_iter().collect(),
                    oob: Buffer::copy_from(&vec![0; oob * unit_pages as usize]),
                },
                Operation::ReadOob { block, first_page: 0, oob: spare() },
            ];
            for operation in operations {
                let is_erase = matches!(operation, Operation::Erase { .. });
                device.submit(Command { token: MediaToken(0), operation }, now);
                completions.clear();
                while completions.is_empty() {
                    assert_ne!(device.next_event(), Time::NEVER, "what was submitted completes");
                    now = now.max(device.next_event());
                    device.advance(now, &mut completions);
                }
                if is_erase && completions[0].result.is_err() {
                    break;
                }
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let image = Image::new();
    let edit = |kind: u8, at: u16, bytes: &[u8]| {
        [&[kind][..], &at.to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    let text = &image.front[PROFILE_OFFSET..];
    let channels = text.windows(8).position(|window| window == b"channels").expect("a profile has channels");
    vec![
        vec![0],
        [&[1][..], &edit(HEADER, 16, &7u64.to_le_bytes())].concat(),
        [&[3][..], &edit(PROFILE, channels as u16 + 11, b"2")].concat(),
        [&[1][..], &edit(BEHIND, 0, &[8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0])].concat(),
        [&[1][..], &edit(BEHIND, 4096, &[1, 2, 0, 1])].concat(),
        // Pages that lie nowhere, and at the place of another block.
        [&[1][..], &edit(BEHIND, 8, &[0, 255, 255, 255])].concat(),
        [&[1][..], &edit(BEHIND, 8, &[0, 3, 0, 0])].concat(),
        [&[1][..], &edit(LENGTH, 4096, &[])].concat(),
    ]
}

fn check(bytes: &[u8]) {
    thread_local!(static IMAGE: RefCell<Option<Image>> = const { RefCell::new(None) });
    IMAGE.with_borrow_mut(|image| image.get_or_insert_with(Image::new).check(Input::new(bytes)));
}
