//! Clauses of offers of memory that the receiver has mapped.

use super::*;

/// A receiver that looks addresses up and can't pull.
fn pair_that_maps() -> (FifoSender, FifoReceiver) {
    let bells = RingTarget::Local(Doorbells::local());
    let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
    let sender = memory.another().into_sender(bells.clone());
    assert!(!sender.takes_mapped_offers(), "before the receiver said so");
    assert!(sender.mapped_offers().is_none());
    (sender, memory.mapping().into_receiver(bells))
}

fn offer_mapped(sender: &mut FifoSender, offers: &mut Offers, data: &[u8]) -> Result<bool> {
    // SAFETY: every test keeps the data longer than it uses the receiver, in the same process.
    unsafe { sender.try_offer_mapped(offers, data.as_ptr(), header(data.len(), 5)) }
}

fn offer_plain(sender: &mut FifoSender, offers: &mut Offers, data: &[u8]) -> Result<bool> {
    let offer = Offer {
        source: data.as_ptr(),
        target: std::ptr::null_mut(),
    };
    // SAFETY: as above.
    unsafe { sender.try_offer(offers, offer, header(data.len(), 5)) }
}

#[test]
fn mapped_memory_is_told_by_its_address_and_acknowledged_by_the_credit() {
    let (mut sender, mut receiver) = pair_that_maps();
    let data = pattern(3, 1000);
    let mut offers = sender.mapped_offers().unwrap();
    assert!(offer_mapped(&mut sender, &mut offers, &data).unwrap());
    assert!(matches!(
        receiver.try_step().unwrap(),
        Some(Arrived::Offer(got)) if got == header(1000, 5)
    ));
    assert!(receiver.claim().is_none(), "addresses are not for use");
    assert_eq!(receiver.mapped_offer(), Some(data.as_ptr().addr() as u64));
    assert!(receiver.offer_stands());
    receiver.consume();
    assert!(sender.is_acknowledged().unwrap());
    // The next step is another one.
    assert!(sender.try_send_small(b"next", 1).unwrap());
    assert!(receiver.try_step().unwrap().is_some());
}

#[test]
fn memory_that_is_not_mapped_is_never_offered_to_a_receiver_that_only_maps() {
    let (mut sender, mut receiver) = pair_that_maps();
    assert!(sender.offers().is_none());
    assert!(!sender.is_pulled());
    let data = [1; 100];
    let mut offers = sender.mapped_offers().unwrap();
    let error = offer_plain(&mut sender, &mut offers, &data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(receiver.try_step().unwrap().is_none());
}

#[test]
fn mapped_memory_is_never_offered_to_a_receiver_that_does_not_look_it_up() {
    let (mut sender, mut receiver) = pair(64);
    let (other, _) = pair_that_maps();
    let error = offer_mapped(&mut sender, &mut other.mapped_offers().unwrap(), &[1]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(receiver.try_step().unwrap().is_none());
}

#[test]
fn offers_that_the_receiver_did_not_ask_for_are_protocol_violations() {
    for (receives, flags) in [
        (pair_that_maps as fn() -> _, OFFER_FLAG),
        (|| pair(64), OFFER_FLAG | MAPPED_FLAG),
        (pair_that_maps, MAPPED_FLAG),
    ] {
        let (mut sender, mut receiver) = receives();
        sender.publish(header(8, 5)).unwrap();
        let line = receiver.memory.line(1);
        line.words[0].store(8 | flags, Ordering::Relaxed);
        let error = receiver.try_step().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{flags:#x}");
    }
}

#[test]
fn a_revoked_offer_of_mapped_memory_is_void() {
    let (mut sender, mut receiver) = pair_that_maps();
    let mut offers = sender.mapped_offers().unwrap();
    assert!(offer_mapped(&mut sender, &mut offers, &[7; 100]).unwrap());
    assert!(receiver.try_step().unwrap().is_some());
    offers.revoke();
    assert!(!receiver.offer_stands());
    assert!(receiver.try_step().unwrap().is_none());
}

#[test]
fn a_plain_offer_is_not_taken_for_a_mapped_one() {
    let bells = RingTarget::Local(Doorbells::local());
    let memory = FifoMemory::heap(FifoLayout::new(64).unwrap());
    let mut sender = memory.another().into_sender(bells.clone());
    let memory = memory.mapping().pulling(super::pulls::own_memory());
    let mut receiver = memory.into_receiver(bells);
    assert!(sender.is_pulled() && sender.takes_mapped_offers());
    let data = pattern(3, 1000);
    let mut offers = sender.offers().unwrap();
    assert!(offer_plain(&mut sender, &mut offers, &data).unwrap());
    assert!(offer_mapped(&mut sender, &mut offers, &data).unwrap());
    assert!(receiver.try_step().unwrap().is_some());
    assert_eq!(receiver.mapped_offer(), None);
    receiver.consume();
    assert!(receiver.try_step().unwrap().is_some());
    assert!(receiver.mapped_offer().is_some());
}
