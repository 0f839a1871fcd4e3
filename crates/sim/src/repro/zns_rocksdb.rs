//! A database on a log-structured merge tree: on drives with a cleaner, and with its files in zones.

use super::lsm::{Database, MIXES, OVERWRITE, Shape};
use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::{Ground, Stage, Workload};
use super::ycsb::fill;
use super::zns_drives::{DRIVES, Drive};
use super::zone_files::{ZoneFiles, Zones};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "zns-rocksdb",
    question: "What does a database on a log-structured merge tree gain if its files lie in zones, by their lifetimes?",
    source: "ZNS: Avoiding the Block Interface Tax for Flash-based SSDs (USENIX ATC'21), RocksDB on ZenFS and on XFS",
    set_up: "One database on one channel of cnex-1tb (4 dies, 128 blocks per plane of 32 pages) as a drive with 7 % over-provisioning, with 28 %, or \
             zoned. It fills 80 % of what the drive with 28 % exports. Tables are 512 KiB, and a zone, of 8 MiB, is an erase block on each unit. On drives a table \
             that is gone is deallocated. In zones the tables of a level share zones, the log has its own, and a zone of which least is \
             needed is emptied by copies when fewer than 3 are empty. First 16 clients overwrite records; then 15 read while one writes \
             as fast as it can; then it writes at 80 % of the rate that zones took.",
    differs: &[
        "A model of the tree instead of RocksDB: tables are counted, not filled; one compaction at a time; LevelDB's rules for slow writers.",
        "0.3 GB instead of 1.6 TB, and seconds instead of hours. A zone holds 16 tables; the paper's (1,077 MiB, tables of 128 to 512 MiB) hold 2 to 8.",
        "Drives have no file system: a table lies at one place, which is as good as XFS can do. The database is the same on all of them.",
        "ZenFS as published did not copy live tables; its later versions do.",
        "Commands cost no processor time but 10 us per operation in the database, with a core for each client.",
    ],
    published: &[
        Published { figure: "overwrite, ZenFS over XFS", value: "+183 %" },
        Published { figure: "write amplification of the drive: XFS, ZenFS", value: "2.0, 1.0" },
        Published { figure: "readwhilewriting: writes, ZenFS over XFS", value: "2x" },
        Published {
            figure: "readwhilewriting: p99.99 of reads, XFS over ZenFS",
            value: "about 10x; the article: 4x",
        },
        Published { figure: "writes limited: p99.9 of reads, XFS over ZenFS", value: "4x" },
        Published { figure: "writes limited: share of the rate that XFS sustains", value: "~85 %" },
    ],
    run,
};

const ZONED: usize = 2;
const CLIENTS: usize = 16;
/// Large commands of a compaction under way, as those of several compactions: the drive is what limits them.
const LARGE_DEPTH: usize = 32;
/// Of what the drive with 28 % over-provisioning exports.
const FULL_PERCENT: u64 = 80;
/// Of the writes that zones took.
const LIMIT: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
struct Size {
    blocks_per_plane: u32,
    pages_per_block: u32,
    table_blocks: u32,
    warm_up: Span,
    measured: Span,
}

fn size(quick: bool) -> Size {
    if quick {
        let (warm_up, measured) = (Span::from_millis(150), Span::from_millis(300));
        return Size { blocks_per_plane: 64, pages_per_block: 8, table_blocks: 32, warm_up, measured };
    }
    let (warm_up, measured) = (Span::from_millis(3_000), Span::from_millis(5_000));
    Size { blocks_per_plane: 128, pages_per_block: 32, table_blocks: 128, warm_up, measured }
}

/// The database, on a volume or in zones.
enum Subject {
    Volume(Box<Database>),
    Zones(Box<ZoneFiles>),
}

impl Subject {
    fn database(&mut self) -> &mut Database {
        match self {
            Subject::Volume(database) => database,
            Subject::Zones(files) => &mut files.database,
        }
    }

    fn workload(&mut self) -> &mut dyn Workload {
        match self {
            Subject::Volume(database) => &mut **database,
            Subject::Zones(files) => &mut **files,
        }
    }

    /// Blocks that copies of the host wrote.
    fn copied_blocks(&self) -> u64 {
        match self {
            Subject::Volume(_) => 0,
            Subject::Zones(files) => files.copied_blocks,
        }
    }
}

/// One phase on one drive.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    writes_per_s: f64,
    reads_per_s: f64,
    /// p99, p99.9 and p99.99 of reads.
    reads_us: [f64; 3],
    /// What the drive programmed over what it was given.
    waf: f64,
    /// What copies of the host wrote over the rest that it wrote.
    copies: f64,
}

struct Used {
    stage: Stage,
    subject: Subject,
    size: Size,
}

impl Used {
    fn new(drive: Drive, shape: Shape, seed: u64, size: Size) -> Result<Used, String> {
        let ground = Ground::of(1, size.blocks_per_plane, size.pages_per_block, seed);
        let mut stage = Stage::new(&ground, &[drive.part(1)])?;
        let subject = if drive == Drive::Zoned {
            let (count, lbas) = stage.create_zones(0)?;
            let mut files = ZoneFiles::new(Database::new(OVERWRITE, shape, seed), Zones { count, lbas });
            while !files.is_loaded() {
                let until = stage.now + Span::from_millis(10);
                stage.run(&mut [&mut files], until);
            }
            files.begin(stage.now);
            Subject::Zones(Box::new(files))
        } else {
            let lbas = stage.exported_lbas()[0];
            stage.create_volume(0, lbas)?;
            fill(&mut stage, 1, lbas);
            let mut database = Database::new(OVERWRITE, shape, seed);
            database.begin(stage.now);
            Subject::Volume(Box::new(database))
        };
        Ok(Used { stage, subject, size })
    }

    fn run_for(&mut self, length: Span) {
        let until = self.stage.now + length;
        self.stage.run(&mut [self.subject.workload()], until);
    }

    /// One phase: so many clients only write, and all others only read; with none all overwrite.
    fn measure(&mut self, writers: usize, writes_per_s: Option<f64>) -> Outcome {
        let now = self.stage.now;
        let mix = if writers == 0 { OVERWRITE } else { MIXES[0] };
        self.subject.database().change(mix, writers, writes_per_s, now);
        self.run_for(self.size.warm_up);
        let (before, copied) = (self.stage.written()[0], self.subject.copied_blocks());
        let start = self.stage.now;
        let database = self.subject.database();
        database.meter.restart(start);
        database.write_meter.restart(start);
        self.run_for(self.size.measured);
        let (now, after) = (self.stage.now, self.stage.written()[0]);
        let copied_bytes = (self.subject.copied_blocks() - copied) as f64 * 4096.0;
        let host_bytes = (after.host_bytes - before.host_bytes) as f64;
        let database = self.subject.database();
        let (reads, writes) = (&database.meter, &database.write_meter);
        let all = reads.per_s(now);
        let (reads_per_s, writes_per_s) = if writers == 0 { (0.0, all) } else { (all, writes.per_s(now)) };
        Outcome {
            writes_per_s,
            reads_per_s,
            reads_us: [0.99, 0.999, 0.9999].map(|quantile| reads.quantile_us(quantile)),
            waf: after.waf_since(before),
            copies: copied_bytes / (host_bytes - copied_bytes).max(1.0),
        }
    }
}

/// By phase (overwrite, reads beside a writer, beside a limited one), by drive.
type Phases = [[Outcome; DRIVES.len()]; 3];

fn measure(seed: u64, size: Size, progress: Progress) -> Result<Phases, String> {
    let ground = Ground::of(1, size.blocks_per_plane, size.pages_per_block, seed);
    let lbas = Stage::new(&ground, &[Drive::Conventional(280).part(1)])?.exported_lbas()[0];
    let places = lbas / u64::from(size.table_blocks);
    let data_tables = places * FULL_PERCENT / 100;
    let shape = Shape {
        lbas,
        table_blocks: size.table_blocks,
        memtable_tables: 2,
        clients: CLIENTS,
        large_depth: LARGE_DEPTH,
        // Each level a tenth of the one below, as RocksDB chooses it by itself.
        level_1_tables: (data_tables / 110).max(4) as usize,
        data_tables: Some(data_tables),
        writers: 0,
    };
    let mut phases: Phases = Default::default();
    let mut drives = Vec::new();
    for (number, (drive, name)) in DRIVES.into_iter().enumerate() {
        let mut used = Used::new(drive, shape, seed, size)?;
        progress(&format!("seed {seed}, {name}: filled"));
        phases[0][number] = used.measure(0, None);
        phases[1][number] = used.measure(1, None);
        let Outcome { writes_per_s, reads_us, .. } = phases[1][number];
        progress(&format!(
            "seed {seed}, {name}: {writes_per_s:.0} writes/s, p99.99 of reads {:.0} us",
            reads_us[2]
        ));
        drives.push(used);
    }
    let limit = phases[1][ZONED].writes_per_s * LIMIT;
    for (number, used) in drives.iter_mut().enumerate() {
        phases[2][number] = used.measure(1, Some(limit));
        progress(&format!("seed {seed}, {}: limited", DRIVES[number].1));
    }
    Ok(phases)
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let size = size(request.quick);
    let seeds: Result<Vec<Phases>, String> =
        (1..=request.seeds).map(|seed| measure(seed, size, progress)).collect();
    let seeds = seeds?;
    let over = |phase: usize, drive: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|phases| figure(&phases[phase][drive])).collect()
    };
    // Within a seed, so that what differs between devices falls out.
    let ratio = |phase: usize, one: usize, other: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|phases| figure(&phases[phase][one]) / figure(&phases[phase][other])).collect()
    };
    let mut findings = Findings::default();
    let columns = ["drive", "updates_per_s", "waf", "copies of the host_percent"];
    let mut overwrite = Table::new("Overwrite, 16 clients", &columns);
    let columns = [
        "drive",
        "writes_per_s",
        "reads_per_s",
        "p99 of reads_us",
        "p99.9 of reads_us",
        "p99.99 of reads_us",
        "waf",
        "copies of the host_percent",
    ];
    let mut unlimited = Table::new("15 clients read while one writes as fast as it can", &columns);
    let mut limited = Table::new("The same, writes at 80 % of what zones took", &columns);
    for (drive, (_, name)) in DRIVES.iter().enumerate() {
        overwrite.rows.push(vec![
            Cell::text(*name),
            Cell::over(&over(0, drive, &|one| one.writes_per_s), 0),
            Cell::over(&over(0, drive, &|one| one.waf), 2),
            Cell::over(&over(0, drive, &|one| one.copies * 100.0), 0),
        ]);
        for (phase, table) in [(1, &mut unlimited), (2, &mut limited)] {
            let mut row = vec![
                Cell::text(*name),
                Cell::over(&over(phase, drive, &|one| one.writes_per_s), 0),
                Cell::over(&over(phase, drive, &|one| one.reads_per_s), 0),
            ];
            row.extend((0..3).map(|at| Cell::over(&over(phase, drive, &|one| one.reads_us[at]), 0)));
            row.push(Cell::over(&over(phase, drive, &|one| one.waf), 2));
            row.push(Cell::over(&over(phase, drive, &|one| one.copies * 100.0), 0));
            table.rows.push(row);
        }
    }
    for (drive, (_, name)) in DRIVES.iter().enumerate().take(ZONED) {
        let mut compare = |figure: &str, published: &str, values: Vec<f64>| {
            let figure = format!("{figure}, zones and the drive with {name}");
            findings.comparisons.push(Comparison::new(figure, published, Cell::over(&values, 2)));
        };
        compare("overwrite: updates, times", "2.83", ratio(0, ZONED, drive, &|one| one.writes_per_s));
        compare("overwrite: WAF of the drive", "2.0", over(0, drive, &|one| one.waf));
        compare("readwhilewriting: writes, times", "2", ratio(1, ZONED, drive, &|one| one.writes_per_s));
        compare(
            "readwhilewriting: p99.99 of reads, times lower",
            "~10 (article: 4)",
            ratio(1, drive, ZONED, &|one| one.reads_us[2]),
        );
        compare("limited: p99.9 of reads, times lower", "4", ratio(2, drive, ZONED, &|one| one.reads_us[1]));
        compare(
            "limited: share of the rate that the drive sustains",
            "~0.85",
            ratio(2, drive, ZONED, &|one| one.writes_per_s),
        );
    }
    findings.notes.push(
        "What zones save is the cleaner's work. What they cost is the host's copies: tables of one level do not all go at once, so a zone \
         with some of them left is emptied when zones run short."
            .into(),
    );
    findings.tables.extend([overwrite, unlimited, limited]);
    let groups = || DRIVES.iter().map(|(_, name)| (*name).to_owned()).collect();
    let bars = |phase: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<Estimate> {
        (0..DRIVES.len()).map(|drive| Estimate::of(&over(phase, drive, figure))).collect()
    };
    findings.plots.push(Plot {
        title: "Records written".into(),
        x_label: "drive".into(),
        y_label: "per second".into(),
        logarithmic: false,
        content: Content::Bars {
            groups: groups(),
            series: vec![
                ("overwrite".into(), bars(0, &|one| one.writes_per_s)),
                ("beside reads".into(), bars(1, &|one| one.writes_per_s)),
            ],
        },
        references: Vec::new(),
    });
    findings.plots.push(Plot {
        title: "Latency of reads beside writes".into(),
        x_label: "drive".into(),
        y_label: "us".into(),
        logarithmic: true,
        content: Content::Bars {
            groups: groups(),
            series: vec![
                ("p99.9, unlimited".into(), bars(1, &|one| one.reads_us[1])),
                ("p99.99, unlimited".into(), bars(1, &|one| one.reads_us[2])),
                ("p99.9, limited".into(), bars(2, &|one| one.reads_us[1])),
            ],
        },
        references: Vec::new(),
    });
    Ok(findings)
}
