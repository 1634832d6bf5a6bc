//! Topology files: what is kept, what is refused, and where errors point.

use comm_core::ErrorKind;
use comm_graph::model::{NodeKind, build};
use comm_graph::xml::{Severity, parse, validate};

mod fixtures;

const SMALL: &str = r#"<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1">
        <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:01:00.0" count="4" tclass="0x030200"/>
      </gpu>
    </pci>
  </cpu>
</system>
"#;

/// The error of a file made from the small one by replacing some text.
fn refused(from: &str, to: &str) -> String {
    refused_in(SMALL, from, to)
}

/// The same without NVLinks, whose targets would be missed first.
fn refused_without_links(from: &str, to: &str) -> String {
    let lines = SMALL
        .lines()
        .map(|line| if line.contains("<nvlink") { "" } else { line });
    refused_in(&lines.collect::<Vec<_>>().join("\n"), from, to)
}

fn refused_in(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    let text = text.replacen(from, to, 1);
    let error = match parse("broken.xml", text.as_bytes()) {
        Err(error) => error,
        Ok(document) => build(&document).expect_err("the file must be refused"),
    };
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    error.to_string()
}

fn assert_names(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
}

#[test]
fn a_missing_or_malformed_busid_is_refused_at_its_element() {
    let error = refused_without_links(r#" busid="0000:02:00.0""#, "");
    assert_names(
        &error,
        &[
            "busid is missing",
            "file=broken.xml",
            "line=8",
            "system/cpu[numaid=0]/pci",
        ],
    );
    let error = refused_without_links("busid=\"0000:02:00.0\"", "busid=\"zz\"");
    assert_names(&error, &["busid=\"zz\" is no PCI address", "line=8"]);
}

#[test]
fn a_bad_class_is_refused_at_its_element() {
    let error = refused("class=\"0x030200\"", "class=\"gpu\"");
    assert_names(
        &error,
        &["is no PCI class", "line=3", "pci[busid=0000:01:00.0]"],
    );
}

#[test]
fn a_dangling_nvlink_target_is_refused_at_its_element() {
    let error = refused("target=\"0000:02:00.0\"", "target=\"0000:77:00.0\"");
    assert_names(
        &error,
        &[
            "0000:77:00.0",
            "not in the file",
            "line=5",
            "nvlink[target=0000:77:00.0]",
        ],
    );
}

#[test]
fn duplicate_ids_are_refused_and_name_the_first_use() {
    let error = refused_without_links("busid=\"0000:02:00.0\"", "busid=\"0000:01:00.0\"");
    assert_names(
        &error,
        &[
            "PCI address 0000:01:00.0 is already used at line 3",
            "line=8",
        ],
    );
    let error = refused("rank=\"1\"", "rank=\"0\"");
    assert_names(&error, &["rank 0 is already used at line 4", "line=9"]);
    let error = refused("dev=\"1\"", "dev=\"0\"");
    assert_names(&error, &["GPU dev 0 is already used"]);
}

#[test]
fn numbers_that_are_none_are_refused() {
    assert_names(
        &refused("dev=\"1\"", "dev=\"one\""),
        &["dev=\"one\" is not a number", "line=9"],
    );
    assert_names(
        &refused("sm=\"80\"", "sm=\"NaN\""),
        &["sm=\"NaN\"", "line=4"],
    );
    assert_names(
        &refused("link_width=\"16\"", "link_width=\"-1\""),
        &["outside 0..=1024"],
    );
    assert_names(
        &refused("numaid=\"0\"", "numaid=\"0.5\""),
        &["numaid=\"0.5\"", "line=2"],
    );
}

#[test]
fn other_versions_and_roots_are_refused() {
    assert_names(
        &refused("version=\"1\"", "version=\"2\""),
        &["version=\"2\"", "line=1"],
    );
    let error = parse("graph.xml", b"<graphs version=\"1\"/>")
        .unwrap_err()
        .to_string();
    assert_names(&error, &["<graphs>", "starts with <system>"]);
}

#[test]
fn what_is_not_xml_is_refused_with_a_line() {
    for (text, line) in [
        ("", 1),
        ("hello\nworld\n", 1),
        ("<system version=\"1\">\n  <cpu numaid=\"0\">\n", 2),
        ("<system version=\"1\">\n</cpu>", 2),
        ("<system version=\"1\"/>\n<system version=\"1\"/>", 2),
        ("<system version=1/>", 1),
        ("<system version=\"1\" version=\"1\"/>", 1),
        ("<system version=\"&unknown;\"/>", 1),
    ] {
        let error = parse("bad.xml", text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{text}");
        assert_names(
            &error.to_string(),
            &["file=bad.xml", &format!("line={line}")],
        );
    }
    assert_names(
        &parse("bad.xml", b"<system>\n\xff").unwrap_err().to_string(),
        &["not UTF-8", "line=2"],
    );
}

#[test]
fn fifty_megabytes_of_garbage_end_in_an_error() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut garbage = Vec::with_capacity(50 << 20);
    while garbage.len() < 50 << 20 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        garbage.push(b' ' + (seed % 95) as u8);
    }
    assert!(parse("garbage.xml", &garbage).is_err());
    let mut nested = b"<system version=\"1\">".to_vec();
    while nested.len() < 50 << 20 {
        nested.extend_from_slice(b"<pci>");
    }
    assert!(parse("nested.xml", &nested).is_err());
}

#[test]
fn deep_nesting_needs_no_stack() {
    let depth = 200_000;
    let mut text = "<system version=\"1\"><cpu numaid=\"0\">".to_owned();
    (0..depth).for_each(|_| text.push_str("<x>"));
    (0..depth).for_each(|_| text.push_str("</x>"));
    text.push_str("</cpu></system>");
    let document = parse("deep.xml", text.as_bytes()).unwrap();
    assert_eq!(document.len(), depth + 2);
    let report = validate(&document);
    assert!(report.is_usable());
    assert_eq!(report.problems().len() + report.omitted(), depth);
    assert_eq!(
        parse("deep.xml", document.to_xml().as_bytes())
            .unwrap()
            .len(),
        depth + 2
    );
}

#[test]
fn unknown_elements_and_attributes_are_kept_and_warned_of() {
    let text = SMALL
        .replace("gdr=\"1\"", "gdr=\"1\" colour=\"red &amp; blue\"")
        .replace("  </cpu>", "    <fan rpm=\"900\"><blade/></fan>\n  </cpu>");
    let document = parse("extended.xml", text.as_bytes()).unwrap();
    let report = validate(&document);
    assert!(report.is_usable(), "{report}");
    let warnings: Vec<_> = report.problems().iter().collect();
    assert!(
        warnings
            .iter()
            .all(|problem| problem.severity == Severity::Warning)
    );
    assert!(
        warnings
            .iter()
            .any(|problem| problem.message.contains("<fan>") && problem.line == 13)
    );
    assert!(
        warnings
            .iter()
            .any(|problem| problem.message.contains("colour"))
    );
    let written = document.to_xml();
    assert!(written.contains("colour=\"red &amp; blue\""), "{written}");
    assert!(written.contains("<blade/>"), "{written}");
    assert!(
        report.to_string().starts_with("extended.xml:4: warning: "),
        "{report}"
    );
}

#[test]
fn writing_and_reading_gives_back_an_equal_tree() {
    for document in [fixtures::switched_machine(), fixtures::host_machine(3)] {
        let text = document.to_xml();
        let read = parse(document.file(), text.as_bytes()).unwrap();
        assert_eq!(read.to_xml(), text);
        assert_eq!(build(&read).unwrap(), build(&document).unwrap());
    }
}

#[test]
fn devices_without_ranks_are_numbered_unless_the_file_has_ranks() {
    let without = SMALL.replace(" rank=\"0\"", "").replace(" rank=\"1\"", "");
    let system = build(&parse("x.xml", without.as_bytes()).unwrap()).unwrap();
    assert_eq!(system.ranks(), [0, 1]);
    let one = SMALL.replace(" rank=\"1\"", "");
    let system = build(&parse("x.xml", one.as_bytes()).unwrap()).unwrap();
    assert_eq!(system.ranks(), [0]);
}

#[test]
fn parallel_links_are_summed_and_switches_folded() {
    let system = build(&fixtures::switched_machine()).unwrap();
    assert_eq!(system.of_kind(NodeKind::NvSwitch).len(), 1);
    let device = system.of_kind(NodeKind::Device)[0];
    let nvlink = system
        .links_of(device)
        .map(|(_, link)| link.gbps)
        .find(|gbps| *gbps < 5000.0);
    assert!((nvlink.unwrap() - 18.0 * 20.6).abs() < 1e-3);
}
