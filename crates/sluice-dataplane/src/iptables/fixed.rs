//! The chains that every node has, apart from the lines of services in them.

use super::compile::Place;
use super::ground::{COUNT_INVALID, Counter, Ground, InvalidPackets, LocalhostNodePorts};
use super::name::{Chain, Fixed, Hook, Table};
use super::rule::{Comment, Match, Rule, Sense, State, Target};
use sluice_model::fact::Family;

/// Shared chains, in the order in which they are written: those that are jumped to first.
/// [`Fixed::Firewall`] is not among them: kubelet writes there too, so it is never emptied.
pub const PLACES: [Place; 11] = [
    (Table::Filter, Fixed::NodePorts),
    (Table::Filter, Fixed::ExternalServices),
    (Table::Filter, Fixed::ClusterIps),
    (Table::Filter, Fixed::Services),
    (Table::Filter, Fixed::Forward),
    (Table::Filter, Fixed::ProxyFirewall),
    (Table::Nat, Fixed::MarkMasq),
    (Table::Nat, Fixed::NodePorts),
    (Table::Nat, Fixed::Services),
    (Table::Nat, Fixed::Postrouting),
    (Table::Mangle, Fixed::Canary),
];

/// Where lines of services go, relative to a shared chain's own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before them.
    Front,
    /// After them.
    Back,
}

/// Where a line goes. Node ports are the last resort of `nat`, and what is said about a cluster IP
/// as a whole comes after what is said about one of its ports. Lines of one place need no other
/// order: at most one of them matches a packet, save for those that go before the rest here.
pub fn position(place: Place, rule: &Rule) -> Position {
    let has = |is: fn(&Match) -> bool| rule.matches.iter().any(is);
    let first = match place.1 {
        Fixed::Services => has(|m| matches!(m, Match::Port(_))),
        Fixed::ClusterIps => true,
        // Of a guarded address without endpoints, some sources are told so, the rest dropped.
        Fixed::ExternalServices => has(|m| matches!(m, Match::Source(..))),
        Fixed::NodePorts => has(|m| matches!(m, Match::Count(_))),
        Fixed::Forward
        | Fixed::ProxyFirewall
        | Fixed::Firewall
        | Fixed::Postrouting
        | Fixed::MarkMasq
        | Fixed::Canary => false,
    };
    if first {
        Position::Front
    } else {
        Position::Back
    }
}

/// A shared chain's own rules.
pub fn rules(place: Place, ground: &Ground) -> Vec<Rule> {
    let mark = ground.options.mark;
    match place {
        (Table::Nat, Fixed::MarkMasq) => vec![Rule::new([], Target::SetMark(mark))],
        (Table::Nat, Fixed::Postrouting) => postrouting(ground),
        (Table::Nat, Fixed::Services) => node_ports(ground),
        (Table::Filter, Fixed::Services) => refusals(ground),
        (Table::Filter, Fixed::ClusterIps) if !ground.node.service_cidrs.is_empty() => {
            vec![Rule::new(
                [says("unallocated service address")],
                Target::Drop,
            )]
        }
        (Table::Filter, Fixed::Forward) => forward(ground),
        (
            _,
            Fixed::MarkMasq
            | Fixed::Postrouting
            | Fixed::Services
            | Fixed::ClusterIps
            | Fixed::Forward
            | Fixed::NodePorts
            | Fixed::ExternalServices
            | Fixed::ProxyFirewall
            | Fixed::Firewall
            | Fixed::Canary,
        ) => Vec::new(),
    }
}

fn says(text: &str) -> Match {
    Match::Comment(Comment::new(text))
}

/// The mark is taken away before the source is rewritten: a packet that passes the stack twice,
/// through a tunnel, must not be masqueraded the second time.
fn postrouting(ground: &Ground) -> Vec<Rule> {
    let mark = ground.options.mark;
    let why = says("kubernetes service traffic requiring SNAT");
    vec![
        Rule::new([Match::Mark(Sense::IsNot, mark)], Target::Return),
        Rule::new([], Target::FlipMark(mark)),
        Rule::new([why], Target::Masquerade(ground.options.source_ports)),
    ]
}

fn node_ports(ground: &Ground) -> Vec<Rule> {
    let comment =
        says("kubernetes service nodeports; NOTE: this must be the last rule in this chain");
    let jump = |destination: Vec<Match>| {
        let matches = [comment.clone()].into_iter().chain(destination);
        Rule::new(matches, Target::Jump(Fixed::NodePorts))
    };
    ground
        .node_port_destinations()
        .into_iter()
        .map(jump)
        .collect()
}

/// kube-proxy refuses external addresses only where packets arrive or pass. Processes of this node
/// get the same answer here. And what is still on its way to a service range after all services
/// had their chance goes to a service that has no such port, or to none.
fn refusals(ground: &Ground) -> Vec<Rule> {
    let external = says("kubernetes externally-visible service portals");
    let mut rules = vec![Rule::new([external], Target::Jump(Fixed::ExternalServices))];
    rules.extend(ground.node.service_cidrs.iter().map(|net| {
        let matches = [
            says("ports and addresses not in use"),
            Match::Destination(Sense::Is, *net),
            Match::DestinationIsLocal(Sense::IsNot),
        ];
        Rule::new(matches, Target::Jump(Fixed::ClusterIps))
    }));
    rules
}

fn forward(ground: &Ground) -> Vec<Rule> {
    let options = &ground.options;
    let mut rules = Vec::new();
    match options.invalid {
        InvalidPackets::Dropped => {
            let state = Match::State(Sense::Is, &[State::Invalid]);
            let count = match options.count_invalid {
                Counter::Present => Some(Match::Count(COUNT_INVALID)),
                Counter::Absent => None,
            };
            rules.push(Rule::new([state].into_iter().chain(count), Target::Drop));
        }
        InvalidPackets::Passed => {}
    }
    let marked = [
        says("kubernetes forwarding rules"),
        Match::Mark(Sense::Is, options.mark),
    ];
    rules.push(Rule::new(marked, Target::Accept));
    let known = [
        says("kubernetes forwarding conntrack rule"),
        Match::State(Sense::Is, &[State::Related, State::Established]),
    ];
    rules.push(Rule::new(known, Target::Accept));
    rules
}

/// A rule that is added where it is missing and otherwise left where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchor {
    /// Table.
    pub table: Table,
    /// Chain.
    pub chain: Chain,
    /// Rule.
    pub rule: Rule,
}

/// The jumps from the kernel's chains to ours. Each is put first when it is added, so that on a
/// fresh node the last of them comes first.
pub fn jumps() -> Vec<Anchor> {
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    let mut anchors = Vec::new();
    let mut add = |table, hooks: &[Hook], comment: &str, state: &[Match], to| {
        for hook in hooks {
            let comment = (!comment.is_empty()).then(|| says(comment));
            let matches = state.iter().cloned().chain(comment);
            let rule = Rule::new(matches, Target::Jump(to));
            anchors.push(Anchor {
                table,
                chain: Chain::Hook(*hook),
                rule,
            });
        }
    };
    let (filter, nat) = (Table::Filter, Table::Nat);
    let new = [Match::State(Sense::Is, &[State::New])];
    let text = "kubernetes externally-visible service portals";
    add(
        filter,
        &[Input, Forward],
        text,
        &new,
        Fixed::ExternalServices,
    );
    add(
        filter,
        &[Input],
        "kubernetes health check service ports",
        &[],
        Fixed::NodePorts,
    );
    add(
        filter,
        &[Forward, Output],
        "kubernetes service portals",
        &new,
        Fixed::Services,
    );
    add(
        filter,
        &[Forward],
        "kubernetes forwarding rules",
        &[],
        Fixed::Forward,
    );
    let text = "kubernetes load balancer firewall";
    add(
        filter,
        &[Input, Output, Forward],
        text,
        &new,
        Fixed::ProxyFirewall,
    );
    add(
        nat,
        &[Output, Prerouting],
        "kubernetes service portals",
        &[],
        Fixed::Services,
    );
    add(
        nat,
        &[Postrouting],
        "kubernetes postrouting rules",
        &[],
        Fixed::Postrouting,
    );
    add(filter, &[Input, Output], "", &[], Fixed::Firewall);
    anchors
}

/// The guard against strangers who send to 127.0.0.1 while `route_localnet` is on. kubelet writes
/// the same rule to the same chain.
pub fn guard(ground: &Ground) -> Option<Anchor> {
    let open = ground.family == Family::V4 && ground.options.localhost == LocalhostNodePorts::Open;
    open.then(|| {
        let loopback = ground.loopback();
        let tracked = &[State::Related, State::Established, State::Dnat];
        let matches = [
            says("block incoming localnet connections"),
            Match::Destination(Sense::Is, loopback),
            Match::Source(Sense::IsNot, loopback),
            Match::State(Sense::IsNot, tracked),
        ];
        Anchor {
            table: Table::Filter,
            chain: Chain::Fixed(Fixed::Firewall),
            rule: Rule::new(matches, Target::Drop),
        }
    })
}

/// The line that lets load balancers ask a service's health-check node port.
pub fn health(service: &str, port: u16) -> (Place, Rule) {
    let comment = format!("{service} health check node port");
    let tcp = Match::Protocol(sluice_model::fact::Protocol::Tcp);
    let rule = Rule::new([says(&comment), tcp, Match::Port(port)], Target::Accept);
    ((Table::Filter, Fixed::NodePorts), rule)
}
