//! Reading: bytes to [`Document`].

use comm_core::{Error, ErrorKind};
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::document::{Attribute, Document, ElementId, shorten};

/// Reads a topology file; `file` is the name used in messages.
///
/// Text between elements, comments, declarations and processing instructions are skipped. The
/// root must be `<system>`.
///
/// # Errors
///
/// `InvalidConfiguration` when the bytes are not UTF-8 or not well-formed XML, when the root is
/// another element, or when elements are left open; the error has file and line.
pub fn parse(file: impl Into<String>, bytes: &[u8]) -> Result<Document, Error> {
    let file = file.into();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = &bytes[..error.valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            return Err(not_xml(&file, line, "the file is not UTF-8 text"));
        }
    };
    let mut input = Input {
        reader: Reader::from_str(text),
        text,
        counted_to: 0,
        line: 1,
    };
    let mut document: Option<Document> = None;
    let mut open: Vec<ElementId> = Vec::new();
    loop {
        let event = match input.reader.read_event() {
            Ok(event) => event,
            Err(error) => {
                let line = input.line_at(input.reader.error_position());
                let text = format!("not well-formed XML: {}", shorten(&error.to_string()));
                return Err(not_xml(&file, line, text));
            }
        };
        match event {
            Event::Start(ref start) | Event::Empty(ref start) => {
                let end = usize::try_from(input.reader.buffer_position()).unwrap_or(text.len());
                let tag_bytes = start.len() as u64;
                let line = input.line_at((end as u64).saturating_sub(tag_bytes));
                let name = start.name().0;
                let id = match (&mut document, open.last()) {
                    (Some(document), Some(parent)) => document.add_at_line(*parent, name, line),
                    (Some(_), None) => {
                        let text = format!("a second root element <{}>", shorten(name));
                        return Err(not_xml(&file, line, text));
                    }
                    (None, _) if name == "system" => {
                        let new = Document::with_root(file.clone(), name, line);
                        document.insert(new).root()
                    }
                    (None, _) => {
                        let text = format!(
                            "the root element is <{}>; a topology file starts with <system>",
                            shorten(name)
                        );
                        return Err(not_xml(&file, line, text));
                    }
                };
                if let Some(document) = &mut document {
                    read_attributes(document, id, start)?;
                }
                if matches!(event, Event::Start(_)) {
                    open.push(id);
                }
            }
            Event::End(_) => {
                open.pop();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match (document, open.last()) {
        (Some(document), None) => Ok(document),
        (Some(document), Some(id)) => Err(document.error_at(*id, "the element is never closed")),
        (None, _) => Err(not_xml(
            &file,
            input.line,
            "no XML element found; is this a topology file?",
        )),
    }
}

fn read_attributes(
    document: &mut Document,
    id: ElementId,
    start: &BytesStart<'_>,
) -> Result<(), Error> {
    // The reader's own duplicate check is quadratic in the number of attributes.
    let mut seen = std::collections::HashSet::new();
    let mut attributes = start.attributes();
    for attribute in attributes.with_checks(false) {
        let attribute = attribute
            .map_err(|error| document.error_at(id, format!("bad attribute syntax: {error}")))?;
        let name = attribute.key.0;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| {
                let text = format!("attribute {} has a bad value: {error}", shorten(name));
                document.error_at(id, text)
            })?;
        if !seen.insert(name.to_owned()) {
            let text = format!("attribute {} is given twice", shorten(name));
            return Err(document.error_at(id, text));
        }
        let attribute = Attribute {
            name: name.to_owned(),
            value: value.into_owned(),
        };
        document.element_mut(id).attributes.push(attribute);
    }
    Ok(())
}

/// The reader and a line counter that only ever moves forward.
struct Input<'a> {
    reader: Reader<&'a [u8]>,
    text: &'a str,
    counted_to: usize,
    line: usize,
}

impl Input<'_> {
    fn line_at(&mut self, offset: u64) -> usize {
        let offset = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.text.len());
        if offset > self.counted_to {
            let passed = &self.text.as_bytes()[self.counted_to..offset];
            self.line += passed.iter().filter(|byte| **byte == b'\n').count();
            self.counted_to = offset;
        }
        self.line
    }
}

fn not_xml(file: &str, line: usize, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfiguration, message.into())
        .with("file", file)
        .with("line", line)
}
