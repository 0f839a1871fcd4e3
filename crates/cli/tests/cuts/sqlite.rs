//! SQLite with `synchronous = FULL`, in each of its journal modes. What a transaction does is told by its number, so what the database holds after any of
//! them is known.

use super::Stranger;
use super::rig::Rig;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::Path;

const ROWS: i64 = 400;

/// What was committed.
pub struct Database {
    /// Commands to disks within which there is trouble.
    commands: u64,
    acknowledged: i64,
    /// Transactions that are there, and what they left.
    last: i64,
    rows: BTreeMap<i64, i64>,
}

/// Rows that a transaction changes: they get its number, or they go.
fn changes(transaction: i64) -> impl Iterator<Item = (i64, bool)> {
    let word =
        move |at: i64| (transaction * 8 + at).wrapping_mul(0x1e37_79b9_7f4a_7c15).unsigned_abs() as i64 >> 20;
    (0..1 + word(7) % 5).map(move |at| (word(at) % ROWS, word(at) / ROWS % 8 == 0))
}

fn apply(rows: &mut BTreeMap<i64, i64>, transaction: i64) {
    for (row, goes) in changes(transaction) {
        match goes {
            true => drop(rows.remove(&row)),
            false => drop(rows.insert(row, transaction)),
        }
    }
}

fn content(row: i64, transaction: i64) -> Vec<u8> {
    let len = 100 + (row * 37 + transaction * 11) as usize % 3000;
    [row, transaction].iter().flat_map(|word| word.to_le_bytes()).cycle().take(len).collect()
}

fn connect(folder: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(folder.join("database"))?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", 16)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS t (number INTEGER PRIMARY KEY, version INTEGER, content BLOB);
         CREATE TABLE IF NOT EXISTS last (number INTEGER);",
    )?;
    Ok(connection)
}

/// Transactions until an error.
fn transact(connection: &mut Connection, last: &mut i64, acknowledged: &mut i64) -> rusqlite::Result<()> {
    loop {
        let number = *last + 1;
        let transaction = connection.transaction()?;
        for (row, goes) in changes(number) {
            match goes {
                true => transaction.execute("DELETE FROM t WHERE number = ?", [row])?,
                false => transaction.execute(
                    "INSERT OR REPLACE INTO t VALUES (?, ?, ?)",
                    params![row, number, content(row, number)],
                )?,
            };
        }
        transaction.execute("DELETE FROM last", [])?;
        transaction.execute("INSERT INTO last VALUES (?)", [number])?;
        transaction.commit()?;
        (*last, *acknowledged) = (number, number);
    }
}

impl Default for Database {
    fn default() -> Database {
        Database::of(1500)
    }
}

impl Database {
    /// One that has trouble within so many commands to disks.
    pub fn of(commands: u64) -> Database {
        Database { commands, acknowledged: 0, last: 0, rows: BTreeMap::new() }
    }

    fn look(&mut self, folder: &Path, what: &str) -> rusqlite::Result<()> {
        let connection = connect(folder, "DELETE")?;
        let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let last: i64 =
            connection.query_row("SELECT coalesce(max(number), 0) FROM last", [], |row| row.get(0))?;
        let mut statement = connection.prepare("SELECT number, version, content FROM t ORDER BY number")?;
        let found: Vec<(i64, i64, Vec<u8>)> = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        assert_eq!(check, "ok", "{what}");
        assert!(
            last >= self.acknowledged,
            "{what}: {last} transactions, {} were committed",
            self.acknowledged
        );
        for number in self.last + 1..=last {
            apply(&mut self.rows, number);
        }
        self.last = last;
        let versions: BTreeMap<i64, i64> = found.iter().map(|(row, version, _)| (*row, *version)).collect();
        assert_eq!(versions, self.rows, "{what}: after {last} transactions");
        for (row, version, bytes) in &found {
            assert!(*bytes == content(*row, *version), "{what}: row {row}");
        }
        Ok(())
    }
}

impl Stranger for Database {
    const HAS_FILES: bool = true;

    fn check(&mut self, rig: &Rig, what: &str) -> Result<(), String> {
        self.look(&rig.files(), what).map_err(|error| format!("{what}: {error}"))
    }

    fn work(&mut self, rig: &mut Rig, cut: u32) {
        let mode = ["DELETE", "WAL", "TRUNCATE", "PERSIST"][cut as usize % 4];
        let mut connection = connect(&rig.files(), mode).unwrap();
        rig.make_trouble(self.commands);
        let mut last = self.last;
        let error = transact(&mut connection, &mut last, &mut self.acknowledged).unwrap_err();
        println!("life {cut}: {last} transactions in mode {mode}, then {error}");
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged as u64
    }
}
