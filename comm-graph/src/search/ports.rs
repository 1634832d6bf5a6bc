//! Channels and networks: entering by a port, leaving by a port, and whether that can work at all.

use std::rc::Rc;

use crate::path::PathKind;

use super::budget::{Budget, Goal, Order};
use super::candidate::Pattern;
use super::place::Placer;

/// The order in which ports are tried, for one farthest kind of path.
pub(super) struct PortLists {
    pub(super) farthest: Option<PathKind>,
    pub(super) start: Rc<[usize]>,
    pub(super) leave: Vec<Rc<[usize]>>,
}

impl Placer<'_> {
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

    pub(super) fn channel_from_net(&mut self, goal: Goal, budget: &mut Budget) {
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

    pub(super) fn leave_to_net(
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
}
