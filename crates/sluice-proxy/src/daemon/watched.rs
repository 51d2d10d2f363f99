//! A descriptor owned by something that is read elsewhere, made awaitable.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `inner` together with its readiness.
#[derive(Debug)]
pub(super) struct Watched<T> {
    pub(super) inner: T,
    readiness: AsyncFd<OwnedFd>,
}

impl<T: AsFd> Watched<T> {
    pub(super) fn new(inner: T) -> io::Result<Watched<T>> {
        // A second descriptor of the same file: it is registered for as long as this lives,
        // whatever `inner` does with its own.
        let twin = inner.as_fd().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types whose descriptor may change; an OwnedFd's \
                      never does"
        )]
        let readiness = AsyncFd::with_interest(twin, Interest::READABLE)?;
        Ok(Watched { inner, readiness })
    }

    /// Waits until there is something to read. Readiness is taken back before the caller reads,
    /// so that what arrives meanwhile wakes it again; it must read until nothing is left.
    pub(super) async fn ready(&self) -> io::Result<()> {
        self.readiness.readable().await?.clear_ready();
        Ok(())
    }
}
