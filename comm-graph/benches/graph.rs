//! What planning costs: one machine from file to plan, and a job of 100,000 ranks.

use std::hint::black_box;
use std::path::PathBuf;

use comm_graph::Options;
use comm_graph::model::{HostMemory, build};
use comm_graph::pattern::double_tree;
use comm_graph::plan::{Plan, RankFacts, plan_for_hosts};
use comm_graph::xml::parse;
use criterion::{Criterion, criterion_group, criterion_main};

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

fn machines(criterion: &mut Criterion) {
    let text = fixtures::switched_machine().to_xml();
    let mut group = criterion.benchmark_group("machine");
    group.sample_size(20);
    for hosts in [1, 2, 8] {
        group.bench_function(format!("switched_8gpu_x{hosts}"), |bencher| {
            bencher.iter(|| {
                let document = parse("switched.xml", text.as_bytes()).unwrap();
                Plan::uniform(build(&document).unwrap(), hosts, &Options::default()).unwrap()
            });
        });
    }
    group.bench_function("host_64_slots_x8", |bencher| {
        let system = build(&fixtures::host_machine(32)).unwrap();
        bencher.iter(|| Plan::uniform(system.clone(), 8, &Options::default()).unwrap());
    });
    group.finish();
}

/// Files of real machines, where the shared folder is present.
fn real_machines(criterion: &mut Criterion) {
    let shared = std::env::var_os("COMM_SHARED_DIR").map(PathBuf::from);
    let Some(dir) = shared
        .map(|dir| dir.join("topo/xml"))
        .filter(|dir| dir.is_dir())
    else {
        println!("skipped: set COMM_SHARED_DIR to measure real machines' files");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut group = criterion.benchmark_group("real");
    group.sample_size(10);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        for hosts in [1, 2] {
            group.bench_function(format!("{name}_x{hosts}"), |bencher| {
                bencher.iter(|| {
                    let system = build(&parse(name.as_str(), &bytes).unwrap()).unwrap();
                    Plan::uniform(system, hosts, &Options::default()).unwrap()
                });
            });
        }
    }
    group.finish();
}

fn scale(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("100k_ranks");
    group.sample_size(10);
    let system = build(&fixtures::switched_machine()).unwrap();
    group.bench_function("gpu_plan_and_one_view", |bencher| {
        bencher.iter(|| {
            let plan = Plan::uniform(system.clone(), 12_500, &Options::default()).unwrap();
            black_box(
                (0..plan.channels())
                    .map(|c| plan.view(54_321, c))
                    .collect::<Vec<_>>(),
            )
        });
    });
    let plan = Plan::uniform(system, 12_500, &Options::default()).unwrap();
    group.bench_function("gpu_validate_all", |bencher| {
        bencher.iter(|| plan.validate().unwrap())
    });
    let facts: Vec<_> = (0..100_000)
        .map(|rank| RankFacts {
            host: rank / 8,
            numa: (rank % 2) as i32,
        })
        .collect();
    group.bench_function("host_plan_and_validate", |bencher| {
        bencher.iter(|| {
            let plan = plan_for_hosts(&facts, &HostMemory::default(), &Options::default()).unwrap();
            plan.plan().validate().unwrap();
        });
    });
    group.bench_function("double_tree_all", |bencher| {
        bencher.iter(|| {
            (0..100_000).for_each(|node| {
                black_box(double_tree(node, 100_000));
            });
        });
    });
    group.finish();
}

criterion_group!(benches, machines, real_machines, scale);
criterion_main!(benches);
