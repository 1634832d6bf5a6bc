//! Detected facts into a topology file.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::HostMemory;
use crate::xml::{BusId, Document, ElementId};

use super::cpus::NumaNode;
use super::gpus::Gpu;
use super::machine::Machine;
use super::net::{Port, PortKind};
use super::pci::PciDevice;

/// How many process slots a machine without GPUs gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slots {
    /// None when there are GPUs; otherwise one per usable CPU, at most 8 on each NUMA node.
    #[default]
    Auto,
    /// This many on each NUMA node that has usable CPUs, also beside GPUs.
    PerNode(usize),
}

impl Slots {
    const MOST_PER_NODE: usize = 8;
}

impl Machine {
    /// Puts into a topology file what it lacks.
    ///
    /// Elements are matched by NUMA number, PCI address and network name. New elements get `dev`
    /// numbers that the file does not use; devices of the file that this machine does not have stay
    /// as they are. Process slots are added only to a file without any.
    pub fn fill(&self, document: &mut Document, slots: Slots) {
        let mut filling = Filling::new(self, document);
        for node in &self.numa {
            if !node.cpus.is_empty() {
                filling.cpu(node.number);
            }
        }
        filling.pci_devices();
        for gpu in &self.gpus {
            filling.gpu(gpu);
        }
        for port in &self.ports {
            filling.port(port);
        }
        filling.slots(slots);
    }

    /// The slots of each NUMA node, dealt out in turn over nodes with usable CPUs.
    fn auto_slots(&self, nodes: &[&NumaNode]) -> Vec<usize> {
        let room: Vec<usize> = nodes
            .iter()
            .map(|node| node.cpus.and(&self.allowed).len().min(Slots::MOST_PER_NODE))
            .collect();
        let mut dealt = vec![0; nodes.len()];
        let mut left = self.usable_cpus().min(room.iter().sum());
        while left > 0 {
            for (count, room) in dealt.iter_mut().zip(&room) {
                if left > 0 && *count < *room {
                    *count += 1;
                    left -= 1;
                }
            }
        }
        dealt
    }
}

struct Filling<'a> {
    machine: &'a Machine,
    document: &'a mut Document,
    cpus: BTreeMap<i32, ElementId>,
    pci: BTreeMap<BusId, ElementId>,
    gpu_devs: BTreeSet<i64>,
    net_devs: BTreeSet<i64>,
    nets: BTreeMap<(String, Option<i64>), ElementId>,
}

impl<'a> Filling<'a> {
    /// Takes stock of the file.
    fn new(machine: &'a Machine, document: &'a mut Document) -> Self {
        let mut filling = Self {
            machine,
            document,
            cpus: BTreeMap::new(),
            pci: BTreeMap::new(),
            gpu_devs: BTreeSet::new(),
            net_devs: BTreeSet::new(),
            nets: BTreeMap::new(),
        };
        for id in filling.document.walk() {
            let element = filling.document.element(id);
            let text = |name| element.attribute(name).map(str::trim);
            let number = |name| text(name).and_then(|text| text.parse::<i64>().ok());
            match element.name.as_str() {
                "cpu" => {
                    let numa = number("numaid").and_then(|numa| i32::try_from(numa).ok());
                    filling.cpus.entry(numa.unwrap_or(-1)).or_insert(id);
                }
                "pci" => {
                    if let Some(bus_id) = text("busid").and_then(BusId::parse) {
                        filling.pci.entry(bus_id).or_insert(id);
                    }
                }
                "gpu" => filling.gpu_devs.extend(number("dev")),
                "net" => {
                    filling.net_devs.extend(number("dev"));
                    if let Some(name) = text("name") {
                        let key = (name.to_owned(), number("port"));
                        filling.nets.entry(key).or_insert(id);
                    }
                }
                _ => {}
            }
        }
        filling
    }

    /// The element of a NUMA node, made when the file has none, with all that is known.
    fn cpu(&mut self, numa: i32) -> ElementId {
        let root = self.document.root();
        let id = *self.cpus.entry(numa).or_insert_with(|| {
            let id = self.document.add(root, "cpu");
            self.document.set(id, "numaid", numa);
            id
        });
        let node = self.machine.numa.iter().find(|node| node.number == numa);
        if let Some(node) = node.filter(|node| !node.cpus.is_empty()) {
            let mask = node.cpus.to_mask();
            self.document.set_if_absent(id, "affinity", mask);
        }
        let cpu = &self.machine.cpu;
        if let Some(arch) = cpu.arch {
            self.document.set_if_absent(id, "arch", arch);
        }
        if let Some(vendor) = &cpu.vendor {
            self.document.set_if_absent(id, "vendor", vendor);
        }
        for (name, value) in [("familyid", cpu.family), ("modelid", cpu.model)] {
            if let Some(value) = value {
                self.document.set_if_absent(id, name, value);
            }
        }
        id
    }

    /// GPUs, network cards and the switches above them, switches before what is below, siblings by
    /// address: the order of devices follows from it.
    fn pci_devices(&mut self) {
        let gpus = self.machine.gpus.iter().map(|gpu| gpu.bus_id);
        let cards = self.machine.ports.iter().filter_map(|port| port.bus_id);
        let mut places: BTreeSet<(i32, Vec<BusId>)> = BTreeSet::new();
        for bus_id in gpus.chain(cards) {
            let Some(device) = self.machine.pci_device(bus_id) else {
                continue;
            };
            let mut place = device.switches.clone();
            place.push(bus_id);
            let numa = self.machine.numa_of(device);
            for end in 1..=place.len() {
                places.insert((numa, place[..end].to_vec()));
            }
        }
        for (numa, place) in places {
            let Some((bus_id, above)) = place.split_last() else {
                continue;
            };
            let known = self.pci.get(bus_id).copied();
            let id = known.unwrap_or_else(|| {
                // The file may leave out switches in between.
                let parent = above.iter().rev().find_map(|id| self.pci.get(id).copied());
                let parent = parent.unwrap_or_else(|| self.cpu(numa));
                let id = self.document.add(parent, "pci");
                self.document.set(id, "busid", bus_id);
                self.pci.insert(*bus_id, id);
                id
            });
            if let Some(device) = self.machine.pci_device(*bus_id) {
                self.describe(id, device);
            } else {
                self.document.set_if_absent(id, "class", "0x060400");
            }
        }
    }

    fn describe(&mut self, id: ElementId, device: &PciDevice) {
        let document = &mut *self.document;
        document.set_if_absent(id, "class", format!("{:#08x}", device.class));
        let names = ["vendor", "device", "subsystem_vendor", "subsystem_device"];
        for (name, value) in names.iter().zip(device.identity) {
            document.set_if_absent(id, name, format!("{value:#06x}"));
        }
        if let Some(speed) = &device.link_speed {
            document.set_if_absent(id, "link_speed", speed);
        }
        if let Some(width) = device.link_width {
            document.set_if_absent(id, "link_width", width);
        }
    }

    fn gpu(&mut self, gpu: &Gpu) {
        let Some(pci) = self.pci.get(&gpu.bus_id).copied() else {
            return;
        };
        let known = self.document.children(pci, "gpu").next();
        let id = known.unwrap_or_else(|| self.document.add(pci, "gpu"));
        if self.document.element(id).attribute("dev").is_none() {
            let dev = free(&mut self.gpu_devs, gpu.dev);
            self.document.set(id, "dev", dev);
        }
        if let Some(sm) = gpu.compute_capability {
            self.document.set_if_absent(id, "sm", sm);
        }
        if let Some(gdr) = gpu.gdr {
            self.document.set_if_absent(id, "gdr", u8::from(gdr));
        }
        if self.document.children(id, "nvlink").next().is_none() {
            for link in &gpu.links {
                let element = self.document.add(id, "nvlink");
                self.document.set(element, "target", link.target);
                self.document.set(element, "count", link.count);
                let class = format!("{:#08x}", link.target_class);
                self.document.set(element, "tclass", class);
            }
        }
        if let Some(c2c) = gpu.c2c
            && self.document.children(id, "c2c").next().is_none()
        {
            let element = self.document.add(id, "c2c");
            self.document.set(element, "bw", c2c.megabytes_per_second);
            self.document.set(element, "count", c2c.count);
        }
    }

    fn port(&mut self, port: &Port) {
        let number = match port.kind {
            PortKind::Infiniband { port, .. } => Some(i64::from(port)),
            PortKind::Interface => None,
        };
        let known = [number, None].into_iter().find_map(|number| {
            let key = (port.name.clone(), number);
            self.nets.get(&key).copied()
        });
        let id = known.unwrap_or_else(|| {
            let place = port
                .bus_id
                .and_then(|bus_id| self.pci.get(&bus_id).copied());
            let parent = place.unwrap_or_else(|| self.first_cpu());
            let nic = self.document.children(parent, "nic").next();
            let nic = nic.unwrap_or_else(|| self.document.add(parent, "nic"));
            let id = self.document.add(nic, "net");
            self.document.set(id, "name", &port.name);
            id
        });
        if self.document.element(id).attribute("dev").is_none() {
            let dev = free(&mut self.net_devs, 0);
            self.document.set(id, "dev", dev);
        }
        let document = &mut *self.document;
        let megabits = port.megabits.unwrap_or(Port::UNKNOWN_MEGABITS);
        document.set_if_absent(id, "speed", megabits);
        match port.kind {
            PortKind::Infiniband { port, guid } => {
                document.set_if_absent(id, "port", port);
                // Without a guid every port counts as a wire of its own.
                if guid != 0 {
                    document.set_if_absent(id, "guid", format!("{guid:#x}"));
                }
                let gdr = self.machine.gpus.iter().any(|gpu| gpu.gdr == Some(true));
                document.set_if_absent(id, "gdr", u8::from(gdr));
            }
            PortKind::Interface => {
                // The kernel's network stack costs about this much; no file tells.
                let latency = HostMemory::default().net_latency_us;
                document.set_if_absent(id, "latency", latency);
                document.set_if_absent(id, "gdr", 0);
            }
        }
    }

    fn first_cpu(&mut self) -> ElementId {
        let first = self.cpus.keys().find(|numa| **numa >= 0).copied();
        let first = first.unwrap_or_else(|| self.machine.first_node());
        self.cpu(first)
    }

    fn slots(&mut self, slots: Slots) {
        let has = |name: &str| {
            let order = self.document.walk();
            order
                .iter()
                .any(|id| self.document.element(*id).name == name)
        };
        if has("endpoint") || (slots == Slots::Auto && has("gpu")) {
            return;
        }
        let nodes: Vec<&NumaNode> = self
            .machine
            .numa
            .iter()
            .filter(|node| !node.cpus.and(&self.machine.allowed).is_empty())
            .collect();
        let mut counts: Vec<(i32, usize)> = nodes
            .iter()
            .zip(match slots {
                Slots::Auto => self.machine.auto_slots(&nodes),
                Slots::PerNode(count) => vec![count; nodes.len()],
            })
            .map(|(node, count)| (node.number, count))
            .collect();
        if counts.is_empty() {
            // Nothing is known about CPUs; the process runs all the same.
            counts.push((self.machine.first_node(), 1));
        }
        let mut dev = 0;
        for (numa, count) in counts {
            let cpu = self.cpu(numa);
            for _ in 0..count {
                let endpoint = self.document.add(cpu, "endpoint");
                self.document.set(endpoint, "dev", dev);
                dev += 1;
            }
        }
    }
}

/// The number asked for, or the lowest that nobody has.
fn free(taken: &mut BTreeSet<i64>, wish: u32) -> i64 {
    let mut number = i64::from(wish);
    if taken.contains(&number) {
        number = (0..)
            .find(|number| !taken.contains(number))
            .unwrap_or(number);
    }
    taken.insert(number);
    number
}
