//! One bounded depth-first search: placing channels at a given speed.
//!
//! A channel is a walk over all endpoints. `channel` starts one, `enter` reserves the way to the
//! next endpoint, `visit` decides what follows there, and everything is undone on the way back.
//! The recursion is `channels x endpoints` deep; the caller provides the stack.

use std::rc::Rc;

use crate::model::NodeKind;
use crate::path::{PathKind, Topology, nearest};

use super::budget::{Budget, Goal, Order};
use super::candidate::{Candidate, Pattern};
use super::nets::candidates;
use super::order::{Score, behind_switch};
use super::ports::PortLists;
use super::reserve::{Place, Reserve};

/// State of a search.
pub(super) struct Placer<'a> {
    pub(super) topology: &'a Topology,
    pub(super) endpoints: usize,
    pub(super) nets: usize,
    pub(super) networks: bool,
    pub(super) switched: bool,
    pub(super) reserve: Reserve,
    pub(super) net_left: Vec<f32>,
    used: Vec<u64>,
    pub(super) ports: PortLists,
    /// Per port: the nearest endpoints.
    pub(super) near: Vec<Vec<usize>>,
    /// Scratch space of `next_endpoints`.
    scores: Vec<Score>,
    pub(super) now: Candidate,
    pub(super) best: Candidate,
}

impl<'a> Placer<'a> {
    pub(super) fn new(topology: &'a Topology, now: Candidate) -> Self {
        let system = topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let nets = system.of_kind(NodeKind::Net);
        let near = nets
            .iter()
            .map(|net| nearest(topology.paths(), *net, endpoints).0);
        Self {
            topology,
            endpoints: endpoints.len(),
            nets: nets.len(),
            networks: topology.uses_networks(),
            switched: !system.of_kind(NodeKind::NvSwitch).is_empty(),
            reserve: Reserve::new(topology),
            net_left: (0..nets.len())
                .map(|n| system.net(n).map_or(0.0, |net| net.gbps))
                .collect(),
            used: vec![0; endpoints.len()],
            ports: PortLists {
                farthest: None,
                start: Rc::from([]),
                leave: Vec::new(),
            },
            near: near.collect(),
            scores: Vec::with_capacity(endpoints.len()),
            best: now.clone(),
            now,
        }
    }

    /// Searches from scratch at the speed and with the rules of `now`; improves `best`.
    pub(super) fn run(&mut self, budget: &mut Budget) {
        let farthest = self.now.type_inter;
        if self.networks && self.ports.farthest != Some(farthest) {
            let list = |endpoint| Rc::from(candidates(self.topology, endpoint, farthest));
            self.ports = PortLists {
                farthest: Some(farthest),
                start: list(None),
                leave: (0..self.endpoints)
                    .map(|endpoint| list(Some(endpoint)))
                    .collect(),
            };
        }
        self.now.channels = 0;
        self.channel(budget);
    }

    /// Places the next channel and, if it fits, those after it.
    fn channel(&mut self, budget: &mut Budget) {
        let last = self.endpoints - 1;
        let ring = self.now.pattern == Pattern::Ring;
        if self.networks {
            let to_net = match self.now.pattern {
                Pattern::Ring => last,
                Pattern::SplitTree => 1.min(last),
                _ => 0,
            };
            self.channel_from_net(
                Goal {
                    to_net: Some(to_net),
                    to_first: None,
                },
                budget,
            );
            return;
        }
        let goal = Goal {
            to_net: None,
            to_first: ring.then_some(last),
        };
        if self.now.pattern == Pattern::Nvls {
            if self.now.channels < self.endpoints {
                self.enter(None, self.now.channels, 0, goal, Order::Free, budget);
            }
            return;
        }
        if self.now.channels == 0 {
            self.enter(None, 0, 0, goal, Order::Bus, budget);
        } else {
            let first = self.previous(0);
            self.enter(None, first, 0, goal, Order::Replay, budget);
        }
        if !self.now.same_channels || self.now.channels == 0 {
            for first in 0..self.endpoints {
                self.enter(None, first, 0, goal, Order::Free, budget);
            }
        }
    }

    /// The endpoint that the previous channel visits at a step.
    pub(super) fn previous(&self, step: usize) -> usize {
        self.now.order[(self.now.channels - 1) * self.endpoints + step]
    }

    /// Reserves the way from `from` to `to` for `times` channels; checks its kind for one.
    pub(super) fn reserve(&mut self, from: Place, to: Place, gbps: f32, times: u8) -> bool {
        let route = self.reserve.route(from, to);
        let hops = route.hops as i64;
        let farthest = if route.inside {
            self.now.type_intra
        } else {
            self.now.type_inter
        };
        if route.kind >= PathKind::Disconnected {
            return false;
        }
        if times == 1
            && (route.kind > farthest || (self.now.pattern.is_tree() && route.back > farthest))
        {
            return false;
        }
        if !self.reserve.take(from, to, gbps * f32::from(times)) {
            return false;
        }
        self.now.hops += i64::from(times) * hops;
        true
    }

    pub(super) fn release(&mut self, from: Place, to: Place, gbps: f32, times: u8) {
        self.reserve.give_back(from, to, gbps * f32::from(times));
        self.now.hops -= i64::from(times) * self.reserve.route(from, to).hops as i64;
    }

    /// Goes on to an endpoint, if the way there has bandwidth left.
    pub(super) fn enter(
        &mut self,
        from: Option<Place>,
        to: usize,
        step: usize,
        goal: Goal,
        order: Order,
        budget: &mut Budget,
    ) {
        if budget.is_spent() {
            return;
        }
        let outside = from.is_some_and(|from| self.reserve.is_net(from, self.nets));
        let gbps = if outside {
            self.now.bw_inter
        } else {
            self.now.bw_intra
        };
        let target = self.reserve.endpoint(to);
        if let Some(from) = from
            && !self.reserve(from, target, gbps, 1)
        {
            return;
        }
        let flag = 1 << self.now.channels;
        self.used[to] ^= flag;
        self.visit(to, step, goal, order, budget);
        self.used[to] ^= flag;
        if let Some(from) = from {
            self.release(from, target, gbps, 1);
        }
    }

    /// At an endpoint: leave to a network, go to the next endpoint, close the ring, or finish.
    pub(super) fn visit(
        &mut self,
        at: usize,
        step: usize,
        goal: Goal,
        order: Order,
        budget: &mut Budget,
    ) {
        if !budget.spend() {
            return;
        }
        let count = self.endpoints;
        self.now.order[self.now.channels * count + step] = at;
        if goal.to_net == Some(step) {
            self.leave_to_net(at, step, goal, order, budget);
        } else if self.now.pattern == Pattern::Nvls {
            self.through_switch(at, budget);
        } else if step + 1 < count {
            let from = Some(self.reserve.endpoint(at));
            match order {
                Order::Bus => self.enter(from, step + 1, step + 1, goal, order, budget),
                Order::Replay => {
                    let to = self.previous(step + 1);
                    self.enter(from, to, step + 1, goal, order, budget);
                }
                Order::Free if self.switched => {
                    let neighbours = behind_switch(self.now.pattern, at, count);
                    // Free is what was so before the first of them was tried; trying one leaves
                    // everything as it was.
                    for to in neighbours.into_iter().flatten() {
                        if self.is_free(at, to) {
                            self.enter(from, to, step + 1, goal, order, budget);
                        }
                    }
                }
                Order::Free => {
                    for to in self.next_endpoints(at, step, goal) {
                        self.enter(from, to, step + 1, goal, order, budget);
                    }
                }
            }
        } else if goal.to_first == Some(step) {
            let first = self.now.order[self.now.channels * count];
            let (from, to) = (self.reserve.endpoint(at), self.reserve.endpoint(first));
            let gbps = self.now.bw_intra;
            if self.reserve(from, to, gbps, 1) {
                self.finish(budget);
                self.release(from, to, gbps, 1);
            }
        } else {
            self.finish(budget);
        }
    }

    /// All endpoints are placed: keep the solution if it is better, then try another channel.
    fn finish(&mut self, budget: &mut Budget) {
        if !budget.spend() {
            return;
        }
        let count = self.endpoints;
        self.now.channels += 1;
        if self.now.is_better_than(&self.best, count) {
            self.best.copy_from(&self.now, count);
            if self.now.channels == self.now.max_channels {
                budget.perfect = true;
            }
        }
        if self.now.channels < self.now.max_channels {
            self.channel(budget);
        }
        self.now.channels -= 1;
    }

    /// NVLS: every endpoint exchanges with the switch, the head twice.
    fn through_switch(&mut self, head: usize, budget: &mut Budget) {
        let gbps = self.now.bw_intra;
        let switch = self.reserve.switch();
        let mut taken = Vec::with_capacity(2 * self.endpoints);
        for leg in 0..2 * self.endpoints {
            let index = leg % self.endpoints;
            let endpoint = self.reserve.endpoint(index);
            let times = if index == head { 2 } else { 1 };
            let down = leg < self.endpoints;
            let (from, to) = if down {
                (switch, endpoint)
            } else {
                (endpoint, switch)
            };
            if !self.reserve(from, to, gbps, times) {
                break;
            }
            taken.push((from, to, times));
        }
        if taken.len() == 2 * self.endpoints {
            self.finish(budget);
        }
        for (from, to, times) in taken.into_iter().rev() {
            self.release(from, to, gbps, times);
        }
    }

    /// Whether a channel may go from one endpoint to another next.
    fn is_free(&self, at: usize, to: usize) -> bool {
        let flag = 1_u64 << self.now.channels;
        let route = self
            .reserve
            .route(self.reserve.endpoint(at), self.reserve.endpoint(to));
        at != to && self.used[to] & flag == 0 && route.hops > 0
    }

    /// The endpoints to try next, best first.
    fn next_endpoints(&mut self, at: usize, step: usize, goal: Goal) -> Vec<usize> {
        let count = self.endpoints;
        // When the channel leaves right after the next endpoint, that one should be near the port
        // it entered by; when it leaves later, the near ones should be kept for the end.
        let port = goal
            .to_net
            .map(|_| self.reserve.net(self.now.nets[self.now.channels][0]));
        let soon = goal.to_net == Some(step + 1);
        let mut scores = std::mem::take(&mut self.scores);
        scores.clear();
        for distance in 1..count {
            let to = (at + distance) % count;
            if self.is_free(at, to) {
                scores.push(Score::new(&self.reserve, port, at, to, distance));
            }
        }
        scores.sort_unstable();
        let tied = scores.windows(2).all(|pair| pair[0].ties_inside(&pair[1]));
        if port.is_some() && !soon && tied {
            scores.reverse();
        }
        let order = scores.iter().map(|score| score.to).collect();
        self.scores = scores;
        order
    }
}
