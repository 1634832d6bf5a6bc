//! Speed of the codecs of this build on data like that of ML jobs, per byte of the original; the
//! ratios are printed first.

use std::hint::black_box;
use std::sync::Arc;

use comm_codec::{Registry, checksum};
use comm_core::{Codec, Compressed};
use comm_testkit::codec::samples::SAMPLES;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Larger than the caches, as messages worth compressing are.
const RAW_BYTES: usize = 32 << 20;

/// The codecs of this build with their names, the variants of one each.
fn codecs() -> Vec<(String, Arc<dyn Codec>)> {
    let registry = Registry::builtin();
    let mut codecs: Vec<(String, Arc<dyn Codec>)> = Vec::new();
    #[cfg(any(feature = "lz4", feature = "lz4-c"))]
    for library in comm_codec::Lz4Library::COMPILED {
        let codec = comm_codec::Lz4::of_library(*library, 1).expect("it is compiled in");
        codecs.push((format!("lz4_{library:?}").to_lowercase(), Arc::new(codec)));
    }
    if let Ok(codec) = registry.named("zstd") {
        codecs.push(("zstd_1".to_owned(), Arc::clone(codec)));
    }
    #[cfg(feature = "zstd")]
    codecs.push((
        "zstd_3".to_owned(),
        Arc::new(comm_codec::Zstd::new(3, 1).expect("the library has level 3")),
    ));
    codecs
}

fn both_ways(criterion: &mut Criterion) {
    for (kind, sample) in SAMPLES {
        let raw = sample(RAW_BYTES, 1);
        let mut group = criterion.benchmark_group(*kind);
        group.throughput(Throughput::Bytes(RAW_BYTES as u64));
        for (name, codec) in codecs() {
            let bound = codec
                .compress_bound(RAW_BYTES)
                .expect("32 MiB are possible");
            let useful = codec.target_bytes(RAW_BYTES).expect("32 MiB are possible");
            let mut target = vec![0; bound];
            let compress = |target: &mut [u8]| {
                let answer = codec.compress_into(black_box(&raw), target);
                answer.expect("nothing fails here")
            };
            let Compressed::Bytes(bytes) = compress(&mut target) else {
                panic!("the bound suffices");
            };
            let ratio = RAW_BYTES as f64 / bytes as f64;
            println!("{kind} {name}: {ratio:.3} times smaller");
            let block = target[..bytes].to_vec();
            // As a sender calls it: what does not become smaller ends early if the codec can.
            group.bench_function(format!("compress/{name}"), |bencher| {
                bencher.iter(|| compress(black_box(&mut target[..useful])));
            });
            let mut back = vec![0; RAW_BYTES];
            group.bench_function(format!("decompress/{name}"), |bencher| {
                bencher.iter(|| codec.decompress_into(black_box(&block), black_box(&mut back)));
            });
        }
        group.bench_function("checksum", |bencher| {
            bencher.iter(|| checksum(black_box(&raw)));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(500))
        .sample_size(10);
    targets = both_ways
}
criterion_main!(benches);
