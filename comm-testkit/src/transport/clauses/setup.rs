//! How edges come to life, and what happens to those that do not.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use comm_core::{ConnectHandle, ConnectionIndex};

use super::{pattern, signature};
use crate::transport::{Connected, Resources, Rig, TransportFixture, block_on, copy_handle};

/// The deadline of calls that are expected to fail.
const SHORT: Duration = Duration::from_millis(300);

/// Every channel, both connection indices and both directions work side by side.
pub fn every_channel_and_index_connects<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let mut edges = Vec::new();
    for channel in [0, 1, 7] {
        for index in [ConnectionIndex::Collective, ConnectionIndex::PointToPoint] {
            for mut edge in [rig.edge(), rig.edge_back()] {
                edge.index = index;
                edges.push(rig.connect_edge(&edge.on_channel(channel)).unwrap());
            }
        }
    }
    for (number, edge) in (0..).zip(&mut edges) {
        edge.send_step(&pattern(number, 32), &signature(number, 32))
            .unwrap();
    }
    for (number, edge) in (0..).zip(&mut edges) {
        assert_eq!(edge.recv_step().unwrap().payload, pattern(number, 32));
    }
}

/// Every step size that the fixture names carries empty, partly filled and full slots.
pub fn every_step_size_carries_full_slots<F: TransportFixture>() {
    let mut rig = Rig::new::<F>().unwrap();
    for step_bytes in F::step_bytes() {
        rig.step_bytes = step_bytes;
        let mut edge = rig.connect().unwrap();
        for bytes in [step_bytes, 0, 1, step_bytes - 1, step_bytes / 2, step_bytes] {
            pass(&mut edge, &pattern(bytes as u64, bytes));
        }
    }
}

/// A handle with missing, surplus or foreign bytes is an error of `connect` on either end, and
/// leaves other edges alone.
pub fn wrong_bytes_in_a_handle_are_refused<F: TransportFixture>() {
    refuses::<F>(|right| {
        let bytes = &right.bytes;
        if bytes.is_empty() {
            return Vec::new();
        }
        let foreign = [
            Bytes::new(),
            bytes.slice(..bytes.len() - 1),
            [&bytes[..], &[0]].concat().into(),
            vec![0; bytes.len()].into(),
            vec![0xff; bytes.len()].into(),
        ];
        let foreign = foreign.into_iter().filter(|foreign| foreign != bytes);
        foreign
            .map(|bytes| {
                let what = format!("the bytes {bytes:x?}");
                let fds = copy_handle(right).unwrap().fds;
                (what, ConnectHandle { bytes, fds })
            })
            .collect()
    });
}

/// A handle with missing, surplus, swapped or foreign descriptors is an error of `connect`.
pub fn wrong_descriptors_in_a_handle_are_refused<F: TransportFixture>() {
    refuses::<F>(|right| {
        let mut wrong = Vec::new();
        let mut add = |what: String, change: &dyn Fn(&mut Vec<OwnedFd>)| {
            let mut handle = copy_handle(right).unwrap();
            change(&mut handle.fds);
            wrong.push((what, handle));
        };
        add("one descriptor too many".to_owned(), &|fds| {
            fds.push(foreign_fd())
        });
        for at in 0..right.fds.len() {
            add(format!("no descriptor {at}"), &|fds| drop(fds.remove(at)));
            add(format!("a foreign descriptor {at}"), &|fds| {
                fds[at] = foreign_fd()
            });
        }
        if right.fds.len() > 1 {
            add("swapped descriptors".to_owned(), &|fds| fds.swap(0, 1));
        }
        wrong
    });
}

/// `connect` of either end returns by its deadline although the other end never connects: with the
/// connected end if it needs nobody, else with an error.
pub fn a_connect_without_its_peer_ends_by_its_deadline<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    let (send, mut recv) = rig.set_up(&rig.edge()).unwrap();
    let handle = recv.handle().unwrap();
    drop(block_on(send.connect(handle, Instant::now() + SHORT)));

    let (mut send, recv) = rig.set_up(&rig.edge()).unwrap();
    let handle = send.handle().unwrap();
    drop(block_on(recv.connect(handle, Instant::now() + SHORT)));

    pass(&mut rig.connect().unwrap(), &[1]);
}

/// Set-ups that are dropped at any point, and connected edges, leave neither descriptors nor
/// mappings behind.
///
/// Counts those of the whole process, so nothing else may run in it meanwhile
/// ([`run_alone`](crate::transport::run_alone)).
pub fn dropped_edges_release_everything<F: TransportFixture>() {
    let rig = Rig::new::<F>().unwrap();
    // What a transport keeps for all of its edges may stay.
    pass(&mut rig.connect().unwrap(), &[1]);
    let held = Resources::now();
    for _ in 0..5 {
        let edge = rig.edge();
        let deadline = Instant::now() + SHORT;
        drop(rig.ranks[0].transport.setup_send(&edge, deadline));
        drop(rig.ranks[1].transport.setup_recv(&edge, deadline));
        drop(rig.set_up(&edge).unwrap());

        let (mut send, mut recv) = rig.set_up(&edge).unwrap();
        drop((recv.handle().unwrap(), send.handle().unwrap()));
        drop((send, recv));

        let (mut send, mut recv) = rig.set_up(&edge).unwrap();
        let handles = (recv.handle().unwrap(), send.handle().unwrap());
        drop(send.connect(handles.0, deadline));
        drop(recv.connect(handles.1, deadline));

        let (send, mut recv) = rig.set_up(&edge).unwrap();
        let handle = recv.handle().unwrap();
        drop(block_on(send.connect(handle, Instant::now() + SHORT)));
        drop(recv);

        let (mut send, recv) = rig.set_up(&edge).unwrap();
        let handle = send.handle().unwrap();
        drop(block_on(recv.connect(handle, Instant::now() + SHORT)));
        drop(send);

        pass(&mut rig.connect().unwrap(), &[2]);
    }
    held.wait_for_return();
}

/// Gives each end of an edge each of the `wrong` variants of the handle that is meant for it.
fn refuses<F: TransportFixture>(wrong: impl Fn(&ConnectHandle) -> Vec<(String, ConnectHandle)>) {
    let rig = Rig::new::<F>().unwrap();
    let mut bystander = rig.connect().unwrap();
    let handle_for = |sender: bool| {
        let (mut send, mut recv) = rig.set_up(&rig.edge()).unwrap();
        if sender { recv.handle() } else { send.handle() }.unwrap()
    };
    for at in 0..wrong(&handle_for(true)).len() {
        let (send, mut recv) = rig.set_up(&rig.edge()).unwrap();
        let (what, handle) = wrong(&recv.handle().unwrap()).swap_remove(at);
        let result = block_on(send.connect(handle, Instant::now() + SHORT));
        assert!(result.is_err(), "the sending end accepted {what}");
    }
    for at in 0..wrong(&handle_for(false)).len() {
        let (mut send, recv) = rig.set_up(&rig.edge()).unwrap();
        let (what, handle) = wrong(&send.handle().unwrap()).swap_remove(at);
        let result = block_on(recv.connect(handle, Instant::now() + SHORT));
        assert!(result.is_err(), "the receiving end accepted {what}");
    }
    pass(&mut bystander, &[3]);
    pass(&mut rig.connect().unwrap(), &[4]);
}

fn foreign_fd() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

/// One step through an edge.
fn pass(edge: &mut Connected, payload: &[u8]) {
    edge.send_step(payload, &signature(1, payload.len()))
        .unwrap();
    assert_eq!(edge.recv_step().unwrap().payload, payload);
}
