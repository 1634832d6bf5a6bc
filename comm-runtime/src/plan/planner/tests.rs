//! Which plans are made, and that ranks make matching ones.

use super::super::{Flow, Method};
use super::*;
use crate::operation::program::Program;

const KINDS: [OperationKind; 8] = [
    OperationKind::AllReduce,
    OperationKind::Broadcast,
    OperationKind::Reduce,
    OperationKind::AllGather,
    OperationKind::ReduceScatter,
    OperationKind::AllToAll,
    OperationKind::Gather,
    OperationKind::Scatter,
];

fn request(kind: OperationKind, count: usize) -> Request {
    let reduces = matches!(
        kind,
        OperationKind::AllReduce | OperationKind::Reduce | OperationKind::ReduceScatter
    );
    Request {
        kind,
        dtype: Some(DType::F32),
        op: reduces.then_some(ReduceOp::Avg),
        root: 0,
        count,
        in_place: true,
    }
}

fn allowing(algorithms: &[Algorithm]) -> PlanConfig {
    PlanConfig {
        algorithms: algorithms.to_vec(),
        ..PlanConfig::default()
    }
}

#[test]
fn small_messages_go_in_one_round_and_large_ones_around_the_ring() {
    let planner = Planner::new(0, 4, PlanConfig::default());
    let small = planner.plan(&request(OperationKind::AllReduce, 2)).unwrap();
    assert_eq!(small.algorithm(), Algorithm::OneShot);
    assert_eq!(small.flows()[0].sends_to, [1, 2, 3]);
    let large = planner
        .plan(&request(OperationKind::AllReduce, 1 << 20))
        .unwrap();
    assert_eq!(large.algorithm(), Algorithm::Ring);
    let ring = Flow {
        channel: 0,
        sends_to: vec![1],
        receives_from: vec![3],
    };
    assert_eq!(large.flows(), [ring]);
    assert_eq!(large.average_of, 4);
}

#[test]
fn ranks_that_share_memory_work_on_it_in_place_unless_the_message_is_small() {
    let planner = Planner::new(0, 4, PlanConfig::default()).sharing_memory(true);
    let small = planner.plan(&request(OperationKind::AllReduce, 2)).unwrap();
    assert_eq!(small.algorithm(), Algorithm::OneShot);
    let large = planner
        .plan(&request(OperationKind::AllReduce, 1 << 20))
        .unwrap();
    assert_eq!(large.algorithm(), Algorithm::DirectShared);
    assert_eq!(large.flows()[0].sends_to, [1, 2, 3]);
    let alone = Planner::new(0, 1, PlanConfig::default()).sharing_memory(true);
    let alone = alone
        .plan(&request(OperationKind::AllReduce, 1 << 20))
        .unwrap();
    assert_ne!(alone.algorithm(), Algorithm::DirectShared);
}

#[test]
fn ranks_that_map_memory_try_that_for_large_sums_and_have_another_way() {
    let count = 1 << 20;
    for (ranks, instead) in [
        (2, Algorithm::OneShot),
        (4, Algorithm::Ring),
        (16, Algorithm::Ring),
    ] {
        let planner = Planner::new(1, ranks, PlanConfig::default()).mapping_memory(true);
        let algorithm = |kind, count| planner.plan(&request(kind, count)).unwrap().algorithm();
        let plan = planner.plan(&request(OperationKind::AllReduce, count));
        let plan = plan.unwrap();
        assert_eq!(plan.algorithm(), Algorithm::DirectMapped);
        let other = plan.instead().unwrap();
        assert_eq!(other.algorithm(), instead);
        for flow in other.flows() {
            assert!(plan.flows().contains(flow), "{plan}");
        }
        assert_eq!(
            algorithm(OperationKind::AllReduce, 1000),
            Algorithm::OneShot
        );
        assert_ne!(
            algorithm(OperationKind::Broadcast, count),
            Algorithm::DirectMapped
        );
    }
    for planner in [
        Planner::new(1, 17, PlanConfig::default()).mapping_memory(true),
        Planner::new(0, 1, PlanConfig::default()).mapping_memory(true),
        Planner::new(0, 4, allowing(&[Algorithm::Ring])).mapping_memory(true),
    ] {
        let plan = planner.plan(&request(OperationKind::AllReduce, count));
        assert_ne!(plan.unwrap().algorithm(), Algorithm::DirectMapped);
    }
    let only = Planner::new(0, 4, allowing(&[Algorithm::DirectMapped])).mapping_memory(true);
    let plan = only
        .plan(&request(OperationKind::AllReduce, count))
        .unwrap();
    assert_eq!(plan.instead().unwrap().algorithm(), Algorithm::Ring);
}

#[test]
fn many_ranks_take_messages_of_middling_size_by_trees() {
    let planner = Planner::new(3, 16, PlanConfig::default());
    for kind in [
        OperationKind::AllReduce,
        OperationKind::Broadcast,
        OperationKind::Reduce,
    ] {
        for (count, algorithm) in [
            (16, Algorithm::OneShot),
            (10_000, Algorithm::DoubleTree),
            (10_000_000, Algorithm::Ring),
        ] {
            let plan = planner.plan(&request(kind, count)).unwrap();
            assert_eq!(plan.algorithm(), algorithm, "{kind} of {count}");
        }
    }
}

#[test]
fn very_many_ranks_take_small_messages_by_trees_too() {
    let algorithm = |ranks, kind| {
        let planner = Planner::new(3, ranks, PlanConfig::default());
        planner.plan(&request(kind, 2)).unwrap().algorithm()
    };
    for kind in [OperationKind::AllReduce, OperationKind::Broadcast] {
        assert_eq!(algorithm(16, kind), Algorithm::OneShot);
        assert_eq!(algorithm(17, kind), Algorithm::DoubleTree);
    }
}

#[test]
fn channels_cover_the_buffer_without_overlap() {
    let config = PlanConfig {
        channels: 3,
        ..PlanConfig::default()
    };
    let planner = Planner::new(0, 3, config);
    let plan = planner
        .plan(&request(OperationKind::AllReduce, 1_000_001))
        .unwrap();
    assert_eq!(plan.channel_count(), 3);
    let Method::Programs(programs) = &plan.method else {
        panic!("{plan:?}")
    };
    let mut next = 0;
    for program in programs {
        let Program::Ring(ring) = program else {
            panic!("{program:?}")
        };
        assert_eq!(ring.part.start, next);
        next += ring.part.count;
    }
    assert_eq!(next, 1_000_001);
}

#[test]
fn a_root_outside_the_world_and_an_irreducible_type_are_refused() {
    let planner = Planner::new(0, 2, PlanConfig::default());
    let bad_root = Request {
        root: 2,
        ..request(OperationKind::Broadcast, 1)
    };
    assert_eq!(
        planner.plan(&bad_root).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let bad_type = Request {
        dtype: Some(DType::Bool),
        ..request(OperationKind::AllReduce, 1)
    };
    assert_eq!(
        planner.plan(&bad_type).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
}

#[test]
fn every_collective_has_a_ring_and_one_shot_plan() {
    for algorithm in [Algorithm::Ring, Algorithm::OneShot] {
        let planner = Planner::new(0, 5, allowing(&[algorithm]));
        for kind in KINDS {
            for count in [0, 1, 1 << 20] {
                let plan = planner.plan(&request(kind, count)).unwrap();
                assert_eq!(plan.algorithm(), algorithm, "{kind} of {count}");
            }
        }
    }
}

#[test]
fn a_filter_that_leaves_no_algorithm_is_refused_and_says_what_would_do() {
    let planner = Planner::new(0, 2, allowing(&[Algorithm::DoubleTree]));
    for kind in KINDS {
        let planned = planner.plan(&request(kind, 1));
        match kind {
            OperationKind::AllReduce | OperationKind::Broadcast | OperationKind::Reduce => {
                assert_eq!(planned.unwrap().algorithm(), Algorithm::DoubleTree);
            }
            _ => {
                let error = planned.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
                assert!(error.to_string().contains("one_shot, ring"), "{error}");
            }
        }
    }
}

#[test]
fn a_plan_prints_its_edges() {
    let planner = Planner::new(1, 4, allowing(&[Algorithm::DoubleTree]));
    let plan = planner
        .plan(&request(OperationKind::AllReduce, 1 << 20))
        .unwrap()
        .to_string();
    assert!(
        plan.contains("all_reduce of 1048576 f32 avg (root 0) by double_tree on 2 channel(s)"),
        "{plan}"
    );
    assert!(
        plan.contains("channel 0 sends to [2], receives from []"),
        "{plan}"
    );
}

#[test]
fn only_collectives_are_planned() {
    let planner = Planner::new(0, 2, PlanConfig::default());
    let error = planner
        .plan(&request(OperationKind::PointToPoint, 1))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
