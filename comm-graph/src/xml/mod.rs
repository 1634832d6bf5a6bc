//! Topology files: NCCL's XML schema in and out, with errors that point at the line.
//!
//! # Contract
//!
//! * [`Document`] is the *whole* file: elements and attributes this library does not know are kept
//!   and written back; [`validate`] names them in warnings.
//! * No fixed limits on elements, attributes, text lengths or nesting; memory grows with the input
//!   and nothing recurses, so a hostile file costs time linear in its size and ends in a value or
//!   an error.
//! * [`parse`] accepts well-formed XML only; [`validate`] checks meaning and returns every problem
//!   with file, line and element path.
//! * [`Document::to_xml`] followed by [`parse`] gives back an equal tree.

mod document;
mod parse;
mod report;
mod schema;
mod validate;
mod write;

pub use document::{Attribute, Document, Element, ElementId};
pub use parse::parse;
pub use report::{Problem, Report, Severity};
pub(crate) use schema::parse_hex;
pub use schema::{BusId, PciClass, parse_class, pci_generation_rate};
pub use validate::validate;
