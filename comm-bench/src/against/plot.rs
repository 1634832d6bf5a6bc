//! A comparison as SVG: for each operation a panel with logarithmic axes, one line per system.

use std::fmt::Write as _;

use super::table::systems;
use super::{Comparison, Line, OURS};

const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 300.0;
const COLUMNS: usize = 2;
/// Left of, above, right of and below the axes.
const MARGINS: [f64; 4] = [64.0, 34.0, 16.0, 40.0];
/// To be told apart also by people who see red and green alike; the first one is ours.
const COLORS: [&str; 6] = [
    "#1f77b4", "#d95f02", "#1b9e77", "#c51b7d", "#7570b3", "#4d4d4d",
];

/// Draws every operation, medium and number of ranks.
#[must_use]
pub fn plot(comparison: &Comparison) -> String {
    let lines = comparison.lines();
    let same = |a: &Line, b: &Line| (a.op, a.medium, a.ranks) == (b.op, b.medium, b.ranks);
    let panels: Vec<&[Line]> = lines.chunk_by(same).collect();
    let width = PANEL_WIDTH * COLUMNS as f64;
    let height = PANEL_HEIGHT * panels.len().div_ceil(COLUMNS) as f64;
    // One colour for a system in all panels.
    let mut names = vec![OURS];
    names.extend(systems(&lines));

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (number, panel) in panels.into_iter().enumerate() {
        let x = (number % COLUMNS) as f64 * PANEL_WIDTH;
        let y = (number / COLUMNS) as f64 * PANEL_HEIGHT;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(&mut svg, panel, &names);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
    base: f64,
    /// Where `from` and `to` are, in pixels.
    pixels: (f64, f64),
}

impl Axis {
    /// From the power of `base` below the least value to the one above the largest.
    fn new(values: impl Iterator<Item = f64>, base: f64, pixels: (f64, f64)) -> Self {
        let exponents: Vec<f64> = values.map(|value| value.log(base)).collect();
        let least = exponents.iter().copied().fold(f64::INFINITY, f64::min);
        let most = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Powers of the base come out of the logarithm with a rounding error.
        let from = (least + 1e-9).floor();
        Self {
            from,
            to: (most - 1e-9).ceil().max(from + 1.0),
            base,
            pixels,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.log(self.base) - self.from) / (self.to - self.from);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// The powers of the base on the axis.
    fn marks(&self) -> impl Iterator<Item = f64> {
        let (from, to) = (self.from as i32, self.to as i32);
        (from..=to).map(|exponent| self.base.powi(exponent))
    }
}

fn draw_panel(svg: &mut String, lines: &[Line], names: &[&str]) {
    let Some(first) = lines.first() else { return };
    let [left, top, right, bottom] = MARGINS;
    let (right, bottom) = (PANEL_WIDTH - right, PANEL_HEIGHT - bottom);
    let times = lines
        .iter()
        .flat_map(|line| line.us.into_iter().chain(line.peers.iter().map(|p| p.us)));
    let sizes = lines.iter().map(|line| line.bytes.max(1) as f64);
    let x_axis = Axis::new(sizes, 8.0, (left, right));
    let y_axis = Axis::new(times, 10.0, (bottom, top));

    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"18\" font-size=\"13\" font-weight=\"bold\">{}, {} ranks, {}</text>",
        first.op, first.ranks, first.medium
    );
    for mark in x_axis.marks() {
        let x = x_axis.place(mark);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#e0e0e0\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            short_size(mark)
        );
    }
    for mark in y_axis.marks() {
        let y = y_axis.place(mark);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e0e0e0\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark} us</text>",
            left - 5.0,
            y + 4.0
        );
    }
    let mut drawn = 0.0;
    for (index, name) in names.iter().enumerate() {
        let points: Vec<(f64, f64)> = lines
            .iter()
            .filter_map(|line| {
                let us = if *name == OURS {
                    line.us?
                } else {
                    line.peers.iter().find(|peer| peer.system == *name)?.us
                };
                Some((x_axis.place(line.bytes.max(1) as f64), y_axis.place(us)))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        let color = COLORS[index % COLORS.len()];
        draw_line(svg, &points, color);
        let y = top + 14.0 + drawn * 15.0;
        drawn += 1.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{color}\" font-weight=\"bold\">{}</text>",
            left + 8.0,
            escaped(name)
        );
    }
}

fn draw_line(svg: &mut String, points: &[(f64, f64)], color: &str) {
    let path: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"/>",
        path.join("L")
    );
    for (x, y) in points {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{color}\"/>"
        );
    }
}

fn short_size(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= f64::from(1 << 30) => format!("{}G", bytes / f64::from(1 << 30)),
        bytes if bytes >= f64::from(1 << 20) => format!("{}M", bytes / f64::from(1 << 20)),
        bytes if bytes >= 1024.0 => format!("{}K", bytes / 1024.0),
        bytes => format!("{bytes}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::comparison::tests::{comparison, sample};
    use super::*;
    use crate::operation::Operation;

    #[test]
    fn there_is_a_panel_for_each_operation_and_a_line_for_each_system() {
        let mut comparison = comparison();
        comparison.add("a<b", 0, &[sample(Operation::Pingpong, 8, 1.0)]);
        let svg = plot(&comparison);
        assert_eq!(svg.matches("<g ").count(), 2);
        for text in [
            "all_reduce, 2 ranks, shm",
            "pingpong, 2 ranks, shm",
            "a&lt;b",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        // Two points of ours, one of each peer.
        assert_eq!(svg.matches("<circle").count(), 4);
    }

    #[test]
    fn equal_ratios_are_equal_distances() {
        let axis = Axis::new([1.0, 1000.0].into_iter(), 10.0, (0.0, 300.0));
        assert_eq!(axis.marks().collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        for (value, place) in [(1.0, 0.0), (10.0, 100.0), (1000.0, 300.0)] {
            assert!((axis.place(value) - place).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn a_single_value_still_has_an_axis() {
        let axis = Axis::new([8.0].into_iter(), 8.0, (0.0, 10.0));
        assert_eq!((axis.from, axis.to), (1.0, 2.0));
    }
}
