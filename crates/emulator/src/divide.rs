//! A device divided by channels: parts are devices, too, and own some of the channels.

use crate::Device;
use crate::engine::Engine;
use diecut_media::Divide;

impl Divide for Device {
    fn empty_part(&mut self) -> Device {
        let mut part = Device {
            engine: Engine::new(&self.profile, self.engine.nand.empty_part(), false),
            reading: Vec::new(),
            roomless: Vec::new(),
            capabilities: self.capabilities,
            protected: self.protected.clone(),
            powered: self.powered,
            paced: self.paced,
            now: self.now,
            owned: vec![false; self.owned.len()],
            profile: self.profile.clone(),
            seed: self.seed,
            keeps_discarded: self.keeps_discarded,
        };
        part.arm_cut();
        part
    }

    fn owns(&self, channel: u16) -> bool {
        self.owned[usize::from(channel)]
    }

    fn is_quiet(&self, channel: u16) -> bool {
        let geometry = &self.engine.nand.geometry;
        self.engine.commands.live().all(|command| geometry.die_at(command.die).channel.0 != channel)
    }

    fn take_channel(&mut self, from: &mut Device, channel: u16) {
        assert!(from.owned[usize::from(channel)], "channel {channel} is the other part's");
        assert!(from.is_quiet(channel), "nothing is under way on channel {channel}");
        from.owned[usize::from(channel)] = false;
        self.owned[usize::from(channel)] = true;
        self.now = self.now.max(from.now);
        self.engine.take_from(&mut from.engine, channel);
    }
}
