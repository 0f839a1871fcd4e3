//! I/O that a device asks for, on a thread of its own: a disk takes its time, and the shard goes on meanwhile.

use crate::common::Common;
use crate::inbox::Message;
use diecut_devices::SyncFile;
use diecut_media::{Intent, IntentDone, IntentError, IntentWork};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The file on which intents of a device are carried out.
#[derive(Clone, Debug)]
pub enum IoFile {
    /// Of a device that reads and writes it by itself, and asks for syncs only.
    Synced(SyncFile),
    /// Of a device that asks for everything.
    Plain(Arc<File>),
}

impl IoFile {
    fn sync(&self) -> std::io::Result<()> {
        match self {
            IoFile::Synced(file) => file.sync(),
            IoFile::Plain(file) => file.sync_data(),
        }
    }

    fn plain(&self) -> &File {
        match self {
            IoFile::Synced(_) => unreachable!("such a device reads and writes its file by itself"),
            IoFile::Plain(file) => file,
        }
    }

    /// Carries out an intent, and waits for that.
    fn execute(&self, intent: Intent) -> IntentDone {
        let mut buffer = None;
        let worked = match intent.work {
            IntentWork::Read { offset, buffer: mut into } => {
                let read = self.plain().read_exact_at(&mut into, offset);
                buffer = Some(into);
                read
            }
            IntentWork::Write { mut offset, parts } => parts.iter().try_for_each(|part| {
                let written = self.plain().write_all_at(part, offset);
                offset += part.len() as u64;
                written
            }),
            // Advice, which a device that lies in a plain file does not give.
            IntentWork::Discard { .. } => Ok(()),
            IntentWork::Sync => self.sync().inspect_err(|error| {
                tracing::error!(
                    "the device's file cannot be synced: {error}; what was written since the last sync may be lost, so no write is \
                     acknowledged any more. Reads go on. See to the disk, then start the server again"
                );
            }),
        };
        let result = worked.map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => IntentError::Full,
            _ => IntentError::Failed,
        });
        IntentDone { token: intent.token, buffer, result }
    }
}

/// Starts the thread that carries out what the device of a shard, or its part of one, asks for. It ends when the sender is dropped.
pub(crate) fn start(
    file: IoFile,
    common: &Arc<Common>,
    shard: usize,
    threads: &mut Vec<JoinHandle<()>>,
) -> std::io::Result<Sender<Intent>> {
    let (sender, wanted) = channel::<Intent>();
    let name = format!("io-{shard}");
    let shard = common.addresses[shard].clone();
    threads.push(std::thread::Builder::new().name(name).spawn(move || {
        while let Ok(intent) = wanted.recv() {
            if !shard.send(Message::IoDone(file.execute(intent))) {
                return;
            }
        }
    })?);
    Ok(sender)
}
