//! Carries the plans of all ranks out, one primitive after the other.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::Primitive;
use crate::operation::Fold;
use crate::plan::{Flow, Plan, Resolved};

/// Slots of an edge.
const SLOTS: usize = 8;

/// A value that tells what it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// The number of the element, once for each input in the sum.
    pub(super) element: u64,
    /// How often each rank's input is in the sum: three bits for each rank.
    pub(super) ranks: u64,
    /// How often the reduction was finished.
    pub(super) finished: u32,
}

impl Value {
    /// Element `element` of the input of `rank`.
    pub(super) fn of(rank: usize, element: usize) -> Self {
        Self {
            element: element as u64 + 1,
            ranks: 1 << (3 * rank),
            finished: 0,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            element: self.element + other.element,
            ranks: self.ranks + other.ranks,
            finished: self.finished + other.finished,
        }
    }

    const fn finish(mut self) -> Self {
        self.finished += 1;
        self
    }
}

/// One rank's plan and memory.
#[derive(Debug)]
pub(super) struct Player {
    plan: Arc<Plan>,
    /// Both buffers, which may overlap.
    pub(super) memory: Vec<Value>,
    input: usize,
    output: usize,
    /// The next primitive of each program.
    cursors: Vec<usize>,
    /// Chunks that are folded, and peers that have got the current one.
    fold: (usize, usize),
    folded_all: bool,
}

/// Steps on their way from rank to rank, by channel.
type Edges = HashMap<(u32, u32, u32), VecDeque<Vec<Value>>>;

impl Player {
    /// A rank with this memory, in which input and output start at these elements.
    pub(super) fn new(plan: Arc<Plan>, memory: Vec<Value>, input: usize, output: usize) -> Self {
        // The first edge of a flow is edge 0, and so on.
        let resolve = |flow: &Flow| Resolved {
            send: (0..flow.sends_to.len()).collect(),
            recv: (0..flow.receives_from.len()).collect(),
        };
        plan.resolve(plan.flows().iter().map(resolve).collect());
        Self {
            cursors: vec![0; plan.programs().count()],
            plan,
            memory,
            input,
            output,
            fold: (0, 0),
            folded_all: false,
        }
    }

    fn is_done(&self) -> bool {
        match self.plan.fold() {
            Some(_) => self.folded_all,
            None => self
                .plan
                .programs()
                .zip(&self.cursors)
                .all(|((program, _), next)| *next == program.len()),
        }
    }

    /// Does whatever it can; whether it could do anything.
    fn play(&mut self, edges: &mut Edges) -> bool {
        let plan = Arc::clone(&self.plan);
        let mut moved = false;
        if let Some(fold) = plan.fold() {
            while !self.folded_all && self.fold_once(&plan, fold, edges) {
                moved = true;
            }
        }
        for (place, (program, _)) in plan.programs().enumerate() {
            while self.cursors[place] < program.len() {
                let primitive = program.primitive(self.cursors[place]);
                if !self.carry_out(&plan, &plan.flows()[place], &primitive, edges) {
                    break;
                }
                self.cursors[place] += 1;
                moved = true;
            }
        }
        moved
    }

    fn carry_out(
        &mut self,
        plan: &Plan,
        flow: &Flow,
        primitive: &Primitive,
        edges: &mut Edges,
    ) -> bool {
        let to = |edge: usize| (plan.rank, flow.sends_to[edge], flow.channel);
        let from = |edge: usize| (flow.receives_from[edge], plan.rank, flow.channel);
        let sends = [primitive.send, primitive.also_send];
        let receives = [primitive.receive, primitive.also_receive];
        let has_credit = sends
            .into_iter()
            .flatten()
            .all(|edge| edges.entry(to(edge)).or_default().len() < SLOTS);
        let has_steps = receives
            .into_iter()
            .flatten()
            .all(|edge| !edges.entry(from(edge)).or_default().is_empty());
        if !has_credit || !has_steps {
            return false;
        }
        let mut values: Vec<Vec<Value>> = Vec::new();
        for edge in receives.into_iter().flatten() {
            values.extend(edges.entry(from(edge)).or_default().pop_front());
        }
        assert!(
            values.len() < 2 || primitive.combine,
            "only a reduction merges steps"
        );
        if let Some(offset) = primitive.source {
            assert!(values.is_empty() || primitive.combine);
            let at = self.input + offset;
            values.push(self.memory[at..at + primitive.count].to_vec());
        }
        for value in &values {
            assert_eq!(value.len(), primitive.count, "both ends agree on a step");
        }
        let sum = values.into_iter().reduce(|mut sum, value| {
            for (sum, value) in sum.iter_mut().zip(value) {
                *sum = sum.plus(value);
            }
            sum
        });
        let mut result = sum.unwrap_or_default();
        if primitive.finish {
            result.iter_mut().for_each(|value| *value = value.finish());
        }
        if let Some(offset) = primitive.target {
            let at = self.output + offset;
            self.memory[at..at + primitive.count].copy_from_slice(&result);
        }
        for edge in sends.into_iter().flatten() {
            edges.entry(to(edge)).or_default().push_back(result.clone());
        }
        true
    }

    /// Sends a chunk to one peer, or folds one when everybody has got it.
    fn fold_once(&mut self, plan: &Plan, fold: Fold, edges: &mut Edges) -> bool {
        let flow = &plan.flows()[0];
        let (done, sent) = self.fold;
        let begin = done * plan.chunk_elements;
        let chunk = begin..(begin + plan.chunk_elements).min(plan.count);
        if let Some(peer) = flow.sends_to.get(sent) {
            let values = self.fold_source(fold, *peer, &chunk);
            let edge = edges.entry((plan.rank, *peer, 0)).or_default();
            if edge.len() == SLOTS {
                return false;
            }
            edge.push_back(values);
            self.fold.1 += 1;
            return true;
        }
        let peers = flow.receives_from.iter();
        let mut keys = peers.map(|peer| (*peer, plan.rank, 0)).peekable();
        if fold.folds {
            assert!(keys.peek().is_some());
            if keys
                .clone()
                .any(|key| edges.entry(key).or_default().is_empty())
            {
                return false;
            }
            let mut sum = self.fold_source(fold, plan.rank, &chunk);
            for key in keys {
                let values = edges.entry(key).or_default().pop_front().unwrap();
                assert_eq!(values.len(), sum.len());
                for (sum, value) in sum.iter_mut().zip(values) {
                    *sum = sum.plus(value);
                }
            }
            for (index, value) in chunk.clone().zip(sum) {
                self.memory[self.output + index] = value.finish();
            }
        }
        self.fold = (done + 1, 0);
        self.folded_all = chunk.end >= plan.count;
        true
    }

    fn fold_source(&self, fold: Fold, peer: u32, chunk: &Range<usize>) -> Vec<Value> {
        let at = self.input + peer as usize * fold.source_stride;
        self.memory[at + chunk.start..at + chunk.end].to_vec()
    }
}

/// Plays until everybody is done.
pub(super) fn play(players: &mut [Player]) {
    let mut edges = Edges::new();
    while !players.iter().all(Player::is_done) {
        let mut moved = false;
        for player in players.iter_mut() {
            moved |= player.play(&mut edges);
        }
        assert!(moved, "the ranks wait for each other: {}", players[0].plan);
    }
    assert!(
        edges.values().all(VecDeque::is_empty),
        "steps were left over: {}",
        players[0].plan
    );
}
