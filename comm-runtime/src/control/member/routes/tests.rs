use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use comm_core::{HostId, Rank};

use super::*;
use crate::control::liveness::Heartbeat;
use crate::control::member::MemberSpec;
use crate::control::plane::ControlHandler;
use crate::control::process::{Process, ProcessOptions};
use crate::control::secret::Admission;

#[derive(Debug, PartialEq)]
enum Event {
    Message(Rank),
    Failure,
    Leave(Rank),
}

struct Recorder(Sender<Event>);

impl ControlHandler for Recorder {
    fn on_message(&self, from: Rank, _message: Message) {
        self.0.send(Event::Message(from)).unwrap();
    }

    fn on_failure(&self, _failure: &Error) {
        self.0.send(Event::Failure).unwrap();
    }

    fn on_leave(&self, rank: Rank) {
        self.0.send(Event::Leave(rank)).unwrap();
    }
}

/// Rank 0 of two, with what it hears.
fn member(process: &Process) -> (Arc<Member>, Receiver<Event>) {
    let (sender, events) = channel();
    let spec = MemberSpec {
        communicator: [7; 16],
        rank: 0,
        world_size: 2,
        admission: Admission::default(),
        heartbeat: Heartbeat::default(),
        handler: Arc::new(Recorder(sender)),
    };
    (Member::register(process.core(), spec).unwrap(), events)
}

/// A link from rank 1 to the member; rank 1's end.
fn link(process: &Process, member: &Arc<Member>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (own, _) = listener.accept().unwrap();
    own.set_nonblocking(true).unwrap();
    let _inside = process.core().runtime().enter();
    let tag = ProcessTag {
        id: ProcessId([9; 16]),
        host: HostId([9; 16]),
        pid: 0,
        pid_namespace: 0,
    };
    member.attach(tokio::net::TcpStream::from_std(own).unwrap(), 1, tag);
    end
}

fn message() -> Bytes {
    link::message_frame(&Message::new(1, Bytes::new())).unwrap()
}

fn goodbye() -> Bytes {
    frame::encode_raw(FrameKind::Goodbye, &[]).unwrap()
}

#[test]
fn a_peer_has_left_only_when_what_it_sent_over_every_link_was_read() {
    let process = Process::acquire(&ProcessOptions::new()).unwrap();
    let (member, events) = member(&process);
    let [mut first, mut second] = [(); 2].map(|()| link(&process, &member));
    second.write_all(&goodbye()).unwrap();
    // The member closes the link when it has read that.
    assert_eq!(std::io::Read::read(&mut second, &mut [0; 1]).unwrap(), 0);
    assert!(!member.has_left(1));
    first.write_all(&message()).unwrap();
    assert_eq!(events.recv().unwrap(), Event::Message(1));
    assert!(!member.has_left(1));
    // Even if this one ends without a word.
    drop(first);
    assert_eq!(events.recv().unwrap(), Event::Leave(1));
    assert!(member.has_left(1));
    assert!(events.try_recv().is_err());
    member.abandon();
}
