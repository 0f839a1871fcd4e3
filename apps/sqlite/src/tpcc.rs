//! A load like TPC-C: its tables, its five transactions in its mix and its rules of consistency, with fewer rows and columns. It is
//! no TPC-C: no terminals, no think times, and no figure of it may be called one.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

/// Districts of a warehouse.
const DISTRICTS: i64 = 10;
/// Customers of a district (3,000 in TPC-C).
const CUSTOMERS: i64 = 300;
/// Items, and stock of each in each warehouse (100,000 in TPC-C).
const ITEMS: i64 = 2000;

const TABLES: &str = "
CREATE TABLE marker (id INTEGER PRIMARY KEY, committed INTEGER NOT NULL);
CREATE TABLE warehouse (w_id INTEGER PRIMARY KEY, ytd INTEGER NOT NULL);
CREATE TABLE district (w_id INTEGER, d_id INTEGER, next_o_id INTEGER NOT NULL, ytd INTEGER NOT NULL,
    PRIMARY KEY (w_id, d_id)) WITHOUT ROWID;
CREATE TABLE customer (w_id INTEGER, d_id INTEGER, c_id INTEGER, balance INTEGER NOT NULL,
    payments INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (w_id, d_id, c_id)) WITHOUT ROWID;
CREATE TABLE history (w_id INTEGER, d_id INTEGER, c_id INTEGER, amount INTEGER NOT NULL);
CREATE TABLE item (i_id INTEGER PRIMARY KEY, price INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE stock (w_id INTEGER, i_id INTEGER, quantity INTEGER NOT NULL, ytd INTEGER NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY (w_id, i_id)) WITHOUT ROWID;
CREATE TABLE orders (w_id INTEGER, d_id INTEGER, o_id INTEGER, c_id INTEGER NOT NULL, carrier INTEGER,
    lines INTEGER NOT NULL, PRIMARY KEY (w_id, d_id, o_id)) WITHOUT ROWID;
CREATE TABLE new_order (w_id INTEGER, d_id INTEGER, o_id INTEGER, PRIMARY KEY (w_id, d_id, o_id)) WITHOUT ROWID;
CREATE TABLE order_line (w_id INTEGER, d_id INTEGER, o_id INTEGER, number INTEGER, i_id INTEGER NOT NULL,
    amount INTEGER NOT NULL, delivered INTEGER NOT NULL, PRIMARY KEY (w_id, d_id, o_id, number)) WITHOUT ROWID;
CREATE INDEX orders_by_customer ON orders (w_id, d_id, c_id, o_id);
";

/// Makes tables and rows, in one transaction; returns whether they were missing.
///
/// # Errors
/// Of SQLite.
pub fn prepare(connection: &mut Connection, warehouses: i64) -> rusqlite::Result<bool> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 {
        return Ok(false);
    }
    let work = connection.transaction()?;
    work.execute_batch(TABLES)?;
    work.execute("INSERT INTO marker VALUES (1, 0)", [])?;
    let filler = "x".repeat(250);
    for item in 1..=ITEMS {
        work.prepare_cached("INSERT INTO item VALUES (?, ?, ?)")?.execute(params![
            item,
            100 + item * 7 % 9900,
            format!("item {item}")
        ])?;
    }
    for warehouse in 1..=warehouses {
        work.execute("INSERT INTO warehouse VALUES (?, 0)", [warehouse])?;
        for item in 1..=ITEMS {
            work.prepare_cached("INSERT INTO stock VALUES (?, ?, 50, 0, ?)")?.execute(params![
                warehouse,
                item,
                &filler[..50]
            ])?;
        }
        for district in 1..=DISTRICTS {
            work.execute("INSERT INTO district VALUES (?, ?, 1, 0)", [warehouse, district])?;
            for customer in 1..=CUSTOMERS {
                work.prepare_cached("INSERT INTO customer VALUES (?, ?, ?, 0, 0, ?)")?
                    .execute(params![warehouse, district, customer, filler])?;
            }
        }
    }
    work.commit()?;
    Ok(true)
}

/// One that sends transactions.
pub struct Terminal {
    random: Xoshiro256PlusPlus,
    warehouses: i64,
    /// Commits so far, over all lives of the database.
    pub committed: i64,
}

impl Terminal {
    /// Goes on where the database is.
    ///
    /// # Errors
    /// Of SQLite.
    pub fn new(connection: &Connection, seed: u64) -> rusqlite::Result<Terminal> {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let warehouses = connection.query_row("SELECT count(*) FROM warehouse", [], |row| row.get(0))?;
        Ok(Terminal { random, warehouses, committed: committed(connection)? })
    }

    /// One transaction of the mix: 45 % new orders, 43 % payments, 4 % each of order status, delivery and stock level. Returns its name; it
    /// is committed and durable then.
    ///
    /// # Errors
    /// Of SQLite.
    pub fn step(&mut self, connection: &mut Connection) -> rusqlite::Result<&'static str> {
        let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (warehouse, district) =
            (self.random.random_range(1..=self.warehouses), self.random.random_range(1..=DISTRICTS));
        let customer = self.random.random_range(1..=CUSTOMERS);
        let name = match self.random.random_range(0..100) {
            0..45 => self.new_order(&work, warehouse, district, customer)?,
            45..88 => self.payment(&work, warehouse, district, customer)?,
            88..92 => order_status(&work, warehouse, district, customer)?,
            92..96 => delivery(&work, warehouse)?,
            _ => stock_level(&work, warehouse, district)?,
        };
        work.prepare_cached("UPDATE marker SET committed = ? WHERE id = 1")?.execute([self.committed + 1])?;
        work.commit()?;
        self.committed += 1;
        Ok(name)
    }

    fn new_order(
        &mut self,
        work: &Transaction<'_>,
        w: i64,
        d: i64,
        c: i64,
    ) -> rusqlite::Result<&'static str> {
        let order: i64 = work
            .prepare_cached("UPDATE district SET next_o_id = next_o_id + 1 WHERE w_id = ? AND d_id = ? RETURNING next_o_id - 1")?
            .query_row([w, d], |row| row.get(0))?;
        let lines = self.random.random_range(5..=15);
        work.prepare_cached("INSERT INTO orders VALUES (?, ?, ?, ?, NULL, ?)")?
            .execute([w, d, order, c, lines])?;
        work.prepare_cached("INSERT INTO new_order VALUES (?, ?, ?)")?.execute([w, d, order])?;
        for number in 1..=lines {
            let (item, count) = (self.random.random_range(1..=ITEMS), self.random.random_range(1..=10));
            let price: i64 = work
                .prepare_cached("SELECT price FROM item WHERE i_id = ?")?
                .query_row([item], |row| row.get(0))?;
            work.prepare_cached(
                "UPDATE stock SET quantity = CASE WHEN quantity >= ?1 + 10 THEN quantity - ?1 ELSE quantity - ?1 + 91 END,
                 ytd = ytd + ?1 WHERE w_id = ?2 AND i_id = ?3",
            )?
            .execute([count, w, item])?;
            work.prepare_cached("INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, 0)")?.execute([
                w,
                d,
                order,
                number,
                item,
                count * price,
            ])?;
        }
        Ok("new order")
    }

    fn payment(&mut self, work: &Transaction<'_>, w: i64, d: i64, c: i64) -> rusqlite::Result<&'static str> {
        let amount = self.random.random_range(100..=500_000);
        work.prepare_cached("UPDATE warehouse SET ytd = ytd + ? WHERE w_id = ?")?.execute([amount, w])?;
        work.prepare_cached("UPDATE district SET ytd = ytd + ? WHERE w_id = ? AND d_id = ?")?
            .execute([amount, w, d])?;
        work.prepare_cached(
            "UPDATE customer SET balance = balance - ?, payments = payments + 1 WHERE w_id = ? AND d_id = ? AND c_id = ?",
        )?
        .execute([amount, w, d, c])?;
        work.prepare_cached("INSERT INTO history VALUES (?, ?, ?, ?)")?.execute([w, d, c, amount])?;
        Ok("payment")
    }
}

fn order_status(work: &Transaction<'_>, w: i64, d: i64, c: i64) -> rusqlite::Result<&'static str> {
    work.prepare_cached(
        "SELECT count(*) FROM order_line WHERE w_id = ?1 AND d_id = ?2 AND o_id =
         (SELECT max(o_id) FROM orders WHERE w_id = ?1 AND d_id = ?2 AND c_id = ?3)",
    )?
    .query_row([w, d, c], |row| row.get::<_, i64>(0))?;
    Ok("order status")
}

fn delivery(work: &Transaction<'_>, w: i64) -> rusqlite::Result<&'static str> {
    for d in 1..=DISTRICTS {
        let oldest: Option<i64> = work
            .prepare_cached("SELECT min(o_id) FROM new_order WHERE w_id = ? AND d_id = ?")?
            .query_row([w, d], |row| row.get(0))?;
        let Some(order) = oldest else { continue };
        work.prepare_cached("DELETE FROM new_order WHERE w_id = ? AND d_id = ? AND o_id = ?")?
            .execute([w, d, order])?;
        work.prepare_cached("UPDATE orders SET carrier = 7 WHERE w_id = ? AND d_id = ? AND o_id = ?")?
            .execute([w, d, order])?;
        work.prepare_cached("UPDATE order_line SET delivered = 1 WHERE w_id = ? AND d_id = ? AND o_id = ?")?
            .execute([w, d, order])?;
        work.prepare_cached(
            "UPDATE customer SET balance = balance +
             (SELECT sum(amount) FROM order_line WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3)
             WHERE w_id = ?1 AND d_id = ?2 AND c_id =
             (SELECT c_id FROM orders WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3)",
        )?
        .execute([w, d, order])?;
    }
    Ok("delivery")
}

fn stock_level(work: &Transaction<'_>, w: i64, d: i64) -> rusqlite::Result<&'static str> {
    work.prepare_cached(
        "SELECT count(DISTINCT s.i_id) FROM order_line l JOIN stock s ON s.w_id = l.w_id AND s.i_id = l.i_id
         WHERE l.w_id = ?1 AND l.d_id = ?2 AND s.quantity < 20 AND l.o_id >=
         (SELECT next_o_id - 20 FROM district WHERE w_id = ?1 AND d_id = ?2)",
    )?
    .query_row([w, d], |row| row.get::<_, i64>(0))?;
    Ok("stock level")
}

/// Commits that the database knows of.
///
/// # Errors
/// Of SQLite.
pub fn committed(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT committed FROM marker", [], |row| row.get(0))
}

/// What is wrong with the database: SQLite's own check, then the rules of consistency of TPC-C (clause 3.3.2) that
/// these tables have.
///
/// # Errors
/// Of SQLite.
pub fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if integrity != "ok" {
        found.push(format!("integrity_check: {integrity}"));
    }
    let rules = [
        (
            "the sum of districts is that of the warehouse",
            "SELECT count(*) FROM warehouse w WHERE ytd <> (SELECT sum(ytd) FROM district d WHERE d.w_id = w.w_id)",
        ),
        (
            "the last order is the one before the next",
            "SELECT count(*) FROM district d WHERE next_o_id - 1 <>
             (SELECT coalesce(max(o_id), 0) FROM orders o WHERE o.w_id = d.w_id AND o.d_id = d.d_id)",
        ),
        (
            "new orders have no gap",
            "SELECT count(*) FROM (SELECT max(o_id) - min(o_id) + 1 AS range, count(*) AS orders FROM new_order
             GROUP BY w_id, d_id) WHERE range <> orders",
        ),
        (
            "orders have the lines they say",
            "SELECT count(*) FROM orders o WHERE lines <> (SELECT count(*) FROM order_line l
             WHERE l.w_id = o.w_id AND l.d_id = o.d_id AND l.o_id = o.o_id)",
        ),
        (
            "a carrier has what is no new order",
            "SELECT count(*) FROM orders o WHERE (carrier IS NULL) <> EXISTS (SELECT 1 FROM new_order n
             WHERE n.w_id = o.w_id AND n.d_id = o.d_id AND n.o_id = o.o_id)",
        ),
        (
            "payments are in the history",
            "SELECT count(*) FROM warehouse w WHERE ytd <>
             (SELECT coalesce(sum(amount), 0) FROM history h WHERE h.w_id = w.w_id)",
        ),
    ];
    for (rule, query) in rules {
        let count: i64 = connection.query_row(query, [], |row| row.get(0))?;
        if count > 0 {
            found.push(format!("{rule}: not so {count} times"));
        }
    }
    Ok(found)
}
