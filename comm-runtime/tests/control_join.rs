//! How a join ends when something is wrong, and the kinds of rendezvous.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use comm_core::{Error, ErrorKind, Rendezvous};
use comm_runtime::control::rendezvous::{
    FileRendezvous, RendezvousAddress, TcpRendezvous, TorchrunJob, UniqueId, Visitor,
};
use comm_runtime::control::{JoinOptions, ListenScope, Ports, Process, ProcessOptions};
use support::*;

fn in_ms(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

/// The errors of ranks that all must fail.
fn errors(results: Vec<comm_core::Result<Joined>>) -> Vec<Error> {
    results
        .into_iter()
        .map(|result| result.err().expect("a rank joined"))
        .collect()
}

#[test]
fn a_missing_rank_ends_the_join_of_all_with_a_list_of_all_who_are_missing() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    // All neighbours of rank 0 (1, 2 and 4) are there; 5 and 7 are not.
    let present = [0, 1, 2, 3, 4, 6];
    let results = ranks(6, |index| {
        let rank = present[index as usize];
        let options = JoinOptions::new(rank, 8, tcp(&process, port)).deadline(in_ms(700));
        join(&process, options)
    });
    for error in errors(results) {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(
            error.message().contains("2 of 8 ranks did not come"),
            "{error}"
        );
        assert!(error.message().contains("s: 5, 7;"), "{error}");
    }
}

#[test]
fn disagreeing_world_sizes_are_an_error_on_every_rank_that_names_both() {
    let _watchdog = watchdog();
    let process = process();
    for odd_one in 0..4 {
        let port = free_port();
        let results = ranks(4, |rank| {
            let size = if rank == odd_one { 6 } else { 4 };
            let options = JoinOptions::new(rank, size, tcp(&process, port)).deadline(soon());
            join(&process, options)
        });
        for error in errors(results) {
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{error}");
            let text = error.to_string();
            assert!(
                text.contains("says 6") && text.contains("says 4"),
                "{error}"
            );
            assert!(text.contains(&format!("rank {odd_one} (pid ")), "{error}");
        }
    }
}

#[test]
fn a_rank_outside_of_the_world_is_an_error_on_every_rank() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    let results = ranks(3, |index| {
        let rank = if index == 2 { 3 } else { index };
        let options = JoinOptions::new(rank, 3, tcp(&process, port)).deadline(soon());
        join(&process, options)
    });
    for error in errors(results) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(
            error.message().contains("as rank 3 of a world of 3"),
            "{error}"
        );
    }
}

#[test]
fn a_world_size_beyond_all_reason_is_refused_before_memory_is_taken_for_it() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    let options = JoinOptions::new(0, u32::MAX, tcp(&process, port)).deadline(soon());
    let error = join(&process, options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("at most 65536 ranks"), "{error}");
}

#[test]
fn a_rank_that_two_threads_claim_is_an_error_on_every_rank() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    let results = ranks(4, |index| {
        let rank = if index == 3 { 1 } else { index };
        let options = JoinOptions::new(rank, 4, tcp(&process, port)).deadline(soon());
        join(&process, options)
    });
    for error in errors(results) {
        assert!(error.message().contains("claim the same rank"), "{error}");
    }
}

#[test]
fn a_wrong_secret_at_the_rendezvous_is_refused_at_once() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    let results = ranks(2, |rank| {
        let text = if rank == 0 { "swordfish" } else { "password" };
        // The other one serves the table.
        while rank == 1 && std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let address = format!("127.0.0.1:{port}");
        let rendezvous = TcpRendezvous::new(&process, &address, secret(text), false).unwrap();
        let deadline = if rank == 0 { in_ms(5000) } else { soon() };
        let options = JoinOptions::new(rank, 2, Arc::new(rendezvous)).secret(secret(text));
        join(&process, options.deadline(deadline))
    });
    let errors = errors(results);
    assert_eq!(errors[0].kind(), ErrorKind::Timeout, "{}", errors[0]);
    assert_eq!(errors[1].kind(), ErrorKind::Authentication, "{}", errors[1]);
    assert!(errors[1].message().contains("COMM_SECRET"), "{}", errors[1]);
}

#[test]
fn a_wrong_secret_at_a_link_is_an_authentication_error_on_every_rank() {
    let _watchdog = watchdog();
    let process = process();
    let directory = tempfile::tempdir().unwrap();
    // A directory does not ask for a secret, so the links have to.
    let results = ranks(3, |rank| {
        let text = if rank == 1 { "password" } else { "swordfish" };
        let rendezvous = Arc::new(FileRendezvous::new(&process, directory.path().join("job")));
        let options = JoinOptions::new(rank, 3, rendezvous).secret(secret(text));
        join(&process, options.deadline(soon()))
    });
    for error in errors(results) {
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        assert!(error.to_string().contains("COMM_SECRET"), "{error}");
    }
}

#[test]
fn a_rendezvous_on_another_host_is_refused_without_a_secret_and_the_error_shows_what_to_add() {
    let _watchdog = watchdog();
    let process = process();
    let rendezvous = TcpRendezvous::new(&process, "198.51.100.1:29400", None, false).unwrap();
    let options = JoinOptions::new(1, 2, Arc::new(rendezvous)).deadline(soon());
    let error = join(&process, options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(error.message().contains("export COMM_SECRET="), "{error}");
    assert!(
        error.message().contains("export COMM_INSECURE=1"),
        "{error}"
    );
}

#[test]
fn a_rendezvous_that_nobody_serves_is_named_at_the_deadline() {
    let _watchdog = watchdog();
    let process = process();
    // An address of a documentation network: nobody has it.
    let rendezvous =
        TcpRendezvous::new(&process, "198.51.100.1:29400", secret("x"), false).unwrap();
    let options = JoinOptions::new(1, 2, Arc::new(rendezvous)).secret(secret("x"));
    let error = join(&process, options.deadline(in_ms(300))).err().unwrap();
    assert!(error.to_string().contains("198.51.100.1:29400"), "{error}");
}

#[test]
fn a_program_that_is_no_rendezvous_at_the_address_is_named() {
    let _watchdog = watchdog();
    let process = process();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        stream
    });
    let options = JoinOptions::new(1, 2, tcp(&process, port)).deadline(soon());
    let error = join(&process, options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(
        error.to_string().contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
    server.join().unwrap();
}

#[test]
fn ranks_meet_in_a_directory_and_leave_nothing_behind() {
    let _watchdog = watchdog();
    let process = process();
    let directory = tempfile::tempdir().unwrap();
    let job = directory.path().join("job");
    // The second round finds the same directory clean.
    for _ in 0..2 {
        let world = ranks(3, |rank| {
            let rendezvous = Arc::new(FileRendezvous::new(&process, &job));
            join(
                &process,
                JoinOptions::new(rank, 3, rendezvous).deadline(soon()),
            )
            .unwrap()
        });
        leave(world);
        assert!(!job.exists());
    }
}

#[test]
fn a_directory_that_an_earlier_job_left_is_named_on_every_rank() {
    let _watchdog = watchdog();
    let process = process();
    let directory = tempfile::tempdir().unwrap();
    let stale = FileRendezvous::new(&process, directory.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(stale.publish("world/rank/1", bytes::Bytes::from_static(b"old"), soon()))
        .unwrap();
    let results = ranks(2, |rank| {
        let rendezvous = Arc::new(FileRendezvous::new(&process, directory.path()));
        join(
            &process,
            JoinOptions::new(rank, 2, rendezvous).deadline(soon()),
        )
    });
    for error in errors(results) {
        let name = directory.path().display().to_string();
        assert_eq!(error.kind(), ErrorKind::Rendezvous, "{error}");
        assert!(error.to_string().contains(&name), "{error}");
    }
}

#[test]
fn ranks_meet_over_a_unique_id_that_was_passed_as_text() {
    let _watchdog = watchdog();
    let process = process();
    let id = UniqueId::create(&ProcessOptions::new()).unwrap();
    let text = id.to_string();
    let world = ranks(3, |rank| {
        let id: UniqueId = text.parse().unwrap();
        let options = JoinOptions::new(rank, 3, id.rendezvous(&process).unwrap());
        let options = options.secret(Some(id.secret().unwrap()));
        join(&process, options.deadline(soon())).unwrap()
    });
    leave(world);
}

#[test]
fn a_unique_id_whose_creator_is_gone_leads_to_an_error() {
    let _watchdog = watchdog();
    let process = process();
    let id = UniqueId::create(&ProcessOptions::new()).unwrap();
    let copy = id.clone();
    drop(id);
    let options = JoinOptions::new(0, 2, copy.rendezvous(&process).unwrap());
    let options = options
        .secret(Some(copy.secret().unwrap()))
        .deadline(in_ms(300));
    let error = join(&process, options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Rendezvous, "{error}");
}

#[test]
fn workers_of_torchrun_meet_although_ports_are_taken() {
    let _watchdog = watchdog();
    let process = process();
    let agent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let job = TorchrunJob {
        host: "127.0.0.1".to_owned(),
        agent_port: agent.local_addr().unwrap().port(),
        run_id: "test".to_owned(),
        restart_count: "0".to_owned(),
    };
    // A stranger has the first port and never says a word; another job has the second one.
    let ports = job.ports();
    let _stranger = std::net::TcpListener::bind(("127.0.0.1", ports[0]));
    let other = TcpRendezvous::new(&process, &format!("127.0.0.1:{}", ports[1]), None, false);
    let other = other.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(other.publish("key", bytes::Bytes::new(), soon()))
        .unwrap();
    let address = RendezvousAddress::Torchrun(job);
    let world = ranks(4, |rank| {
        let rendezvous = address.open(&process, Visitor::new(rank)).unwrap();
        join(
            &process,
            JoinOptions::new(rank, 4, rendezvous).deadline(soon()),
        )
        .unwrap()
    });
    leave(world);
}

#[test]
fn communicators_of_different_names_share_a_rendezvous() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    let worlds = ranks(4, |rank| {
        let rendezvous = tcp(&process, port);
        let join_as = |name: &str| {
            let options = JoinOptions::new(rank, 4, Arc::clone(&rendezvous)).name(name);
            join(&process, options.deadline(soon())).unwrap()
        };
        [join_as("first"), join_as("second")]
    });
    let (first, second): (Vec<_>, Vec<_>) = worlds.into_iter().map(|[a, b]| (a, b)).unzip();
    leave(first);
    leave(second);
}

#[test]
fn one_rendezvous_address_serves_one_communicator_after_the_other() {
    let _watchdog = watchdog();
    let process = process();
    let port = free_port();
    ranks(4, |rank| {
        for round in 0..10 {
            let options = JoinOptions::new(rank, 4, tcp(&process, port)).deadline(soon());
            let joined = join(&process, options.name(format!("world {round}"))).unwrap();
            joined.plane.barrier(1, soon()).unwrap();
            joined.plane.leave(PATIENCE);
        }
    });
}

#[test]
fn a_process_listens_on_a_port_of_the_range_and_on_every_interface_of_the_filter() {
    let _watchdog = watchdog();
    let port = free_port();
    let options = ProcessOptions::new()
        .scope(ListenScope::Network)
        .ports(Ports::Range(port..=port.saturating_add(20)))
        .interfaces(Some("lo".parse().unwrap()));
    // The process of the other tests may run already; its loopback address then stays.
    let process = Process::acquire(&options).unwrap();
    let addresses = process.addresses(ListenScope::Network);
    assert!(
        addresses.iter().any(|address| address.ip().is_loopback()),
        "{addresses:?}"
    );
    let options = options.interfaces(Some("=nonexistent".parse().unwrap()));
    let error = Process::acquire(&options).unwrap_err();
    assert!(error.message().contains("lo (127.0.0.1)"), "{error}");
}
