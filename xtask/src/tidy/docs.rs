//! Rules that keep the documentation true.
//!
//! * Every `COMM_*` variable that the code reads has a row in the table of [`TABLE`], and every one
//!   that a text names exists in the code. [`LIST`] names those of the table, and no others.
//! * A relative link leads to something.
//! * A code block below `<!-- from PATH -->` stands in that file, line by line. A line `// ...`
//!   in the block leaves lines of the file out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;
use super::files::File;
use super::source::Source;
use crate::workspace;

/// The page with the table of variables.
const TABLE: &str = "docs/tuning.md";

/// The file that lists the variables for users who mistype one.
const LIST: &str = "comm-api/src/unread.rs";

/// Decisions are not kept up to date: they say what was thought at the time.
const HISTORY: &str = "docs/decisions/";

const QUOTE: &str = "<!-- from ";
const ELISION: &str = "// ...";

/// Checks every Markdown file against the sources.
pub(crate) fn check(files: &[File], sources: &[Source]) -> Vec<Finding> {
    let pages: Vec<&File> = files
        .iter()
        .filter(|file| file.path.ends_with(".md") && !file.path.starts_with(HISTORY))
        .collect();
    let mut findings = check_variables(&pages, files, sources);
    for page in pages {
        findings.extend(check_links(page, |path| {
            workspace::root().join(path).exists()
        }));
        findings.extend(check_quotes(page, files));
    }
    findings
}

fn check_variables(pages: &[&File], files: &[File], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = pages.iter().find(|page| page.path == TABLE);
    let rows: BTreeSet<&str> = table
        .iter()
        .flat_map(|page| page.text.lines())
        .filter(|line| line.starts_with('|'))
        .flat_map(variables)
        .collect();
    let texts: BTreeMap<&str, &str> = files
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut known = BTreeSet::new();
    let mut missing = BTreeSet::new();
    // Crates that are tools for this repository have no users.
    for source in sources
        .iter()
        .filter(|source| !source.path.starts_with("xtask/") && source.path != LIST)
    {
        let text = texts.get(source.path.as_str()).copied().unwrap_or_default();
        known.extend(variables(text));
        for (index, (raw, line)) in text.lines().zip(&source.lines).enumerate() {
            if line.test {
                continue;
            }
            let code = without_comment(raw, &line.comment);
            for variable in variables(&code) {
                if !rows.contains(variable) && missing.insert(variable.to_owned()) {
                    let message = format!("{variable} has no row in the table of {TABLE}");
                    findings.push(Finding::at(source, index, message));
                }
            }
        }
    }
    if let Some(list) = sources.iter().find(|source| source.path == LIST) {
        findings.extend(check_list(list, &texts, &rows));
    }
    for page in pages {
        for (index, line) in page.text.lines().enumerate() {
            for variable in variables(line).filter(|variable| !known.contains(variable)) {
                findings.push(in_page(page, index, format!("nothing reads {variable}")));
            }
        }
    }
    findings
}

/// The variables of [`LIST`] against the first columns of the table's rows.
fn check_list(list: &Source, texts: &BTreeMap<&str, &str>, rows: &BTreeSet<&str>) -> Vec<Finding> {
    let text = texts.get(list.path.as_str()).copied().unwrap_or_default();
    let lines = text.lines().zip(&list.lines);
    let listed: BTreeSet<&str> = lines
        .filter(|(raw, line)| !line.test && raw.trim_start().starts_with('"'))
        .flat_map(|(raw, _)| variables(raw))
        .collect();
    let missing = rows.difference(&listed);
    let surplus = listed.difference(rows);
    missing
        .map(|variable| format!("{variable} of {TABLE} is missing from the list"))
        .chain(surplus.map(|variable| format!("{variable} has no row in the table of {TABLE}")))
        .map(|message| Finding::at(list, 0, message))
        .collect()
}

/// The names of variables in a text; a prefix alone (`COMM_`, `COMM_*`) is none.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.len() > "COMM_".len() && word.starts_with("COMM_"))
        .filter(|word| !word.ends_with('_') && !word.contains(|c: char| c.is_ascii_lowercase()))
}

/// The line without its comment, whose text stands at the same place in `comment`.
fn without_comment(raw: &str, comment: &str) -> String {
    raw.chars()
        .zip(comment.chars().chain(std::iter::repeat(' ')))
        .map(|(character, comment)| if comment == ' ' { character } else { ' ' })
        .collect()
}

fn check_links(page: &File, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let directory = page.path.rsplit_once('/').map_or("", |(before, _)| before);
    let mut findings = Vec::new();
    let mut in_code = false;
    for (index, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in line.split("](").skip(1) {
            let target = target.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !exists(&Path::new(directory).join(target).to_string_lossy()) {
                findings.push(in_page(page, index, format!("{target} does not exist")));
            }
        }
    }
    findings
}

fn check_quotes(page: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines = page.text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(path) = line.trim().strip_prefix(QUOTE) else {
            continue;
        };
        let path = path.trim_end_matches("-->").trim();
        let mut block = Vec::new();
        for (_, line) in lines
            .by_ref()
            .skip_while(|(_, line)| !line.trim_start().starts_with("```"))
            .skip(1)
            .take_while(|(_, line)| line.trim() != "```")
        {
            block.push(line.trim());
        }
        match files.iter().find(|file| file.path == path) {
            None => findings.push(in_page(page, index, format!("{path} does not exist"))),
            Some(file) => {
                if let Some(line) = first_difference(&block, &file.text) {
                    let message = format!("{path} does not hold what is quoted: {line}");
                    findings.push(in_page(page, index, message));
                }
            }
        }
    }
    findings
}

/// The first line of the part of `block` that does not stand in `text`. Parts stand between
/// elisions and follow each other in the text; indentation does not count.
fn first_difference<'a>(block: &[&'a str], text: &str) -> Option<&'a str> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut from = 0;
    for part in block.split(|line| *line == ELISION) {
        let part = trim_blank(part);
        let Some(first) = part.first() else { continue };
        let place = lines[from..]
            .windows(part.len())
            .position(|window| window == part);
        match place {
            Some(offset) => from += offset + part.len(),
            None => return Some(first),
        }
    }
    None
}

fn trim_blank<'a, 'b>(mut part: &'a [&'b str]) -> &'a [&'b str] {
    while let [first, rest @ ..] = part
        && first.is_empty()
    {
        part = rest;
    }
    while let [rest @ .., last] = part
        && last.is_empty()
    {
        part = rest;
    }
    part
}

fn in_page(page: &File, index: usize, message: String) -> Finding {
    Finding {
        place: page.path.clone(),
        line: Some(index + 1),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    fn findings(files: &[File]) -> Vec<String> {
        let sources = Source::from_files(files);
        let pages: Vec<&File> = files.iter().filter(|f| f.path.ends_with(".md")).collect();
        check_variables(&pages, files, &sources)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn every_variable_that_code_reads_has_a_row() {
        let code = "let a = var(\"COMM_A\"); // COMM_ONLY_SAID\n\
                    let b = [\"OMPI_COMM_WORLD_RANK\", \"COMM_\"];\n\
                    #[cfg(test)]\nmod tests { fn t() { var(\"COMM_TEST\") } }\n";
        let table = file(TABLE, "COMM_A is told about here.\n");
        let found = findings(&[file("c/src/a.rs", code), table]);
        assert_eq!(
            found,
            ["c/src/a.rs:1: COMM_A has no row in the table of docs/tuning.md"]
        );
        let table = file(TABLE, "| `COMM_A` | what it does |\n");
        assert_eq!(findings(&[file("c/src/a.rs", code), table]), [""; 0]);
    }

    #[test]
    fn the_list_for_users_holds_the_rows_of_the_table() {
        let code = || file("c/src/a.rs", "var(\"COMM_A\"); var(\"COMM_B\");\n");
        let table = || file(TABLE, "| `COMM_A` | one |\n| `COMM_B` | two |\n");
        let list = file(
            LIST,
            "const V: &[&str] = &[\n    \"COMM_A\",\n    \"COMM_C\",\n];\n",
        );
        let found = findings(&[code(), table(), list]);
        assert_eq!(
            found,
            [
                "comm-api/src/unread.rs:1: COMM_B of docs/tuning.md is missing from the list",
                "comm-api/src/unread.rs:1: COMM_C has no row in the table of docs/tuning.md",
            ]
        );
        let list = file(
            LIST,
            "const V: &[&str] = &[\n    \"COMM_A\",\n    \"COMM_B\",\n];\n",
        );
        assert_eq!(findings(&[code(), table(), list]), [""; 0]);
    }

    #[test]
    fn a_variable_that_nothing_reads_is_not_documented() {
        let page = file("README.md", "Set COMM_GONE=1, or any COMM_*.\n");
        let found = findings(&[file("c/src/a.rs", "fn a() {}\n"), page]);
        assert_eq!(found, ["README.md:1: nothing reads COMM_GONE"]);
    }

    #[test]
    fn links_lead_to_files() {
        let text = "[a](there.md#part) [b](https://x.y) [c](#here) [d](gone.md)\n\
                    ```rust\nlet a = b[c](d);\n```\n";
        let found = check_links(&file("docs/page.md", text), |path| path == "docs/there.md");
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "docs/page.md:1: gone.md does not exist"
        );
    }

    #[test]
    fn quoted_code_stands_in_its_file() {
        let code = file(
            "c/a.rs",
            "fn a() {\n    one();\n    two();\n    three();\n}\n",
        );
        let page = |block: &str| {
            let text = format!("<!-- from c/a.rs -->\n\n```rust,ignore\n{block}\n```\n");
            check_quotes(&file("docs/page.md", &text), std::slice::from_ref(&code)).len()
        };
        assert_eq!(page("one();\ntwo();"), 0);
        assert_eq!(page("fn a() {\n    // ...\n    three();\n}"), 0);
        assert_eq!(page("one();\nthree();"), 1, "a line was left out silently");
        assert_eq!(page("two();\n// ...\none();"), 1, "the order is the file's");
        let other = file("docs/page.md", "<!-- from c/b.rs -->\n```\n```\n");
        assert_eq!(check_quotes(&other, &[code]).len(), 1);
    }
}
