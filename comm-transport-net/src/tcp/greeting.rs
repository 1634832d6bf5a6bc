//! The sender's side of a greeting, on one socket.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::poller::Interest;
use super::shared::Shared;
use super::socket::{Sock, connecting, hurry_within_host};
use super::wire::{ANSWER_BYTES, CONFIRMATION, Hello, Token, is_answer};

/// A socket that is to become one of a connection's.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) address: SocketAddr,
    socket: Sock,
    stage: Stage,
    /// Until when it may be silent.
    pub(crate) deadline: Instant,
    received: [u8; ANSWER_BYTES],
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Answering,
    Greeted,
}

impl Greeting {
    /// Begins to connect to an address of the receiver; reported under `key`.
    pub(crate) fn begin(address: SocketAddr, shared: &Shared, key: u64) -> io::Result<Self> {
        let socket = connecting(address, &shared.options)?;
        let mut socket = Sock::new(socket, &shared.poller, key);
        socket.settle(Interest::WRITE)?;
        Ok(Self {
            address,
            socket,
            stage: Stage::Connecting,
            deadline: Instant::now() + shared.options.connect_timeout,
            received: [0; ANSWER_BYTES],
            count: 0,
        })
    }

    /// Whether the receiver is greeted.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Greeted
    }

    /// Is reported under another key from now on.
    pub(crate) fn rename(&mut self, key: u64) -> io::Result<()> {
        self.socket.rename(key, Interest::READ)
    }

    pub(crate) fn into_socket(self) -> Sock {
        self.socket
    }

    /// Goes on as far as it goes; whether the receiver is greeted.
    pub(crate) fn step(
        &mut self,
        hello: &Hello,
        answer: &Token,
        shared: &Shared,
    ) -> io::Result<bool> {
        if self.stage == Stage::Connecting {
            let socket = self.socket.socket();
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
            if let Err(error) = hurry_within_host(socket) {
                tracing::debug!(%error, "the system's congestion control stays");
            }
            send_all(&self.socket, &hello.encode())?;
            self.socket.settle(Interest::READ)?;
            self.stage = Stage::Answering;
            self.deadline = Instant::now() + shared.options.connect_timeout;
        }
        while self.count < ANSWER_BYTES {
            match self.socket.read(&mut self.received[self.count..])? {
                None => return Ok(false),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(bytes) => self.count += bytes,
            }
        }
        if !is_answer(&self.received, answer) {
            return Err(io::Error::other("somebody else answers there"));
        }
        send_all(&self.socket, &[CONFIRMATION])?;
        self.stage = Stage::Greeted;
        Ok(true)
    }
}

fn send_all(socket: &Sock, bytes: &[u8]) -> io::Result<()> {
    // The buffer of a new connection has room for a few bytes.
    match socket.write(bytes)? {
        Some(written) if written == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the connection takes no greeting")),
    }
}
