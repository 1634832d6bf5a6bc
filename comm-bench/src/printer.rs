//! Prints tables, writes JSON lines and shows progress, as rows come.
//!
//! # Contract
//!
//! * The tables go to standard output, each line as soon as its size is measured. They are plain
//!   text whether or not anybody watches.
//! * The JSON file holds one object per line ([`Row`]) and is appended to row by row, so that an
//!   interrupted benchmark leaves what it has measured.
//! * Progress goes to standard error, only if asked for (on a terminal), in one line that is
//!   shorter than a line of the table and ends with a carriage return: whatever is printed next
//!   overwrites it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use comm_api::{Error, PeerInfo, Result};

use crate::edges::EdgeUse;
use crate::row::Row;
use crate::run::Report;
use crate::size::Size;
use crate::suite::{Places, Series, Suite};
use crate::table;

/// Erases from the cursor to the end of the line.
const ERASE: &str = "\x1b[K";

/// Reports to the user.
#[derive(Debug)]
pub struct Printer<O = io::Stdout, E = io::Stderr> {
    tables: O,
    /// `None` when nobody watches.
    progress: Option<E>,
    json: Option<File>,
    places: Places,
    is_first: bool,
}

impl Printer {
    /// Prints to standard output, and progress to standard error if `progress` is set; appends rows
    /// to the file `json`.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn new(suite: &Suite, json: Option<&Path>, progress: bool) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|error| {
                Error::system("opening the JSON file", error).with("path", path.display())
            })
        };
        Ok(Self {
            tables: io::stdout(),
            progress: progress.then(io::stderr),
            json: json.map(open).transpose()?,
            places: suite.places,
            is_first: true,
        })
    }

    /// Goes on where another printer stopped: without the lines above the first table.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.is_first = false;
        self
    }
}

impl<O: Write, E: Write> Printer<O, E> {
    fn print(&mut self, text: &str) -> Result<()> {
        let printed = self
            .tables
            .write_all(text.as_bytes())
            .and_then(|()| self.tables.flush());
        printed.map_err(|error| Error::system("printing the table", error))
    }

    /// Progress is a courtesy: nothing depends on whether it can be written.
    fn show(&mut self, text: &str) {
        if let Some(stream) = &mut self.progress {
            let _ = stream.write_all(format!("{ERASE}{text}\r").as_bytes());
            let _ = stream.flush();
        }
    }
}

impl<O: Write, E: Write> Report for Printer<O, E> {
    fn begins(&mut self, series: &Series, peers: &[PeerInfo]) -> Result<()> {
        if std::mem::take(&mut self.is_first) {
            self.print(&table::preamble(peers))?;
        }
        let places: &[bool] = match self.places {
            Places::Both if series.operation.is_collective() => &[false, true],
            _ => &[false],
        };
        self.print(&table::heading(series, peers.len(), places))
    }

    fn measuring(&mut self, series: &Series, size: Size, done: usize, total: usize) -> Result<()> {
        self.show(&format!(
            "{} {size} ({} of {total})",
            series.operation,
            done + 1
        ));
        Ok(())
    }

    fn measured(&mut self, rows: &[Row]) -> Result<()> {
        self.show("");
        self.print(&table::line(rows))?;
        let Some(json) = &mut self.json else {
            return Ok(());
        };
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row)
                .map_err(io::Error::from)
                .map_err(unwritable)?;
            lines.push(b'\n');
        }
        json.write_all(&lines).map_err(unwritable)
    }

    fn ends(&mut self, edges: &[EdgeUse], wrong: Option<u64>) -> Result<()> {
        self.print(&table::footing(edges, wrong))
    }
}

fn unwritable(error: io::Error) -> Error {
    Error::system("writing to the JSON file", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::row::tests::row;

    fn printer(progress: bool) -> Printer<Vec<u8>, Vec<u8>> {
        Printer {
            tables: Vec::new(),
            progress: progress.then(Vec::new),
            json: None,
            places: Places::Both,
            is_first: true,
        }
    }

    fn report(printer: &mut Printer<Vec<u8>, Vec<u8>>) -> String {
        let series = Suite::default().series()[0];
        assert_eq!(series.operation, Operation::AllReduce);
        printer.begins(&series, &[]).unwrap();
        printer.measuring(&series, Size(1 << 20), 4, 24).unwrap();
        printer.measured(&[row(false), row(true)]).unwrap();
        printer.ends(&[], Some(0)).unwrap();
        String::from_utf8(printer.tables.clone()).unwrap()
    }

    #[test]
    fn tables_are_plain_text_also_when_somebody_watches() {
        let text = report(&mut printer(true));
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        assert_eq!(text, report(&mut printer(false)));
    }

    #[test]
    fn progress_is_overwritten_by_the_table() {
        let mut printer = printer(true);
        let text = report(&mut printer);
        let shown = String::from_utf8(printer.progress.unwrap()).unwrap();
        assert_eq!(shown, "\x1b[Kall_reduce 1 MiB (5 of 24)\r\x1b[K\r");
        let line = text.lines().find(|line| !line.starts_with('#')).unwrap();
        assert!(shown.len() < line.len());
    }

    #[test]
    fn the_head_is_printed_once() {
        let mut printer = printer(false);
        report(&mut printer);
        let text = report(&mut printer);
        assert_eq!(text.matches("# comm ").count(), 1);
        assert_eq!(text.matches("# all_reduce").count(), 2);
    }

    #[test]
    fn rows_are_appended_as_json_lines() {
        let path = std::env::temp_dir().join(format!("comm-bench-rows-{}", std::process::id()));
        let suite = Suite::default();
        for _ in 0..2 {
            let mut printer = Printer::new(&suite, Some(&path), false).unwrap();
            let file = printer.json.take();
            let mut quiet = Printer {
                json: file,
                ..super::tests::printer(false)
            };
            quiet.measured(&[row(false), row(true)]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let rows: Vec<Row> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows, [row(false), row(true), row(false), row(true)]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error =
            Printer::new(&Suite::default(), Some(Path::new("/nowhere/f")), false).unwrap_err();
        assert!(error.to_string().contains("/nowhere/f"), "{error}");
    }
}
