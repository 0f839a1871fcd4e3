//! Signals that stop a server.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;

/// SIGINT, SIGTERM and SIGHUP (the terminal is gone), the last unless it is ignored, as under `nohup`.
pub(crate) fn stops() -> std::io::Result<Signals> {
    let usual = [SIGINT, SIGTERM];
    if is_ignored(SIGHUP) { Signals::new(usual) } else { Signals::new([SIGINT, SIGTERM, SIGHUP]) }
}

/// Comes true with the first signal that stops; an urgent one after it ends the process.
pub(crate) fn stop_of(mut signals: Signals) -> tokio::sync::oneshot::Receiver<()> {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    #[allow(clippy::disallowed_methods, reason = "the daemon owns threads beside the data path")]
    std::thread::spawn(move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            let _ = stop.send(());
        }
        if signals.any(is_urgent) {
            // The terminal may be gone.
            let said =
                "stopped at once: what was acknowledged is in the device's protected memory or on flash";
            let _ = writeln!(std::io::stderr(), "{said}");
            std::process::exit(130);
        }
    });
    stopped
}

/// Whether a signal ends a server that is stopping already. A terminal that goes away may say so twice.
fn is_urgent(signal: i32) -> bool {
    signal != SIGHUP
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
