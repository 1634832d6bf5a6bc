//! Machines as trees of files, made from a short text.
//!
//! One line per thing:
//!
//! ```text
//! cpuinfo VENDOR FAMILY MODEL
//! node NUMBER CPULIST DISTANCE...
//! pci ADDRESS/ADDRESS/... key=value...       the chain from the root complex; the last is made
//! net NAME ADDRESS-OR-PATH key=value...      `-` for a virtual interface
//! ib NAME ADDRESS guid=... port=state,rate
//! file PATH TEXT                             `\n` is a line break, `\t` a tab
//! link PATH TARGET
//! ```

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use comm_graph::detect::{GpuProbe, Machine, Slots, SysfsGpus, SystemFiles};
use comm_graph::xml::Document;

pub(crate) struct Tree {
    directory: tempfile::TempDir,
    /// Address -> directory below the root.
    places: HashMap<String, PathBuf>,
}

impl Tree {
    pub(crate) fn new(description: &str) -> Self {
        let mut tree = Self {
            directory: tempfile::tempdir().unwrap(),
            places: HashMap::new(),
        };
        for line in description.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[0] {
                "cpuinfo" => tree.cpuinfo(words[1], words[2], words[3]),
                "node" => tree.node(words[1], words[2], &words[3..]),
                "pci" => tree.pci(words[1], &words[2..]),
                "net" => tree.net(words[1], words[2], &words[3..]),
                "ib" => tree.infiniband(words[1], words[2], &words[3..]),
                "file" => {
                    let text = line.splitn(3, ' ').nth(2).unwrap_or_default();
                    tree.file(words[1], &text.replace("\\n", "\n").replace("\\t", "\t"));
                }
                "link" => tree.link(Path::new(words[1]), Path::new(words[2])),
                other => panic!("unknown line {other}"),
            }
        }
        tree
    }

    pub(crate) fn files(&self) -> SystemFiles {
        SystemFiles::at(self.directory.path())
    }

    pub(crate) fn machine(&self) -> Machine {
        self.machine_with(&SysfsGpus)
    }

    pub(crate) fn machine_with(&self, gpus: &dyn GpuProbe) -> Machine {
        Machine::detect(&self.files(), gpus)
    }

    pub(crate) fn document(&self) -> Document {
        let mut document = Document::new("detected");
        self.machine().fill(&mut document, Slots::Auto);
        document
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Makes a relative link, as sysfs has them; both paths are relative to the root.
    fn link(&self, path: &Path, target: &Path) {
        let depth = path.components().count() - 1;
        let up: PathBuf = std::iter::repeat_n("..", depth).collect();
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(up.join(target), path).unwrap();
    }

    fn cpuinfo(&self, vendor: &str, family: &str, model: &str) {
        let text = format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: Some CPU"
        );
        self.file("proc/cpuinfo", &text);
    }

    fn node(&self, number: &str, cpus: &str, distances: &[&str]) {
        let at = format!("sys/devices/system/node/node{number}");
        self.file(&format!("{at}/cpulist"), cpus);
        self.file(&format!("{at}/distance"), &distances.join(" "));
    }

    fn pci(&mut self, chain: &str, attributes: &[&str]) {
        let domain = chain.split(':').next().unwrap();
        let place = PathBuf::from(format!("sys/devices/pci{domain}:00/{chain}"));
        let address = chain.rsplit('/').next().unwrap();
        for attribute in attributes {
            let (name, value) = attribute.split_once('=').unwrap();
            let (name, value) = match name {
                "speed" => ("max_link_speed", format!("{value} GT/s PCIe")),
                "width" => ("max_link_width", value.to_owned()),
                "numa" => ("numa_node", value.to_owned()),
                other => (other, value.to_owned()),
            };
            self.file(place.join(name).to_str().unwrap(), &value);
        }
        let link = Path::new("sys/bus/pci/devices").join(address);
        self.link(&link, &place);
        self.places.insert(address.to_owned(), place);
    }

    fn net(&self, name: &str, device: &str, attributes: &[&str]) {
        let at = format!("sys/class/net/{name}");
        self.file(&format!("{at}/type"), "1");
        for attribute in attributes {
            let (name, value) = attribute.split_once('=').unwrap();
            self.file(&format!("{at}/{name}"), value);
        }
        if device != "-" {
            // `ADDRESS/virtio0`: a function below the PCI device.
            let (address, below) = device.split_once('/').unwrap_or((device, ""));
            let place = self.places[address].join(below);
            fs::create_dir_all(self.directory.path().join(&place)).unwrap();
            self.link(Path::new(&format!("{at}/device")), &place);
        }
    }

    fn infiniband(&self, name: &str, address: &str, attributes: &[&str]) {
        let at = format!("sys/class/infiniband/{name}");
        self.link(Path::new(&format!("{at}/device")), &self.places[address]);
        for attribute in attributes {
            let (key, value) = attribute.split_once('=').unwrap();
            if key == "guid" {
                self.file(&format!("{at}/node_guid"), value);
                continue;
            }
            let (state, rate) = value.split_once(',').unwrap();
            self.file(&format!("{at}/ports/{key}/state"), state);
            self.file(
                &format!("{at}/ports/{key}/rate"),
                &format!("{rate} Gb/sec (4X NDR)"),
            );
        }
    }
}

/// Two sockets, four PCI switches each with two GPUs and two InfiniBand cards, one management card
/// and the adapter of a management controller.
pub(crate) fn server() -> Tree {
    let mut text = String::from(
        "cpuinfo GenuineIntel 6 143
         node 0 0-31,64-95 10 21
         node 1 32-63,96-127 21 10
         file sys/module/nvidia_peermem/refcnt 1
         pci 0000:00:1c.0 class=0x060400 vendor=0x8086 speed=8.0 width=1 numa=0
         pci 0000:00:1c.0/0000:01:00.0 class=0x030000 vendor=0x1a03 numa=0
         pci 0000:00:1d.0 class=0x060400 vendor=0x8086 speed=5.0 width=1 numa=0
         pci 0000:00:1d.0/0000:02:00.0 class=0x020000 vendor=0x8086 speed=5.0 width=1 numa=0
         net eno1 0000:02:00.0 operstate=up speed=1000\n",
    );
    for switch in 0..4 {
        let numa = switch / 2;
        let base = 0x10 + switch * 0x20;
        let id = |offset: i32| format!("0000:{:02x}:00.0", base + offset);
        let root = format!("0000:{base:02x}:01.0");
        let up = format!("{root}/{}", id(1));
        let bridge = "class=0x060400 vendor=0x1000 device=0xc030 speed=32.0 width=16";
        text +=
            &format!("pci {root} class=0x060400 vendor=0x8086 speed=32.0 width=16 numa={numa}\n");
        text += &format!("pci {up} {bridge} numa={numa}\n");
        for slot in 0..4 {
            let down = format!("{up}/{}", id(2 + slot));
            let device = format!("{down}/{}", id(6 + slot));
            text += &format!("pci {down} {bridge} numa={numa}\n");
            if slot < 2 {
                text += &format!(
                    "pci {device} class=0x030200 vendor=0x10de device=0x2330 speed=32.0 width=16 \
                     numa=-1\n"
                );
            } else {
                let port = switch * 2 + slot - 2;
                // The card could do 32 GT/s with 16 lanes; the one in the last slot got 8.
                let width = if port == 7 { 8 } else { 16 };
                text += &format!(
                    "pci {device} class=0x020700 vendor=0x15b3 speed=32.0 width={width} numa=-1
                     ib mlx5_{port} {} guid=b83f:d203:00aa:000{port} 1=4:_ACTIVE,400\n",
                    id(6 + slot)
                );
            }
        }
    }
    Tree::new(&text)
}
