//! A Rust file in the form in which the checks read it: line by line, code apart from comments,
//! test code marked.
//!
//! Test code is what lies in a `tests`, `benches` or `examples` directory, in a file called
//! `tests.rs`, in an item behind `#[cfg(test)]` (or `all(test, ...)`), or in a file that such a
//! `mod` item names.

use std::collections::BTreeSet;

use super::files::File;
use super::lexer;

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the workspace root.
    pub(crate) path: String,
    /// All lines, in order.
    pub(crate) lines: Vec<Line>,
}

/// One line of a Rust file.
#[derive(Debug)]
pub(crate) struct Line {
    /// The line without comments and contents of literals.
    pub(crate) code: String,
    /// The comments on the line.
    pub(crate) comment: String,
    /// Whether the line is compiled for tests only.
    pub(crate) test: bool,
}

impl Line {
    /// Whether there is nothing but a comment on the line.
    pub(crate) fn is_comment(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.trim().is_empty()
    }
}

impl Source {
    /// Parses the Rust files among `files`.
    pub(crate) fn from_files(files: &[File]) -> Vec<Self> {
        let rust = || files.iter().filter(|file| file.path.ends_with(".rs"));
        let test_files: BTreeSet<String> = rust()
            .flat_map(|file| test_modules(&file.path, &file.text))
            .collect();
        rust()
            .map(|file| {
                let mut source = Self::parse(&file.path, &file.text);
                if test_files.contains(&file.path) {
                    source.lines.iter_mut().for_each(|line| line.test = true);
                }
                source
            })
            .collect()
    }

    /// Parses one file.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let split = lexer::split(text);
        let whole_file = is_test_path(path);
        let mut lines: Vec<Line> = split
            .code
            .lines()
            .zip(split.comments.lines())
            .map(|(code, comment)| Line {
                code: code.to_owned(),
                comment: comment.to_owned(),
                test: whole_file,
            })
            .collect();
        for item in test_items(&split.code) {
            for line in &mut lines[item.first_line..=item.last_line] {
                line.test = true;
            }
        }
        Self {
            path: path.to_owned(),
            lines,
        }
    }

    /// Where `word` stands in the code as a word of its own: line indices and the code behind it,
    /// up to the end of the file.
    pub(crate) fn find_word(&self, word: &str) -> Vec<(usize, String)> {
        let mut hits = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            for column in word_columns(&line.code, word) {
                let mut behind = line.code[column + word.len()..].to_owned();
                for later in &self.lines[index + 1..] {
                    if !behind.trim().is_empty() {
                        break;
                    }
                    behind.push('\n');
                    behind.push_str(&later.code);
                }
                hits.push((index, behind));
            }
        }
        hits
    }
}

/// Byte columns at which `word` stands alone in `code`.
pub(crate) fn word_columns(code: &str, word: &str) -> Vec<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(column, _)| column)
        .filter(|&column| {
            !code[..column].ends_with(part_of_word)
                && !code[column + word.len()..].starts_with(part_of_word)
        })
        .collect()
}

fn is_test_path(path: &str) -> bool {
    let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
    name == "tests.rs"
        || directories
            .split('/')
            .any(|part| matches!(part, "tests" | "benches" | "examples"))
}

/// An item behind `#[cfg(test)]`.
struct TestItem {
    first_line: usize,
    last_line: usize,
    /// For `mod name;`: the name.
    outer_module: Option<String>,
}

/// Finds items that are compiled for tests only in code without comments and literals.
fn test_items(code: &str) -> Vec<TestItem> {
    let mut items = Vec::new();
    for opening in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(opening) {
            // The item ends at its first `;` outside all brackets or with its last `}`.
            let mut depth = 0_usize;
            let mut end = code.len() - 1;
            for (offset, character) in code[start..].char_indices() {
                match character {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 && matches!(character, ';' | '}') {
                    end = start + offset;
                    break;
                }
            }
            let line_of = |position: usize| code[..position].matches('\n').count();
            let mut words = code[start..end].rsplit(char::is_whitespace);
            let (last, before) = (words.next(), words.next());
            let outer_module = (before == Some("mod") && code[end..].starts_with(';'))
                .then(|| last.unwrap_or_default().to_owned());
            items.push(TestItem {
                first_line: line_of(start),
                last_line: line_of(end),
                outer_module,
            });
        }
    }
    items
}

/// Paths at which the test-only `mod name;` items of a file may lie.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let (directory, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let home = if matches!(name, "lib" | "main" | "mod") {
        directory
    } else {
        stem
    };
    test_items(&lexer::split(text).code)
        .into_iter()
        .filter_map(|item| item.outer_module)
        .flat_map(|module| {
            [
                format!("{home}/{module}.rs"),
                format!("{home}/{module}/mod.rs"),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_lines(path: &str, text: &str) -> Vec<bool> {
        Source::parse(path, text)
            .lines
            .iter()
            .map(|line| line.test)
            .collect()
    }

    #[test]
    fn an_item_behind_cfg_test_is_test_code_and_the_rest_is_not() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { let c = '}'; }\n}\nfn d() {}\n";
        assert_eq!(
            test_lines("c/src/a.rs", text),
            [false, true, true, true, true, false]
        );
        let text = "#[cfg(all(test, comm_loom))]\nuse a::{b, c};\nfn d() {}\n";
        assert_eq!(test_lines("c/src/a.rs", text), [true, true, false]);
    }

    #[test]
    fn test_directories_and_files_are_test_code() {
        assert_eq!(test_lines("c/tests/a.rs", "fn a() {}\n"), [true]);
        assert_eq!(test_lines("c/src/fifo/tests.rs", "fn a() {}\n"), [true]);
        assert_eq!(test_lines("c/src/testing.rs", "fn a() {}\n"), [false]);
    }

    #[test]
    fn a_file_named_by_a_test_only_module_is_test_code() {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let sources = Source::from_files(&[
            file(
                "c/src/fifo.rs",
                "#[cfg(all(test, comm_loom))]\nmod models;\nmod ring;\n",
            ),
            file("c/src/fifo/models.rs", "fn a() {}\n"),
            file("c/src/fifo/ring.rs", "fn a() {}\n"),
        ]);
        let whole_test = |index: usize| sources[index].lines.iter().all(|line| line.test);
        assert!(whole_test(1));
        assert!(!whole_test(2));
    }

    #[test]
    fn words_are_found_whole_and_with_what_follows() {
        let source = Source::parse("a.rs", "unsafe_code; // unsafe\nunsafe\n{ x }\n");
        let hits = source.find_word("unsafe");
        assert_eq!(hits.len(), 1);
        assert_eq!(hits[0].0, 1);
        assert!(hits[0].1.trim_start().starts_with('{'));
    }
}
