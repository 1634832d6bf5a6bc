//! The outer loop: which speeds, path kinds and liberties are tried, in which order.

use comm_core::{Error, ErrorKind};

use crate::model::{CpuArch, CpuVendor, NodeKind};
use crate::options::{CrossNic, Options};
use crate::path::{PathKind, Topology};

use super::budget::Budget;
use super::candidate::{Candidate, Graph, Pattern};
use super::place::Placer;
use super::speeds;
use super::survey::{has_two_islands, kinds};

/// The most channels a communicator ever has.
pub const MAX_CHANNELS: usize = 64;

/// The most heads of NVLS channels.
const MAX_NVLS_HEADS: usize = 32;

const GLOBAL_STEPS: i64 = 1 << 19;
const SEARCH_STEPS: i64 = 1 << 14;
const SAME_CHANNELS_STEPS: i64 = 1 << 8;

/// How many channels a search must and may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Solutions with fewer channels do not count.
    pub min_channels: usize,
    /// No more channels are looked for; at most [`MAX_CHANNELS`].
    pub max_channels: usize,
}

/// Searches channels of a pattern in a domain.
///
/// A result without channels is possible for [`Pattern::Nvls`] only: it needs an NVSwitch and GPUs
/// of compute capability 90 or more. The pattern of a tree may come back simpler. Domains of more
/// than about a dozen endpoints are searched on a short-lived thread with a larger stack.
///
/// # Errors
///
/// `InvalidArgument` when the limits are empty or beyond [`MAX_CHANNELS`]; `ResourceExhausted` when
/// the stack for a search over very many devices cannot be had.
pub fn search(
    topology: &Topology,
    pattern: Pattern,
    limits: Limits,
    options: &Options,
) -> Result<Graph, Error> {
    let Limits {
        min_channels,
        max_channels,
    } = limits;
    if min_channels > max_channels || !(1..=MAX_CHANNELS).contains(&max_channels) {
        let error = Error::new(
            ErrorKind::InvalidArgument,
            "the channel limits must satisfy 0 <= min <= max, 1 <= max <= 64",
        );
        return Err(error.with("min", min_channels).with("max", max_channels));
    }
    // Two frames per endpoint and channel, each well below 1 KiB even without optimisation; half
    // of the usual 2 MiB of a thread's stack may be used here.
    let frames = max_channels * (2 * topology.system().of_kind(NodeKind::Endpoint).len() + 8);
    let stack_bytes = frames * 1024;
    if stack_bytes <= 1 << 20 {
        return Ok(Computation::new(topology, pattern, limits, options).run());
    }
    std::thread::scope(|scope| {
        let work = || Computation::new(topology, pattern, limits, options).run();
        let thread = std::thread::Builder::new()
            .name("graph-search".to_owned())
            .stack_size(stack_bytes + (1 << 20))
            .spawn_scoped(scope, work)
            .map_err(|error| Error::system("starting the thread for a large search", error))?;
        thread.join().map_err(|_| {
            Error::new(
                ErrorKind::Internal,
                "the channel search failed; please report the file",
            )
        })
    })
}

struct Computation<'a> {
    placer: Placer<'a>,
    topology: &'a Topology,
    asked: Pattern,
    endpoints: usize,
    networks: bool,
    capability: Option<u32>,
    cross_nic: CrossNic,
    nearest_intra: PathKind,
    farthest_intra: PathKind,
    nearest_inter: PathKind,
    farthest_inter: PathKind,
    try_same_channels: bool,
    speeds: &'static [f32],
    speed: usize,
    global: i64,
}

impl<'a> Computation<'a> {
    fn new(
        topology: &'a Topology,
        mut pattern: Pattern,
        limits: Limits,
        options: &Options,
    ) -> Self {
        let system = topology.system();
        let endpoints = system.of_kind(NodeKind::Endpoint).len();
        let networks = topology.uses_networks();
        let capability = system.compute_capabilities().map(|(slowest, _)| slowest);
        let cross = system.of_kind(NodeKind::Net).len() > 1
            && networks
            && matches!(
                pattern,
                Pattern::Ring | Pattern::BalancedTree | Pattern::SplitTree
            );
        let cross_nic = if cross {
            options.cross_nic
        } else {
            CrossNic::Never
        };
        let (mut nearest_intra, mut farthest_intra) = (PathKind::Local, PathKind::System);
        if endpoints > 1 {
            (nearest_intra, farthest_intra) = kinds(topology, NodeKind::Endpoint);
        }
        let (mut nearest_inter, mut farthest_inter) = (PathKind::Pix, PathKind::System);
        if networks {
            (nearest_inter, farthest_inter) = kinds(topology, NodeKind::Net);
            if capability.is_none_or(|capability| capability < 90) {
                farthest_inter = PathKind::System;
            }
        }
        let Limits {
            mut min_channels,
            mut max_channels,
        } = limits;
        if pattern == Pattern::Nvls {
            max_channels = max_channels.min(MAX_NVLS_HEADS).min(endpoints);
            if !networks {
                min_channels = max_channels;
            }
        }
        let try_same_channels = pattern != Pattern::Nvls;
        if endpoints == 1 && pattern.is_tree() {
            pattern = Pattern::Tree;
        }
        if pattern == Pattern::Ring
            && min_channels == 1
            && max_channels >= 2
            && has_two_islands(topology)
        {
            min_channels = 2;
        }
        let candidate = Candidate {
            pattern,
            channels: 0,
            order: vec![0; max_channels * endpoints],
            nets: vec![[0; 2]; max_channels],
            bw_intra: 0.0,
            bw_inter: 0.0,
            type_intra: nearest_intra,
            type_inter: nearest_inter,
            same_channels: try_same_channels,
            cross_nic: u8::from(cross_nic == CrossNic::Always),
            latency_inter: 0.0,
            hops: 0,
            min_channels,
            max_channels,
        };
        Self {
            placer: Placer::new(topology, candidate),
            topology,
            asked: pattern,
            endpoints,
            networks,
            capability,
            cross_nic,
            nearest_intra,
            farthest_intra,
            nearest_inter,
            farthest_inter,
            try_same_channels,
            speeds: speeds::of(topology),
            speed: 0,
            global: GLOBAL_STEPS,
        }
    }

    fn run(mut self) -> Graph {
        let no_switch = self
            .topology
            .system()
            .of_kind(NodeKind::NvSwitch)
            .is_empty();
        let old = self.capability.is_none_or(|capability| capability < 90);
        if self.asked == Pattern::Nvls && (no_switch || old) {
            return self.placer.best.into_graph(self.endpoints, self.networks);
        }
        self.start_speed();
        self.first_pass();
        self.duplicate();
        self.second_pass();
        if self.placer.best.channels == 0 && self.asked != Pattern::Nvls {
            self.last_resort();
        }
        self.placer.best.into_graph(self.endpoints, self.networks)
    }

    fn set_speed(&mut self, speed: usize) {
        self.speed = speed;
        self.placer.now.bw_intra = self.speeds[speed];
        self.placer.now.bw_inter = self.speeds[speed];
    }

    /// The first speed that a path and the device's links can carry.
    fn start_speed(&mut self) {
        let mut total = self.topology.total_gbps();
        if self.endpoints > 1 && self.asked != Pattern::Ring {
            total *= self.endpoints as f32 / (self.endpoints as f32 - 1.0);
        }
        let least = self.placer.now.min_channels as f32;
        let fits = |speed: &f32| *speed <= self.topology.max_gbps() && *speed * least <= total;
        let start = self
            .speeds
            .iter()
            .position(fits)
            .unwrap_or(self.speeds.len() - 1);
        self.set_speed(start);
    }

    /// One search with the present rules. `None`: a perfect solution; otherwise the steps left.
    fn attempt(&mut self) -> Option<i64> {
        let same = self.placer.now.same_channels;
        let steps = if same {
            SAME_CHANNELS_STEPS
        } else {
            SEARCH_STEPS
        };
        self.global -= steps;
        if !self.placer.is_possible() {
            return Some(steps);
        }
        let mut budget = Budget::new(steps);
        self.placer.run(&mut budget);
        if budget.perfect {
            None
        } else {
            Some(budget.left())
        }
    }

    /// Relaxes one rule after the other, like the digits of an odometer, until nothing better is
    /// to be expected.
    fn first_pass(&mut self) {
        loop {
            let Some(left) = self.attempt() else { return };
            let best = &self.placer.best;
            if best.channels as f32 * best.bw_inter >= self.topology.total_gbps() {
                return;
            }
            if !self.relax(left) {
                return;
            }
        }
    }

    /// Picks the next relaxation; `false` when the first pass is over.
    fn relax(&mut self, left: i64) -> bool {
        let amd = self
            .topology
            .system()
            .cpu(0)
            .is_some_and(|cpu| cpu.arch == CpuArch::X86 && cpu.vendor == CpuVendor::Amd);
        let (now, best) = (&mut self.placer.now, &self.placer.best);
        if now.same_channels && !(amd && now.type_intra == PathKind::System) {
            now.same_channels = false;
            return true;
        }
        now.same_channels = self.try_same_channels;
        self.global += left;
        if self.global < 0 && best.channels > 0 {
            return false;
        }
        let recent = self.capability.is_some_and(|capability| capability >= 90);
        if recent && now.pattern == Pattern::BalancedTree {
            now.pattern = Pattern::Tree;
            return true;
        }
        // A simpler tree that was found stays.
        now.pattern = best.pattern;
        let farthest = if self.networks {
            now.type_inter
        } else {
            self.farthest_intra
        };
        if now.type_intra < farthest && (best.channels == 0 || now.type_intra < best.type_intra) {
            now.type_intra = now.type_intra.farther();
            if now.type_intra < PathKind::Disconnected {
                return true;
            }
        }
        now.type_intra = self.nearest_intra;
        if self.networks
            && now.type_inter < self.farthest_inter
            && (best.channels == 0
                || now.type_inter < best.type_inter
                || now.type_inter < PathKind::Pxn)
        {
            now.type_inter = now.type_inter.farther();
            if now.type_inter < PathKind::Disconnected {
                return true;
            }
        }
        now.type_inter = self.nearest_inter;
        if self.cross_nic == CrossNic::Try
            && now.cross_nic == 0
            && matches!(now.pattern, Pattern::Ring | Pattern::BalancedTree)
        {
            now.cross_nic = 2;
            return true;
        }
        now.cross_nic = u8::from(self.cross_nic == CrossNic::Always);
        if let Some(next) = self.speeds.get(self.speed + 1)
            && (best.channels == 0 || next / best.bw_inter > 0.49)
        {
            self.set_speed(self.speed + 1);
            return true;
        }
        false
    }

    /// Splits fast channels in two: more channels keep more of the device busy.
    fn duplicate(&mut self) {
        let endpoints = self.endpoints;
        let best = &mut self.placer.best;
        let found = best.channels;
        let recent = self.capability.is_some_and(|capability| capability > 80);
        if found == 0
            || best.pattern == Pattern::Nvls
            || best.bw_intra < 25.0
            || self.capability.is_none()
            || (recent && best.bw_intra < 50.0 && found > 4)
        {
            return;
        }
        let wanted = (2 * found).min(best.max_channels);
        for channel in found..wanted {
            best.order.copy_within(
                (channel - found) * endpoints..(channel - found + 1) * endpoints,
                channel * endpoints,
            );
            best.nets[channel] = best.nets[channel - found];
        }
        let factor = wanted.div_ceil(found) as f32;
        best.bw_intra /= factor;
        best.bw_inter /= factor;
        best.channels = wanted;
    }

    /// From the solution, tries more bandwidth with at least as many channels.
    fn second_pass(&mut self) {
        let (now, best) = (&mut self.placer.now, &self.placer.best);
        if best.channels == 0 {
            return;
        }
        now.copy_from(best, self.endpoints);
        now.min_channels = best.channels;
        let reached = self.speeds.iter().position(|speed| *speed <= best.bw_inter);
        self.set_speed(reached.unwrap_or(self.speeds.len() - 1));
        while self.speed > 0 {
            let (now, best) = (&mut self.placer.now, &self.placer.best);
            let faster = self.speeds[self.speed - 1];
            match best.pattern {
                Pattern::Ring => {
                    now.bw_intra = faster;
                    now.bw_inter = faster;
                }
                Pattern::Nvls => {
                    if now.bw_inter != best.bw_inter || now.bw_inter >= now.bw_intra * 2.0 {
                        return;
                    }
                    now.min_channels = best.channels;
                    now.max_channels = best.channels;
                    now.bw_inter = faster;
                }
                _ => {
                    if now.bw_intra != best.bw_intra || now.bw_intra >= now.bw_inter * 2.0 {
                        return;
                    }
                    now.bw_intra = faster;
                }
            }
            self.speed -= 1;
            if self.attempt() == Some(0) {
                return;
            }
        }
    }

    /// One slow channel in system order: always possible.
    fn last_resort(&mut self) {
        let best = &mut self.placer.best;
        for index in 0..self.endpoints {
            best.order[index] = index;
        }
        best.nets[0] = [0, 0];
        if self.networks {
            let local = self.topology.local_nets();
            let last = self.endpoints - 1;
            best.nets[0] = [
                local.net(0, 0).unwrap_or(0),
                local.net(last, 0).unwrap_or(0),
            ];
        }
        best.bw_intra = 0.1;
        best.bw_inter = 0.1;
        best.type_intra = PathKind::System;
        best.type_inter = PathKind::System;
        best.channels = 1;
    }
}
