//! Models of offered memory: offer, claim, revoke, and the sender's sleep until all is consumed.
//!
//! The offered memory is a `loom::cell::UnsafeCell`: a receiver that touches it when the sender has
//! taken it back, or without an order between the two, fails the model.

use loom::cell::UnsafeCell;
use loom::thread;

use super::loom_tests::{model, pair_with_offers};
use super::*;
use crate::doorbell::Doorbells;
use crate::sync::Arc;
use crate::{Armed, StepHeader};

/// What a sender offers: a word to be read and one to be written.
struct Offered {
    source: UnsafeCell<u64>,
    target: UnsafeCell<u64>,
}

impl Offered {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            source: UnsafeCell::new(1),
            target: UnsafeCell::new(0),
        })
    }

    fn offer(self: &Arc<Self>, sender: &mut FifoSender, offers: &mut Offers, step: u64) {
        let offer = Offer {
            source: (&raw const self.source).cast(),
            target: (&raw const self.target).cast_mut().cast(),
        };
        let header = StepHeader {
            bytes: 8,
            signature_hash: step as u32,
            signature: [step; 3],
        };
        // SAFETY: the model keeps both words until the threads were joined.
        assert!(unsafe { sender.try_offer(offers, offer, header) }.unwrap());
    }

    /// What the caller of an operation does with its memory once it has returned.
    fn reuse(&self) {
        for cell in [&self.source, &self.target] {
            // SAFETY: loom checks that nobody else accesses the word at the same time.
            cell.with_mut(|word| unsafe { *word = 77 });
        }
    }
}

/// One piece of work under a claim; whether the claim was granted.
fn work(receiver: &FifoReceiver) -> bool {
    let Some(claim) = receiver.claim() else {
        return false;
    };
    let Offer { source, target } = claim.offer();
    // SAFETY: the memory is valid under the claim.
    let source = unsafe { &*source.cast::<UnsafeCell<u64>>() };
    // SAFETY: as above.
    let target = unsafe { &*target.cast::<UnsafeCell<u64>>() };
    // SAFETY: loom checks that nobody writes at the same time.
    let read = source.with(|word| unsafe { *word });
    assert_eq!(read, 1, "the sender had its memory back");
    // SAFETY: loom checks that nobody else accesses the word at the same time.
    target.with_mut(|word| unsafe { *word += read });
    true
}

#[test]
fn loom_memory_is_the_senders_again_after_a_revocation() {
    model(|| {
        let (mut sender, mut receiver) = pair_with_offers(&Doorbells::local());
        let offered = Offered::new();
        let mut offers = sender.offers().unwrap();
        offered.offer(&mut sender, &mut offers, 1);
        let receiving = thread::spawn(move || {
            if receiver.try_step().unwrap().is_some() && work(&receiver) {
                receiver.consume();
            }
            receiver
        });
        offers.revoke();
        offered.reuse();
        let receiver = receiving.join().unwrap();
        assert!(receiver.claim().is_none(), "consumed or revoked");
    });
}

#[test]
fn loom_an_offer_that_is_worked_on_in_pieces_can_be_revoked_between_them() {
    model(|| {
        let (mut sender, receiver) = pair_with_offers(&Doorbells::local());
        let offered = Offered::new();
        let mut offers = sender.offers().unwrap();
        offered.offer(&mut sender, &mut offers, 1);
        let receiving = thread::spawn(move || {
            let pieces = (0..3).take_while(|_| work(&receiver)).count();
            // What was refused once is refused for good.
            assert!(pieces == 3 || receiver.claim().is_none());
        });
        drop(offers);
        offered.reuse();
        receiving.join().unwrap();
    });
}

#[test]
fn loom_a_revoked_offer_never_arrives_and_closing_tells_the_receiver() {
    model(|| {
        let (mut sender, mut receiver) = pair_with_offers(&Doorbells::local());
        let offered = Offered::new();
        let mut offers = sender.offers().unwrap();
        offered.offer(&mut sender, &mut offers, 1);
        offers.revoke();
        assert!(receiver.try_step().unwrap().is_none());
        let closing = thread::spawn(move || drop(sender));
        let error = loop {
            match receiver.try_step() {
                Ok(step) => assert!(step.is_none()),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        closing.join().unwrap();
    });
}

#[test]
fn loom_a_sleeping_sender_is_woken_when_everything_is_consumed() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, mut receiver) = pair_with_offers(&bells);
        let offered = Offered::new();
        let mut offers = sender.offers().unwrap();
        offered.offer(&mut sender, &mut offers, 1);
        let receiving = thread::spawn(move || {
            assert!(receiver.try_step().unwrap().is_some());
            assert!(work(&receiver));
            receiver.consume();
            receiver
        });
        let bell = bells.claim().unwrap();
        loop {
            let ticket = bell.ticket();
            if sender.is_acknowledged().unwrap() {
                break;
            }
            if sender.arm_acknowledged(&bell).unwrap() == Armed::WillRing {
                bell.wait(ticket, None);
            }
        }
        // No revocation is needed: the credit orders the receiver's accesses.
        offered.reuse();
        receiving.join().unwrap();
    });
}

#[test]
fn loom_a_receiver_that_goes_away_under_a_claim_wakes_the_sender() {
    model(|| {
        let bells = Doorbells::local();
        let (mut sender, receiver) = pair_with_offers(&bells);
        let offered = Offered::new();
        let mut offers = sender.offers().unwrap();
        offered.offer(&mut sender, &mut offers, 1);
        let receiving = thread::spawn(move || {
            work(&receiver);
            drop(receiver);
        });
        let bell = bells.claim().unwrap();
        let error = loop {
            let ticket = bell.ticket();
            match sender.arm_acknowledged(&bell) {
                Ok(Armed::WillRing) => {
                    bell.wait(ticket, None);
                }
                Ok(Armed::Ready) => panic!("nobody consumed the offer"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerDied);
        drop(offers);
        offered.reuse();
        receiving.join().unwrap();
    });
}

/// A word of the sender's that the receiver reads as another process does: without any order.
#[derive(Debug)]
struct Foreign(loom::sync::atomic::AtomicU64);

// SAFETY: writes to the target only.
unsafe impl PeerMemory for Foreign {
    unsafe fn read(&self, _: u64, target: *mut u8, _: usize) -> crate::Result<()> {
        let value = self.0.load(loom::sync::atomic::Ordering::Relaxed);
        // SAFETY: the model passes a target of one word.
        unsafe { target.cast::<u64>().write_unaligned(value) };
        Ok(())
    }
}

#[test]
fn loom_a_pull_that_stands_has_read_before_the_sender_took_its_memory_back() {
    model(|| {
        let bells = crate::doorbell::RingTarget::Local(Doorbells::local());
        let foreign = Arc::new(Foreign(loom::sync::atomic::AtomicU64::new(1)));
        let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
        let mut sender = memory.another().into_sender(bells.clone());
        let mut receiver = memory
            .pulling(Arc::clone(&foreign) as _)
            .into_receiver(bells);
        let mut offers = sender.offers().unwrap();
        let offer = Offer {
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
        };
        let header = StepHeader {
            bytes: 8,
            signature_hash: 1,
            signature: [1; 3],
        };
        // SAFETY: the word lives until the threads were joined.
        assert!(unsafe { sender.try_offer(&mut offers, offer, header) }.unwrap());
        let receiving = thread::spawn(move || {
            if receiver.try_step().unwrap().is_none() {
                return;
            }
            let mut got = [0; 8];
            // SAFETY: the target is as long as a word.
            if unsafe { receiver.pull(0, got.as_mut_ptr(), 8) }.unwrap() {
                assert_eq!(u64::from_ne_bytes(got), 1, "the sender had its memory back");
            }
        });
        offers.revoke();
        foreign.0.store(77, loom::sync::atomic::Ordering::Relaxed);
        receiving.join().unwrap();
    });
}

#[test]
fn loom_mapped_memory_that_stands_was_read_before_the_sender_took_it_back() {
    model(|| {
        let bells = crate::doorbell::RingTarget::Local(Doorbells::local());
        let word = Arc::new(loom::sync::atomic::AtomicU64::new(1));
        let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
        let mut sender = memory.another().into_sender(bells.clone());
        let mut receiver = memory.mapping().into_receiver(bells);
        let mut offers = sender.mapped_offers().unwrap();
        let header = StepHeader {
            bytes: 8,
            signature_hash: 1,
            signature: [1; 3],
        };
        // SAFETY: nobody uses the address; the word that stands for the memory lives until the threads
        // were joined.
        assert!(unsafe { sender.try_offer_mapped(&mut offers, std::ptr::null(), header) }.unwrap());
        let mapped = Arc::clone(&word);
        let receiving = thread::spawn(move || {
            if receiver.try_step().unwrap().is_none() {
                return;
            }
            assert!(receiver.mapped_offer().is_some());
            let got = mapped.load(loom::sync::atomic::Ordering::Relaxed);
            if receiver.offer_stands() {
                assert_eq!(got, 1, "the sender had its memory back");
            }
        });
        offers.revoke();
        word.store(77, loom::sync::atomic::Ordering::Relaxed);
        receiving.join().unwrap();
    });
}
