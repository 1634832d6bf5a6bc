//! What each Cargo feature adds; `cargo xtask features` runs this with each of them alone.

use comm_api::Communicator;

/// The transports that the features of this build bring, in the canonical order.
fn expected() -> Vec<&'static str> {
    let mut names = Vec::new();
    if cfg!(feature = "p2p") {
        names.push("p2p");
    }
    if cfg!(all(feature = "shm", target_os = "linux")) {
        names.push("shm");
    }
    if cfg!(feature = "verbs") {
        names.push("verbs");
    }
    if cfg!(feature = "tcp") {
        names.push("net");
    }
    names
}

/// Those of them that this machine can use: RDMA needs a card.
fn usable() -> Vec<String> {
    let explained = alone().explain().transports;
    let usable = explained
        .into_iter()
        .filter(|(_, why_not)| why_not.is_none());
    usable.map(|(name, _)| name).collect()
}

fn alone() -> Communicator {
    comm_api::init_all(1).unwrap().remove(0)
}

#[test]
fn a_feature_adds_its_transport_and_nothing_else() {
    assert_eq!(comm_api::compiled_transports(), expected());
    let explained = alone().explain();
    let names: Vec<_> = explained.transports.iter().map(|(name, _)| name).collect();
    assert_eq!(names, expected().iter().collect::<Vec<_>>());
}

#[test]
fn explain_says_what_is_compiled_in_and_whether_it_can_be_used() {
    let text = alone().explain().to_string();
    for name in ["p2p", "shm", "verbs", "net"] {
        let available = text.contains(&format!("transport {name}: available\n"));
        let without_card = text.contains(&format!("transport {name}: unavailable, "));
        assert!(!without_card || name == "verbs", "{text}");
        let is_listed = available || without_card;
        assert_eq!(is_listed, expected().contains(&name), "{text}");
    }
    let none = "transport: none is compiled in or registered\n";
    assert_eq!(text.contains(none), expected().is_empty(), "{text}");
}

#[test]
fn an_edge_is_carried_by_the_first_transport_that_can_be_used() {
    let usable = usable();
    let mut comms = comm_api::init_all(2).unwrap();
    let (one, other) = (comms.remove(0), comms.remove(0));
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| one.send(&[7_u8; 100], 1));
        let mut buffer = [0_u8; 100];
        let received = if usable.is_empty() {
            // Nothing ever comes; the sender says why.
            Ok(())
        } else {
            other.recv(&mut buffer, 0)
        };
        (sending.join().unwrap(), received)
    });
    let Some(first) = usable.first() else {
        let error = sent.unwrap_err().to_string();
        assert!(error.contains("no transport connects"), "{error}");
        let reason = expected().first().copied();
        let reason = reason.unwrap_or("none is compiled in");
        assert!(error.contains(reason), "{error}");
        return;
    };
    sent.unwrap();
    received.unwrap();
    for edge in one.explain().edges {
        assert_eq!(edge.transport, *first);
    }
}
