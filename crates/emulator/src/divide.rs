//! A device divided by channels: parts are devices, too, and own some of the channels.

use crate::Device;
use crate::engine::Engine;
use crate::slot::Slots;
use crate::stages::Stages;
use crate::statistics::DieStatistics;
use crate::timing::Timing;
use diecut_media::Divide;

impl Divide for Device {
    fn empty_part(&mut self) -> Device {
        let geometry = self.nand.geometry;
        let mut part = Device {
            timing: Timing::new(&self.profile),
            engine: Engine::new(geometry.dies(), geometry.channels.into()),
            stages: Stages::default(),
            slots: Slots::default(),
            statistics: vec![DieStatistics::default(); geometry.dies() as usize],
            done: Vec::new(),
            syncs: None,
            reading: Vec::new(),
            roomless: Vec::new(),
            die_profile: self.die_profile.clone(),
            arbitration: self.arbitration,
            unit_bytes: self.unit_bytes,
            capabilities: self.capabilities,
            protected: self.protected.clone(),
            powered: self.powered,
            paced: self.paced,
            now: self.now,
            owned: vec![false; self.owned.len()],
            nand: self.nand.empty_part(),
            profile: self.profile.clone(),
            seed: self.seed,
        };
        part.arm_cut();
        part
    }

    fn owns(&self, channel: u16) -> bool {
        self.owned[usize::from(channel)]
    }

    fn is_quiet(&self, channel: u16) -> bool {
        let geometry = &self.nand.geometry;
        self.slots.live().all(|slot| geometry.die_at(slot.die).channel.0 != channel)
    }

    fn take_channel(&mut self, from: &mut Device, channel: u16) {
        assert!(from.owned[usize::from(channel)], "channel {channel} is the other part's");
        assert!(from.is_quiet(channel), "nothing is under way on channel {channel}");
        from.owned[usize::from(channel)] = false;
        self.owned[usize::from(channel)] = true;
        self.now = self.now.max(from.now);
        self.nand.take_from(&mut from.nand, channel);
        let dies = usize::from(self.nand.geometry.dies_per_channel);
        for die in usize::from(channel) * dies..(usize::from(channel) + 1) * dies {
            self.statistics[die] = std::mem::take(&mut from.statistics[die]);
        }
    }
}
