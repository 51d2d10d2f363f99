//! The kernel thread: one at a time, it carries out transactions and reads tables. It blocks, so
//! that the reactor never does, and keeps its sockets open for life.

use std::sync::mpsc;
use std::thread;

use sluice_dataplane::mode::{Driver, DriverError, Tx};

use crate::engine::{Failure, Input, Intruder, Report};

/// Work for the thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Read both tables.
    Read,
    /// Carry this out.
    Commit(Tx),
    /// Look whether the rules are still there; answered only if they are not.
    Look,
    /// Remove what other modes left; not answered.
    RemoveOthers,
}

/// The other end of the thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Kernel {
    jobs: mpsc::Sender<Job>,
}

impl Kernel {
    /// Starts the thread. Answers go to `reply`.
    pub(super) fn start(
        driver: Driver,
        reply: tokio::sync::mpsc::UnboundedSender<Input>,
    ) -> std::io::Result<Kernel> {
        let (jobs, work) = mpsc::channel();
        thread::Builder::new()
            .name("kernel".into())
            .spawn(move || run(driver, &work, &reply))?;
        Ok(Kernel { jobs })
    }

    /// Hands a job over. Lost only if the thread is gone, and then the process is ending.
    pub(super) fn submit(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::error!("the kernel thread is gone");
        }
    }
}

fn run(
    mut driver: Driver,
    work: &mpsc::Receiver<Job>,
    reply: &tokio::sync::mpsc::UnboundedSender<Input>,
) {
    while let Ok(job) = work.recv() {
        let answer = match job {
            Job::RemoveOthers => {
                remove_others(&mut driver);
                continue;
            }
            Job::Look => match driver.look() {
                Ok(None) => continue,
                Ok(Some(missing)) => {
                    let process = format!("an unknown process ({missing})");
                    Input::Foreign(Intruder { pid: 0, process })
                }
                Err(error) => {
                    tracing::warn!("Looking at the rules failed: {error}");
                    continue;
                }
            },
            Job::Read => Input::Observed(driver.read().map(Box::new).map_err(failure)),
            Job::Commit(tx) => {
                let operations = tx.len();
                let report = |outcome| Report {
                    operations,
                    outcome,
                };
                Input::Committed(driver.commit(&tx).map(report).map_err(failure))
            }
        };
        if reply.send(answer).is_err() {
            return;
        }
    }
}

fn remove_others(driver: &mut Driver) {
    let (removed, errors) = driver.remove_others();
    if removed > 0 {
        tracing::info!(objects = removed, "Removed the rules of another mode");
    }
    for error in errors {
        tracing::warn!("Removing the rules of another mode: {error}");
    }
}

fn failure(error: DriverError) -> Failure {
    Failure {
        text: error.to_string(),
    }
}
