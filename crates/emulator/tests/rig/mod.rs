//! A device with its clock, for tests.
#![allow(dead_code, reason = "each test program uses some of it")]

use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;

pub struct Rig {
    pub device: Device,
    pub now: Time,
    pub completions: Vec<Completion>,
}

pub const TINY_UNIT_PAGES: u32 = 2;

impl Rig {
    pub fn new(options: Options) -> Rig {
        Rig::over(Device::create(&Profile::named("tiny").unwrap(), options).unwrap())
    }
    pub fn over(device: Device) -> Rig {
        Rig { device, now: Time::ZERO, completions: Vec::new() }
    }
    pub fn submit(&mut self, token: u64, operation: Operation) {
        self.device.submit(Command { token: MediaToken(token), operation }, self.now);
    }
    /// Runs until nothing is under way and gives the completions.
    pub fn drain(&mut self) -> Vec<Completion> {
        loop {
            if let Some(number) = self.device.wants_sync() {
                let synced = self.device.sync_file().is_none_or(|file| file.sync().is_ok());
                self.device.synced(number, synced, self.now);
            }
            let next = self.device.next_event();
            if next == Time::NEVER {
                return std::mem::take(&mut self.completions);
            }
            self.now = self.now.max(next);
            self.device.advance(self.now, &mut self.completions);
        }
    }
    pub fn run(&mut self, operation: Operation) -> Result<Option<BufferMut>, MediaError> {
        self.submit(1, operation);
        let mut done = self.drain();
        assert_eq!(done.len(), 1, "one completion for one command");
        let done = done.remove(0);
        done.result.map(|()| done.destination.or(done.oob))
    }
    pub fn good_block(&self, die: (u16, u16), nth: usize) -> EraseBlockAddress {
        let die = DieAddress::new(die.0, die.1);
        let all = (0..self.device.geometry().erase_blocks_per_die())
            .map(|index| die.erase_block(BlockIndex(index)));
        all.filter(|block| !self.device.is_factory_bad(*block)).nth(nth).unwrap()
    }
}

pub fn content(seed: u8, ius: u32) -> Buffer {
    let bytes: Vec<u8> = (0..ius as usize * IU_SIZE_BYTES).map(|at| seed ^ (at / 7) as u8).collect();
    Buffer::copy_from(&bytes)
}

pub fn program(block: EraseBlockAddress, first_page: u32, units: u32, seed: u8) -> Operation {
    let pages = units * TINY_UNIT_PAGES;
    let payload = Payload::new(ContentMode::Bytes, content(seed, pages * 4));
    let oob = Buffer::copy_from(&vec![seed; pages as usize * 64]);
    Operation::Program { block, first_page, parts: [payload].into_iter().collect(), oob }
}

pub fn read(block: EraseBlockAddress, first_iu: u32, iu_count: u32) -> Operation {
    let destination = BufferMut::copy_from(&vec![0xee; iu_count as usize * IU_SIZE_BYTES]);
    Operation::Read { block, first_iu, iu_count, destination, oob: None }
}
