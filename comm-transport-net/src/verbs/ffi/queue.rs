//! A reliable connection: a queue pair with a completion queue of its own.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use comm_core::net::MrSlice;
use comm_core::{Error, ErrorKind, Result};

use super::abi::{
    ACCESS_REMOTE_WRITE, AhAttr, Completion, Gid, GlobalRoute, QPS_INIT, QPS_RTR, QPS_RTS, QPT_RC,
    QpAttr, QpCap, QpInitAttr, RawCq, RawQp, RecvWr, SEND_SIGNALED, SendWr, Sge, WR_RDMA_WRITE,
    WR_SEND, mask,
};
use super::context::{Context, last_error, returned};

/// Retransmission: 4.096 us times 2 to this power, some 0.27 s.
const TIMEOUT: u8 = 16;

/// How often a packet is sent again before the peer counts as gone.
const RETRIES: u8 = 7;

/// A receiver that has posted nothing is asked again for ever: that is back-pressure, not failure.
const RETRIES_NOT_READY: u8 = 7;

/// How soon it is asked again: code 1 is 10 us.
const NOT_READY_TIMER: u8 = 1;

/// What a queue has to know of the one at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) queue_number: u32,
    pub(crate) first_packet: u32,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) mtu: u8,
}

/// Where a device is attached to its network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) is_ethernet: bool,
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Send a message.
    Send,
    /// Write to a peer's window.
    Write { address: u64, remote_key: u32 },
    /// Receive a message.
    Receive,
}

/// A queue pair of one reliable connection and its completion queue.
///
/// Destroying it waits until the device does not touch any memory of its requests.
pub(crate) struct Queue {
    context: Arc<Context>,
    pair: NonNull<RawQp>,
    completions: NonNull<RawCq>,
}

// SAFETY: the library's functions may be called by any thread; `&mut self` keeps those apart that
// must not run at the same time.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue that is not connected; `number` comes back with its events.
    pub(crate) fn new(context: &Arc<Context>, number: u64, requests: u32) -> Result<Self> {
        let library = &context.library;
        let number = std::ptr::without_provenance_mut::<c_void>(number as usize);
        let length = i32::try_from(requests).unwrap_or(i32::MAX);
        // SAFETY: device and channel are open; the number is never followed.
        let completions = unsafe {
            (library.ibv_create_cq)(
                context.raw.as_ptr(),
                length,
                number,
                context.channel.as_ptr(),
                0,
            )
        };
        let completions =
            NonNull::new(completions).ok_or_else(|| last_error("making a completion queue"))?;
        let mut attributes = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: completions.as_ptr(),
            recv_cq: completions.as_ptr(),
            srq: std::ptr::null_mut(),
            cap: QpCap {
                max_send_wr: requests,
                max_recv_wr: requests,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and completion queue exist.
        let pair = unsafe { (library.ibv_create_qp)(context.domain.as_ptr(), &raw mut attributes) };
        let Some(pair) = NonNull::new(pair) else {
            let error = last_error("making a queue pair");
            // SAFETY: nothing uses the completion queue.
            unsafe { (library.ibv_destroy_cq)(completions.as_ptr()) };
            return Err(error);
        };
        Ok(Self {
            context: Arc::clone(context),
            pair,
            completions,
        })
    }

    /// The number by which the peer addresses the queue.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the pair lives as long as `self`.
        unsafe { (*self.pair.as_ptr()).qp_num }
    }

    fn modify(&mut self, mut attributes: QpAttr, which: i32, what: &'static str) -> Result<()> {
        // SAFETY: the pair lives as long as `self`, and the mask names fields that are set.
        let code = unsafe {
            (self.context.library.ibv_modify_qp)(self.pair.as_ptr(), &raw mut attributes, which)
        };
        match code {
            0 => Ok(()),
            code => Err(returned(what, code)),
        }
    }

    /// Connects the queue with the peer's.
    ///
    /// # Errors
    ///
    /// What the driver says, for instance if there is no way to the peer.
    pub(crate) fn connect(
        &mut self,
        at: Attachment,
        first_packet: u32,
        mtu: u8,
        peer: &Peer,
    ) -> Result<()> {
        let init = QpAttr {
            qp_state: QPS_INIT,
            pkey_index: 0,
            port_num: at.port,
            qp_access_flags: ACCESS_REMOTE_WRITE as u32,
            ..QpAttr::default()
        };
        let which = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS;
        self.modify(init, which, "initialising a queue pair")?;
        let route = GlobalRoute {
            dgid: peer.gid,
            sgid_index: at.gid_index,
            hop_limit: 64,
            ..GlobalRoute::default()
        };
        let receive = QpAttr {
            qp_state: QPS_RTR,
            path_mtu: mtu.min(peer.mtu).clamp(1, 5).into(),
            dest_qp_num: peer.queue_number,
            rq_psn: peer.first_packet,
            max_dest_rd_atomic: 1,
            min_rnr_timer: NOT_READY_TIMER,
            ah_attr: AhAttr {
                grh: route,
                dlid: peer.lid,
                is_global: u8::from(at.is_ethernet || peer.gid != Gid::default()),
                port_num: at.port,
                ..AhAttr::default()
            },
            ..QpAttr::default()
        };
        let which = mask::STATE
            | mask::AV
            | mask::PATH_MTU
            | mask::DEST_QPN
            | mask::RQ_PSN
            | mask::MAX_DEST_RD_ATOMIC
            | mask::MIN_RNR_TIMER;
        self.modify(receive, which, "connecting a queue pair")?;
        let send = QpAttr {
            qp_state: QPS_RTS,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES_NOT_READY,
            sq_psn: first_packet,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        let which = mask::STATE
            | mask::TIMEOUT
            | mask::RETRY_CNT
            | mask::RNR_RETRY
            | mask::SQ_PSN
            | mask::MAX_RD_ATOMIC;
        self.modify(send, which, "readying a queue pair")
    }

    /// Posts a work request over a slice, of which at most `len_bytes` are used.
    ///
    /// # Errors
    ///
    /// What the driver says.
    ///
    /// # Safety
    ///
    /// Until the request has completed or the queue was dropped: the slice stays registered with
    /// `local_key` and alive; nobody writes to it if the device reads it, and nobody accesses it if
    /// the device writes to it.
    pub(crate) unsafe fn post(
        &mut self,
        work: Work,
        token: u64,
        slice: &MrSlice,
        len_bytes: u32,
        local_key: u32,
    ) -> Result<()> {
        let mut element = Sge {
            addr: slice.as_ptr().addr().get() as u64,
            length: len_bytes,
            lkey: local_key,
        };
        let elements = i32::from(len_bytes > 0);
        // SAFETY: the device is open.
        let ops = unsafe { &(*self.context.raw.as_ptr()).ops };
        let code = match work {
            Work::Receive => {
                let mut request = RecvWr {
                    wr_id: token,
                    next: std::ptr::null_mut(),
                    sg_list: &raw mut element,
                    num_sge: elements,
                };
                let mut bad = std::ptr::null_mut();
                let post = ops.post_recv.ok_or_else(no_operation)?;
                // SAFETY: the request is copied by the call; the memory is the caller's promise.
                unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut bad) }
            }
            Work::Send | Work::Write { .. } => {
                let (opcode, remote_addr, rkey) = match work {
                    Work::Write {
                        address,
                        remote_key,
                    } => (WR_RDMA_WRITE, address, remote_key),
                    _ => (WR_SEND, 0, 0),
                };
                let mut request = SendWr {
                    wr_id: token,
                    next: std::ptr::null_mut(),
                    sg_list: &raw mut element,
                    num_sge: elements,
                    opcode,
                    send_flags: SEND_SIGNALED,
                    imm_data: 0,
                    remote_addr,
                    rkey,
                    unused: [0; 9],
                };
                let mut bad = std::ptr::null_mut();
                let post = ops.post_send.ok_or_else(no_operation)?;
                // SAFETY: as above.
                unsafe { post(self.pair.as_ptr(), &raw mut request, &raw mut bad) }
            }
        };
        match code {
            0 => Ok(()),
            code => Err(returned("posting a work request", code)),
        }
    }

    /// Takes completions; how many.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::System`] if the driver fails.
    pub(crate) fn poll(&mut self, completions: &mut [Completion]) -> Result<usize> {
        // SAFETY: the device is open.
        let ops = unsafe { &(*self.context.raw.as_ptr()).ops };
        let poll = ops.poll_cq.ok_or_else(no_operation)?;
        let room = i32::try_from(completions.len()).unwrap_or(i32::MAX);
        // SAFETY: there is room for that many completions.
        let count = unsafe { poll(self.completions.as_ptr(), room, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| {
            Error::new(ErrorKind::System, "a completion queue cannot be read").with("code", count)
        })
    }

    /// Asks for one event at the next completion.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub(crate) fn request_event(&mut self) -> Result<()> {
        // SAFETY: the device is open.
        let ops = unsafe { &(*self.context.raw.as_ptr()).ops };
        let notify = ops.req_notify_cq.ok_or_else(no_operation)?;
        // SAFETY: the completion queue exists.
        match unsafe { notify(self.completions.as_ptr(), 0) } {
            0 => Ok(()),
            code => Err(returned("asking for completion events", code)),
        }
    }
}

fn no_operation() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the driver of an RDMA device lacks a function",
    )
}

impl Drop for Queue {
    fn drop(&mut self) {
        let library = &self.context.library;
        // SAFETY: `self` is the only user. The call returns when the device has left the pair.
        let code = unsafe { (library.ibv_destroy_qp)(self.pair.as_ptr()) };
        if code != 0 {
            tracing::error!(code, "a queue pair could not be destroyed");
            return;
        }
        // SAFETY: the pair is gone; events are acknowledged where they are taken.
        unsafe { (library.ibv_destroy_cq)(self.completions.as_ptr()) };
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("number", &self.number())
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
