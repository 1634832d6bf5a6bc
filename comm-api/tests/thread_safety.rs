//! Which public types may be used by which threads: the table of `docs/threads.md`, checked by the
//! compiler, and checked to be whole.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use comm_api::*;
use comm_core::blocking::OnDuty;
use comm_core::device::{CopyCompleter, CopyEvent, Device, DeviceEvent, DeviceMemory, HostDevice};
use comm_core::doorbell::{Doorbell, Doorbells, PeerDoorbells, RingTarget, Ticket};
use comm_core::fifo::{
    Arrived, Claim, FifoLayout, FifoMemory, FifoReceiver, FifoSender, Offer, Offers, PeerMemory,
};
use comm_core::memory::{ReadMapping, SealedMemory, SharedMapping};
use comm_core::net::{
    MemoryRegion, MrSlice, NetBackend, NetConnect, NetListener, NetProperties, NetRecv, NetSend,
    Quiesce, Reach, Region, RemoteSlice, Transfer, WakeSource,
};
use comm_core::{
    Armed, Capabilities, Codec, Completer, Compressed, ConnInfo, ConnectHandle, ConnectionIndex,
    Drive, Edge, HostId, MessageRecv, MessageSend, PendingFunction, ProcessId, RecvSetup,
    SendSetup, Signature, SlotWrite, StepHeader, StepRead, Verdict, Waited, WorkBuilder,
};

/// Fails to compile unless the type is (`yes`) or is not (`no`) of the trait.
macro_rules! assert_trait {
    ($type:ty, $trait:ident, yes) => {
        const _: fn() = || {
            fn is<T: ?Sized + $trait>() {}
            is::<$type>();
        };
    };
    ($type:ty, $trait:ident, no) => {
        const _: fn() = || {
            /// With one implementation the compiler knows which is meant, with two it does not.
            trait Ambiguous<Which> {
                fn is_not() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            #[allow(dead_code, reason = "a name for the second implementation")]
            struct Second;
            impl<T: ?Sized + $trait> Ambiguous<Second> for T {}
            let _ = <$type as Ambiguous<_>>::is_not;
        };
    };
}

macro_rules! table {
    ($($name:literal $type:ty, $send:ident, $sync:ident;)*) => {
        $(
            assert_trait!($type, Send, $send);
            assert_trait!($type, Sync, $sync);
        )*
        /// Name, `Send`, `Sync`.
        const TABLE: &[(&str, &str, &str)] = &[$(($name, stringify!($send), stringify!($sync))),*];
    };
}

table! {
    // What programs use.
    "Communicator" Communicator, yes, yes;
    "Builder" Builder, yes, no;
    "Work" Work<TensorMut>, yes, yes;
    "Tensor" Tensor, yes, yes;
    "TensorMut" TensorMut, yes, yes;
    "TensorLayout" TensorLayout, yes, yes;
    "Error" Error, yes, yes;
    "ErrorKind" ErrorKind, yes, yes;
    "Retry" Retry, yes, yes;
    "DType" DType, yes, yes;
    "ReduceOp" ReduceOp, yes, yes;
    "Algorithm" Algorithm, yes, yes;
    "OperationKind" OperationKind, yes, yes;
    "MemoryKind" MemoryKind, yes, yes;
    "Waited" Waited, yes, yes;
    "PeerInfo" PeerInfo, yes, yes;
    "Explanation" Explanation, yes, yes;
    "MemStats" MemStats, yes, yes;
    "ConnectedEdge" ConnectedEdge, yes, yes;
    "Plan" Plan, yes, yes;
    "PlanConfig" PlanConfig, yes, yes;
    "Setting" Setting, yes, yes;
    "Settings" Settings, yes, yes;
    "Source" Source, yes, yes;
    "WaitPolicy" WaitPolicy, yes, yes;
    "Launcher" Launcher, yes, yes;
    "LaunchEnvironment" LaunchEnvironment, yes, yes;
    "JobSecret" JobSecret, yes, yes;
    "UniqueId" UniqueId, yes, yes;
    "RendezvousAddress" RendezvousAddress, yes, yes;
    "LocalRendezvous" LocalRendezvous, yes, yes;
    "Request" Request, yes, yes;
    "TransportContext" TransportContext, yes, yes;
    "Frame" Frame, yes, yes;
    "FrameRef" FrameRef<'static>, yes, yes;
    "FrameHead" FrameHead<'static>, yes, yes;
    "FrameOptions" FrameOptions, yes, yes;
    "Worker" Worker, yes, yes;
    "WorkerBuilder" WorkerBuilder, yes, yes;
    "WorkerAddress" WorkerAddress, yes, yes;
    "RankPath" RankPath, yes, yes;
    "Collective" Collective, yes, yes;
    "CollectiveGroup" CollectiveGroup, yes, yes;
    "MessageKind" MessageKind, yes, yes;
    "Piggyback" Piggyback, yes, yes;
    "Received" Received<TensorMut>, yes, yes;
    "SendOptions" SendOptions, yes, yes;
    "RecvOptions" RecvOptions, yes, yes;
    "CodecChoice" CodecChoice, yes, yes;
    "CompressionBuilder" CompressionBuilder, yes, yes;
    "CompressionSettings" CompressionSettings, yes, yes;
    "CompressionStats" CompressionStats, yes, yes;
    "TensorDict" TensorDict, yes, yes;
    "FuncWork" FuncWork<TensorMut>, yes, yes;
    "CollWork" CollWork, yes, yes;
    "ChannelOrder" ChannelOrder<String>, yes, yes;
    "ChannelWork" ChannelWork<TensorMut>, yes, yes;
    "Replies" Replies<TensorMut>, yes, yes;
    "RequestId" RequestId, yes, yes;
    "RpcWork" RpcWork<TensorMut>, yes, yes;
    "ControlSettings" ControlSettings, yes, yes;
    "ProcessOptions" ProcessOptions, yes, yes;
    "ListenScope" ListenScope, yes, yes;
    "Ports" Ports, yes, yes;
    "InterfaceFilter" InterfaceFilter, yes, yes;
    // What transports, networks, codecs and devices implement.
    "Transport" dyn Transport, yes, yes;
    "SendSetup" dyn SendSetup, yes, no;
    "RecvSetup" dyn RecvSetup, yes, no;
    "MessageSend" dyn MessageSend, yes, no;
    "MessageRecv" dyn MessageRecv, yes, no;
    "NetBackend" dyn NetBackend, yes, yes;
    "NetListener" dyn NetListener, yes, no;
    "NetConnect" dyn NetConnect, yes, no;
    "NetSend" dyn NetSend, yes, no;
    "NetRecv" dyn NetRecv, yes, no;
    "Codec" dyn Codec, yes, yes;
    "Device" dyn Device, yes, yes;
    "DeviceEvent" dyn DeviceEvent, yes, yes;
    "Storage" dyn Storage, yes, yes;
    "PeerMemory" dyn PeerMemory, yes, yes;
    "Rendezvous" dyn Rendezvous, yes, yes;
    "AsyncWork" dyn AsyncWork, yes, yes;
    "Drive" dyn Drive, yes, yes;
    // What they are given and hand back.
    "Edge" Edge<'static>, yes, yes;
    "Verdict" Verdict, yes, yes;
    "Capabilities" Capabilities, yes, yes;
    "Compressed" Compressed, yes, yes;
    "ConnectHandle" ConnectHandle, yes, yes;
    "ConnectionIndex" ConnectionIndex, yes, yes;
    "ConnInfo" ConnInfo, yes, no;
    "StepHeader" StepHeader, yes, yes;
    "SlotWrite" SlotWrite, no, no;
    "StepRead" StepRead, no, no;
    "Armed" Armed, yes, yes;
    "HostId" HostId, yes, yes;
    "ProcessId" ProcessId, yes, yes;
    "Signature" Signature, yes, yes;
    "Completer" Completer<TensorMut>, yes, yes;
    "PendingFunction" PendingFunction, yes, yes;
    "WorkBuilder" WorkBuilder, yes, no;
    "FifoLayout" FifoLayout, yes, yes;
    "FifoMemory" FifoMemory, yes, yes;
    "FifoSender" FifoSender, yes, yes;
    "FifoReceiver" FifoReceiver, yes, yes;
    "Arrived" Arrived, no, no;
    "Offer" Offer, no, no;
    "Offers" Offers, yes, yes;
    "Claim" Claim<'static>, no, no;
    "OnDuty" OnDuty, no, no;
    "Doorbells" Doorbells, yes, yes;
    "Doorbell" Doorbell, yes, yes;
    "Ticket" Ticket, yes, yes;
    "RingTarget" RingTarget, yes, yes;
    "PeerDoorbells" PeerDoorbells, yes, yes;
    "SharedMapping" SharedMapping, yes, yes;
    "SealedMemory" SealedMemory, yes, yes;
    "ReadMapping" ReadMapping, yes, yes;
    "HostDevice" HostDevice, yes, yes;
    "DeviceMemory" DeviceMemory, yes, yes;
    "CopyEvent" CopyEvent, yes, yes;
    "CopyCompleter" CopyCompleter, yes, yes;
    "Region" Region, yes, yes;
    "MemoryRegion" MemoryRegion, yes, yes;
    "MrSlice" MrSlice, yes, yes;
    "RemoteSlice" RemoteSlice, yes, yes;
    "NetProperties" NetProperties, yes, yes;
    "Reach" Reach, yes, yes;
    "Quiesce" Quiesce, yes, yes;
    "Transfer" Transfer, yes, yes;
    "WakeSource" WakeSource<'static>, yes, yes;
}

// Two public types have this name, and one row stands for both.
assert_trait!(comm_core::net::Request, Send, yes);
assert_trait!(comm_core::net::Request, Sync, yes);

// Of the two with this name the row is about the step of a FIFO; a frame that has arrived owns what
// it holds.
assert_trait!(comm_api::Arrived, Send, yes);
assert_trait!(comm_api::Arrived, Sync, yes);

/// No types that could have a row: aliases, one for which the compiler demands it, and its seal.
const WITHOUT_ROW: [&str; 6] = [
    "Rank",
    "Result",
    "PackedSignature",
    "Allocator",
    "Element",
    "Sealed",
];

/// The names of what a file declares as public, as far as they are types and traits.
fn declared(text: &str, names: &mut BTreeSet<String>) {
    for line in text.lines() {
        let Some(rest) = line.trim().strip_prefix("pub ") else {
            continue;
        };
        let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
        let mut words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_type = matches!(
            words.next(),
            Some("struct" | "enum" | "trait" | "union" | "type")
        );
        if let (true, Some(name)) = (is_type, words.next()) {
            names.insert(name.to_owned());
        }
    }
}

fn walk(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, names);
        } else {
            declared(&fs::read_to_string(path).unwrap(), names);
        }
    }
}

/// All public types of comm-core and comm-api. What is `pub` there is reachable: the compiler
/// warns of what is not.
fn public_types() -> BTreeSet<String> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    walk(&api.join("src"), &mut names);
    walk(&api.join("../comm-core/src"), &mut names);
    // What the face re-exports; functions and primitive types are in lower case.
    let face = fs::read_to_string(api.join("src/lib.rs")).unwrap();
    for list in face.split("pub use ").skip(1) {
        let list = list.split(';').next().unwrap_or_default();
        let words = list.split(|c: char| !c.is_alphanumeric() && c != '_');
        names.extend(
            words
                .filter(|word| word.starts_with(char::is_uppercase))
                .map(str::to_owned),
        );
    }
    names
}

#[test]
fn every_public_type_has_a_row() {
    let mut public = public_types();
    for name in WITHOUT_ROW {
        assert!(public.remove(name), "{name} is gone; remove it here too");
    }
    let rows: BTreeSet<_> = TABLE.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(rows.len(), TABLE.len(), "a type has two rows");
    assert_eq!(rows, public);
}

#[test]
fn the_documented_table_is_this_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/threads.md");
    let page = fs::read_to_string(page).unwrap();
    let mut documented = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        for name in cells[0].split(", ") {
            documented.insert((name.trim_matches('`'), cells[1], cells[2]));
        }
    }
    let table: BTreeSet<_> = TABLE.iter().copied().collect();
    assert_eq!(documented, table);
}

#[test]
fn the_check_can_tell() {
    // `Cell` is `Send` only: were the macro blind, one of these would not compile.
    assert_trait!(std::cell::Cell<u8>, Send, yes);
    assert_trait!(std::cell::Cell<u8>, Sync, no);
    assert_trait!(std::rc::Rc<u8>, Send, no);
    assert_ne!(
        TypeId::of::<Request>(),
        TypeId::of::<comm_core::net::Request>()
    );
}
