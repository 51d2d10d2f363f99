//! Carries transactions out over one netlink socket, and reads tables back.

use std::collections::HashMap;

use sluice_model::fact::Family;
use sluice_netlink::nft::{
    Batch, CommitError, DataRef, ElementOp, ElementRef, Events, Rule, SetId as NetSet, Socket,
    Verdict,
};
use sluice_netlink::{Errno, Error};

use super::compile::Element;
use super::element::{Key, SetId, Value, record_chain};
use super::layout::{Packed, encode_endpoint, encode_key};
use super::program::{REJECT, TABLE, kernel_option};
use super::read;
use super::rule::table_id;
use super::tx::{Forget, Observed, Op, Part, Tx};
use sluice_model::route::At;

/// Why the kernel was not changed or not read.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Reading failed.
    #[error("reading nf_tables: {0}")]
    Read(#[from] Error),
    /// The kernel refused a transaction; nothing of it is in force.
    #[error("table {TABLE} ({family}): {operation}: {source}{remedy}")]
    Commit {
        /// Family of the table.
        family: Family,
        /// The operation that failed, in words.
        operation: String,
        /// What the kernel said.
        source: CommitError,
        /// What can be done about it.
        remedy: String,
    },
}

/// Largest element count for which our own change notifications are worth receiving.
const QUIET_FROM: usize = 2_000;

/// Bytes of the largest batch whose memory is kept for the next one.
const KEPT_BATCH: usize = 1 << 20;

/// The nf_tables of one network namespace.
#[derive(Debug)]
pub struct Driver {
    socket: Socket,
    /// The socket of change notifications, if somebody listens: it is kept out of the group while
    /// a large change of our own would flood it.
    events: Option<Events>,
    batch: Batch,
}

impl Driver {
    /// Opens the socket, in the network namespace of this thread.
    pub fn open() -> Result<Driver, DriverError> {
        Ok(Driver {
            socket: Socket::open()?,
            events: None,
            batch: Batch::new(),
        })
    }

    /// Opens the change notifications of this network namespace, for somebody else to read; the
    /// driver keeps them quiet during large changes of its own.
    pub fn listen(&mut self) -> Result<Events, DriverError> {
        let events = Events::open()?;
        self.events = Some(events.share()?);
        Ok(events)
    }

    /// The netlink port by which notifications name our own changes.
    pub fn port(&self) -> u32 {
        self.socket.portid()
    }

    /// Reads both tables.
    pub fn read(&mut self) -> Result<Observed, DriverError> {
        let mut observed = Observed::default();
        let tables = self.socket.tables()?;
        for (slot, family) in observed.tables.iter_mut().zip(Family::ALL) {
            if let Some(info) = read::find(&tables, family) {
                *slot = Some(read::table(&mut self.socket, family, info)?);
            }
        }
        Ok(observed)
    }

    /// Carries a transaction out, all or nothing; then deletes idle chains, as far as the kernel
    /// lets go of them.
    pub fn commit(&mut self, tx: &Tx) -> Result<(), DriverError> {
        let quiet = tx.len() >= QUIET_FROM;
        if let (true, Some(events)) = (quiet, &self.events) {
            events.leave()?;
        }
        let outcome = self.commit_main(tx);
        if let (true, Some(events)) = (quiet, &self.events) {
            events.join()?;
        }
        outcome?;
        for part in tx.parts.iter().filter(|part| !part.sweep.is_empty()) {
            self.sweep(part);
        }
        Ok(())
    }

    /// Removes both tables with all that is in them; gives back how many there were.
    pub fn remove_tables(&mut self) -> Result<usize, DriverError> {
        let tables = self.socket.tables()?;
        let ours = |family: &Family| read::find(&tables, *family).is_some();
        let part = |family| Part {
            family,
            ops: vec![Op::DeleteTable],
            sweep: Vec::new(),
        };
        let parts: Vec<Part> = Family::ALL.into_iter().filter(ours).map(part).collect();
        let removed = parts.len();
        self.commit(&Tx { parts })?;
        Ok(removed)
    }

    fn commit_main(&mut self, tx: &Tx) -> Result<(), DriverError> {
        let forgotten = self.clients_to_forget(tx)?;
        let mut encoder = Encoder {
            batch: std::mem::take(&mut self.batch),
            places: Vec::new(),
        };
        encoder.batch.begin(None);
        for part in &tx.parts {
            for op in &part.ops {
                encoder.op(part.family, op);
            }
            let of_family = |(family, element): &(Family, Element)| {
                (*family == part.family).then_some(*element)
            };
            let clients: Vec<Element> = forgotten.iter().filter_map(of_family).collect();
            encoder.elements(ElementOp::Destroy, part.family, &clients, None);
        }
        let outcome = self.socket.commit(&encoder.batch);
        let outcome = outcome.map_err(|source| explain(&encoder.places, source));
        // The memory of a small batch is used again, that of a whole load is not worth keeping.
        self.batch = if encoder.batch.byte_len() <= KEPT_BATCH {
            encoder.batch
        } else {
            Batch::new()
        };
        outcome
    }

    /// The kernel learns affinity by itself, so the entries of an endpoint that is gone must be
    /// looked up. Only services with affinity pay for it.
    fn clients_to_forget(&mut self, tx: &Tx) -> Result<Vec<(Family, Element)>, DriverError> {
        let mut wanted: HashMap<(Family, u32), Vec<&Forget>> = HashMap::new();
        for part in &tx.parts {
            for op in &part.ops {
                if let Op::Forget(forget) = op {
                    wanted
                        .entry((part.family, forget.seconds))
                        .or_default()
                        .push(forget);
                }
            }
        }
        let mut clients = Vec::new();
        for ((family, seconds), forgets) in wanted {
            let set = SetId::Affinity(seconds);
            let name = set.to_string();
            let table = table_id(family);
            let elements = self
                .socket
                .elements_as(NetSet { table, name: &name }, |element| {
                    read::decode(family, set, &element)
                        .filter(|element| forgets.iter().any(|forget| covers(forget, element)))
                });
            match elements {
                Ok(elements) => {
                    clients.extend(
                        elements
                            .into_iter()
                            .flatten()
                            .map(|element| (family, element)),
                    );
                }
                // No such map: nobody was given an endpoint yet.
                Err(error) if error.errno() == Some(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(clients)
    }

    fn sweep(&mut self, part: &Part) {
        let mut batch = Batch::new();
        for (tag, chain) in part.sweep.iter().enumerate() {
            let table = table_id(part.family);
            batch.delete_chain(table, &chain.to_string(), tag as u32);
        }
        // Idle chains do no harm: the next full comparison finds and deletes those that stay.
        drop(self.socket.commit(&batch));
    }
}

fn covers(forget: &Forget, ((_, key), value): &Element) -> bool {
    let (Key::Client(_, ip, proto, port), Value::Endpoint(to, to_port)) = (key, value) else {
        return false;
    };
    let here = match forget.at {
        At::Vip(vip, vip_port) => (vip, vip_port) == (*ip, *port),
        At::NodePort(node_port) => node_port == *port,
    };
    here && *proto == forget.protocol
        && forget
            .gone
            .iter()
            .any(|b| (b.ip, b.port) == (*to, *to_port))
}

/// What a message of the batch is about: its tag is the index of this.
struct Place<'a> {
    family: Family,
    /// `None` for affinity entries, which are removed only if they are still there.
    op: Option<&'a Op>,
    /// Index, within the operation, of the message's first element.
    first: usize,
}

struct Encoder<'a> {
    batch: Batch,
    places: Vec<Place<'a>>,
}

impl<'a> Encoder<'a> {
    fn place(&mut self, family: Family, op: Option<&'a Op>, first: usize) -> u32 {
        self.places.push(Place { family, op, first });
        self.places.len() as u32 - 1
    }

    fn op(&mut self, family: Family, op: &'a Op) {
        let tag = self.place(family, Some(op), 0);
        let table = table_id(family);
        let batch = &mut self.batch;
        match op {
            Op::AddTable => batch.add_table(table, Some("services, by Sluice kube-proxy"), tag),
            Op::DeleteTable => batch.delete_table(table, tag),
            Op::AddSet(set) => batch.add_set(table, set, tag),
            Op::DeleteSet(name) => batch.delete_set(table, name, tag),
            Op::AddChain(chain) => batch.add_chain(table, chain, tag),
            Op::FlushChain(name) => batch.flush_chain(table, name, tag),
            Op::DeleteChain(name) => batch.delete_chain(table, name, tag),
            Op::AddRule(rule) => batch.add_rule(table, rule, tag),
            Op::Add(elements) => self.elements(ElementOp::Add, family, elements, Some(op)),
            Op::Remove(elements) => self.elements(ElementOp::Delete, family, elements, Some(op)),
            Op::RemoveForeign(foreign) => {
                let key_end = foreign.end.as_deref();
                let element = ElementRef {
                    key_end,
                    ..ElementRef::key(&foreign.key)
                };
                let set = NetSet {
                    table,
                    name: &foreign.set,
                };
                batch.elements(ElementOp::Delete, set, tag, [element]);
            }
            // Looked up beforehand, and part of the same batch.
            Op::Forget(_) => {}
        }
    }

    /// `elements` are sorted by set: one list per set, in slices, since the borrowed form that a
    /// batch takes needs bytes to stand somewhere, but not all of them at once.
    fn elements(
        &mut self,
        action: ElementOp,
        family: Family,
        elements: &[Element],
        op: Option<&'a Op>,
    ) {
        let table = table_id(family);
        let mut first = 0;
        for run in elements.chunk_by(|a, b| a.0.0 == b.0.0) {
            let name = run[0].0.0.to_string();
            let set = NetSet { table, name: &name };
            for slice in run.chunks(SLICE) {
                let tag = self.place(family, op, first);
                let encoded: Vec<_> = slice.iter().map(|e| encode_element(action, e)).collect();
                self.batch
                    .elements(action, set, tag, encoded.iter().map(Encoded::as_ref));
                first += slice.len();
            }
        }
    }
}

/// Elements encoded at a time.
const SLICE: usize = 1024;

struct Encoded {
    key: Packed,
    end: Option<Packed>,
    data: Bytes,
}

enum Bytes {
    None,
    Verdict(Verdict),
    Value(Packed),
}

impl Encoded {
    fn as_ref(&self) -> ElementRef<'_> {
        let data = match &self.data {
            Bytes::None => DataRef::None,
            Bytes::Verdict(verdict) => DataRef::Verdict(verdict.as_ref()),
            Bytes::Value(value) => DataRef::Value(value),
        };
        ElementRef {
            key_end: self.end.as_deref(),
            data,
            ..ElementRef::key(&self.key)
        }
    }
}

fn encode_element(op: ElementOp, ((_, key), value): &Element) -> Encoded {
    let (key, end) = encode_key(key);
    let data = match (op, value) {
        // The kernel finds an element by its key alone.
        (ElementOp::Delete | ElementOp::Destroy, _)
        | (ElementOp::Add, Value::Member | Value::Foreign) => Bytes::None,
        (ElementOp::Add, Value::Goto(chain)) => Bytes::Verdict(Verdict::Goto(chain.to_string())),
        (ElementOp::Add, Value::Record(seconds)) => {
            Bytes::Verdict(Verdict::Goto(record_chain(*seconds)))
        }
        (ElementOp::Add, Value::Reject) => Bytes::Verdict(Verdict::Goto(REJECT.to_owned())),
        (ElementOp::Add, Value::Drop) => Bytes::Verdict(Verdict::Drop),
        (ElementOp::Add, Value::Endpoint(ip, port)) => Bytes::Value(encode_endpoint(*ip, *port)),
    };
    Encoded { key, end, data }
}

/// Names the object that the kernel did not take.
fn explain(places: &[Place<'_>], source: CommitError) -> DriverError {
    let place = source.tag.and_then(|tag| places.get(tag as usize));
    let op = place.and_then(|p| p.op);
    let element = place
        .zip(source.element)
        .map(|(place, index)| place.first + index);
    let remedy = match (source.errno, op) {
        // An unknown expression type: the kernel tried to load its module, in vain.
        (Errno::NOENT | Errno::OPNOTSUPP, Some(Op::AddRule(rule))) => missing_option(rule),
        (Errno::PERM, _) => "; kube-proxy needs CAP_NET_ADMIN in this network namespace".into(),
        _ => String::new(),
    };
    DriverError::Commit {
        family: place.map_or(Family::V4, |p| p.family),
        operation: op.map_or("whole transaction".to_owned(), |op| describe(op, element)),
        source,
        remedy,
    }
}

fn describe(op: &Op, element: Option<usize>) -> String {
    match element.and_then(|index| op.elements()?.get(index)) {
        Some(((set, key), value)) => format!("{op}: {set} {key}: {value}"),
        None => op.to_string(),
    }
}

fn missing_option(rule: &Rule) -> String {
    let mut options: Vec<&str> = rule.exprs.iter().map(kernel_option).collect();
    options.sort_unstable();
    options.dedup();
    format!(
        "; if the kernel lacks a module, it needs {}",
        options.join(", ")
    )
}
