//! What a builder makes of values that make no sense, and of those that mean "without limit".

use std::thread;
use std::time::Duration;

use comm_api::{Builder, Communicator, ErrorKind};

/// Two ranks, each on a thread of its own.
fn pair(
    configure: impl Fn(Builder) -> Builder,
    rank: impl Fn(&Communicator) + Sync,
) -> comm_api::Result<()> {
    let comms = comm_api::init_all_with(2, configure)?;
    thread::scope(|scope| {
        for comm in &comms {
            scope.spawn(|| rank(comm));
        }
    });
    Ok(())
}

#[test]
fn a_time_limit_that_no_clock_can_tell_is_none() {
    let endless = |builder: Builder| {
        builder
            .init_timeout(Duration::MAX)
            .operation_timeout(Some(Duration::MAX))
    };
    pair(endless, |comm| {
        // The other rank waits long enough to look at its clock.
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(300));
        }
        comm.barrier().expect("both come");
    })
    .expect("both join");
}

#[test]
fn a_number_of_channels_that_no_ring_can_have_is_refused() {
    for channels in [0, 65] {
        let error = pair(|builder| builder.channels(channels), |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("from 1 to 64"), "{error}");
    }
}

#[test]
fn transports_and_algorithms_are_named_by_any_list() {
    let by_texts = |builder: Builder| {
        builder
            .only_transports(comm_api::compiled_transports().iter().copied())
            .algorithms([
                comm_api::Algorithm::Ring,
                comm_api::Algorithm::Dissemination,
            ])
    };
    pair(by_texts, |comm| {
        let explained = comm.explain().to_string();
        assert!(
            explained.contains("COMM_ALGO=ring,dissemination (builder)"),
            "{explained}"
        );
        let names = comm_api::compiled_transports().join(",");
        assert!(
            explained.contains(&format!("COMM_TRANSPORTS={names} (builder)")),
            "{explained}"
        );
    })
    .expect("both join");
}

#[test]
fn a_communicator_is_printed_in_a_line_and_an_error_names_the_operation_and_the_peer() {
    pair(
        |builder| builder,
        |comm| {
            let printed = format!("{comm:?}");
            let rank = comm.rank();
            let expected =
                format!("Communicator {{ rank: {rank}, world_size: 2, failure: None, .. }}");
            assert_eq!(printed, expected);
            let error = comm.send(&[1_u8], 7).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("operation=send to 7"), "{error}");
        },
    )
    .expect("both join");
}
