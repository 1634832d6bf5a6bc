//! One non-blocking socket and what the poller is to report of it.

use std::io::{self, ErrorKind as Io, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use comm_core::{Error, ErrorKind};
use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket2::{Domain, Socket, TcpKeepalive, Type};

use super::options::TcpOptions;
use super::poller::{Interest, Poller};

/// Connections that may wait for being taken.
const BACKLOG: i32 = 1024;

/// A socket that is closed, and no longer reported, when dropped.
#[derive(Debug)]
pub(crate) struct Sock {
    socket: Arc<Socket>,
    poller: Arc<Poller>,
    key: u64,
    /// What the poller reports; `None` if it does not know the socket.
    registered: Option<Interest>,
}

impl Sock {
    /// Takes a non-blocking socket; nothing is reported yet.
    pub(crate) fn new(socket: Socket, poller: &Arc<Poller>, key: u64) -> Self {
        Self {
            socket: Arc::new(socket),
            poller: Arc::clone(poller),
            key,
            registered: None,
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Has this reported, beside what is reported already.
    pub(crate) fn want(&mut self, want: Interest) -> io::Result<()> {
        self.settle(self.registered.unwrap_or_default().or(want))
    }

    /// Has nothing but this reported; not even errors if it is nothing.
    pub(crate) fn settle(&mut self, want: Interest) -> io::Result<()> {
        match self.registered {
            None if want == Interest::NONE => {}
            Some(known) if known == want => {}
            Some(_) if want == Interest::NONE => {
                self.poller.remove(&self.socket, self.key);
                self.registered = None;
            }
            known => {
                if known.is_none() {
                    self.poller.add(&self.socket, self.key, want)?;
                } else {
                    self.poller.modify(&self.socket, self.key, want)?;
                }
                self.registered = Some(want);
            }
        }
        Ok(())
    }

    /// Goes on under another key.
    pub(crate) fn rename(&mut self, key: u64, want: Interest) -> io::Result<()> {
        self.settle(Interest::NONE)?;
        self.key = key;
        self.settle(want)
    }

    /// Reads what there is; `None` if nothing, 0 at the end.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        retry(|| Ok(recv(&*self.socket, &mut *buffer, RecvFlags::empty())?.0))
    }

    /// As [`Sock::read`], into the first buffer before the second.
    pub(crate) fn read_both(
        &self,
        first: &mut [u8],
        second: &mut [u8],
    ) -> io::Result<Option<usize>> {
        retry(|| {
            let mut buffers = [IoSliceMut::new(first), IoSliceMut::new(second)];
            readv(&*self.socket, &mut buffers)
        })
    }

    /// Writes what fits; `None` if nothing.
    pub(crate) fn write(&self, data: &[u8]) -> io::Result<Option<usize>> {
        retry(|| send(&*self.socket, data, NO_SIGNAL))
    }

    /// As [`Sock::write`], of the first piece before the second.
    pub(crate) fn write_both(&self, first: &[u8], second: &[u8]) -> io::Result<Option<usize>> {
        retry(|| {
            let pieces = [IoSlice::new(first), IoSlice::new(second)];
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(&*self.socket, &pieces, &mut nothing, NO_SIGNAL)
        })
    }
}

impl Drop for Sock {
    fn drop(&mut self) {
        if self.registered.is_some() {
            self.poller.remove(&self.socket, self.key);
        }
    }
}

/// Writing to a closed connection must not raise a signal.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
/// A socket option does the same there.
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Calls through `rustix`, since the C library's functions are cancellation points, which cost a
/// thread that polls some tens of nanoseconds each time.
fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A non-blocking socket that listens on this address, on a port that the system chooses.
pub(crate) fn listening(address: SocketAddr, options: &TcpOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if *options.ports.end() != 0 {
        // A port of one's choice can be taken again while connections of its last owner are still
        // in TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    // Before listening: the window's scale is agreed on while connecting.
    set_buffers(&socket, options)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A non-blocking socket that has begun to connect.
pub(crate) fn connecting(address: SocketAddr, options: &TcpOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    prepare(&socket, options)?;
    set_buffers(&socket, options)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket),
    }
}

/// Sets what every connection has.
pub(crate) fn prepare(socket: &Socket, options: &TcpOptions) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    #[cfg(target_vendor = "apple")]
    socket.set_nosigpipe(true)?;
    socket.set_tcp_nodelay(true)?;
    // A third of the time is silence, then four probes follow.
    let keep_alive = TcpKeepalive::new()
        .with_time(options.keep_alive / 3)
        .with_interval((options.keep_alive / 6).max(std::time::Duration::from_secs(1)))
        .with_retries(4);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(options.user_timeout)?;
    Ok(())
}

/// Makes the kernel acknowledge every second small message, rather than each one.
///
/// An acknowledgement is a packet of its own here, since nothing is ever sent the other way on
/// which it could ride, and it is sent by the very call that receives the message.
pub(crate) fn acknowledge_lazily(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    socket.set_tcp_quickack(false)?;
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
    Ok(())
}

/// Takes the pace out of a connection between two processes of one host.
///
/// Algorithms that model a path, as BBR does, send at the rate that they have measured and keep no more
/// on its way than that needs. Here the other end is a copy away and nothing is ever lost, so every pause is one
/// in vain. Reno, which every kernel has and every process may use, just fills the receiver's window.
pub(crate) fn hurry_within_host(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let address = |address: socket2::SockAddr| address.as_socket().map(|known| known.ip());
        let own = address(socket.local_addr()?);
        if own.is_some() && own == address(socket.peer_addr()?) {
            rustix::net::sockopt::set_tcp_congestion(socket, "reno")?;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
    Ok(())
}

fn set_buffers(socket: &Socket, options: &TcpOptions) -> io::Result<()> {
    if let Some(bytes) = options.buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// What a failed read or write says about the connection.
pub(crate) fn failure(error: io::Error) -> Error {
    let gone = matches!(
        error.kind(),
        Io::BrokenPipe
            | Io::ConnectionReset
            | Io::ConnectionAborted
            | Io::NotConnected
            | Io::TimedOut
            | Io::UnexpectedEof
            | Io::HostUnreachable
            | Io::NetworkUnreachable
    );
    if gone {
        Error::new(
            ErrorKind::PeerDied,
            "the peer closed the connection, its process ended or its host does not answer",
        )
        .with_source(error)
    } else {
        Error::system("moving data over a TCP connection", error)
    }
}

/// The failure of a connection that the peer has closed.
pub(crate) fn closed() -> Error {
    failure(Io::UnexpectedEof.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_within_a_host_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        hurry_within_host(&socket).unwrap();
        let chosen = rustix::net::sockopt::tcp_congestion(&socket).unwrap();
        assert_eq!(chosen, "reno");
    }

    #[test]
    fn a_socket_without_a_peer_is_an_error_and_stays_as_it_is() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let before = rustix::net::sockopt::tcp_congestion(&socket).unwrap();
        assert!(hurry_within_host(&socket).is_err());
        let after = rustix::net::sockopt::tcp_congestion(&socket).unwrap();
        assert_eq!(before, after);
    }
}
