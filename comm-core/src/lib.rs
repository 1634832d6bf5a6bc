//! Contracts and vocabulary of the `comm` library.
//!
//! ```
//! use comm_core::{DType, ReduceOp};
//!
//! assert_eq!("bf16".parse::<DType>()?.size_bytes(), 2);
//! assert_eq!(ReduceOp::Sum.to_string(), "sum");
//! # Ok::<(), comm_core::Error>(())
//! ```

pub mod blocking;
mod byte_size;
pub mod codec;
pub mod conn;
pub mod device;
pub mod doorbell;
mod dtype;
pub mod error;
pub mod fifo;
pub mod memory;
mod memory_kind;
pub mod net;
mod peer;
pub mod rendezvous;
mod signature;
pub mod sync;
pub mod tensor;
pub mod transport;
pub mod work;

pub use async_trait::async_trait;

pub use byte_size::parse_byte_size;
pub use codec::{Codec, Compressed};
pub use conn::{Armed, ConnInfo, MessageRecv, MessageSend, SlotWrite, StepHeader, StepRead};
pub use device::{Device, DeviceEvent, DeviceMemory, HostDevice};
pub use dtype::{DType, Element, ReduceOp};
pub use error::{Error, ErrorKind, Result, Retry};
pub use memory_kind::MemoryKind;
pub use peer::{HostId, PeerInfo, ProcessId, Rank};
pub use rendezvous::Rendezvous;
pub use signature::{Algorithm, OperationKind, PackedSignature, Signature};
pub use tensor::{Storage, Tensor, TensorLayout, TensorMut};
pub use transport::{
    Capabilities, ConnectHandle, ConnectionIndex, Edge, RecvSetup, SendSetup, Transport, Verdict,
};
pub use work::{AsyncWork, Completer, Drive, PendingFunction, Waited, Work, WorkBuilder};
