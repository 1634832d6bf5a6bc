//! Where `unsafe` may stand, and the argument that each use has to carry.
//!
//! Clippy checks the argument too, but only in code that is compiled on the platform and with the
//! features at hand; this check reads everything. Test code is left to clippy.

use super::Finding;
use super::source::Source;

/// Paths (a file without its extension, or a directory) that may contain `unsafe`, and why.
const ALLOWED: &[(&str, &str)] = &[
    (
        "comm-core/src/doorbell",
        "futex on a word that other processes write",
    ),
    ("comm-core/src/fifo", "slots in memory that a peer writes"),
    ("comm-core/src/device", "allocation and addresses of memory"),
    ("comm-core/src/memory", "raw buffers of every memory kind"),
    (
        "comm-core/src/net",
        "the network contract that memory safety rests on",
    ),
    (
        "comm-core/src/tensor",
        "views of raw buffers as typed elements",
    ),
    ("comm-transport-shm/src", "mapped memory that a peer writes"),
    (
        "comm-transport-p2p/src",
        "memory of another thread or device",
    ),
    (
        "comm-transport-net/src",
        "registered memory, implementations of the unsafe backend trait",
    ),
    (
        "comm-runtime/src/control/ffi",
        "calls of the C library that rustix does not offer",
    ),
    (
        "comm-runtime/src/edge/ends",
        "users' buffers that are offered to peers, and copies of what peers offer",
    ),
    (
        "comm-runtime/src/edge/prove",
        "a page through memory that a peer writes",
    ),
    (
        "comm-runtime/src/fork",
        "a page that the kernel wipes in a forked child",
    ),
    (
        "comm-runtime/src/lane",
        "the state that only a lane's driver touches",
    ),
    (
        "comm-runtime/src/operation",
        "users' buffers and slots in memory that a peer writes",
    ),
    (
        "comm-runtime/src/region",
        "memory that other processes map, and mappings of theirs",
    ),
    (
        "comm-kernels/src",
        "copy and reduction over raw pointers, SIMD",
    ),
    ("comm-device-cuda/src", "the driver's C interface"),
    (
        "comm-testkit/src/mock",
        "implementations of unsafe traits that the mocks stand in for",
    ),
    (
        "comm-testkit/src/transport/ends",
        "payloads in memory that a peer writes",
    ),
    (
        "comm-testkit/src/device",
        "the contents of memory that a tested device copies",
    ),
    (
        "comm-testkit/src/net",
        "a mock network and device, and tests of their unsafe contract",
    ),
    ("comm-cli/src/launch/signals", "signal masks and signalfd"),
    ("comm-cli/src/launch/spawn", "code between fork and exec"),
    (
        "examples/transport-uds/src",
        "registered memory, implementations of the unsafe backend trait",
    ),
];

/// Whether some module below `directory` is on the list.
pub(crate) fn has_entry_below(directory: &str) -> bool {
    ALLOWED.iter().any(|(entry, _)| is_below(entry, directory))
}

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let stem = source.path.trim_end_matches(".rs");
    let listed = ALLOWED.iter().any(|(entry, _)| is_below(stem, entry));
    let mut findings = Vec::new();
    for (index, behind) in source.find_word("unsafe") {
        if source.lines[index].test {
            continue;
        }
        if !listed {
            let message = "`unsafe` outside the listed modules; move it there, or add the module \
                           and its reason to xtask/src/tidy/unsafe_code.rs";
            findings.push(Finding::at(source, index, message));
        }
        let behind = behind.trim_start();
        if (behind.starts_with('{') || behind.starts_with("impl")) && !is_argued(source, index) {
            let message = "`unsafe` without a `// SAFETY:` comment directly above it";
            findings.push(Finding::at(source, index, message));
        }
    }
    findings
}

/// Whether `path` is `ancestor` or lies in it.
fn is_below(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a safety comment stands directly above the line or the statement that it belongs to.
fn is_argued(source: &Source, index: usize) -> bool {
    let mut line = index;
    while line > 0 {
        let above = &source.lines[line - 1];
        if above.is_comment() {
            return comment_ending_at(source, line - 1).contains("SAFETY:");
        }
        let code = above.code.trim_end();
        if code.is_empty() || code.ends_with([';', '{', '}', ',']) {
            return false;
        }
        line -= 1;
    }
    false
}

/// The text of the block of comment lines whose last line is `last`.
fn comment_ending_at(source: &Source, last: usize) -> String {
    let block = source.lines[..=last]
        .iter()
        .rev()
        .take_while(|line| line.is_comment());
    block.map(|line| line.comment.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "comm-core/src/fifo/ring.rs";

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Source::parse(path, text))
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn an_argument_directly_above_is_accepted() {
        let accepted = [
            "// SAFETY: the slot is ours.\nunsafe { write(p) };\n",
            "// SAFETY: the slot is ours until\n// the step is published.\nunsafe { write(p) };\n",
            "// SAFETY: the slot is ours.\nlet value =\n    unsafe { read(p) };\n",
            "// SAFETY: no thread is bound.\nunsafe impl Send for Ring {}\n",
            "// SAFETY: checked.\n#[allow(clippy::a)]\nunsafe { write(p) };\n",
            "/// # Safety\n///\n/// `p` is valid.\npub unsafe fn write(p: *mut u8);\n",
            "unsafe extern \"C\" {\n}\n",
        ];
        for text in accepted {
            assert_eq!(messages(LISTED, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_missing_or_distant_argument_is_reported() {
        let refused = [
            "unsafe { write(p) };\n",
            "// It is fine.\nunsafe { write(p) };\n",
            "// SAFETY: the slot is ours.\nlet a = 1;\nunsafe { write(p) };\n",
            "// SAFETY: the slot is ours.\n\nunsafe { write(p) };\n",
            "unsafe impl Send for Ring {}\n",
            "let a = unsafe\n{ read(p) };\n",
        ];
        for text in refused {
            assert_eq!(messages(LISTED, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn unsafe_outside_the_listed_modules_is_reported() {
        let text = "// SAFETY: the slot is ours.\nunsafe { write(p) };\n";
        assert!(messages("comm-core/src/error.rs", text)[0].contains("listed modules"));
        assert!(messages("comm-core/src/fifolike.rs", text)[0].contains("listed modules"));
        assert_eq!(messages("comm-core/src/fifo.rs", text), [""; 0]);
    }

    #[test]
    fn test_code_and_the_lint_name_are_left_alone() {
        let text = "#![forbid(unsafe_code)]\n#[cfg(test)]\nmod tests {\n    fn a() { unsafe { b() } }\n}\n";
        assert_eq!(messages("comm-api/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn crates_with_a_listed_module_are_known() {
        assert!(has_entry_below("comm-core/src"));
        assert!(has_entry_below("comm-transport-shm/src"));
        assert!(!has_entry_below("comm-graph/src"));
    }
}
