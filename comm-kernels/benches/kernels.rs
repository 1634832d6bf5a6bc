//! Throughput of the copy and reduce kernels, with libc's `memcpy` for comparison.
//!
//! Bytes per second count what is written, not what is read.

use std::hint::black_box;

use comm_core::{DType, ReduceOp};
use comm_kernels::{Reducer, copy, copy_streaming};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// A page-aligned start inside a zeroed buffer.
fn buffer(bytes: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0_u8; bytes + 2 * 4096];
    let start = buffer.as_ptr().align_offset(4096);
    (buffer, start)
}

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    for bytes in [8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 32 << 20] {
        group.throughput(Throughput::Bytes(bytes as u64));
        let (source, source_start) = buffer(bytes);
        let (mut target, target_start) = buffer(bytes);
        // The same offset in the page, and one a little behind and ahead of the other.
        for shift in [0_usize, 72] {
            let src = source[source_start..].as_ptr();
            let dst = target[target_start + shift..].as_mut_ptr();
            let id = |name: &str| BenchmarkId::new(format!("{name}/shift{shift}"), bytes);
            group.bench_function(id("own"), |bencher| {
                // SAFETY: both ranges lie inside their buffers.
                bencher.iter(|| unsafe { copy(black_box(dst), black_box(src), black_box(bytes)) });
            });
            group.bench_function(id("memcpy"), |bencher| {
                bencher.iter(|| {
                    let (dst, src) = (black_box(dst), black_box(src));
                    // SAFETY: both ranges lie inside their buffers.
                    unsafe { std::ptr::copy_nonoverlapping(src, dst, black_box(bytes)) };
                });
            });
            group.bench_function(id("streaming"), |bencher| {
                bencher.iter(|| {
                    let (dst, src) = (black_box(dst), black_box(src));
                    // SAFETY: both ranges lie inside their buffers.
                    unsafe { copy_streaming(dst, src, black_box(bytes), 0) };
                });
            });
        }
    }
}

fn reductions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reduce");
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_reducible()) {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let Ok(reducer) = Reducer::new(dtype, op) else {
                continue;
            };
            for bytes in [64, 16 << 10] {
                let count = bytes / dtype.size_bytes();
                let (source, source_start) = buffer(bytes);
                let (mut target, target_start) = buffer(bytes);
                let src = source[source_start..].as_ptr();
                let dst = target[target_start..].as_mut_ptr();
                group.throughput(Throughput::Bytes(bytes as u64));
                group.bench_function(
                    BenchmarkId::new(format!("{dtype}_{op}/in_place"), bytes),
                    |bencher| {
                        bencher.iter(|| {
                            let (dst, src) = (black_box(dst), black_box(src));
                            // SAFETY: both ranges lie inside their buffers.
                            unsafe { reducer.reduce(dst, dst, src, black_box(count)) };
                        });
                    },
                );
                if op == ReduceOp::Sum {
                    group.bench_function(
                        BenchmarkId::new(format!("{dtype}_{op}/many4"), bytes),
                        |bencher| {
                            bencher.iter(|| {
                                let (dst, src) = (black_box(dst), black_box(src));
                                let sources = [dst.cast_const(), src, src, src];
                                // SAFETY: both ranges lie inside their buffers.
                                unsafe { reducer.reduce_many(dst, &sources, black_box(count)) };
                            });
                        },
                    );
                    group.bench_function(
                        BenchmarkId::new(format!("{dtype}_avg/scale"), bytes),
                        |bencher| {
                            // SAFETY: the range lies inside its buffer.
                            bencher.iter(|| unsafe {
                                reducer.scale(black_box(dst), black_box(count), 3)
                            });
                        },
                    );
                }
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(400))
        .sample_size(20);
    targets = copies, reductions
}
criterion_main!(benches);
