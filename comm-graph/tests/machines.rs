//! Plans of machines that nobody built: random topologies, uneven hosts, variables that guide the
//! search.

use comm_core::ErrorKind;
use comm_graph::model::{HostMemory, NodeKind, System, build};
use comm_graph::path::{PathKind, Topology};
use comm_graph::plan::{HostRanks, Plan, RankFacts, plan_for_hosts};
use comm_graph::search::{Limits, Pattern, search};
use comm_graph::tuning::{Algorithm, Collective, CostModel};
use comm_graph::xml::{Document, ElementId, parse};
use comm_graph::{CrossNic, Options};
use proptest::prelude::*;

#[path = "checker/mod.rs"]
mod checker;
mod fixtures;

/// What a random machine is made of.
#[derive(Clone, Debug)]
struct Recipe {
    sockets: usize,
    vendor: &'static str,
    capability: u32,
    gpus: usize,
    slots: usize,
    /// Depth and place of each GPU's switches.
    depth: Vec<usize>,
    /// Pairs of GPUs with NVLink.
    mesh: Vec<(usize, usize, usize)>,
    switched: bool,
    nets: Vec<usize>,
    gdr: bool,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let counts = (
        1..4_usize,
        0..6_usize,
        0..4_usize,
        any::<bool>(),
        any::<bool>(),
    );
    let parts = (
        prop::sample::select(vec!["GenuineIntel", "AuthenticAMD", "other"]),
        prop::sample::select(vec![60_u32, 70, 80, 86, 90, 100]),
        prop::collection::vec(0..3_usize, 6),
        prop::collection::vec((0..6_usize, 0..6_usize, 1..5_usize), 0..10),
        prop::collection::vec(
            prop::sample::select(vec![1000, 10_000, 100_000, 400_000]),
            0..4,
        ),
    );
    (counts, parts).prop_map(
        |((sockets, gpus, slots, switched, gdr), (vendor, capability, depth, mesh, nets))| Recipe {
            sockets,
            vendor,
            capability,
            gpus,
            slots: if gpus == 0 { slots.max(1) } else { 0 },
            depth,
            mesh,
            switched,
            nets,
            gdr,
        },
    )
}

fn machine(recipe: &Recipe) -> Document {
    let mut document = Document::new("random.xml");
    let root = document.root();
    let mut bus = 0;
    let mut pci = |document: &mut Document, parent: ElementId, class: &str| {
        bus += 1;
        let pci = document.add(parent, "pci");
        document.set(pci, "busid", format!("0000:{bus:02x}:00.0"));
        document.set(pci, "class", class);
        document.set(pci, "link_speed", "16.0 GT/s PCIe");
        document.set(pci, "link_width", 16);
        (pci, format!("0000:{bus:02x}:00.0"))
    };
    let mut cpus = Vec::new();
    for socket in 0..recipe.sockets {
        let cpu = document.add(root, "cpu");
        document.set(cpu, "numaid", socket);
        document.set(cpu, "arch", "x86_64");
        document.set(cpu, "vendor", recipe.vendor);
        document.set(cpu, "modelid", 85);
        cpus.push(cpu);
    }
    let mut cards = Vec::new();
    for gpu in 0..recipe.gpus {
        let mut parent = cpus[gpu % cpus.len()];
        for _ in 0..recipe.depth[gpu] {
            parent = pci(&mut document, parent, "0x060400").0;
        }
        let (card, bus_id) = pci(&mut document, parent, "0x030200");
        let card = document.add(card, "gpu");
        document.set(card, "dev", gpu);
        document.set(card, "sm", recipe.capability);
        document.set(card, "gdr", u8::from(recipe.gdr));
        cards.push((card, bus_id));
    }
    let mut link = |card: ElementId, target: &str, count: usize, class: &str| {
        let link = document.add(card, "nvlink");
        document.set(link, "target", target);
        document.set(link, "count", count);
        document.set(link, "tclass", class);
    };
    for (a, b, count) in &recipe.mesh {
        if a != b && *a < cards.len() && *b < cards.len() && !recipe.switched {
            link(cards[*a].0, &cards[*b].1, *count, "0x030200");
            link(cards[*b].0, &cards[*a].1, *count, "0x030200");
        }
    }
    if recipe.switched {
        cards
            .iter()
            .for_each(|(card, _)| link(*card, "0000:ff:00.0", 4, "0x068000"));
    }
    for slot in 0..recipe.slots {
        let endpoint = document.add(cpus[slot % cpus.len()], "endpoint");
        document.set(endpoint, "dev", slot);
    }
    for (dev, speed) in recipe.nets.iter().enumerate() {
        let (card, _) = pci(&mut document, cpus[dev % cpus.len()], "0x020000");
        let nic = document.add(card, "nic");
        let net = document.add(nic, "net");
        document.set(net, "dev", dev);
        document.set(net, "speed", speed);
        document.set(net, "guid", format!("{:#x}", dev + 1));
        document.set(net, "gdr", u8::from(recipe.gdr));
    }
    document
}

fn check_plan(plan: &Plan) {
    plan.validate().unwrap();
    for domain in plan.domains() {
        for graph in [&domain.ring, &domain.tree, &domain.nvls] {
            if let Err(problem) = checker::check(&domain.topology, graph) {
                panic!("{problem}: {graph:?}");
            }
        }
    }
    let model = CostModel::new(plan);
    if plan.ranks() > 1 {
        let predictions = model.predict(Collective::AllReduce, 1 << 20);
        assert!(
            predictions
                .iter()
                .any(|prediction| prediction.algorithm == Algorithm::Ring)
        );
        assert!(
            predictions
                .iter()
                .all(|prediction| prediction.time_us > 0.0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn random_machines_and_uneven_hosts_have_valid_plans(
        recipes in prop::collection::vec(recipe(), 1..4),
        hosts in 1..6_usize,
    ) {
        let systems: Vec<System> =
            recipes.iter().map(|recipe| build(&machine(recipe)).unwrap()).collect();
        let hosts = Plan::hosts_in_turn(&systems, hosts);
        let plan = Plan::new(systems.clone(), &hosts, &Options::default()).unwrap();
        check_plan(&plan);
        let again = Plan::new(systems, &hosts, &Options::default()).unwrap();
        prop_assert_eq!(plan.fingerprint(), again.fingerprint());
    }

    #[test]
    fn any_placement_of_ranks_on_hosts_has_a_valid_plan(
        places in prop::collection::vec((0..5_u64, -1..3_i32), 1..40),
    ) {
        let facts: Vec<RankFacts> =
            places.into_iter().map(|(host, numa)| RankFacts { host, numa }).collect();
        let plan = plan_for_hosts(&facts, &HostMemory::default(), &Options::default()).unwrap();
        check_plan(plan.plan());
        prop_assert!(plan.channels() > 0);
    }

    #[test]
    fn any_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(document) = parse("fuzz.xml", &bytes) {
            drop(build(&document));
        }
    }

    #[test]
    fn damaged_files_end_in_a_value_or_an_error(
        recipe in recipe(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 32..127_u8), 1..6),
    ) {
        let mut bytes = machine(&recipe).to_xml().into_bytes();
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let system = parse("damaged.xml", &bytes).and_then(|document| build(&document));
        if let Ok(system) = system
            && let Ok(plan) = Plan::uniform(system, 2, &Options::default())
        {
            plan.validate().unwrap();
        }
    }
}

fn two_hosts(options: &Options) -> Plan {
    Plan::uniform(build(&fixtures::switched_machine()).unwrap(), 2, options).unwrap()
}

#[test]
fn cross_nic_never_keeps_rings_on_their_rail() {
    let free = two_hosts(&Options::default());
    assert_eq!(free.ring_graph().cross_nic, 2);
    let mut options = Options::default();
    options.cross_nic = CrossNic::Never;
    let kept = two_hosts(&options);
    check_plan(&kept);
    for channel in &kept.domains()[0].ring.channels {
        let [enter, leave] = channel.nets.unwrap();
        assert_eq!(enter, leave);
    }
}

#[test]
fn pxn_disable_removes_relays() {
    let kind = |options: &Options| {
        let plan = two_hosts(options);
        let topology = &plan.domains()[0].topology;
        let system = topology.system();
        let (from, to) = (
            system.of_kind(NodeKind::Endpoint)[0],
            system.of_kind(NodeKind::Net)[7],
        );
        topology.paths().get(from, to).kind
    };
    assert_eq!(kind(&Options::default()), PathKind::Pxn);
    let mut options = Options::default();
    options.pxn_disable = true;
    assert_eq!(kind(&options), PathKind::System);
}

#[test]
fn p2p_level_and_gdr_level_send_traffic_through_the_cpu() {
    let mut options = Options::default();
    options.p2p_level = Some(PathKind::Local);
    options.net_gdr_level = PathKind::Local;
    let plan = two_hosts(&options);
    check_plan(&plan);
    let topology = &plan.domains()[0].topology;
    let system = topology.system();
    let endpoints = system.of_kind(NodeKind::Endpoint);
    let direct = topology.paths().get(endpoints[0], endpoints[1]);
    assert_eq!(direct.kind, PathKind::HostBridge);
    let net = system.of_kind(NodeKind::Net)[0];
    assert_eq!(
        topology.paths().get(endpoints[0], net).kind,
        PathKind::HostBridge
    );
}

#[test]
fn channel_limits_cut_first_and_then_copy() {
    let mut options = Options::default();
    options.max_channels = Some(3);
    assert_eq!(two_hosts(&options).channels(), 3);
    options.min_channels = Some(8);
    let plan = two_hosts(&options);
    assert_eq!(plan.channels(), 8);
    plan.validate().unwrap();
    assert_eq!(plan.view(5, 0), plan.view(5, 3));
}

#[test]
fn ranks_of_one_host_are_neighbours_in_host_plans() {
    let facts: Vec<RankFacts> = (0..12)
        .map(|rank| RankFacts {
            host: rank % 3,
            numa: (rank % 2) as i32,
        })
        .collect();
    let plan = plan_for_hosts(&facts, &HostMemory::default(), &Options::default()).unwrap();
    let crossings = (0..12_u32)
        .filter(|rank| {
            let next = plan.view(*rank, 0).unwrap().ring.next;
            facts[*rank as usize].host != facts[next as usize].host
        })
        .count();
    assert_eq!(crossings, 3, "a ring enters and leaves every host once");
    assert!(plan.view(12, 0).is_none());
    assert!(plan.view(0, plan.channels()).is_none());
}

#[test]
fn slots_of_one_numa_node_are_nearer_than_across() {
    let system = System::host(&[0, 0, 1], &HostMemory::default());
    let (domains, _) = Topology::domains(&system, 3, &Options::default()).unwrap();
    let endpoints = domains[0].system().of_kind(NodeKind::Endpoint);
    let kind = |a: usize, b: usize| domains[0].paths().get(endpoints[a], endpoints[b]).kind;
    assert_eq!(kind(0, 1), PathKind::HostBridge);
    assert_eq!(kind(0, 2), PathKind::System);
}

#[test]
fn ranks_may_share_a_device() {
    let text = fixtures::switched_machine().to_xml();
    let shared = text.replacen(
        "<gpu dev=\"0\" rank=\"0\"",
        "<gpu dev=\"0\" rank=\"8\" sm=\"90\" gdr=\"1\"/><gpu dev=\"0\" rank=\"0\"",
        1,
    );
    let system = build(&parse("shared.xml", shared.as_bytes()).unwrap()).unwrap();
    assert_eq!(system.of_kind(NodeKind::Device).len(), 8);
    assert_eq!(system.ranks().len(), 9);
    let plan = Plan::uniform(system, 2, &Options::default()).unwrap();
    plan.validate().unwrap();
    let topology = &plan.domains()[0].topology;
    let endpoints = topology.system().of_kind(NodeKind::Endpoint);
    assert_eq!(
        topology.paths().get(endpoints[0], endpoints[1]).kind,
        PathKind::Local
    );
}

#[test]
fn wrong_arguments_are_refused() {
    let system = build(&fixtures::host_machine(1)).unwrap();
    let refused = |hosts: &[HostRanks]| {
        let error = Plan::new(vec![system.clone()], hosts, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    };
    refused(&[]);
    refused(&[HostRanks {
        system: 1,
        ranks: vec![0, 1],
    }]);
    refused(&[HostRanks {
        system: 0,
        ranks: vec![0],
    }]);
    refused(&[HostRanks {
        system: 0,
        ranks: vec![0, 0],
    }]);
    refused(&[HostRanks {
        system: 0,
        ranks: vec![0, 2],
    }]);
    let empty = Document::new("empty.xml");
    let error = Plan::uniform(build(&empty).unwrap(), 1, &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let (domains, _) = Topology::domains(&system, 2, &Options::default()).unwrap();
    let limits = Limits {
        min_channels: 3,
        max_channels: 2,
    };
    assert!(search(&domains[0], Pattern::Ring, limits, &Options::default()).is_err());
    let error = plan_for_hosts(&[], &HostMemory::default(), &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_job_of_a_hundred_thousand_ranks_is_planned_and_checked() {
    let system = build(&fixtures::switched_machine()).unwrap();
    let plan = Plan::uniform(system, 12_500, &Options::default()).unwrap();
    assert_eq!(plan.ranks(), 100_000);
    plan.validate().unwrap();
    assert!(plan.p2p_schedule().rounds(99_999).count() == 100_000);
}
