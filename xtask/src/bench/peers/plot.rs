//! SVG diagrams: bars on a logarithmic scale, and lines.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 22.0;
const GAP: f64 = 12.0;
const TOP: f64 = 44.0;
/// One color for Homard, one for the others.
const OURS: &str = "#d1495b";
const OTHERS: &str = "#8d99ae";
const COLOURS: [&str; 5] = ["#8d99ae", "#577590", "#43aa8b", "#f9a03f", "#d1495b"];

/// Draws one bar per name on a logarithmic scale, because the values differ by orders of magnitude.
pub(in crate::bench) fn bars(title: &str, unit: &str, values: &[(String, f64)]) -> String {
    let height = TOP + values.len() as f64 * (BAR + GAP) + GAP;
    let max_value = values.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let min_value = values.iter().map(|(_, value)| *value).filter(|value| *value > 0.0).fold(max_value, f64::min);
    // The shortest bar is still visible.
    let scale = |value: f64| {
        let available = WIDTH - LEFT - RIGHT;
        let share = (value / min_value * 2.0).max(1.0).log10() / (max_value / min_value * 2.0).log10();
        (available * share).max(1.0)
    };
    let mut svg = begin(height, &format!("{title}, {unit} (logarithmic)"));
    for (index, (name, value)) in values.iter().enumerate() {
        let y = TOP + index as f64 * (BAR + GAP);
        let (length, text, fill) = (scale(*value), y + BAR * 0.72, if name == "Homard" { OURS } else { OTHERS });
        let label = escape(&format!("{} {unit}", super::page::number(*value)));
        let (name, from) = (escape(name), LEFT - 10.0);
        // Writing to a `String` cannot fail.
        writeln!(svg, r#"<text x="{from}" y="{text:.1}" text-anchor="end">{name}</text>"#).ok();
        writeln!(svg, r#"<rect x="{LEFT}" y="{y:.1}" width="{length:.1}" height="{BAR}" rx="2" fill="{fill}"/>"#).ok();
        writeln!(svg, r#"<text x="{:.1}" y="{text:.1}">{label}</text>"#, LEFT + length + 8.0).ok();
    }
    svg + "</svg>\n"
}

/// A line chart.
#[derive(Debug)]
pub(in crate::bench) struct LineChart<'a> {
    pub(in crate::bench) title: &'a str,
    /// Labels of the horizontal and the vertical axis.
    pub(in crate::bench) axes: [&'a str; 2],
    /// True if both scales are logarithmic; otherwise both begin at zero.
    pub(in crate::bench) is_logarithmic: bool,
    pub(in crate::bench) lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl LineChart<'_> {
    pub(in crate::bench) fn to_svg(&self) -> String {
        const HEIGHT: f64 = 360.0;
        let (bottom, left, right) = (HEIGHT - 46.0, 70.0, WIDTH - 170.0);
        let points = || self.lines.iter().flat_map(|(_, points)| points.iter().copied());
        let [x, y] = [points().map(|(x, _)| x).collect::<Vec<_>>(), points().map(|(_, y)| y).collect()]
            .map(|values| AxisScale::of(&values, self.is_logarithmic));
        let at = |(px, py): (f64, f64)| (left + x.share(px) * (right - left), bottom - y.share(py) * (bottom - TOP));
        let mut svg = begin(HEIGHT, self.title);
        for tick in x.ticks() {
            let (px, text) = (at((tick, y.from)).0, super::page::number(tick));
            writeln!(svg, r##"<path d="M{px:.1} {TOP}V{bottom}" stroke="#e3e3e3"/>"##).ok();
            writeln!(svg, r#"<text x="{px:.1}" y="{}" text-anchor="middle">{text}</text>"#, bottom + 16.0).ok();
        }
        for tick in y.ticks() {
            let (py, text) = (at((x.from, tick)).1, super::page::number(tick));
            writeln!(svg, r##"<path d="M{left} {py:.1}H{right}" stroke="#e3e3e3"/>"##).ok();
            writeln!(svg, r#"<text x="{}" y="{:.1}" text-anchor="end">{text}</text>"#, left - 6.0, py + 4.0).ok();
        }
        let [x_label, y_label] = self.axes.map(escape);
        writeln!(svg, r#"<text x="{}" y="{}" text-anchor="end">{x_label}</text>"#, right, HEIGHT - 10.0).ok();
        writeln!(svg, r#"<text x="{left}" y="{}">{y_label}</text>"#, TOP - 6.0).ok();
        for (index, (name, points)) in self.lines.iter().enumerate() {
            let colour = if name == "Homard" { OURS } else { COLOURS[index % (COLOURS.len() - 1)] };
            let mut path = String::new();
            for (px, py) in points.iter().map(|point| at(*point)) {
                write!(path, "{}{px:.1} {py:.1}", if path.is_empty() { 'M' } else { 'L' }).ok();
            }
            writeln!(svg, r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#).ok();
            let y = points.last().map_or(TOP, |point| at(*point).1) + 4.0;
            writeln!(svg, r#"<text x="{}" y="{y:.1}" fill="{colour}">{}</text>"#, right + 8.0, escape(name)).ok();
        }
        svg + "</svg>\n"
    }
}

/// A scale from one value to another.
struct AxisScale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl AxisScale {
    fn of(values: &[f64], is_logarithmic: bool) -> Self {
        let max_value = values.iter().copied().fold(1.0, f64::max);
        let min_value = values.iter().copied().filter(|value| *value > 0.0).fold(max_value, f64::min);
        match is_logarithmic {
            true => Self {
                from: 10f64.powf(min_value.log10().floor()),
                to: 10f64.powf(max_value.log10().ceil()),
                is_logarithmic,
            },
            false => Self { from: 0.0, to: max_value * 1.1, is_logarithmic },
        }
    }

    /// Returns the position of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the tick values: powers of ten on a logarithmic axis, otherwise about five round numbers.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (from, to) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            return (from..=to).map(|power| 10f64.powi(power)).collect();
        }
        // The step is 1, 2 or 5 times a power of ten.
        let rough = self.to / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..).map(|count| f64::from(count) * step).take_while(|tick| *tick <= self.to).collect()
    }
}

fn begin(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\" font-weight=\"600\">{title}</text>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
