//! Programs of all ranks, played against each other on plain vectors.

use std::collections::{HashMap, VecDeque};

use super::*;

/// A rank's program, whom it sends to and whom it receives from.
type Algorithm<'a> = dyn Fn(usize) -> (Program, Vec<usize>, Vec<usize>) + 'a;

/// One rank's program, its edges as peer ranks, and its memory.
struct Player {
    program: Program,
    sends_to: Vec<usize>,
    receives_from: Vec<usize>,
    input: Vec<i64>,
    output: Vec<i64>,
    next: usize,
}

/// Plays until everybody is done; each edge holds at most 8 steps, as in the real thing.
fn play(players: &mut [Player]) {
    let mut edges: HashMap<(usize, usize), VecDeque<Vec<i64>>> = HashMap::new();
    loop {
        let mut moved = false;
        for (rank, player) in players.iter_mut().enumerate() {
            moved |= step(player, rank, &mut edges);
        }
        if players
            .iter()
            .all(|player| player.next == player.program.len())
        {
            assert!(
                edges.values().all(VecDeque::is_empty),
                "steps were left over"
            );
            return;
        }
        assert!(moved, "the programs wait for each other");
    }
}

fn step(
    player: &mut Player,
    rank: usize,
    edges: &mut HashMap<(usize, usize), VecDeque<Vec<i64>>>,
) -> bool {
    if player.next == player.program.len() {
        return false;
    }
    let primitive = player.program.primitive(player.next);
    if let Some(edge) = primitive.send {
        let queue = edges.entry((rank, player.sends_to[edge])).or_default();
        if queue.len() == 8 {
            return false;
        }
    }
    let received = match primitive.receive {
        None => None,
        Some(edge) => match edges
            .entry((player.receives_from[edge], rank))
            .or_default()
            .pop_front()
        {
            None => return false,
            step => step,
        },
    };
    let source = primitive
        .source
        .map(|offset| player.input[offset..offset + primitive.count].to_vec());
    let value = match (received, source) {
        (Some(received), Some(source)) => {
            assert!(primitive.combine);
            received.iter().zip(&source).map(|(a, b)| a + b).collect()
        }
        (Some(value), None) | (None, Some(value)) => value,
        (None, None) => Vec::new(),
    };
    assert_eq!(value.len(), primitive.count);
    if let Some(offset) = primitive.target {
        player.output[offset..offset + primitive.count].copy_from_slice(&value);
    }
    if let Some(edge) = primitive.send {
        edges
            .entry((rank, player.sends_to[edge]))
            .or_default()
            .push_back(value);
    }
    player.next += 1;
    true
}

fn input(rank: usize, count: usize) -> Vec<i64> {
    (0..count)
        .map(|index| (rank * 1000 + index) as i64)
        .collect()
}

#[test]
fn ring_all_reduce_sums_every_element_once_on_every_rank() {
    for size in 2..=9 {
        for count in [0, 1, 2, 7, 16, 31, 64, 100, 1000, 1031] {
            for chunk in [16, 20, 48] {
                let mut players: Vec<_> = (0..size)
                    .map(|position| Player {
                        program: Program::RingAllReduce(RingAllReduce {
                            size,
                            position,
                            part: Part {
                                start: 0,
                                count,
                                chunk,
                            },
                        }),
                        sends_to: vec![(position + 1) % size],
                        receives_from: vec![(position + size - 1) % size],
                        input: input(position, count),
                        output: vec![-1; count],
                        next: 0,
                    })
                    .collect();
                play(&mut players);
                let expected: Vec<i64> = (0..count)
                    .map(|index| (0..size).map(|rank| (rank * 1000 + index) as i64).sum())
                    .collect();
                for player in &players {
                    assert_eq!(player.output, expected, "{size} ranks, {count} elements");
                }
            }
        }
    }
}

#[test]
fn every_finished_chunk_of_a_ring_is_finished_by_exactly_one_rank() {
    let (size, count, chunk) = (5, 333, 16);
    let mut finished = vec![0; count];
    for position in 0..size {
        let program = RingAllReduce {
            size,
            position,
            part: Part {
                start: 0,
                count,
                chunk,
            },
        };
        for index in 0..program.len() {
            let primitive = program.primitive(index);
            if primitive.finish {
                let offset = primitive.target.unwrap();
                finished[offset..offset + primitive.count]
                    .iter_mut()
                    .for_each(|n| *n += 1);
            }
        }
    }
    assert!(finished.iter().all(|n| *n == 1));
}

#[test]
fn a_chain_and_a_fan_out_give_everybody_the_roots_buffer() {
    for size in 2..=6 {
        for root in 0..size {
            for count in [0, 1, 10, 33] {
                let part = Part {
                    start: 0,
                    count,
                    chunk: 4,
                };
                let chain = |rank: usize| {
                    let place = (rank + size - root) % size;
                    let program = Program::Chain(Chain {
                        receives: place > 0,
                        sends: place < size - 1,
                        copies: true,
                        part,
                    });
                    (
                        program,
                        vec![(rank + 1) % size],
                        vec![(rank + size - 1) % size],
                    )
                };
                let fan_out = |rank: usize| {
                    let is_root = rank == root;
                    let program = Program::FanOut(FanOut {
                        receivers: if is_root { size - 1 } else { 0 },
                        receives: !is_root,
                        copies: true,
                        part,
                    });
                    (
                        program,
                        (0..size).filter(|peer| *peer != root).collect(),
                        vec![root],
                    )
                };
                let algorithms: [&Algorithm<'_>; 2] = [&chain, &fan_out];
                for algorithm in algorithms {
                    let mut players: Vec<_> = (0..size)
                        .map(|rank| {
                            let (program, sends_to, receives_from) = algorithm(rank);
                            Player {
                                program,
                                sends_to,
                                receives_from,
                                input: input(rank, count),
                                output: vec![-1; count],
                                next: 0,
                            }
                        })
                        .collect();
                    play(&mut players);
                    assert!(
                        players
                            .iter()
                            .all(|player| player.output == input(root, count))
                    );
                }
            }
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() {
    for size in 2..=9_usize {
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
