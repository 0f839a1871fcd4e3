//! What waits at one die.

use crate::VssdId;
use crate::dies::history::History;
use crate::dies::ops::Kind;
use crate::dies::settings::QueueSettings;
use crate::dies::share::Share;
use crate::space::IoClass;
use diecut_spec::Isolation;
use diecut_units::mutant;
use std::collections::VecDeque;

/// What waits at one die for one vSSD, or for all un-isolated ones.
#[derive(Default)]
pub(crate) struct Flow {
    pub owner: Option<VssdId>,
    /// Units of vSSDs that use it; 0: the place is free.
    users: u32,
    pub classes: [VecDeque<u32>; 5],
    pub skipped: [u32; 5],
    pub queued: u32,
    pub parked: VecDeque<u32>,
    pub weight: u64,
    /// Whether its vSSD's bucket says more than "within".
    pub is_limited: bool,
    /// It waits for its vSSD's bucket, in a line with that vSSD's flows on other dies.
    pub throttled: bool,
    /// Die time used, divided by the weight: the flow that is furthest behind is served next.
    pub used: u64,
}

/// The queues of one die.
#[derive(Default)]
pub(crate) struct DieQueue {
    pub flows: Vec<Flow>,
    /// Flows that somebody uses.
    pub members: u32,
    /// Where the flow served last stood; a flow that was idle starts here and not earlier.
    pub virtual_time: u64,
    /// What waits in the queues of its flows.
    pub queued: u32,
    /// Commands that the medium has.
    pub in_flight: u16,
    /// Programs and erases among them.
    pub programs: u16,
    /// Erases among these.
    pub erases: u16,
    /// Operations of copies for wear: served when nobody else is, or was long enough.
    pub background: VecDeque<u32>,
    /// How often others were served while one waited.
    pub passed: u32,
    /// What it did lately.
    pub history: History,
}

/// What a die takes. Where reads interrupt erases, only reads that hosts wait for go behind one: a program would gain nothing, and reads that
/// come behind it would wait for the whole erase; reads of the cleaner would put the erase off, for which writers wait.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Programs and erases.
    pub writes: bool,
    /// Reads that no host waits for.
    pub all_reads: bool,
}

impl Room {
    /// Whether there is room for a command.
    #[inline]
    pub fn takes(self, kind: Kind, class: IoClass) -> bool {
        match kind {
            Kind::Read | Kind::HeaderRead => self.all_reads || class == IoClass::HostRead,
            Kind::CopyRead => self.all_reads,
            _ => self.writes,
        }
    }
}

impl DieQueue {
    /// What the medium may have now.
    #[inline]
    pub fn room(&self, settings: &QueueSettings) -> Room {
        let is_erasing = self.erases > 0 && settings.suspends && !mutant!("vssd: programs go behind erases");
        Room { writes: self.programs < settings.program_window && !is_erasing, all_reads: !is_erasing }
    }

    /// The medium gets a command.
    #[inline]
    pub fn begin(&mut self, kind: Kind) {
        self.in_flight += 1;
        self.programs += u16::from(!kind.only_reads());
        self.erases += u16::from(kind.erases());
    }

    /// A command is over.
    #[inline]
    pub fn end(&mut self, kind: Kind) {
        debug_assert!(self.in_flight > 0, "what comes back was under way (I-V1)");
        self.in_flight -= 1;
        self.programs -= u16::from(!kind.only_reads());
        self.erases -= u16::from(kind.erases());
    }

    /// Whether nothing waits at the die and nothing is under way on it.
    pub fn is_quiet(&self) -> bool {
        let empty = |flow: &Flow| flow.queued == 0 && flow.parked.is_empty();
        self.in_flight == 0 && self.background.is_empty() && self.flows.iter().all(empty)
    }

    /// Gives a unit its flow.
    pub fn join(&mut self, id: VssdId, isolation: Isolation) -> u16 {
        let owner = (isolation != Isolation::None).then_some(id);
        let same = self.flows.iter().position(|flow| flow.users > 0 && flow.owner == owner);
        let at = match same.or_else(|| self.flows.iter().position(|flow| flow.users == 0)) {
            Some(at) => at,
            None => {
                self.flows.push(Flow::default());
                self.flows.len() - 1
            }
        };
        let flow = &mut self.flows[at];
        if flow.users == 0 {
            self.members += 1;
            *flow = Flow { owner, weight: Share::default().weight.into(), ..Flow::default() };
        }
        flow.users += 1;
        at as u16
    }

    /// A unit does not use its flow any more; nothing of it waits.
    ///
    /// # Panics
    /// If something waits in a flow that nobody uses then (I-V6).
    pub fn leave(&mut self, flow: u16) {
        let flow = &mut self.flows[usize::from(flow)];
        assert!(flow.users > 0, "a flow is left by who uses it (I-V6)");
        flow.users -= 1;
        let is_unused = flow.users == 0;
        assert!(!is_unused || self.members > 0, "a flow that somebody uses is counted (I-V6)");
        self.members -= u32::from(is_unused);
        assert!(!is_unused || flow.queued == 0, "a flow that nobody uses is empty (I-V6)");
        assert!(
            !is_unused || flow.parked.is_empty(),
            "nothing is parked behind a flow that nobody uses (I-V6)"
        );
    }
}
