//! Subsystems: what the target is told of them.

use crate::control::PathState;
use crate::health;
use crate::job::Progress;
use crate::owners::Owners;
use crate::panics_told;
use crate::placement_events;
use crate::registry::qualified;
use crate::reservations;
use crate::sanitize;
use diecut_media::Divide;
use diecut_namespace::contract::NamespaceId;
use diecut_nvme::log_page::AnaState;
use diecut_nvmf::{Home, NamespaceConfig, SubsystemConfig};
use diecut_units::Time;
use diecut_vssd::VssdId;

/// Tells the target what a subsystem looks like now.
pub(crate) fn apply<M: Divide>(here: &mut Owners<M>, nqn: &str, now: Time) -> Progress {
    apply_subsystem(here, nqn, now);
    Progress::Done
}

/// Takes a subsystem from the target and waits until its commands came back.
pub(crate) fn remove<M: Divide>(here: &mut Owners<M>, nqn: &str, now: Time) -> Progress {
    let nqn = qualified(nqn);
    here.plane.nvme.target.remove_subsystem(&nqn, now, &mut here.plane.nvme.actions);
    if here.plane.nvme.target.is_quiet(&nqn) { Progress::Done } else { Progress::Waits }
}

/// Tells the target what a subsystem looks like.
pub(crate) fn apply_subsystem<M: Divide>(here: &mut Owners<M>, nqn: &str, now: Time) {
    if let Some(config) = subsystem_config(here, nqn) {
        here.plane.nvme.target.set_subsystem(config, now, &mut here.plane.nvme.actions);
        reservations::restore(here, nqn);
        sanitize::restore(here, nqn, now);
        placement_events::restore(here, nqn);
        health::tell(here, nqn);
        panics_told::tell(here, nqn);
    }
}

/// What a subsystem looks like here.
pub(crate) fn subsystem_config<M: Divide>(here: &Owners<M>, nqn: &str) -> Option<SubsystemConfig> {
    let record = here.registry.state.subsystems.get(nqn)?;
    let home = match here.placement.ledger.home_of(&record.tenant) {
        home if home == here.placement.index.0 => Home::Here,
        home => Home::Elsewhere(home),
    };
    let is_away = |volume: &String| {
        let vssd = &here.registry.state.volumes[volume].vssd;
        here.registry.away.contains_key(&here.registry.state.vssds[vssd].number)
    };
    let shown = record.namespaces.iter().filter(|shown| home == Home::Here && !is_away(&shown.volume));
    let namespaces = shown.map(|shown| {
        let volume = &here.registry.state.volumes[&shown.volume];
        let namespace = NamespaceId(volume.namespace);
        let properties =
            here.plane.namespaces.properties(namespace).expect("I-S6: the namespace of a subsystem is open");
        let [uuid, nguid] = volume.identities();
        let vssd = VssdId(here.registry.state.vssds[&volume.vssd].number);
        let content = here.plane.flash.devices.first_of(vssd).media.capabilities().content_mode;
        (shown.nsid, NamespaceConfig { namespace, uuid, nguid, properties, content })
    });
    Some(SubsystemConfig {
        nqn: qualified(nqn),
        serial: record.serial.clone().expect("I-C8: a subsystem that exists has its serial number"),
        model: record.model.clone().expect("I-C8: a subsystem that exists has its model number"),
        allow_any_host: record.allow_any_host,
        allowed_hosts: record.allowed_hosts.iter().map(|host| qualified(host)).collect(),
        namespaces: namespaces.collect(),
        paths: record.paths.iter().map(|path| (path.address, ana_state(path.state))).collect(),
        home,
    })
}

/// What NVMe calls the state of a path.
fn ana_state(state: PathState) -> AnaState {
    match state {
        PathState::Optimized => AnaState::Optimized,
        PathState::NonOptimized => AnaState::NonOptimized,
        PathState::Inaccessible => AnaState::Inaccessible,
        PathState::PersistentLoss => AnaState::PersistentLoss,
        PathState::Change => AnaState::Change,
    }
}
