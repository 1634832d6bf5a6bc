//! Ranks that are threads of one process.

use std::sync::Arc;
use std::thread;

use comm_core::{Error, ErrorKind, Result};
use comm_runtime::control::rendezvous::LocalRendezvous;

use crate::{Builder, Communicator};

/// Makes a communicator of `ranks` ranks within this process; the k-th element is rank k's.
///
/// Each element is meant for a thread of its own: a collective blocks until all ranks call it.
///
/// ```
/// use comm_api::ReduceOp;
///
/// let threads: Vec<_> = comm_api::init_all(3)?
///     .into_iter()
///     .map(|comm| {
///         std::thread::spawn(move || {
///             let mut value = [comm.rank() + 1];
///             comm.all_reduce(&mut value, ReduceOp::Sum).map(|()| value[0])
///         })
///     })
///     .collect();
/// for thread in threads {
///     assert_eq!(thread.join().expect("a rank panicked")?, 6);
/// }
/// # Ok::<(), comm_api::Error>(())
/// ```
///
/// # Errors
///
/// As for [`Builder::build`]; [`ErrorKind::InvalidArgument`] for 0 ranks.
pub fn init_all(ranks: u32) -> Result<Vec<Communicator>> {
    init_all_with(ranks, |builder| builder)
}

/// Like [`init_all`], with a builder that `configure` changes, the same for all ranks.
///
/// # Errors
///
/// As for [`init_all`].
pub fn init_all_with(
    ranks: u32,
    configure: impl Fn(Builder) -> Builder,
) -> Result<Vec<Communicator>> {
    if ranks == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "a communicator has at least one rank",
        ));
    }
    let rendezvous = Arc::new(LocalRendezvous::new());
    let builders = (0..ranks)
        .map(|rank| {
            let builder = Builder::from_settings()?.rank(rank, ranks);
            Ok(configure(builder.rendezvous(Arc::clone(&rendezvous) as _)))
        })
        .collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let joining: Vec<_> = builders
            .into_iter()
            .map(|builder| scope.spawn(|| for_others(builder.build()?)))
            .collect();
        joining
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| {
                    Err(Error::new(
                        ErrorKind::Internal,
                        "a rank panicked while it joined",
                    ))
                })
            })
            .collect()
    })
}

/// A communicator that the calling thread has built and will not use.
fn for_others(communicator: Communicator) -> Result<Communicator> {
    communicator.act_for_others();
    communicator.hand_over(&[]);
    Ok(communicator)
}
