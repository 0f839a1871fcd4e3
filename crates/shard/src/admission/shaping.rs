//! How volumes and applications of a shard get to their QoS sets, wait there and come back ([`super::qos`]).

use super::Admission;
use super::accounts::NOBODY;
use super::qos::{OTHERS, SetDefinition, SetStanding};
use diecut_namespace::contract::NamespaceId;
use diecut_units::Time;
use diecut_vssd::VssdId;

impl Admission {
    /// Makes a QoS set, or gives it another definition.
    pub fn define_set(&mut self, name: &str, definition: SetDefinition, now: Time) {
        self.shaper.define(name, definition, now);
    }

    /// Forgets QoS sets that are not wanted any more; what is in them is in none.
    pub fn keep_sets(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.shaper.names().filter(|name| !is_wanted(name)).cloned().collect();
        for name in gone {
            let set = self.shaper.set_of(Some(&name));
            for number in 0..self.volumes.end_index() {
                if self.volumes.get(number).is_some_and(|volume| volume.shaping.set == set) {
                    self.join(number, None);
                }
            }
            self.shaper.forget(&name);
        }
    }

    /// Puts a namespace that is open here into a QoS set, or takes it out.
    pub fn put_namespace(&mut self, namespace: NamespaceId, set: Option<&str>) {
        let volume = self.volume_of(namespace);
        if volume != NOBODY {
            self.join(volume, set);
        }
    }

    /// As [`Admission::put_namespace`], of the application at a vSSD.
    pub fn put_blocks(&mut self, vssd: VssdId, set: Option<&str>) {
        if let Some(volume) = self.blocks_of(vssd) {
            self.join(volume, set);
        }
    }

    /// A host of a namespace passed over room on flash: its QoS set, if it counts now, pays for it as for a write, up to ten seconds of its rate.
    pub fn charge_unused(&mut self, namespace: NamespaceId, bytes: u64, now: Time) {
        let shaping = &self.volumes[self.volume_of(namespace)].shaping;
        if shaping.is_shaped {
            self.shaper.charge_unused(shaping.set, bytes, now);
        }
    }

    /// QoS sets do not count for a vSSD while something waits for its end, or count again.
    pub fn lift(&mut self, vssd: VssdId, is_lifted: bool) {
        let Some(&vssd) = self.numbers.get(&vssd.0) else { return };
        self.vssds[vssd].is_lifted = is_lifted;
        for number in 0..self.volumes.end_index() {
            if self.volumes.get(number).is_some_and(|volume| volume.vssd == vssd) {
                self.reconsider(number);
            }
        }
    }

    /// How a QoS set stands here, if it is known.
    pub fn standing_of(&self, set: &str, now: Time) -> Option<SetStanding> {
        self.shaper.standing(set, now)
    }

    /// When a request that waits for tokens may be granted though nothing happens.
    pub fn tokens_at(&self) -> Time {
        self.shaper.due_at()
    }

    /// When something was last admitted.
    pub fn latest(&self) -> Time {
        self.latest
    }

    /// A volume is in a set from now on.
    pub(super) fn join(&mut self, volume: u32, set: Option<&str>) {
        let set = self.shaper.set_of(set);
        let before = self.volumes[volume].shaping.set;
        if set != before {
            self.stop_waiting(volume);
            if before != OTHERS {
                self.shaper.leave(before);
            }
            if set != OTHERS {
                self.shaper.join(set);
            }
            self.volumes[volume].shaping.set = set;
        }
        self.reconsider(volume);
    }

    /// A volume that is closed leaves its set, and needs no tokens for what is left of it.
    pub(super) fn set_free(&mut self, volume: u32) {
        self.join(volume, None);
    }

    /// Whether requests of a volume need tokens may have changed.
    fn reconsider(&mut self, volume: u32) {
        let own = &self.volumes[volume];
        let is_free = own.is_closed || self.vssds[own.vssd].is_lifted;
        let is_shaped = !is_free && self.shaper.shapes(own.shaping.set);
        self.volumes[volume].shaping.is_shaped = is_shaped;
        if !is_shaped {
            self.stop_waiting(volume);
        }
    }

    /// A volume waits for no tokens, and has none: its next request asks for them.
    fn stop_waiting(&mut self, volume: u32) {
        let shaping = &mut self.volumes[volume].shaping;
        if let Some(ticket) = shaping.ticket.take() {
            self.shaper.give_back(shaping.set, ticket);
        }
        if std::mem::take(&mut shaping.is_waiting) {
            self.shaper.withdraw(volume, shaping.set);
            self.enter_round(volume);
        }
    }

    /// Commands of a volume were taken back: it may have waited for one of them.
    pub(super) fn ask_anew(&mut self, volume: u32) {
        if self.volumes[volume].shaping.is_shaped {
            self.stop_waiting(volume);
        }
    }

    /// An application that offers nothing waits for no tokens.
    pub(super) fn stop_waiting_for_nothing(&mut self, volume: u32) {
        if self.volumes[volume].waiting == 0 {
            self.ask_anew(volume);
        }
    }

    /// The tenant in turn, when those whose requests were granted have their turns again.
    #[inline]
    pub(super) fn next_tenant(&mut self, now: Time) -> Option<u32> {
        while self.shaper.is_due(now, self.turns.is_empty())
            && let Some((volume, ticket)) = self.shaper.release(now, self.turns.is_empty())
        {
            let shaping = &mut self.volumes[volume].shaping;
            (shaping.is_waiting, shaping.ticket) = (false, Some(ticket));
            self.enter_round(volume);
        }
        self.turns.first()
    }
}
