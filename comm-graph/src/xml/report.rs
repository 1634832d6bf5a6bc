//! Findings about a file.

use std::fmt;

use comm_core::{Error, ErrorKind};

use super::document::{Document, ElementId};

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The file can be used; something in it is ignored or assumed.
    Warning,
    /// The file cannot be used.
    Error,
}

/// One finding about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the file can still be used.
    pub severity: Severity,
    /// The line of the element, from 1 (0 for elements made by a program).
    pub line: usize,
    /// The element, as [`Document::path`] prints it.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// All findings about one file, in document order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
    omitted: usize,
    errors: usize,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: Vec::new(),
            omitted: 0,
            errors: 0,
        }
    }

    /// More problems than this are counted but not kept.
    const KEPT: usize = 1000;

    /// The findings, at most 1000 of them.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many findings were counted but not kept.
    #[must_use]
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// Whether the file can be used.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.errors == 0
    }

    /// The first error as an [`Error`] with file, line and element path; the report otherwise.
    ///
    /// # Errors
    ///
    /// `InvalidConfiguration` when the file cannot be used.
    pub fn into_result(self) -> Result<Self, Error> {
        let Some(problem) = self.problems.iter().find(|p| p.severity == Severity::Error) else {
            return Ok(self);
        };
        let error = Error::new(ErrorKind::InvalidConfiguration, problem.message.clone())
            .with("file", &self.file)
            .with("line", problem.line)
            .with("element", &problem.path);
        Err(if self.errors > 1 {
            error.with("further_errors", self.errors - 1)
        } else {
            error
        })
    }

    pub(super) fn add(
        &mut self,
        document: &Document,
        id: ElementId,
        severity: Severity,
        message: String,
    ) {
        self.errors += usize::from(severity == Severity::Error);
        // The first error must survive the cap: it becomes the Error of `into_result`.
        if self.problems.len() < Self::KEPT || (severity == Severity::Error && self.errors == 1) {
            let line = document.element(id).line;
            self.problems.push(Problem {
                severity,
                line,
                path: document.path(id),
                message,
            });
        } else {
            self.omitted += 1;
        }
    }
}

impl fmt::Display for Report {
    /// One line per problem: `file:line: error: message (element path)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            let word = match problem.severity {
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            let Problem {
                line,
                message,
                path,
                ..
            } = problem;
            writeln!(f, "{}:{line}: {word}: {message} ({path})", self.file)?;
        }
        if self.omitted > 0 {
            writeln!(f, "{}: {} further problems", self.file, self.omitted)?;
        }
        Ok(())
    }
}
