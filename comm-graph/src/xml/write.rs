//! Writing: [`Document`] to text.

use super::document::{Document, ElementId};

enum Step {
    Open(ElementId, usize),
    Close(ElementId, usize),
}

impl Document {
    /// The document as indented XML that [`parse`](super::parse) and NCCL read back.
    ///
    /// Detached elements are left out; comments of the original file are not kept.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut text = String::new();
        let mut steps = vec![Step::Open(self.root(), 0)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Open(id, depth) => {
                    let element = self.element(id);
                    indent(&mut text, depth);
                    text.push('<');
                    text.push_str(&element.name);
                    for attribute in &element.attributes {
                        text.push(' ');
                        text.push_str(&attribute.name);
                        text.push_str("=\"");
                        escape_into(&mut text, &attribute.value);
                        text.push('"');
                    }
                    if element.children.is_empty() {
                        text.push_str("/>\n");
                    } else {
                        text.push_str(">\n");
                        steps.push(Step::Close(id, depth));
                        let children = element.children.iter().rev();
                        steps.extend(children.map(|child| Step::Open(*child, depth + 1)));
                    }
                }
                Step::Close(id, depth) => {
                    indent(&mut text, depth);
                    text.push_str("</");
                    text.push_str(&self.element(id).name);
                    text.push_str(">\n");
                }
            }
        }
        text
    }
}

/// Two spaces per level, at most 64 levels: output stays linear in the input's size.
fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth.min(64) {
        text.push_str("  ");
    }
}

fn escape_into(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\n' => text.push_str("&#10;"),
            '\r' => text.push_str("&#13;"),
            '\t' => text.push_str("&#9;"),
            other => text.push(other),
        }
    }
}
