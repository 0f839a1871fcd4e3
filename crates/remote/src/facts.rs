//! Which namespace is wanted, and what it is.

use crate::claim::ClaimKind;
use diecut_nvme::QualifiedName;
use diecut_units::Span;

/// Which namespace, and as whom.
#[derive(Clone, Debug)]
pub struct RemoteParameters {
    /// NQN of this server as a host.
    pub host: QualifiedName,
    /// This server, of all that may want the namespace; not 0. The upper half of its keys, and of what it is called as a host.
    pub server: u32,
    /// This process: what a server is called as a host is another one for each connection.
    pub life: u64,
    /// NQN of the subsystem.
    pub subsystem: QualifiedName,
    /// NSID.
    pub nsid: u32,
    /// What is wanted of it.
    pub kind: ClaimKind,
    /// What it was when it was opened, if it was: it is to be the same.
    pub known: Option<RemoteFacts>,
    /// Commands under way at a time.
    pub depth: u16,
    /// KATO: a target that says nothing for so long is not there.
    pub keep_alive: Span,
    /// How long is waited for a target that is not there, until the drive is gone; for ever if absent.
    pub patience: Option<Span>,
    /// How long is waited between two tries at first. Each one doubles it.
    pub pause: Span,
    /// And at most.
    pub pause_max: Span,
}

/// What a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFacts {
    /// Its size.
    pub size_bytes: u64,
    /// Its LBAs.
    pub lba_bytes: u32,
    /// Whether only a flush makes writes durable.
    pub has_volatile_cache: bool,
    /// Whether it takes deallocations.
    pub takes_discard: bool,
    /// Model number of the controller.
    pub model: String,
    /// Serial number of the subsystem.
    pub serial: String,
    /// NGUID; zeros if it has none.
    pub nguid: [u8; 16],
    /// EUI64; zeros if it has none.
    pub eui64: [u8; 8],
    /// Whether it takes reservations.
    pub takes_reservations: bool,
    /// Whether it takes no writes.
    pub is_write_protected: bool,
}

impl RemoteFacts {
    /// What of them is not as in others, in words.
    pub(crate) fn differences(&self, before: &RemoteFacts) -> String {
        let mut words = Vec::new();
        let mut say = |what: &str, before: String, now: String| {
            if before != now {
                words.push(format!("{what} {now}, and was {before}"));
            }
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        say("size", before.size_bytes.to_string(), self.size_bytes.to_string());
        say("block size", before.lba_bytes.to_string(), self.lba_bytes.to_string());
        say("serial number", before.serial.clone(), self.serial.clone());
        say("NGUID", hex(&before.nguid), hex(&self.nguid));
        say("EUI64", hex(&before.eui64), hex(&self.eui64));
        // A cache that comes or goes changes what a flush is for.
        say("volatile cache", before.has_volatile_cache.to_string(), self.has_volatile_cache.to_string());
        words.join("; ")
    }
}
