//! A device with an active port.

use std::sync::Arc;

use comm_core::net::{NetProperties, Reach};
use comm_core::{Error, ErrorKind, Result};

use super::ffi::{Attachment, Context, Gid, Library};
use super::options::VerbsOptions;
use super::ports;

/// Ports of a device that are looked at.
const MOST_PORTS: u8 = 4;

/// A device and the port by which it is used.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) context: Arc<Context>,
    pub(super) at: Attachment,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) properties: NetProperties,
}

impl Device {
    /// The devices that the options allow and that have an active port, best first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if there is none; the message says why.
    pub(super) fn all(options: &VerbsOptions) -> Result<Vec<Self>> {
        let library = Library::load()?;
        let mut found = Vec::new();
        let mut left_out = Vec::new();
        for context in Context::open_all(&library)? {
            let context = Arc::new(context);
            let name = context.name().to_owned();
            let place = options.devices.iter().position(|wanted| *wanted == name);
            if !options.devices.is_empty() && place.is_none() {
                left_out.push(format!("{name} is not asked for"));
                continue;
            }
            match Self::new(&context, options) {
                Ok(Some(device)) => found.push((place, device)),
                Ok(None) => left_out.push(format!("{name} has no active port")),
                Err(error) => left_out.push(format!("{name}: {error}")),
            }
        }
        if found.is_empty() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "no RDMA device can be used; see `ibv_devinfo`",
            )
            .with("devices", left_out.join("; ")));
        }
        // In the order asked for, else the fastest first.
        found.sort_by_key(|(place, device)| (*place, u32::MAX - device.properties.speed_mbps));
        Ok(found.into_iter().map(|(_, device)| device).collect())
    }

    fn new(context: &Arc<Context>, options: &VerbsOptions) -> Result<Option<Self>> {
        for port in 1..=MOST_PORTS {
            let attributes = match context.port(port) {
                Ok(attributes) => attributes,
                Err(error) if port == 1 => return Err(error),
                // There are no more.
                Err(_) => break,
            };
            if !attributes.is_active() {
                continue;
            }
            let (gid_index, gid) = ports::choose(context, port, &attributes, options.gid_index)?;
            let only_loopback = options.addresses.iter().all(std::net::IpAddr::is_loopback);
            let reach = if only_loopback {
                Reach::Host
            } else {
                Reach::Network
            };
            let mut properties = NetProperties::new(context.name(), reach);
            (properties.numa_node, properties.pci_path) = ports::place(context.name());
            properties.speed_mbps = attributes.speed_mbps();
            properties.max_message_bytes = attributes.max_msg_sz as usize;
            properties.max_outstanding = options.max_outstanding as usize;
            properties.inline_progress = true;
            properties.put = true;
            return Ok(Some(Self {
                context: Arc::clone(context),
                at: Attachment {
                    port,
                    gid_index,
                    is_ethernet: attributes.is_ethernet(),
                },
                gid,
                lid: attributes.lid,
                mtu: u8::try_from(attributes.active_mtu).unwrap_or(1),
                properties,
            }));
        }
        Ok(None)
    }
}
