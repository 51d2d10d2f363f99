//! The modes behind one face, for whoever does not care how services are carried out.
//!
//! Each type here is one of the modes' own. They always come in matching pairs, since one process
//! runs in one mode: a value of another mode is answered with nothing to do, never mixed in.

use sluice_model::route::Changes;

use crate::drift::Drift;
use crate::iptables::driver::Choice;
use crate::iptables::ground::{LocalhostNodePorts, Options};
use crate::{iptables, nftables};

/// What became of a transaction that was carried out. Only iptables mode leaves anything out.
pub use crate::iptables::tx::Outcome;

/// The modes that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dataplane {
    /// nftables, over netlink.
    Nftables,
    /// iptables, with the host's tools or those of a given backend.
    Iptables(Choice, LocalhostNodePorts),
}

impl Dataplane {
    /// Opens the mode in the network namespace of this thread. `mark` is the one-bit packet mark
    /// that asks for masquerade.
    pub fn open(self, mark: u32) -> Result<(Compiler, Driver), DriverError> {
        match self {
            Dataplane::Nftables => {
                let driver = nftables::driver::Driver::open()?;
                Ok((
                    Compiler::Nftables(Box::new(nftables::Compiler::new(mark))),
                    Driver::Nftables(Box::new(driver)),
                ))
            }
            Dataplane::Iptables(choice, localhost) => {
                let driver = iptables::driver::Driver::open(choice)?;
                let options = Options {
                    localhost,
                    source_ports: driver.source_ports(),
                    ..Options::with_mark(mark)
                };
                Ok((
                    Compiler::Iptables(Box::new(iptables::Compiler::new(&options))),
                    Driver::Iptables(Box::new(driver)),
                ))
            }
        }
    }
}

/// What turns changed routes into transactions.
#[derive(Debug)]
pub enum Compiler {
    /// Mode nftables.
    Nftables(Box<nftables::Compiler>),
    /// Mode iptables.
    Iptables(Box<iptables::Compiler>),
}

/// A change to carry out.
#[derive(Debug, PartialEq)]
pub enum Tx {
    /// Mode nftables.
    Nftables(nftables::tx::Tx),
    /// Mode iptables.
    Iptables(iptables::tx::Tx),
}

/// What the kernel holds.
#[derive(Debug)]
pub enum Observed {
    /// Mode nftables.
    Nftables(nftables::tx::Observed),
    /// Mode iptables.
    Iptables(iptables::tx::Observed),
}

/// What carries transactions out and reads the kernel back.
#[derive(Debug)]
pub enum Driver {
    /// Mode nftables.
    Nftables(Box<nftables::driver::Driver>),
    /// Mode iptables.
    Iptables(Box<iptables::driver::Driver>),
}

/// Why the kernel was not read or not changed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum DriverError {
    /// Mode nftables.
    Nftables(Box<nftables::driver::DriverError>),
    /// Mode iptables.
    Iptables(Box<iptables::driver::DriverError>),
}

impl From<nftables::driver::DriverError> for DriverError {
    fn from(error: nftables::driver::DriverError) -> Self {
        DriverError::Nftables(Box::new(error))
    }
}

impl From<iptables::driver::DriverError> for DriverError {
    fn from(error: iptables::driver::DriverError) -> Self {
        DriverError::Iptables(Box::new(error))
    }
}

impl Compiler {
    /// Takes changes in; the result carries exactly them out on a kernel that holds what was
    /// intended before.
    pub fn update(&mut self, changes: &Changes) -> Tx {
        match self {
            Compiler::Nftables(compiler) => Tx::Nftables(compiler.update(changes)),
            Compiler::Iptables(compiler) => Tx::Iptables(compiler.update(changes)),
        }
    }

    /// Takes changes in and compares what is then intended with the kernel as read: what repairs
    /// it, and how far each family was off.
    pub fn resync(&mut self, changes: &Changes, observed: &Observed) -> (Tx, [Drift; 2]) {
        match (self, observed) {
            (Compiler::Nftables(compiler), Observed::Nftables(observed)) => {
                compiler.adopt(changes, observed);
                let (tx, drifts) = compiler.resync(observed);
                (Tx::Nftables(tx), drifts)
            }
            (Compiler::Iptables(compiler), Observed::Iptables(observed)) => {
                compiler.adopt(changes, observed);
                let (tx, drifts) = compiler.resync(observed);
                (Tx::Iptables(tx), drifts)
            }
            (compiler @ Compiler::Nftables(_), Observed::Iptables(_))
            | (compiler @ Compiler::Iptables(_), Observed::Nftables(_)) => {
                (compiler.update(changes), Default::default())
            }
        }
    }

    /// Takes in what became of the last transaction. What was left out is tried again by the next
    /// [`Compiler::resync`].
    pub fn settle(&mut self, outcome: &Outcome) {
        match self {
            // One batch: all or nothing.
            Compiler::Nftables(_) => {}
            Compiler::Iptables(compiler) => compiler.settle(outcome),
        }
    }

    /// Whether something was left out and waits for the next [`Compiler::resync`].
    pub fn in_doubt(&self) -> bool {
        match self {
            Compiler::Nftables(_) => false,
            Compiler::Iptables(compiler) => compiler.in_doubt(),
        }
    }
}

impl Tx {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        match self {
            Tx::Nftables(tx) => tx.is_empty(),
            Tx::Iptables(tx) => tx.is_empty(),
        }
    }

    /// Number of kernel objects touched.
    pub fn len(&self) -> usize {
        match self {
            Tx::Nftables(tx) => tx.len(),
            Tx::Iptables(tx) => tx.len(),
        }
    }
}

impl Driver {
    /// Reads what the kernel holds.
    pub fn read(&mut self) -> Result<Observed, DriverError> {
        Ok(match self {
            Driver::Nftables(driver) => Observed::Nftables(driver.read()?),
            Driver::Iptables(driver) => Observed::Iptables(driver.read()?),
        })
    }

    /// Carries a transaction out.
    pub fn commit(&mut self, tx: &Tx) -> Result<Outcome, DriverError> {
        match (self, tx) {
            (Driver::Nftables(driver), Tx::Nftables(tx)) => {
                driver.commit(tx)?;
                Ok(Outcome::default())
            }
            (Driver::Iptables(driver), Tx::Iptables(tx)) => Ok(driver.commit(tx)?),
            (Driver::Nftables(_), Tx::Iptables(_)) | (Driver::Iptables(_), Tx::Nftables(_)) => {
                Ok(Outcome::default())
            }
        }
    }

    /// A cheap look whether rules are still there, for modes whose changes by others are not
    /// announced: what is missing, in words.
    pub fn look(&mut self) -> Result<Option<String>, DriverError> {
        match self {
            Driver::Nftables(_) => Ok(None),
            Driver::Iptables(driver) => Ok(match driver.look()? {
                iptables::driver::Look::Intact => None,
                iptables::driver::Look::Damaged(what) => Some(what),
            }),
        }
    }

    /// Removes what the other modes left on this node. To be called once the own rules are in
    /// place, so that no connection is refused in between. Problems are collected.
    pub fn remove_others(&mut self) -> (usize, Vec<DriverError>) {
        match self {
            Driver::Nftables(_) => remove_iptables(),
            Driver::Iptables(_) => remove_nftables(),
        }
    }

    /// Whether [`Driver::look`] sees anything at all.
    pub fn must_look(&self) -> bool {
        match self {
            Driver::Nftables(_) => false,
            Driver::Iptables(_) => true,
        }
    }
}

/// Removes the rules of every mode; what is not there is no error.
pub fn remove_all() -> (usize, Vec<DriverError>) {
    let (tables, mut errors) = remove_nftables();
    let (rules, more) = remove_iptables();
    errors.extend(more);
    (tables + rules, errors)
}

fn remove_iptables() -> (usize, Vec<DriverError>) {
    let (count, errors) = iptables::driver::Driver::remove_rules();
    (count, errors.into_iter().map(DriverError::from).collect())
}

fn remove_nftables() -> (usize, Vec<DriverError>) {
    let removed = nftables::driver::Driver::open().and_then(|mut driver| driver.remove_tables());
    match removed {
        Ok(count) => (count, Vec::new()),
        Err(error) => (0, vec![error.into()]),
    }
}
