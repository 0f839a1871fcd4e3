//! Applications at erase blocks: who may attach to which vSSD, and turns of what they ask.
//!
//! The driver has the shared memory and gives checked copies of entries (`diecut_blockspace::ring`); here each vSSD that
//! serves blocks has at most one session. Its entries wait here and begin when admission gives their tenant a turn
//! (`crate::admission`), so not while the queues of its dies are full; no more wait than its rings have entries.
//!
//! When its vSSD changes its shard (`crate::relocation`) a session goes in two parts: what it knows of its blocks with the
//! vSSD, and what waits with the rings, which stay where they are until the new home can answer them.

use crate::admission::Admission;
use crate::door::{Door, Luggage, Party};
use crate::flash::Flash;
use crate::seat::ShardIndex;
use crate::session::MovedSession;
use diecut_blockspace::session::{Answer, Command, Session};
use diecut_blockspace::wire::{Shape, Status};
use diecut_media::Media;
use diecut_nvmf::SubsystemConfig;
use diecut_units::{Time, mark, mutant};
use diecut_vssd::VssdId;
use std::collections::VecDeque;

pub use crate::session::BlockSession;
pub use diecut_blockspace::ring::Layout;

/// What the driver tells of applications.
#[derive(Debug)]
pub enum BlockEvent {
    /// One wants to attach.
    Attach {
        /// Number of the attachment.
        session: BlockSession,
        /// Name of the vSSD.
        vssd: String,
        /// User it runs as.
        uid: u32,
        /// Whether that user may attach to any vSSD: root, or the server's own.
        is_privileged: bool,
    },
    /// One submitted an entry.
    Submitted {
        /// The attachment.
        session: BlockSession,
        /// The entry.
        command: Command,
    },
    /// One comes from another shard, attached as it was.
    Adopted {
        /// The attachment.
        session: BlockSession,
        /// What came with [`BlockAction::HandOver`].
        state: Box<MovedEntries>,
    },
    /// One is gone.
    Closed {
        /// The attachment.
        session: BlockSession,
    },
}

/// Entries of an application that wait, on their way to another shard.
#[derive(Debug)]
pub struct MovedEntries(VecDeque<Command>);

/// What a shard tells applications.
#[derive(Debug)]
pub enum BlockAction {
    /// It is attached: give it rings of this layout.
    Attached {
        /// The attachment.
        session: BlockSession,
        /// Shape of the vSSD.
        shape: Shape,
        /// Sizes of rings and data area.
        layout: Layout,
    },
    /// It is not, and will not be.
    Refused {
        /// The attachment.
        session: BlockSession,
        /// Why, for programs.
        status: Status,
        /// Why, for people.
        message: String,
    },
    /// Another shard has the vSSD: tell that one.
    Elsewhere {
        /// The attachment.
        session: BlockSession,
        /// Which shard.
        to: ShardIndex,
    },
    /// An answer.
    Answered {
        /// The attachment.
        session: BlockSession,
        /// The answer.
        answer: Answer,
    },
    /// Its vSSD lives on another shard now: give it and its rings to that one, as [`BlockEvent::Adopted`] with this state,
    /// in order with messages. Nothing more of it is taken here.
    HandOver {
        /// The attachment.
        session: BlockSession,
        /// Its new home.
        to: ShardIndex,
        /// What waits.
        state: Box<MovedEntries>,
    },
    /// Its vSSD is deleted, or the server stops: hang up.
    Evicted {
        /// The attachment.
        session: BlockSession,
    },
}

struct Open {
    /// None: the application is gone and its operations are waited for.
    session: Option<BlockSession>,
    vssd: VssdId,
    core: Session,
    waiting: VecDeque<Command>,
    /// Entries that admission knows of.
    offered: u32,
    passage: Passage,
}

/// Where a session is on its way from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    /// It stays.
    None,
    /// It is about to leave: nothing of it is started.
    Leaves,
    /// Its rings are still to come.
    Arrives,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Blocks {
    open: Vec<Open>,
    /// What waits of sessions whose blocks have left.
    left: Vec<(BlockSession, VecDeque<Command>)>,
    /// vSSDs whose application is gone, though admission knows of entries.
    withdrawn: Vec<VssdId>,
    answers: Vec<Answer>,
    pub actions: Vec<BlockAction>,
}

impl Blocks {
    /// Attaches an application to a vSSD that lives here, unless another one holds it. `name` is the vSSD's, for people.
    pub fn attach<M: Media>(
        &mut self,
        session: BlockSession,
        name: &str,
        vssd: VssdId,
        flash: &mut Flash<M>,
        now: Time,
    ) -> BlockAction {
        let space = flash.devices.space(vssd, now);
        let (shape, layout) = (Session::shape_of(space.as_ref()), Session::layout_for(space.as_ref()));
        if let Some(open) = self.open.iter_mut().find(|open| open.vssd == vssd) {
            if mutant!("shard: dead application's answers go to the next") {
                return BlockAction::Attached { session: *open.session.insert(session), shape, layout };
            }
            let message =
                format!("vSSD \"{name}\" is held by another application; try again when that is gone");
            return BlockAction::Refused { session, status: Status::Held, message };
        }
        let core = Session::new(space.as_ref(), layout.slot_size_bytes);
        assert!(self.of(session).is_none(), "I-S17: {session:?} holds one vSSD");
        let (waiting, passage) = (VecDeque::new(), Passage::None);
        self.open.push(Open { session: Some(session), vssd, core, waiting, offered: 0, passage });
        BlockAction::Attached { session, shape, layout }
    }

    fn of(&mut self, session: BlockSession) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.session == Some(session))
    }

    pub fn close(&mut self, session: BlockSession) {
        if let Some(open) = self.of(session) {
            open.session = None;
            open.waiting.clear();
        }
        // Its new home does not wait for it either.
        self.left.retain(|(left, _)| *left != session);
        self.forget_idle();
    }

    pub fn submit(&mut self, session: BlockSession, command: Command) {
        // One that was evicted meanwhile gets no answer.
        if let Some(open) = self.of(session) {
            open.waiting.push_back(command);
        } else if let Some((_, waiting)) = self.left.iter_mut().find(|(left, _)| *left == session) {
            waiting.push_back(command);
        }
    }

    fn forget_idle(&mut self) {
        let gone = self.open.extract_if(.., |open| open.session.is_none() && open.core.is_idle());
        self.withdrawn.extend(gone.filter(|open| open.offered > 0).map(|open| open.vssd));
    }

    /// Hangs up on whoever holds the vSSD, or on all. Says whether nothing of theirs is under way any more.
    pub fn evict(&mut self, vssd: Option<VssdId>) -> bool {
        let chosen = |open: &&mut Open| vssd.is_none_or(|vssd| open.vssd == vssd);
        for open in self.open.iter_mut().filter(chosen) {
            if let Some(session) = open.session.take() {
                self.actions.push(BlockAction::Evicted { session });
            }
            open.waiting.clear();
        }
        self.forget_idle();
        !self.open.iter().any(|open| vssd.is_none_or(|vssd| open.vssd == vssd))
    }

    pub fn adopt(&mut self, session: BlockSession, state: MovedEntries) {
        match self.of(session) {
            Some(open) => {
                assert_eq!(open.passage, Passage::Arrives, "I-S16: rings follow who came without them");
                assert!(open.waiting.is_empty(), "I-S16: entries wait where the rings are");
                (open.waiting, open.passage) = (state.0, Passage::None);
            }
            None => self.actions.push(BlockAction::Evicted { session }),
        }
    }

    fn tell(&mut self, at: usize) {
        let session = self.open[at].session;
        for answer in self.answers.drain(..) {
            // What was under way for somebody who is gone is answered to nobody.
            if let Some(session) = session {
                self.actions.push(BlockAction::Answered { session, answer });
            }
        }
    }

    /// Tells admission which entries wait and may begin.
    pub fn offer(&mut self, admission: &mut Admission) {
        for vssd in self.withdrawn.drain(..) {
            admission.offer(vssd, 0);
        }
        for open in self.open.iter_mut().filter(|open| open.offered != open.may_begin()) {
            open.offered = open.may_begin();
            admission.offer(open.vssd, open.offered);
        }
    }

    /// Begins the next entry at a vSSD. Gives the IUs that it carries or asks for.
    ///
    /// # Panics
    /// If none was offered.
    pub fn begin<M: Media>(&mut self, vssd: VssdId, flash: &mut Flash<M>, now: Time) -> u32 {
        let at = self.open.iter().position(|open| open.vssd == vssd);
        let at = at.expect("I-S2: who has a turn is attached");
        let open = &mut self.open[at];
        let command = open.waiting.pop_front().expect("I-S2: who has a turn has something to do");
        open.offered -= 1;
        let ius = command.ius();
        let mut space = flash.devices.space(vssd, now);
        open.core.submit(command, space.as_mut(), &mut self.answers);
        self.tell(at);
        ius
    }

    /// Takes the answers of the pool.
    pub fn complete<M: Media>(&mut self, flash: &mut Flash<M>) {
        for (vssd, completion) in flash.block_completions.drain(..) {
            let Some(at) = self.open.iter().position(|open| open.vssd == vssd) else { continue };
            self.open[at].core.complete(completion, &mut self.answers);
            self.tell(at);
        }
        self.forget_idle();
    }

    /// Whether there is something to tell, or to offer.
    pub fn has_work(&self) -> bool {
        !self.actions.is_empty() || self.open.iter().any(|open| open.offered != open.may_begin())
    }
}

impl Open {
    /// Entries that may begin when it is their turn.
    fn may_begin(&self) -> u32 {
        if self.passage == Passage::None { self.waiting.len() as u32 } else { 0 }
    }
}

impl Door for Blocks {
    /// Starts nothing more for who is attached to a vSSD of the group.
    fn freeze(&mut self, party: &Party) {
        for open in self.open.iter_mut().filter(|open| party.vssds.contains(&open.vssd.0)) {
            assert_ne!(open.passage, Passage::Arrives, "I-S15: who leaves has arrived");
            open.passage = Passage::Leaves;
        }
    }

    fn is_drained(&self, party: &Party) -> bool {
        self.open.iter().filter(|open| party.vssds.contains(&open.vssd.0)).all(|open| open.core.is_idle())
    }

    /// Takes out who is attached. What waits stays, and what comes meanwhile, until [`Door::release`].
    fn take_out(&mut self, party: &Party) -> Luggage {
        assert!(self.left.is_empty(), "I-S15: one group leaves a shard at a time");
        let left = self.open.extract_if(.., |open| party.vssds.contains(&open.vssd.0));
        let left = left.map(|Open { session, vssd, core, waiting, passage, offered: _ }| {
            assert_eq!(passage, Passage::Leaves, "I-S16: who leaves was frozen");
            assert!(core.is_idle(), "I-S16: nothing is under way for who leaves");
            if let Some(session) = session {
                mark!("shard: application moved while it was attached");
                if !waiting.is_empty() {
                    mark!("shard: application moved with entries that wait");
                }
                self.left.push((session, waiting));
            }
            MovedSession { session, vssd, core }
        });
        Luggage::Applications(left.collect())
    }

    /// Puts in who was taken out elsewhere; nothing is started before the rings are here.
    fn put_in(&mut self, luggage: Luggage, _subsystems: &[SubsystemConfig], _now: Time) {
        let Luggage::Applications(sessions) = luggage else {
            unreachable!("I-S16: luggage goes by its door")
        };
        for MovedSession { session, vssd, core } in sessions {
            assert!(!self.open.iter().any(|open| open.vssd == vssd), "I-S17: one application holds {vssd:?}");
            let (waiting, passage) = (VecDeque::new(), Passage::Arrives);
            self.open.push(Open { session, vssd, core, waiting, offered: 0, passage });
        }
    }

    /// Rings that are not here belong to applications that are gone.
    fn all_arrived(&mut self, _now: Time) {
        for open in self.open.iter_mut().filter(|open| open.passage == Passage::Arrives) {
            mark!("shard: application gone while it moved");
            (open.session, open.passage) = (None, Passage::None);
        }
        self.forget_idle();
    }

    /// Gives away the rings of those that were taken out.
    fn release(&mut self, _subsystems: Vec<SubsystemConfig>, to: ShardIndex, _now: Time) {
        for (session, mut waiting) in self.left.drain(..) {
            if mutant!("shard: entries of an application stay behind") {
                waiting.clear();
            }
            self.actions.push(BlockAction::HandOver { session, to, state: Box::new(MovedEntries(waiting)) });
        }
    }
}
