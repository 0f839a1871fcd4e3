//! What a host does with its controller: it brings it up, resets it, shuts it down, and gives up what does not answer.

use super::*;

impl Hosts {
    pub(super) fn open(&mut self, path: usize, shards: &mut Shards, now: Time) -> Stream {
        self.open_stream(path, self.paths[path].latency, shards, now)
    }

    /// A stream to any shard. The target may close it at once.
    pub(super) fn open_stream(
        &mut self,
        path: usize,
        latency: Span,
        shards: &mut Shards,
        now: Time,
    ) -> Stream {
        let shard = shards.any();
        let mut stream = Stream::new(ConnectionId(self.next_connection), path, shard, latency);
        self.next_connection += 1;
        self.tell(shard, Event::Accepted { connection: stream.id, local: None }, shards, now);
        stream.closing = self.turned_away.take() == Some(stream.id);
        stream
    }

    /// The host gives all streams of a path up and will try it again.
    pub(super) fn drop_connection(&mut self, path: usize, retry_at: Time, now: Time) {
        let host = &mut self.paths[path];
        let lane = host.lane;
        let loses = !host.under_way.is_empty();
        if loses {
            mark!("hosts: connection lost with commands under way");
        }
        for (token, _) in std::mem::take(&mut host.under_way) {
            let token = HostToken(token.0);
            self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
        }
        let leaving = if let Stage::Leaving(token) = host.stage { Some(token) } else { None };
        let wished = if let Some(Wish::ShutDown(token)) = host.wish.take() { Some(token) } else { None };
        for token in leaving.into_iter().chain(wished) {
            self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
        }
        host.watch = Watch::late_by(host.asks_for_events_after);
        // The target ends what was silent for the time of its keep-alive; twice that, for it may have heard something late.
        let silence = match host.keep_alive_ms {
            0 => VANISHED_UNTIL,
            ms => Span::from_millis(2 * u64::from(ms)),
        };
        let streams = host.admin.take().map(|(stream, _)| stream).into_iter();
        for mut stream in streams.chain(host.io.drain(..).map(|(stream, _)| stream)) {
            stream.told_at = if stream.vanished { now + VANISHED_UNTIL } else { now };
            if stream.vanished {
                let at = &mut self.goes_on_at[usize::from(lane.0)];
                *at = (*at).max(now + silence);
            }
            if !stream.closing {
                self.orphans.push(stream);
            }
        }
        host.stage = Stage::Down(retry_at);
        // It hangs up on those, too, that it left to the controller to end.
        for orphan in self.orphans.iter_mut().filter(|one| one.path == path && !one.vanished) {
            orphan.told_at = orphan.told_at.min(now);
        }
        let others =
            || self.paths.iter().enumerate().filter(|(other, one)| *other != path && one.lane == lane);
        if loses && others().any(|(_, other)| other.stage == Stage::Ready) {
            mark!("hosts: goes on over another path");
        }
    }

    /// The next stage of bringing a connection up, its end, and patience. Whether anything changed.
    pub(super) fn go_on(&mut self, path: usize, shards: &mut Shards, now: Time) -> bool {
        let host = &self.paths[path];
        match host.stage {
            Stage::Down(at) if at <= now && self.is_sure(host.lane) => {
                let name = host.lane;
                let parameters = QueueParameters {
                    keep_alive_ms: host.keep_alive_ms,
                    digests: host.digests,
                    flow_control: host.flow_control,
                    ..QueueParameters::admin(
                        qualified(&host_name(name)),
                        [name.0 + 1; 16],
                        qualified(&subsystem_name(name)),
                    )
                };
                let admin = Admin::new(parameters, host.io_queues);
                let stream = self.open(path, shards, now);
                let host = &mut self.paths[path];
                host.admin = Some((stream, admin));
                (host.stage, host.heard_at) = (Stage::Admin, now);
                return true;
            }
            Stage::Down(_) => return false,
            _ => {}
        }
        // A controller that shuts down closes its I/O queues first.
        let all = if matches!(host.stage, Stage::Leaving(_)) { 1 } else { usize::MAX };
        let ended = host.streams().take(all).any(|stream| stream.closing && stream.to_host.is_empty());
        if ended && !host.streams().any(|stream| stream.vanished) {
            mark!("hosts: target ended a connection");
            self.drop_connection(path, now + Span::from_millis(1), now);
            return true;
        }
        if let Stage::Leaving(token) = host.stage
            && let Some((_, admin)) = host.admin.as_ref().filter(|(_, admin)| admin.is_down())
        {
            mark!("hosts: clean shutdown");
            // A cache that could not be flushed is all that a controller can say of it.
            let failed = HostError::Other("the controller has failed (CSTS.CFS)".to_owned());
            let result = if admin.has_failed() { Err(failed) } else { Ok(Vec::new()) };
            self.answers.push(HostAnswer { lane: host.lane, token, result });
            self.paths[path].stage = Stage::Ready;
            self.drop_connection(path, now + Span::from_millis(1), now);
            return true;
        }
        if host.is_waiting() && now >= host.heard_at + PATIENCE {
            mark!("hosts: host gave a connection up");
            self.drop_connection(path, now + Span::from_millis(1), now);
            return true;
        }
        let (_, admin) = host.admin.as_ref().expect("a host that is not down has an admin queue");
        if host.stage == Stage::Admin
            && let Some(facts) = admin.facts()
        {
            let queues: Vec<QueueParameters> =
                (1..=facts.io_queues).map(|number| admin.io_queue(number, QUEUE_DEPTH)).collect();
            for parameters in queues {
                let stream = self.open(path, shards, now);
                self.paths[path].io.push((stream, QueuePair::new(parameters)));
            }
            self.paths[path].stage = Stage::Io;
            return true;
        }
        if host.stage == Stage::Io && host.io.iter().all(|(_, queue)| queue.is_ready()) {
            (self.paths[path].stage, self.paths[path].refusals) = (Stage::Ready, 0);
            return true;
        }
        host.stage == Stage::Ready && self.fulfil_wish(path, now)
    }

    /// What a host does on its admin queue beside its commands. Whether there was anything.
    pub(super) fn fulfil_wish(&mut self, path: usize, now: Time) -> bool {
        let host = &mut self.paths[path];
        let (_, admin) = host.admin.as_mut().expect("a host that is not down has an admin queue");
        if !host.watch.is_quiet() || host.wish.is_none() {
            return host.watch.go_on(admin, now);
        }
        match host.wish {
            Some(Wish::Reset) if admin.reset() => {
                (host.wish, host.stage, host.heard_at) = (None, Stage::Admin, now);
                host.watch.reset();
                if !host.under_way.is_empty() {
                    mark!("hosts: controller reset under load");
                }
                for (token, _) in std::mem::take(&mut host.under_way) {
                    let (lane, token) = (host.lane, HostToken(token.0));
                    self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
                }
                for (mut stream, _) in host.io.drain(..) {
                    // It is the controller that ends them.
                    stream.told_at = now + VANISHED_UNTIL;
                    if !stream.closing {
                        self.orphans.push(stream);
                    }
                }
                true
            }
            Some(Wish::ShutDown(token)) if admin.shut_down() => {
                (host.wish, host.stage, host.heard_at) = (None, Stage::Leaving(token), now);
                true
            }
            _ => false,
        }
    }
}
