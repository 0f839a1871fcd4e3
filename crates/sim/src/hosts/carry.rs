//! Bytes on their way between hosts and target, those of streams that their host has given up included.

use super::*;

impl Hosts {
    /// Bytes of a stream reach the shard, in a window for them if it has one, as the reactor does.
    pub(super) fn bring(&mut self, connection: ConnectionId, bytes: &[u8], shards: &mut Shards, now: Time) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(shard) = self.shard_of(connection) else {
                // It is on its way to another shard; its socket still has the rest.
                if let Some(stream) = self.find(connection) {
                    stream.to_target.give_back(rest, now);
                }
                return;
            };
            let (event, length) = match shards.receive_window(shard, connection) {
                Some(window) => {
                    mark!("hosts: received in a window");
                    let len_bytes = window.len().min(rest.len());
                    window[..len_bytes].copy_from_slice(&rest[..len_bytes]);
                    (Event::ReceivedInWindow { connection, len_bytes }, len_bytes)
                }
                None => (Event::Received { connection, bytes: Buffer::copy_from(rest) }, rest.len()),
            };
            self.tell(shard, event, shards, now);
            rest = &rest[length..];
        }
    }

    /// Takes output of the target for a stream, as much as its buffer holds.
    pub(super) fn transmit(&mut self, id: ConnectionId, shards: &mut Shards, now: Time) {
        loop {
            let Some(shard) = self.shard_of(id) else { return };
            let Some(outbox) = shards.outbox(shard, id).filter(|outbox| !outbox.is_empty()) else { return };
            let (smooth, mut random) = (self.smooth, self.random.clone());
            let Some(stream) = self.find(id) else { return };
            let room = SOCKET_BUFFER_BYTES.saturating_sub(stream.to_host.len_bytes());
            stream.blocked = room == 0;
            if stream.blocked {
                mark!("hosts: target waits for a socket");
                return;
            }
            let mut bytes = vec![0; outbox.len_bytes().min(room)];
            let copied = outbox.copy_to(&mut bytes);
            stream.to_host.send(&bytes[..copied], now, smooth, &mut random);
            self.random = random;
            let mut actions = Vec::new();
            shards.sent(shard, id, copied, now, &mut actions);
            self.act(shard, &mut actions, shards, now);
        }
    }

    /// What the host's queues have to say goes on its way.
    pub(super) fn send_output(&mut self, path: usize, now: Time) {
        let host = &mut self.paths[path];
        let send = |stream: &mut Stream, bytes: &[u8], random: &mut _| {
            // What a host sends into nothing is lost, and it does not know.
            if !stream.vanished {
                stream.to_target.send(bytes, now, self.smooth, random);
            }
        };
        if let Some((stream, admin)) = &mut host.admin {
            let len_bytes = admin.output().len();
            send(stream, admin.output(), &mut self.random);
            admin.sent(len_bytes);
        }
        for (stream, queue) in &mut host.io {
            let len_bytes = queue.output().len();
            send(stream, queue.output(), &mut self.random);
            queue.sent(len_bytes);
        }
    }

    /// Segments that have arrived at the target; one of each stream. Whether there was any.
    pub(super) fn carry_to_target(&mut self, path: usize, shards: &mut Shards, now: Time) -> bool {
        let mut arrived: Vec<(ConnectionId, Vec<u8>)> = Vec::new();
        for stream in self.paths[path].streams_mut().filter(|stream| stream.is_read(shards, now)) {
            if let Some(bytes) = stream.to_target.receive(now) {
                arrived.push((stream.id, bytes));
            }
        }
        for (id, bytes) in &arrived {
            self.bring(*id, bytes, shards, now);
        }
        !arrived.is_empty()
    }

    /// Segments that have arrived at the host. Whether there was any.
    pub(super) fn carry_to_host(&mut self, path: usize, shards: &mut Shards, now: Time) -> bool {
        let mut unblocked = Vec::new();
        let mut moved = false;
        let mut failed: Option<StreamError> = None;
        let host = &mut self.paths[path];
        let mut brought = Brought { under_way: &mut host.under_way, completions: Vec::new() };
        let mut received = |stream: &mut Stream| {
            let bytes = (!stream.vanished).then(|| stream.to_host.receive(now))??;
            moved = true;
            if stream.blocked {
                unblocked.push(stream.id);
            }
            Some(bytes)
        };
        if let Some((stream, admin)) = &mut host.admin
            && let Some(bytes) = received(stream)
        {
            failed = failed.or(host.watch.receive(admin, &bytes, now).err());
        }
        for (stream, queue) in &mut host.io {
            if let Some(bytes) = received(stream) {
                failed = failed.or(queue.receive(&bytes, &mut brought).err());
            }
        }
        let completions = brought.completions;
        if moved {
            host.heard_at = now;
        }
        for completion in completions {
            let incoming =
                host.under_way.remove(&completion.token).expect("an answer to a command under way");
            let status = completion.status;
            let result = if status.is_success() { Ok(incoming) } else { Err(error_of(status)) };
            let token = HostToken(completion.token.0);
            self.answers.push(HostAnswer { lane: host.lane, token, result });
        }
        for id in unblocked {
            self.transmit(id, shards, now);
        }
        match failed {
            None => {}
            Some(StreamError::ConnectRefused { status, .. }) => {
                // Thrown out, gone, or busy with the old association.
                mark!("hosts: Connect refused");
                assert!(!status.is_success());
                let admin = self.paths[path].admin.as_ref();
                let has_controller = admin.is_some_and(|(stream, admin)| {
                    admin.facts().is_some() && !stream.vanished && !stream.closing
                });
                assert!(
                    !has_controller || !status.same_code(Status::CONNECT_INVALID_PARAMETERS),
                    "path {path}: an I/O queue is refused, and its controller is there"
                );
                let retry = self.paths[path].retry();
                self.drop_connection(path, now + retry, now);
            }
            Some(StreamError::BringUp { .. }) => {
                mark!("hosts: bring-up failed");
                let retry = self.paths[path].retry();
                self.drop_connection(path, now + retry, now);
            }
            Some(error) => panic!("the host of path {path}: {error}"),
        }
        moved
    }

    /// What abandoned streams still bring, and their end. Whether there was anything.
    pub(super) fn carry_orphans(&mut self, shards: &mut Shards, now: Time) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.orphans.len() {
            let orphan = &mut self.orphans[index];
            let id = orphan.id;
            if orphan.closing {
                self.orphans.remove(index);
                moved = true;
                continue;
            }
            let Some(shard) = orphan.shard else {
                index += 1;
                continue;
            };
            if shards.core_free_at(shard) > now {
                index += 1;
                continue;
            }
            if (orphan.to_target.is_empty() || orphan.paused) && orphan.told_at <= now {
                self.orphans.remove(index);
                self.tell(shard, Event::Closed { connection: id }, shards, now);
                moved = true;
                continue;
            }
            if !orphan.paused
                && let Some(bytes) = orphan.to_target.receive(now)
            {
                mark!("hosts: bytes after their host hung up");
                moved = true;
                self.bring(id, &bytes, shards, now);
            }
            index += 1;
        }
        moved
    }
}
