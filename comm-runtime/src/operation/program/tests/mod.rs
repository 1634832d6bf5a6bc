//! The plans of all ranks, played against each other on plain vectors.
//!
//! What is played are whole plans: programs, edges and the conventions about buffers, in place too.
//! That they come to an end with eight slots on every edge proves that they always do: programs
//! run strictly in order and wait for one edge at a time, so whatever can be done now can still be
//! done later, and every order of doing it ends in the same state (a Kahn process network).

mod plans;
mod player;

use super::*;

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() {
    for size in 2..=17_usize {
        let rounds = size.next_power_of_two().trailing_zeros() as usize;
        // What each rank knows of the others travels with every step.
        let mut known: Vec<Vec<bool>> = (0..size)
            .map(|rank| (0..size).map(|other| other == rank).collect())
            .collect();
        for round in 0..rounds {
            let before = known.clone();
            for (rank, known) in known.iter_mut().enumerate() {
                let from = (rank + size - (1 << round) % size) % size;
                known
                    .iter_mut()
                    .zip(&before[from])
                    .for_each(|(know, heard)| *know |= heard);
            }
        }
        assert!(known.iter().flatten().all(|know| *know), "{size} ranks");
        let program = Dissemination { rounds };
        let kinds: Vec<_> = (0..program.len())
            .map(|index| program.primitive(index).send.is_some())
            .collect();
        assert_eq!(kinds.len(), 2 * rounds);
        assert!(kinds.chunks(2).all(|pair| pair == [true, false]));
    }
}

#[test]
fn everybody_meets_everybody_once_and_in_the_same_round() {
    for size in 2..=17 {
        let exchange = |rank| Exchange {
            size,
            rank,
            sends: Peers::All,
            receives: Peers::All,
            copies: false,
            source_stride: 0,
            target_stride: 0,
            part: Part {
                start: 0,
                count: 1,
                chunk: 1,
            },
        };
        for rank in 0..size {
            let mut met: Vec<_> = exchange(rank).sends_to().collect();
            assert!(exchange(rank).receives_from().eq(met.iter().copied()));
            met.sort_unstable();
            assert!(met.into_iter().eq((0..size).filter(|peer| *peer != rank)));
        }
    }
}
