//! A table like the one this crate exists for, in typed values.

use sluice_netlink::nft::DataType::{InetProto, InetService, Integer, Ipv4Addr, Ipv6Addr};
use sluice_netlink::nft::userdata::Field;
use sluice_netlink::nft::{
    Base, Batch, Chain, CmpOp, CtKey, DataType, Dir, DynsetOp, Element, ElementEnd, ElementOp,
    ElementRef, Expr, Family, FibResult, Hook, HookKind, KeyLayout, Lookup, MetaKey, NatKind,
    Policy, Reg, RejectKind, Rule, Set, SetFlags, SetId, Socket, TableId, Verdict, fib, nat,
    userdata,
};

pub(crate) const TABLE: TableId<'static> = TableId {
    family: Family::Ipv4,
    name: "kube-proxy",
};

pub(crate) const TABLE6: TableId<'static> = TableId {
    family: Family::Ipv6,
    name: "kube-proxy",
};

pub(crate) fn set(name: &'static str) -> SetId<'static> {
    SetId { table: TABLE, name }
}

fn payload(base: Base, offset: u32, len: u32, reg: u32) -> Expr {
    Expr::Payload {
        base,
        offset,
        len,
        dreg: Reg::r32(reg),
    }
}

fn cmp(op: CmpOp, reg: u32, data: &[u8]) -> Expr {
    Expr::Cmp {
        op,
        sreg: Reg::r32(reg),
        data: data.to_vec(),
    }
}

fn meta(key: MetaKey, reg: u32) -> Expr {
    Expr::Meta {
        key,
        dreg: Reg::r32(reg),
    }
}

/// Offset and length of the source and destination address.
fn addresses(family: Family) -> (u32, u32, u32) {
    match family {
        Family::Ipv4 => (12, 16, 4),
        Family::Ipv6 => (8, 24, 16),
    }
}

fn address_type(family: Family) -> DataType {
    match family {
        Family::Ipv4 => Ipv4Addr,
        Family::Ipv6 => Ipv6Addr,
    }
}

/// The maps and sets of a table like the one this crate exists for.
pub(crate) fn sample_sets(family: Family) -> Vec<Set> {
    let address = address_type(family);
    let daddr = match family {
        Family::Ipv4 => Field::IpDaddr,
        Family::Ipv6 => Field::Ip6Daddr,
    };
    let vip = KeyLayout::of(&[address, InetProto, InetService]);
    let backend = KeyLayout::of(&[address, InetService]);
    let pick = KeyLayout::of(&[address, InetProto, InetService, Integer]);
    let client = KeyLayout::of(&[address, address, InetProto, InetService]);
    let key = [
        daddr,
        Field::L4Proto,
        Field::ThDport,
        Field::NumgenRandom(2),
    ];
    vec![
        Set {
            userdata: userdata::typeof_map(&key, &[daddr, Field::ThDport], Some("backends")),
            ..Set::map("endpoints", &pick, &backend)
        },
        Set {
            userdata: userdata::set_comment("what listens where"),
            ..Set::verdict_map("service-ips", &vip)
        },
        Set {
            flags: SetFlags::MAP | SetFlags::EVAL | SetFlags::TIMEOUT,
            size: Some(65535),
            timeout_ms: Some(10_800_000),
            ..Set::map("affinity-10800", &client, &backend)
        },
        Set::ranges(
            "allowed",
            &KeyLayout::of(&[address, InetProto, InetService, address]),
        ),
        Set::ranges("nets", &KeyLayout::of(&[address])),
        Set::keyed("hairpin", &KeyLayout::of(&[address, address])),
    ]
}

pub(crate) fn sample_chains() -> Vec<Chain> {
    let hook = |kind, number, priority| Hook {
        kind,
        number,
        priority,
    };
    vec![
        Chain {
            comment: Some("any of three".into()),
            ..Chain::regular("pick-3")
        },
        Chain::regular("sticky"),
        Chain::regular("refuse"),
        Chain::base(
            "nat-prerouting",
            hook(HookKind::Nat, Hook::PREROUTING, -100),
        ),
        Chain::base(
            "nat-postrouting",
            hook(HookKind::Nat, Hook::POSTROUTING, 100),
        ),
        Chain {
            policy: Policy::Drop,
            ..Chain::base(
                "filter-forward",
                hook(HookKind::Filter, Hook::FORWARD, -110),
            )
        },
        Chain::base("route-output", hook(HookKind::Route, Hook::OUTPUT, -150)),
    ]
}

pub(crate) fn pick_rule(family: Family) -> Rule {
    let (_, daddr, len) = addresses(family);
    let after = len / 4;
    Rule {
        chain: "pick-3".into(),
        exprs: vec![
            payload(Base::Network, daddr, len, 0),
            meta(MetaKey::L4Proto, after),
            payload(Base::Transport, 2, 2, after + 1),
            Expr::Numgen {
                modulus: 3,
                offset: 65536,
                dreg: Reg::r32(after + 2),
            },
            Expr::Lookup {
                set: "endpoints".into(),
                sreg: Reg::r32(0),
                dreg: Some(Reg::r32(0)),
                expect: Lookup::Present,
            },
            Expr::Nat {
                kind: NatKind::Dnat,
                family,
                addr: Reg::r32(0),
                port: Some(Reg::r32(after)),
                flags: 0,
            },
        ],
        comment: Some("why".into()),
    }
}

fn record_rule(family: Family) -> Rule {
    let (saddr, daddr, len) = addresses(family);
    let words = len / 4;
    let original = match family {
        Family::Ipv4 => CtKey::DstIp,
        Family::Ipv6 => CtKey::DstIp6,
    };
    let ct = |key, dir, reg| Expr::Ct {
        key,
        dir,
        dreg: Reg::r32(reg),
    };
    let masked = |reg: u32, bits: [u8; 4]| Expr::Bitwise {
        sreg: Reg::r32(reg),
        dreg: Reg::r32(reg),
        len: 4,
        mask: bits.to_vec(),
        xor: vec![0; 4],
    };
    let key_words = 2 * words + 2;
    Rule {
        chain: "nat-postrouting".into(),
        exprs: vec![
            // Twice: nft drops one from its listing, because the port below implies it, and
            // could not read the listing back without the other.
            meta(MetaKey::L4Proto, 0),
            cmp(CmpOp::Eq, 0, &[6]),
            meta(MetaKey::L4Proto, 0),
            cmp(CmpOp::Eq, 0, &[6]),
            ct(CtKey::State, None, 0),
            masked(0, 8u32.to_ne_bytes()),
            cmp(CmpOp::Neq, 0, &[0; 4]),
            ct(CtKey::Status, None, 0),
            masked(0, 32u32.to_ne_bytes()),
            cmp(CmpOp::Neq, 0, &[0; 4]),
            payload(Base::Network, saddr, len, 0),
            ct(original, Some(Dir::Original), words),
            meta(MetaKey::L4Proto, 2 * words),
            ct(CtKey::ProtoDst, Some(Dir::Original), 2 * words + 1),
            payload(Base::Network, daddr, len, key_words),
            payload(Base::Transport, 2, 2, key_words + words),
            Expr::Dynset {
                op: DynsetOp::Update,
                set: "affinity-10800".into(),
                key: Reg::r32(0),
                data: Some(Reg::r32(key_words)),
                timeout_ms: None,
            },
        ],
        comment: None,
    }
}

fn lookup(set: &str, dreg: Option<Reg>, expect: Lookup) -> Expr {
    Expr::Lookup {
        set: set.into(),
        sreg: Reg::r32(0),
        dreg,
        expect,
    }
}

fn rule(chain: &str, parts: [&[Expr]; 2]) -> Rule {
    Rule {
        chain: chain.into(),
        exprs: parts.concat(),
        comment: None,
    }
}

/// Source and destination address in the first registers.
fn pair(family: Family) -> Vec<Expr> {
    let (saddr, daddr, len) = addresses(family);
    vec![
        payload(Base::Network, saddr, len, 0),
        payload(Base::Network, daddr, len, len / 4),
    ]
}

fn nat_rules(family: Family) -> Vec<Rule> {
    let (_, daddr, len) = addresses(family);
    let words = len / 4;
    let vip = [
        payload(Base::Network, daddr, len, 0),
        meta(MetaKey::L4Proto, words),
        payload(Base::Transport, 2, 2, words + 1),
        lookup("service-ips", Some(Reg::VERDICT), Lookup::Present),
    ];
    let sticky = [
        meta(MetaKey::L4Proto, 2 * words),
        payload(Base::Transport, 2, 2, 2 * words + 1),
        lookup("affinity-10800", Some(Reg::r32(0)), Lookup::Present),
        Expr::Nat {
            kind: NatKind::Dnat,
            family,
            addr: Reg::r32(0),
            port: Some(Reg::r32(words)),
            flags: 0,
        },
    ];
    let hairpin = [
        lookup("hairpin", None, Lookup::Present),
        Expr::Masquerade {
            flags: nat::RANDOM_FULLY,
        },
    ];
    vec![
        pick_rule(family),
        rule("nat-prerouting", [&vip, &[]]),
        record_rule(family),
        rule("nat-postrouting", [&pair(family), &hairpin]),
        rule("sticky", [&pair(family), &sticky]),
    ]
}

fn other_rules(family: Family) -> Vec<Rule> {
    let (saddr, _, len) = addresses(family);
    let local = [
        Expr::Fib {
            flags: fib::DADDR,
            result: FibResult::AddrType,
            dreg: Reg::r32(0),
        },
        cmp(CmpOp::Eq, 0, &2u32.to_ne_bytes()),
        Expr::Counter {
            packets: 0,
            bytes: 0,
        },
        Expr::Verdict(Verdict::Jump("refuse".into())),
    ];
    let foreign = [
        payload(Base::Network, saddr, len, 0),
        lookup("nets", None, Lookup::Absent),
        Expr::Reject {
            kind: RejectKind::IcmpUnreach,
            // Port unreachable: ICMP 3, ICMPv6 4.
            code: match family {
                Family::Ipv4 => 3,
                Family::Ipv6 => 4,
            },
        },
    ];
    let tcp = [
        meta(MetaKey::L4Proto, 0),
        cmp(CmpOp::Eq, 0, &[6]),
        Expr::Reject {
            kind: RejectKind::TcpRst,
            code: 0,
        },
    ];
    let mark = [
        Expr::Immediate {
            dreg: Reg::r32(0),
            data: 0x4000u32.to_ne_bytes().to_vec(),
        },
        Expr::MetaSet {
            key: MetaKey::Mark,
            sreg: Reg::r32(0),
        },
    ];
    vec![
        rule("filter-forward", [&local, &[]]),
        rule("filter-forward", [&foreign, &[]]),
        rule("refuse", [&tcp, &[]]),
        rule("route-output", [&mark, &[]]),
    ]
}

pub(crate) fn sample_rules(family: Family) -> Vec<Rule> {
    [nat_rules(family), other_rules(family)].concat()
}

pub(crate) fn load_sample(socket: &mut Socket, table: TableId<'_>) {
    let mut batch = Batch::new();
    batch.add_table(table, Some("service rules"), 1);
    sample_chains()
        .iter()
        .for_each(|chain| batch.add_chain(table, chain, 2));
    sample_sets(table.family)
        .iter()
        .for_each(|set| batch.add_set(table, set, 3));
    sample_rules(table.family)
        .iter()
        .for_each(|rule| batch.add_rule(table, rule, 4));
    socket.commit(&batch).unwrap();
}

/// Address, protocol, port of a service, each padded to four bytes.
pub(crate) fn vip_key(last: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![10, 96, 0, last, 6, 0, 0, 0, high, low, 0, 0]
}

pub(crate) fn sample_elements() -> Vec<(&'static str, Vec<Element>)> {
    let value = |key: Vec<u8>, value: &[u8]| ElementRef::value(&key, value).to_owned();
    let picked = |number: u32| [vip_key(1, 80), number.to_ne_bytes().to_vec()].concat();
    let range = |from: [u8; 4], to: [u8; 4]| {
        let (key, key_end) = (
            [vip_key(1, 80), from.to_vec()].concat(),
            [vip_key(1, 80), to.to_vec()].concat(),
        );
        ElementRef {
            key_end: Some(&key_end),
            ..ElementRef::key(&key)
        }
        .to_owned()
    };
    let end = |key: [u8; 4]| {
        ElementRef {
            end: ElementEnd::End,
            ..ElementRef::key(&key)
        }
        .to_owned()
    };
    vec![
        (
            "endpoints",
            vec![
                value(picked(65536), &[192, 0, 2, 1, 0x1f, 0x90, 0, 0]),
                Element {
                    comment: Some("ns/svc:http".into()),
                    ..value(picked(65537), &[192, 0, 2, 2, 0x1f, 0x90, 0, 0])
                },
            ],
        ),
        (
            "service-ips",
            vec![
                ElementRef::verdict(&vip_key(1, 80), Verdict::Goto("pick-3")).to_owned(),
                ElementRef::verdict(&vip_key(2, 80), Verdict::Drop).to_owned(),
            ],
        ),
        ("allowed", vec![range([10, 0, 0, 0], [10, 255, 255, 255])]),
        (
            "nets",
            vec![
                end([0; 4]),
                ElementRef::key(&[10, 0, 0, 0]).to_owned(),
                end([11, 0, 0, 0]),
            ],
        ),
    ]
}

pub(crate) fn add_sample_elements(socket: &mut Socket) {
    let mut batch = Batch::new();
    for (name, elements) in sample_elements() {
        batch.elements(
            ElementOp::Add,
            set(name),
            9,
            elements.iter().map(Element::as_ref),
        );
    }
    socket.commit(&batch).unwrap();
}

pub(crate) fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort();
    elements
}
