//! Edges between real processes, also killed ones.
//!
//! The test binary starts itself again as the peer: the variable `COMM_SHM_TEST_PEER` names what
//! the peer does, its standard input is a socket over which the two exchange facts and handles.

#[cfg(target_os = "linux")]
mod peer;
#[cfg(target_os = "linux")]
mod trials;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
fn main() {
    if let Some(role) = std::env::var_os(peer::ROLE) {
        peer::main(&role.to_string_lossy());
        return;
    }
    let mut arguments = libtest_mimic::Arguments::from_args();
    // One after the other: they look at the resources of the whole process.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials::all()).exit();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: shared memory edges need Linux");
}
