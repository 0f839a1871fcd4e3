//! Goal: a namespace of a target is a drive that keeps the flash contract, whatever happens to the connection and to the target's cache. Method: the
//! target that is shipped, over memory with a volatile cache, streams in pieces; connections end, and the target dies with what was not flushed, at
//! moments that a seed chooses. Over it the suite of the flash contract, with its oracle.

mod chunks;
mod handles;
mod line;
mod parts;
mod server;
mod zones;

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Intent, IntentError, IntentToken, IntentWork, conformance};
use diecut_remote::{ClaimKind, RemoteDrive, RemoteError, RemoteFacts, RemoteParameters};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::driven::{CarryOut, Driven};
use diecut_testing::planted::is_noticed;
use diecut_testing::target::subsystem;
use diecut_units::{Buffer, BufferMut, Span, Time};
use line::{Line, STREAMS, Under};
use server::{SIZE_BYTES, SUBSYSTEM, Server, config};
use std::cell::RefCell;
use std::rc::Rc;

type OnTarget = Driven<DriveMedium, Under>;

fn on(line: Line) -> OnTarget {
    let shape = DriveShape::plan(SIZE_BYTES as u64, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, true), Under(line))
}

fn fresh(seed: u64) -> OnTarget {
    on(Line::new(&Rc::new(RefCell::new(Server::plain())), 1, seed))
}

/// Goal: a namespace keeps the contract. Method: the suite.
#[test]
fn the_contract_holds() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        fresh(seed)
    });
}

fn random_work_over_cuts(seeds: std::ops::Range<u64>) {
    let mut cuts = 0;
    for seed in seeds {
        let mut medium = fresh(seed);
        (medium.io.0.cut_one_in, medium.io.0.crashes_in_ten) = (150, 5);
        medium.io.0.server.borrow_mut().slow_one_in = seed % 3 * 10;
        conformance::random_work(&mut medium, seed);
        cuts += medium.io.0.cuts;
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Goal: what was answered is there, although connections end and the target dies with its cache. Method: random work with an oracle.
#[test]
fn nothing_that_was_answered_is_lost_with_a_connection() {
    random_work_over_cuts(0..depth(20, 2_000));
}

#[test]
fn planted_bugs_are_noticed() {
    is_noticed("remote: what was not flushed is not kept", || random_work_over_cuts(0..12));
    is_noticed("remote: connections of before are not preempted", what_was_under_way_does_not_land_late);
}

/// Goal: what a flush covered survives the death of this machine, and of the target.
#[test]
fn flushed_content_survives() {
    for seed in 0..depth(8, 500) {
        let mut lives = 0;
        conformance::flushed_content_survives_cuts(fresh(seed), seed, &mut |mut medium: OnTarget| {
            lives += 1;
            medium.io.0.close();
            medium.io.0.server.borrow_mut().crash(&mut Random::of(seed * 100 + lives));
            on(Line::new(&medium.io.0.server, 1, seed + lives))
        });
    }
}

fn write(line: &mut Line, byte: u8) -> Result<(), IntentError> {
    let parts = [Buffer::copy_from(&[byte; 8192])].into_iter().collect();
    line.execute(IntentWork::Write { offset: 1 << 20, parts, handle: 0 }).result
}

fn read(line: &mut Line) -> Vec<u8> {
    let buffer = BufferMut::copy_from(&[0xee; 8192]);
    let done = line.execute(IntentWork::Read { offset: 1 << 20, buffer });
    assert_eq!(done.result, Ok(()));
    done.buffer.unwrap().to_vec()
}

/// Goal: what a connection that was lost still has at the target does not land behind what comes over the next one. Method: a write that takes its time, its
/// connection ends, it is repeated, and what was written is read until nothing is under way at the target any more.
fn what_was_under_way_does_not_land_late() {
    for seed in 0..20 {
        let server = Rc::new(RefCell::new(Server::plain()));
        let mut line = Line::new(&server, 1, seed);
        line.run(RemoteDrive::is_up);
        server.borrow_mut().slow_one_in = 1;
        let parts = [Buffer::copy_from(&[1; 8192])].into_iter().collect();
        let intent =
            Intent { token: IntentToken(4), work: IntentWork::Write { offset: 1 << 20, parts, handle: 0 } };
        line.remote.begin(&mut vec![intent]);
        while server.borrow().late.is_empty() {
            line.carry();
        }
        line.close();
        server.borrow_mut().slow_one_in = 0;
        let mut done = Vec::new();
        while done.is_empty() {
            line.now = line.now.max(CarryOut::next_event(&line));
            let now = line.now;
            CarryOut::end(&mut line, now, &mut done);
        }
        assert_eq!(write(&mut line, 2), Ok(()));
        while server.borrow_mut().end_late() {}
        assert_eq!(read(&mut line), [2; 8192], "seed {seed}");
    }
}

#[test]
fn late_commands_are_fenced() {
    what_was_under_way_does_not_land_late();
}

/// Goal: what was answered and cannot be written again is no more flushed. Method: the target dies with a write in its cache, comes back and refuses it.
fn what_is_refused_when_it_is_repeated_fails_flushes() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    assert_eq!(write(&mut line, 1), Ok(()));
    line.close();
    server.borrow_mut().crash(&mut Random::of(1));
    server.borrow_mut().refuses_writes = true;
    line.run(RemoteDrive::is_up);
    line.carry_steps(200);
    server.borrow_mut().refuses_writes = false;
    assert_eq!(line.execute(IntentWork::Sync).result, Err(IntentError::Failed));
}

#[test]
fn what_cannot_be_repeated_is_told() {
    what_is_refused_when_it_is_repeated_fails_flushes();
    is_noticed(
        "remote: what is refused when it is repeated is forgotten",
        what_is_refused_when_it_is_repeated_fails_flushes,
    );
}

/// Goal: a namespace is one server's. Method: a second one comes and is refused, by name; when the first one gives the namespace up it has it. One that is
/// to take over does, and the first one knows.
#[test]
fn a_namespace_is_one_servers() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let gone = |remote: &RemoteDrive| remote.is_gone();
    let mut first = Line::new(&server, 1, 1);
    first.run(RemoteDrive::is_up);
    assert_eq!(write(&mut first, 1), Ok(()));
    let mut second = Line::new(&server, 2, 2);
    second.run(gone);
    let held = RemoteError::Held { nsid: 1, key: 1 << 32 | 2 };
    assert_eq!(second.remote.error(), Some(&held));
    assert!(held.to_string().contains("in use") && held.to_string().contains("device release"), "{held}");
    // Its server is killed, and another process of it comes.
    first.close();
    Line::new(&server, 2, 3).run(gone);
    let mut first = Line::new(&server, 1, 4);
    first.run(RemoteDrive::is_up);
    assert_eq!(read(&mut first), [1; 8192]);
    // Who only looks says who has it, and claims nothing.
    let look = RemoteParameters { kind: ClaimKind::Look, ..second.remote.parameters().clone() };
    let mut looking = Line::of(&server, look, 5);
    looking.run(RemoteDrive::is_up);
    assert_eq!(looking.remote.held_by(), Some(1 << 32 | 5));
    assert!(looking.remote.facts().unwrap().health.is_some(), "its controller says how it is");
    assert_eq!(read(&mut looking), [1; 8192]);
    assert_eq!(write(&mut first, 2), Ok(()));
    first.remote.release();
    first.run(gone);
    assert_eq!((first.remote.error(), first.remote.is_released()), (None, true));
    let mut second = Line::new(&server, 2, 6);
    second.run(RemoteDrive::is_up);
    assert_eq!(write(&mut second, 3), Ok(()));
    let over = RemoteParameters { kind: ClaimKind::TakeOver, ..first.remote.parameters().clone() };
    let mut third = Line::of(&server, over, 7);
    third.run(RemoteDrive::is_up);
    assert_eq!(write(&mut third, 4), Ok(()));
    assert_eq!(write(&mut second, 5), Err(IntentError::Gone));
    assert_eq!(second.remote.error(), Some(&RemoteError::TakenOver(1)));
    assert_eq!(read(&mut third), [4; 8192]);
}

/// Goal: a namespace that is another one after a connection was lost is refused, by name. Method: its target comes back with a smaller one.
#[test]
fn another_namespace_in_its_place_is_refused() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    line.close();
    {
        let mut server = server.borrow_mut();
        server.begin();
        let mut other = config();
        other.properties.size_lbas -= 8;
        let now = server.now;
        server.target.set_subsystem(subsystem(SUBSYSTEM, &[], [(1, other)]), now, &mut Vec::new());
    }
    line.run(RemoteDrive::is_gone);
    let said = line.remote.error().unwrap().to_string();
    assert!(said.contains("is another one than it was (size 35618816, and was 35651584)"), "{said}");
    // A process that knows what it opened.
    let known = RemoteParameters { life: 9, ..line.remote.parameters().clone() };
    let known = RemoteParameters { known: line.remote.facts().cloned(), ..known };
    let mut next = Line::of(&server, known, 2);
    next.run(RemoteDrive::is_gone);
    assert!(matches!(next.remote.error(), Some(RemoteError::OtherNamespace { .. })));
}

/// Goal: a namespace that takes no writes is refused by name, and can be looked at.
#[test]
fn a_write_protected_namespace_is_refused() {
    let server = Rc::new(RefCell::new(Server::plain()));
    {
        let mut server = server.borrow_mut();
        let mut protected = config();
        protected.properties.read_only = true;
        let now = server.now;
        server.target.set_subsystem(subsystem(SUBSYSTEM, &[], [(1, protected)]), now, &mut Vec::new());
    }
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_gone);
    assert_eq!(line.remote.error(), Some(&RemoteError::WriteProtected(1)));
    let look = RemoteParameters { kind: ClaimKind::Look, ..line.remote.parameters().clone() };
    Line::of(&server, look, 2).run(RemoteDrive::is_up);
}

/// Goal: whenever the connection ends, what was asked for is answered once and right, and the target is not asked without pause. Method: a connection that
/// ends after each number of steps that a bring-up, a claim and some work take.
#[test]
fn a_cut_at_every_step_is_survived() {
    for steps in 0..120 {
        let server = Rc::new(RefCell::new(Server::plain()));
        let mut line = Line::new(&server, 1, steps);
        let parts = [Buffer::copy_from(&[7; 8192])].into_iter().collect();
        let write = IntentWork::Write { offset: 1 << 20, parts, handle: 0 };
        let intents = [write, IntentWork::Sync].into_iter().zip([IntentToken(1), IntentToken(2)]);
        line.remote.begin(&mut intents.map(|(work, token)| Intent { token, work }).collect());
        let mut done = Vec::new();
        for step in 0..100_000 {
            if step == steps {
                line.close();
            }
            line.now = line.now.max(CarryOut::next_event(&line));
            let now = line.now;
            CarryOut::end(&mut line, now, &mut done);
            if done.len() == 2 && step > steps {
                break;
            }
        }
        let mut answered: Vec<_> = done.iter().map(|done| (done.token, done.result)).collect();
        answered.sort_unstable_by_key(|one| one.0);
        assert_eq!(answered, [(IntentToken(1), Ok(())), (IntentToken(2), Ok(()))], "after {steps} steps");
        assert_eq!(read(&mut line), [7; 8192], "after {steps} steps");
    }
}

/// Goal: a target that cannot be reached is tried less and less often, within bounds, and without patience for ever.
#[test]
fn tries_become_rare() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let for_ever =
        RemoteParameters { patience: None, ..Line::new(&server, 1, 1).remote.parameters().clone() };
    let mut line = Line::of(&server, for_ever, 1);
    line.is_unreachable = true;
    let (mut tries, mut done) = (Vec::new(), Vec::new());
    while line.now < Time(1) + Span::from_secs(600) {
        line.now = line.now.max(CarryOut::next_event(&line));
        if line.remote.wants(line.now).is_some() {
            tries.push(line.now);
        }
        let now = line.now;
        CarryOut::end(&mut line, now, &mut done);
    }
    let pauses: Vec<u64> = tries.windows(2).map(|two| two[1].since(two[0]).0 / 1_000_000).collect();
    assert_eq!(pauses[..6], [200, 400, 800, 1600, 2000, 2000]);
    assert!(!line.remote.is_gone() && line.remote.away_since() == Some(Time(1)));
    line.is_unreachable = false;
    assert_eq!(write(&mut line, 6), Ok(()));
    assert_eq!(line.remote.away_since(), None);
}

/// Goal: a target that is not there is waited for, and then the drive is gone. Method: it cannot be reached before, for a while, and for good.
#[test]
fn a_target_that_is_not_there_is_waited_for() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut line = Line::new(&server, 1, 1);
    line.is_unreachable = true;
    line.remote.begin(&mut vec![Intent { token: IntentToken(5), work: IntentWork::Sync }]);
    let begun = line.now;
    let mut done = Vec::new();
    while line.now < begun + Span::from_secs(20) {
        let now = CarryOut::next_event(&line);
        CarryOut::end(&mut line, now, &mut done);
    }
    assert!(done.is_empty() && !line.remote.is_gone());
    line.is_unreachable = false;
    line.run(RemoteDrive::is_up);
    assert_eq!(write(&mut line, 6), Ok(()));
    let facts = RemoteFacts {
        size_bytes: SIZE_BYTES as u64,
        lba_bytes: 4096,
        has_volatile_cache: true,
        takes_discard: true,
        model: "diecut".to_owned(),
        serial: "A1".to_owned(),
        nguid: [0xcd; 16],
        eui64: [0; 8],
        takes_reservations: true,
        is_write_protected: false,
        zones: None,
        handles: 0,
        health: None,
    };
    assert_eq!(line.remote.facts(), Some(&facts));
    line.is_unreachable = true;
    line.close();
    let lost = line.now;
    assert_eq!(write(&mut line, 7), Err(IntentError::Gone));
    assert!(line.now >= lost + Span::from_secs(60));
    assert_eq!(line.remote.error(), Some(&RemoteError::Silent(60)));
    assert_eq!(CarryOut::next_event(&line), Time::NEVER);
}

/// Goal: what is kept stays within bounds, also of a host that never flushes.
#[test]
fn what_is_kept_is_flushed_in_time() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    for turn in 0..140u64 {
        let parts = [Buffer::copy_from(&vec![turn as u8; 1 << 20])].into_iter().collect();
        let work = IntentWork::Write { offset: (1 + turn % 20) << 20, parts, handle: 0 };
        assert_eq!(line.execute(work).result, Ok(()));
    }
    assert_eq!(server.borrow().flushes, 2, "one for each 64 MiB");
}

/// Goal: a target that says nothing is left, and asked again. Method: its bytes are not carried any more.
#[test]
fn a_silent_target_is_left() {
    let server = Rc::new(RefCell::new(Server::plain()));
    let mut line = Line::new(&server, 1, 1);
    line.run(RemoteDrive::is_up);
    assert_eq!(write(&mut line, 8), Ok(()));
    let silent_from = line.now;
    line.streams.clear();
    while line.remote.wants(line.now).is_none() {
        line.now = line.remote.deadline();
        line.remote.tick(line.now);
        for stream in STREAMS {
            let len = line.remote.output(stream).len();
            if len > 0 {
                line.remote.sent(stream, len);
            }
        }
    }
    assert_eq!(line.now, silent_from + Span::from_millis(5_200), "5 s until it is noticed, and a pause");
    line.run(RemoteDrive::is_up);
    assert_eq!(read(&mut line), [8; 8192]);
}
