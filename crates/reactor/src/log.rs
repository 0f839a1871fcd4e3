//! Notices of a shard as events of `tracing`, limited by cause.

use crate::doors::Full;
use diecut_shard::drive::ShardIndex;
use diecut_shard::notice::{Cause, HostAt, HostNotice, Limiter, Notice};
use diecut_units::Time;

/// The log of one shard's thread, or of whoever else writes lines that others can cause.
#[derive(Debug, Default)]
pub struct NoticeLog {
    limiter: Limiter,
}

impl NoticeLog {
    /// When [`NoticeLog::work`] has something to say.
    pub(crate) fn deadline(&self) -> Time {
        self.limiter.deadline()
    }

    /// Says how many notices were only counted, where their time is over.
    pub(crate) fn work(&mut self, now: Time) {
        while let Some((cause, more)) = self.limiter.take_over(now) {
            if cause.is_everyday() {
                tracing::info!(cause = cause.name(), more, "more of these in the last 10 s");
            } else {
                tracing::warn!(cause = cause.name(), more, "more of these in the last 10 s");
            }
        }
    }

    /// Whether a line of this cause is written now; else it is counted. Says first what was counted before.
    pub fn admit(&mut self, cause: Cause, now: Time) -> bool {
        self.work(now);
        self.limiter.admit(cause, now)
    }

    /// A host is hung up on at once: there are too many connections that have Connected, of all, of its address or of its tenant.
    pub(crate) fn turned_away(&mut self, peer: std::net::IpAddr, full: Full, now: Time) {
        if !self.admit(Cause::TurnedAway, now) {
            return;
        }
        match full {
            Full::All => tracing::warn!(
                "as many connections are open as descriptors allow; one from {peer} is turned away; a higher limit of open files \
                 (ulimit -n) lets more in"
            ),
            Full::Peer => tracing::warn!(
                "{peer} has as many connections as one address may have; another one is turned away"
            ),
            Full::Tenant => tracing::warn!(
                "a tenant has three quarters of the connections that descriptors allow, as many as one may have; another one of it, from \
                 {peer}, is hung up on; a higher limit of open files (ulimit -n) lets more in"
            ),
        }
    }

    /// Tells a notice, or counts it.
    pub(crate) fn tell(&mut self, notice: &Notice, shard: ShardIndex, now: Time) {
        self.work(now);
        if notice.cause().is_none_or(|cause| self.limiter.admit(cause, now)) {
            tell(notice, shard.0);
        }
    }
}

fn tell(notice: &Notice, shard: u16) {
    match notice {
        Notice::Opened { starts, was_unclean: true, unclean_starts } => {
            tracing::warn!(
                starts,
                unclean_starts,
                "opened after an unclean end: what was staged was recovered"
            );
        }
        Notice::Opened { starts, .. } => tracing::info!(starts, "opened after a clean end"),
        Notice::Host(notice) => tell_of_host(notice, shard),
        Notice::ReadOnly { vssd, reason } => tracing::error!(shard, vssd, reason, "the vSSD takes no writes"),
        Notice::NoRoom { vssd, reason } => {
            tracing::error!(shard, vssd, reason, "no room: the vSSD takes no writes until there is some");
        }
        Notice::RoomAgain { vssd } => {
            tracing::info!(shard, vssd, "there is room again: the vSSD takes writes");
        }
        Notice::Full { vssd } => {
            tracing::warn!(
                shard,
                vssd,
                "the vSSD is full and refuses writes: its volumes promise more than it can store; delete or deallocate data"
            );
        }
        Notice::RateLimited { vssd } => {
            tracing::warn!(shard, vssd, "the vSSD has met its rate limit: what is beyond waits");
        }
        Notice::BlocksRetired { die, retired } => {
            tracing::warn!(shard, die, retired, "an erase block failed and was retired");
        }
        Notice::ExchangeBegun([one, other]) => {
            tracing::info!(shard, one, other, "even wear: what lies on two dies changes places");
        }
        Notice::ExchangeFinished([one, other]) => {
            tracing::info!(shard, one, other, "even wear: what lay on two dies has changed places");
        }
        Notice::ExchangeFailed([one, other]) => {
            tracing::warn!(
                shard,
                one,
                other,
                "even wear: what lies on two dies cannot change places any more"
            );
        }
        Notice::Repaired { vssd, lost_bytes: None } => {
            tracing::info!(shard, vssd, "the vSSD takes writes again: nothing was lost")
        }
        Notice::Repaired { vssd, lost_bytes: Some(lost_bytes) } => {
            tracing::warn!(shard, vssd, lost_bytes, "the vSSD takes writes again, without what is lost")
        }
        Notice::CatalogCopyLost => {
            tracing::error!(
                "a copy of the catalog cannot be written any more; with the last one nothing can be changed"
            );
        }
        Notice::Overcommitted { committed, device, uncounted } => {
            tracing::warn!(
                %committed,
                %device,
                uncounted,
                "more is committed to QoS sets each second than the device gives out (pool.device_rate), or some count another unit: raise \
                 pool.device_rate, or lower rates with `diecut qos set`"
            );
        }
        Notice::StagingShort { vssd, wanted_bytes, held_bytes } => {
            tracing::warn!(
                vssd,
                wanted_bytes,
                held_bytes,
                "placement handles want more protected memory than the vSSD has: a reclaim unit that is written slowly is filled up before it \
                 is full; fewer handles, or a vSSD of fewer dies, want less"
            );
        }
        Notice::RequestLate { title } => {
            tracing::warn!(title, "an administrator's request is not done in time")
        }
    }
}

fn tell_of_host(notice: &HostNotice, shard: u16) {
    let name = |at: &HostAt| at.subsystem.as_ref().map_or("discovery".to_owned(), ToString::to_string);
    let host = |at: &HostAt| at.host.as_ref().map_or("without a name".to_owned(), ToString::to_string);
    match notice {
        HostNotice::Came(at) => {
            tracing::info!(
                shard,
                subsystem = name(at),
                host = host(at),
                controller = at.controller_id,
                "host connected"
            );
        }
        HostNotice::Went(at) => {
            tracing::info!(
                shard,
                subsystem = name(at),
                host = host(at),
                controller = at.controller_id,
                "host gone"
            );
        }
        HostNotice::WaitsForMemory => {
            tracing::warn!(
                shard,
                "hosts wait for memory of connections: all that theirs may hold is in use (server.memory_limit)"
            );
        }
        HostNotice::MadeRoom => {
            tracing::warn!(
                shard,
                "no memory for more connections that have not sent Connect: the oldest of them is closed for a new one"
            );
        }
        HostNotice::Stalled(at) => {
            tracing::warn!(
                shard,
                subsystem = name(at),
                host = host(at),
                controller = at.controller_id,
                "host hung up on: it held memory that others waited for, and did nothing with it"
            );
        }
        HostNotice::Expired(at) => {
            tracing::warn!(
                shard,
                subsystem = name(at),
                host = host(at),
                controller = at.controller_id,
                "host silent: its keep-alive expired"
            );
        }
        HostNotice::Refused { subsystem, host, queue_id, status, reason } => {
            let name = |nqn: &Option<_>| nqn.as_ref().map_or("no valid name".to_owned(), ToString::to_string);
            tracing::warn!(
                shard, subsystem = name(subsystem), host = name(host), queue = queue_id, status = ?status, reason, "host refused"
            );
        }
    }
}
