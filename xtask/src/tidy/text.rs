//! Rules about the text itself: length, trailing blanks, unfinished and switched-off code.

use super::Finding;
use super::files::File;
use super::source::{Source, word_columns};

/// A Rust file that grows beyond this has more than one subject.
const MAX_LINES: usize = 600;

/// What code must not contain, with the reason.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("todo", "!", "unfinished code is not committed"),
    (
        "unimplemented",
        "!",
        "unfinished code is not committed; an error value says what is missing",
    ),
    ("dbg", "!", "left over from debugging"),
];

/// Checks any text file.
pub(crate) fn check_spacing(file: &File) -> Vec<Finding> {
    let finding = |line: Option<usize>, message: String| Finding {
        place: file.path.clone(),
        line,
        message,
    };
    let mut findings: Vec<Finding> = file
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.ends_with(char::is_whitespace))
        .map(|(index, _)| finding(Some(index + 1), "trailing whitespace".into()))
        .collect();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(finding(None, "no line break at the end".into()));
    }
    let lines = file.text.lines().count();
    if file.path.ends_with(".rs") && lines > MAX_LINES {
        findings.push(finding(
            None,
            format!("{lines} lines; split it by subject below {MAX_LINES}"),
        ));
    }
    findings
}

/// Checks the code of a Rust file.
pub(crate) fn check_code(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        for (word, behind, reason) in FORBIDDEN {
            for column in word_columns(&line.code, word) {
                if line.code[column + word.len()..].starts_with(behind) {
                    findings.push(Finding::at(
                        source,
                        index,
                        format!("`{word}{behind}`: {reason}"),
                    ));
                }
            }
        }
        if line.code.contains("#[ignore") {
            let message = "`#[ignore]`: a test that cannot run here skips itself and prints why";
            findings.push(Finding::at(source, index, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spacing(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        check_spacing(&file)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn code(text: &str) -> usize {
        check_code(&Source::parse("c/src/a.rs", text)).len()
    }

    #[test]
    fn trailing_whitespace_is_reported_with_its_line() {
        assert_eq!(
            spacing("a.md", "one\ntwo \n"),
            ["a.md:2: trailing whitespace"]
        );
        assert_eq!(
            spacing("a.rs", "one\r\n").len(),
            0,
            "git decides about line ends"
        );
        assert_eq!(spacing("a.rs", "one"), ["a.rs: no line break at the end"]);
    }

    #[test]
    fn only_rust_files_have_a_length_limit() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(spacing("a.rs", &long).len(), 1);
        assert_eq!(spacing("a.rs", &long[2..]).len(), 0);
        assert_eq!(spacing("a.md", &long).len(), 0);
    }

    #[test]
    fn unfinished_and_ignored_code_is_found_in_code_only() {
        assert_eq!(code("fn a() { todo!() }\n"), 1);
        assert_eq!(code("fn a() { std::unimplemented!(\"b\") }\n"), 1);
        assert_eq!(code("#[test]\n#[ignore = \"slow\"]\nfn a() {}\n"), 1);
        assert_eq!(
            code("// todo!()\nlet a = \"unimplemented!()\";\nlet not_todo = !b;\n"),
            0
        );
    }
}
