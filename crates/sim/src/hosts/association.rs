//! What a host does with its controller: it brings it up, resets it, shuts it down, and gives up what does not answer.

use super::*;

impl Hosts {
    pub(super) fn open(&mut self, lane: usize, shards: &mut Shards, now: Time) -> Stream {
        let shard = shards.any();
        let stream = Stream::new(ConnectionId(self.next_connection), shard, self.hosts[lane].latency);
        self.next_connection += 1;
        self.tell(shard, Event::Accepted { connection: stream.id }, shards, now);
        stream
    }

    /// The host gives all its streams up and will try again.
    pub(super) fn drop_connection(&mut self, lane: usize, retry_at: Time, now: Time) {
        let host = &mut self.hosts[lane];
        if !host.under_way.is_empty() {
            mark!("hosts: connection lost with commands under way");
        }
        for (token, _) in std::mem::take(&mut host.under_way) {
            let (lane, token) = (Lane(lane as u8), HostToken(token.0));
            self.answers.push(HostAnswer { lane, token, result: Err(HostError::ConnectionLost) });
        }
        let leaving = if let Stage::Leaving(token) = host.stage { Some(token) } else { None };
        let wished = if let Some(Wish::ShutDown(token)) = host.wish.take() { Some(token) } else { None };
        for token in leaving.into_iter().chain(wished) {
            let (lane, result) = (Lane(lane as u8), Err(HostError::ConnectionLost));
            self.answers.push(HostAnswer { lane, token, result });
        }
        host.watch = Watch::late_by(host.asks_for_events_after);
        let streams = host.admin.take().map(|(stream, _)| stream).into_iter();
        for mut stream in streams.chain(host.io.drain(..).map(|(stream, _)| stream)) {
            stream.told_at = if stream.vanished { now + VANISHED_UNTIL } else { now };
            if !stream.closing {
                self.orphans.push(stream);
            }
        }
        host.stage = Stage::Down(retry_at);
    }

    /// The next stage of bringing a connection up, its end, and patience. Whether anything changed.
    pub(super) fn go_on(&mut self, lane: usize, shards: &mut Shards, now: Time) -> bool {
        let host = &self.hosts[lane];
        match host.stage {
            Stage::Down(at) if at <= now => {
                let name = Lane(lane as u8);
                let parameters = QueueParameters {
                    keep_alive_ms: host.keep_alive_ms,
                    digests: host.digests,
                    flow_control: host.flow_control,
                    ..QueueParameters::admin(
                        qualified(&host_name(name)),
                        [lane as u8 + 1; 16],
                        qualified(&subsystem_name(name)),
                    )
                };
                let admin = Admin::new(parameters, host.io_queues);
                let stream = self.open(lane, shards, now);
                let host = &mut self.hosts[lane];
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
            self.drop_connection(lane, now + Span::from_millis(1), now);
            return true;
        }
        if let Stage::Leaving(token) = host.stage
            && host.admin.as_ref().is_some_and(|(_, admin)| admin.is_down())
        {
            mark!("hosts: clean shutdown");
            self.answers.push(HostAnswer { lane: Lane(lane as u8), token, result: Ok(Vec::new()) });
            self.hosts[lane].stage = Stage::Ready;
            self.drop_connection(lane, now + Span::from_millis(1), now);
            return true;
        }
        if host.is_waiting() && now >= host.heard_at + PATIENCE {
            mark!("hosts: host gave a connection up");
            self.drop_connection(lane, now + Span::from_millis(1), now);
            return true;
        }
        let (_, admin) = host.admin.as_ref().expect("a host that is not down has an admin queue");
        if host.stage == Stage::Admin
            && let Some(facts) = admin.facts()
        {
            let queues: Vec<QueueParameters> =
                (1..=facts.io_queues).map(|number| admin.io_queue(number, QUEUE_DEPTH)).collect();
            for parameters in queues {
                let stream = self.open(lane, shards, now);
                self.hosts[lane].io.push((stream, QueuePair::new(parameters)));
            }
            self.hosts[lane].stage = Stage::Io;
            return true;
        }
        if host.stage == Stage::Io && host.io.iter().all(|(_, queue)| queue.is_ready()) {
            (self.hosts[lane].stage, self.hosts[lane].refusals) = (Stage::Ready, 0);
            return true;
        }
        host.stage == Stage::Ready && self.fulfil_wish(lane, now)
    }

    /// What a host does on its admin queue beside its commands. Whether there was anything.
    pub(super) fn fulfil_wish(&mut self, lane: usize, now: Time) -> bool {
        let host = &mut self.hosts[lane];
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
                    let (lane, token) = (Lane(lane as u8), HostToken(token.0));
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
