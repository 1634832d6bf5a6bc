//! [`UniqueId`]: a rendezvous that one process makes and the user passes to all others.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use comm_core::{Error, ErrorKind, Rendezvous, Result};

use super::job_id;
use super::place::{Place, Serve};
use super::tcp_client::TcpRendezvous;
use super::tcp_server::Serving;
use crate::control::process::{Process, ProcessOptions};
use crate::control::secret::{Admission, JobSecret};

const PREFIX: &str = "comm-id-1";

/// Address and secret of a job in one text, for launchers that start the ranks but set no
/// variables (Ray, Kubernetes, a driver program).
///
/// The process that calls [`UniqueId::create`] serves the table until the value is dropped: it
/// keeps it until all ranks have joined, whether it is a rank itself or not. Copies made with
/// `to_string` and `parse` hold nothing.
///
/// The text contains the job secret: whoever reads it can join the job.
///
/// ```
/// use comm_runtime::control::rendezvous::UniqueId;
/// use comm_runtime::control::ProcessOptions;
///
/// let id = UniqueId::create(&ProcessOptions::new())?;
/// let copy: UniqueId = id.to_string().parse()?;
/// assert_eq!(id, copy);
/// # Ok::<(), comm_core::Error>(())
/// ```
pub struct UniqueId {
    secret_text: String,
    addresses: Vec<SocketAddr>,
    /// Held by the creator only.
    serving: Option<(Serving, Arc<Process>)>,
}

impl UniqueId {
    /// Makes an id with a fresh secret and serves its table in this process, on the addresses
    /// that `options` ask for.
    ///
    /// # Errors
    ///
    /// As for [`Process::acquire`].
    pub fn create(options: &ProcessOptions) -> Result<Self> {
        let process = Process::acquire(options)?;
        let secret_text = JobSecret::generate_text()?;
        let mut id = Self {
            secret_text,
            addresses: process.addresses(options.listen_scope()),
            serving: None,
        };
        let serving = Serving::start(process.core(), id.job(), id.admission()?, Vec::new())?;
        id.serving = Some((serving, process));
        Ok(id)
    }

    /// The job secret that the id carries; every rank joins with it.
    ///
    /// # Errors
    ///
    /// None for an id that was created or parsed; the type is that of [`JobSecret::from_text`].
    pub fn secret(&self) -> Result<JobSecret> {
        JobSecret::from_text(&self.secret_text)
    }

    /// The rendezvous to which the id leads.
    ///
    /// # Errors
    ///
    /// As for [`UniqueId::secret`].
    pub fn rendezvous(&self, process: &Process) -> Result<Arc<dyn Rendezvous>> {
        let targets = self.addresses.iter();
        let place = Place {
            name: self.place_name(),
            targets: targets
                .map(|address| (address.ip().to_string(), address.port()))
                .collect(),
            job: self.job(),
            serve: Serve::AnotherProcess,
            ..Place::default()
        };
        Ok(Arc::new(TcpRendezvous::at(
            process.core(),
            place,
            self.admission()?,
        )))
    }

    /// Where the id leads, without its secret.
    pub(super) fn place_name(&self) -> String {
        format!("unique id at {}", join(&self.addresses))
    }

    fn job(&self) -> [u8; 16] {
        job_id(&["unique id", &self.secret_text])
    }

    fn admission(&self) -> Result<Admission> {
        Ok(Admission {
            secret: Some(self.secret()?),
            insecure: false,
        })
    }
}

/// The addresses in one text.
fn join(addresses: &[SocketAddr]) -> String {
    addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}/{}/{}", self.secret_text, join(&self.addresses))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId")
            .field("addresses", &self.addresses)
            .field("serves", &self.serving.is_some())
            .finish_non_exhaustive()
    }
}

impl PartialEq for UniqueId {
    fn eq(&self, other: &Self) -> bool {
        self.secret_text == other.secret_text && self.addresses == other.addresses
    }
}

impl Eq for UniqueId {}

impl Clone for UniqueId {
    /// The copy serves nothing.
    fn clone(&self) -> Self {
        Self {
            secret_text: self.secret_text.clone(),
            addresses: self.addresses.clone(),
            serving: None,
        }
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::InvalidConfiguration,
                "a unique id looks like comm-id-1/<64 hexadecimal digits>/<address:port>,...; \
                 pass on the whole text that its creator printed",
            )
        };
        let mut parts = text.trim().split('/');
        let (Some(PREFIX), Some(secret), Some(addresses), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(invalid());
        };
        if secret.len() != 64 || !secret.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let addresses: Vec<SocketAddr> = addresses
            .split(',')
            .map(|address| address.parse().map_err(|_| invalid()))
            .collect::<Result<_>>()?;
        Ok(Self {
            secret_text: secret.to_owned(),
            addresses,
            serving: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "comm-id-1/00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\
                        /10.0.0.1:4000,[::1]:5000";

    #[test]
    fn an_id_survives_being_printed_and_parsed() {
        let id: UniqueId = TEXT.parse().unwrap();
        assert_eq!(id.to_string(), TEXT);
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let id: UniqueId = TEXT.parse().unwrap();
        assert!(!format!("{id:?}").contains("00112233"));
    }

    proptest! {
        #[test]
        fn an_id_without_its_addresses_is_refused(end in 0..PREFIX.len() + 66) {
            prop_assert!(TEXT[..end].parse::<UniqueId>().is_err());
        }

        #[test]
        fn any_text_is_refused_or_parsed_without_a_panic(text in ".{0,100}") {
            let _ = text.parse::<UniqueId>();
        }
    }
}
