//! A medium that asks for all its I/O passes the suite of the contract, on a file of the file system, and says so
//! when an intent fails.

use diecut_devices::FileMedium;
use diecut_media::*;
use diecut_testing::driven::Driven;
use diecut_units::*;
use late::Late;
use std::fs::File;
use std::os::unix::fs::FileExt;

mod late;

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 2,
    planes_per_die: 2,
    blocks_per_plane: 8,
    pages_per_block: 6,
    page_size_bytes: 8192,
    oob_size_bytes: 64,
};

/// What a driver does, on a file without a name.
fn execute(file: &File, intent: Intent) -> IntentDone {
    let mut done = IntentDone { token: intent.token, buffer: None, result: Ok(()) };
    match intent.work {
        IntentWork::Read { offset, mut buffer } => {
            file.read_exact_at(&mut buffer, offset).unwrap();
            done.buffer = Some(buffer);
        }
        IntentWork::Write { mut offset, parts, .. } => {
            for part in parts {
                file.write_all_at(&part, offset).unwrap();
                offset += part.len() as u64;
            }
        }
        IntentWork::Discard { .. } | IntentWork::ResetZone { .. } | IntentWork::FinishZone { .. } => {
            unreachable!("this medium asks for nothing of that")
        }
        IntentWork::Sync => file.sync_data().unwrap(),
    }
    done
}

/// Goal: the contract holds whoever does the I/O, and nothing but the file holds the content. Method: the suite; intents are carried out by
/// the operating system in any order, and answered late.
#[test]
fn the_contract_holds_on_a_file() {
    let mut seed = 0;
    conformance::all(&mut || {
        seed += 1;
        let file = tempfile::tempfile().unwrap();
        Driven::new(FileMedium::new(GEOMETRY), Late::new(move |intent| execute(&file, intent), seed))
    });
}

/// Goal: a program whose intents fail says why, the block can be used after an erase, and after a failed sync nothing is answered well
/// any more. Method: intents of a kind are refused in turn.
#[test]
fn what_is_refused_is_told() {
    let block = DieAddress::new(1, 1).erase_block(BlockIndex(3));
    let mut medium = FileMedium::new(GEOMETRY);
    let file = tempfile::tempfile().unwrap();
    let now = Time::ZERO;
    let mut run = |operation: Operation, refuse: &dyn Fn(&IntentWork) -> Option<IntentError>| {
        medium.submit(Command { token: MediaToken(9), operation }, now);
        let (mut intents, mut done) = (Vec::new(), Vec::new());
        while done.is_empty() {
            assert_eq!(medium.next_event(), Time::ZERO, "something is to be done");
            medium.advance(now, &mut done);
            medium.take_intents(&mut intents);
            for intent in intents.drain(..) {
                let refused = refuse(&intent.work);
                let mut answer = execute(&file, intent);
                answer.result = refused.map_or(Ok(()), Err);
                medium.intent_done(answer, now);
            }
        }
        done.remove(0).result
    };
    let never = |_: &IntentWork| None;
    let erase = || Operation::Erase { block };
    let program = |first_page| {
        let bytes = Buffer::copy_from(&vec![7; 2 * GEOMETRY.page_size_bytes as usize]);
        let parts = [Payload::new(ContentMode::Bytes, bytes)].into_iter().collect();
        Operation::Program { block, first_page, parts, oob: Buffer::copy_from(&[7; 2 * 64]) }
    };
    let mut pool = BufferPool::new();
    let mut read = || Operation::Read {
        block,
        first_iu: 0,
        iu_count: 1,
        destination: pool.take(IU_SIZE_BYTES),
        oob: None,
    };
    run(erase(), &never).unwrap();
    let full = |work: &IntentWork| matches!(work, IntentWork::Write { .. }).then_some(IntentError::Full);
    assert_eq!(run(program(0), &full), Err(MediaError::NoRoom { block, page: 0 }));
    assert_eq!(run(read(), &never), Err(MediaError::Uncorrectable { block, page: 0 }));
    run(erase(), &never).unwrap();
    run(program(0), &never).unwrap();
    run(read(), &never).unwrap();
    let unreadable =
        |work: &IntentWork| matches!(work, IntentWork::Read { .. }).then_some(IntentError::Failed);
    assert_eq!(run(read(), &unreadable), Err(MediaError::Uncorrectable { block, page: 0 }));
    let unsynced = |work: &IntentWork| matches!(work, IntentWork::Sync).then_some(IntentError::Failed);
    assert_eq!(run(program(2), &unsynced), Err(MediaError::DieOffline { block }));
    assert_eq!(
        run(program(4), &never),
        Err(MediaError::DieOffline { block }),
        "no later sync proves anything"
    );
    run(read(), &never).unwrap();
}
