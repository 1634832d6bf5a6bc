//! Clauses of offers between processes, with both ends in one: the peer's memory is a pointer.

use super::*;
use crate::fifo::PeerMemory;
use crate::sync::Arc;

/// Reads addresses of this process; 0 is memory that does not exist.
#[derive(Debug)]
struct OwnMemory;

// SAFETY: tests offer addresses that live; only the target is written.
unsafe impl PeerMemory for OwnMemory {
    unsafe fn read(&self, address: u64, target: *mut u8, bytes: usize) -> Result<()> {
        if address == 0 {
            return Err(Error::new(ErrorKind::Protocol, "no such memory"));
        }
        let source: *const u8 = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the offered bytes live, and the caller vouches for the target.
        unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) };
        Ok(())
    }
}

pub(super) fn own_memory() -> Arc<dyn PeerMemory> {
    Arc::new(OwnMemory)
}

fn pair_that_pulls() -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Doorbells::local());
    let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
    let sender = memory.another().into_sender(bells.clone());
    assert!(sender.offers().is_none(), "before the receiver said so");
    let receiver = memory.pulling(own_memory()).into_receiver(bells);
    (sender, receiver)
}

fn make_offer(sender: &mut FifoSender, offers: &mut Offers, data: *const u8, bytes: usize) {
    let offer = Offer {
        source: data,
        target: std::ptr::null_mut(),
    };
    // SAFETY: every test keeps the data longer than it uses the receiver.
    assert!(unsafe { sender.try_offer(offers, offer, header(bytes, 5)) }.unwrap());
}

fn pull(receiver: &FifoReceiver, offset: usize, bytes: usize) -> Result<Option<Vec<u8>>> {
    let mut got = vec![0; bytes];
    // SAFETY: the vector has room for as many bytes.
    let stands = unsafe { receiver.pull(offset, got.as_mut_ptr(), bytes) }?;
    Ok(stands.then_some(got))
}

#[test]
fn what_is_offered_is_pulled_in_parts_and_acknowledged_by_the_credit() {
    let (mut sender, mut receiver) = pair_that_pulls();
    let data = pattern(3, 1000);
    let mut offers = sender.offers().unwrap();
    make_offer(&mut sender, &mut offers, data.as_ptr(), data.len());
    assert!(matches!(
        receiver.try_step().unwrap(),
        Some(Arrived::Offer(got)) if got == header(1000, 5)
    ));
    assert!(receiver.claim().is_none(), "addresses are not for use");
    for (offset, bytes) in [(0, 1000), (400, 600), (999, 1)] {
        let wanted = &data[offset..offset + bytes];
        assert_eq!(pull(&receiver, offset, bytes).unwrap().unwrap(), wanted);
    }
    assert!(!sender.is_acknowledged().unwrap());
    receiver.consume();
    assert!(sender.is_acknowledged().unwrap());
}

#[test]
fn a_revoked_offer_is_void_and_never_waited_for() {
    let (mut sender, mut receiver) = pair_that_pulls();
    let data = [7_u8; 100];
    let mut offers = sender.offers().unwrap();
    make_offer(&mut sender, &mut offers, data.as_ptr(), data.len());
    // A hostile receiver writes whatever it likes into the word.
    receiver
        .memory
        .claim(1)
        .store(1 << 2 | 2, Ordering::Relaxed);
    offers.revoke();
    assert_eq!(pull(&receiver, 0, 100).unwrap(), None);
    assert!(receiver.try_step().unwrap().is_none());
}

#[test]
fn memory_that_does_not_exist_is_an_error_unless_the_offer_was_revoked() {
    let (mut sender, receiver) = pair_that_pulls();
    let mut offers = sender.offers().unwrap();
    make_offer(&mut sender, &mut offers, std::ptr::null(), 8);
    assert_eq!(
        pull(&receiver, 0, 8).unwrap_err().kind(),
        ErrorKind::Protocol
    );
    offers.revoke();
    assert_eq!(pull(&receiver, 0, 8).unwrap(), None);
}

#[test]
fn an_end_that_cannot_pull_says_so() {
    let bells = RingTarget::Local(Doorbells::local());
    let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
    let (_sender, receiver) = memory.into_ends(bells.clone(), bells);
    assert_eq!(
        pull(&receiver, 0, 8).unwrap_err().kind(),
        ErrorKind::Protocol
    );
}
