//! From a topology file to the graph.

use std::collections::{BTreeMap, HashMap};

use comm_core::Error;

use crate::xml::{
    BusId, Document, ElementId, PciClass, parse_class, pci_generation_rate, validate,
};

use super::kinds::{
    Cpu, CpuArch, CpuVendor, Device, DeviceKind, Endpoint, LinkKind, Net, Nic, NodeKind, NodeRole,
    PciSwitch,
};
use super::rates::{LOCAL_GBPS, nvlink_gbps, system_gbps};
use super::switches;
use super::system::{NodeId, System};

/// Builds the graph of a topology file.
///
/// Endpoints get the ranks that the file gives; when no device of the file has a rank, they are
/// numbered from 0 in `dev` order. Devices without a rank in a file that has ranks are left out,
/// as NCCL does. What [`validate`] warns of is ignored.
///
/// # Errors
///
/// The first error of [`validate`]: `InvalidConfiguration` with file, line and element path.
pub fn build(document: &Document) -> Result<System, Error> {
    validate(document).into_result()?;
    let mut hosts: Vec<String> = Vec::new();
    for cpu in document.children(document.root(), "cpu") {
        let hash = host_hash(document, cpu);
        if !hosts.contains(&hash) {
            hosts.push(hash);
        }
    }
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let mut builder = Builder {
        document,
        system: System::empty(count),
        devices: BTreeMap::new(),
        nics: HashMap::new(),
        pci: HashMap::new(),
        links: Vec::new(),
        pci_links: Vec::new(),
        ranks: assign_ranks(document)?,
    };
    for cpu in document.children(document.root(), "cpu") {
        let hash = host_hash(document, cpu);
        let host = hosts.iter().position(|other| *other == hash).unwrap_or(0);
        builder.cpu(cpu, u32::try_from(host).unwrap_or(0))?;
    }
    builder.device_links()?;
    let mut system = builder.system;
    switches::flatten(&mut system);
    connect_cpus(&mut system);
    switches::order_links(&mut system);
    Ok(system)
}

fn host_hash(document: &Document, cpu: ElementId) -> String {
    document
        .element(cpu)
        .attribute("host_hash")
        .unwrap_or_default()
        .to_owned()
}

/// Rank per `gpu` and `endpoint` element that takes part.
fn assign_ranks(document: &Document) -> Result<HashMap<ElementId, u32>, Error> {
    let mut given = HashMap::new();
    let mut slots = Vec::new();
    for id in document.walk() {
        if !matches!(document.element(id).name.as_str(), "gpu" | "endpoint") {
            continue;
        }
        let rank: Option<i64> = document.number(id, "rank")?;
        if let Some(rank) = rank.and_then(|rank| u32::try_from(rank).ok()) {
            given.insert(id, rank);
        }
        let dev: i64 = document.number(id, "dev")?.unwrap_or(i64::MAX);
        if dev >= 0 {
            slots.push((dev, id));
        }
    }
    if !given.is_empty() {
        return Ok(given);
    }
    slots.sort_by_key(|(dev, _)| *dev);
    let ranks = slots.iter().zip(0..);
    Ok(ranks.map(|((_, id), rank)| (*id, rank)).collect())
}

struct Builder<'a> {
    document: &'a Document,
    system: System,
    devices: BTreeMap<(u32, BusId), NodeId>,
    nics: HashMap<(u32, BusId), NodeId>,
    pci: HashMap<(u32, BusId), NodeId>,
    /// Device, its `gpu` element, its host, its CPU: links between devices come last.
    links: Vec<(NodeId, ElementId, u32, NodeId)>,
    pci_links: Vec<(NodeId, ElementId, u32)>,
    ranks: HashMap<ElementId, u32>,
}

impl Builder<'_> {
    fn cpu(&mut self, element: ElementId, host: u32) -> Result<(), Error> {
        let document = self.document;
        let text = |name| {
            document
                .element(element)
                .attribute(name)
                .unwrap_or_default()
        };
        let model = document.number::<i64>(element, "modelid")?.unwrap_or(0);
        let model = u32::try_from(model).unwrap_or(0);
        let cpu = Cpu {
            numa: document.number(element, "numaid")?.unwrap_or(-1),
            arch: match text("arch") {
                "x86_64" => CpuArch::X86,
                "arm64" | "aarch64" => CpuArch::Arm,
                "ppc64" | "ppc64le" => CpuArch::Power,
                _ => CpuArch::Other,
            },
            vendor: match text("vendor") {
                "GenuineIntel" => CpuVendor::Intel { model },
                "AuthenticAMD" => CpuVendor::Amd,
                "CentaurHauls" | "  Shanghai  " => CpuVendor::Zhaoxin { model },
                _ => CpuVendor::Other,
            },
            affinity: text("affinity").to_owned(),
        };
        let cpu = self.system.add_node(NodeRole::Cpu(cpu), host);
        // Depth first in document order, without recursion.
        let children = |id: ElementId| document.element(id).children.iter().rev().copied();
        let mut pending: Vec<(ElementId, NodeId)> = children(element).map(|id| (id, cpu)).collect();
        while let Some((id, parent)) = pending.pop() {
            match document.element(id).name.as_str() {
                "pci" => {
                    if let Some(switch) = self.pci(id, parent, cpu, host)? {
                        pending.extend(children(id).map(|child| (child, switch)));
                    }
                }
                "nic" if parent == cpu => {
                    let nic = self
                        .system
                        .add_node(NodeRole::Nic(Nic { bus_id: None }), host);
                    self.system.attach(nic, cpu, LinkKind::Pci, LOCAL_GBPS);
                    self.nets(id, nic, host)?;
                }
                "endpoint" if parent == cpu => self.endpoint(id, cpu, host)?,
                "pcilink" if parent != cpu => self.pci_links.push((parent, id, host)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds a PCI device; returns the node when it is a switch whose children come next.
    fn pci(
        &mut self,
        element: ElementId,
        parent: NodeId,
        cpu: NodeId,
        host: u32,
    ) -> Result<Option<NodeId>, Error> {
        let document = self.document;
        let attribute = |name| document.element(element).attribute(name);
        let Some(bus_id) = attribute("busid").and_then(BusId::parse) else {
            return Ok(None);
        };
        let class = attribute("class")
            .and_then(parse_class)
            .unwrap_or(PciClass::Switch);
        let node = match class {
            PciClass::Gpu => {
                // Several ranks may share a GPU: one element per rank.
                let ranks: Vec<(ElementId, u32)> = document
                    .children(element, "gpu")
                    .filter_map(|gpu| Some((gpu, self.ranks.get(&gpu).copied()?)))
                    .collect();
                let Some((first, rank)) = ranks.first().copied() else {
                    return Ok(None);
                };
                let device = self.gpu(first, rank, bus_id, cpu, host)?;
                for (gpu, rank) in ranks {
                    self.rank(gpu, rank, device, host)?;
                }
                device
            }
            PciClass::Nic => {
                let Some(nic) = document.children(element, "nic").next() else {
                    return Ok(None);
                };
                let known = self.nics.get(&(host, bus_id.chip())).copied();
                let node = known.unwrap_or_else(|| {
                    let role = NodeRole::Nic(Nic {
                        bus_id: Some(bus_id.chip()),
                    });
                    self.system.add_node(role, host)
                });
                self.nics.insert((host, bus_id.chip()), node);
                self.nets(nic, node, host)?;
                if known.is_some() {
                    return Ok(None);
                }
                node
            }
            PciClass::Switch => {
                let part = |name| attribute(name).and_then(crate::xml::parse_hex).unwrap_or(0);
                let identity = (part("vendor") << 48)
                    | ((part("device") & 0xffff) << 32)
                    | ((part("subsystem_vendor") & 0xffff) << 16)
                    | (part("subsystem_device") & 0xffff);
                let role = NodeRole::Pci(PciSwitch { bus_id, identity });
                let node = self.system.add_node(role, host);
                self.pci.insert((host, bus_id), node);
                node
            }
            PciClass::NvSwitch | PciClass::Cpu => return Ok(None),
        };
        let width = match document.number::<f32>(element, "link_width")? {
            Some(width) if width > 0.0 => width,
            _ => 16.0,
        };
        let rate = pci_generation_rate(attribute("link_speed").unwrap_or_default());
        self.system
            .attach(node, parent, LinkKind::Pci, width * rate / 80.0);
        Ok((class == PciClass::Switch).then_some(node))
    }

    fn gpu(
        &mut self,
        gpu: ElementId,
        rank: u32,
        bus_id: BusId,
        cpu: NodeId,
        host: u32,
    ) -> Result<NodeId, Error> {
        let document = self.document;
        let kind = DeviceKind::Gpu {
            compute_capability: document.number(gpu, "sm")?.unwrap_or(80),
            gdr: document.number::<i64>(gpu, "gdr")?.unwrap_or(0) != 0,
        };
        let dev = self.dev(gpu, rank)?;
        let device = Device {
            dev,
            kind,
            bus_id: Some(bus_id),
        };
        let device = self.system.add_node(NodeRole::Device(device), host);
        self.devices.insert((host, bus_id), device);
        self.links.push((device, gpu, host, cpu));
        Ok(device)
    }

    fn rank(&mut self, gpu: ElementId, rank: u32, device: NodeId, host: u32) -> Result<(), Error> {
        let dev = self.dev(gpu, rank)?;
        let endpoint = self
            .system
            .add_node(NodeRole::Endpoint(Endpoint { rank, dev }), host);
        self.system
            .attach(endpoint, device, LinkKind::Local, LOCAL_GBPS);
        Ok(())
    }

    /// The device number of an element; its rank where the file gives none.
    fn dev(&self, element: ElementId, rank: u32) -> Result<u32, Error> {
        let dev = self.document.number::<i64>(element, "dev")?;
        Ok(dev.and_then(|dev| u32::try_from(dev).ok()).unwrap_or(rank))
    }

    fn endpoint(&mut self, element: ElementId, cpu: NodeId, host: u32) -> Result<(), Error> {
        let Some(rank) = self.ranks.get(&element).copied() else {
            return Ok(());
        };
        let document = self.document;
        let dev = self.dev(element, rank)?;
        let gbps = document.number::<f32>(element, "bw")?;
        let gbps = gbps
            .filter(|gbps| *gbps > 0.0)
            .unwrap_or(super::host::DEFAULT_COPY_GBPS);
        super::host::add_slot(&mut self.system, cpu, host, rank, dev, gbps);
        Ok(())
    }

    fn nets(&mut self, nic_element: ElementId, nic: NodeId, host: u32) -> Result<(), Error> {
        let document = self.document;
        for element in document.children(nic_element, "net") {
            let dev = document.number::<i64>(element, "dev")?;
            let Some(dev) = dev.and_then(|dev| u32::try_from(dev).ok()) else {
                continue;
            };
            if document.number::<i64>(element, "net")? == Some(0) {
                continue;
            }
            let attribute = |name| document.element(element).attribute(name);
            let megabits = match document.number::<f32>(element, "speed")? {
                Some(speed) if speed > 0.0 => speed,
                _ => 10_000.0,
            };
            let guid = attribute("guid").and_then(crate::xml::parse_hex);
            let net = Net {
                dev,
                name: attribute("name").unwrap_or_default().to_owned(),
                gbps: megabits / 8000.0,
                // Without a guid every net is a port of its own.
                guid: guid.unwrap_or_else(|| u64::from(dev)),
                port: document.number(element, "port")?.unwrap_or(0),
                latency_us: document.number(element, "latency")?.unwrap_or(0.0),
                gdr: document.number::<i64>(element, "gdr")?.unwrap_or(0) != 0,
                rail: document.number(element, "rail")?.unwrap_or(-1),
                plane: document.number(element, "plane")?.unwrap_or(-1),
            };
            let gbps = net.gbps;
            let net = self.system.add_node(NodeRole::Net(net), host);
            self.system.attach(net, nic, LinkKind::Net, gbps);
        }
        Ok(())
    }

    /// NVLink, chip-to-chip and extra PCI links; their targets exist only now.
    fn device_links(&mut self) -> Result<(), Error> {
        let document = self.document;
        for (device, gpu, host, cpu) in std::mem::take(&mut self.links) {
            let NodeRole::Device(Device {
                kind: DeviceKind::Gpu {
                    compute_capability, ..
                },
                ..
            }) = self.system.node(device).role
            else {
                continue;
            };
            for link in document.children(gpu, "nvlink") {
                let count: f32 = document.number(link, "count")?.unwrap_or(1.0);
                let gbps = count * nvlink_gbps(compute_capability);
                let attribute = |name| document.element(link).attribute(name);
                match attribute("tclass")
                    .and_then(parse_class)
                    .unwrap_or(PciClass::Gpu)
                {
                    PciClass::NvSwitch => {
                        let switches = self.system.of_kind(NodeKind::NvSwitch);
                        let switch = switches.first().copied();
                        let switch = switch
                            .unwrap_or_else(|| self.system.add_node(NodeRole::NvSwitch, host));
                        self.system
                            .connect_both(device, switch, LinkKind::NvLink, gbps);
                    }
                    PciClass::Cpu => {
                        self.system
                            .connect_both(device, cpu, LinkKind::NvLink, gbps);
                    }
                    _ => {
                        // The other end has its own element for the way back.
                        let target = attribute("target").and_then(BusId::parse);
                        let peer = target.and_then(|id| self.devices.get(&(host, id)));
                        if let Some(peer) = peer.copied() {
                            self.system.connect(device, peer, LinkKind::NvLink, gbps);
                        }
                    }
                }
            }
            for link in document.children(gpu, "c2c") {
                let megabytes: f32 = document.number(link, "bw")?.unwrap_or(0.0);
                let count: f32 = document.number(link, "count")?.unwrap_or(1.0);
                let gbps = megabytes * count / 1000.0;
                self.system.connect_both(device, cpu, LinkKind::C2c, gbps);
            }
        }
        for (switch, element, host) in std::mem::take(&mut self.pci_links) {
            let target = document
                .element(element)
                .attribute("target")
                .and_then(BusId::parse);
            if let Some(peer) = target.and_then(|id| self.pci.get(&(host, id)).copied()) {
                self.system
                    .connect(switch, peer, LinkKind::Local, LOCAL_GBPS);
            }
        }
        Ok(())
    }
}

/// CPUs of one host reach each other directly.
fn connect_cpus(system: &mut System) {
    let cpus = system.of_kind(NodeKind::Cpu).to_vec();
    for a in &cpus {
        for b in &cpus {
            let (from, to) = (system.node(*a), system.node(*b));
            if a != b
                && from.host == to.host
                && let NodeRole::Cpu(cpu) = &from.role
            {
                let gbps = system_gbps(cpu);
                system.connect(*a, *b, LinkKind::System, gbps);
            }
        }
    }
}
