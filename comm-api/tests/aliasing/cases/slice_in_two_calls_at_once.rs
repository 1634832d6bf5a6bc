//! Two threads cannot receive into one buffer.

use comm_api::Communicator;

fn wrong(comm: &Communicator, buffer: &mut [f32]) {
    std::thread::scope(|scope| {
        scope.spawn(|| comm.recv(buffer, 0));
        scope.spawn(|| comm.recv(buffer, 1)); //~ E0499
    });
}

fn main() {
    let _ = wrong;
}
