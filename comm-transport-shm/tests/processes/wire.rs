//! Handles over a socket: what the control plane does in production.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use comm_core::ConnectHandle;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// One end of a socket that keeps messages apart.
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn pair() -> (Self, OwnedFd) {
        let (own, peer) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (Self(own), peer)
    }

    pub(crate) fn from_stdin() -> Self {
        Self(std::io::stdin().as_fd().try_clone_to_owned().unwrap())
    }

    pub(crate) fn send(&self, handle: &ConnectHandle) {
        let fds: Vec<_> = handle.fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        // One byte in front, since an empty message would mean the end.
        let bytes = [IoSlice::new(&[0]), IoSlice::new(&handle.bytes)];
        rustix::net::sendmsg(&self.0, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    pub(crate) fn recv(&self) -> ConnectHandle {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
        .unwrap();
        assert!(received.bytes > 0, "the other process is gone");
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        ConnectHandle {
            bytes: Bytes::copy_from_slice(&bytes[1..received.bytes]),
            fds,
        }
    }
}
