//! What a transport says about itself, and what follows from it.

use bytes::Bytes;
use comm_core::{Edge, PeerInfo, Verdict};

use crate::transport::{Rig, TransportFixture};

/// The name is short, not empty and in lower case, so that users can type it and both ends know it.
pub fn the_name_is_lower_case<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let [first, second] = [0, 1].map(|rank| rig.ranks[rank].transport.name());
    assert_eq!(first, second, "both ends must recognise the name");
    assert!(!first.is_empty() && first.len() <= 32, "{first:?}");
    assert!(
        first.chars().all(|letter| letter.is_ascii_lowercase()
            || letter.is_ascii_digit()
            || matches!(letter, '-' | '_')),
        "{first:?}"
    );
}

/// The facts are the same whenever they are asked for.
pub fn facts_are_stable<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    for rank in &rig.ranks {
        let transport = &rank.transport;
        let published = rank.info.transport_facts(transport.name());
        for _ in 0..3 {
            assert_eq!(Some(&transport.facts().unwrap()), published);
        }
    }
}

/// Both ends give the same answer for the same edge, however often, before and after it was set up.
pub fn can_connect_is_pure_and_symmetric<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    for edge in [rig.edge(), rig.edge_back()] {
        for _ in 0..2 {
            for rank in &rig.ranks {
                assert_eq!(rank.transport.can_connect(&edge), Verdict::Yes, "{edge}");
            }
            drop(rig.connect_edge(&edge).unwrap());
        }
    }
}

/// A rank that did not publish facts of this transport is refused, with a reason, on both ends.
pub fn a_peer_without_facts_is_refused_with_a_reason<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let [first, second] = [0, 1].map(|rank| &rig.ranks[rank].info);
    for (sender, receiver) in [
        (&without_facts(first), second),
        (first, &without_facts(second)),
    ] {
        let edge = Edge::new(sender, receiver, rig.edge().index, rig.step_bytes);
        let answers = [0, 1].map(|rank| rig.ranks[rank].transport.can_connect(&edge));
        assert_eq!(answers[0], answers[1]);
        let Verdict::No(reason) = &answers[0] else {
            panic!("a rank without facts was accepted")
        };
        assert!(!reason.is_empty());
    }
}

/// Facts come from other processes: whatever they hold, both ends give the same answer.
pub fn foreign_facts_get_an_answer<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let [first, second] = [0, 1].map(|rank| &rig.ranks[rank].info);
    let name = rig.ranks[0].transport.name();
    let own = first.transport_facts(name).cloned().unwrap_or_default();
    let mut foreign = vec![Bytes::new(), Bytes::from_static(&[0xff; 200])];
    for length in 0..own.len() {
        foreign.push(own.slice(..length));
        let mut changed = own.to_vec();
        changed[length] ^= 0x55;
        foreign.push(changed.into());
    }
    foreign.push([&own[..], &[0]].concat().into());
    for facts in foreign {
        let mut claimed = first.clone();
        claimed.transports.insert(name.to_owned(), facts);
        for (sender, receiver) in [(&claimed, second), (second, &claimed)] {
            let edge = Edge::new(sender, receiver, rig.edge().index, rig.step_bytes);
            let answers = [0, 1].map(|rank| rig.ranks[rank].transport.can_connect(&edge));
            assert_eq!(answers[0], answers[1]);
        }
    }
}

fn without_facts(info: &PeerInfo) -> PeerInfo {
    let mut info = info.clone();
    info.transports.clear();
    info
}
