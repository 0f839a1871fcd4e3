//! What the operating system gives the process, and how it is shared out: memory for hosts' connections, descriptors.

use diecut_reactor::{ConnectionLimits, ReactorHandle};
use diecut_spec::Size;
use std::time::Duration;

/// Memory for connections of each shard, if the set-up has no limit: all of them together.
const CONNECTIONS_BYTES: usize = 1 << 30;
/// The least that a shard works with: room for sixteen of the largest commands.
const SHARD_BYTES_MIN: usize = 16 << 20;
/// Of a limit, kept free: what allocators lose between buffers, and what comes between two looks.
const HEADROOM_SHARE: usize = 8;
/// How often the process looks at its memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Given-up buffers after which the allocator is asked to give pages back to the system.
const TRIM_AFTER_BYTES: u64 = 4 << 20;
/// Descriptors for administrators, applications and files: a quarter of those that are free, within these bounds.
const DESCRIPTORS_KEPT_MIN: usize = 8;
const DESCRIPTORS_KEPT_MAX: usize = 512;
/// Connections of administrators.
const CLIENTS_MIN: usize = 4;
const CLIENTS_MAX: usize = 64;

/// What the server may take, from `server.memory_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    limit_bytes: Option<usize>,
    shards: usize,
}

impl MemoryPlan {
    pub fn new(limit_bytes: Option<u64>, shards: u16) -> MemoryPlan {
        let limit_bytes = limit_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        MemoryPlan { limit_bytes, shards: usize::from(shards.max(1)) }
    }

    /// What each shard's connections may hold before anything was measured.
    pub fn at_start(&self) -> usize {
        let all = self.limit_bytes.map_or(CONNECTIONS_BYTES, |limit| limit / 2);
        (all / self.shards).max(SHARD_BYTES_MIN)
    }

    /// What each shard's connections may hold if the rest of the server holds `rest_bytes`. It never starves them: a server whose maps
    /// alone are beyond its limit still serves.
    pub fn beside(&self, rest_bytes: usize) -> usize {
        let Some(limit) = self.limit_bytes else { return self.at_start() };
        let left = limit.saturating_sub(rest_bytes).saturating_sub(limit / HEADROOM_SHARE);
        (left / self.shards).max(SHARD_BYTES_MIN)
    }

    /// Whether there is enough for a server that holds `rest_bytes` at rest.
    ///
    /// # Errors
    /// Says what would be enough.
    pub fn check(&self, rest_bytes: usize) -> Result<(), String> {
        let Some(limit) = self.limit_bytes else { return Ok(()) };
        let needed = rest_bytes + self.shards * SHARD_BYTES_MIN;
        let enough = (needed * HEADROOM_SHARE).div_ceil(HEADROOM_SHARE - 1);
        if limit >= enough {
            return Ok(());
        }
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        Err(format!(
            "server.memory_limit = {} is too little: the server holds {} MiB before any host has come, and each shard needs {} \
             MiB for hosts; use {} MiB or more",
            Size(limit as u64).exact(),
            mib(rest_bytes),
            mib(SHARD_BYTES_MIN),
            mib(enough)
        ))
    }

    /// For people.
    pub fn describe(&self, rest_bytes: usize) -> String {
        let connections = (self.beside(rest_bytes) * self.shards) >> 20;
        match self.limit_bytes {
            Some(limit) => format!("{} MiB at most, {connections} MiB of them for hosts", limit >> 20),
            None => {
                format!("{connections} MiB at most for hosts (server.memory_limit bounds the whole server)")
            }
        }
    }
}

/// Anonymous memory of this process in bytes (RssAnon); nothing where the system does not say.
pub(crate) fn anonymous_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// What the process holds besides its hosts' connections.
pub(crate) fn rest_bytes(reactor: &ReactorHandle) -> usize {
    anonymous_bytes().unwrap_or(0).saturating_sub(reactor.memory().used_bytes)
}

/// Looks after memory until it is dropped: connections may hold what the rest of the server leaves, and what they gave up goes
/// back to the system.
pub(crate) async fn look_after_memory(reactor: ReactorHandle, plan: MemoryPlan) {
    let mut trimmed_at = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let given_up = reactor.memory().given_up_bytes;
        if given_up - trimmed_at >= TRIM_AFTER_BYTES {
            trimmed_at = given_up;
            trim();
        }
        if plan.limit_bytes.is_some() {
            reactor.set_memory(plan.beside(rest_bytes(&reactor)));
        }
    }
}

/// Gives free pages of the allocator back to the system.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Descriptors that the process may have: as many as the system allows without asking anybody.
pub(crate) fn raise_descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return 1024;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the structure is ours.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
        limit = raised;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Descriptors that the process has.
pub(crate) fn open_descriptors() -> usize {
    // The folder itself is open while it is read.
    std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count().saturating_sub(1))
}

/// Of `limit` descriptors with `open` in use, those that are kept from hosts' connections.
fn kept_descriptors(limit: usize, open: usize) -> usize {
    (limit.saturating_sub(open) / 4).clamp(DESCRIPTORS_KEPT_MIN, DESCRIPTORS_KEPT_MAX)
}

/// How many connections of administrators there may be: half of what is kept from hosts, within bounds.
pub(crate) fn clients_max(limit: usize, open: usize) -> usize {
    (kept_descriptors(limit, open) / 2).clamp(CLIENTS_MIN, CLIENTS_MAX)
}

/// How many connections of hosts there may be, of `limit` descriptors with `open` in use; one address has half of them at most, one tenant three
/// quarters, and those that have not Connected have half, and three quarters of the `newcomers` for which there is memory.
pub(crate) fn connection_limits(limit: usize, open: usize, newcomers: usize) -> ConnectionLimits {
    let kept = kept_descriptors(limit, open);
    let all_max = limit.saturating_sub(open).saturating_sub(kept).max(1);
    let half = all_max.div_ceil(2);
    ConnectionLimits {
        all_max,
        per_peer_max: half,
        per_tenant_max: all_max - all_max / 4,
        newcomers_max: half.min(newcomers / 4 * 3).max(1),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn memory_is_shared_out() {
        let plan = MemoryPlan::new(Some(1 << 30), 4);
        assert_eq!(plan.at_start(), 128 << 20);
        assert_eq!(plan.beside(128 << 20), 192 << 20);
        assert_eq!(plan.beside(2 << 30), SHARD_BYTES_MIN);
        assert!(plan.check(512 << 20).is_ok());
        let refused = plan.check(900 << 20).unwrap_err();
        assert!(
            refused.contains("server.memory_limit = 1 GiB") && refused.contains("use 1102 MiB"),
            "{refused}"
        );
        let little = MemoryPlan::new(Some(1 << 10), 1).check(1 << 20).unwrap_err();
        assert!(little.contains("server.memory_limit = 1 KiB is too little"), "{little}");
        assert_eq!(MemoryPlan::new(None, 2).beside(5 << 30), CONNECTIONS_BYTES / 2);
    }

    #[test]
    fn descriptors_are_kept_for_administrators() {
        let few = connection_limits(64, 20, 1000);
        assert_eq!((few.all_max, few.per_peer_max, few.newcomers_max), (33, 17, 17));
        assert_eq!(few.per_tenant_max, 25);
        assert_eq!((clients_max(64, 20), clients_max(10, 20), clients_max(1 << 20, 30)), (5, 4, 64));
        let many = connection_limits(1 << 20, 30, 1000);
        assert_eq!((many.all_max, many.newcomers_max), ((1 << 20) - 30 - DESCRIPTORS_KEPT_MAX, 750));
        let none = connection_limits(10, 20, 1000);
        assert_eq!((none.all_max, none.newcomers_max), (1, 1));
        assert!(open_descriptors() > 2 && raise_descriptors() > 2);
        assert!(anonymous_bytes().unwrap() > 1 << 16);
    }
}
