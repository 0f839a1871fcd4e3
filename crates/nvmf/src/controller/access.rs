//! The path of a controller: how good it is to reach the subsystem's namespaces, and what its host is told of that (asymmetric namespace
//! access, Base 2.0 section 8.1). An administrator says so for each address that hosts connect to.

use super::{Association, Notice};
use crate::config::SubsystemConfig;
use diecut_nvme::Status;
use diecut_nvme::admin::AsynchronousEvent;
use diecut_nvme::feature::EVENT_ACCESS_CHANGE;
use diecut_nvme::log_page::AnaState;
use diecut_units::mark;
use std::net::SocketAddr;

/// The path as one controller tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathAccess {
    /// Where the controller's first connection came to, if that is known.
    local: Option<SocketAddr>,
    state: AnaState,
    /// Changes of the page since the controller was reset.
    changes: u64,
    notice: Notice,
}

impl PathAccess {
    /// Of a controller that begins, whose host came to `local`.
    pub(crate) fn new(config: &SubsystemConfig, local: Option<SocketAddr>) -> PathAccess {
        PathAccess { local, state: state_of(config, local), ..PathAccess::default() }
    }

    /// Of a controller of discovery, which has no namespaces.
    pub(crate) fn of_discovery(local: Option<SocketAddr>) -> PathAccess {
        PathAccess { local, ..PathAccess::default() }
    }

    /// Where its host came to.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Whether commands to namespaces are served.
    ///
    /// # Errors
    /// What they are refused with.
    #[inline]
    pub(crate) fn serves(&self) -> Result<(), Status> {
        self.state.serves()
    }

    /// Whether figures of namespaces are not told over this path.
    pub(super) fn hides_figures(&self) -> bool {
        matches!(self.state, AnaState::Inaccessible | AnaState::PersistentLoss)
    }

    pub(super) fn state(&self) -> AnaState {
        self.state
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The page lists other namespaces. Hosts are told of that with a notice of its own.
    pub(super) fn namespaces_changed(&mut self) {
        self.changes += 1;
    }

    /// The host has read the page.
    pub(super) fn read(&mut self) {
        assert!(
            self.notice == Notice::Quiet || self.changes > 0,
            "I-T15: only a path that changed is told of"
        );
        self.notice = Notice::Quiet;
    }

    /// The next event; it counts as told.
    pub(super) fn next_event(&mut self) -> Option<AsynchronousEvent> {
        if self.notice != Notice::Pending {
            return None;
        }
        self.notice = Notice::Masked;
        assert!(self.changes > 0, "I-T15: a host is told of a path that changed");
        mark!("nvmf: host told of its path");
        Some(AsynchronousEvent::ACCESS_CHANGED)
    }

    /// The controller is reset: its count begins anew, and its path is as it was.
    pub(super) fn reset(&mut self) {
        *self = PathAccess { local: self.local, state: self.state, ..PathAccess::default() };
    }
}

/// How good the path over `local` to a subsystem is; nobody has said anything of a path without an address.
fn state_of(config: &SubsystemConfig, local: Option<SocketAddr>) -> AnaState {
    let address = local.map(|local| SocketAddr::new(local.ip().to_canonical(), local.port()));
    address.and_then(|address| config.paths.get(&address)).copied().unwrap_or_default()
}

impl Association {
    /// An administrator may have said something else of its path.
    pub(crate) fn look_at_path(&mut self, config: &SubsystemConfig) {
        let state = state_of(config, self.path.local);
        if state == self.path.state {
            return;
        }
        self.path.state = state;
        self.path.changes += 1;
        let is_wanted = self.events.configuration & EVENT_ACCESS_CHANGE != 0;
        let is_new = self.path.notice == Notice::Quiet;
        if is_wanted && is_new {
            self.path.notice = Notice::Pending;
        }
    }
}
