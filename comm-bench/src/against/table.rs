//! A comparison as text.

use std::fmt;

use super::{Comparison, Line};

impl fmt::Display for Comparison {
    /// One block for each operation, medium and number of ranks: our time, then time and ratio of
    /// each peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let same = |a: &Line, b: &Line| (a.op, a.medium, a.ranks) == (b.op, b.medium, b.ranks);
        for (number, block) in lines.chunk_by(same).enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            self::block(f, block)?;
        }
        Ok(())
    }
}

fn block(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    let Some(first) = lines.first() else {
        return Ok(());
    };
    writeln!(
        f,
        "# {}, {} ranks, {}: us for each system, and ours divided by it",
        first.op, first.ranks, first.medium
    )?;
    let systems = systems(lines);
    write!(f, "# {:>10} {:>12}", "bytes", super::OURS)?;
    for system in &systems {
        write!(f, " {system:>14} {:>7}", "ratio")?;
    }
    writeln!(f)?;
    for line in lines {
        write!(f, "  {:>10} {:>12}", line.bytes, time(line.us))?;
        for system in &systems {
            let peer = line.peers.iter().find(|peer| peer.system == *system);
            let ratio = peer.and_then(|peer| peer.ratio);
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            write!(f, " {:>14} {ratio:>7}", time(peer.map(|peer| peer.us)))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// The peers of these lines, each once, in order of appearance.
pub(super) fn systems(lines: &[Line]) -> Vec<&str> {
    let mut systems = Vec::new();
    for peer in lines.iter().flat_map(|line| &line.peers) {
        if !systems.contains(&peer.system.as_str()) {
            systems.push(peer.system.as_str());
        }
    }
    systems
}

/// Four significant digits.
fn time(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 10.0 => format!("{us:.3}"),
        Some(us) if us < 100.0 => format!("{us:.2}"),
        Some(us) if us < 1000.0 => format!("{us:.1}"),
        Some(us) => format!("{us:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::comparison::tests::comparison;

    #[test]
    fn every_system_has_a_column_and_what_is_missing_is_a_dash() {
        let wanted = "\
# all_reduce, 2 ranks, shm: us for each system, and ours divided by it
#      bytes         comm        openmpi   ratio
           8        0.400          0.800    0.50
        4096        4.000              -       -
";
        assert_eq!(comparison().to_string(), wanted);
    }
}
