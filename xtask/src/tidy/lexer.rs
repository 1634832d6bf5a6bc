//! Tells code from comments and literals, without understanding either.
//!
//! The checks look for words such as `unsafe`; they must not find them in documentation, in error
//! texts or in their own patterns. [`split`] therefore turns a source text into two texts of the
//! same shape: one holds only code, the other only comments, everything else is blank. Positions
//! stay the same, so a hit in one of them is a hit in the original.

/// The code and the comments of a source text; each has the original's lines and columns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Comments and the contents of literals are blanks.
    pub(crate) code: String,
    /// Everything but comments is blanks.
    pub(crate) comments: String,
}

/// What the characters up to some position form.
#[derive(Clone, Copy)]
enum Token {
    Code,
    Comment,
    /// A string, byte string or character; the delimiters count as code.
    Literal,
}

/// Separates code from comments; never fails, an unfinished literal reaches to the end.
pub(crate) fn split(source: &str) -> Split {
    let text: Vec<char> = source.chars().collect();
    let mut split = Split {
        code: String::new(),
        comments: String::new(),
    };
    let mut position = 0;
    while position < text.len() {
        let (token, end) = next(&text, position);
        for (offset, &character) in text[position..end].iter().enumerate() {
            let delimiter = offset == 0 || position + offset + 1 == end;
            let blank = if character == '\n' { '\n' } else { ' ' };
            let (code, comment) = match token {
                Token::Code => (character, blank),
                Token::Comment => (blank, character),
                Token::Literal if delimiter => (character, blank),
                Token::Literal => (blank, blank),
            };
            split.code.push(code);
            split.comments.push(comment);
        }
        position = end;
    }
    split
}

/// The token that starts at `start` and where it ends; the end is always behind the start.
fn next(text: &[char], start: usize) -> (Token, usize) {
    let rest = &text[start..];
    match rest {
        ['/', '/', ..] => (Token::Comment, start + line_comment(rest)),
        ['/', '*', ..] => (Token::Comment, start + block_comment(rest)),
        ['"', ..] => (Token::Literal, start + quoted(rest, '"')),
        ['\'', ..] => match character(rest) {
            Some(length) => (Token::Literal, start + length),
            None => (Token::Code, start + 1),
        },
        [first, ..] if first.is_alphabetic() || *first == '_' => {
            let word = rest
                .iter()
                .take_while(|c| c.is_alphanumeric() || **c == '_')
                .count();
            let name: String = rest[..word].iter().collect();
            match raw_string(&name, &rest[word..]) {
                Some(length) => (Token::Literal, start + word + length),
                None => (Token::Code, start + word),
            }
        }
        _ => (Token::Code, start + 1),
    }
}

fn line_comment(rest: &[char]) -> usize {
    rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut position = 0;
    while position < rest.len() {
        match rest[position..] {
            ['/', '*', ..] => {
                depth += 1;
                position += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return position;
                }
            }
            _ => position += 1,
        }
    }
    rest.len()
}

/// The length of a literal between two `quote`s in which a backslash hides the next character.
fn quoted(rest: &[char], quote: char) -> usize {
    let mut position = 1;
    while position < rest.len() {
        match rest[position] {
            '\\' => position += 2,
            c if c == quote => return position + 1,
            _ => position += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime such as `'a`.
fn character(rest: &[char]) -> Option<usize> {
    match rest {
        [_, '\\', ..] => Some(quoted(rest, '\'')),
        [_, _, '\'', ..] => Some(3),
        _ => None,
    }
}

/// The length of a raw string behind its prefix `r`, `br` or `cr`, hashes and quotes included.
fn raw_string(prefix: &str, rest: &[char]) -> Option<usize> {
    if !matches!(prefix, "r" | "br" | "cr") {
        return None;
    }
    let hashes = rest.iter().take_while(|&&c| c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let mut position = hashes + 1;
    while position < rest.len() {
        let closed = rest[position] == '"'
            && rest[position + 1..]
                .iter()
                .take_while(|&&c| c == '#')
                .count()
                >= hashes;
        if closed {
            return Some(position + 1 + hashes);
        }
        position += 1;
    }
    Some(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        split(source).code
    }

    #[test]
    fn positions_stay_the_same() {
        let source = "let a = \"x\"; // täil\n/* b */ 'c' r#\"d\"#\n";
        let split = split(source);
        for text in [&split.code, &split.comments] {
            assert_eq!(text.chars().count(), source.chars().count());
            assert_eq!(text.lines().count(), source.lines().count());
        }
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // unsafe\nb"), "a          \nb");
        assert_eq!(code("a /* x /* y */ z */ b"), "a                   b");
        assert_eq!(split("a // why\n").comments, "  // why\n");
    }

    #[test]
    fn contents_of_literals_are_not_code() {
        assert_eq!(code(r#"f("a\"b", c)"#), r#"f("    ", c)"#);
        assert_eq!(code(r##"f(r#"a"b"#, c)"##), r##"f(r      #, c)"##);
        assert_eq!(code(r#"f(b"// no", c)"#), r#"f(b"     ", c)"#);
        assert_eq!(code(r"['{', '\'', '\\']"), r"[' ', '  ', '  ']");
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> &'a str"),
            "fn f<'a>(x: &'a str) -> &'a str"
        );
        assert_eq!(code("r#type"), "r#type");
    }

    #[test]
    fn an_open_literal_or_comment_reaches_to_the_end() {
        assert_eq!(code("a \"b\nc \""), "a \" \n  \"");
        assert!(!code("a \"b unsafe c").contains("unsafe"));
        assert_eq!(code("a /* b"), "a     ");
    }
}
