//! The memory of one primitive: what is copied, pulled and reduced, from where to where.

use comm_core::Result;

use super::program::Primitive;
use crate::edge::ends::RecvEnd;
use crate::plan::Plan;
use comm_kernels as kernels;

/// Where the elements of one primitive come from and go to.
pub(super) struct Data {
    pub(super) source: Option<*const u8>,
    pub(super) target: Option<*mut u8>,
    pub(super) sent: [Option<*mut u8>; 2],
}

impl Data {
    /// Copies what a step offers to where it belongs, or to a place from which it is reduced; where it
    /// is then, or `None` if it was revoked.
    pub(super) fn pull(
        &self,
        end: &mut RecvEnd,
        combine: bool,
        bytes: usize,
    ) -> Result<Option<*const u8>> {
        let mut destinations = self
            .target
            .into_iter()
            .chain(self.sent.into_iter().flatten());
        match destinations.next().filter(|_| !combine) {
            None => end.pull_to_scratch(0, bytes),
            Some(to) => {
                // SAFETY: targets and slots hold the primitive's elements. What is offered belongs to
                // the caller of another rank, and slots to nobody.
                let stands = unsafe { end.pull(0, to, bytes, false) }?;
                Ok(stands.then_some(to.cast_const()))
            }
        }
    }

    pub(super) fn compute(
        &self,
        received: [Option<*const u8>; 2],
        primitive: &Primitive,
        plan: &Plan,
        streams: bool,
    ) {
        let (count, bytes) = (primitive.count, primitive.count * plan.element_bytes);
        let mut destinations = self
            .target
            .into_iter()
            .chain(self.sent.into_iter().flatten());
        let Some(first) = destinations.next() else {
            return;
        };
        // In each arm, all pointers cover `count` elements: steps were checked to hold that many bytes,
        // slots to take them, and programs stay within the buffers. `first` is `own` or overlaps none
        // of the others.
        match (self.source, received, &plan.reducer) {
            // One pass for a result that is kept and sent.
            (Some(own), [Some(received), None], Some(reducer))
                if primitive.combine && !(primitive.finish && plan.average_of > 1) =>
            {
                match destinations.next() {
                    // SAFETY: see above; the slot overlaps nothing.
                    Some(second) => unsafe {
                        reducer.reduce2(first, second, own, received, count);
                    },
                    // SAFETY: see above.
                    None => unsafe { reducer.reduce(first, own, received, count) },
                }
            }
            (Some(own), [Some(received), also], Some(reducer)) if primitive.combine => {
                let ranks = if primitive.finish {
                    plan.average_of.max(1)
                } else {
                    1
                };
                let sources = [own, received, also.unwrap_or(received)];
                let sources = &sources[..2 + usize::from(also.is_some())];
                // SAFETY: see above.
                unsafe { reducer.reduce_many_scaled(first, sources, count, ranks) };
            }
            (own, [received, _], _) => {
                let Some(from) = received.or(own) else {
                    return;
                };
                let is_there = std::ptr::eq(first.cast_const(), from);
                if is_there {
                    // Nothing is to be moved.
                } else if received.is_none() && Some(first) == self.target && !plan.is_far {
                    // SAFETY: as above; the two ranges are equal (excluded here) or disjoint.
                    unsafe { kernels::copy(first, from, bytes) };
                } else {
                    // A slot is read soon.
                    let past_caches = streams && Some(first) == self.target;
                    let from_bytes = if past_caches { 0 } else { usize::MAX };
                    // SAFETY: as above.
                    unsafe { kernels::copy_streaming(first, from, bytes, from_bytes) };
                }
            }
        }
        for destination in destinations {
            if destination != first {
                // SAFETY: as above; slots overlap neither each other nor the user's memory.
                unsafe { kernels::copy_far(destination, first.cast_const(), bytes) };
            }
        }
    }
}
