//! Records: what a change of the catalog is written in.
//!
//! One record is one object, whole, or the word that it is gone. Records lie one behind the other, little endian:
//!
//! | offset | size | field   | meaning                                                      |
//! |-------:|-----:|---------|--------------------------------------------------------------|
//! |      0 |    2 | kind    | what it describes, see [`Kind`]                              |
//! |      2 |    2 | version | of the value, counted for each kind                          |
//! |      4 |    4 | key     | bytes of the key                                             |
//! |      8 |    4 | value   | bytes of the value; FFFF_FFFFh: the object is gone, no value |
//! |     12 |  ... | key     | UTF-8                                                        |
//! |    ... |  ... | value   | JSON                                                         |

use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a record describes. The numbers are the format's. Records of a state are written in this order, so that what others
/// refer to comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub(crate) enum Kind {
    /// The pool. Key: empty.
    Pool = 1,
    /// A tenant. Key: its name.
    Tenant = 2,
    /// A vSSD. Key: its name.
    Vssd = 3,
    /// A volume. Key: its name.
    Volume = 4,
    /// A subsystem without its namespaces. Key: its NQN.
    Subsystem = 5,
    /// Namespaces of a subsystem with neighbouring NSIDs. Key: the first NSID that could be there, a space, the NQN.
    Namespaces = 6,
    /// The reservation of a namespace, where it persists through power loss. Key: the namespace's number.
    Reservation = 7,
    /// A QoS set. Key: its name.
    QosSet = 8,
    /// The most recent sanitize operation of a subsystem. Key: its NQN.
    Sanitize = 9,
    /// Events of placement of a subsystem, and which of them are kept. Key: its NQN.
    Placement = 10,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Pool,
        Kind::Tenant,
        Kind::Vssd,
        Kind::Volume,
        Kind::Subsystem,
        Kind::Namespaces,
        Kind::Reservation,
        Kind::QosSet,
        Kind::Sanitize,
        Kind::Placement,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Pool => "the pool",
            Kind::Tenant => "a tenant",
            Kind::Vssd => "a vSSD",
            Kind::Volume => "a volume",
            Kind::Subsystem => "a subsystem",
            Kind::Namespaces => "namespaces",
            Kind::Reservation => "a reservation",
            Kind::QosSet => "a QoS set",
            Kind::Sanitize => "a sanitize operation",
            Kind::Placement => "events of placement",
        }
    }

    /// The version that is written; all up to it are read.
    pub const fn version(self) -> u16 {
        match self {
            Kind::Vssd => 6,
            Kind::Volume => 4,
            Kind::Tenant | Kind::Subsystem => 3,
            Kind::Pool | Kind::Sanitize => 2,
            Kind::Namespaces | Kind::Reservation | Kind::QosSet | Kind::Placement => 1,
        }
    }
}

/// Why records cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(
        "the catalog has a record of kind {kind} with the key \"{key}\", which this program does not know; a later one wrote it"
    )]
    UnknownKind { kind: u16, key: String },
    #[error(
        "the catalog describes {kind} (\"{key}\") in version {version} of that record; this program knows versions up to {known}",
        kind = .kind.name(), known = .kind.version()
    )]
    UnknownVersion { kind: Kind, version: u16, key: String },
    #[error("the catalog's record of {kind} (\"{key}\") cannot be read: {reason}", kind = .kind.name())]
    Nonsense { kind: Kind, key: String, reason: String },
    #[error("records of the catalog are cut off")]
    Cut,
}

impl RecordError {
    /// Whether a later program would understand it.
    pub fn is_of_the_future(&self) -> bool {
        matches!(self, RecordError::UnknownKind { .. } | RecordError::UnknownVersion { .. })
    }
}

const GONE: u32 = u32::MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    kind: U16,
    version: U16,
    key_bytes: U32,
    value_bytes: U32,
}

const _: () = assert!(size_of::<Header>() == 12);

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub kind: Kind,
    pub version: u16,
    pub key: &'a str,
    /// Absent: the object is gone.
    pub value: Option<&'a [u8]>,
}

/// Names one record of a state.
pub(crate) type Key = (Kind, String);

/// Takes the first record off `bytes`; `None` at their end.
pub(crate) fn take_record<'a>(bytes: &mut &'a [u8]) -> Option<Result<Record<'a>, RecordError>> {
    if bytes.is_empty() {
        return None;
    }
    let taken = split(bytes).ok_or(RecordError::Cut);
    Some(taken.and_then(|(header, key, value, rest)| {
        *bytes = rest;
        let (kind, version) = (header.kind.get(), header.version.get());
        let Some(kind) = Kind::ALL.into_iter().find(|known| *known as u16 == kind) else {
            return Err(RecordError::UnknownKind { kind, key: key.to_owned() });
        };
        if version == 0 || version > kind.version() {
            return Err(RecordError::UnknownVersion { kind, version, key: key.to_owned() });
        }
        Ok(Record { kind, version, key, value })
    }))
}

type Split<'a> = (Header, &'a str, Option<&'a [u8]>, &'a [u8]);

fn split(bytes: &[u8]) -> Option<Split<'_>> {
    let (header, rest) = Header::read_from_prefix(bytes).ok()?;
    let (key, rest) = rest.split_at_checked(usize::try_from(header.key_bytes.get()).ok()?)?;
    let key = std::str::from_utf8(key).ok()?;
    if header.value_bytes.get() == GONE {
        return Some((header, key, None, rest));
    }
    let (value, rest) = rest.split_at_checked(usize::try_from(header.value_bytes.get()).ok()?)?;
    Some((header, key, Some(value), rest))
}

fn put_record(bytes: &mut Vec<u8>, (kind, key): &Key, value: Option<&[u8]>) {
    let value_bytes = value.map_or(GONE, |value| u32::try_from(value.len()).expect("a value is below 4 GiB"));
    let key_bytes = u32::try_from(key.len()).expect("a key is below 4 GiB").into();
    let header = Header {
        kind: (*kind as u16).into(),
        version: kind.version().into(),
        key_bytes,
        value_bytes: value_bytes.into(),
    };
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(value.unwrap_or_default());
}

fn record_bytes((_, key): &Key, value: &[u8]) -> u64 {
    (size_of::<Header>() + key.len() + value.len()) as u64
}

/// Records that a change writes: new values, or nothing where an object goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub(crate) BTreeMap<Key, Option<Vec<u8>>>);

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes down what differs between two maps, whose objects have these records.
    pub(crate) fn compare<K: Ord, T: PartialEq>(
        &mut self,
        base: &BTreeMap<K, T>,
        next: &BTreeMap<K, T>,
        records: impl Fn(&K, &T) -> Changes,
    ) {
        for (name, value) in next {
            let before = base.get(name);
            if before == Some(value) {
                continue;
            }
            let before = before.map(|before| records(name, before)).unwrap_or_default();
            let after = records(name, value);
            assert!(after.0.values().all(Option::is_some), "I-C2: an object that is there is written whole");
            let gone = before.0.keys().filter(|key| !after.0.contains_key(*key));
            self.0.extend(gone.map(|key| (key.clone(), None)));
            self.0.extend(after.0.into_iter().filter(|(key, value)| before.0.get(key) != Some(value)));
        }
        for (name, value) in base.iter().filter(|(name, _)| !next.contains_key(name)) {
            self.0.extend(records(name, value).0.into_keys().map(|key| (key, None)));
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in &self.0 {
            put_record(&mut bytes, key, value.as_deref());
        }
        bytes
    }
}

/// All records of a state, as they are written, and how many bytes that are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    records: BTreeMap<Key, Vec<u8>>,
    size_bytes: u64,
}

impl Content {
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Its size when the changes are made, too.
    pub fn size_bytes_with(&self, changes: &Changes) -> u64 {
        changes.0.iter().fold(self.size_bytes, |size_bytes, (key, value)| {
            let before = self.records.get(key).map_or(0, |value| record_bytes(key, value));
            size_bytes - before + value.as_deref().map_or(0, |value| record_bytes(key, value))
        })
    }

    pub fn apply(&mut self, changes: Changes) {
        self.size_bytes = self.size_bytes_with(&changes);
        for (key, value) in changes.0 {
            match value {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size_bytes as usize);
        for (key, value) in &self.records {
            put_record(&mut bytes, key, Some(value));
        }
        // I-C6: the size that admission of changes reckons with is the size that is written.
        assert!(bytes.len() as u64 == self.size_bytes, "I-C6: records take what was reckoned");
        bytes
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn raw(kind: u16, version: u16, key: &str, value: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_record(&mut bytes, &(Kind::Tenant, key.to_owned()), Some(value.as_bytes()));
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    fn first_error(bytes: &[u8]) -> String {
        let mut rest = bytes;
        take_record(&mut rest).expect("there is one").expect_err("it cannot be used").to_string()
    }

    /// Goal: the page of the format says which versions are written. Method: its table of kinds, row by row.
    #[test]
    fn the_page_has_each_kind_with_its_version() {
        let page = include_str!("../../../docs/format/catalog.md");
        for kind in Kind::ALL {
            let row = page.lines().find(|line| line.starts_with(&format!("| {} | ", kind as u16)));
            let row = row.unwrap_or_else(|| panic!("{kind:?} has no row"));
            assert!(row.ends_with(&format!(" | {} |", kind.version())), "{kind:?}: {row}");
        }
    }

    /// Goal: who opens a later program's catalog is told which record it is.
    #[test]
    fn what_is_not_known_is_named() {
        let error = first_error(&raw(40, 1, "x", "{}"));
        assert!(error.contains("kind 40") && error.contains("\"x\""), "{error}");
        let error = first_error(&raw(Kind::Volume as u16, 9, "disk", "{}"));
        assert!(error.contains("a volume (\"disk\")") && error.contains("version 9"), "{error}");
        assert!(first_error(&raw(2, 0, "x", "{}")).contains("version 0"));
    }

    #[test]
    fn records_come_back_and_cut_ones_do_not() {
        let mut changes = Changes::default();
        changes.0.insert((Kind::Tenant, "a".to_owned()), Some(b"{}".to_vec()));
        changes.0.insert((Kind::Volume, "b".to_owned()), None);
        let bytes = changes.encode();
        let mut rest = bytes.as_slice();
        let mut found = Changes::default();
        while let Some(record) = take_record(&mut rest) {
            let Record { kind, version, key, value } = record.unwrap();
            assert_eq!(version, kind.version());
            found.0.insert((kind, key.to_owned()), value.map(<[u8]>::to_vec));
        }
        assert_eq!(found, changes);
        let first = size_of::<Header>() + 3;
        for len in (1..bytes.len()).filter(|len| *len != first) {
            let mut rest = &bytes[..len];
            let all: Result<Vec<_>, _> = std::iter::from_fn(|| take_record(&mut rest)).take(3).collect();
            assert_eq!(all, Err(RecordError::Cut), "{len} bytes");
        }
    }

    #[test]
    fn sizes_are_reckoned_as_they_are_written() {
        let mut content = Content::default();
        let change = |key: &str, value: Option<&str>| {
            Changes([((Kind::Tenant, key.to_owned()), value.map(|text| text.as_bytes().to_vec()))].into())
        };
        for (key, value) in
            [("a", Some("{}")), ("bb", Some("{...}")), ("a", Some("longer")), ("bb", None), ("c", None)]
        {
            let expected = content.size_bytes_with(&change(key, value));
            content.apply(change(key, value));
            assert_eq!((content.size_bytes(), content.encode().len() as u64), (expected, expected));
        }
    }
}
