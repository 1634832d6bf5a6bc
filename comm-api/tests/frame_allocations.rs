//! A small frame over a connected, idle lane costs no allocation beyond what it yields.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use comm_api::{FrameHead, FrameOptions, FrameRef, Tensor, TensorMut};
use support::{on_every_transport, with_ranks};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the memory came from there.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The fewest allocations of several calls: one that had to sleep may report to its peer.
fn fewest(mut call: impl FnMut()) -> usize {
    (0..200)
        .map(|_| {
            let before = COUNT.get();
            call();
            COUNT.get() - before
        })
        .min()
        .unwrap_or(usize::MAX)
}

fn a_small_frame_allocates_nothing_but_its_result() {
    let counts = with_ranks(2, |comm| {
        let options = FrameOptions::new();
        if comm.rank() == 0 {
            let segments = [Tensor::from_slice(&[7_u8; 64], &[64]).unwrap()];
            let frame = FrameRef {
                tag: 1,
                header: b"header",
                segments: &segments,
            };
            fewest(|| comm.send_frame_blocking(1, frame, &options).unwrap())
        } else {
            let zeros = TensorMut::from_vec(vec![0_u8; 64], &[64]).unwrap();
            let mut kept = Some(vec![zeros]);
            fewest(|| {
                let kept_before = kept.take().unwrap();
                let open = move |_: &FrameHead<'_>| Ok(kept_before);
                let got = comm.recv_frame_blocking(0, open, &options).unwrap();
                assert_eq!(&got.header[..], b"header");
                assert_eq!(got.segments[0].as_bytes().unwrap(), [7; 64]);
                kept = Some(got.segments);
            })
        }
    })
    .unwrap();
    // The header is the receiver's; the destinations were there.
    assert_eq!(counts, [0, 1]);
}

on_every_transport!(a_small_frame_allocates_nothing_but_its_result);
