//! The system's list of interface addresses, from `getifaddrs(3)`.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use comm_core::{Error, Result};

use crate::control::interfaces::Interface;

/// The addresses of all interfaces that are up, in the system's order.
///
/// # Errors
///
/// If the system refuses the list.
pub(crate) fn enumerate() -> Result<Vec<Interface>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `head` is valid for writes of one pointer.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(Error::system(
            "listing the network interfaces",
            std::io::Error::last_os_error(),
        ));
    }
    let mut interfaces = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list that getifaddrs returned; nobody changes the
        // list before it is freed below.
        let element = unsafe { &*next };
        next = element.ifa_next;
        let has = |flag: libc::c_int| element.ifa_flags as libc::c_uint & flag as libc::c_uint != 0;
        if !has(libc::IFF_UP) {
            continue;
        }
        if let Some(address) = address_of(element) {
            // SAFETY: `ifa_name` of a list element is a null-terminated string.
            let name = unsafe { CStr::from_ptr(element.ifa_name) };
            interfaces.push(Interface {
                name: name.to_string_lossy().into_owned(),
                address,
                running: has(libc::IFF_RUNNING),
            });
        }
    }
    // SAFETY: `head` came from getifaddrs, is freed once, and no reference into it is left.
    unsafe { libc::freeifaddrs(head) };
    Ok(interfaces)
}

fn address_of(element: &libc::ifaddrs) -> Option<IpAddr> {
    let address = element.ifa_addr;
    if address.is_null() {
        return None;
    }
    // SAFETY: a non-null `ifa_addr` points to at least a `sockaddr`; the read makes no assumption
    // about alignment.
    let family = unsafe { ptr::read_unaligned(address) }.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of family AF_INET is a `sockaddr_in`.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of family AF_INET6 is a `sockaddr_in6`.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
