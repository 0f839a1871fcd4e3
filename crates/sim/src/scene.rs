//! A server of one shard and the hosts beside it, in virtual time: what the simulated systems of zones and of chunks have in common. What hosts do
//! and know is theirs.

use crate::shards::Shards;
use diecut_devices::Device;
use diecut_namespace::contract::NamespaceCompletion;
use diecut_shard::control::{ControlRequest, ControlResponse, ControlToken};
use diecut_shard::drive::{Action, ConnectionId, Event};
use diecut_shard::{Shard, ShardConfig};
use diecut_units::{Span, Time};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Steps of a life between two restarts, at most.
const STEPS_MAX: u64 = 500;
/// Turns in which commands are answered, at most: more is a command that hangs.
const TURNS_MAX: u32 = 400_000;

/// The server of a scene, and its clock.
pub(crate) struct Server {
    shards: Option<Shards>,
    config: ShardConfig,
    seed: u64,
    pub now: Time,
    answer: Option<ControlResponse>,
}

impl Server {
    /// On a new device; it is ready when this returns.
    pub fn new(device: Device, config: ShardConfig, seed: u64) -> Result<Server, String> {
        let shards = Some(Shards::new(device, &config, 1, seed, Time::ZERO));
        let mut server = Server { shards, config, seed, now: Time::ZERO, answer: None };
        server.open()?;
        Ok(server)
    }

    fn shards(&self) -> &Shards {
        self.shards.as_ref().expect("shards stand")
    }

    fn shards_mut(&mut self) -> &mut Shards {
        self.shards.as_mut().expect("shards stand")
    }

    /// Its shard.
    pub fn lead(&self) -> &Shard<Device> {
        self.shards().lead()
    }

    /// See [`Server::lead`].
    pub fn lead_mut(&mut self) -> &mut Shard<Device> {
        self.shards_mut().lead_mut()
    }

    fn open(&mut self) -> Result<(), String> {
        self.turn_until(|server| server.lead().is_ready())
    }

    /// An administrator's request is carried out. No host asks for anything meanwhile.
    pub fn done(&mut self, request: ControlRequest) -> Result<(), String> {
        let mut actions = Vec::new();
        let event = Event::Control { token: ControlToken(1), request: Box::new(request.clone()) };
        let now = self.now;
        self.shards_mut().handle(0, event, now, &mut actions);
        self.act(actions);
        self.turn_until(|server| server.answer.is_some())?;
        match self.answer.take() {
            Some(ControlResponse::Done | ControlResponse::Unchanged) => Ok(()),
            other => Err(format!("{request:?}: {other:?}")),
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Action::Answer { response, .. } = action {
                self.answer = Some(*response);
            }
        }
    }

    /// Something comes from outside.
    pub fn tell(&mut self, event: Event) {
        let (now, mut actions) = (self.now, Vec::new());
        self.shards_mut().handle(0, event, now, &mut actions);
        self.act(actions);
    }

    /// What it has for a connection, which is sent then.
    pub fn output_of(&mut self, connection: ConnectionId) -> Option<Vec<u8>> {
        let outbox = self.shards().outbox(0, connection).filter(|outbox| !outbox.is_empty())?;
        let mut bytes = vec![0; outbox.len_bytes()];
        let copied = outbox.copy_to(&mut bytes);
        bytes.truncate(copied);
        let (now, mut actions) = (self.now, Vec::new());
        self.shards_mut().sent(0, connection, copied, now, &mut actions);
        self.act(actions);
        Some(bytes)
    }

    /// Reads that each die of the device did.
    pub fn reads_of_dies(&self) -> Vec<u64> {
        self.shards().reads_of_dies()
    }

    /// Goes on to what happens next, and says what was answered; `None` if nothing happens.
    pub fn turn(&mut self) -> Option<Vec<NamespaceCompletion>> {
        let next = self.shards().deadline();
        if next == Time::NEVER {
            return None;
        }
        self.now = self.now.max(next);
        let now = self.now;
        let mut actions = Vec::new();
        self.shards_mut().work(0, now, &mut actions);
        self.act(actions);
        let mut completions = Vec::new();
        self.lead_mut().take_completions(&mut completions);
        Some(completions)
    }

    fn turn_until(&mut self, is_over: impl Fn(&Server) -> bool) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if is_over(self) {
                return Ok(());
            }
            match self.turn() {
                Some(completions) => assert!(completions.is_empty(), "no host asked for anything"),
                None => self.now += Span::from_millis(1),
            }
        }
        Err(self.comes_to_no_end())
    }

    fn comes_to_no_end(&self) -> String {
        format!("it comes to no end: {}", self.lead().describe())
    }

    /// The power goes, or the process dies; `between` sees the device before the server is there again.
    pub fn restart(&mut self, is_cut: bool, between: impl FnOnce(&mut Device)) -> Result<(), String> {
        let now = self.now;
        let media = self.lead_mut().media_mut().emulated_mut();
        if is_cut {
            media.power_cut(now)
        } else {
            media.process_death(now)
        }
        let mut device = self.shards.take().expect("shards stand").into_device();
        if !device.emulated().is_powered() {
            device.emulated_mut().power_on();
        }
        between(&mut device);
        self.shards = Some(Shards::new(device, &self.config, 1, self.seed, now));
        self.open()
    }
}

/// A server with its hosts.
pub(crate) trait Scene {
    fn server(&self) -> &Server;
    fn server_mut(&mut self) -> &mut Server;
    fn random(&mut self) -> &mut Xoshiro256PlusPlus;
    /// A host's command was answered.
    fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String>;
    /// A host does something, or nothing.
    fn step(&mut self) -> Result<(), String>;
    /// Everything that is under way ends.
    fn settle(&mut self) -> Result<(), String>;
    fn read_all(&mut self) -> Result<(), String>;
    /// The process dies, or the power goes; then what is there is compared with what may be.
    fn restart(&mut self) -> Result<(), String>;

    /// So many lives of the server.
    fn live(&mut self, lives: u32) -> Result<(), String> {
        for life in 0..lives {
            for _ in 0..self.random().random_range(0..STEPS_MAX) {
                self.step()?;
            }
            if self.random().random_ratio(1, 3) {
                self.settle()?;
                self.read_all()?;
            }
            self.restart()?;
            if life + 1 == lives || self.random().random_ratio(1, 2) {
                self.read_all()?;
            }
        }
        Ok(())
    }

    /// Goes on to what happens next. Says whether anything does.
    fn turn(&mut self) -> Result<bool, String> {
        let Some(completions) = self.server_mut().turn() else { return Ok(false) };
        completions.into_iter().try_for_each(|completion| self.completed(completion))?;
        Ok(true)
    }

    /// A few turns, or none.
    fn some_turns(&mut self) -> Result<(), String> {
        for _ in 0..self.random().random_range(0..4) {
            self.turn()?;
        }
        Ok(())
    }

    fn turn_until(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if is_over(self) {
                return Ok(());
            }
            if !self.turn()? {
                self.server_mut().now += Span::from_millis(1);
            }
        }
        Err(self.server().comes_to_no_end())
    }
}
