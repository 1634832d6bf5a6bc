//! Strangers, dead addresses and wrong ones.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use comm_core::net::{NetListener, NetRecv, NetSend};
use comm_core::{ErrorKind, Result};
use comm_testkit::net::Rig;
use comm_transport_net::tcp::{TcpBackend, TcpOptions};

use crate::conformance::{backends, on};

fn rig(options: &TcpOptions) -> Rig {
    let [sender, receiver] = backends(options).unwrap();
    Rig {
        sender,
        receiver,
        send: None,
        recv: None,
    }
}

/// The port in the handle of a listener on one IPv4 address, which comes last.
fn port(handle: &[u8]) -> u16 {
    let [.., family, low, high, _, _, _, _] = handle else {
        panic!("the handle is too short");
    };
    assert_eq!(*family, 4);
    u16::from_le_bytes([*low, *high])
}

/// The handle with one more address, to be tried first.
fn with_address_before(handle: &[u8], address: SocketAddr) -> Vec<u8> {
    const HEAD_BYTES: usize = 6 + 32;
    let SocketAddr::V4(address) = address else {
        panic!("the tests use IPv4 here");
    };
    let mut longer = handle[..HEAD_BYTES].to_vec();
    longer[5] += 1;
    longer.push(4);
    longer.extend(address.port().to_le_bytes());
    longer.extend(address.ip().octets());
    longer.extend(&handle[HEAD_BYTES..]);
    longer
}

/// The handle with one more address, to be tried last.
fn with_address_behind(handle: &[u8], address: SocketAddr) -> Vec<u8> {
    const HEAD_BYTES: usize = 6 + 32;
    let mut longer = with_address_before(handle, address);
    let added = longer.len() - handle.len();
    longer[HEAD_BYTES..].rotate_left(added);
    longer
}

/// A connection, if one waits to be taken.
fn accept_now(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    listener.accept().ok().map(|(stream, _)| stream)
}

type Ends = (Box<dyn NetSend>, Box<dyn NetRecv>);

fn connect(rig: &Rig, listener: &mut dyn NetListener, handle: &[u8]) -> Result<Ends> {
    let mut connect = rig.sender.connect(0, handle)?;
    let send = rig.wait("a connect", || connect.poll())?;
    let recv = rig.wait("an accept", || listener.accept())?;
    Ok((send, recv))
}

/// Sends one message.
fn check(mut rig: Rig, (send, recv): Ends) {
    (rig.send, rig.recv) = (Some(send), Some(recv));
    let (from, to) = (
        rig.send_buffer(b"hello").unwrap(),
        rig.recv_buffer(5).unwrap(),
    );
    let (sent, received) = (rig.isend(&from).unwrap(), rig.irecv(&to).unwrap());
    assert_eq!(rig.received(&received).unwrap(), 5);
    assert_eq!(rig.sent(&sent).unwrap(), 5);
    assert_eq!(to.contents(), b"hello");
}

#[test]
fn n1_strangers_do_not_disturb() {
    let rig = rig(&on(Ipv4Addr::LOCALHOST));
    let mut listener = rig.receiver.listen(0).unwrap();
    let address = (Ipv4Addr::LOCALHOST, port(listener.handle()));
    // A greeting of the right form but with a token that nobody has.
    let mut guess = [0; 44];
    guess[..4].copy_from_slice(&0x6354_4348_u32.to_le_bytes());
    guess[4..12].copy_from_slice(&[1, 1, 0, 0, 1, 0, 0, 0]);
    let greetings: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xFF; 5000],
        &guess[..20],
        &guess,
        &[0; 44],
    ];
    let mut strangers = Vec::new();
    for greeting in greetings {
        for ends in [false, true] {
            let mut stranger = TcpStream::connect(address).unwrap();
            // The other side may have hung up already.
            let _ = stranger.write_all(greeting);
            if ends {
                let _ = stranger.shutdown(Shutdown::Write);
            }
            strangers.push(stranger);
        }
    }
    for _ in 0..100 {
        rig.receiver.progress().unwrap();
        assert!(listener.accept().unwrap().is_none(), "a stranger got in");
    }
    let handle = listener.handle().to_vec();
    let ends = connect(&rig, &mut *listener, &handle).unwrap();
    assert!(listener.accept().unwrap().is_none(), "a stranger got in");
    // Whoever greeted wrongly was hung up on, without an answer.
    for stranger in &mut strangers[8..10] {
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    check(rig, ends);
}

#[test]
fn n1_more_strangers_than_may_wait_lock_nobody_out() {
    let rig = rig(&on(Ipv4Addr::LOCALHOST));
    let mut listener = rig.receiver.listen(0).unwrap();
    let address = (Ipv4Addr::LOCALHOST, port(listener.handle()));
    let mut strangers = Vec::new();
    for _ in 0..600 {
        match TcpStream::connect(address) {
            Ok(stranger) => strangers.push(stranger),
            Err(error) => {
                println!(
                    "skipped: no more descriptors than {}: {error}",
                    strangers.len()
                );
                return;
            }
        }
        rig.receiver.progress().unwrap();
    }
    let handle = listener.handle().to_vec();
    let ends = connect(&rig, &mut *listener, &handle).unwrap();
    check(rig, ends);
}

#[test]
fn addresses_are_tried_until_the_right_one_answers() {
    let refusing = {
        let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        unused.local_addr().unwrap()
    };
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let wrong = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let wrong_address = wrong.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = wrong.accept() {
            let _ = stream.write_all(&[b'X'; 64]);
            // Not hung up on before the answer was read.
            let _ = stream.read(&mut [0; 64]);
        }
    });
    let options = on(Ipv4Addr::LOCALHOST);
    for first in [refusing, silent.local_addr().unwrap(), wrong_address] {
        let rig = rig(&options);
        let mut listener = rig.receiver.listen(0).unwrap();
        let handle = with_address_before(listener.handle(), first);
        let ends = connect(&rig, &mut *listener, &handle).unwrap();
        check(rig, ends);
    }
}

#[test]
fn an_address_that_leads_nowhere_does_not_keep_the_others_waiting() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Whoever waited for the first address would do so for an hour.
    let options = on(Ipv4Addr::LOCALHOST).connect_timeout(Duration::from_secs(3600));
    for sockets in [1, 3] {
        let rig = rig(&options.clone().sockets(sockets));
        let mut listener = rig.receiver.listen(0).unwrap();
        let handle = with_address_before(listener.handle(), silent.local_addr().unwrap());
        let ends = connect(&rig, &mut *listener, &handle).unwrap();
        // The attempt that lost was hung up on.
        let (mut lost, _) = silent.accept().unwrap();
        let mut greeting = Vec::new();
        lost.read_to_end(&mut greeting).unwrap();
        check(rig, ends);
    }
}

#[test]
fn a_late_answer_of_the_first_address_counts_beside_others_that_lead_nowhere() {
    // The receiver stands still for longer than the next address waits.
    let options = on(Ipv4Addr::LOCALHOST).connect_timeout(Duration::from_secs(3600));
    let rig = rig(&options);
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut listener = rig.receiver.listen(0).unwrap();
    let handle = with_address_behind(listener.handle(), silent.local_addr().unwrap());
    let mut connect = rig.sender.connect(0, &handle).unwrap();
    let tried = loop {
        rig.sender.progress().unwrap();
        assert!(connect.poll().unwrap().is_none(), "nobody answers");
        if let Some(tried) = accept_now(&silent) {
            break tried;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let send = rig.wait("a connect", || connect.poll()).unwrap();
    let recv = rig.wait("an accept", || listener.accept()).unwrap();
    drop(tried);
    check(rig, (send, recv));
}

#[test]
fn a_peer_that_cannot_be_reached_is_an_error_that_lists_what_was_tried() {
    let options = on(Ipv4Addr::LOCALHOST).connect_timeout(Duration::from_millis(50));
    let rig = rig(&options);
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let listener = rig.receiver.listen(0).unwrap();
    let handle = with_address_before(listener.handle(), address);
    drop(listener);
    let mut connect = rig.sender.connect(0, &handle).unwrap();
    let error = rig.wait("an error", || connect.poll()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_backend_listens_on_several_addresses() {
    let both = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let rig = rig(&TcpOptions::new().addresses(both));
    let mut listener = rig.receiver.listen(0).unwrap();
    let handle = listener.handle().to_vec();
    let ends = connect(&rig, &mut *listener, &handle).unwrap();
    check(rig, ends);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let error = |options: TcpOptions| TcpBackend::new(options).unwrap_err().kind();
    for options in [
        TcpOptions::new().addresses([]),
        TcpOptions::new().sockets(0),
        TcpOptions::new().sockets(17),
        TcpOptions::new().stripe_bytes(0),
        TcpOptions::new().buffer_bytes(Some(0)),
        TcpOptions::new().keep_alive(Duration::from_millis(1)),
    ] {
        assert_eq!(error(options), ErrorKind::InvalidConfiguration);
    }
    // An address of the documentation's, which this host does not have.
    let foreign = on([192, 0, 2, 1]);
    assert_eq!(error(foreign), ErrorKind::System);
}

#[test]
fn a_backend_listens_within_its_range_of_ports_or_says_that_it_is_taken() {
    let port = comm_testkit::ports::free_port();
    let options = TcpOptions::new().ports(port..=port);
    let backend = TcpBackend::new(options.clone()).unwrap();
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    let error = TcpBackend::new(options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().contains("COMM_PORT_RANGE"), "{error}");
    drop(backend);
    let from_none = TcpOptions::new().ports(0..=1);
    assert_eq!(
        TcpBackend::new(from_none).unwrap_err().kind(),
        ErrorKind::InvalidConfiguration
    );
}
