use comm_core::{HostId, ProcessId};
use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::*;
use crate::control::secret::JobSecret;

const PURPOSE: Purpose = Purpose::Link {
    communicator: [1; 16],
    from: 2,
    to: 3,
};

fn admission(secret: Option<&str>) -> Admission {
    Admission {
        secret: secret.map(|text| JobSecret::from_text(text).unwrap()),
        insecure: false,
    }
}

fn tag(number: u8) -> ProcessTag {
    ProcessTag {
        id: ProcessId([number; 16]),
        host: HostId([0; 16]),
        pid: number.into(),
        pid_namespace: 0,
    }
}

/// Both sides of a handshake: the dialler's result and the listener's.
fn shake(
    dialler: Admission,
    listener: Result<Admission, RejectReason>,
) -> (
    Result<(), HandshakeFailure>,
    Result<Hello, HandshakeFailure>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (mut near, mut far) = tokio::io::duplex(4096);
    runtime.block_on(async {
        tokio::join!(
            async {
                assert_eq!(dial(&mut near, PURPOSE, tag(1), &dialler).await?, tag(2));
                Ok(open(&mut near).await?)
            },
            accept(&mut far, tag(2), |_| listener),
        )
    })
}

#[test]
fn equal_secrets_open_the_connection_and_the_listener_learns_who_connects() {
    for secret in [None, Some("swordfish")] {
        let (dialled, accepted) = shake(admission(secret), Ok(admission(secret)));
        dialled.unwrap();
        let hello = accepted.unwrap();
        assert_eq!(hello.purpose, PURPOSE);
        assert_eq!(hello.process, tag(1));
    }
}

#[test]
fn a_wrong_or_missing_secret_is_refused_and_both_sides_name_it() {
    for (near, far) in [(Some("a"), Some("b")), (None, Some("b")), (Some("a"), None)] {
        let (dialled, accepted) = shake(admission(near), Ok(admission(far)));
        let error = dialled.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Authentication);
        assert!(error.message().contains("COMM_SECRET"), "{error}");
        let error = accepted.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Authentication);
        assert!(error.to_string().contains("rank 2"), "{error}");
    }
}

#[test]
fn a_refusal_reaches_the_dialler_with_its_reason() {
    for reason in [
        RejectReason::Unknown,
        RejectReason::Duplicate,
        RejectReason::Remote,
    ] {
        let (dialled, accepted) = shake(admission(None), Err(reason));
        assert_eq!(dialled.unwrap_err().reason, Some(reason));
        assert_eq!(accepted.unwrap_err().reason, Some(reason));
    }
}

#[test]
fn another_protocol_version_is_named_on_both_sides() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (mut near, mut far) = tokio::io::duplex(4096);
    let (dialled, accepted) = runtime.block_on(async {
        tokio::join!(
            async {
                // A future hello may have any shape after its version.
                write(&mut near, FrameKind::Hello, &[9, 0, 1, 2, 3])
                    .await
                    .unwrap();
                expect(&mut near, FrameKind::Challenge, &admission(None)).await
            },
            accept(&mut far, tag(2), |_| Ok(admission(None))),
        )
    });
    assert!(accepted.unwrap_err().error.message().contains("version 9"));
    assert_eq!(
        dialled.unwrap_err().reason,
        Some(RejectReason::Version(PROTOCOL_VERSION))
    );
}

#[test]
fn a_recorded_handshake_does_not_open_a_second_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let secret = admission(Some("swordfish"));
    runtime.block_on(async {
        // A man in the middle records what the dialler writes in a good handshake.
        let (mut dialler, mut middle_near) = tokio::io::duplex(4096);
        let (mut middle_far, mut listener) = tokio::io::duplex(4096);
        let mut recorded = Vec::new();
        let good = async {
            tokio::join!(
                async {
                    dial(&mut dialler, PURPOSE, tag(1), &secret).await.unwrap();
                    open(&mut dialler).await.unwrap();
                    drop(dialler);
                },
                accept(&mut listener, tag(2), |_| Ok(secret.clone())),
                async {
                    let mut up = [0; 4096];
                    let mut down = [0; 4096];
                    loop {
                        tokio::select! {
                            count = middle_near.read(&mut up) => match count.unwrap() {
                                0 => break,
                                count => {
                                    recorded.extend_from_slice(&up[..count]);
                                    middle_far.write_all(&up[..count]).await.unwrap();
                                }
                            },
                            count = middle_far.read(&mut down) => {
                                let count = count.unwrap();
                                if count > 0 {
                                    middle_near.write_all(&down[..count]).await.unwrap();
                                }
                            }
                        }
                    }
                },
            )
        };
        good.await.1.unwrap();
        let (mut replay, mut listener) = tokio::io::duplex(8192);
        replay.write_all(&recorded).await.unwrap();
        let failure = accept(&mut listener, tag(2), |_| Ok(secret.clone())).await;
        assert_eq!(failure.unwrap_err().error.kind(), ErrorKind::Authentication);
    });
}

#[test]
fn a_listener_that_does_not_know_the_secret_is_found_out() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (mut near, mut far) = tokio::io::duplex(4096);
    let dialled = runtime.block_on(async {
        let secret = admission(Some("swordfish"));
        tokio::join!(dial(&mut near, PURPOSE, tag(1), &secret), async {
            next(&mut far, FrameKind::Hello).await.unwrap();
            let challenge = Challenge {
                process: tag(2),
                nonce: [0; 32],
            };
            let challenge = encode_body(&challenge).unwrap();
            write(&mut far, FrameKind::Challenge, &challenge)
                .await
                .unwrap();
            let proof = next(&mut far, FrameKind::Proof).await.unwrap();
            // The only MAC an impostor has is the dialler's own.
            write(&mut far, FrameKind::Accept, &proof.body)
                .await
                .unwrap();
        })
        .0
    });
    assert_eq!(dialled.unwrap_err().error.kind(), ErrorKind::Authentication);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_listener_survives_any_first_frame(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut near, mut far) = tokio::io::duplex(4096);
        let result = runtime.block_on(async {
            write(&mut near, FrameKind::Hello, &body).await.unwrap();
            drop(near);
            accept(&mut far, tag(2), |_| Ok(admission(None))).await
        });
        prop_assert!(result.is_err());
    }
}
