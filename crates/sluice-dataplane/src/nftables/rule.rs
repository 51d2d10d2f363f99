//! Rules in the words of this program, turned into nf_tables expressions.
//!
//! Each statement starts again at register 0: nothing is carried from one to the next, as in what
//! `nft` itself emits, so that `nft list` can read every rule back.

use std::net::IpAddr;

use ipnet::IpNet;
use sluice_model::fact::{Family, Protocol};
use sluice_netlink::nft::{
    self, Base, CmpOp, CtKey, Dir, DynsetOp, Expr, FibResult, Lookup, MetaKey, NatKind, Reg,
    RejectKind, Rule, Verdict, fib, nat,
};

use super::element::SetId;
use super::program::TABLE;

/// Whether a match must hold or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// It must hold.
    Yes,
    /// It must not.
    Not,
}

/// A part of a packet, or of its connection, that goes into a set key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source address.
    Saddr,
    /// Destination address.
    Daddr,
    /// Transport protocol.
    Proto,
    /// Destination port.
    Dport,
    /// Destination address before translation.
    OrigDaddr,
    /// Destination port before translation.
    OrigDport,
    /// A random slot.
    Pick {
        /// Among how many.
        slots: u32,
        /// Number of the first.
        offset: u32,
    },
}

/// include/uapi/linux/rtnetlink.h
const RTN_LOCAL: u32 = 2;
/// IFNAMSIZ, include/uapi/linux/if.h
const INTERFACE_NAME: usize = 16;

/// A rule under construction.
#[derive(Clone, Debug)]
pub struct RuleBuilder {
    family: Family,
    exprs: Vec<Expr>,
    comment: Option<String>,
}

impl RuleBuilder {
    /// An empty rule, which matches everything.
    pub fn new(family: Family) -> RuleBuilder {
        RuleBuilder {
            family,
            exprs: Vec::new(),
            comment: None,
        }
    }

    /// The finished rule of a chain.
    pub fn build(self, chain: &str) -> Rule {
        Rule {
            chain: chain.to_owned(),
            exprs: self.exprs,
            comment: self.comment,
        }
    }

    /// A word on why, shown by `nft list`.
    pub fn comment(mut self, text: &str) -> RuleBuilder {
        self.comment = Some(text.to_owned());
        self
    }

    fn with(mut self, expr: Expr) -> RuleBuilder {
        self.exprs.push(expr);
        self
    }

    fn words(&self) -> u32 {
        match self.family {
            Family::V4 => 1,
            Family::V6 => 4,
        }
    }

    fn load(mut self, field: Field, dreg: Reg) -> RuleBuilder {
        // Offsets of addresses: struct iphdr and struct ipv6hdr.
        let (saddr, daddr, len) = match self.family {
            Family::V4 => (12, 16, 4),
            Family::V6 => (8, 24, 16),
        };
        let network = |offset| Expr::Payload {
            base: Base::Network,
            offset,
            len,
            dreg,
        };
        let ct = |key| Expr::Ct {
            key,
            dir: Some(Dir::Original),
            dreg,
        };
        self.exprs.push(match field {
            Field::Saddr => network(saddr),
            Field::Daddr => network(daddr),
            Field::Proto => Expr::Meta {
                key: MetaKey::L4Proto,
                dreg,
            },
            Field::Dport => Expr::Payload {
                base: Base::Transport,
                offset: 2,
                len: 2,
                dreg,
            },
            Field::OrigDaddr => ct(match self.family {
                Family::V4 => CtKey::DstIp,
                Family::V6 => CtKey::DstIp6,
            }),
            Field::OrigDport => ct(CtKey::ProtoDst),
            Field::Pick { slots, offset } => Expr::Numgen {
                modulus: slots,
                offset,
                dreg,
            },
        });
        self
    }

    /// Loads fields side by side from register `first`; gives back the next free register.
    fn key(mut self, fields: &[Field], first: u32) -> (RuleBuilder, u32) {
        let mut next = first;
        for &field in fields {
            self = self.load(field, Reg::r32(next));
            next += match field {
                Field::Saddr | Field::Daddr | Field::OrigDaddr => self.words(),
                Field::Proto | Field::Dport | Field::OrigDport | Field::Pick { .. } => 1,
            };
        }
        (self, next)
    }

    /// `FIELDS @set` or `FIELDS != @set`.
    pub fn member(self, fields: &[Field], set: SetId, is: Is) -> RuleBuilder {
        let expect = match is {
            Is::Yes => Lookup::Present,
            Is::Not => Lookup::Absent,
        };
        let sreg = Reg::r32(0);
        self.key(fields, 0).0.with(Expr::Lookup {
            set: set.to_string(),
            sreg,
            dreg: None,
            expect,
        })
    }

    /// `FIELDS vmap @map`.
    pub fn vmap(self, fields: &[Field], map: SetId) -> RuleBuilder {
        self.lookup(fields, map, Reg::VERDICT)
    }

    fn lookup(self, fields: &[Field], map: SetId, dreg: Reg) -> RuleBuilder {
        let (set, sreg, expect) = (map.to_string(), Reg::r32(0), Lookup::Present);
        self.key(fields, 0).0.with(Expr::Lookup {
            set,
            sreg,
            dreg: Some(dreg),
            expect,
        })
    }

    /// `dnat to FIELDS map @map`; ends the rule set for packets that are found.
    pub fn dnat(self, fields: &[Field], map: SetId) -> RuleBuilder {
        let (family, port) = (nft_family(self.family), Reg::r32(self.words()));
        self.lookup(fields, map, Reg::r32(0)).with(Expr::Nat {
            kind: NatKind::Dnat,
            family,
            addr: Reg::r32(0),
            port: Some(port),
            flags: 0,
        })
    }

    /// `update @map { saddr . original daddr . proto . original dport : daddr . dport }`.
    pub fn learn(self, map: SetId) -> RuleBuilder {
        let key = [
            Field::Saddr,
            Field::OrigDaddr,
            Field::Proto,
            Field::OrigDport,
        ];
        let (rule, data) = self.key(&key, 0);
        let (rule, _) = rule.key(&[Field::Daddr, Field::Dport], data);
        rule.with(Expr::Dynset {
            op: DynsetOp::Update,
            set: map.to_string(),
            key: Reg::r32(0),
            data: Some(Reg::r32(data)),
            timeout_ms: None,
        })
    }

    fn cmp(self, op: CmpOp, data: Vec<u8>) -> RuleBuilder {
        self.with(Expr::Cmp {
            op,
            sreg: Reg::r32(0),
            data,
        })
    }

    /// `meta l4proto P`.
    pub fn protocol(self, protocol: Protocol) -> RuleBuilder {
        self.load(Field::Proto, Reg::r32(0))
            .cmp(CmpOp::Eq, vec![protocol.number()])
    }

    /// `saddr NET` or `saddr != NET`.
    pub fn source_in(self, net: IpNet, is: Is) -> RuleBuilder {
        self.prefix(Field::Saddr, net, is)
    }

    /// `daddr NET`.
    pub fn destination_in(self, net: IpNet) -> RuleBuilder {
        self.prefix(Field::Daddr, net, Is::Yes)
    }

    /// `daddr != 127.0.0.0/8`, or `daddr != ::1`.
    pub fn destination_not_loopback(self) -> RuleBuilder {
        let loopback = match self.family {
            Family::V4 => IpNet::V4(ipnet::Ipv4Net::new_assert([127, 0, 0, 0].into(), 8)),
            Family::V6 => IpNet::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST)),
        };
        self.prefix(Field::Daddr, loopback, Is::Not)
    }

    fn prefix(self, field: Field, net: IpNet, is: Is) -> RuleBuilder {
        let mut rule = self.load(field, Reg::r32(0));
        if net.prefix_len() < net.max_prefix_len() {
            rule = rule.masked(octets(net.netmask()));
        }
        rule.cmp(comparison(is), octets(net.network()))
    }

    /// Register 0 `&` mask, the rest cleared.
    fn masked(self, mask: Vec<u8>) -> RuleBuilder {
        let zero = vec![0; mask.len()];
        self.bitwise(mask, zero)
    }

    fn bitwise(self, mask: Vec<u8>, xor: Vec<u8>) -> RuleBuilder {
        let (reg, len) = (Reg::r32(0), mask.len() as u32);
        self.with(Expr::Bitwise {
            sreg: reg,
            dreg: reg,
            len,
            mask,
            xor,
        })
    }

    /// `iifname NAME` or `iifname != NAME`.
    pub fn input_interface(self, name: &str, is: Is) -> RuleBuilder {
        let mut padded = name.as_bytes().to_vec();
        padded.resize(INTERFACE_NAME, 0);
        self.interface(padded, is)
    }

    /// `iifname PREFIX*` or `iifname != PREFIX*`.
    pub fn input_interface_prefix(self, prefix: &str, is: Is) -> RuleBuilder {
        self.interface(prefix.as_bytes().to_vec(), is)
    }

    fn interface(self, name: Vec<u8>, is: Is) -> RuleBuilder {
        self.with(Expr::Meta {
            key: MetaKey::IifName,
            dreg: Reg::r32(0),
        })
        .cmp(comparison(is), name)
    }

    fn fib_local(self, flags: u32) -> RuleBuilder {
        self.with(Expr::Fib {
            flags,
            result: FibResult::AddrType,
            dreg: Reg::r32(0),
        })
        .cmp(CmpOp::Eq, RTN_LOCAL.to_ne_bytes().to_vec())
    }

    /// `fib saddr type local`.
    pub fn source_is_local(self) -> RuleBuilder {
        self.fib_local(fib::SADDR)
    }

    /// `fib daddr type local`.
    pub fn destination_is_local(self) -> RuleBuilder {
        self.fib_local(fib::DADDR)
    }

    fn ct_bit(self, key: CtKey, bit: u32) -> RuleBuilder {
        self.with(Expr::Ct {
            key,
            dir: None,
            dreg: Reg::r32(0),
        })
        .masked(bit.to_ne_bytes().to_vec())
        .cmp(CmpOp::Neq, vec![0; 4])
    }

    /// `ct state STATE`.
    pub fn ct_state(self, state: u32) -> RuleBuilder {
        self.ct_bit(CtKey::State, state)
    }

    /// `ct status STATUS`.
    pub fn ct_status(self, status: u32) -> RuleBuilder {
        self.ct_bit(CtKey::Status, status)
    }

    fn load_mark(self) -> RuleBuilder {
        self.with(Expr::Meta {
            key: MetaKey::Mark,
            dreg: Reg::r32(0),
        })
    }

    fn set_mark(self) -> RuleBuilder {
        self.with(Expr::MetaSet {
            key: MetaKey::Mark,
            sreg: Reg::r32(0),
        })
    }

    /// `meta mark set mark | MARK`.
    pub fn mark(self, mark: u32) -> RuleBuilder {
        let bits = mark.to_ne_bytes().to_vec();
        self.load_mark()
            .bitwise((!mark).to_ne_bytes().to_vec(), bits)
            .set_mark()
    }

    /// `meta mark set mark ^ MARK`.
    pub fn unmark(self, mark: u32) -> RuleBuilder {
        let bits = mark.to_ne_bytes().to_vec();
        self.load_mark()
            .bitwise(u32::MAX.to_ne_bytes().to_vec(), bits)
            .set_mark()
    }

    /// `meta mark & MARK != 0`.
    pub fn marked(self, mark: u32) -> RuleBuilder {
        self.load_mark()
            .masked(mark.to_ne_bytes().to_vec())
            .cmp(CmpOp::Neq, vec![0; 4])
    }

    fn verdict(self, verdict: Verdict) -> RuleBuilder {
        self.with(Expr::Verdict(verdict))
    }

    /// `goto CHAIN`.
    pub fn goto(self, chain: &str) -> RuleBuilder {
        self.verdict(Verdict::Goto(chain.to_owned()))
    }

    /// `jump CHAIN`.
    pub fn jump(self, chain: &str) -> RuleBuilder {
        self.verdict(Verdict::Jump(chain.to_owned()))
    }

    /// `drop`.
    pub fn drop(self) -> RuleBuilder {
        self.verdict(Verdict::Drop)
    }

    /// `reject`: ICMP port unreachable, which a local TCP client sees as a refusal at once.
    pub fn reject(self) -> RuleBuilder {
        // ICMP_PORT_UNREACH and ICMPV6_PORT_UNREACH.
        let code = match self.family {
            Family::V4 => 3,
            Family::V6 => 4,
        };
        self.with(Expr::Reject {
            kind: RejectKind::IcmpUnreach,
            code,
        })
    }

    /// `masquerade fully-random`.
    pub fn masquerade(self) -> RuleBuilder {
        self.with(Expr::Masquerade {
            flags: nat::RANDOM_FULLY,
        })
    }
}

fn comparison(is: Is) -> CmpOp {
    match is {
        Is::Yes => CmpOp::Eq,
        Is::Not => CmpOp::Neq,
    }
}

/// An address in network order.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Our table of an IP family.
pub fn table_id(family: Family) -> nft::TableId<'static> {
    nft::TableId {
        family: nft_family(family),
        name: TABLE,
    }
}

/// The table family of an IP family.
pub fn nft_family(family: Family) -> nft::Family {
    match family {
        Family::V4 => nft::Family::Ipv4,
        Family::V6 => nft::Family::Ipv6,
    }
}
