//! The proof of a new edge: one page really crosses it.
//!
//! A transport can believe that it works and be wrong (another mount namespace, a filtered port, a
//! wrong interface). So before an edge is used, the sender passes a page of pseudo-random bytes
//! made from the request's number, and the receiver compares every byte.

use std::time::{Duration, Instant};

use comm_core::{Algorithm, Error, ErrorKind, OperationKind, Result, Signature};

use super::ends::{Identity, Outgoing, RecvEnd, SendEnd};
use comm_kernels as kernels;

/// Length of the page; less if the edge's slots are smaller.
const PAGE_BYTES: usize = 4096;

/// How long the control thread rests between two looks at an edge.
const REST: Duration = Duration::from_micros(100);

fn page(seed: u64, step_bytes: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES.min(step_bytes)];
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"comm edge proof");
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut page);
    page
}

fn identity(seed: u64, bytes: usize) -> Identity {
    Identity::new(Signature {
        sequence: seed,
        kind: OperationKind::Prove,
        algorithm: Algorithm::Direct,
        dtype: Some(comm_core::DType::U8),
        op: None,
        root: 0,
        count: bytes as u64,
    })
}

/// Sends the page over the edge.
///
/// # Errors
///
/// If the edge fails or has no credit by `deadline`.
pub(super) async fn send_proof(
    end: &mut SendEnd,
    seed: u64,
    step_bytes: usize,
    deadline: Instant,
) -> Result<()> {
    let page = page(seed, step_bytes);
    while !try_send(end, &page, seed)? {
        rest(deadline).await?;
    }
    // A message edge sends when somebody moves it.
    end.progress()?;
    Ok(())
}

fn try_send(end: &mut SendEnd, page: &[u8], seed: u64) -> Result<bool> {
    match end.try_reserve(page.len())? {
        None => Ok(false),
        Some(Outgoing::Slot(slot)) if slot.capacity_bytes >= page.len() => {
            // SAFETY: the slot has room for the page, which is private memory.
            unsafe { kernels::copy(slot.data.as_ptr(), page.as_ptr(), page.len()) };
            end.publish(page.len(), &identity(seed, page.len()))?;
            Ok(true)
        }
        Some(_) => Err(Error::new(
            ErrorKind::Internal,
            "a proof needs a whole slot",
        )),
    }
}

/// Receives the page and compares it.
///
/// # Errors
///
/// If the edge fails, nothing arrives by `deadline`, or something else arrives.
pub(super) async fn receive_proof(
    end: &mut RecvEnd,
    seed: u64,
    step_bytes: usize,
    deadline: Instant,
) -> Result<()> {
    let page = page(seed, step_bytes);
    loop {
        match try_receive(end, page.len(), seed)? {
            Some(got) if got == page => return Ok(()),
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "the page that proves an edge arrived changed",
                ));
            }
            None => rest(deadline).await?,
        }
    }
}

fn try_receive(end: &mut RecvEnd, len_bytes: usize, seed: u64) -> Result<Option<Vec<u8>>> {
    let Some(payload) = end.try_take(&identity(seed, len_bytes), len_bytes)? else {
        return Ok(None);
    };
    let mut got = vec![0; len_bytes];
    // SAFETY: the step was checked to hold as many bytes as the page.
    unsafe { kernels::copy(got.as_mut_ptr(), payload, got.len()) };
    end.consume()?;
    Ok(Some(got))
}

async fn rest(deadline: Instant) -> Result<()> {
    if Instant::now() >= deadline {
        return Err(Error::new(
            ErrorKind::Timeout,
            "no page crossed the edge before the deadline",
        ));
    }
    tokio::time::sleep(REST).await;
    Ok(())
}
