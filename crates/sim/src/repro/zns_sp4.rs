//! A zoned drive beside a conventional one, in the figures that a drive's data sheet has.

use super::plot::{Content, Plot};
use super::report::{Cell, Comparison, Table};
use super::stage::Ground;
use super::zns_drives::{Drive, NextRange, Reads, Used};
use super::{Experiment, Findings, Progress, Published, Request};
use crate::isolation::summary::Estimate;
use diecut_units::Span;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "zns-sp4",
    question: "In the figures of a data sheet, what does a zoned drive have over one with a cleaner?",
    source: "Shannon SP4 ZNS beside an Intel P5510: a slide of the vendor",
    set_up: "One device, 2 channels of cnex-1tb with 256 blocks per plane of 16 pages, as one vSSD: with 7 % over-provisioning, or zoned. Eight \
             writers, 128 KiB each, one under way: each fills a range of a zone's size, then takes another one. The drive with a cleaner is \
             measured twice: ranges are taken in their order, as one who writes a disk from end to end again and again does it; and at random, as \
             files of several users are written. First the drive is filled, then overwritten once in that way. Then 128 KiB writes as fast as \
             eight writers can; 128 KiB reads in sequence, 32 under way; 4 KiB reads at random, 64 under way; writes and random reads of 128 KiB \
             with one under way; and such reads beside 30 % of the writes that zones take.",
    differs: &[
        "The slide compares two products, with different flash and controllers. Here the same emulated device stands under a log and under zones, so \
         only what zones change can differ.",
        "The slide does not say what was on the drives, nor whether anything was written beside the reads.",
        "The emulated device has no read retries and no refresh, which are a part of the tails of real drives.",
    ],
    published: &[
        Published { figure: "128 KiB sequential writes, SP4 over P5510", value: "+26 %" },
        Published { figure: "128 KiB sequential reads", value: "equal" },
        Published { figure: "4 KiB random reads", value: "+16 %" },
        Published {
            figure: "p99.99 with one under way, of the P5510's: 128 KiB writes, random reads",
            value: "1/4, 1/3",
        },
    ],
    run,
};

const WRITERS: usize = 8;
const LARGE_LBAS: u32 = 32;
/// Of what zones take, beside reads.
const BESIDE: f64 = 0.3;
const DRIVES: [(Drive, NextRange, &str); 3] = [
    (Drive::Conventional(70), NextRange::InOrder, "7 %, in order"),
    (Drive::Conventional(70), NextRange::Random, "7 %, at random"),
    (Drive::Zoned, NextRange::Random, "zones"),
];
const ZONED: usize = 2;

const SEQUENTIAL: Reads = Reads { depth: 32, lbas: LARGE_LBAS, is_sequential: true };
const SMALL: Reads = Reads { depth: 64, lbas: 1, is_sequential: false };
const ONE_LARGE: Reads = Reads { depth: 1, lbas: LARGE_LBAS, is_sequential: false };

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    writes_mb_per_s: f64,
    waf: f64,
    reads_mb_per_s: f64,
    small_reads_per_s: f64,
    /// p99.99, with one under way.
    write_us: f64,
    read_us: f64,
    read_beside_us: f64,
}

#[derive(Clone, Copy, Debug)]
struct Lengths {
    throughput: Span,
    latency: Span,
}

fn lengths(quick: bool) -> Lengths {
    let (throughput, latency) = if quick { (20, 60) } else { (500, 8_000) };
    Lengths { throughput: Span::from_millis(throughput), latency: Span::from_millis(latency) }
}

/// A drive that was filled and overwritten.
struct Measured {
    used: Used,
    quick: bool,
}

impl Measured {
    fn new(drive: Drive, next_range: NextRange, seed: u64, quick: bool) -> Result<Measured, String> {
        let (blocks, pages) = if quick { (64, 4) } else { (256, 16) };
        let ground = Ground::of(2, blocks, pages, seed);
        let mut used = Used::filled(drive, &ground, 2, WRITERS, LARGE_LBAS)?;
        used.take_ranges(next_range);
        used.write(used.drive_lbas);
        Ok(Measured { used, quick })
    }

    /// Nothing but these reads, for so long: they are counted after a fifth of it.
    fn reads(&mut self, reads: Reads, writes_per_s: f64, length: Span) {
        for part in [Span(length.0 / 5), length] {
            self.used.load.begin(Some(writes_per_s), Some(reads), self.used.stage.now);
            self.used.run_for(part);
        }
    }

    /// All but reads beside writes.
    fn alone(&mut self) -> Outcome {
        let Lengths { throughput, latency } = lengths(self.quick);
        let lbas = self.used.drive_lbas;
        let (writes_mb_per_s, waf) = self.used.throughput(if self.quick { lbas / 4 } else { lbas });
        self.reads(SEQUENTIAL, 0.0, throughput);
        let reads_mb_per_s = self.used.load.read.mb_per_s(self.used.stage.now);
        self.reads(SMALL, 0.0, throughput);
        let small_reads_per_s = self.used.load.read.per_s(self.used.stage.now);
        self.reads(ONE_LARGE, 0.0, latency);
        let read_us = self.used.load.read.quantile_us(0.9999);
        self.used.load.let_write(1);
        for part in [Span(latency.0 / 5), latency] {
            self.used.load.begin(None, None, self.used.stage.now);
            self.used.run_for(part);
        }
        let write_us = self.used.load.written.quantile_us(0.9999);
        self.used.load.let_write(WRITERS);
        Outcome {
            writes_mb_per_s,
            waf,
            reads_mb_per_s,
            small_reads_per_s,
            write_us,
            read_us,
            read_beside_us: 0.0,
        }
    }

    /// p99.99 of reads beside so many MB/s of writes.
    fn beside(&mut self, mb_per_s: f64) -> f64 {
        let writes_per_s = mb_per_s * 1e6 / f64::from(LARGE_LBAS * 4096);
        self.reads(ONE_LARGE, writes_per_s, lengths(self.quick).latency);
        self.used.load.read.quantile_us(0.9999)
    }
}

fn measure(seed: u64, quick: bool, progress: Progress) -> Result<[Outcome; DRIVES.len()], String> {
    let mut outcomes = [Outcome::default(); DRIVES.len()];
    let mut drives = Vec::new();
    for (number, (drive, next_range, name)) in DRIVES.into_iter().enumerate() {
        let mut measured = Measured::new(drive, next_range, seed, quick)?;
        outcomes[number] = measured.alone();
        progress(&format!("seed {seed}, {name}: {:.0} MB/s", outcomes[number].writes_mb_per_s));
        drives.push(measured);
    }
    let mb_per_s = outcomes[ZONED].writes_mb_per_s * BESIDE;
    for (measured, outcome) in drives.iter_mut().zip(&mut outcomes) {
        outcome.read_beside_us = measured.beside(mb_per_s);
    }
    progress(&format!("seed {seed}: reads beside writes"));
    Ok(outcomes)
}

fn run(request: &Request, progress: Progress) -> Result<Findings, String> {
    let seeds: Result<Vec<_>, String> =
        (1..=request.seeds).map(|seed| measure(seed, request.quick, progress)).collect();
    let seeds = seeds?;
    let values = |drive: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|drives| figure(&drives[drive])).collect()
    };
    // Within a seed, so that what differs between devices falls out.
    let ratio = |drive: usize, figure: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|drives| figure(&drives[ZONED]) / figure(&drives[drive])).collect()
    };
    let mut throughput = Table::new(
        "Throughput",
        &[
            "drive",
            "128 KiB writes_mb_per_s",
            "waf",
            "128 KiB reads in sequence_mb_per_s",
            "4 KiB random reads_per_s",
        ],
    );
    let mut latency = Table::new(
        "p99.99 of 128 KiB, one under way",
        &["drive", "writes_us", "random reads_us", "random reads beside writes_us"],
    );
    for (at, (_, _, name)) in DRIVES.iter().enumerate() {
        throughput.rows.push(vec![
            Cell::text(*name),
            Cell::over(&values(at, &|one| one.writes_mb_per_s), 0),
            Cell::over(&values(at, &|one| one.waf), 2),
            Cell::over(&values(at, &|one| one.reads_mb_per_s), 0),
            Cell::over(&values(at, &|one| one.small_reads_per_s), 0),
        ]);
        latency.rows.push(vec![
            Cell::text(*name),
            Cell::over(&values(at, &|one| one.write_us), 0),
            Cell::over(&values(at, &|one| one.read_us), 0),
            Cell::over(&values(at, &|one| one.read_beside_us), 0),
        ]);
    }
    let mut findings = Findings::default();
    for (drive, (_, _, name)) in DRIVES.iter().enumerate().take(ZONED) {
        let mut compare = |figure: &str, published: &str, figures: Vec<f64>| {
            let figure = format!("{figure}, zones over {name}");
            findings.comparisons.push(Comparison::new(figure, published, Cell::over(&figures, 2)));
        };
        compare("128 KiB writes", "1.26", ratio(drive, &|one| one.writes_mb_per_s));
        compare("128 KiB reads in sequence", "1", ratio(drive, &|one| one.reads_mb_per_s));
        compare("4 KiB random reads", "1.16", ratio(drive, &|one| one.small_reads_per_s));
        compare("p99.99 of writes, one under way", "0.25", ratio(drive, &|one| one.write_us));
        compare("p99.99 of random reads, one under way", "0.33", ratio(drive, &|one| one.read_us));
        compare("p99.99 of random reads beside writes", "0.33", ratio(drive, &|one| one.read_beside_us));
    }
    findings.notes.push(
        "Zones change what is written beside a host's commands, and nothing else: where nothing is cleaned, both drives are the same device. What a \
         product gains beyond that is another matter than zones."
            .into(),
    );
    findings.tables.extend([throughput, latency]);
    findings.plots.push(Plot {
        title: "p99.99 of 128 KiB, one under way".into(),
        x_label: "drive".into(),
        y_label: "us".into(),
        logarithmic: true,
        content: Content::Bars {
            groups: DRIVES.iter().map(|(_, _, name)| (*name).to_owned()).collect(),
            series: [
                ("writes", (|one| one.write_us) as fn(&Outcome) -> f64),
                ("random reads", |one| one.read_us),
                ("beside writes", |one| one.read_beside_us),
            ]
            .into_iter()
            .map(|(name, figure)| {
                let bars = (0..DRIVES.len()).map(|at| Estimate::of(&values(at, &figure))).collect();
                (name.to_owned(), bars)
            })
            .collect(),
        },
        references: Vec::new(),
    });
    Ok(findings)
}
