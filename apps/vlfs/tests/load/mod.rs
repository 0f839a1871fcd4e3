//! A load for file systems that end: every write is a function of its number, so what must be there after any end is known. Files are
//! replaced as programs do it that want all or nothing (write, fsync, rename, fsync of the folder), a log is appended to.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SLOTS: u64 = 12;

fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Its number, then words that follow from it.
fn content(number: u64) -> Vec<u8> {
    let words = 1 + mix(number) % 6000;
    (0..words).flat_map(|at| if at == 0 { number } else { mix(number ^ (at << 40)) }.to_le_bytes()).collect()
}

#[derive(Default)]
pub struct Ledger {
    /// The last one that was begun.
    pub number: u64,
    /// Steps that came back.
    pub acked: u64,
    acked_of_slot: BTreeMap<u64, u64>,
    logged: u64,
    logged_acked: u64,
}

impl Ledger {
    /// So many steps, or until the file system is gone.
    pub fn run(&mut self, folder: &Path, steps: u64) -> Result<()> {
        for _ in 0..steps {
            self.step(folder)?;
        }
        Ok(())
    }

    fn step(&mut self, folder: &Path) -> Result<()> {
        self.number += 1;
        let number = self.number;
        let slot = number % SLOTS;
        let inside = folder.join(format!("folder-{}", slot % 3));
        match std::fs::create_dir(&inside) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let (new, name) = (inside.join(format!("new-{slot}")), inside.join(format!("slot-{slot}")));
        let mut file = File::create(&new)?;
        file.write_all(&content(number))?;
        file.sync_all()?;
        std::fs::rename(&new, &name)?;
        // Written to also under its new name, over what it is: nothing changes.
        file.write_all_at(&number.to_le_bytes(), 0)?;
        File::open(&inside)?.sync_all()?;
        self.acked += 1;
        self.acked_of_slot.insert(slot, number);
        // Not synced each time.
        let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log"))?;
        self.logged += 1;
        log.write_all(&[self.logged.to_le_bytes(), (!self.logged).to_le_bytes()].concat())?;
        if number.is_multiple_of(5) {
            log.sync_data()?;
            self.logged_acked = self.logged;
        }
        Ok(())
    }

    /// What was acknowledged must be there, all that is there must be something that was written. It goes on from there.
    pub fn check(&mut self, folder: &Path, what: &str) {
        for slot in 0..SLOTS {
            let acked = self.acked_of_slot.get(&slot).copied();
            let path = folder.join(format!("folder-{}/slot-{slot}", slot % 3));
            let found = match std::fs::read(&path) {
                Ok(bytes) => {
                    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert!(bytes == content(number), "{what}: {} of {number}", path.display());
                    assert!(number % SLOTS == slot && number <= self.number, "{what}: {number} in {slot}");
                    Some(number)
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{what}: {}", path.display());
                    None
                }
            };
            assert!(found >= acked, "{what}: slot {slot} has {found:?}, {acked:?} was acknowledged");
            if let Some(found) = found {
                self.acked_of_slot.insert(slot, found);
            }
        }
        let log = match std::fs::read(folder.join("log")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            log => log.unwrap(),
        };
        // The last one may have been cut off in the middle, by pages of the kernel.
        let records = log.chunks_exact(16).zip(1u64..);
        let is_record =
            |bytes: &[u8], number: u64| bytes == [number.to_le_bytes(), (!number).to_le_bytes()].concat();
        let whole = records.take_while(|(bytes, number)| is_record(bytes, *number)).count() as u64;
        assert_eq!(whole, log.len() as u64 / 16, "{what}: a hole in the log");
        assert!(whole >= self.logged_acked, "{what}: {whole} records, {} acknowledged", self.logged_acked);
        if !log.is_empty() {
            File::options().write(true).open(folder.join("log")).unwrap().set_len(whole * 16).unwrap();
        }
        (self.logged, self.logged_acked) = (whole, 0);
    }
}
