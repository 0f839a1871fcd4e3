//! How many die commands, bus phase included, the event model handles in a second of one core.
//!
//! `cargo run --release -p diecut-bench --example die_commands -- [COMMANDS]`: 4 KiB random reads of `cnex-1tb`, every
//! one of its 64 dies busy with four commands in its queue. The rate counts the processor time of this thread, so that
//! what else the machine does disturbs it little; the time by the clock stands beside it.

use diecut_devices::{Backing, Device, Options, Profile};
use diecut_media::{Command, Completion, Media, MediaToken, Operation};
use diecut_units::{BlockIndex, Buffer, BufferMut, ContentMode, Payload, Time};

fn main() {
    let commands: u64 = std::env::args().nth(1).map_or(Ok(20_000_000), |text| text.parse()).expect("a count");
    let mut profile = Profile::named("cnex-1tb").expect("built in");
    profile.bad_blocks.factory_percent = 0.0;
    let mut device = Device::create(&profile, Options { backing: Backing::Tags, ..Options::default() })
        .expect("tags need little memory");
    let geometry = *device.geometry();
    let mut completions: Vec<Completion> = Vec::new();
    let mut now = Time::ZERO;
    let unit_ius = device.capabilities().program_unit_pages * geometry.ius_per_page();
    for (number, die) in geometry.all_dies().enumerate() {
        let payload = Payload::new(ContentMode::Tags, Buffer::copy_from(&vec![1; unit_ius as usize * 8]));
        let pages = device.capabilities().program_unit_pages;
        let oob = Buffer::copy_from(&vec![0; (pages * geometry.oob_size_bytes) as usize]);
        let parts = [payload].into_iter().collect();
        let operation =
            Operation::Program { block: die.erase_block(BlockIndex(0)), first_page: 0, parts, oob };
        device.submit(Command { token: MediaToken(number as u64), operation }, now);
    }
    while device.next_event() != Time::NEVER {
        now = now.max(device.next_event());
        device.advance(now, &mut completions);
    }
    completions.clear();
    let mut state = 88_172_645_463_325_252u64;
    let mut read = |device: &mut Device, token: u64, destination: BufferMut, now: Time| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let block = geometry.die_at(token as u32 % geometry.dies()).erase_block(BlockIndex(0));
        let first_iu = (state >> 33) as u32 % unit_ius;
        let operation = Operation::Read { block, first_iu, iu_count: 1, destination, oob: None };
        device.submit(Command { token: MediaToken(token), operation }, now);
    };
    for token in 0..u64::from(geometry.dies()) * 4 {
        read(&mut device, token, BufferMut::copy_from(&[0; 8]), now);
    }
    #[allow(clippy::disallowed_methods, reason = "this program measures")]
    let (start, processor_start) = (std::time::Instant::now(), processor_seconds());
    let begun = now;
    let mut done = 0u64;
    while done < commands {
        now = now.max(device.next_event());
        device.advance(now, &mut completions);
        done += completions.len() as u64;
        for completion in completions.drain(..) {
            let destination = completion.destination.expect("reads come back with their buffer");
            read(&mut device, completion.token.0, destination, now);
        }
    }
    let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds() - processor_start);
    println!(
        "{:.2} million die commands/s of one core ({done} reads of 4 KiB on {} dies, {:.3} s of virtual time in {processor:.2} s of processor time, {seconds:.2} s by the clock)",
        done as f64 / processor / 1e6,
        geometry.dies(),
        now.since(begun).as_secs_f64(),
    );
}

/// Processor time of this thread so far.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is what the call fills in.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "a thread has a clock");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
