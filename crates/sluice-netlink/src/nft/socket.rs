//! The socket that reads the ruleset and commits batches.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netlink;

use super::batch::{Batch, SetId, TableId};
use super::dump::{self, ChainInfo, RuleInfo, SetInfo, TableInfo};
use super::event;
use super::object::{Element, ElementRef};
use super::object_wire::{list, rule, set};
use super::{Family, SUBSYSTEM, family_header, msg};
use crate::error::{Aside, Error};
use crate::message::{Answer, Message, Messages, NLM_F_ACK, NLM_F_DUMP, NLMSG_ERROR, Request};
use crate::socket;
use crate::wire::{Attrs, Writer};

/// A batch that was not committed: nothing of it is in force, unless
/// [`is_unknown`](CommitError::is_unknown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}{}{}", Aside(text), Counted(*also))]
pub struct CommitError {
    /// Why. `ERESTART`: the generation is not the current one. `EMSGSIZE`: a change cannot be
    /// expressed. `ENOBUFS` without a tag: see [`is_unknown`](CommitError::is_unknown).
    pub errno: Errno,
    /// Tag of the first change that failed; `None` where the batch as a whole did.
    pub tag: Option<u32>,
    /// The kernel's words.
    pub text: Option<String>,
    /// Offset of the offending attribute from the start of the change's message.
    pub offset: Option<u32>,
    /// Index of the offending element within its [`Batch::elements`] call.
    pub element: Option<usize>,
    /// How many more changes failed, often because the first one did.
    pub also: usize,
}

impl CommitError {
    fn whole(errno: Errno) -> Self {
        CommitError {
            errno,
            tag: None,
            text: None,
            offset: None,
            element: None,
            also: 0,
        }
    }

    fn unknown() -> Self {
        CommitError::whole(Errno::NOBUFS)
    }

    /// The answer was lost, so that the batch may or may not be in force.
    pub fn is_unknown(&self) -> bool {
        self.errno == Errno::NOBUFS && self.tag.is_none()
    }
}

/// ` and 3 more`, or nothing.
struct Counted(usize);

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A socket of nf_tables, in the network namespace of the thread that opened it. Keep it open:
/// closing one waits for the kernel to free what it removed.
#[derive(Debug)]
pub struct Socket {
    socket: socket::Socket,
    end_mark: Vec<u8>,
}

impl Socket {
    /// A new socket.
    pub fn open() -> Result<Self, Error> {
        let socket = socket::Socket::open(Some(netlink::NETFILTER))?;
        Ok(Socket {
            socket,
            end_mark: Batch::end_mark(),
        })
    }

    /// The port id by which [`Event::Object`](super::Event::Object) names this socket.
    pub fn portid(&self) -> u32 {
        self.socket.portid()
    }

    /// Makes all changes of the batch, or none.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        if let Some(tag) = batch.too_long() {
            return Err(CommitError {
                tag: Some(tag),
                ..CommitError::whole(Errno::MSGSIZE)
            });
        }
        // A batch that did not leave is not in doubt, unlike one whose answer is lost.
        let not_sent = |errno| match errno {
            Errno::NOBUFS => CommitError::whole(Errno::NOMEM),
            other => CommitError::whole(other),
        };
        self.socket.drain().map_err(not_sent)?;
        self.socket
            .send(&[batch.bytes(), &self.end_mark])
            .map_err(not_sent)?;
        self.answers(batch)
    }

    /// Reads what the kernel said to a batch. It works within the send, so that every answer is
    /// waiting here; reading until nothing waits leaves the socket in step whatever happened.
    fn answers(&mut self, batch: &Batch) -> Result<(), CommitError> {
        let mut failure: Option<(u32, Answer, Errno)> = None;
        let mut failures = 0;
        let mut acknowledged = false;
        loop {
            let datagram = match self
                .socket
                .receive_now()
                .map_err(|_| CommitError::unknown())?
            {
                socket::Received::Datagram(datagram) => datagram,
                socket::Received::Empty => break,
                socket::Received::Overflow => continue,
            };
            for message in Messages(datagram).filter(|message| message.kind == NLMSG_ERROR) {
                let Some(answer) = message.answer() else {
                    continue;
                };
                let Some(errno) = answer.errno else {
                    acknowledged = true;
                    continue;
                };
                failures += 1;
                if failure
                    .as_ref()
                    .is_none_or(|(first, _, _)| message.sequence < *first)
                {
                    failure = Some((message.sequence, answer, errno));
                }
            }
        }
        match failure {
            None if acknowledged => Ok(()),
            None => Err(CommitError::unknown()),
            Some((sequence, answer, errno)) => {
                let Answer {
                    errno: _,
                    text,
                    offset,
                } = answer;
                let (tag, element) = match batch.locate(sequence, offset) {
                    Some((tag, element)) => (Some(tag), element),
                    None => (None, None),
                };
                Err(CommitError {
                    errno,
                    tag,
                    text,
                    offset,
                    element,
                    also: failures - 1,
                })
            }
        }
    }

    /// The current generation: it changes with every batch that anybody commits.
    pub fn generation(&mut self) -> Result<u32, Error> {
        let what = "read nf_tables generation";
        let request = Request::new(
            SUBSYSTEM | msg::GETGEN,
            NLM_F_ACK,
            &family_header(None),
            |_| {},
        );
        let mut generation = None;
        self.socket.request(what, request, |message| {
            generation = Some(event::generation(message)?);
            Ok(())
        })?;
        generation.ok_or_else(|| Error::Malformed {
            what: what.to_owned(),
            part: "generation",
        })
    }

    /// All tables of all families.
    pub fn tables(&mut self) -> Result<Vec<TableInfo>, Error> {
        let request = list_request(msg::GETTABLE, None, |_| {});
        self.dump("list tables", request, |message, list| {
            list.push(dump::table(message)?);
            Ok(())
        })
    }

    /// The chains of a table; none if there is no such table.
    pub fn chains(&mut self, table: TableId<'_>) -> Result<Vec<ChainInfo>, Error> {
        let request = list_request(msg::GETCHAIN, Some(table.family), |_| {});
        self.list("chains", table, request, dump::chain)
    }

    /// The rules of a table in their order, chain after chain; none if there is no such table.
    pub fn rules(&mut self, table: TableId<'_>) -> Result<Vec<RuleInfo>, Error> {
        let request = list_request(msg::GETRULE, Some(table.family), |w| {
            w.text(rule::TABLE, table.name);
        });
        self.list("rules", table, request, dump::rule)
    }

    /// The named and anonymous sets of a table; none if there is no such table.
    pub fn sets(&mut self, table: TableId<'_>) -> Result<Vec<SetInfo>, Error> {
        let request = list_request(msg::GETSET, Some(table.family), |w| {
            w.text(set::TABLE, table.name);
        });
        self.list("sets", table, request, dump::set)
    }

    /// The elements of a set, in no order; `ENOENT` if there is no such set.
    pub fn elements(&mut self, set: SetId<'_>) -> Result<Vec<Element>, Error> {
        self.elements_as(set, |element| element.to_owned())
    }

    /// The elements of a set, each turned into what the caller keeps of it.
    pub fn elements_as<T>(
        &mut self,
        set: SetId<'_>,
        mut keep: impl FnMut(ElementRef<'_>) -> T,
    ) -> Result<Vec<T>, Error> {
        let what = format!(
            "list elements of {} {} {}",
            set.table.family, set.table.name, set.name
        );
        for _ in 0..socket::TRIES {
            let request = list_request(msg::GETSETELEM, Some(set.table.family), |w| {
                w.text(list::TABLE, set.table.name);
                w.text(list::SET, set.name);
            });
            let listed = self.dump(&what, request, |message, list| {
                let (_, attrs) = dump::split(message)?;
                dump::elements(attrs, |element| {
                    list.push((fingerprint(&element), keep(element)))
                })
            })?;
            if is_complete(listed.iter().map(|(fingerprint, _)| *fingerprint)) {
                return Ok(listed.into_iter().map(|(_, kept)| kept).collect());
            }
        }
        Err(Error::Interrupted {
            what,
            tries: socket::TRIES,
        })
    }

    /// A list of a table's objects. Kernels filter by table where they can; what comes
    /// nevertheless is filtered here.
    fn list<T>(
        &mut self,
        objects: &str,
        table: TableId<'_>,
        request: Request,
        decode: impl Fn(Attrs<'_>) -> Result<T, &'static str>,
    ) -> Result<Vec<T>, Error> {
        let what = format!("list {objects} of {} {}", table.family, table.name);
        let listed = self.dump(&what, request, |message, list| {
            let (family, attrs) = dump::split(message)?;
            if family == table.family.raw() && dump::table_of(attrs) == Some(table.name) {
                list.push(decode(attrs)?);
            }
            Ok(())
        });
        match listed {
            Err(Error::Refused {
                errno: Errno::NOENT,
                ..
            }) => Ok(Vec::new()),
            other => other,
        }
    }
}

impl Socket {
    /// A list of one generation. The kernel marks a list that changed while it was read, but not
    /// always (seen with 6.18: elements missing in lists without the mark), so that the
    /// generation is compared as well.
    fn dump<T>(
        &mut self,
        what: &str,
        mut request: Request,
        mut decode: impl FnMut(&Message<'_>, &mut Vec<T>) -> Result<(), &'static str>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..socket::TRIES {
            let before = self.generation()?;
            let list = self.socket.dump_once(what, &mut request, &mut decode)?;
            if let Some(list) = list
                && self.generation()? == before
            {
                return Ok(list);
            }
        }
        Err(Error::Interrupted {
            what: what.to_owned(),
            tries: socket::TRIES,
        })
    }
}

/// Tells the elements of a set apart; only within one process.
fn fingerprint(element: &ElementRef<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (element.key, element.end).hash(&mut hasher);
    hasher.finish()
}

/// Whether no element is listed twice.
///
/// The kernel resizes hash tables behind a commit, and a list that is read meanwhile goes on in
/// the new table after as many elements as it has told: with the right count, it has some twice
/// and misses as many (seen with 6.18: 56,246 listed, 49,359 distinct).
fn is_complete(fingerprints: impl Iterator<Item = u64>) -> bool {
    let mut fingerprints: Vec<u64> = fingerprints.collect();
    fingerprints.sort_unstable();
    fingerprints.is_sorted_by(|left, right| left < right)
}

fn list_request(kind: u16, family: Option<Family>, fill: impl FnOnce(&mut Writer<'_>)) -> Request {
    Request::new(SUBSYSTEM | kind, NLM_F_DUMP, &family_header(family), fill)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::ElementEnd;

    #[test]
    fn a_list_with_an_element_twice_is_not_complete() {
        let start = ElementRef::key(&[10, 0, 0, 0]);
        let end = ElementRef {
            end: ElementEnd::End,
            ..start
        };
        let complete = |list: &[ElementRef<'_>]| is_complete(list.iter().map(fingerprint));
        assert!(complete(&[]));
        assert!(
            complete(&[start, end]),
            "a range that ends where the next one starts"
        );
        assert!(!complete(&[start, end, start]));
    }
}
