//! Clauses of offered memory, on one thread; the models check the rest.

use super::*;

fn pair_with_offers() -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Doorbells::local());
    FifoMemory::heap_with_offers(FifoLayout::new(64).unwrap()).into_ends(bells.clone(), bells)
}

fn make_offer(sender: &mut FifoSender, offers: &mut Offers, data: &[u8]) -> bool {
    let offer = Offer {
        source: data.as_ptr(),
        target: std::ptr::null_mut(),
    };
    // SAFETY: every test keeps `data` longer than it uses the receiver.
    unsafe { sender.try_offer(offers, offer, header(data.len(), 5)) }.unwrap()
}

fn read(receiver: &FifoReceiver, bytes: usize) -> Vec<u8> {
    let claim = receiver.claim().expect("an offer that nobody holds");
    // SAFETY: the claim lives, and the tests ask for what was offered.
    unsafe { std::slice::from_raw_parts(claim.offer().source, bytes) }.to_vec()
}

#[test]
fn an_offer_may_be_longer_than_a_slot_and_comes_in_order_with_other_steps() {
    let (mut sender, mut receiver) = pair_with_offers();
    let data = pattern(3, 1000);
    let mut offers = sender.offers().unwrap();
    assert!(sender.try_send_small(b"first", 1).unwrap());
    assert!(make_offer(&mut sender, &mut offers, &data));
    assert!(receiver.claim().is_none(), "a small step comes first");
    receiver.consume();
    for _ in 0..2 {
        let Some(Arrived::Offer(got)) = receiver.try_step().unwrap() else {
            panic!("an offer was made")
        };
        assert_eq!(got, header(1000, 5));
        assert_eq!(read(&receiver, 1000), data);
    }
    assert!(!sender.is_acknowledged().unwrap());
    receiver.consume();
    assert!(sender.is_acknowledged().unwrap());
}

#[test]
fn one_claim_excludes_another_and_is_given_back_when_dropped() {
    let (mut sender, receiver) = pair_with_offers();
    let data = [1, 2, 3];
    let mut offers = sender.offers().unwrap();
    assert!(make_offer(&mut sender, &mut offers, &data));
    let claim = receiver.claim().unwrap();
    assert!(receiver.claim().is_none());
    drop(claim);
    assert_eq!(read(&receiver, 3), data);
}

#[test]
fn offers_use_up_credit_like_other_steps() {
    let (mut sender, mut receiver) = pair_with_offers();
    let data = [7; 10];
    let mut offers = sender.offers().unwrap();
    for _ in 0..SLOTS {
        assert!(make_offer(&mut sender, &mut offers, &data));
    }
    assert!(!make_offer(&mut sender, &mut offers, &data));
    receiver.consume();
    assert!(make_offer(&mut sender, &mut offers, &data));
}

#[test]
fn a_revocation_spares_what_was_consumed_and_what_other_operations_offer() {
    let (mut sender, mut receiver) = pair_with_offers();
    let data = [9; 4];
    let mut first = sender.offers().unwrap();
    assert!(make_offer(&mut sender, &mut first, &data));
    assert_eq!(read(&receiver, 4), data);
    receiver.consume();
    let mut second = sender.offers().unwrap();
    assert!(make_offer(&mut sender, &mut second, &data));
    drop(first);
    assert_eq!(read(&receiver, 4), data);
    second.revoke();
    assert!(receiver.try_step().unwrap().is_none());
    assert!(receiver.claim().is_none());
    second.revoke();
    drop(sender);
    let error = receiver.try_step().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerDied);
}

#[test]
fn offers_need_a_fifo_that_carries_them_and_their_own_one() {
    let (sender, receiver) = pair(64);
    assert!(sender.offers().is_none());
    assert!(!receiver.carries_offers());
    let (mut sender, _receiver) = pair_with_offers();
    let (other, _other_receiver) = pair_with_offers();
    let mut foreign = other.offers().unwrap();
    let nothing = Offer {
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };
    // SAFETY: nothing is offered.
    let refused = unsafe { sender.try_offer(&mut foreign, nothing, header(0, 1)) };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn an_offer_over_a_fifo_that_carries_none_is_a_protocol_violation_and_never_claimed() {
    let (mut sender, mut receiver) = pair(64);
    fill(sender.try_slot().unwrap().unwrap(), b"payload!");
    sender.publish(header(8, 1)).unwrap();
    // What a peer that shares the memory could write.
    let line = sender.memory.line(1);
    line.words[0].store(8 | OFFER_FLAG, Ordering::Relaxed);
    sender
        .memory
        .claim(1)
        .store(offer::offered(1), Ordering::Relaxed);
    assert_eq!(receiver.try_step().unwrap_err().kind(), ErrorKind::Protocol);
    assert!(receiver.claim().is_none());
}
