//! The element tree of a topology file, stored flat.
//!
//! Elements live in one vector and refer to each other by [`ElementId`]; ids are never reused and
//! a detached element stays in the vector without a parent. The flat form means that neither
//! dropping nor walking a deeply nested file uses the call stack.

use comm_core::{Error, ErrorKind};

/// The index of an element inside its [`Document`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ElementId(pub(super) usize);

/// One `name="value"` pair; the value is unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The attribute's name as written.
    pub name: String,
    /// The attribute's value with entities resolved.
    pub value: String,
}

/// One element of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The tag.
    pub name: String,
    /// The attributes in file order.
    pub attributes: Vec<Attribute>,
    /// The children in file order.
    pub children: Vec<ElementId>,
    /// The enclosing element; `None` for the root and for detached elements.
    pub parent: Option<ElementId>,
    /// The line of the start tag, counted from 1; 0 for elements made by a program.
    pub line: usize,
}

impl Element {
    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|a| a.name == name)
            .map(|a| a.value.as_str())
    }
}

/// A topology file as a tree of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    file: String,
    elements: Vec<Element>,
}

impl Document {
    /// An empty topology: `<system version="1"/>`. `file` is the name used in messages.
    #[must_use]
    pub fn new(file: impl Into<String>) -> Self {
        let mut document = Self::with_root(file.into(), "system", 0);
        document.set(ElementId(0), "version", "1");
        document
    }

    pub(super) fn with_root(file: String, name: &str, line: usize) -> Self {
        let root = Element {
            name: name.to_owned(),
            attributes: Vec::new(),
            children: Vec::new(),
            parent: None,
            line,
        };
        Self {
            file,
            elements: vec![root],
        }
    }

    /// The file's name as given to [`parse`](super::parse) or [`Document::new`].
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The root element.
    #[must_use]
    pub const fn root(&self) -> ElementId {
        ElementId(0)
    }

    /// The number of elements, detached ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether the document holds its root only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.len() == 1
    }

    /// The element with an id of this document.
    ///
    /// # Panics
    ///
    /// When the id belongs to another, longer document.
    #[must_use]
    pub fn element(&self, id: ElementId) -> &Element {
        &self.elements[id.0]
    }

    pub(super) fn element_mut(&mut self, id: ElementId) -> &mut Element {
        &mut self.elements[id.0]
    }

    /// Appends a child without attributes and returns its id.
    pub fn add(&mut self, parent: ElementId, name: &str) -> ElementId {
        self.add_at_line(parent, name, 0)
    }

    pub(super) fn add_at_line(&mut self, parent: ElementId, name: &str, line: usize) -> ElementId {
        let id = ElementId(self.elements.len());
        self.elements.push(Element {
            name: name.to_owned(),
            attributes: Vec::new(),
            children: Vec::new(),
            parent: Some(parent),
            line,
        });
        self.elements[parent.0].children.push(id);
        id
    }

    /// Sets an attribute, replacing an earlier value.
    pub fn set(&mut self, id: ElementId, name: &str, value: impl ToString) {
        let value = value.to_string();
        let attributes = &mut self.elements[id.0].attributes;
        match attributes.iter_mut().find(|a| a.name == name) {
            Some(attribute) => attribute.value = value,
            None => attributes.push(Attribute {
                name: name.to_owned(),
                value,
            }),
        }
    }

    /// Sets an attribute only where the file does not have it; detection fills gaps this way.
    pub fn set_if_absent(&mut self, id: ElementId, name: &str, value: impl ToString) {
        if self.elements[id.0].attribute(name).is_none() {
            self.set(id, name, value);
        }
    }

    /// Takes an element (and what it holds) out of the tree.
    pub fn detach(&mut self, id: ElementId) {
        if let Some(parent) = self.elements[id.0].parent.take() {
            self.elements[parent.0]
                .children
                .retain(|child| *child != id);
        }
    }

    /// The children of an element that have a given tag.
    pub fn children<'a>(
        &'a self,
        id: ElementId,
        name: &'a str,
    ) -> impl Iterator<Item = ElementId> + 'a {
        let children = self.elements[id.0].children.iter().copied();
        children.filter(move |child| self.elements[child.0].name == name)
    }

    /// Every element below the root in document order, root first.
    #[must_use]
    pub fn walk(&self) -> Vec<ElementId> {
        let mut order = Vec::with_capacity(self.elements.len());
        let mut pending = vec![self.root()];
        while let Some(id) = pending.pop() {
            order.push(id);
            pending.extend(self.elements[id.0].children.iter().rev());
        }
        order
    }

    /// Where an element is, for people: `system/cpu[numaid=0]/pci[busid=0000:07:00.0]/gpu[dev=3]`.
    ///
    /// At most the innermost 12 elements are printed, so that messages stay readable (and cheap)
    /// for absurdly deep files.
    #[must_use]
    pub fn path(&self, id: ElementId) -> String {
        let mut parts = Vec::new();
        let mut at = Some(id);
        while let Some(current) = at {
            if parts.len() == 12 {
                parts.push("...".to_owned());
                break;
            }
            let element = self.element(current);
            let key = ["numaid", "busid", "dev", "target", "name"]
                .iter()
                .filter(|key| !(element.name == "system" && **key == "name"))
                .find_map(|key| element.attribute(key).map(|value| (key, value)));
            parts.push(match key {
                Some((key, value)) => {
                    format!("{}[{key}={}]", shorten(&element.name), shorten(value))
                }
                None => shorten(&element.name).to_owned(),
            });
            at = element.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// An error about an element: the message, then file, line and element path.
    #[must_use]
    pub fn error_at(&self, id: ElementId, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidConfiguration, message.into())
            .with("file", &self.file)
            .with("line", self.element(id).line)
            .with("element", self.path(id))
    }

    /// A number-like attribute: `Ok(None)` when absent.
    ///
    /// # Errors
    ///
    /// `InvalidConfiguration` with file, line and path when the text is no such number.
    pub fn number<T: std::str::FromStr>(
        &self,
        id: ElementId,
        name: &str,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.element(id).attribute(name) else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.error_at(
                id,
                format!("{name}=\"{}\" is not a valid number", shorten(text)),
            )),
        }
    }
}

/// The first 64 characters of a text from a file, for messages.
pub(super) fn shorten(text: &str) -> &str {
    match text.char_indices().nth(64) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}
