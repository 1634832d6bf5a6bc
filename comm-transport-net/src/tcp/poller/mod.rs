//! Which sockets have something to do.
//!
//! # Contract
//!
//! * A socket is registered under a key, with what is wanted of it. What is wanted is reported as
//!   long as it holds (level-triggered); errors and hang-ups are reported as both readable and
//!   writable, whatever is wanted.
//! * [`Poller::look`] never waits. Any thread may call it, several at once too.
//! * [`Poller::set_timer`] makes [`TIMER_KEY`] readable at that time, until it is set anew.
//!
//! On Linux this is an epoll set, whose descriptor is the wake source. Elsewhere it is a list for
//! `poll(2)`, which has no such descriptor.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(any(test, not(target_os = "linux")))]
mod list;

#[cfg(target_os = "linux")]
pub(crate) use epoll::Poller;
#[cfg(not(target_os = "linux"))]
pub(crate) use list::Poller;

/// The key of the timer.
pub(crate) const TIMER_KEY: u64 = u64::MAX;

/// Events that one look reports at most.
pub(crate) const BATCH: usize = 64;

/// What is wanted of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const NONE: Self = Self {
        read: false,
        write: false,
    };
    pub(crate) const READ: Self = Self {
        read: true,
        write: false,
    };
    pub(crate) const WRITE: Self = Self {
        read: false,
        write: true,
    };

    pub(crate) const fn or(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            write: self.write || other.write,
        }
    }
}

/// What a socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use socket2::Socket;

    use super::*;

    fn pair() -> (Arc<Socket>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (Arc::new(near.into()), far)
    }

    /// Looks until there is something; the watchdog ends a test that sees nothing.
    macro_rules! events {
        ($poller:expr) => {{
            let watchdog = Instant::now() + Duration::from_secs(60);
            loop {
                let mut events = Vec::new();
                $poller.look(&mut |event| events.push(event)).unwrap();
                if !events.is_empty() {
                    break events;
                }
                assert!(Instant::now() < watchdog, "nothing is reported");
                thread::sleep(Duration::from_millis(1));
            }
        }};
    }

    macro_rules! contract {
        ($name:ident, $poller:ty) => {
            #[test]
            fn $name() {
                let poller = <$poller>::new().unwrap();
                let (near, mut far) = pair();
                let quiet = || {
                    let mut events = Vec::new();
                    poller.look(&mut |event| events.push(event)).unwrap();
                    events.is_empty()
                };
                poller.add(&near, 7, Interest::READ).unwrap();
                assert!(quiet(), "nothing has come");
                far.write_all(b"x").unwrap();
                for _ in 0..2 {
                    let events = events!(poller);
                    assert!(events.len() == 1 && events[0].key == 7 && events[0].readable);
                }
                poller.modify(&near, 7, Interest::WRITE).unwrap();
                assert!(events!(poller)[0].writable);
                poller.remove(&near, 7);
                assert!(quiet(), "a removed socket is not reported");

                poller.set_timer(Some(Instant::now())).unwrap();
                assert_eq!(events!(poller)[0].key, TIMER_KEY);
                poller.set_timer(None).unwrap();
                assert!(quiet(), "the timer is off");

                poller.add(&near, 8, Interest::READ).unwrap();
                drop(far);
                assert!(events!(poller)[0].readable, "the end is readable");
            }
        };
    }

    #[cfg(target_os = "linux")]
    contract!(the_epoll_set_reports_what_is_wanted, epoll::Poller);
    contract!(the_list_reports_what_is_wanted, list::Poller);
}
