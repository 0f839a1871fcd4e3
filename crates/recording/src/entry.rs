//! One entry: encode and decode. The table of bytes is in the crate's documentation.

use crate::application::Application;
use crate::content::{Content, Piece};
use crate::summary::Summary;
use diecut_blockspace::session::Command;
use diecut_blockspace::wire::{Opcode, SUBMISSION_SIZE_BYTES, Submission};
use diecut_shard::control::{ControlRequest, ControlToken};
use diecut_shard::drive::{BlockEvent, BlockSession, ConnectionId};
use diecut_units::Span;
use std::net::SocketAddr;

const TIME: u8 = 1;
const ACCEPTED: u8 = 2;
const RECEIVED: u8 = 3;
const RECEIVED_IN_WINDOW: u8 = 4;
const CLOSED: u8 = 5;
const CONTROL: u8 = 6;
const WORK: u8 = 7;
const SENT: u8 = 8;
const CHECK: u8 = 9;
const END: u8 = 10;
const ATTACH: u8 = 11;
const SUBMITTED: u8 = 12;
const SUBMITTED_NONSENSE: u8 = 13;
const DETACHED: u8 = 14;
const ACCEPTED_AT: u8 = 15;

/// What follows an entry of an application.
const WITHOUT_DATA: u8 = 0;
const WITH_DATA: u8 = 1;

/// One entry of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Time went on by so much.
    Time(Span),
    /// A connection was accepted, at this address if that is known.
    Accepted(ConnectionId, Option<SocketAddr>),
    /// Bytes arrived.
    Received(ConnectionId, Content),
    /// Bytes arrived in the shard's own window.
    ReceivedInWindow(ConnectionId, Content),
    /// A connection ended.
    Closed(ConnectionId),
    /// An administrator's request.
    Control(ControlToken, Box<ControlRequest>),
    /// Something of an application at erase blocks.
    Application(Application),
    /// The shard was let work.
    Work,
    /// Output was written.
    Sent(ConnectionId, usize),
    /// What the shard had done by now.
    Check(Box<Summary>),
    /// The same, and nothing follows.
    End(Box<Summary>),
}

pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_block(bytes: &mut Vec<u8>, block: &[u8]) {
    put_varint(bytes, block.len() as u64);
    bytes.extend_from_slice(block);
}

/// Encoders of what is written often: no [`Entry`] is made for them.
pub(crate) mod put {
    use super::*;

    pub fn time(bytes: &mut Vec<u8>, since_last: Span) {
        bytes.push(TIME);
        put_varint(bytes, since_last.0);
    }
    pub fn work(bytes: &mut Vec<u8>) {
        bytes.push(WORK);
    }
    pub fn sent(bytes: &mut Vec<u8>, connection: ConnectionId, len_bytes: usize) {
        bytes.push(SENT);
        put_varint(bytes, connection.0);
        put_varint(bytes, len_bytes as u64);
    }
    /// Pieces follow with [`piece`] and [`left_out`].
    pub fn received(bytes: &mut Vec<u8>, connection: ConnectionId, in_window: bool, len_bytes: usize) {
        bytes.push(if in_window { RECEIVED_IN_WINDOW } else { RECEIVED });
        put_varint(bytes, connection.0);
        put_varint(bytes, len_bytes as u64);
    }
    pub fn piece(bytes: &mut Vec<u8>, content: &[u8]) {
        put_varint(bytes, content.len() as u64 * 2);
        bytes.extend_from_slice(content);
    }
    pub fn left_out(bytes: &mut Vec<u8>, len_bytes: usize) {
        put_varint(bytes, len_bytes as u64 * 2 + 1);
    }
    /// What is appended decides nothing but what reads return; names of blocks to keep do.
    pub fn application(bytes: &mut Vec<u8>, event: &BlockEvent) {
        match event {
            BlockEvent::Attach { session, vssd, uid, is_privileged } => {
                bytes.push(ATTACH);
                put_varint(bytes, session.0);
                put_varint(bytes, u64::from(*uid));
                bytes.push(u8::from(*is_privileged));
                put_block(bytes, vssd.as_bytes());
            }
            BlockEvent::Submitted { session, command: Command { entry, data } } => {
                submitted(bytes, *session, entry);
                let Some(data) = data else { return bytes.push(WITHOUT_DATA) };
                bytes.push(WITH_DATA);
                put_varint(bytes, data.len() as u64);
                match entry {
                    _ if data.is_empty() => {}
                    Ok(Submission { opcode: Opcode::Append, .. }) => left_out(bytes, data.len()),
                    _ => piece(bytes, data),
                }
            }
            BlockEvent::Closed { session } => detached(bytes, *session),
            BlockEvent::Adopted { .. } => unreachable!("a recording holds one shard"),
        }
    }
    /// The entry without what follows of its data.
    pub fn submitted(bytes: &mut Vec<u8>, session: BlockSession, entry: &Result<Submission, u64>) {
        bytes.push(if entry.is_ok() { SUBMITTED } else { SUBMITTED_NONSENSE });
        put_varint(bytes, session.0);
        match entry {
            Ok(entry) => bytes.extend_from_slice(&entry.encode()),
            Err(token) => put_varint(bytes, *token),
        }
    }
    pub fn detached(bytes: &mut Vec<u8>, session: BlockSession) {
        bytes.push(DETACHED);
        put_varint(bytes, session.0);
    }
}

impl Entry {
    /// Appends the entry's bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let json = |value: &Summary| serde_json::to_vec(value).expect("summaries are plain data");
        match self {
            Entry::Time(span) => put::time(bytes, *span),
            Entry::Accepted(connection, None) => {
                bytes.push(ACCEPTED);
                put_varint(bytes, connection.0);
            }
            Entry::Accepted(connection, Some(local)) => {
                bytes.push(ACCEPTED_AT);
                put_varint(bytes, connection.0);
                put_block(bytes, local.to_string().as_bytes());
            }
            Entry::Received(connection, content) => encode_received(bytes, *connection, false, content),
            Entry::ReceivedInWindow(connection, content) => {
                encode_received(bytes, *connection, true, content)
            }
            Entry::Closed(connection) => {
                bytes.push(CLOSED);
                put_varint(bytes, connection.0);
            }
            Entry::Control(token, request) => {
                bytes.push(CONTROL);
                put_varint(bytes, token.0);
                put_block(bytes, &serde_json::to_vec(request).expect("requests are plain data"));
            }
            Entry::Application(application) => encode_application(bytes, application),
            Entry::Work => put::work(bytes),
            Entry::Sent(connection, length) => put::sent(bytes, *connection, *length),
            Entry::Check(summary) => {
                bytes.push(CHECK);
                put_block(bytes, &json(summary));
            }
            Entry::End(summary) => {
                bytes.push(END);
                put_block(bytes, &json(summary));
            }
        }
    }

    /// Takes the first entry off `bytes`. The error says what is wrong with it.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Entry, String> {
        let [tag] = *take(bytes, 1)? else { unreachable!("one byte was taken") };
        Ok(match tag {
            TIME => Entry::Time(Span(varint(bytes)?)),
            ACCEPTED => Entry::Accepted(ConnectionId(varint(bytes)?), None),
            ACCEPTED_AT => {
                let connection = ConnectionId(varint(bytes)?);
                let length = length(bytes)?;
                let text = String::from_utf8_lossy(take(bytes, length)?);
                let local = text.parse().map_err(|_| format!("\"{text}\" is no address"))?;
                Entry::Accepted(connection, Some(local))
            }
            RECEIVED => Entry::Received(ConnectionId(varint(bytes)?), content(bytes)?),
            RECEIVED_IN_WINDOW => Entry::ReceivedInWindow(ConnectionId(varint(bytes)?), content(bytes)?),
            CLOSED => Entry::Closed(ConnectionId(varint(bytes)?)),
            CONTROL => Entry::Control(ControlToken(varint(bytes)?), Box::new(json(bytes)?)),
            WORK => Entry::Work,
            SENT => Entry::Sent(ConnectionId(varint(bytes)?), length(bytes)?),
            CHECK => Entry::Check(Box::new(json(bytes)?)),
            END => Entry::End(Box::new(json(bytes)?)),
            ATTACH | SUBMITTED | SUBMITTED_NONSENSE | DETACHED => {
                Entry::Application(decode_application(tag, bytes)?)
            }
            other => return Err(format!("no entry has the tag {other}")),
        })
    }
}

fn encode_application(bytes: &mut Vec<u8>, application: &Application) {
    match application {
        Application::Attach { session, vssd, uid, is_privileged } => {
            let (session, vssd, uid, is_privileged) = (*session, vssd.clone(), *uid, *is_privileged);
            put::application(bytes, &BlockEvent::Attach { session, vssd, uid, is_privileged });
        }
        Application::Submitted { session, entry, data } => {
            put::submitted(bytes, *session, entry);
            let Some(content) = data else { return bytes.push(WITHOUT_DATA) };
            bytes.push(WITH_DATA);
            put_varint(bytes, content.len_bytes() as u64);
            encode_pieces(bytes, content);
        }
        Application::Closed { session } => put::detached(bytes, *session),
    }
}

fn decode_application(tag: u8, bytes: &mut &[u8]) -> Result<Application, String> {
    let session = BlockSession(varint(bytes)?);
    let entry = match tag {
        ATTACH => {
            let uid = u32::try_from(varint(bytes)?).map_err(|_| "a user's number is too large")?;
            let is_privileged = flag(bytes)?;
            let length = length(bytes)?;
            let vssd = String::from_utf8(take(bytes, length)?.to_vec())
                .map_err(|_| "the name of a vSSD is no text".to_owned())?;
            return Ok(Application::Attach { session, vssd, uid, is_privileged });
        }
        DETACHED => return Ok(Application::Closed { session }),
        SUBMITTED => {
            let entry = take(bytes, SUBMISSION_SIZE_BYTES)?.try_into().expect("so many were taken");
            let no_entry = |token| format!("what an application submitted with token {token} is no entry");
            Ok(Submission::decode(entry).map_err(no_entry)?)
        }
        _ => Err(varint(bytes)?),
    };
    let data = if flag(bytes)? { Some(content(bytes)?) } else { None };
    Ok(Application::Submitted { session, entry, data })
}

/// A byte that says no or yes.
fn flag(bytes: &mut &[u8]) -> Result<bool, String> {
    match take(bytes, 1)? {
        [0] => Ok(false),
        [1] => Ok(true),
        other => Err(format!("{other:?} where 0 or 1 must be")),
    }
}

fn encode_received(bytes: &mut Vec<u8>, connection: ConnectionId, in_window: bool, content: &Content) {
    put::received(bytes, connection, in_window, content.len_bytes());
    encode_pieces(bytes, content);
}

fn encode_pieces(bytes: &mut Vec<u8>, content: &Content) {
    for piece in &content.pieces {
        match piece {
            Piece::Bytes(content) => put::piece(bytes, content),
            Piece::LeftOut(length) => put::left_out(bytes, *length),
        }
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("an entry ends beyond its chunk")?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = *take(bytes, 1)? else { unreachable!("one byte was taken") };
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            break;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too large".to_owned())
}

/// A length of something that is held in memory, so bounded.
fn length(bytes: &mut &[u8]) -> Result<usize, String> {
    let value = varint(bytes)?;
    if value > crate::CHUNK_MAX_BYTES.into() {
        Err(format!("a length of {value} bytes"))
    } else {
        Ok(value as usize)
    }
}

fn json<T: serde::de::DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, String> {
    let length = length(bytes)?;
    serde_json::from_slice(take(bytes, length)?).map_err(|error| error.to_string())
}

fn content(bytes: &mut &[u8]) -> Result<Content, String> {
    let mut left = length(bytes)?;
    let mut pieces = Vec::new();
    while left > 0 {
        let word = varint(bytes)?;
        let length = usize::try_from(word / 2).unwrap_or(usize::MAX);
        if length == 0 || length > left {
            return Err(format!("a piece of {length} bytes where {left} are left"));
        }
        left -= length;
        pieces.push(match word % 2 {
            0 => Piece::Bytes(take(bytes, length)?.to_vec()),
            _ => Piece::LeftOut(length),
        });
    }
    Ok(Content { pieces })
}

#[cfg(test)]
mod test {
    use super::*;
    use diecut_blockspace::{LogicalBlock, UnitIndex};

    #[test]
    fn entries_come_back_as_they_were() {
        let content = Content { pieces: vec![Piece::Bytes(vec![1, 2, 3]), Piece::LeftOut(4096)] };
        let block = LogicalBlock { unit: UnitIndex(1), index: 7 };
        let entries = [
            Entry::Time(Span(u64::MAX)),
            Entry::Accepted(ConnectionId(1), None),
            Entry::Accepted(ConnectionId(2), Some("[2001:db8::1]:4420".parse().unwrap())),
            Entry::Received(ConnectionId(300), content.clone()),
            Entry::ReceivedInWindow(ConnectionId(1), content),
            Entry::Control(ControlToken(9), Box::new(ControlRequest::DeleteTenant("a".to_owned()))),
            Entry::Application(Application::Attach {
                session: BlockSession(700),
                vssd: "db".to_owned(),
                uid: u32::MAX,
                is_privileged: true,
            }),
            Entry::Application(Application::Submitted {
                session: BlockSession(700),
                entry: Ok(Submission { token: 9, count: 8, ..Submission::new(Opcode::Append, block) }),
                data: Some(Content { pieces: vec![Piece::LeftOut(32768)] }),
            }),
            Entry::Application(Application::Submitted {
                session: BlockSession(700),
                entry: Ok(Submission { flag: 1, ..Submission::new(Opcode::Keep, block) }),
                data: Some(Content::default()),
            }),
            Entry::Application(Application::Submitted {
                session: BlockSession(700),
                entry: Err(u64::MAX),
                data: None,
            }),
            Entry::Application(Application::Closed { session: BlockSession(700) }),
            Entry::Work,
            Entry::Sent(ConnectionId(1), 24),
            Entry::Closed(ConnectionId(1)),
            Entry::Check(Box::default()),
            Entry::End(Box::default()),
        ];
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let mut rest = &bytes[..];
        for entry in &entries {
            assert_eq!(Entry::decode(&mut rest).as_ref(), Ok(entry));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn bytes_that_are_no_entry_are_refused() {
        let too_large = [&[TIME][..], &[0xff; 9], &[0x02]].concat();
        let cases: [&[u8]; 9] = [
            &[],
            &[0],
            &[77],
            &too_large,
            // Three bytes of content, one piece of four.
            &[RECEIVED, 1, 3, 8, 0, 0, 0, 0],
            // A piece of nothing would never end.
            &[RECEIVED, 1, 3, 0],
            // Neither a user who may attach to any vSSD nor one who may not.
            &[ATTACH, 1, 0, 2, 0],
            // An entry that ends too soon, and one whose data neither come nor do not.
            &[SUBMITTED, 1, 7, 0],
            &[SUBMITTED_NONSENSE, 1, 7, 2],
        ];
        for case in cases {
            assert!(Entry::decode(&mut &case[..]).is_err(), "{case:?}");
        }
    }

    #[test]
    fn what_is_appended_is_left_out_and_names_are_kept() {
        let block = LogicalBlock { unit: UnitIndex(1), index: 7 };
        let written = |opcode| {
            let entry = Ok(Submission { count: 1, ..Submission::new(opcode, block) });
            let data = Some(diecut_units::BufferMut::copy_from(&[7; 4096]));
            let command = Command { entry, data };
            let mut bytes = Vec::new();
            put::application(&mut bytes, &BlockEvent::Submitted { session: BlockSession(1), command });
            bytes
        };
        let appended = written(Opcode::Append);
        assert!(appended.len() < 100, "{} bytes", appended.len());
        assert!(written(Opcode::Keep).ends_with(&[7; 4096]));
        let Ok(Entry::Application(application)) = Entry::decode(&mut &appended[..]) else {
            panic!("an entry")
        };
        let BlockEvent::Submitted { command, .. } = application.event(&mut diecut_units::BufferPool::new())
        else {
            panic!("what was submitted")
        };
        assert_eq!(&command.data.expect("it had data")[..], [0; 4096]);
    }

    #[test]
    fn content_that_was_left_out_is_zeros() {
        let content =
            Content { pieces: vec![Piece::Bytes(vec![7]), Piece::LeftOut(2), Piece::Bytes(vec![8])] };
        let mut place = [9; 4];
        content.fill(&mut place);
        assert_eq!(place, [7, 0, 0, 8]);
    }
}
