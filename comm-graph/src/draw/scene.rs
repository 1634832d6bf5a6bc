//! Shapes on a sheet, and the sheet as SVG.
//!
//! Layout makes shapes; tests look at the shapes; only [`Scene::to_svg`] knows SVG.

use std::fmt::Write as _;

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) w: f32,
    pub(super) h: f32,
}

impl Rect {
    pub(super) fn middle(&self) -> f32 {
        self.x + self.w / 2.0
    }

    pub(super) fn right(&self) -> f32 {
        self.x + self.w
    }

    pub(super) fn bottom(&self) -> f32 {
        self.y + self.h
    }

    #[cfg(test)]
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.x < other.right()
            && other.x < self.right()
            && self.y < other.bottom()
            && other.y < self.bottom()
    }

    #[cfg(test)]
    pub(super) fn contains(&self, other: &Self) -> bool {
        let slack = 0.01;
        self.x <= other.x + slack
            && self.y <= other.y + slack
            && self.right() + slack >= other.right()
            && self.bottom() + slack >= other.bottom()
    }
}

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
}

/// One shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Box {
        rect: Rect,
        fill: &'static str,
        stroke: &'static str,
        /// The node that the box stands for.
        node: Option<usize>,
        /// Shown by viewers that the pointer rests on the box in.
        title: String,
    },
    Text {
        x: f32,
        /// The baseline.
        y: f32,
        size: f32,
        bold: bool,
        anchor: Anchor,
        color: &'static str,
        text: String,
        /// The node that the text stands for.
        node: Option<usize>,
    },
    /// An open path: a start and then lines or curves, in SVG's path language.
    Path {
        path: String,
        width: f32,
        color: &'static str,
        dashed: bool,
        arrow: Option<usize>,
    },
    Dot {
        x: f32,
        y: f32,
        radius: f32,
        color: &'static str,
    },
}

/// A sheet.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) width: f32,
    pub(super) height: f32,
    pub(super) shapes: Vec<Shape>,
}

/// Colours of rings and trees, to be told apart also by people who see red and green alike.
pub(super) const COLORS: [&str; 10] = [
    "#1f77b4", "#d95f02", "#1b9e77", "#c51b7d", "#7570b3", "#8c6d31", "#00798c", "#b2182b",
    "#4d4d4d", "#66a61e",
];

impl Scene {
    pub(super) fn rect(&mut self, rect: Rect, fill: &'static str, stroke: &'static str) {
        self.shapes.push(Shape::Box {
            rect,
            fill,
            stroke,
            node: None,
            title: String::new(),
        });
    }

    pub(super) fn label(&mut self, x: f32, y: f32, size: f32, anchor: Anchor, text: String) {
        self.shapes.push(Shape::Text {
            x,
            y,
            size,
            bold: false,
            anchor,
            color: "#222222",
            text,
            node: None,
        });
    }

    pub(super) fn line(
        &mut self,
        from: (f32, f32),
        to: (f32, f32),
        width: f32,
        color: &'static str,
    ) {
        let path = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
        self.path(path, width, color);
    }

    pub(super) fn path(&mut self, path: String, width: f32, color: &'static str) {
        self.shapes.push(Shape::Path {
            path,
            width,
            color,
            dashed: false,
            arrow: None,
        });
    }

    /// The sheet as a document of its own.
    pub(super) fn to_svg(&self) -> String {
        let (w, h) = (self.width.ceil(), self.height.ceil());
        let mut svg = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
             width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\">\n<defs>\n"
        );
        for (index, color) in COLORS.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<marker id=\"arrow-{index}\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" \
                 markerWidth=\"6\" markerHeight=\"6\" markerUnits=\"userSpaceOnUse\" \
                 orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" fill=\"{color}\"/></marker>"
            );
        }
        let _ = writeln!(
            svg,
            "</defs>\n<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>"
        );
        for shape in &self.shapes {
            write_shape(&mut svg, shape);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn write_shape(svg: &mut String, shape: &Shape) {
    let id = |node: &Option<usize>| match node {
        Some(node) => format!(" id=\"node-{node}\""),
        None => String::new(),
    };
    // Writing to a string cannot fail.
    let _ = match shape {
        Shape::Box {
            rect: Rect { x, y, w, h },
            fill,
            stroke,
            node,
            title,
        } => {
            let id = id(node);
            let end = if title.is_empty() {
                "/>".to_owned()
            } else {
                format!("><title>{}</title></rect>", escape(title))
            };
            writeln!(
                svg,
                "<rect{id} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"4\" \
                 fill=\"{fill}\" stroke=\"{stroke}\"{end}"
            )
        }
        Shape::Text {
            x,
            y,
            size,
            bold,
            anchor,
            color,
            text,
            node,
        } => {
            let weight = if *bold { " font-weight=\"bold\"" } else { "" };
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
            };
            writeln!(
                svg,
                "<text{} x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{color}\"{weight}\
                 {anchor}>{}</text>",
                id(node),
                escape(text)
            )
        }
        Shape::Path {
            path,
            width,
            color,
            dashed,
            arrow,
        } => {
            let dash = if *dashed {
                " stroke-dasharray=\"5 3\""
            } else {
                ""
            };
            let arrow = match arrow {
                Some(color) => format!(" marker-end=\"url(#arrow-{color})\""),
                None => String::new(),
            };
            writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width:.1}\"\
                 {dash}{arrow}/>"
            )
        }
        Shape::Dot {
            x,
            y,
            radius,
            color,
        } => writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{color}\"/>"
        ),
    };
}

/// Text for XML; characters that XML forbids are dropped.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            other if other.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}

/// A text's room: what it covers at most.
#[cfg(test)]
pub(super) fn text_rect(x: f32, y: f32, size: f32, anchor: Anchor, text: &str) -> Rect {
    let w = super::text::width(text, size);
    let x = match anchor {
        Anchor::Start => x,
        Anchor::Middle => x - w / 2.0,
    };
    Rect {
        x,
        y: y - size * 0.8,
        w,
        h: size,
    }
}
