//! One bounded depth-first search: placing channels at a given speed.
//!
//! A channel is a walk over all endpoints. `channel` starts one, `enter` reserves the way to the
//! next endpoint, `visit` decides what follows there, and everything is undone on the way back.
//! The recursion is `channels x endpoints` deep; the caller provides the stack.

use crate::model::{NodeId, NodeKind};
use crate::path::Topology;

use super::candidate::{Candidate, Pattern};
use super::nets::candidates;
use super::reserve::Reserve;

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

    pub(super) fn left(self) -> i64 {
        if self.perfect { -1 } else { self.left }
    }

    fn spend(&mut self) -> bool {
        if self.perfect || self.left <= 0 {
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
    endpoints: &'a [NodeId],
    nets: &'a [NodeId],
    devices: Vec<NodeId>,
    networks: bool,
    reserve: Reserve<'a>,
    net_left: Vec<f32>,
    used: Vec<u64>,
    pub(super) now: Candidate,
    pub(super) best: Candidate,
}

impl<'a> Placer<'a> {
    pub(super) fn new(topology: &'a Topology, now: Candidate) -> Self {
        let system = topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint);
        let nets = system.of_kind(NodeKind::Net);
        let device =
            |endpoint: &NodeId| system.device_of(*endpoint).map_or(*endpoint, |(id, _)| id);
        Self {
            topology,
            endpoints,
            nets,
            devices: endpoints.iter().map(device).collect(),
            networks: topology.uses_networks(),
            reserve: Reserve::new(system),
            net_left: (0..nets.len())
                .map(|n| system.net(n).map_or(0.0, |net| net.gbps))
                .collect(),
            used: vec![0; endpoints.len()],
            best: now.clone(),
            now,
        }
    }

    /// Searches from scratch at the speed and with the rules of `now`; improves `best`.
    pub(super) fn run(&mut self, budget: &mut Budget) {
        self.now.channels = 0;
        self.channel(budget);
    }

    /// Places the next channel and, if it fits, those after it.
    fn channel(&mut self, budget: &mut Budget) {
        let last = self.endpoints.len() - 1;
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
            if self.now.channels < self.endpoints.len() {
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
            for first in 0..self.endpoints.len() {
                self.enter(None, first, 0, goal, Order::Free, budget);
            }
        }
    }

    /// The endpoint that the previous channel visits at a step.
    fn previous(&self, step: usize) -> usize {
        self.now.order[(self.now.channels - 1) * self.endpoints.len() + step]
    }

    fn channel_from_net(&mut self, goal: Goal, budget: &mut Budget) {
        let system = self.topology.system();
        // The reservation on ports is in whole GB/s; slower channels are held back by their links.
        let gbps = self.now.bw_inter.trunc();
        let list = candidates(self.topology, None, self.now.type_inter);
        let channel = self.now.channels;
        let heads = self.now.pattern == Pattern::Nvls;
        for attempt in 0..list.len() {
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
            if heads {
                let head = self.topology.local_nets().endpoint(net);
                if let Some(head) = head.filter(|_| channel < list.len())
                    && !self.is_head(head)
                {
                    self.enter(Some(self.nets[net]), head, 0, goal, Order::Free, budget);
                }
            } else if channel > 0 && self.now.same_channels {
                let first = self.previous(0);
                self.enter(Some(self.nets[net]), first, 0, goal, Order::Replay, budget);
            } else {
                self.channel_from_port(net, goal, budget);
            }
            self.charge_port(net, -gbps);
        }
    }

    /// Starts a channel at a port: in bus order, then at the endpoints nearest to the port.
    fn channel_from_port(&mut self, net: usize, goal: Goal, budget: &mut Budget) {
        let from = Some(self.nets[net]);
        let switched = !self
            .topology
            .system()
            .of_kind(NodeKind::NvSwitch)
            .is_empty();
        if self.now.channels == 0 && !switched {
            // Sets a reference; must not use up the budget of the real search.
            let mut short = Budget::new(1 << 10);
            self.enter(from, 0, 0, goal, Order::Bus, &mut short);
            budget.perfect |= short.perfect;
        }
        let preferred = self.topology.local_nets().endpoint(net);
        if let Some(preferred) = preferred {
            self.enter(from, preferred, 0, goal, Order::Free, budget);
        }
        let (near, _) = crate::path::nearest(self.topology.paths(), self.nets[net], self.endpoints);
        for first in near {
            if Some(first) != preferred {
                self.enter(from, first, 0, goal, Order::Free, budget);
            }
        }
    }

    fn is_head(&self, endpoint: usize) -> bool {
        let heads = (0..self.now.channels).map(|c| self.now.order[c * self.endpoints.len()]);
        heads.into_iter().any(|head| head == endpoint)
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
    fn reserve(&mut self, from: NodeId, to: NodeId, gbps: f32, times: u8) -> bool {
        let system = self.topology.system();
        let between = |node| {
            matches!(
                system.node(node).kind(),
                NodeKind::Endpoint | NodeKind::NvSwitch
            )
        };
        let farthest = if between(from) && between(to) {
            self.now.type_intra
        } else {
            self.now.type_inter
        };
        let path = self.topology.paths().get(from, to);
        if path.kind >= crate::path::PathKind::Disconnected {
            return false;
        }
        if times == 1 {
            let back = self.topology.paths().get(to, from);
            if path.kind > farthest || (self.now.pattern.is_tree() && back.kind > farthest) {
                return false;
            }
        }
        if !self.reserve.take(from, path, gbps * f32::from(times)) {
            return false;
        }
        self.now.hops += i64::from(times) * path.hops() as i64;
        true
    }

    fn release(&mut self, from: NodeId, to: NodeId, gbps: f32, times: u8) {
        let path = self.topology.paths().get(from, to);
        self.reserve.give_back(from, path, gbps * f32::from(times));
        self.now.hops -= i64::from(times) * path.hops() as i64;
    }

    /// Goes on to an endpoint, if the way there has bandwidth left.
    fn enter(
        &mut self,
        from: Option<NodeId>,
        to: usize,
        step: usize,
        goal: Goal,
        order: Order,
        budget: &mut Budget,
    ) {
        let gbps = match from.map(|from| self.topology.system().node(from).kind()) {
            Some(NodeKind::Net) => self.now.bw_inter,
            _ => self.now.bw_intra,
        };
        let target = self.endpoints[to];
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
        let count = self.endpoints.len();
        self.now.order[self.now.channels * count + step] = at;
        if goal.to_net == Some(step) {
            self.leave_to_net(at, step, goal, order, budget);
        } else if self.now.pattern == Pattern::Nvls {
            self.through_switch(at, budget);
        } else if step + 1 < count {
            let next = match order {
                Order::Bus => vec![step + 1],
                Order::Replay => vec![self.previous(step + 1)],
                Order::Free => self.next_endpoints(at, step, goal),
            };
            for to in next {
                self.enter(Some(self.endpoints[at]), to, step + 1, goal, order, budget);
            }
        } else if goal.to_first == Some(step) {
            let first = self.now.order[self.now.channels * count];
            let (from, to, gbps) = (self.endpoints[at], self.endpoints[first], self.now.bw_intra);
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
        let count = self.endpoints.len();
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
        for net in candidates(self.topology, Some(at), self.now.type_inter) {
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
            let (from, to) = (self.endpoints[at], self.nets[net]);
            if self.reserve(from, to, gbps, 1) {
                self.now.nets[channel][1] = net;
                self.visit(at, step, Goal { to_net, ..goal }, order, budget);
                self.release(from, to, gbps, 1);
            }
        }
    }

    /// NVLS: every endpoint exchanges with the switch, the head twice.
    fn through_switch(&mut self, head: usize, budget: &mut Budget) {
        let Some(switch) = self
            .topology
            .system()
            .of_kind(NodeKind::NvSwitch)
            .first()
            .copied()
        else {
            return;
        };
        let gbps = self.now.bw_intra;
        let endpoints = self.endpoints;
        let down = endpoints.iter().map(|endpoint| (switch, *endpoint));
        let up = endpoints.iter().map(|endpoint| (*endpoint, switch));
        let mut taken = Vec::with_capacity(2 * endpoints.len());
        for (from, to) in down.chain(up) {
            let own = from == endpoints[head] || to == endpoints[head];
            let times = if own { 2 } else { 1 };
            if !self.reserve(from, to, gbps, times) {
                break;
            }
            taken.push((from, to, times));
        }
        if taken.len() == 2 * endpoints.len() {
            self.finish(budget);
        }
        for (from, to, times) in taken.into_iter().rev() {
            self.release(from, to, gbps, times);
        }
    }

    /// The endpoints to try next, best first.
    fn next_endpoints(&self, at: usize, step: usize, goal: Goal) -> Vec<usize> {
        let count = self.endpoints.len();
        let flag = 1_u64 << self.now.channels;
        let paths = self.topology.paths();
        // When the channel leaves right after the next endpoint, that one should be near the port
        // it entered by; when it leaves later, the near ones should be kept for the end.
        let port = goal
            .to_net
            .map(|_| self.nets[self.now.nets[self.now.channels][0]]);
        let soon = goal.to_net == Some(step + 1);
        let mut scores: Vec<Score> = (1..count)
            .map(|distance| (distance, (at + distance) % count))
            .filter(|(_, to)| self.used[*to] & flag == 0)
            .filter_map(|(distance, to)| {
                let path = paths.get(self.endpoints[at], self.endpoints[to]);
                if path.hops() == 0 {
                    return None;
                }
                let from_port = port.map(|port| paths.get(port, self.endpoints[to]));
                let host_side = port.map(|_| self.reserve.host_side(self.devices[to]) as i64);
                Some(Score {
                    to,
                    distance,
                    inter_gbps: from_port.map_or(0, |path| path.gbps as i64),
                    inter_host_gbps: host_side.unwrap_or(0),
                    inter_hops: from_port.map_or(0, |path| path.hops()),
                    intra_gbps: path.gbps as i64,
                    intra_hops: path.hops(),
                })
            })
            .collect();
        scores.sort_by_key(Score::key);
        let tied = scores.windows(2).all(|pair| {
            (pair[0].intra_gbps, pair[0].intra_hops) == (pair[1].intra_gbps, pair[1].intra_hops)
        });
        if port.is_some() && !soon && tied {
            scores.reverse();
        }
        let order: Vec<usize> = scores.iter().map(|score| score.to).collect();
        if self
            .topology
            .system()
            .of_kind(NodeKind::NvSwitch)
            .is_empty()
        {
            return order;
        }
        // Behind a switch all are equal: a fixed set of neighbours keeps the search small.
        let (next, previous) = ((at + 1) % count, (at + count - 1) % count);
        let mut neighbours = match self.now.pattern {
            Pattern::Ring => vec![previous, next],
            Pattern::BalancedTree | Pattern::SplitTree => vec![next, previous],
            _ => vec![next],
        };
        if next == previous {
            neighbours.truncate(1);
        }
        neighbours.retain(|neighbour| order.contains(neighbour));
        neighbours
    }
}

/// What decides which endpoint comes next; bandwidths in whole GB/s.
struct Score {
    to: usize,
    distance: usize,
    inter_gbps: i64,
    inter_host_gbps: i64,
    inter_hops: usize,
    intra_gbps: i64,
    intra_hops: usize,
}

impl Score {
    fn key(&self) -> (i64, i64, usize, i64, usize, usize) {
        let Self {
            distance,
            inter_gbps,
            inter_host_gbps,
            ..
        } = self;
        let (inter_hops, intra_hops) = (self.inter_hops, self.intra_hops);
        (
            -inter_gbps,
            -inter_host_gbps,
            inter_hops,
            -self.intra_gbps,
            intra_hops,
            *distance,
        )
    }
}
