//! Checking the meaning of a file: every problem with file, line and element path.

use std::collections::{HashMap, HashSet};

use super::document::{Document, ElementId, shorten};
use super::report::{Report, Severity};
use super::schema::{
    BusId, PciClass, known_attributes, known_parents, parse_class, parse_hex, pci_generation_rate,
};

/// Checks a file against the schema and for contradictions inside it.
///
/// Errors: unsupported version, missing or malformed `busid`, bad `class`, numbers that are none,
/// duplicate bus ids, NUMA numbers, devices or ranks of one host, an `nvlink` to a GPU that is not
/// in the file. Warnings: unknown elements and attributes (kept, but without effect), elements in
/// the wrong place, a network without `dev`, unknown link speeds.
#[must_use]
pub fn validate(document: &Document) -> Report {
    let report = Report::new(document.file());
    let mut check = Check {
        document,
        report,
        seen: HashMap::new(),
        bus_ids: HashSet::new(),
    };
    let order = document.walk();
    for id in &order {
        if let Some(bus_id) = document
            .element(*id)
            .attribute("busid")
            .and_then(BusId::parse)
        {
            check.bus_ids.insert(bus_id);
        }
    }
    let mut host = String::new();
    for id in order {
        let element = document.element(id);
        if element.name == "cpu" {
            host = element
                .attribute("host_hash")
                .unwrap_or_default()
                .to_owned();
        }
        check.place_and_names(id);
        match element.name.as_str() {
            "system" => check.system(id),
            "cpu" => check.cpu(id, &host),
            "pci" => check.pci(id, &host),
            "gpu" => check.gpu(id, &host),
            "nvlink" => check.nvlink(id),
            "c2c" => check.numbers(id, &["bw", "count"], 0.0, 1e9),
            "pcilink" => check.target(id, false),
            "net" => check.net(id, &host),
            "endpoint" => {
                check.numbers(id, &["dev", "rank"], 0.0, MAX_ID);
                check.numbers(id, &["bw"], 0.0, 1e9);
                check.unique(id, &host, "dev", "endpoint");
                check.unique(id, "", "rank", "rank");
            }
            _ => {}
        }
    }
    check.report
}

const MAX_ID: f64 = i32::MAX as f64;

struct Check<'a> {
    document: &'a Document,
    report: Report,
    /// (what, host, value) -> line of the first use.
    seen: HashMap<(&'static str, String, String), usize>,
    bus_ids: HashSet<BusId>,
}

impl Check<'_> {
    fn error(&mut self, id: ElementId, message: String) {
        self.report.add(self.document, id, Severity::Error, message);
    }

    fn warning(&mut self, id: ElementId, message: String) {
        self.report
            .add(self.document, id, Severity::Warning, message);
    }

    fn place_and_names(&mut self, id: ElementId) {
        let element = self.document.element(id);
        let parent = element
            .parent
            .map(|parent| self.document.element(parent).name.as_str());
        let name = shorten(&element.name);
        let Some(parents) = known_parents(&element.name) else {
            self.warning(
                id,
                format!("unknown element <{name}> is kept but has no effect"),
            );
            return;
        };
        if let Some(parent) = parent
            && !parents.contains(&parent)
        {
            let text = format!(
                "<{name}> has no effect inside <{}>; it belongs into {}",
                shorten(parent),
                if parents.is_empty() {
                    "no element".to_owned()
                } else {
                    parents.join(" or ")
                }
            );
            self.warning(id, text);
        }
        let known = known_attributes(&element.name);
        for attribute in &element.attributes {
            if !known.contains(&attribute.name.as_str()) {
                let attribute = shorten(&attribute.name);
                self.warning(
                    id,
                    format!("unknown attribute {attribute} is kept but has no effect"),
                );
            }
        }
    }

    fn system(&mut self, id: ElementId) {
        match self.document.element(id).attribute("version") {
            Some("1") => {}
            Some(other) => {
                let text = format!("version=\"{}\" is not supported; use 1", shorten(other));
                self.error(id, text);
            }
            None => self.error(
                id,
                "the version is missing; write <system version=\"1\">".into(),
            ),
        }
    }

    fn cpu(&mut self, id: ElementId, host: &str) {
        let element = self.document.element(id);
        if element.attribute("numaid").is_none() {
            self.error(
                id,
                "numaid is missing; use -1 where the NUMA node is unknown".into(),
            );
        }
        self.numbers(id, &["numaid"], -1.0, MAX_ID);
        self.numbers(id, &["familyid", "modelid"], -1.0, MAX_ID);
        self.unique(id, host, "numaid", "NUMA node");
        if let Some(mask) = element.attribute("affinity")
            && !mask
                .split(',')
                .all(|group| group.is_empty() || parse_hex(group).is_some())
        {
            let text = "affinity is not a hexadecimal mask in comma-separated groups".to_owned();
            self.error(id, text);
        }
        if let Some(hash) = element.attribute("host_hash")
            && parse_hex(hash).is_none()
        {
            self.error(
                id,
                "host_hash is not a hexadecimal number of at most 64 bits".into(),
            );
        }
    }

    fn pci(&mut self, id: ElementId, host: &str) {
        let element = self.document.element(id);
        match element.attribute("busid") {
            None => self.error(id, "busid is missing; write busid=\"dddd:bb:dd.f\"".into()),
            Some(text) if BusId::parse(text).is_none() => {
                let text = format!("busid=\"{}\" is no PCI address dddd:bb:dd.f", shorten(text));
                self.error(id, text);
            }
            Some(_) => self.unique(id, host, "busid", "PCI address"),
        }
        match element.attribute("class") {
            None => self.warning(id, "class is missing; the device counts as a switch".into()),
            Some(text) => match parse_class(text) {
                None => {
                    let text = format!("class=\"{}\" is no PCI class like 0x030200", shorten(text));
                    self.error(id, text);
                }
                Some(PciClass::Nic) if self.document.children(id, "nic").next().is_none() => {
                    self.warning(id, "a network card without <nic>; it is ignored".into());
                }
                Some(_) => {}
            },
        }
        self.numbers(id, &["link_width"], 0.0, 1024.0);
        if let Some(speed) = element.attribute("link_speed")
            && pci_generation_rate(speed) == 60.0
            && !speed.trim_start().starts_with('8')
            && !speed.is_empty()
        {
            let text = format!(
                "link_speed=\"{}\" is unknown; 8 GT/s is assumed",
                shorten(speed)
            );
            self.warning(id, text);
        }
    }

    fn gpu(&mut self, id: ElementId, host: &str) {
        self.numbers(id, &["dev", "rank", "mlopart"], -1.0, MAX_ID);
        self.numbers(id, &["sm", "gdr"], 0.0, MAX_ID);
        // Ranks that share a GPU share its number.
        let element = self.document.element(id);
        let first = element
            .parent
            .and_then(|pci| self.document.children(pci, "gpu").next());
        if first == Some(id) {
            self.unique(id, host, "dev", "GPU dev");
        }
        self.unique(id, "", "rank", "rank");
        if self.document.element(id).attribute("sm").is_none() {
            self.warning(
                id,
                "sm (compute capability) is missing; 80 is assumed".into(),
            );
        }
    }

    fn nvlink(&mut self, id: ElementId) {
        self.numbers(id, &["count"], 0.0, 1024.0);
        let class = self
            .document
            .element(id)
            .attribute("tclass")
            .map(parse_class);
        match class {
            Some(None) => self.error(id, "tclass is no PCI class like 0x030200".into()),
            Some(Some(PciClass::NvSwitch | PciClass::Cpu)) => {}
            Some(Some(_)) => self.target(id, true),
            None => {
                self.warning(id, "tclass is missing; the target counts as a GPU".into());
                self.target(id, true);
            }
        }
    }

    fn target(&mut self, id: ElementId, to_gpu: bool) {
        let Some(target) = self.document.element(id).attribute("target") else {
            self.error(
                id,
                "target is missing; write target=\"dddd:bb:dd.f\"".into(),
            );
            return;
        };
        match BusId::parse(target) {
            None => {
                let text = format!("target=\"{}\" is no PCI address", shorten(target));
                self.error(id, text);
            }
            Some(bus_id) if !self.bus_ids.contains(&bus_id) => {
                let what = if to_gpu { "GPU" } else { "PCI device" };
                self.error(
                    id,
                    format!("the {what} {bus_id} it leads to is not in the file"),
                );
            }
            Some(_) => {}
        }
    }

    fn net(&mut self, id: ElementId, host: &str) {
        if self.document.element(id).attribute("dev").is_none() {
            self.warning(id, "a network without dev is ignored".into());
        }
        self.numbers(id, &["dev", "speed", "port", "maxconn"], -1.0, MAX_ID);
        self.numbers(id, &["latency"], 0.0, 1e9);
        self.numbers(id, &["gdr", "coll", "net"], 0.0, 1.0);
        self.numbers(id, &["rail", "plane"], -1.0, MAX_ID);
        self.unique(id, host, "dev", "network dev");
        if let Some(guid) = self.document.element(id).attribute("guid")
            && parse_hex(guid).is_none()
        {
            self.error(
                id,
                "guid is not a hexadecimal number of at most 64 bits".into(),
            );
        }
    }

    fn numbers(&mut self, id: ElementId, names: &[&str], low: f64, high: f64) {
        for name in names {
            let Some(text) = self.document.element(id).attribute(name) else {
                continue;
            };
            match text.trim().parse::<f64>() {
                Ok(number) if (low..=high).contains(&number) => {}
                Ok(_) => {
                    let text = format!("{name}=\"{}\" is outside {low}..={high}", shorten(text));
                    self.error(id, text);
                }
                Err(_) => {
                    self.error(id, format!("{name}=\"{}\" is not a number", shorten(text)));
                }
            }
        }
    }

    fn unique(&mut self, id: ElementId, host: &str, attribute: &str, what: &'static str) {
        let element = self.document.element(id);
        let Some(value) = element.attribute(attribute) else {
            return;
        };
        if value.trim() == "-1" {
            return;
        }
        let value = match BusId::parse(value) {
            Some(bus_id) if attribute == "busid" => bus_id.to_string(),
            _ => value.trim().to_owned(),
        };
        let key = (what, host.to_owned(), value);
        match self.seen.get(&key) {
            Some(line) => {
                let text = format!("{what} {} is already used at line {line}", shorten(&key.2));
                self.error(id, text);
            }
            None => {
                self.seen.insert(key, element.line);
            }
        }
    }
}
