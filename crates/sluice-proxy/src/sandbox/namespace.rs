//! A network namespace with a thread that lives in it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use rustix::thread::UnshareFlags;

use super::SandboxError;
use super::privilege::unshare;

type Job = Box<dyn FnOnce() + Send>;

/// A nameless network namespace. It ends with this value and the sockets made in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: OwnedFd,
    /// `None` only while dropping: closing it ends the thread.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Namespace {
    /// A new, empty namespace; `name` is for messages. Needs CAP_SYS_ADMIN, see
    /// [`enter_user_namespace`](super::enter_user_namespace).
    pub fn create(name: &str) -> Result<Namespace, SandboxError> {
        let failed = |cause| SandboxError::Namespace {
            namespace: name.into(),
            cause,
        };
        let (jobs, todo) = mpsc::channel::<Job>();
        let (ready, made) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("ns {name}"))
            .stack_size(256 << 10)
            .spawn(move || {
                let own = unshare(UnshareFlags::NEWNET)
                    .map_err(std::io::Error::from)
                    .and_then(|()| File::open("/proc/thread-self/ns/net"));
                let usable = own.is_ok();
                if ready.send(own).is_ok() && usable {
                    todo.into_iter().for_each(|job| job());
                }
            })
            .map_err(failed)?;
        let descriptor = match made.recv() {
            Ok(own) => OwnedFd::from(own.map_err(failed)?),
            Err(mpsc::RecvError) => {
                return Err(SandboxError::ThreadDied {
                    namespace: name.into(),
                });
            }
        };
        Ok(Namespace {
            name: name.into(),
            descriptor,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs `job` on the namespace's thread and waits for it. Sockets made there belong to the
    /// namespace for good, whichever thread uses them later.
    pub fn run<T, F>(&self, job: F) -> Result<T, SandboxError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let died = || SandboxError::ThreadDied {
            namespace: self.name.clone(),
        };
        let (done, result) = mpsc::sync_channel(1);
        let job: Job = Box::new(move || {
            // The receiver below waits until this was sent.
            done.send(job()).expect("the caller waits for the result");
        });
        let jobs = self.jobs.as_ref().ok_or_else(died)?;
        jobs.send(job).map_err(|_| died())?;
        result.recv().map_err(|_| died())
    }

    /// A descriptor of the namespace, as setns(2) and netlink take it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// For messages.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!(namespace = %self.name, "the thread of a namespace panicked");
        }
    }
}
