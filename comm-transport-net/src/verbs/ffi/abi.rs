//! The structures of libibverbs that are used here, version 1.1 of its interface.
//!
//! Written down from the interface's documentation; a test compares sizes and places of the fields
//! with the header of the installed library.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A global address of a port.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// `struct ibv_context`, as far as it is used.
#[repr(C)]
pub(super) struct RawContext {
    pub(super) device: *mut c_void,
    pub(super) ops: RawOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

type Unused = *const c_void;

/// `struct ibv_context_ops`: what is not in the library but in the driver of the card.
#[repr(C)]
pub(super) struct RawOps {
    unused_before_poll_cq: [Unused; 11],
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut RawCq, c_int, *mut Completion) -> c_int>,
    pub(super) req_notify_cq: Option<unsafe extern "C" fn(*mut RawCq, c_int) -> c_int>,
    unused_before_post_send: [Unused; 12],
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut RawQp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut RawQp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    unused_behind: [Unused; 5],
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct RawChannel {
    pub(super) context: *mut RawContext,
    pub(super) fd: c_int,
    pub(super) refcnt: c_int,
}

/// `struct ibv_cq`, as far as it is used.
#[repr(C)]
pub(super) struct RawCq {
    pub(super) context: *mut RawContext,
}

/// `struct ibv_qp`, as far as it is used.
#[repr(C)]
pub(super) struct RawQp {
    pub(super) context: *mut RawContext,
    unused: [u64; 5],
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

/// `struct ibv_pd`, of which only the address is used.
#[repr(C)]
pub(super) struct RawPd {
    context: *mut RawContext,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct RawMr {
    context: *mut RawContext,
    pd: *mut RawPd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) unused: [u64; 9],
}

pub(super) const WR_RDMA_WRITE: c_uint = 0;
pub(super) const WR_SEND: c_uint = 2;
pub(super) const SEND_SIGNALED: c_uint = 2;

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`: how a work request ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// The ends of a work request that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It succeeded.
    Success,
    /// A message was longer than its receive: on the receiving end.
    LocalLength,
    /// A request that the queue cannot carry out; soft cards say this of such a receive.
    LocalOperation,
    /// The same on the sending end.
    RemoteInvalidRequest,
    /// A write outside of a window.
    RemoteAccess,
    /// The peer does not answer any more.
    RetryExceeded,
    /// The queue had failed before, or was closed.
    Flushed,
    /// Any other.
    Other,
}

impl Completion {
    pub(crate) const fn status(&self) -> Status {
        match self.status {
            0 => Status::Success,
            1 => Status::LocalLength,
            2 => Status::LocalOperation,
            5 => Status::Flushed,
            // Cards disagree on which of the two it is.
            9 | 11 => Status::RemoteInvalidRequest,
            10 => Status::RemoteAccess,
            12 => Status::RetryExceeded,
            _ => Status::Other,
        }
    }
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut RawCq,
    pub(super) recv_cq: *mut RawCq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

pub(super) const QPT_RC: c_uint = 2;

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GlobalRoute {
    pub(super) dgid: Gid,
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AhAttr {
    pub(super) grh: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// Which fields of [`QpAttr`] are set.
pub(super) mod mask {
    use std::ffi::c_int;

    pub(in super::super) const STATE: c_int = 1 << 0;
    pub(in super::super) const ACCESS_FLAGS: c_int = 1 << 3;
    pub(in super::super) const PKEY_INDEX: c_int = 1 << 4;
    pub(in super::super) const PORT: c_int = 1 << 5;
    pub(in super::super) const AV: c_int = 1 << 7;
    pub(in super::super) const PATH_MTU: c_int = 1 << 8;
    pub(in super::super) const TIMEOUT: c_int = 1 << 9;
    pub(in super::super) const RETRY_CNT: c_int = 1 << 10;
    pub(in super::super) const RNR_RETRY: c_int = 1 << 11;
    pub(in super::super) const RQ_PSN: c_int = 1 << 12;
    pub(in super::super) const MAX_RD_ATOMIC: c_int = 1 << 13;
    pub(in super::super) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(in super::super) const SQ_PSN: c_int = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(in super::super) const DEST_QPN: c_int = 1 << 20;
}

pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;

pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    /// Room for fields of later versions.
    reserved: [u32; 8],
}

impl PortAttributes {
    /// Whether the port can be used.
    pub(crate) const fn is_active(&self) -> bool {
        self.state == 4
    }

    /// Whether the port is an Ethernet one (RoCE), whose peers are reached by their global address
    /// alone.
    pub(crate) const fn is_ethernet(&self) -> bool {
        self.link_layer == 2
    }

    /// Megabits per second: lanes times the speed of one.
    pub(crate) const fn speed_mbps(&self) -> u32 {
        let lanes = match self.active_width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 0,
        };
        let lane_mbps = match self.active_speed {
            1 => 2_500,
            2 => 5_000,
            4 | 8 => 10_000,
            16 => 14_000,
            32 => 25_000,
            64 => 50_000,
            128 => 100_000,
            _ => 0,
        };
        lanes * lane_mbps
    }
}

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncEvent {
    pub(super) element: *mut c_void,
    pub(super) event_type: c_uint,
}

pub(super) const EVENT_DEVICE_FATAL: c_uint = 8;

pub(super) type DeviceName = *const c_char;
