//! Plots as SVG: bars with confidence intervals, or curves, below each other in one picture.

use crate::isolation::summary::Estimate;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The vertical axis is logarithmic.
    pub logarithmic: bool,
    /// What is drawn.
    pub content: Content,
    /// Horizontal lines with a name: published values, bounds.
    pub references: Vec<(String, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Content {
    /// Groups of bars, one bar per series in each.
    Bars {
        /// Names of the groups.
        groups: Vec<String>,
        /// Name of each series and its bars, one per group.
        series: Vec<(String, Vec<Estimate>)>,
    },
    /// Curves through points.
    Curves(Vec<(String, Vec<(f64, f64)>)>),
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 340;
const HEAD: u32 = 60;
const FONT: &str = "sans-serif";
/// Distinct also for people who see few colours (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
];

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// All plots below a title and the command that makes them.
///
/// # Errors
/// What the library says.
pub fn svg(title: &str, command: &str, plots: &[Plot]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let size = (WIDTH, HEAD + HEIGHT * plots.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root, title, command, plots).map_err(|error| format!("the plot cannot be drawn: {error}"))?;
        root.present().map_err(|error| format!("the plot cannot be drawn: {error}"))?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Outcome = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw(root: &Area, title: &str, command: &str, plots: &[Plot]) -> Outcome {
    root.fill(&WHITE)?;
    root.draw(&Text::new(title.to_owned(), (12, 10), (FONT, 15).into_font()))?;
    let grey = (FONT, 12).into_font().color(&RGBColor(110, 110, 110));
    root.draw(&Text::new(command.to_owned(), (12, 32), grey))?;
    let (_, body) = root.split_vertically(HEAD);
    for (plot, area) in plots.iter().zip(body.split_evenly((plots.len(), 1))) {
        let (least, most) = plot.extent();
        if plot.logarithmic {
            // From a power of ten on: the library labels no others below the first one.
            let floor = 10f64.powf((least * 0.95).log10().floor());
            plot.draw(&area, (floor..most * 1.6).log_scale(), floor)?;
        } else {
            plot.draw(&area, 0.0..most * 1.15, 0.0)?;
        }
    }
    Ok(())
}

impl Plot {
    fn extent(&self) -> (f64, f64) {
        let mut values: Vec<f64> = self.references.iter().map(|(_, value)| *value).collect();
        match &self.content {
            Content::Bars { series, .. } => {
                let bars = series.iter().flat_map(|(_, bars)| bars);
                values.extend(bars.flat_map(|bar| [bar.mean, bar.mean + bar.half_width]));
            }
            Content::Curves(curves) => {
                values.extend(curves.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y)));
            }
        }
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.clone().fold(f64::INFINITY, f64::min);
        let most = positive.fold(0.0, f64::max);
        if most > 0.0 { (least, most) } else { (0.1, 1.0) }
    }

    fn x_range(&self) -> (f64, f64) {
        match &self.content {
            Content::Bars { groups, .. } => (0.0, groups.len() as f64),
            Content::Curves(curves) => {
                let xs = curves.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x));
                let most = xs.clone().fold(0.0, f64::max);
                (xs.fold(most, f64::min).min(most * 0.999), most)
            }
        }
    }

    fn draw<Y>(&self, area: &Area, y_range: Y, floor: f64) -> Outcome
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let (left, right) = self.x_range();
        let bars = matches!(self.content, Content::Bars { .. });
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 14))
            .margin(10)
            .margin_right(200)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, y_range)?;
        let mut mesh = chart.configure_mesh();
        mesh.y_desc(&self.y_label).x_desc(&self.x_label).axis_desc_style((FONT, 12)).label_style((FONT, 11));
        mesh.y_label_formatter(&|value| number(*value)).x_label_formatter(&|value| number(*value));
        mesh.light_line_style(WHITE).bold_line_style(RGBColor(225, 225, 225)).disable_x_mesh();
        if bars {
            mesh.x_labels(0);
        }
        mesh.draw()?;
        match &self.content {
            Content::Bars { groups, series } => draw_bars(&mut chart, groups, series, floor)?,
            Content::Curves(curves) => {
                for (index, (_, points)) in curves.iter().enumerate() {
                    let colour = colour(index);
                    chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
                    let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
                    chart.draw_series(dots)?;
                }
            }
        }
        for (_, value) in &self.references {
            let line = [(left, *value), (right, *value)];
            chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(1)))?;
        }
        self.legend(area)
    }

    /// To the right of the plot, where nothing is hidden.
    fn legend(&self, area: &Area) -> Outcome {
        let names: Vec<&String> = match &self.content {
            Content::Bars { series, .. } => series.iter().map(|(name, _)| name).collect(),
            Content::Curves(curves) => curves.iter().map(|(name, _)| name).collect(),
        };
        let x = WIDTH as i32 - 195;
        let mut y = 40;
        for (index, name) in names.into_iter().enumerate() {
            area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour(index).filled()))?;
            area.draw(&Text::new(name.clone(), (x + 18, y), (FONT, 12)))?;
            y += 19;
        }
        for (name, value) in &self.references {
            area.draw(&PathElement::new([(x, y + 6), (x + 5, y + 6)], BLACK))?;
            area.draw(&PathElement::new([(x + 8, y + 6), (x + 13, y + 6)], BLACK))?;
            area.draw(&Text::new(format!("{name}: {}", number(*value)), (x + 18, y), (FONT, 12)))?;
            y += 19;
        }
        Ok(())
    }
}

fn draw_bars<Y: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    groups: &[String],
    series: &[(String, Vec<Estimate>)],
    floor: f64,
) -> Outcome {
    let width = 0.8 / series.len().max(1) as f64;
    for (index, (_, bars)) in series.iter().enumerate() {
        for (group, bar) in bars.iter().enumerate() {
            let left = group as f64 + 0.1 + index as f64 * width;
            let top = bar.mean.max(floor);
            let corners = [(left, floor), (left + width * 0.92, top)];
            chart.draw_series([Rectangle::new(corners, colour(index).filled())])?;
            if bar.half_width > 0.0 {
                let middle = left + width * 0.46;
                let (low, high) = ((bar.mean - bar.half_width).max(floor), bar.mean + bar.half_width);
                chart.draw_series([PathElement::new([(middle, low), (middle, high)], BLACK)])?;
            }
        }
    }
    let style = (FONT, 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    for (group, name) in groups.iter().enumerate() {
        let label = EmptyElement::at((group as f64 + 0.5, floor)) + Text::new(name.clone(), (0, 6), &style);
        chart.draw_series([label])?;
    }
    Ok(())
}

/// A number with as many digits as people read.
fn number(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn bars_and_references_are_where_their_values_are() {
        let bar = |mean| Estimate { mean, half_width: 0.0 };
        let plot = Plot {
            title: "heights".into(),
            x_label: String::new(),
            y_label: "height".into(),
            logarithmic: false,
            content: Content::Bars {
                groups: vec!["a".into(), "b".into()],
                series: vec![("one".into(), vec![bar(1.0), bar(2.0)])],
            },
            references: vec![("published".into(), 2.0)],
        };
        let picture = svg("title", "command", &[plot]).unwrap();
        let blue = picture.lines().filter(|line| line.starts_with("<rect") && line.contains("#0072B2"));
        let heights: Vec<f64> = blue
            .map(|line| {
                let (_, rest) = line.split_once("height=\"").unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            })
            .collect();
        assert!((heights[1] / heights[0] - 2.0).abs() < 0.05, "{heights:?}");
        assert!(picture.contains("published: 2"));
    }

    #[test]
    fn numbers_have_few_digits() {
        assert_eq!([0.5, 1.0, 12.34, 1234.5].map(number), ["0.5", "1", "12.3", "1234"]);
    }
}
