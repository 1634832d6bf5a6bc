//! A blocking call on another thread of a scope borrows the buffer until the scope ends.

use comm_api::Communicator;

fn wrong(comm: &Communicator, buffer: &mut [f32]) -> f32 {
    std::thread::scope(|scope| {
        scope.spawn(|| comm.recv(buffer, 0));
        buffer[0] //~ E0503
    })
}

fn main() {
    let _ = wrong;
}
