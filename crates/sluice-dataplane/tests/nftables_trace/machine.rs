//! Runs a packet through a table's rules, instruction by instruction.

use std::net::IpAddr;

use sluice_dataplane::nftables::element::{SetId, Value};
use sluice_dataplane::nftables::layout::{encode_endpoint, encode_key};
use sluice_model::fact::Protocol;
use sluice_model::oracle::{Origin, Packet, Reach};
use sluice_netlink::nft::{
    Base, CmpOp, CtKey, Expr, Hook, HookKind, Lookup, MetaKey, Reg, Rule, Verdict,
};

use crate::fake::{FakeTable, target};

/// How a packet fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Untouched,
    Refused,
    Dropped,
    Translated {
        ip: IpAddr,
        port: u16,
        masqueraded: bool,
    },
}

enum Flow {
    /// The end of the rules was reached.
    Next,
    Accept,
    Drop,
    Reject,
    Masquerade,
    Dnat(IpAddr, u16),
}

/// The packet on its way.
struct Wire<'a> {
    table: &'a FakeTable,
    packet: &'a Packet,
    /// Which random slot is picked, before the modulus.
    pick: u32,
    daddr: IpAddr,
    dport: u16,
    mark: u32,
    translated: bool,
}

/// Sends the first packet of a connection through all hooks.
pub(crate) fn send(table: &FakeTable, packet: &Packet, pick: u32) -> Fate {
    let mut wire = Wire {
        table,
        packet,
        pick,
        daddr: packet.destination,
        dport: packet.port,
        mark: 0,
        translated: false,
    };
    let first = match packet.origin {
        Origin::Process => Hook::OUTPUT,
        Origin::Interface(_) => Hook::PREROUTING,
    };
    let mut masqueraded = false;
    if let Some(fate) = wire.pass(first, &mut masqueraded) {
        return fate;
    }
    let here = !wire.translated && packet.reach == Reach::Here;
    let last: &[u32] = match (here, packet.origin == Origin::Process) {
        (true, false) => &[Hook::INPUT],
        (true, true) => &[Hook::POSTROUTING, Hook::PREROUTING, Hook::INPUT],
        (false, false) => &[Hook::FORWARD, Hook::POSTROUTING],
        (false, true) => &[Hook::POSTROUTING],
    };
    for hook in last {
        if let Some(fate) = wire.pass(*hook, &mut masqueraded) {
            return fate;
        }
    }
    match wire.translated {
        true => Fate::Translated {
            ip: wire.daddr,
            port: wire.dport,
            masqueraded,
        },
        false => Fate::Untouched,
    }
}

impl Wire<'_> {
    /// One hook: its base chains by priority. A connection is translated once.
    fn pass(&mut self, number: u32, masqueraded: &mut bool) -> Option<Fate> {
        let mut chains: Vec<_> = self
            .table
            .chains
            .values()
            .filter_map(|(chain, _)| Some((chain.hook?, &chain.name)))
            .filter(|(hook, _)| hook.number == number)
            .collect();
        chains.sort_by_key(|(hook, _)| hook.priority);
        for (hook, name) in chains {
            let nat = hook.kind == HookKind::Nat;
            if nat && self.translated && number != Hook::POSTROUTING {
                continue;
            }
            match self.chain(name) {
                Flow::Next | Flow::Accept => {}
                Flow::Drop => return Some(Fate::Dropped),
                Flow::Reject => return Some(Fate::Refused),
                Flow::Masquerade => *masqueraded = true,
                Flow::Dnat(ip, port) => {
                    (self.daddr, self.dport, self.translated) = (ip, port, true);
                }
            }
        }
        None
    }

    fn chain(&mut self, name: &str) -> Flow {
        let (_, rules) = &self.table.chains[name];
        for rule in rules {
            match self.rule(rule) {
                Flow::Next => {}
                end => return end,
            }
        }
        Flow::Next
    }

    fn rule(&mut self, rule: &Rule) -> Flow {
        let mut regs = Registers([0; 64]);
        for expr in &rule.exprs {
            match self.step(expr, &mut regs) {
                Step::On => {}
                Step::Break => return Flow::Next,
                Step::Verdict(Verdict::Goto(chain)) => {
                    return match self.chain(&chain) {
                        // What a goto leaves does not come back to this chain.
                        Flow::Next => Flow::Accept,
                        end => end,
                    };
                }
                Step::Verdict(Verdict::Jump(chain)) => return self.chain(&chain),
                Step::Verdict(Verdict::Drop) => return Flow::Drop,
                Step::Verdict(Verdict::Accept) => return Flow::Accept,
                Step::Verdict(Verdict::Return | Verdict::Continue) => return Flow::Next,
                Step::End(flow) => return flow,
            }
        }
        Flow::Next
    }

    fn step(&mut self, expr: &Expr, regs: &mut Registers) -> Step {
        match expr {
            Expr::Payload {
                base,
                offset,
                len,
                dreg,
            } => {
                regs.write(*dreg, &self.payload(*base, *offset, *len));
            }
            Expr::Meta {
                key: MetaKey::L4Proto,
                dreg,
            } => {
                regs.write(*dreg, &[self.packet.protocol.number()]);
            }
            Expr::Meta {
                key: MetaKey::Mark,
                dreg,
            } => regs.write(*dreg, &self.mark.to_ne_bytes()),
            Expr::Meta {
                key: MetaKey::IifName,
                dreg,
            } => {
                // Where there is no interface, the kernel stores an empty name.
                let mut padded = match &self.packet.origin {
                    Origin::Interface(name) => name.as_bytes().to_vec(),
                    Origin::Process => Vec::new(),
                };
                padded.resize(16, 0);
                regs.write(*dreg, &padded);
            }
            Expr::MetaSet {
                key: MetaKey::Mark,
                sreg,
            } => self.mark = regs.word(*sreg),
            Expr::Ct { key, dreg, .. } => regs.write(*dreg, &self.connection(*key)),
            Expr::Fib { flags, dreg, .. } => {
                let daddr = *flags & sluice_netlink::nft::fib::DADDR != 0;
                let local = match daddr {
                    true => !self.translated && self.packet.reach == Reach::Here,
                    false => self.packet.origin == Origin::Process,
                };
                regs.write(*dreg, &u32::from(local).wrapping_add(1).to_ne_bytes());
            }
            Expr::Cmp { op, sreg, data } => {
                let equal = regs.read(*sreg, data.len()) == &data[..];
                let holds = match op {
                    CmpOp::Eq => equal,
                    CmpOp::Neq => !equal,
                    CmpOp::Lt | CmpOp::Lte | CmpOp::Gt | CmpOp::Gte => panic!("not used"),
                };
                if !holds {
                    return Step::Break;
                }
            }
            Expr::Bitwise {
                sreg,
                dreg,
                mask,
                xor,
                ..
            } => {
                let bits = regs.read(*sreg, mask.len()).iter().zip(mask).zip(xor);
                let bits: Vec<u8> = bits.map(|((b, m), x)| (b & m) ^ x).collect();
                regs.write(*dreg, &bits);
            }
            Expr::Numgen {
                modulus,
                offset,
                dreg,
            } => {
                regs.write(*dreg, &(offset + self.pick % modulus).to_ne_bytes());
            }
            Expr::Lookup {
                set,
                sreg,
                dreg,
                expect,
            } => {
                return self.lookup(set, regs, (*sreg, *dreg, *expect));
            }
            Expr::Verdict(verdict) => return Step::Verdict(verdict.clone()),
            Expr::Nat { addr, port, .. } => {
                let port = regs.read(port.expect("dnat to a port"), 2);
                let port = u16::from_be_bytes([port[0], port[1]]);
                return Step::End(Flow::Dnat(self.address(regs, *addr), port));
            }
            Expr::Masquerade { .. } => return Step::End(Flow::Masquerade),
            Expr::Reject { .. } => return Step::End(Flow::Reject),
            Expr::Dynset { .. } | Expr::Counter { .. } => {}
            Expr::Meta { .. }
            | Expr::MetaSet { .. }
            | Expr::Immediate { .. }
            | Expr::Redirect { .. }
            | Expr::Unknown(_) => panic!("the program does not use {expr}"),
        }
        Step::On
    }

    fn lookup(
        &self,
        set: &str,
        regs: &mut Registers,
        (sreg, dreg, expect): (Reg, Option<Reg>, Lookup),
    ) -> Step {
        let set = SetId::parse(set).expect("a set of ours");
        let found = self.find(set, regs, sreg);
        match (found, dreg) {
            (None, Some(_)) => Step::Break,
            (Some(Value::Endpoint(ip, port)), Some(dreg)) => {
                regs.write(dreg, &encode_endpoint(ip, port));
                Step::On
            }
            (Some(Value::Drop), Some(_)) => Step::Verdict(Verdict::Drop),
            (Some(value), Some(_)) => Step::Verdict(Verdict::Goto(
                target(value).expect("a verdict leads somewhere"),
            )),
            (found, None) if found.is_some() == (expect == Lookup::Present) => Step::On,
            (_, None) => Step::Break,
        }
    }

    fn find(&self, set: SetId, regs: &Registers, sreg: Reg) -> Option<Value> {
        self.table
            .elements
            .iter()
            .filter(|((s, _), _)| *s == set)
            .find_map(|((_, key), value)| {
                let (first, last) = encode_key(key);
                let seen = regs.read(sreg, first.len());
                let last = last.as_ref().unwrap_or(&first);
                (&first[..] <= seen && seen <= &last[..]).then_some(*value)
            })
    }

    fn payload(&self, base: Base, offset: u32, len: u32) -> Vec<u8> {
        let bytes = |ip: IpAddr| encode_endpoint(ip, 0);
        match (base, offset, len) {
            (Base::Network, 12 | 8, 4 | 16) => bytes(self.packet.source)[..len as usize].to_vec(),
            (Base::Network, 16 | 24, 4 | 16) => bytes(self.daddr)[..len as usize].to_vec(),
            (Base::Transport, 2, 2) => self.dport.to_be_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn connection(&self, key: CtKey) -> Vec<u8> {
        match key {
            CtKey::State => 8u32.to_ne_bytes().to_vec(),
            CtKey::Status => (u32::from(self.translated) << 5).to_ne_bytes().to_vec(),
            CtKey::DstIp => encode_endpoint(self.packet.destination, 0)[..4].to_vec(),
            CtKey::DstIp6 => encode_endpoint(self.packet.destination, 0)[..16].to_vec(),
            CtKey::ProtoDst => self.packet.port.to_be_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn address(&self, regs: &Registers, reg: Reg) -> IpAddr {
        match self.packet.destination {
            IpAddr::V4(_) => IpAddr::from(<[u8; 4]>::try_from(regs.read(reg, 4)).expect("4 bytes")),
            IpAddr::V6(_) => {
                IpAddr::from(<[u8; 16]>::try_from(regs.read(reg, 16)).expect("16 bytes"))
            }
        }
    }
}

enum Step {
    On,
    Break,
    Verdict(Verdict),
    End(Flow),
}

/// Sixteen registers of four bytes.
struct Registers([u8; 64]);

impl Registers {
    fn start(reg: Reg) -> usize {
        (reg.0 as usize - 8) * 4
    }

    fn write(&mut self, reg: Reg, bytes: &[u8]) {
        let start = Self::start(reg);
        let end = start + bytes.len().next_multiple_of(4);
        self.0[start..end].fill(0);
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, reg: Reg, len: usize) -> &[u8] {
        &self.0[Self::start(reg)..][..len]
    }

    fn word(&self, reg: Reg) -> u32 {
        u32::from_ne_bytes(self.read(reg, 4).try_into().expect("4 bytes"))
    }
}

/// The protocols that packets are tried with.
pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
