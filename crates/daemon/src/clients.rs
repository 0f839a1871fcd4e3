//! Connections of administrators: how many are open, and which one goes when there are too many. Whoever waits for an answer stays; of
//! the others, who only hold a descriptor, the oldest of the process that has most of them makes room.

use diecut_reactor::NoticeLog;
use diecut_shard::notice::Cause;
use diecut_units::Time;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Connections of administrators, counted; shared by those that are open.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    open_max: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// With the process that each one comes from, if that is known.
    clients: BTreeMap<u64, (Option<i32>, Arc<Activity>)>,
}

/// What a connection does.
#[derive(Debug, Default)]
struct Activity {
    /// Requests that are with the shards.
    requests: Mutex<usize>,
    leave: Notify,
}

/// An open connection; its place is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    number: u64,
    activity: Arc<Activity>,
    clients: Clients,
}

/// A request is with the shards until this is dropped.
#[derive(Debug)]
pub(crate) struct Asking(Arc<Activity>);

tokio::task_local! {
    /// The connection of this task.
    static OWN: Arc<Activity>;
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients {
    /// `open_max` connections at most, one or more.
    pub fn new(open_max: usize) -> Clients {
        Clients { open_max: open_max.max(1), open: Arc::default() }
    }

    /// Takes a place for a new connection of a process, and says whether another one was told to leave for it. Nothing if all wait for
    /// answers.
    pub fn enter(&self, process: Option<i32>) -> Option<(Client, bool)> {
        let mut open = locked(&self.open);
        let is_full = open.clients.len() >= self.open_max;
        if is_full {
            let idle = open.clients.iter().filter(|(_, (_, one))| *locked(&one.requests) == 0);
            let idle: Vec<(u64, Option<i32>)> = idle.map(|(number, (of, _))| (*number, *of)).collect();
            let count = |process| idle.iter().filter(|(_, other)| *other == process).count();
            // Of equal ones the last is taken, and so the oldest.
            let (number, _) = *idle.iter().rev().max_by_key(|(_, process)| count(*process))?;
            let (_, activity) = open.clients.remove(&number).expect("just found");
            activity.leave.notify_one();
        }
        open.last += 1;
        let (number, activity) = (open.last, Arc::new(Activity::default()));
        open.clients.insert(number, (process, Arc::clone(&activity)));
        Some((Client { number, activity, clients: self.clone() }, is_full))
    }
}

impl Client {
    /// Carries out a connection until it ends, or has to leave for another one; then `false`.
    pub async fn carry<F: Future>(self, connection: F) -> bool {
        let work = OWN.scope(Arc::clone(&self.activity), connection);
        tokio::select! {
            _ = work => true,
            () = self.activity.leave.notified() => false,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        locked(&self.clients.open).clients.remove(&self.number);
    }
}

/// Notes that the connection of this task waits for an answer; nothing outside of connections.
pub(crate) fn asking() -> Option<Asking> {
    let own = OWN.try_with(Arc::clone).ok()?;
    *locked(&own.requests) += 1;
    Some(Asking(own))
}

impl Drop for Asking {
    fn drop(&mut self) {
        *locked(&self.0.requests) -= 1;
    }
}

/// Lines of the log, limited by cause.
#[derive(Debug)]
pub(crate) struct LimitedLog {
    log: NoticeLog,
    start: Instant,
}

impl LimitedLog {
    #[expect(clippy::disallowed_methods, reason = "times of the log")]
    pub fn new() -> LimitedLog {
        LimitedLog { log: NoticeLog::default(), start: Instant::now() }
    }

    /// Whether a line of this cause is written now; else it is counted.
    pub fn admit(&mut self, cause: Cause) -> bool {
        self.log.admit(cause, Time(self.start.elapsed().as_nanos() as u64))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: the oldest that waits for nothing goes, whoever waits for an answer stays, and places come back. Method: two places.
    #[tokio::test]
    async fn the_oldest_idle_client_makes_room() {
        let clients = Clients::new(2);
        let (first, _) = clients.enter(None).unwrap();
        let asks = OWN.sync_scope(Arc::clone(&first.activity), asking).unwrap();
        let (second, was_full) = clients.enter(None).unwrap();
        assert!(!was_full);
        let (third, was_full) = clients.enter(None).unwrap();
        assert!(was_full, "the second one goes: the first one waits");
        assert!(!second.carry(std::future::pending::<()>()).await);
        let also_asks = OWN.sync_scope(Arc::clone(&third.activity), asking).unwrap();
        assert!(clients.enter(None).is_none(), "all wait for answers");
        drop(asks);
        let (_fourth, was_full) = clients.enter(None).unwrap();
        assert!(was_full && !first.carry(std::future::pending::<()>()).await);
        drop((third, also_asks));
        let (_fifth, was_full) = clients.enter(None).unwrap();
        assert!(!was_full);
    }

    /// Goal: who comes alone is not sent away for those of a process that has many. Method: three places, two processes.
    #[tokio::test]
    async fn the_process_with_most_makes_room() {
        let clients = Clients::new(3);
        let come = |process| clients.enter(Some(process)).unwrap().0;
        let (alone, first, _second) = (come(1), come(2), come(2));
        let third = come(2);
        assert!(!first.carry(std::future::pending::<()>()).await);
        let fourth = come(3);
        drop((third, fourth));
        assert!(alone.carry(std::future::ready(())).await, "it was not told to leave");
    }
}
