//! Command lines that are refused, and how.

use crate::command::{bench, commctl};

#[test]
fn a_transport_that_is_not_compiled_in_is_refused_with_the_list_of_those_that_are() {
    let ended = bench("--transport carrier-pigeon");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("transport 'carrier-pigeon' is not compiled in"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("shm"), "{ended:?}");
    assert_eq!(ended.stdout, "", "nothing was started");
}

#[test]
fn words_that_do_not_exist_are_refused_by_the_command_line() {
    for arguments in [
        "--op allreduce",
        "--dtype float",
        "--redop plus",
        "--min-bytes x",
        "--what",
    ] {
        assert_eq!(bench(arguments).code, Some(2), "{arguments}");
    }
}

#[test]
fn arguments_that_do_not_go_together_are_refused_before_anything_starts() {
    for (arguments, wanted) in [
        ("--op pingpong --ranks 1", "pingpong needs at least 2 ranks"),
        ("--min-bytes 2M --max-bytes 1M", "smallest size"),
        ("--dtype bool", "can be reduced"),
        ("--ranks 1000 --max-bytes 1000G", "--max-bytes"),
        ("--json /nowhere/rows.json", "/nowhere/rows.json"),
    ] {
        let ended = bench(arguments);
        assert_eq!(ended.code, Some(1), "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(wanted), "{arguments}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments}");
    }
}

#[test]
fn the_hidden_worker_command_says_whose_it_is() {
    let ended = commctl(&["bench-worker", "hello"], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("commctl bench"), "{ended:?}");
}
