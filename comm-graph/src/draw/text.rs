//! How much room text needs, without a font at hand.

/// The width of a text in pixels, rather too large than too small.
pub(super) fn width(text: &str, size: f32) -> f32 {
    let letters: f32 = text.chars().map(letter).sum();
    letters * size
}

/// Widths of common sans-serif fonts in ems; DejaVu Sans, a wide one, is the measure.
fn letter(character: char) -> f32 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.36,
        ' ' | '(' | ')' | '[' | ']' | '/' | 'f' | 't' | 'r' | '-' | 'I' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '+' | '=' => 1.0,
        'A'..='Z' => 0.77,
        ' '..='~' | '·' | '…' => 0.64,
        // Ideographs and symbols fill a square.
        _ => 1.05,
    }
}

/// The text, cut with an ellipsis when it is wider than `room`.
pub(super) fn fit(text: &str, size: f32, room: f32) -> String {
    // Names come from files and may be absurdly long.
    let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if width(&text, size) <= room {
        return text;
    }
    let mut kept = String::new();
    let mut used = letter('…') * size;
    for character in text.chars() {
        used += letter(character) * size;
        if used > room {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}

/// GB/s with as many digits as matter.
pub(super) fn gbps(value: f32) -> String {
    if value >= 100.0 || (value - value.round()).abs() < 0.05 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_to_their_room() {
        assert_eq!(fit("mlx5_0", 11.0, 100.0), "mlx5_0");
        let cut = fit("a-very-long-interface-name", 11.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 11.0) <= 60.0, "{cut}");
        assert_eq!(fit("网络接口网络接口", 10.0, 35.0), "网络…");
        assert_eq!(fit("a\u{0}\nb", 10.0, 100.0), "ab");
    }

    #[test]
    fn bandwidths_have_no_needless_digits() {
        assert_eq!(gbps(48.0), "48");
        assert_eq!(gbps(3.125), "3.1");
        assert_eq!(gbps(370.8), "371");
    }
}
