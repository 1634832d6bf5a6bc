//! The rendezvous of a job that Open MPI's `mpirun` started.
//!
//! # Contract
//!
//! * Rank 0 serves the table, at the first free one of 16 ports that all ranks
//!   [derive](super::derived) from what `mpirun` tells every one of them: the job's name and where
//!   `mpirun` itself listens, which together no other job of the same time has.
//! * If all ranks are on one host they meet on loopback.
//! * `mpirun` does not say on which host rank 0 is, only on which it runs itself. The ranks of
//!   several hosts meet there, which works if rank 0 is there; rank 0 ends at once with what to do
//!   if it is not, and `mpirun` then ends the others.

use comm_core::Rank;

use super::place::{Place, Serve};
use super::{derived, job_id};

/// What a process knows about the job that `mpirun` started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMpiJob {
    /// Addresses of the host on which `mpirun` runs, or `127.0.0.1` if all ranks are on one host.
    pub hosts: Vec<String>,
    /// What identifies the job: `PMIX_NAMESPACE`, and the address of `mpirun`.
    pub identity: Vec<String>,
}

/// What rank 0 says if it is on another host than `mpirun`.
const ELSEWHERE: &str = "Open MPI tells its processes no address of rank 0, so they meet on the \
    host of mpirun, and rank 0 is on another one; start mpirun on the first host of the job, or add \
    an address, as in `mpirun -x COMM_RENDEZVOUS=<host of rank 0>:29400 ...`";

impl OpenMpiJob {
    /// The ports that are tried, in this order.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        derived::ports(&self.job(), None)
    }

    fn job(&self) -> [u8; 16] {
        let parts = self.identity.iter().map(String::as_str);
        job_id(&std::iter::once("open mpi").chain(parts).collect::<Vec<_>>())
    }

    /// Where the ranks meet, in words.
    pub(super) fn describe(&self) -> String {
        format!("Open MPI job on {}", self.hosts.join(" or "))
    }

    pub(super) fn place(&self, rank: Rank) -> Place {
        let ports = self.ports();
        // By port, then by address: the table is at the first port on all of them.
        let targets = ports
            .iter()
            .flat_map(|port| self.hosts.iter().map(|host| (host.clone(), *port)));
        Place {
            name: format!("{}, ports {ports:?}", self.describe()),
            targets: targets.collect(),
            job: self.job(),
            serve: Serve::by_this_process_if(rank == 0),
            must_be_here: Some(ELSEWHERE),
            ..Place::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mpirun_is_another_job() {
        let of = |uri: &str| OpenMpiJob {
            hosts: vec!["127.0.0.1".to_owned()],
            identity: vec!["1249509377".to_owned(), uri.to_owned()],
        };
        let (one, other) = (of("1249509376.0;tcp://a:1"), of("1249509376.0;tcp://a:2"));
        assert_ne!(one.job(), other.job());
        assert_ne!(one.ports(), other.ports());
        assert_eq!(one.place(0).targets, one.place(5).targets);
    }
}
