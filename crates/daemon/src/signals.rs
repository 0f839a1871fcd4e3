//! Signals that stop a server.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// SIGINT, SIGTERM and SIGHUP (the terminal is gone), the last unless it is ignored, as under `nohup`.
pub(crate) fn stops() -> std::io::Result<Signals> {
    let usual = [SIGINT, SIGTERM];
    if is_ignored(SIGHUP) { Signals::new(usual) } else { Signals::new([SIGINT, SIGTERM, SIGHUP]) }
}

/// Whether a signal ends a server that is stopping already. A terminal that goes away may say so twice.
pub(crate) fn is_urgent(signal: i32) -> bool {
    signal != SIGHUP
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
