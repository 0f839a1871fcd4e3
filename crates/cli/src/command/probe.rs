use crate::print;
use clap::Args;
use diecut_devices::local::{Access, LocalDevice};
use diecut_probe::{Curve, Disturbance, DriveFacts, DriveKind, Map, ProbeSpec, Report, Verdict, run};
use diecut_sim::repro::plot::{Content, Plot, svg};
use diecut_spec::Size;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct Probe {
    /// A block device or a file.
    path: PathBuf,
    /// Measure writes, too: WHAT IT HOLDS IS LOST. Refused where something is recognized on it.
    #[arg(long)]
    overwrite: bool,
    /// With --overwrite, also where file systems, partition tables or parts of pools are recognized.
    #[arg(long, requires = "overwrite")]
    force: bool,
    /// Bytes of a command.
    #[arg(long, visible_alias = "block-size", default_value = "4k")]
    bs: Size,
    /// Commands under way, one measurement for each.
    #[arg(long, value_delimiter = ',', value_name = "DEPTH,...", default_value = "1,4,16,64")]
    depths: Vec<u16>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Regions of equal size that are measured beside each other; 0 for none.
    #[arg(long, default_value_t = 4)]
    regions: u16,
    /// Seed of offsets and directions.
    #[arg(long, default_value_t = 1)]
    randseed: u64,
    /// File for a map of the parts that work by themselves, if some do, for `diecut device format --map`.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// File for a plot (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Probe {
    /// Measures the drive and prints what came of it.
    pub fn run(self, json: bool) -> ExitCode {
        match self.measure() {
            Ok(report) => {
                if json {
                    print::json(&report);
                } else {
                    print::line(&text(&report));
                }
                ExitCode::SUCCESS
            }
            Err(message) => {
                if json {
                    eprintln!("{}", serde_json::json!({ "message": message }));
                } else {
                    eprintln!("error: {message}");
                }
                ExitCode::FAILURE
            }
        }
    }

    fn measure(self) -> Result<Report, String> {
        if self.map.is_some() && self.regions < 2 {
            return Err(format!(
                "--map says which regions work by themselves, and --regions {} leaves nothing to compare: use 2 or more",
                self.regions
            ));
        }
        let bytes = self.bs.bytes();
        let spec = ProbeSpec {
            block_bytes: u32::try_from(bytes).map_err(|_| format!("blocks of {} are too large", self.bs))?,
            depths: self.depths,
            seconds: self.seconds,
            regions: self.regions,
            seed: self.randseed,
            overwrites: self.overwrite,
            force: self.force,
        };
        // Minutes of work are not to be lost for a folder that is not there.
        self.plot.iter().try_for_each(|plot| write(plot, ""))?;
        let report = run(&self.path, &spec, &mut |what| eprintln!("{}: {what}", self.path.display()));
        let report = report.map_err(|error| error.to_string())?;
        if let Some(file) = &self.map {
            write_map(file, &self.path, &report)?;
        }
        if let Some(plot) = &self.plot {
            let command = format!("diecut probe {}", self.path.display());
            write(plot, &svg("What the drive does by itself", &command, &plots(&report))?)?;
        }
        Ok(report)
    }
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// What the parts of the drive are, in a file; what is there stays where there is nothing to say.
fn write_map(file: &Path, drive: &Path, report: &Report) -> Result<(), String> {
    let device = LocalDevice::open(drive, Access::Look).map_err(|error| error.to_string())?;
    let Some(map) = Map::of(report, device.properties().identity.serial.clone()) else {
        eprintln!("{}: no part of it works by itself, so {} is not written", drive.display(), file.display());
        return Ok(());
    };
    if let Err(why) = map.lanes() {
        eprintln!("{}: no lanes can be made of its parts: {why}", drive.display());
    }
    let text = serde_json::to_string_pretty(&map).map_err(|error| error.to_string())?;
    write(file, &(text + "\n"))
}

fn micros(us: f64) -> String {
    print::latency((us * 1e3) as u64)
}

fn text(report: &Report) -> String {
    let mut text =
        print::table_text(&["drive", &report.drive.path.display().to_string()], facts(&report.drive));
    text += "\n\nrandom blocks of all of it\n";
    let header = ["what", "under way", "kIOPS", "MB/s", "mean", "p50", "p99", "p99.9", "longest"];
    text += &print::table_text(&header, report.curves.iter().flat_map(rows).collect());
    if let Some(disturbance) = &report.disturbance {
        text += &regions(disturbance);
    }
    text
}

/// What the kernel says of the drive, and what that means.
fn facts(facts: &DriveFacts) -> Vec<Vec<String>> {
    let mut rows = vec![
        (
            "is a",
            match facts.kind {
                DriveKind::File => "file".to_owned(),
                DriveKind::Block => "block device".to_owned(),
                DriveKind::Partition => "partition".to_owned(),
            },
        ),
        ("size", Size(facts.size_bytes).to_string()),
        ("logical block", format!("{} bytes", facts.logical_block_bytes)),
    ];
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let size = |bytes: u64| if bytes == 0 { "none".to_owned() } else { Size(bytes).to_string() };
    rows.extend(facts.physical_block_bytes.map(|bytes| ("physical block", format!("{bytes} bytes"))));
    rows.extend(facts.optimal_io_bytes.map(|bytes| ("optimal I/O size", size(bytes))));
    rows.extend(facts.discard_granularity_bytes.map(|bytes| ("discards in units of", size(bytes))));
    rows.extend(facts.write_zeroes_max_bytes.map(|bytes| ("largest write of zeroes", size(bytes))));
    rows.extend(facts.has_volatile_cache.map(|is| ("volatile cache", yes(is))));
    rows.extend(facts.takes_fua.map(|is| ("writes past the cache (FUA)", yes(is))));
    rows.extend(facts.is_rotational.map(|is| ("rotates", yes(is))));
    rows.extend(facts.zoned.clone().map(|zoned| ("zoned", zoned)));
    if let Some(percent) = facts.allocated_percent.filter(|percent| *percent < 100) {
        let what = format!("{percent} %; reads of the rest ask no drive");
        rows.push(("has a place on its file system", what));
    }
    print::field_rows(rows)
}

fn rows(curve: &Curve) -> Vec<Vec<String>> {
    let name = match curve.read_percent {
        0 | 100 => curve.what.clone(),
        percent => format!("{} ({percent} % reads)", curve.what),
    };
    let row = |point: &diecut_probe::Point| {
        let latencies = [point.mean_us, point.p50_us, point.p99_us, point.p99_9_us, point.max_us];
        let rates = [point.operations_per_second / 1e3, point.bytes_per_second / 1e6];
        let mut row = vec![name.clone(), point.depth.to_string()];
        row.extend(rates.map(|rate| format!("{rate:.1}")));
        row.extend(latencies.map(micros));
        row
    };
    curve.points.iter().map(row).collect()
}

fn regions(disturbance: &Disturbance) -> String {
    let what = if disturbance.load_read_percent == 100 { "reads" } else { "writes" };
    let mut text = format!(
        "\n\np99 of single reads in a region of {}, alone and while {} {what} are under way in another one\n",
        Size(disturbance.region_bytes),
        disturbance.load_depth
    );
    let mut header = vec!["region".to_owned(), "alone".to_owned()];
    header.extend((0..disturbance.alone_p99_us.len()).map(|region| format!("load in {region}")));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = disturbance.alone_p99_us.iter().zip(&disturbance.beside_p99_us).enumerate();
    let rows = rows.map(|(region, (alone, beside))| {
        let mut row = vec![region.to_string(), micros(*alone)];
        row.extend(beside.iter().map(|us| micros(*us)));
        row
    });
    text += &print::table_text(&header, rows.collect());
    text + "\n" + &verdict(&disturbance.verdict)
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Holes => "The file has holes: reads of them ask no drive, so nothing can be said of its regions. Fill it first, or measure writes \
                           (--overwrite), which loses what it holds."
            .to_owned(),
        Verdict::TooQuiet => "A load disturbs reads of its own region too little to tell regions apart.".to_owned(),
        Verdict::Shared => "Every region disturbs every other one: tenants in regions of this drive share its bandwidth and nothing is \
                            theirs alone."
            .to_owned(),
        Verdict::Independent { pairs } => {
            let pairs: Vec<String> = pairs.iter().map(|(one, other)| format!("{one} and {other}")).collect();
            format!("These regions do not disturb each other: {}.", pairs.join(", "))
        }
    }
}

fn plots(report: &Report) -> Vec<Plot> {
    let curve = |curve: &Curve, of: fn(&diecut_probe::Point) -> f64, name: &str| {
        let points = curve.points.iter().map(|point| (f64::from(point.depth), of(point))).collect();
        (format!("{} {name}", curve.what), points)
    };
    let plot = |title: &str, y_label: &str, logarithmic, curves: Vec<(String, Vec<(f64, f64)>)>| Plot {
        title: title.to_owned(),
        x_label: "commands under way".to_owned(),
        y_label: y_label.to_owned(),
        logarithmic,
        content: Content::Curves(curves),
        references: Vec::new(),
    };
    let latencies = report
        .curves
        .iter()
        .flat_map(|one| [curve(one, |point| point.p50_us, "p50"), curve(one, |point| point.p99_us, "p99")]);
    let rates = report.curves.iter().map(|one| curve(one, |point| point.operations_per_second / 1e3, ""));
    vec![
        plot("Latency", "us", true, latencies.collect()),
        plot("Commands in a second", "kIOPS", false, rates.collect()),
    ]
}
