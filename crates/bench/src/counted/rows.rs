//! Which rows are counted, and what a counted program does.

use super::carrier::{Carrier, MemoryDrive};
use super::rooms::Profile;
use super::valgrind::{Error, instructions};
use super::wire::{Ask, COUNTED_FUNCTIONS, Line, Wire, Writes};
use crate::suite::servers::{
    NULL, STACK, STACK_BYTES, Sold, drive_shard, null_shard, stack_requests, stack_requests_of, stack_shard,
};
use diecut_devices::{Device, DriveShape};
use diecut_shard::Shard;
use diecut_shard::control::{ControlRequest, ControlResponse, VssdStatus};
use diecut_shard::drive::Drive;
use diecut_units::{Buffer, Time};
use std::path::Path;

/// Commands of a deep queue that come and go together: as the load of the measured rows sends them.
const DEEP: usize = 16;
/// The stack under valgrind is this part of the measured one: setting it up would take minutes otherwise.
const STACK_PART: u32 = 16;
/// Overwrites of the whole volume before anything is counted, as in the measured rows.
const CONDITIONING_PASSES: u64 = 4;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// A target without anything below it.
    Null,
    /// The whole stack with a volume that is full and was overwritten.
    Stack,
    /// The whole stack, written in order for the first time: nothing is cleaned, so each byte is programmed once.
    Fresh(Sold),
    /// The whole stack on a drive that is memory, with a volume that is full and was overwritten.
    Drive,
}

/// A row with a server.
struct Counted {
    id: &'static str,
    served: Served,
    writes: bool,
    /// Commands that each connection has under way in a round.
    batches: &'static [usize],
    /// Blocks that are used; 0 for all.
    lbas: u64,
    /// Operations of the shorter run.
    operations: u64,
}

const ROWS: [Counted; 14] = [
    Counted { id: "a", served: Served::Null, writes: false, batches: &[DEEP], lbas: 0, operations: 32_000 },
    Counted {
        id: "null write",
        served: Served::Null,
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "b read",
        served: Served::Stack,
        writes: false,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "b near",
        served: Served::Stack,
        writes: false,
        batches: &[DEEP],
        lbas: 256,
        operations: 32_000,
    },
    Counted {
        id: "b write",
        served: Served::Stack,
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted { id: "c", served: Served::Null, writes: false, batches: &[8; 16], lbas: 0, operations: 32_000 },
    Counted {
        id: "null QD1",
        served: Served::Null,
        writes: false,
        batches: &[1],
        lbas: 0,
        operations: 8_000,
    },
    Counted {
        id: "d",
        served: Served::Null,
        writes: false,
        batches: &[1, DEEP],
        lbas: 0,
        operations: 34_000,
    },
    Counted {
        id: "fresh write",
        served: Served::Fresh(Sold::Blocks),
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "fresh placed",
        served: Served::Fresh(Sold::Placed(2)),
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "fresh append",
        served: Served::Fresh(Sold::Zones),
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "drive read",
        served: Served::Drive,
        writes: false,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: "drive write",
        served: Served::Drive,
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
    Counted {
        id: DRIVE_FLUSH,
        served: Served::Drive,
        writes: true,
        batches: &[DEEP],
        lbas: 0,
        operations: 32_000,
    },
];

/// Writes that are flushed each, 16 of them together.
const DRIVE_FLUSH: &str = "drive flush";
/// The drive that is memory, and the volume on it.
const DRIVE_BYTES: u64 = 256 << 20;
const DRIVE_VOLUME_BYTES: u64 = 64 << 20;
const DRIVE_LANES: u16 = 4;

/// Rows with a server that can be counted.
pub const COUNTED_ROWS: [&str; 14] = {
    let mut ids = [""; 14];
    let mut at = 0;
    while at < ids.len() {
        ids[at] = ROWS[at].id;
        at += 1;
    }
    ids
};

/// The program that is counted: sets up a row's server and does that many operations. Gives how many it did.
///
/// # Errors
/// What went wrong.
pub fn run(id: &str, operations: u64) -> Result<u64, String> {
    let row = ROWS.iter().find(|row| row.id == id);
    let row = row.ok_or_else(|| format!("no counted row {id}; there are {}", COUNTED_ROWS.join(", ")))?;
    match row.served {
        Served::Stack => {
            let shard = stack_shard(STACK_PART).map_err(|error| error.to_string())?;
            let mut wire = Wire::new(shard(Time::ZERO));
            for request in stack_requests(STACK_PART, Sold::Blocks) {
                wire.ask(request)?;
            }
            let lbas = STACK_BYTES / u64::from(STACK_PART) / 4096;
            let mut lines = wire.connect(STACK, 1, 1, 128)?;
            overwrite(&mut wire, &mut lines, lbas)?;
            let ask = anywhere(if row.lbas > 0 { row.lbas } else { lbas });
            count(row, &mut wire, lines, &ask, operations)
        }
        Served::Drive => {
            let drive_shape = DriveShape::plan(DRIVE_BYTES, DRIVE_LANES, Some(1 << 20))
                .map_err(|error| error.to_string())?;
            let shard = drive_shard(drive_shape, true);
            let mut wire = Wire::on(shard, Carrier::Memory(MemoryDrive::new(DRIVE_BYTES)));
            wire.open()?;
            for request in stack_requests_of(DRIVE_VOLUME_BYTES, DRIVE_LANES) {
                wire.ask(request)?;
            }
            let lbas = DRIVE_VOLUME_BYTES / 4096;
            let mut lines = wire.connect(STACK, 1, 1, 128)?;
            overwrite(&mut wire, &mut lines, lbas)?;
            let writes = if row.id == DRIVE_FLUSH { Writes::Flushed } else { Writes::Block };
            count(row, &mut wire, lines, &Ask { writes, ..anywhere(lbas) }, operations)
        }
        Served::Fresh(sold) => {
            let mut fresh = Fresh::new(sold)?;
            if operations > fresh.ask.lbas {
                return Err(format!(
                    "{operations} operations do not fit into {} blocks that are written once",
                    fresh.ask.lbas
                ));
            }
            let (lines, ask) = (std::mem::take(&mut fresh.lines), fresh.ask);
            count(row, &mut fresh.wire, lines, &ask, operations)
        }
        Served::Null => {
            let mut wire = Wire::new(null_shard());
            // Two connections are those of two hosts, as in row (d).
            let lines = if row.batches.len() == 2 {
                let mut lines = wire.connect(NULL[0], 1, 1, 128)?;
                lines.extend(wire.connect(NULL[1], 2, 1, 128)?);
                lines
            } else {
                wire.connect(NULL[0], 1, row.batches.len() as u16, 128)?
            };
            count(row, &mut wire, lines, &anywhere(1 << 28), operations)
        }
    }
}

/// Fills a volume in order, and overwrites it at random.
fn overwrite<D: Drive>(wire: &mut Wire<D>, lines: &mut [Line], lbas: u64) -> Result<(), String> {
    let fill = Ask { content: Some(content()), in_order: true, ..anywhere(lbas) };
    let anywhere = Ask { in_order: false, ..fill.clone() };
    wire.run(lines, &[fill], lbas / DEEP as u64)?;
    wire.run(lines, &[anywhere], CONDITIONING_PASSES * lbas / DEEP as u64).map(drop)
}

/// The whole stack without data, and a line that writes it in order.
struct Fresh {
    wire: Wire<Shard<Device>>,
    lines: Vec<Line>,
    ask: Ask,
}

impl Fresh {
    fn new(sold: Sold) -> Result<Fresh, String> {
        let shard = stack_shard(1).map_err(|error| error.to_string())?;
        let mut wire = Wire::new(shard(Time::ZERO));
        for request in stack_requests(1, sold) {
            wire.ask(request)?;
        }
        let lines = wire.connect(STACK, 1, 1, 128)?;
        let writes = match sold {
            Sold::Blocks => Writes::Block,
            // Not the one that writes without a handle go to.
            Sold::Placed(_) => Writes::Placed(1),
            Sold::Zones => Writes::Append { zone_lbas: zone_lbas(&mut wire)? },
        };
        let ask = Ask { writes, in_order: true, content: Some(content()), ..anywhere(STACK_BYTES / 4096) };
        Ok(Fresh { wire, lines, ask })
    }

    /// Writes everything once.
    fn pass(&mut self) -> Result<u64, String> {
        self.wire.run(&mut self.lines, std::slice::from_ref(&self.ask), self.ask.lbas / DEEP as u64)
    }
}

/// Writes a second that the server's side does, without sockets: the whole stack is overwritten in order until no memory of it is
/// new, and once more. Zones are reset before. Also what was programmed of what hosts wrote meanwhile.
pub(crate) fn overwrites_per_second(sold: Sold) -> Result<(f64, f64), String> {
    let mut fresh = Fresh::new(sold)?;
    // The least worn erase blocks are taken first: so many passes touch all of the device's memory.
    for _ in 0..CONDITIONING_PASSES {
        fresh.pass()?;
        if sold == Sold::Zones {
            fresh.lines[0].submit_reset();
            fresh.wire.settle(&mut fresh.lines)?;
        }
    }
    let (before, begun) = (programmed_bytes(&mut fresh.wire)?, fresh.wire.server_time);
    let operations = fresh.pass()?;
    let seconds = (fresh.wire.server_time - begun).as_secs_f64();
    let programmed_bytes = programmed_bytes(&mut fresh.wire)? - before;
    Ok((operations as f64 / seconds, programmed_bytes as f64 / (operations * 4096) as f64))
}

/// What is told of the only vSSD.
pub(crate) fn only_vssd<D: Drive>(wire: &mut Wire<D>) -> Result<VssdStatus, String> {
    match wire.response_to(ControlRequest::Status)? {
        ControlResponse::Status(status) => {
            status.vssds.into_iter().next().ok_or_else(|| "there is no vSSD".to_owned())
        }
        other => Err(format!("{other:?}")),
    }
}

/// Bytes that were programmed for the only vSSD.
fn programmed_bytes<D: Drive>(wire: &mut Wire<D>) -> Result<u64, String> {
    let traffic = only_vssd(wire)?.traffic;
    let of_others = traffic.programmed_cleaner_bytes + traffic.programmed_metadata_bytes;
    Ok(traffic.programmed_user_bytes + of_others)
}

/// Blocks of 4 KiB in an erase block on each unit of the only vSSD: a zone.
fn zone_lbas<D: Drive>(wire: &mut Wire<D>) -> Result<u64, String> {
    Ok(only_vssd(wire)?.space.segment_bytes() / 4096)
}

/// What blocks are written with.
pub(crate) const CONTENT_BYTE: u8 = 0x5a;

pub(crate) fn content() -> Buffer {
    content_of(1)
}

/// Of so many blocks.
pub(crate) fn content_of(blocks: u32) -> Buffer {
    Buffer::copy_from(&vec![CONTENT_BYTE; blocks as usize * 4096])
}

/// Reads of one block anywhere, as many under way as in a deep queue.
pub(crate) fn anywhere(lbas: u64) -> Ask {
    Ask { batch: DEEP, lbas, blocks: 1, content: None, writes: Writes::Block, in_order: false }
}

/// What a row counts: each of its lines asks alike, but for how many commands are under way.
fn count<D: Drive>(
    row: &Counted,
    wire: &mut Wire<D>,
    mut lines: Vec<Line>,
    ask: &Ask,
    operations: u64,
) -> Result<u64, String> {
    let ask = |&batch: &usize| Ask { batch, content: row.writes.then(content), ..ask.clone() };
    let asks: Vec<Ask> = row.batches.iter().map(ask).collect();
    let a_round: usize = row.batches.iter().sum();
    wire.run(&mut lines, &asks, operations / a_round as u64)
}

/// Instructions per operation.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Instructions {
    /// All of them.
    pub total: f64,
    /// Those of each room, most first; rooms with less than half an instruction are left out.
    pub by_room: Vec<(String, f64)>,
    /// Those that tell where the time of a command went: stamps, rings, latency monitors. They are part of their rooms.
    pub explaining: f64,
}

/// Instructions of the server's side per operation of a row, if it is one with a server.
pub fn of_row(id: &str) -> Option<Result<Instructions, Error>> {
    let row = ROWS.iter().find(|row| row.id == id)?;
    let program = std::env::current_exe().ok()?;
    let of = |operations: u64| {
        let arguments = ["counted", "--row", id, "--operations", &operations.to_string()].map(String::from);
        instructions(&program, &arguments, Some(COUNTED_FUNCTIONS))
    };
    Some(difference(row.operations, of))
}

/// Instructions of a whole program per operation; `arguments` says how it is called for so many of them.
pub(crate) fn of_program(
    program: &Path,
    operations: u64,
    arguments: impl Fn(u64) -> Vec<String>,
) -> Result<Instructions, Error> {
    difference(operations, |operations| instructions(program, &arguments(operations), None))
}

fn difference(operations: u64, of: impl Fn(u64) -> Result<Profile, Error>) -> Result<Instructions, Error> {
    assert!(operations > 0, "a figure per operation needs some");
    let (once, twice) = (of(operations)?, of(2 * operations)?);
    let each = |once: u64, twice: u64| (twice as f64 - once as f64) / operations as f64;
    let explaining = each(once.explaining, twice.explaining);
    let mut by_room: Vec<(String, f64)> = Vec::new();
    let mut total = 0.0;
    for (room, count) in twice.by_room {
        let each = each(once.by_room.get(&room).copied().unwrap_or(0), count);
        total += each;
        if each >= 0.5 {
            by_room.push((room, each));
        }
    }
    by_room.sort_by(|one, other| other.1.total_cmp(&one.1));
    Ok(Instructions { total, by_room, explaining })
}

#[cfg(test)]
mod test {
    use super::*;

    /// Each counted program sets itself up and does what it is asked for.
    #[test]
    fn counted_programs_run() {
        for row in &ROWS {
            let a_round: usize = row.batches.iter().sum();
            // The stack takes long to fill in an unoptimized build: one of its rows shows that it works.
            if row.served != Served::Stack || row.id == "b near" {
                assert_eq!(run(row.id, 5 * a_round as u64), Ok(5 * a_round as u64), "{}", row.id);
            }
        }
        assert!(run("z", 1).unwrap_err().contains("b near"));
    }
}
