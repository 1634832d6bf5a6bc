//! A thread that may outlive the buffer cannot receive into it.

use comm_api::Communicator;

fn wrong(comm: Communicator) {
    let mut buffer = vec![0_f32; 4];
    let slice = &mut buffer[..]; //~ E0597
    std::thread::spawn(move || comm.recv(slice, 0));
}

fn main() {
    let _ = wrong;
}
