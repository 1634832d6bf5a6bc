//! Cuts a stream of bytes into whole lines, each behind a prefix.
//!
//! A carriage return ends a piece as well, which is passed on at once: so progress that a worker
//! draws over and over in one line is seen while it goes on.

/// A line longer than this is broken, so that a worker which never ends its line cannot make the
/// launcher keep everything it writes.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Collects the bytes of one stream of one worker.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: Vec<u8>,
    /// The begun line; holds neither line breaks nor carriage returns.
    begun: Vec<u8>,
    /// Whether the last byte was a carriage return, after which a line break ends nothing new.
    returned: bool,
}

impl Lines {
    /// Puts `prefix` in front of each line.
    pub(super) fn new(prefix: impl Into<Vec<u8>>) -> Self {
        Self {
            prefix: prefix.into(),
            begun: Vec::new(),
            returned: false,
        }
    }

    /// Takes what was read and appends the lines that are whole now to `out`.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|byte| b"\n\r".contains(byte)) {
            self.begun.extend_from_slice(&bytes[..end]);
            self.end_piece(bytes[end], out);
            bytes = &bytes[end + 1..];
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > MAX_LINE_BYTES {
            self.end_line(out);
        }
    }

    /// Ends the begun line by a line break or a carriage return. Nothing between two of them needs
    /// no prefix, unless it is an empty line.
    fn end_piece(&mut self, end: u8, out: &mut Vec<u8>) {
        let is_empty_line = end == b'\n' && !self.returned;
        if !self.begun.is_empty() || is_empty_line {
            out.extend_from_slice(&self.prefix);
            out.append(&mut self.begun);
        }
        out.push(end);
        self.returned = end == b'\r';
    }

    /// Appends the last line if the stream ended within it.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            self.end_line(out);
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        self.end_piece(b'\n', out);
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
    fn what_ends_with_a_carriage_return_is_passed_on_at_once() {
        let (mut lines, mut out) = (Lines::new("[0] "), Vec::new());
        lines.push(b"10%\r20%\r30%", &mut out);
        assert_eq!(out, b"[0] 10%\r[0] 20%\r");
        lines.push(b"\rdone\n", &mut out);
        assert_eq!(out, b"[0] 10%\r[0] 20%\r[0] 30%\r[0] done\n");
    }

    #[test]
    fn lines_that_end_with_both_stay_one_line() {
        assert_eq!(
            pass(&[b"one\r", b"\ntwo\r\n\n"]),
            "[3] one\r\n[3] two\r\n[3] \n"
        );
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
