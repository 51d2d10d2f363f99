//! Rules as values. Text, as `iptables-restore` reads it, exists only in `Display`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use sluice_model::fact::{Family, Protocol};
use sluice_model::name::Name;

use super::name::{Fixed, ServiceChain};

/// A rule: all matches must hold, then the target applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What packets it is for.
    pub matches: Vec<Match>,
    /// What happens to them; `None` does nothing, the rule is there to be read.
    pub target: Option<Target>,
}

impl Rule {
    /// A rule with a target.
    pub fn new(matches: impl IntoIterator<Item = Match>, target: Target) -> Rule {
        Rule {
            matches: matches.into_iter().collect(),
            target: Some(target),
        }
    }
}

impl fmt::Display for Rule {
    /// As `iptables-save` lists it, each argument with a blank before it: so a listed rule can be
    /// compared with an intended one, and rules written are rules read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [
            HeaderPart::Source,
            HeaderPart::Destination,
            HeaderPart::Interface,
        ] {
            self.matches.iter().try_for_each(|m| m.header(part, f))?;
        }
        self.matches
            .iter()
            .try_for_each(|m| m.header(HeaderPart::Protocol, f))?;
        self.matches.iter().try_for_each(|m| m.module(f))?;
        self.target
            .iter()
            .try_for_each(|target| write!(f, " -j {target}"))
    }
}

/// Whether a match holds for what it names, or for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// For what it names.
    Is,
    /// For everything else.
    IsNot,
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sense::Is => "",
            Sense::IsNot => "! ",
        })
    }
}

/// A condition on packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// Always holds; says what the rule is for.
    Comment(Comment),
    /// Transport protocol, with its own options loaded.
    Protocol(Protocol),
    /// Source address within a prefix.
    Source(Sense, IpNet),
    /// Destination address within a prefix.
    Destination(Sense, IpNet),
    /// Destination port; after [`Match::Protocol`].
    Port(u16),
    /// Arrived on this interface.
    Interface(Sense, Name),
    /// Arrived on an interface with this prefix.
    InterfacePrefix(Sense, Name),
    /// Source is an address of this node.
    SourceIsLocal,
    /// Destination is, or is not, an address of this node.
    DestinationIsLocal(Sense),
    /// All bits of the mark are set, or not.
    Mark(Sense, u32),
    /// State in connection tracking: one of these.
    State(Sense, &'static [State]),
    /// One packet in so many.
    OneIn(usize),
    /// Source is in an endpoint's list since at most this long; older entries go.
    Remembered(ServiceChain, u32),
    /// Always holds; puts the source into an endpoint's list.
    Remember(ServiceChain),
    /// Always holds; counts in a counter of nfacct.
    Count(&'static str),
}

/// States of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// First packet.
    New,
    /// Of a connection that is known.
    Established,
    /// Started by a known connection.
    Related,
    /// Destination was translated.
    Dnat,
    /// Fits no connection.
    Invalid,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::New => "NEW",
            State::Established => "ESTABLISHED",
            State::Related => "RELATED",
            State::Dnat => "DNAT",
            State::Invalid => "INVALID",
        })
    }
}

/// What a rule says without a module, in the order in which it is listed.
#[derive(Clone, Copy, PartialEq)]
enum HeaderPart {
    Source,
    Destination,
    Interface,
    Protocol,
}

impl Match {
    fn header(&self, part: HeaderPart, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use HeaderPart::{Destination, Interface, Protocol, Source};
        match (part, self) {
            (Source, Match::Source(sense, net)) => write!(f, " {sense}-s {net}"),
            (Destination, Match::Destination(sense, net)) => write!(f, " {sense}-d {net}"),
            (Interface, Match::Interface(sense, name)) => write!(f, " {sense}-i {}", Word(name)),
            (Interface, Match::InterfacePrefix(sense, name)) => {
                write!(f, " {sense}-i {}+", Word(name))
            }
            (Protocol, Match::Protocol(protocol)) => write!(f, " -p {protocol}"),
            (Source | Destination | Interface | Protocol, _) => Ok(()),
        }
    }

    fn module(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Match::Source(..)
            | Match::Destination(..)
            | Match::Interface(..)
            | Match::InterfacePrefix(..) => Ok(()),
            Match::Comment(comment) => write!(f, " -m comment --comment {comment}"),
            Match::Protocol(protocol) => write!(f, " -m {protocol}"),
            Match::Port(port) => write!(f, " --dport {port}"),
            Match::SourceIsLocal => write!(f, " -m addrtype --src-type LOCAL"),
            Match::DestinationIsLocal(sense) => write!(f, " -m addrtype {sense}--dst-type LOCAL"),
            Match::Mark(sense, mark) => write!(f, " -m mark {sense}--mark {mark:#x}/{mark:#x}"),
            Match::State(sense, states) => {
                write!(f, " -m conntrack {sense}--ctstate ")?;
                for (index, state) in states.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{state}")?;
                }
                Ok(())
            }
            Match::OneIn(n) => {
                let probability = 1.0 / (*n).max(1) as f64;
                write!(
                    f,
                    " -m statistic --mode random --probability {probability:.10}"
                )
            }
            Match::Remembered(chain, seconds) => {
                write!(
                    f,
                    " -m recent --rcheck --seconds {seconds} --reap --name {chain}"
                )
            }
            Match::Remember(chain) => write!(f, " -m recent --set --name {chain}"),
            Match::Count(name) => write!(f, " -m nfacct --nfacct-name {name}"),
        }
    }
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Goes through a chain and comes back.
    Jump(Fixed),
    /// Goes through a service's chain and comes back.
    Service(ServiceChain),
    /// Passes this table.
    Accept,
    /// Is discarded.
    Drop,
    /// Is answered with ICMP port unreachable of this family.
    Reject(Family),
    /// Goes back to where the chain was jumped to from.
    Return,
    /// Gets these bits of the mark set.
    SetMark(u32),
    /// Gets these bits of the mark turned over.
    FlipMark(u32),
    /// Gets an address of this node as its source.
    Masquerade(PortChoice),
    /// Gets another destination.
    Dnat(SocketAddr),
}

/// How source ports are chosen where sources are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// The kernel's way: the old one if it is free.
    Kept,
    /// At random, so that two connections at once do not take the same.
    Random,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Jump(chain) => chain.fmt(f),
            Target::Service(chain) => chain.fmt(f),
            Target::Accept => f.write_str("ACCEPT"),
            Target::Drop => f.write_str("DROP"),
            Target::Reject(Family::V4) => f.write_str("REJECT --reject-with icmp-port-unreachable"),
            Target::Reject(Family::V6) => {
                f.write_str("REJECT --reject-with icmp6-port-unreachable")
            }
            Target::Return => f.write_str("RETURN"),
            Target::SetMark(mark) => write!(f, "MARK --set-xmark {mark:#x}/{mark:#x}"),
            Target::FlipMark(mark) => write!(f, "MARK --set-xmark {mark:#x}/0x0"),
            Target::Masquerade(PortChoice::Kept) => f.write_str("MASQUERADE"),
            Target::Masquerade(PortChoice::Random) => f.write_str("MASQUERADE --random-fully"),
            Target::Dnat(to) => write!(f, "DNAT --to-destination {to}"),
        }
    }
}

/// Text for people in a rule, made fit for the kernel and for the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment(String);

/// `XT_MAX_COMMENT_LEN` of `linux/netfilter/xt_comment.h` is 256 with the final zero.
const COMMENT_MAX: usize = 255;

impl Comment {
    /// Cuts to what the kernel takes, and replaces what would end the word or the line: names from
    /// files are anybody's text.
    pub fn new(text: impl Into<String>) -> Comment {
        let mut text: String = text.into();
        if text.chars().any(unfit) {
            text = text
                .chars()
                .map(|c| if unfit(c) { '?' } else { c })
                .collect();
        }
        if text.len() > COMMENT_MAX {
            text.truncate(text.floor_char_boundary(COMMENT_MAX));
        }
        Comment(text)
    }
}

fn unfit(c: char) -> bool {
    c.is_control() || matches!(c, '"' | '\\' | '\'')
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The tool lists anything but these in quotes.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !self.0.is_empty() && self.0.chars().all(plain) && !self.0.starts_with('-') {
            f.write_str(&self.0)
        } else {
            write!(f, "\"{}\"", self.0)
        }
    }
}

/// A name as one word of the tool's input.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            let c = if unfit(c) || c.is_whitespace() {
                '?'
            } else {
                c
            };
            fmt::Write::write_char(f, c)
        })
    }
}

/// The match for one destination address.
pub fn to(ip: IpAddr) -> Match {
    Match::Destination(Sense::Is, IpNet::from(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(one: Match) -> String {
        Rule {
            matches: vec![one],
            target: None,
        }
        .to_string()
    }

    #[test]
    fn probabilities_have_ten_decimals() {
        let text = |n| rule(Match::OneIn(n));
        assert_eq!(
            text(2),
            " -m statistic --mode random --probability 0.5000000000"
        );
        assert_eq!(
            text(3),
            " -m statistic --mode random --probability 0.3333333333"
        );
        assert_eq!(
            text(1_234),
            " -m statistic --mode random --probability 0.0008103728"
        );
    }

    #[test]
    fn comments_are_one_word_of_at_most_255_bytes() {
        let text = |text: &str| Comment::new(text).to_string();
        assert_eq!(text("plain_-1"), "plain_-1");
        assert_eq!(text("ns/svc:http"), "\"ns/svc:http\"");
        assert_eq!(text("ns/svc cluster IP"), "\"ns/svc cluster IP\"");
        assert_eq!(text("a\" -j DROP\nCOMMIT\\"), "\"a? -j DROP?COMMIT?\"");
        assert_eq!(text(""), "\"\"");
        assert_eq!(text("-x"), "\"-x\"");
        assert_eq!(text(&"é".repeat(200)).len(), 254 + 2);
    }
}
