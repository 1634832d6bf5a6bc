//! One bounded depth-first search: placing channels at a given speed.
//!
//! A channel is a walk over all endpoints. `channel` starts one, `enter` reserves the way to the
//! next endpoint, `visit` decides what follows there, and everything is undone on the way back.
//! The recursion is `channels x endpoints` deep; the caller provides the stack.

use std::rc::Rc;

use crate::model::NodeKind;
use crate::path::{PathKind, Topology, nearest};

use super::candidate::{Candidate, Pattern};
use super::nets::candidates;
use super::order::{Score, behind_switch};
use super::reserve::{Place, Reserve};

/// The steps a search may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: i64,
    /// A solution was found that cannot be improved at this speed.
    pub(super) perfect: bool,
}

impl Budget {
    pub(super) const fn new(steps: i64) -> Self {
        Self {
            left: steps,
            perfect: false,
        }
    }

    /// The steps left; 0 when none are.
    pub(super) const fn left(self) -> i64 {
        self.left
    }

    const fn is_spent(self) -> bool {
        self.perfect || self.left <= 0
    }

    fn spend(&mut self) -> bool {
        if self.is_spent() {
            return false;
        }
        self.left -= 1;
        true
    }
}

/// What a channel still has to do besides visiting every endpoint.
#[derive(Clone, Copy)]
struct Goal {
    /// The step at which it leaves to a network.
    to_net: Option<usize>,
    /// The step at which it returns to its first endpoint.
    to_first: Option<usize>,
}

/// How the next endpoint is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By score, all possibilities.
    Free,
    /// By index, as the devices are on the PCI bus.
    Bus,
    /// As in the previous channel.
    Replay,
}

/// State of a search.
pub(super) struct Placer<'a> {
    topology: &'a Topology,
    endpoints: usize,
    nets: usize,
    networks: bool,
    switched: bool,
    reserve: Reserve,
    net_left: Vec<f32>,
    used: Vec<u64>,
    ports: PortLists,
    /// Per port: the nearest endpoints.
    near: Vec<Vec<usize>>,
    /// Scratch space of `next_endpoints`.
    scores: Vec<Score>,
    pub(super) now: Candidate,
    pub(super) best: Candidate,
}

/// The order in which ports are tried, for one farthest kind of path.
struct PortLists {
    farthest: Option<PathKind>,
    start: Rc<[usize]>,
    leave: Vec<Rc<[usize]>>,
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

    /// Whether the present rules leave any chance: endpoints hang together over routes that are
    /// near and fast enough, and some route leads in from and out to a network.
    ///
    /// Spares the many searches that can only fail.
    pub(super) fn is_possible(&self) -> bool {
        if self.now.pattern == Pattern::Nvls {
            return true;
        }
        let tree = self.now.pattern.is_tree();
        let usable = |from, to, gbps: f32| {
            let route = self.reserve.route(from, to);
            let farthest = if route.inside {
                self.now.type_intra
            } else {
                self.now.type_inter
            };
            route.kind <= farthest && route.gbps >= gbps && (!tree || route.back <= farthest)
        };
        let place = |endpoint| self.reserve.endpoint(endpoint);
        let mut reached = vec![false; self.endpoints];
        let mut pending = vec![0];
        reached[0] = true;
        while let Some(at) = pending.pop() {
            for (to, reached) in reached.iter_mut().enumerate() {
                let gbps = self.now.bw_intra;
                let linked =
                    usable(place(at), place(to), gbps) || usable(place(to), place(at), gbps);
                if !*reached && linked {
                    *reached = true;
                    pending.push(to);
                }
            }
        }
        let ports = || (0..self.nets).map(|net| self.reserve.net(net));
        let outside = |enter: bool| {
            ports().any(|net| {
                (0..self.endpoints).map(place).any(|endpoint| {
                    let half = self.now.bw_inter / 2.0;
                    if enter {
                        usable(net, endpoint, self.now.bw_inter)
                    } else {
                        usable(endpoint, net, half)
                    }
                })
            })
        };
        let networked = !self.networks || (outside(true) && outside(false));
        reached.into_iter().all(|reached| reached) && networked
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
    fn previous(&self, step: usize) -> usize {
        self.now.order[(self.now.channels - 1) * self.endpoints + step]
    }

    fn channel_from_net(&mut self, goal: Goal, budget: &mut Budget) {
        let system = self.topology.system();
        // The reservation on ports is in whole GB/s; slower channels are held back by their links.
        let gbps = self.now.bw_inter.trunc();
        let list = Rc::clone(&self.ports.start);
        let channel = self.now.channels;
        for attempt in 0..list.len() {
            if budget.is_spent() {
                return;
            }
            let net = list[(channel + attempt) % list.len()];
            let Some(port) = system.net(net) else {
                continue;
            };
            if self.net_left[net] < gbps {
                continue;
            }
            if self.now.pattern == Pattern::Ring
                && self.now.cross_nic == 2
                && channel % 2 == 1
                && net != self.now.nets[channel - 1][1]
            {
                continue;
            }
            self.now.nets[channel][0] = net;
            self.now.latency_inter = port.latency_us;
            self.charge_port(net, gbps);
            let from = Some(self.reserve.net(net));
            if self.now.pattern == Pattern::Nvls {
                let head = self.topology.local_nets().endpoint(net);
                if let Some(head) = head.filter(|_| channel < list.len())
                    && !self.is_head(head)
                {
                    self.enter(from, head, 0, goal, Order::Free, budget);
                }
            } else if channel > 0 && self.now.same_channels {
                let first = self.previous(0);
                self.enter(from, first, 0, goal, Order::Replay, budget);
            } else {
                self.channel_from_port(net, goal, budget);
            }
            self.charge_port(net, -gbps);
        }
    }

    /// Starts a channel at a port: in bus order, then at the endpoints nearest to the port.
    fn channel_from_port(&mut self, net: usize, goal: Goal, budget: &mut Budget) {
        let from = Some(self.reserve.net(net));
        if self.now.channels == 0 && !self.switched {
            // Sets a reference; must not use up the budget of the real search.
            let mut short = Budget::new(1 << 10);
            self.enter(from, 0, 0, goal, Order::Bus, &mut short);
            budget.perfect |= short.perfect;
        }
        let preferred = self.topology.local_nets().endpoint(net);
        if let Some(preferred) = preferred {
            self.enter(from, preferred, 0, goal, Order::Free, budget);
        }
        for index in 0..self.near[net].len() {
            let first = self.near[net][index];
            if Some(first) != preferred {
                self.enter(from, first, 0, goal, Order::Free, budget);
            }
        }
    }

    fn is_head(&self, endpoint: usize) -> bool {
        let mut heads = (0..self.now.channels).map(|c| self.now.order[c * self.endpoints]);
        heads.any(|head| head == endpoint)
    }

    /// Takes bandwidth off every net that is the same physical port.
    fn charge_port(&mut self, net: usize, gbps: f32) {
        let system = self.topology.system();
        let Some(port) = system.net(net) else { return };
        for (index, left) in self.net_left.iter_mut().enumerate() {
            if system.net(index).is_some_and(|other| other.same_port(port)) {
                *left -= gbps;
            }
        }
    }

    /// Reserves the way from `from` to `to` for `times` channels; checks its kind for one.
    fn reserve(&mut self, from: Place, to: Place, gbps: f32, times: u8) -> bool {
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

    fn release(&mut self, from: Place, to: Place, gbps: f32, times: u8) {
        self.reserve.give_back(from, to, gbps * f32::from(times));
        self.now.hops -= i64::from(times) * self.reserve.route(from, to).hops as i64;
    }

    /// Goes on to an endpoint, if the way there has bandwidth left.
    fn enter(
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
    fn visit(&mut self, at: usize, step: usize, goal: Goal, order: Order, budget: &mut Budget) {
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

    fn leave_to_net(
        &mut self,
        at: usize,
        step: usize,
        goal: Goal,
        order: Order,
        budget: &mut Budget,
    ) {
        let system = self.topology.system();
        let channel = self.now.channels;
        let entry = self.now.nets[channel][0];
        let balanced = self.now.pattern == Pattern::BalancedTree;
        // A balanced tree spreads its network traffic over its first two endpoints.
        let gbps = if balanced {
            self.now.bw_inter / 2.0
        } else {
            self.now.bw_inter
        };
        let to_net = (balanced && step == 0).then_some(1);
        let list = Rc::clone(&self.ports.leave[at]);
        for net in list.iter().copied() {
            let (Some(port), Some(start)) = (system.net(net), system.net(entry)) else {
                continue;
            };
            let allowed = port.plane == start.plane
                && match (self.now.pattern, self.now.cross_nic) {
                    (Pattern::Tree, _) if net != entry => false,
                    (Pattern::Ring, 2) => {
                        channel.is_multiple_of(2) || net == self.now.nets[channel - 1][0]
                    }
                    (_, 0) => port.same_port(start) || (port.rail >= 0 && port.rail == start.rail),
                    _ => true,
                };
            let second = balanced && step > 0 && net != self.now.nets[channel][1];
            if !allowed || second {
                continue;
            }
            let (from, to) = (self.reserve.endpoint(at), self.reserve.net(net));
            if self.reserve(from, to, gbps, 1) {
                self.now.nets[channel][1] = net;
                self.visit(at, step, Goal { to_net, ..goal }, order, budget);
                self.release(from, to, gbps, 1);
            }
        }
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
        if self.switched {
            let mut neighbours = behind_switch(self.now.pattern, at, count);
            neighbours.retain(|to| self.is_free(at, *to));
            return neighbours;
        }
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
