//! What a rank says about its network to the others.

use bytes::{BufMut, Bytes, BytesMut};
use comm_core::net::{NetBackend, Reach};
use comm_core::{Edge, Error, ErrorKind, PeerInfo, Result, Verdict};

const VERSION: u8 = 1;

/// The facts about one rank's backend.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    backend: String,
    /// How far each device's connections go.
    reach: Vec<Reach>,
}

/// Encodes the facts about a backend.
pub(crate) fn encode(backend: &dyn NetBackend) -> Result<Bytes> {
    let devices = backend.devices();
    let refused = |kind, what: &'static str| Error::new(kind, what).with("backend", backend.name());
    if devices.is_empty() {
        return Err(refused(
            ErrorKind::Unavailable,
            "the network has no usable device",
        ));
    }
    let (Ok(name_bytes), Ok(count)) = (
        u8::try_from(backend.name().len()),
        u8::try_from(devices.len()),
    ) else {
        return Err(refused(
            ErrorKind::InvalidConfiguration,
            "a network's name can have 255 bytes and the network 255 devices at most",
        ));
    };
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    bytes.put_u8(name_bytes);
    bytes.put_slice(backend.name().as_bytes());
    bytes.put_u8(count);
    bytes.extend(devices.iter().map(|device| device.reach as u8));
    Ok(bytes.freeze())
}

fn decode(bytes: &[u8]) -> Option<Facts> {
    let [VERSION, name_bytes, rest @ ..] = bytes else {
        return None;
    };
    let (name, rest) = rest.split_at_checked(usize::from(*name_bytes))?;
    let [count, reach @ ..] = rest else {
        return None;
    };
    if reach.len() != usize::from(*count) || reach.is_empty() {
        return None;
    }
    let reach = reach
        .iter()
        .map(|&code| Reach::from_code(code))
        .collect::<Option<_>>()?;
    Some(Facts {
        backend: String::from_utf8(name.to_vec()).ok()?,
        reach,
    })
}

/// Which device of a rank serves a channel.
pub(crate) fn device_for(channel: u32, devices: usize) -> usize {
    // At most 255 devices, and never 0: `encode` refused that.
    channel as usize % devices.max(1)
}

/// Whether both ends of the edge have the same network, and it reaches from one to the other.
pub(crate) fn verdict(transport: &str, edge: &Edge<'_>) -> Verdict {
    let of = |peer: &PeerInfo| match peer.transport_facts(transport) {
        None => Err(format!("{peer} has no transport {transport:?}")),
        Some(bytes) => decode(bytes)
            .ok_or_else(|| format!("the facts of {peer} about {transport:?} are of no known form")),
    };
    let (sender, receiver) = match (of(edge.sender), of(edge.receiver)) {
        (Ok(sender), Ok(receiver)) => (sender, receiver),
        (Err(reason), _) | (_, Err(reason)) => return Verdict::No(reason),
    };
    if sender.backend != receiver.backend {
        return Verdict::No(format!(
            "{} uses the network {:?}, {} uses {:?}",
            edge.sender, sender.backend, edge.receiver, receiver.backend
        ));
    }
    let reach_of = |facts: &Facts| facts.reach[device_for(edge.channel, facts.reach.len())];
    let (needed, where_they_are) = if edge.sender.process == edge.receiver.process {
        (Reach::Process, "in one process")
    } else if edge.sender.host == edge.receiver.host {
        (Reach::Host, "in different processes")
    } else {
        (Reach::Network, "on different hosts")
    };
    if reach_of(&sender).min(reach_of(&receiver)) < needed {
        return Verdict::No(format!(
            "the network {:?} does not reach that far: {} and {} are {where_they_are}",
            sender.backend, edge.sender, edge.receiver
        ));
    }
    Verdict::Yes
}

#[cfg(test)]
mod tests {
    use comm_core::{ConnectionIndex, HostId, ProcessId};

    use super::*;

    fn peer(rank: u32, host: u8, process: u8, facts: &[u8]) -> PeerInfo {
        let mut peer = PeerInfo::new(rank, HostId([host; 16]), ProcessId([process; 16]));
        peer.transports
            .insert("net".to_owned(), Bytes::copy_from_slice(facts));
        peer
    }

    fn ask(sender: &PeerInfo, receiver: &PeerInfo) -> Verdict {
        let index = ConnectionIndex::Collective;
        let one = verdict("net", &Edge::new(sender, receiver, index, 64));
        let other = verdict("net", &Edge::new(receiver, sender, index, 64));
        assert_eq!(
            one.is_yes(),
            other.is_yes(),
            "the verdict must be symmetric"
        );
        one
    }

    const NETWORK: &[u8] = b"\x01\x03tcp\x01\x03";
    const HOST: &[u8] = b"\x01\x03uds\x01\x02";
    const PROCESS: &[u8] = b"\x01\x04mock\x01\x01";

    #[test]
    fn the_reach_decides() {
        for (facts, same_process, same_host, across) in [
            (NETWORK, true, true, true),
            (HOST, true, true, false),
            (PROCESS, true, false, false),
        ] {
            let first = peer(0, 1, 1, facts);
            assert_eq!(ask(&first, &peer(1, 1, 1, facts)).is_yes(), same_process);
            assert_eq!(ask(&first, &peer(1, 1, 2, facts)).is_yes(), same_host);
            assert_eq!(ask(&first, &peer(1, 2, 3, facts)).is_yes(), across);
        }
    }

    #[test]
    fn different_networks_do_not_meet() {
        let Verdict::No(reason) = ask(&peer(0, 1, 1, NETWORK), &peer(1, 1, 1, HOST)) else {
            panic!("tcp and uds cannot connect");
        };
        assert!(
            reason.contains("\"tcp\"") && reason.contains("\"uds\""),
            "{reason}"
        );
    }

    #[test]
    fn missing_or_damaged_facts_are_a_no() {
        let good = peer(0, 1, 1, NETWORK);
        for facts in [
            &b""[..],
            b"\x02",
            b"\x01\x09tcp",
            b"\x01\x03tcp\x00",
            b"\x01\x03tcp\x01\x09",
        ] {
            assert!(!ask(&good, &peer(1, 1, 1, facts)).is_yes(), "{facts:?}");
        }
        let mut without = good.clone();
        without.transports.clear();
        assert!(!ask(&good, &without).is_yes());
    }
}
