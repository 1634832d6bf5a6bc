//! A connection that has not said who it is.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::acceptor::admit;
use super::poller::Event;
use super::shared::{Member, Shared, lock};
use super::socket::Sock;
use super::wire::{CONFIRMATION, Hello, answer};

/// A connection that has not said who it is.
#[derive(Debug)]
pub(crate) struct Stranger {
    number: u64,
    address: Option<SocketAddr>,
    deadline: Instant,
    /// Empty once it is over.
    state: Mutex<Option<Greeting>>,
}

#[derive(Debug)]
struct Greeting {
    socket: Sock,
    received: [u8; Hello::BYTES],
    count: usize,
    /// What it said, once that was answered.
    hello: Option<Hello>,
}

/// How a greeting goes on.
enum Step {
    Waiting,
    Confirmed,
    /// It was answered and did not stay: another address answered it earlier.
    Elsewhere,
    Refused(&'static str),
}

impl Stranger {
    pub(crate) const fn new(
        number: u64,
        address: Option<SocketAddr>,
        deadline: Instant,
        socket: Sock,
    ) -> Self {
        Self {
            number,
            address,
            deadline,
            state: Mutex::new(Some(Greeting {
                socket,
                received: [0; Hello::BYTES],
                count: 0,
                hello: None,
            })),
        }
    }

    fn step(&self, greeting: &mut Greeting, shared: &Shared) -> std::io::Result<Step> {
        const ENDED: Step = Step::Refused("it ended before it had greeted");
        while greeting.hello.is_none() {
            match greeting
                .socket
                .read(&mut greeting.received[greeting.count..])?
            {
                None => return Ok(Step::Waiting),
                Some(0) => return Ok(ENDED),
                Some(bytes) => greeting.count += bytes,
            }
            if greeting.count < Hello::BYTES {
                continue;
            }
            let Some(hello) = Hello::decode(&greeting.received) else {
                return Ok(Step::Refused("it does not greet as this version does"));
            };
            let Some(token) = lock(&shared.acceptor).answer_to(&hello) else {
                return Ok(Step::Refused("its token belongs to no listener (any more)"));
            };
            if greeting.socket.write(&answer(&token))? != Some(answer(&token).len()) {
                return Ok(Step::Refused("it takes no answer"));
            }
            greeting.hello = Some(hello);
        }
        let mut confirmation = [0];
        Ok(match greeting.socket.read(&mut confirmation)? {
            None => Step::Waiting,
            Some(0) => Step::Elsewhere,
            Some(_) if confirmation == [CONFIRMATION] => Step::Confirmed,
            Some(_) => Step::Refused("it does not confirm as this version does"),
        })
    }

    /// Goes on as far as it goes; whether it was not over.
    fn advance(&self, state: &mut Option<Greeting>, shared: &Arc<Shared>) -> bool {
        let Some(greeting) = state else {
            return false;
        };
        match self.step(greeting, shared) {
            Ok(Step::Waiting) => return true,
            Ok(Step::Confirmed) => {
                if let Some(Greeting {
                    socket,
                    hello: Some(hello),
                    ..
                }) = state.take()
                {
                    admit(shared, hello, socket);
                }
            }
            Ok(Step::Elsewhere) => {
                tracing::debug!(address = ?self.address, "a sender took another way");
            }
            Ok(Step::Refused(reason)) => self.refuse(reason),
            Err(error) => self.refuse(&error.to_string()),
        }
        *state = None;
        self.leave(shared);
        true
    }

    fn leave(&self, shared: &Shared) {
        shared.clear_deadline(self.deadline, self.number);
        lock(&shared.acceptor).met(self.number);
        shared.remove(self.number);
    }

    fn refuse(&self, reason: &str) {
        tracing::warn!(address = ?self.address, reason, "a connection was refused");
    }
}

impl Member for Stranger {
    fn ready(&self, shared: &Arc<Shared>, _socket: usize, _event: Event) -> bool {
        self.advance(&mut lock(&self.state), shared)
    }

    fn expired(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        // What has come counts: this process may have been stopped.
        self.advance(&mut state, shared);
        if state.take().is_some() {
            self.refuse("it did not greet in time");
            self.leave(shared);
        }
    }
}
