//! The shared library, loaded at run time.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use comm_core::{Error, ErrorKind, Result};

use super::abi::{
    AsyncEvent, DeviceName, Gid, PortAttributes, QpAttr, QpInitAttr, RawChannel, RawContext, RawCq,
    RawMr, RawPd, RawQp,
};

/// The library's name; the number is that of its interface.
const NAME: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The functions of libibverbs.
        pub(crate) struct Library {
            $(pub(super) $name: $type,)*
            /// Keeps the functions where they are.
            _library: libloading::Library,
        }

        impl Library {
            /// Loads the library.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::Unavailable`] if it is not installed or lacks a function.
            pub(crate) fn load() -> Result<Arc<Self>> {
                // SAFETY: initialising rdma-core's library has no preconditions.
                let library = unsafe { libloading::Library::new(NAME) }.map_err(unavailable)?;
                $(
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    // SAFETY: the type is that of the library's documentation.
                    let found = unsafe { library.get::<$type>(name) };
                    let $name = *found.map_err(unavailable)?;
                )*
                Ok(Arc::new(Self { $($name,)* _library: library }))
            }
        }
    };
}

functions! {
    ibv_get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void,
    ibv_free_device_list: unsafe extern "C" fn(*mut *mut c_void),
    ibv_get_device_name: unsafe extern "C" fn(*mut c_void) -> DeviceName,
    ibv_open_device: unsafe extern "C" fn(*mut c_void) -> *mut RawContext,
    ibv_close_device: unsafe extern "C" fn(*mut RawContext) -> c_int,
    ibv_query_port: unsafe extern "C" fn(*mut RawContext, u8, *mut PortAttributes) -> c_int,
    ibv_query_gid: unsafe extern "C" fn(*mut RawContext, u8, c_int, *mut Gid) -> c_int,
    ibv_alloc_pd: unsafe extern "C" fn(*mut RawContext) -> *mut RawPd,
    ibv_dealloc_pd: unsafe extern "C" fn(*mut RawPd) -> c_int,
    ibv_reg_mr: unsafe extern "C" fn(*mut RawPd, *mut c_void, usize, c_int) -> *mut RawMr,
    ibv_dereg_mr: unsafe extern "C" fn(*mut RawMr) -> c_int,
    ibv_create_comp_channel: unsafe extern "C" fn(*mut RawContext) -> *mut RawChannel,
    ibv_destroy_comp_channel: unsafe extern "C" fn(*mut RawChannel) -> c_int,
    ibv_create_cq: unsafe extern "C" fn(
        *mut RawContext, c_int, *mut c_void, *mut RawChannel, c_int,
    ) -> *mut RawCq,
    ibv_destroy_cq: unsafe extern "C" fn(*mut RawCq) -> c_int,
    ibv_get_cq_event: unsafe extern "C" fn(
        *mut RawChannel, *mut *mut RawCq, *mut *mut c_void,
    ) -> c_int,
    ibv_ack_cq_events: unsafe extern "C" fn(*mut RawCq, u32),
    ibv_create_qp: unsafe extern "C" fn(*mut RawPd, *mut QpInitAttr) -> *mut RawQp,
    ibv_modify_qp: unsafe extern "C" fn(*mut RawQp, *mut QpAttr, c_int) -> c_int,
    ibv_destroy_qp: unsafe extern "C" fn(*mut RawQp) -> c_int,
    ibv_get_async_event: unsafe extern "C" fn(*mut RawContext, *mut AsyncEvent) -> c_int,
    ibv_ack_async_event: unsafe extern "C" fn(*mut AsyncEvent),
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(error: libloading::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "RDMA needs rdma-core's libibverbs.so.1 (Debian: libibverbs1 and ibverbs-providers)",
    )
    .with("reason", error)
}
