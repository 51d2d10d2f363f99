//! The table's program: base chains, shared chains and sets. It depends on the node, never on a
//! service; what services need of it (class chains, affinity time-outs) is made on first use.

use std::collections::BTreeMap;

use sluice_model::fact::{Family, Protocol};
use sluice_model::route::{NodePortMatch, NodeView, PodMatch};
use sluice_netlink::nft::{Chain, Expr, Hook, HookKind, Rule, Set};

use super::element::{ChainId, Class, Entry, LOCAL_SLOTS, SetId, record_chain};
use super::layout;
use super::rule::{Field, Is, RuleBuilder};

/// Everything that rules depend on, besides services.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// Family of the table.
    pub family: Family,
    /// The node as the model sees it.
    pub node: NodeView,
    /// The packet mark that asks for masquerade: one bit.
    pub mark: u32,
}

/// A table's chains with their rules, and its sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// By name.
    pub chains: BTreeMap<String, (Chain, Vec<Rule>)>,
    /// By name.
    pub sets: BTreeMap<String, Set>,
}

/// Name of the table in both families: upstream's, so that each cleans up after the other.
pub const TABLE: &str = "kube-proxy";
/// Target of references to frontends without endpoints.
pub const REJECT: &str = "reject-chain";

const SERVICES: &str = "services";
const RECORD: &str = "record-affinity";

// include/uapi/linux/netfilter/nf_conntrack_common.h
const CT_STATE_NEW: u32 = 1 << 3;
const STATUS_DNAT: u32 = 1 << 5;

impl Program {
    /// The program for a node and for the class chains and affinity time-outs that are in use.
    pub fn new<'a>(
        ground: &Ground,
        chains: impl Iterator<Item = &'a ChainId>,
        timeouts: impl Iterator<Item = &'a u32>,
    ) -> Program {
        let mut program = Program::default();
        for set in SetId::CONSTANT {
            program.add_set(ground.family, set);
        }
        for &seconds in timeouts {
            program.add_set(ground.family, SetId::Affinity(seconds));
            program.add_chain(&record_chain(seconds), None, recording(ground, seconds));
        }
        for (name, rules) in shared_chains(ground) {
            program.add_chain(name, None, rules);
        }
        for &chain in chains {
            program.add_chain(&chain.to_string(), None, class_rules(ground, chain));
        }
        for (name, hook, rules) in base_chains(ground) {
            program.add_chain(name, Some(hook), rules);
        }
        program
    }

    fn add_set(&mut self, family: Family, set: SetId) {
        self.sets
            .insert(set.to_string(), layout::definition(family, set));
    }

    fn add_chain(&mut self, name: &str, hook: Option<Hook>, rules: Vec<RuleBuilder>) {
        let rules = rules.into_iter().map(|rule| rule.build(name)).collect();
        let chain = hook.map_or_else(|| Chain::regular(name), |hook| Chain::base(name, hook));
        self.chains.insert(name.to_owned(), (chain, rules));
    }
}

/// The rules of a class chain.
pub fn class_rules(ground: &Ground, chain: ChainId) -> Vec<RuleBuilder> {
    let start = || RuleBuilder::new(ground.family);
    let mut rules = Vec::new();
    match chain.class {
        Class::Plain | Class::Local => {}
        Class::NotPods => {
            if let Some(pods) = &ground.node.pods {
                rules.push(start().pods(pods, Is::Not).mark(ground.mark));
            }
        }
        Class::Masquerade => rules.push(start().mark(ground.mark)),
        Class::Split => {
            let plain = ChainId {
                class: Class::Plain,
                ..chain
            }
            .to_string();
            if let Some(pods) = &ground.node.pods {
                rules.push(
                    start()
                        .pods(pods, Is::Yes)
                        .goto(&plain)
                        .comment("short-circuit pod traffic"),
                );
            }
            rules.push(
                start()
                    .source_is_local()
                    .mark(ground.mark)
                    .goto(&plain)
                    .comment("short-circuit node traffic"),
            );
            let (fields, map): (&[Field], _) = match chain.entry {
                Entry::Vip => (&[Field::Daddr, Field::Proto, Field::Dport], SetId::LocalIps),
                Entry::NodePort => (&[Field::Proto, Field::Dport], SetId::LocalNodePorts),
            };
            rules.push(start().vmap(fields, map));
            return rules;
        }
    }
    if chain.sticky > 0 {
        let key = [Field::Saddr, Field::Daddr, Field::Proto, Field::Dport];
        rules.push(start().dnat(&key, SetId::Affinity(chain.sticky)));
    }
    let offset = if chain.class == Class::Local {
        LOCAL_SLOTS
    } else {
        0
    };
    let pick = Field::Pick {
        slots: chain.slots,
        offset,
    };
    rules.push(match chain.entry {
        Entry::Vip => start().dnat(
            &[Field::Daddr, Field::Proto, Field::Dport, pick],
            SetId::Endpoints,
        ),
        Entry::NodePort => start().dnat(
            &[Field::Proto, Field::Dport, pick],
            SetId::NodePortEndpoints,
        ),
    });
    rules
}

impl RuleBuilder {
    fn pods(self, pods: &PodMatch, is: Is) -> RuleBuilder {
        match pods {
            PodMatch::Source(net) => self.source_in(*net, is),
            PodMatch::Interface(name) => self.input_interface(name, is),
            PodMatch::InterfacePrefix(prefix) => self.input_interface_prefix(prefix, is),
        }
    }
}

/// Runs after destination NAT and before source NAT, where client, frontend and endpoint are all
/// visible in one packet: remembers which endpoint a client was given. Each new connection renews
/// the time-out.
fn recording(ground: &Ground, seconds: u32) -> Vec<RuleBuilder> {
    let rule = |protocol| {
        RuleBuilder::new(ground.family)
            .protocol(protocol)
            .learn(SetId::Affinity(seconds))
    };
    Protocol::ALL.into_iter().map(rule).collect()
}

fn node_port_match(ground: &Ground) -> RuleBuilder {
    let start = RuleBuilder::new(ground.family);
    match ground.node.node_ports {
        // Never by loopback: replies of other machines could not come back to it.
        NodePortMatch::AnyLocal => start.destination_is_local().destination_not_loopback(),
        NodePortMatch::Addresses(_) => start.member(&[Field::Daddr], SetId::NodePortIps, Is::Yes),
    }
}

fn shared_chains(ground: &Ground) -> Vec<(&'static str, Vec<RuleBuilder>)> {
    let start = || RuleBuilder::new(ground.family);
    let vip = [Field::Daddr, Field::Proto, Field::Dport];
    let node_port = [Field::Proto, Field::Dport];
    let guarded = [Field::Daddr, Field::Proto, Field::Dport, Field::Saddr];
    let mut cluster_ips = vec![
        start()
            .member(&[Field::Daddr], SetId::ClusterIps, Is::Yes)
            .reject(),
    ];
    for cidr in &ground.node.service_cidrs {
        cluster_ips.push(
            start()
                .destination_in(*cidr)
                .drop()
                .comment("unallocated cluster IP"),
        );
    }
    let pair = [Field::Saddr, Field::Daddr];
    let asked = [Field::OrigDaddr, Field::Proto, Field::OrigDport];
    vec![
        (
            SERVICES,
            vec![
                start().vmap(&vip, SetId::ServiceIps),
                node_port_match(ground).vmap(&node_port, SetId::ServiceNodePorts),
            ],
        ),
        (REJECT, vec![start().reject()]),
        (
            RECORD,
            vec![
                start().vmap(&asked, SetId::StickyIps),
                start().vmap(&asked[1..], SetId::StickyNodePorts),
            ],
        ),
        (
            "firewall-check",
            vec![
                start()
                    .member(&vip, SetId::FirewallIps, Is::Yes)
                    .member(&guarded, SetId::FirewallAllow, Is::Not)
                    .drop(),
            ],
        ),
        (
            "service-endpoints-check",
            vec![start().vmap(&vip, SetId::NoEndpointServices)],
        ),
        (
            "nodeport-endpoints-check",
            vec![node_port_match(ground).vmap(&node_port, SetId::NoEndpointNodePorts)],
        ),
        ("cluster-ips-check", cluster_ips),
        (
            "masquerading",
            vec![
                start()
                    .marked(ground.mark)
                    .unmark(ground.mark)
                    .masquerade()
                    .comment("masquerade"),
                start()
                    .ct_status(STATUS_DNAT)
                    .member(&pair, SetId::Hairpin, Is::Yes)
                    .masquerade()
                    .comment("hairpin"),
            ],
        ),
    ]
}

/// Hooks and priorities as kube-proxy has them (its README makes them public), and two of our own
/// for affinity, after destination NAT and before source NAT.
fn base_chains(ground: &Ground) -> Vec<(&'static str, Hook, Vec<RuleBuilder>)> {
    use HookKind::{Filter, Nat};
    let start = || RuleBuilder::new(ground.family);
    let new = |target: &str| start().ct_state(CT_STATE_NEW).jump(target);
    let hook = |kind, number, priority| Hook {
        kind,
        number,
        priority,
    };
    let record = || {
        start()
            .ct_state(CT_STATE_NEW)
            .ct_status(STATUS_DNAT)
            .jump(RECORD)
    };
    vec![
        (
            "filter-prerouting-pre-dnat",
            hook(Filter, Hook::PREROUTING, -110),
            vec![new("firewall-check")],
        ),
        (
            "filter-output-pre-dnat",
            hook(Filter, Hook::OUTPUT, -110),
            vec![new("firewall-check")],
        ),
        (
            "nat-prerouting",
            hook(Nat, Hook::PREROUTING, -100),
            vec![start().jump(SERVICES)],
        ),
        (
            "nat-output",
            hook(Nat, Hook::OUTPUT, -100),
            vec![start().jump(SERVICES)],
        ),
        (
            "filter-input",
            hook(Filter, Hook::INPUT, 0),
            vec![
                new("nodeport-endpoints-check"),
                new("service-endpoints-check"),
            ],
        ),
        (
            "filter-forward",
            hook(Filter, Hook::FORWARD, 0),
            vec![new("service-endpoints-check"), new("cluster-ips-check")],
        ),
        (
            "filter-output",
            hook(Filter, Hook::OUTPUT, 0),
            vec![new("service-endpoints-check"), new("cluster-ips-check")],
        ),
        (
            "nat-postrouting",
            hook(Nat, Hook::POSTROUTING, 100),
            vec![start().jump("masquerading")],
        ),
        (
            "record-postrouting",
            hook(Filter, Hook::POSTROUTING, 90),
            vec![record()],
        ),
        (
            "record-input",
            hook(Filter, Hook::INPUT, 90),
            vec![record()],
        ),
    ]
}

/// The expression that names an object the kernel may lack, for error messages.
pub fn kernel_option(expr: &Expr) -> &'static str {
    match expr {
        Expr::Fib { .. } => "CONFIG_NFT_FIB_IPV4 and CONFIG_NFT_FIB_IPV6",
        Expr::Numgen { .. } => "CONFIG_NFT_NUMGEN",
        Expr::Nat { .. } => "CONFIG_NFT_NAT",
        Expr::Masquerade { .. } => "CONFIG_NFT_MASQ",
        Expr::Reject { .. } => "CONFIG_NFT_REJECT",
        Expr::Ct { .. } => "CONFIG_NFT_CT",
        Expr::Payload { .. }
        | Expr::Meta { .. }
        | Expr::MetaSet { .. }
        | Expr::Cmp { .. }
        | Expr::Bitwise { .. }
        | Expr::Lookup { .. }
        | Expr::Verdict(_)
        | Expr::Dynset { .. }
        | Expr::Counter { .. }
        | Expr::Immediate { .. }
        | Expr::Redirect { .. }
        | Expr::Unknown(_) => "CONFIG_NF_TABLES",
    }
}
