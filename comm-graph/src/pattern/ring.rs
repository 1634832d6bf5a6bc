//! Rings from their links.

use comm_core::{Error, ErrorKind};

/// The ranks of a ring in travel order, starting at `start`.
///
/// `next[r]` and `prev[r]` are the neighbours of rank `r`.
///
/// # Errors
///
/// `InvalidArgument`, naming the rank where it goes wrong, when the tables differ in length, name a
/// rank that does not exist, contradict each other, or do not lead through every rank exactly once
/// and back.
pub fn ring_order(start: u32, next: &[u32], prev: &[u32]) -> Result<Vec<u32>, Error> {
    let count = next.len();
    let broken = |message: &'static str, rank: u32| {
        Error::new(ErrorKind::InvalidArgument, message)
            .with("rank", rank)
            .with("ranks", count)
    };
    if prev.len() != count || start as usize >= count {
        return Err(broken(
            "the ring's tables do not cover the starting rank",
            start,
        ));
    }
    let mut order = Vec::with_capacity(count);
    let mut visited = vec![false; count];
    let mut at = start;
    for _ in 0..count {
        if std::mem::replace(&mut visited[at as usize], true) {
            return Err(broken(
                "the ring comes back to a rank before it has visited all",
                at,
            ));
        }
        order.push(at);
        let following = next[at as usize];
        if following as usize >= count {
            return Err(broken(
                "the ring leads to a rank that does not exist",
                following,
            ));
        }
        if prev[following as usize] != at {
            return Err(broken(
                "a rank's next neighbour names another previous one",
                at,
            ));
        }
        at = following;
    }
    if at == start {
        Ok(order)
    } else {
        Err(broken("the ring does not lead back to its start", at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_starts_at_the_asking_rank() {
        assert_eq!(ring_order(2, &[1, 2, 0], &[2, 0, 1]).unwrap(), [2, 0, 1]);
    }

    #[test]
    fn contradicting_and_foreign_neighbours_are_refused() {
        assert!(ring_order(0, &[1, 2, 0], &[1, 0, 2]).is_err());
        assert!(ring_order(0, &[1, 7, 0], &[2, 0, 1]).is_err());
        assert!(ring_order(3, &[1, 2, 0], &[2, 0, 1]).is_err());
        assert!(ring_order(0, &[], &[]).is_err());
    }
}
