//! Goal: writes name the placement handle that their medium chose, in all reclaim groups alike, also those that are sent again. Method: the target that is
//! shipped, over a namespace that notes where writes are to go.

use crate::line::Line;
use crate::server::{SIZE_BYTES, Server, Storage, config};
use diecut_media::IntentWork;
use diecut_namespace::contract::{
    NamespaceCommand, NamespaceCompletion, NamespaceOperation, PlacementHandle, PlacementHandles,
    PlacementProperties, PlacementTarget,
};
use diecut_nvmf::NamespaceConfig;
use diecut_remote::RemoteDrive;
use diecut_testing::Random;
use diecut_testing::target::LBA_SIZE_BYTES as LBA;
use diecut_units::Buffer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What was written where, by the MiB.
type Written = Rc<RefCell<BTreeMap<u64, PlacementTarget>>>;

struct Placed {
    below: Box<dyn Storage>,
    handles: Vec<PlacementHandle>,
    written: Written,
}

impl Storage for Placed {
    fn config(&self) -> NamespaceConfig {
        let mut namespace = config();
        namespace.properties.placement = Some(PlacementProperties {
            handles: PlacementHandles::new(&self.handles),
            is_given: false,
            vssd_handles: 8,
            groups: 2,
            is_persistent: false,
            unit_bytes: 1 << 20,
        });
        namespace
    }
    fn execute(&mut self, command: NamespaceCommand) -> NamespaceCompletion {
        if let NamespaceOperation::Write { range, placement, .. } = &command.operation {
            self.written.borrow_mut().insert((range.first_lba * LBA as u64) >> 20, *placement);
        }
        self.below.execute(command)
    }
    fn lose(&mut self, random: &mut Random) {
        self.below.lose(random);
    }
}

fn placed(handles: &[u16]) -> (Line, Written) {
    let written = Written::default();
    let handles = handles.iter().copied().map(PlacementHandle).collect();
    let storage = Placed { below: Server::plain().storage, handles, written: Rc::clone(&written) };
    let mut line = Line::new(&Rc::new(RefCell::new(Server::of(Box::new(storage)))), 1, 1);
    line.run(RemoteDrive::is_up);
    (line, written)
}

fn write(line: &mut Line, mib: u64, handle: u16) {
    let parts = [Buffer::copy_from(&[7; 4 * LBA])].into_iter().collect();
    assert_eq!(line.execute(IntentWork::Write { offset: mib << 20, parts, handle }).result, Ok(()));
}

#[test]
fn writes_name_handles() {
    let (mut line, written) = placed(&[5, 2, 7]);
    assert_eq!(line.remote.facts().unwrap().handles, 3);
    for (mib, handle) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 4)] {
        write(&mut line, mib, handle);
    }
    let of = |mib| written.borrow()[&mib];
    assert_eq!([1, 2, 3, 4, 5].map(|mib| of(mib).handle.0), [5, 2, 7, 7, 2]);
    let groups = [1, 2, 3, 4].map(|mib| of(mib).group.unwrap().0);
    assert_eq!(groups, [1, 0, 1, 0], "groups take turns");
    // The target dies: what was not flushed is written again, to the same handles.
    written.borrow_mut().clear();
    line.close();
    line.server.borrow_mut().crash(&mut Random::of(1));
    line.run(RemoteDrive::is_up);
    assert_eq!(line.execute(IntentWork::Sync).result, Ok(()));
    assert_eq!([1, 2, 3, 4, 5].map(|mib| of(mib).handle.0), [5, 2, 7, 7, 2]);
}

#[test]
fn one_handle_is_none_to_choose() {
    let (mut line, written) = placed(&[3]);
    assert_eq!(line.remote.facts().unwrap().handles, 0);
    write(&mut line, (SIZE_BYTES as u64 / 2) >> 20, 2);
    assert!(written.borrow().values().all(|target| target.handle.0 == 3 && target.group.is_none()));
}
