//! The job secret: what the ranks of one job know and nobody else does.
//!
//! # Contract
//!
//! * Two processes accept each other's connections only if both prove, by a keyed MAC over fresh
//!   nonces ([`super::hello`]), that they hold the same secret.
//! * Without a secret a fixed key that everybody knows takes its place. That protects from
//!   accidents (another job, another program), not from attackers, so such a job is confined to
//!   the loopback interface unless the user overrides that.
//! * The secret itself never leaves the process and is never printed.

use std::fmt;
use std::net::IpAddr;

use comm_core::{Error, ErrorKind, Result};

/// Domain of the key derivation; changes with every incompatible use of the key.
const KEY_CONTEXT: &str = "comm control plane 1 job secret";
const PUBLIC_KEY_CONTEXT: &str = "comm control plane 1 job without a secret";

/// A secret that all ranks of one job share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobSecret {
    key: [u8; 32],
}

impl JobSecret {
    /// The secret made from a text of any length, for example the value of `COMM_SECRET`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfiguration`] if the text is empty apart from white space.
    pub fn from_text(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "the job secret is empty; put 32 or more random characters into COMM_SECRET",
            ));
        }
        Ok(Self {
            key: blake3::derive_key(KEY_CONTEXT, text.as_bytes()),
        })
    }

    /// A fresh random text for [`JobSecret::from_text`], as launchers hand it to their workers.
    ///
    /// # Errors
    ///
    /// If the operating system has no randomness.
    pub fn generate_text() -> Result<String> {
        let bytes: [u8; 32] = random()?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

/// How the members of one job check connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    pub(crate) secret: Option<JobSecret>,
    /// The user accepts connections from other hosts although there is no secret.
    pub(crate) insecure: bool,
}

impl Admission {
    /// The MAC key: the secret's, or the public one.
    pub(crate) fn key(&self) -> [u8; 32] {
        match &self.secret {
            Some(secret) => secret.key,
            None => blake3::derive_key(PUBLIC_KEY_CONTEXT, b""),
        }
    }

    pub(crate) const fn is_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// Whether this job may use other interfaces than loopback.
    pub(crate) const fn may_leave_host(&self) -> bool {
        self.secret.is_some() || self.insecure
    }

    /// Refuses an address outside of this host to a job without a secret.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<()> {
        if self.may_leave_host() || address.to_canonical().is_loopback() {
            return Ok(());
        }
        Err(self.refusal().with("address", address))
    }

    /// The error for whatever would need a secret; it shows the lines to add.
    pub(crate) fn refusal(&self) -> Error {
        let example =
            JobSecret::generate_text().unwrap_or_else(|_| "a long random text".to_owned());
        Error::new(
            ErrorKind::Authentication,
            format!(
                "without a job secret anybody on the network could join this job, so only \
                 loopback addresses are used; set the same secret on every rank\n    \
                 export COMM_SECRET={example}\nor, on a network that you trust, accept the risk\n    \
                 export COMM_INSECURE=1\n"
            ),
        )
    }
}

/// `N` bytes from the operating system's random generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(
            ErrorKind::System,
            format!("no randomness from the operating system: {error}"),
        )
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = JobSecret::from_text("swordfish").unwrap();
        assert_eq!(format!("{secret:?}"), "JobSecret(..)");
    }

    #[test]
    fn white_space_around_a_secret_does_not_count_and_an_empty_one_is_refused() {
        assert_eq!(
            JobSecret::from_text("swordfish\n").unwrap(),
            JobSecret::from_text("swordfish").unwrap()
        );
        assert_eq!(
            JobSecret::from_text(" \n").unwrap_err().kind(),
            ErrorKind::InvalidConfiguration
        );
    }

    #[test]
    fn without_a_secret_only_loopback_is_allowed_and_the_error_shows_both_lines_to_add() {
        let open = Admission::default();
        open.check_address("127.0.0.1".parse().unwrap()).unwrap();
        open.check_address("::ffff:127.0.0.1".parse().unwrap())
            .unwrap();
        let error = open.check_address("10.0.0.1".parse().unwrap()).unwrap_err();
        assert!(error.message().contains("export COMM_SECRET="), "{error}");
        assert!(
            error.message().contains("export COMM_INSECURE=1"),
            "{error}"
        );
        let insecure = Admission {
            secret: None,
            insecure: true,
        };
        insecure.check_address("10.0.0.1".parse().unwrap()).unwrap();
    }
}
