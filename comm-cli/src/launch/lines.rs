//! Cuts a stream of bytes into whole lines, each behind a prefix.

/// A line longer than this is broken, so that a worker which never ends its line cannot make the
/// launcher keep everything it writes.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Collects the bytes of one stream of one worker.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: Vec<u8>,
    /// The begun line; holds no line break.
    begun: Vec<u8>,
}

impl Lines {
    /// Puts `prefix` in front of each line.
    pub(super) fn new(prefix: impl Into<Vec<u8>>) -> Self {
        Self {
            prefix: prefix.into(),
            begun: Vec::new(),
        }
    }

    /// Takes what was read and appends the lines that are whole now to `out`.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            self.begun.extend_from_slice(&line[..end]);
            self.end_line(out);
            bytes = rest;
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > MAX_LINE_BYTES {
            self.end_line(out);
        }
    }

    /// Appends the last line if the stream ended within it.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            self.end_line(out);
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.append(&mut self.begun);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(pieces: &[&[u8]]) -> String {
        let (mut lines, mut out) = (Lines::new("[3] "), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let wanted = "[3] one\n[3] \n[3] two\n";
        assert_eq!(pass(&[b"one\n\ntwo\n"]), wanted);
        assert_eq!(pass(&[b"o", b"ne", b"\n", b"\ntw", b"o\n"]), wanted);
    }

    #[test]
    fn nothing_is_printed_before_the_line_is_whole() {
        let (mut lines, mut out) = (Lines::new("[0] "), Vec::new());
        lines.push(b"half", &mut out);
        assert_eq!(out, b"");
    }

    #[test]
    fn an_unfinished_last_line_is_ended() {
        assert_eq!(pass(&[b"one\ntw", b"o"]), "[3] one\n[3] two\n");
        assert_eq!(pass(&[]), "");
    }

    #[test]
    fn an_endless_line_is_broken() {
        let (mut lines, mut out) = (Lines::new("[0] "), Vec::new());
        for _ in 0..64 {
            lines.push(&[b'x'; 1 << 16], &mut out);
        }
        assert!(out.iter().filter(|&&byte| byte == b'\n').count() >= 3);
        assert!(lines.begun.len() <= MAX_LINE_BYTES);
    }

    #[test]
    fn bytes_that_are_not_text_pass_through() {
        let (mut lines, mut out) = (Lines::new(""), Vec::new());
        lines.push(b"\xff\x00\n", &mut out);
        assert_eq!(out, b"\xff\x00\n");
    }
}
