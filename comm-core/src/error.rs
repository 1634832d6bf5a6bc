//! The one error type of the library.
//!
//! # Contract
//!
//! * Every fallible public function of every crate in this workspace returns [`Error`].
//! * [`Error::kind`] says *what class of thing* went wrong and is what programs match on.
//! * [`Error::retry`] says whether repeating the call can help.
//! * The message says what happened *and what the user can do next*.
//! * Context (`rank`, `peer`, `operation`, `transport`, ...) is added by each layer that knows it,
//!   so the text names both sides of a failure.
//! * [`Error`] is cheap to clone: a poisoned communicator hands out its first cause many times.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What class of failure an [`Error`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument of the call is wrong; nothing was sent and no state changed.
    InvalidArgument,
    /// A configuration value (environment, file, builder) is wrong or contradicts another one.
    InvalidConfiguration,
    /// The feature, transport, driver or device asked for is not compiled in or not present.
    Unavailable,
    /// The request is valid but this implementation does not do it.
    Unsupported,
    /// Two ranks called operations that do not belong together (kind, count, dtype, root, ...).
    Mismatch,
    /// A message was longer than the buffer that was posted for it.
    Truncated,
    /// The process of another rank ended.
    PeerDied,
    /// Another rank reported a failure; the message holds its cause.
    PeerFailed,
    /// The peer cancelled the operation that would have matched this one.
    CancelledByPeer,
    /// A deadline passed.
    Timeout,
    /// The communicator was aborted by its user.
    Aborted,
    /// This operation was cancelled by its own user.
    Cancelled,
    /// A peer did not prove that it knows the job secret, or belongs to another job.
    Authentication,
    /// The ranks could not find each other.
    Rendezvous,
    /// Bytes on a wire or in shared memory do not follow the protocol.
    Protocol,
    /// Memory, file descriptors, ports or another bounded resource ran out.
    ResourceExhausted,
    /// The operating system refused a call.
    System,
    /// The object failed earlier; the message repeats the first cause.
    Poisoned,
    /// A bug in this library; please report it.
    Internal,
}

/// Whether repeating a failed call can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// The same call fails again.
    Never,
    /// The same call may succeed later without any other change.
    Later,
    /// The call can succeed on a new communicator, or after the failed ranks were excluded.
    AfterRecovery,
}

impl ErrorKind {
    /// The retry class that errors of this kind have unless they say otherwise.
    #[must_use]
    pub const fn default_retry(self) -> Retry {
        match self {
            Self::PeerDied
            | Self::PeerFailed
            | Self::Timeout
            | Self::Aborted
            | Self::Poisoned
            | Self::Rendezvous => Retry::AfterRecovery,
            Self::ResourceExhausted | Self::CancelledByPeer => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// The name of the kind in words, as printed in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::InvalidConfiguration => "invalid configuration",
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::Mismatch => "mismatch",
            Self::Truncated => "truncated",
            Self::PeerDied => "peer died",
            Self::PeerFailed => "peer failed",
            Self::CancelledByPeer => "cancelled by peer",
            Self::Timeout => "timed out",
            Self::Aborted => "aborted",
            Self::Cancelled => "cancelled",
            Self::Authentication => "authentication failed",
            Self::Rendezvous => "rendezvous failed",
            Self::Protocol => "protocol violation",
            Self::ResourceExhausted => "resource exhausted",
            Self::System => "system error",
            Self::Poisoned => "poisoned",
            Self::Internal => "internal error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with kind, retry class, message, context and source.
///
/// ```
/// use comm_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::InvalidArgument, "the root must be smaller than the world size")
///     .with("root", 7)
///     .with("world_size", 4);
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// assert_eq!(
///     error.to_string(),
///     "invalid argument: the root must be smaller than the world size (root=7, world_size=4)"
/// );
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    retry: Retry,
    message: Cow<'static, str>,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error; `message` says what happened and what to do next.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                retry: kind.default_retry(),
                message: message.into(),
                context: Vec::new(),
                source: None,
            }),
        }
    }

    /// Wraps an operating-system error; `what` names the call that failed.
    #[must_use]
    pub fn system(what: impl Into<Cow<'static, str>>, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        let kind = match source.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::ENOBUFS) => {
                ErrorKind::ResourceExhausted
            }
            _ => ErrorKind::System,
        };
        Self::new(kind, what).with_source(source)
    }

    /// Adds a key and a value that name where the error happened.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        Arc::make_mut(&mut self.inner)
            .context
            .push((key, value.to_string()));
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.inner).source = Some(Arc::new(source));
        self
    }

    /// Overrides the retry class.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        Arc::make_mut(&mut self.inner).retry = retry;
        self
    }

    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether repeating the call can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.inner.retry
    }

    /// The message without kind, context and source.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The context added so far, in the order in which it was added.
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.inner
            .context
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.kind, self.inner.message)?;
        for (index, (key, value)) in self.inner.context.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { " (" } else { ", " })?;
        }
        if !self.inner.context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(source) = &self.inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} [retry: {:?}]", self.inner.retry)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| {
            let source: &(dyn std::error::Error + 'static) = source.as_ref();
            source
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_added_after_a_clone_stays_with_the_clone() {
        let first = Error::new(ErrorKind::PeerDied, "gone").with("peer", 2);
        let second = first.clone().with("operation", "all_reduce");
        assert_eq!(first.context().count(), 1);
        assert_eq!(second.context().count(), 2);
    }

    #[test]
    fn a_full_disk_or_table_is_resource_exhaustion() {
        let error = Error::system(
            "memfd_create",
            std::io::Error::from_raw_os_error(libc::EMFILE),
        );
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(error.retry(), Retry::Later);
    }

    #[test]
    fn the_text_holds_message_context_and_source() {
        let error =
            Error::system("mapping the segment", std::io::Error::other("boom")).with("rank", 3);
        assert_eq!(
            error.to_string(),
            "system error: mapping the segment (rank=3): boom"
        );
    }
}
