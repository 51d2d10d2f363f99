//! Expressions: the instructions of a rule, as typed values.

/// Defines an enum whose variants are numbers of the kernel with a word of nft each.
macro_rules! kernel_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $raw:literal, $word:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The kernel's number.
            pub const fn raw(self) -> u32 {
                match self { $($name::$variant => $raw,)* }
            }

            /// The variant of a number, if it is one of these.
            pub const fn from_raw(raw: u32) -> Option<Self> {
                match raw { $($raw => Some($name::$variant),)* _ => None }
            }

            /// nft's word.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

use super::Family;

/// A register. Values are kept in 32-bit registers: wide values and concatenations take several
/// in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

impl Reg {
    /// `NFT_REG_VERDICT`.
    pub const VERDICT: Reg = Reg(0);

    /// The `index`th 32-bit register, 0 to 15 (`NFT_REG32_00` is 8).
    pub const fn r32(index: u32) -> Reg {
        Reg(8 + index)
    }

    /// The register as one of 32 bits: the kernel names the first of four by the old 128-bit
    /// numbers, 1 to 4, when it lists a rule.
    pub(crate) const fn canonical(self) -> Reg {
        match self.0 {
            wide @ 1..=4 => Reg(8 + (wide - 1) * 4),
            other => Reg(other),
        }
    }
}

kernel_enum! {
    /// The header an offset counts from (`enum nft_payload_bases`).
    Base {
        /// Link layer.
        Link = 0, "link";
        /// Network layer.
        Network = 1, "network";
        /// Transport layer.
        Transport = 2, "transport";
    }
}

kernel_enum! {
    /// What is known of a packet beside its bytes (`enum nft_meta_keys`).
    MetaKey {
        /// Packet length.
        Length = 0, "length";
        /// Ethertype.
        Protocol = 1, "protocol";
        /// Packet mark, host order.
        Mark = 3, "mark";
        /// Input interface index.
        Iif = 4, "iif";
        /// Output interface index.
        Oif = 5, "oif";
        /// Input interface name, 16 bytes.
        IifName = 6, "iifname";
        /// Output interface name, 16 bytes.
        OifName = 7, "oifname";
        /// Tracing on or off.
        NfTrace = 12, "nftrace";
        /// Netfilter family.
        NfProto = 15, "nfproto";
        /// Transport protocol number, one byte.
        L4Proto = 16, "l4proto";
        /// Packet type.
        PktType = 19, "pkttype";
        /// A random number.
        Random = 24, "random";
        /// Kind of the input interface, 16 bytes.
        IifKind = 26, "iifkind";
        /// Kind of the output interface, 16 bytes.
        OifKind = 27, "oifkind";
    }
}

kernel_enum! {
    /// What is known of a packet's connection (`enum nft_ct_keys`).
    CtKey {
        /// State, a bit: 1 invalid, 2 established, 4 related, 8 new, 64 untracked.
        State = 0, "state";
        /// Direction of the packet.
        Direction = 1, "direction";
        /// Status bits: 16 snat, 32 dnat.
        Status = 2, "status";
        /// Connection mark.
        Mark = 3, "mark";
        /// Network protocol.
        L3Proto = 7, "l3proto";
        /// Source address, of the connection's own family.
        Src = 8, "saddr";
        /// Destination address, of the connection's own family.
        Dst = 9, "daddr";
        /// Transport protocol.
        Protocol = 10, "protocol";
        /// Source port.
        ProtoSrc = 11, "proto-src";
        /// Destination port.
        ProtoDst = 12, "proto-dst";
        /// Zone.
        Zone = 17, "zone";
        /// Source IPv4 address.
        SrcIp = 19, "ip saddr";
        /// Destination IPv4 address.
        DstIp = 20, "ip daddr";
        /// Source IPv6 address.
        SrcIp6 = 21, "ip6 saddr";
        /// Destination IPv6 address.
        DstIp6 = 22, "ip6 daddr";
        /// Identity.
        Id = 23, "id";
    }
}

kernel_enum! {
    /// A direction of a connection (`enum ip_conntrack_dir`).
    Dir {
        /// As the first packet went.
        Original = 0, "original";
        /// As answers go.
        Reply = 1, "reply";
    }
}

kernel_enum! {
    /// What a route lookup yields (`enum nft_fib_result`).
    FibResult {
        /// Output interface index.
        Oif = 1, "oif";
        /// Output interface name.
        OifName = 2, "oifname";
        /// Address type (`RTN_LOCAL` is 2).
        AddrType = 3, "type";
    }
}

/// Flags of [`Expr::Fib`] (`enum nft_fib_flags`).
pub mod fib {
    /// Look up the source address.
    pub const SADDR: u32 = 1;
    /// Look up the destination address.
    pub const DADDR: u32 = 1 << 1;
    /// Use the packet mark.
    pub const MARK: u32 = 1 << 2;
    /// Restrict to the input interface.
    pub const IIF: u32 = 1 << 3;
    /// Restrict to the output interface.
    pub const OIF: u32 = 1 << 4;
    /// Only whether there is one.
    pub const PRESENT: u32 = 1 << 5;
}

/// Flags of [`Expr::Nat`], [`Expr::Masquerade`] and [`Expr::Redirect`]
/// (`linux/netfilter/nf_nat.h`).
pub mod nat {
    /// Random source port.
    pub const RANDOM: u32 = 1 << 2;
    /// The same mapping for the same client.
    pub const PERSISTENT: u32 = 1 << 3;
    /// Fully random source port.
    pub const RANDOM_FULLY: u32 = 1 << 4;
    /// What the kernel adds by itself: that addresses and ports are given.
    pub(crate) const IMPLIED: u32 = 0b11;
}

kernel_enum! {
    /// A comparison (`enum nft_cmp_ops`); the rule ends where it does not hold.
    CmpOp {
        /// Equal.
        Eq = 0, "==";
        /// Not equal.
        Neq = 1, "!=";
        /// Less, bytewise.
        Lt = 2, "<";
        /// Less or equal, bytewise.
        Lte = 3, "<=";
        /// Greater, bytewise.
        Gt = 4, ">";
        /// Greater or equal, bytewise.
        Gte = 5, ">=";
    }
}

kernel_enum! {
    /// Which end is translated (`enum nft_nat_types`).
    NatKind {
        /// Source.
        Snat = 0, "snat";
        /// Destination.
        Dnat = 1, "dnat";
    }
}

kernel_enum! {
    /// How a packet is refused (`enum nft_reject_types`).
    RejectKind {
        /// ICMP (or ICMPv6, by the table's family) unreachable with the code.
        IcmpUnreach = 0, "icmp";
        /// TCP reset; the code is 0.
        TcpRst = 1, "tcp reset";
        /// ICMP unreachable with a family-independent code.
        IcmpxUnreach = 2, "icmpx";
    }
}

kernel_enum! {
    /// What a packet does to a set (`enum nft_dynset_ops`).
    DynsetOp {
        /// Adds an element; one that is there stays as it is.
        Add = 0, "add";
        /// Adds an element or renews its time-out.
        Update = 1, "update";
        /// Removes an element.
        Delete = 2, "delete";
    }
}

/// Whether a lookup without a result register must find the key or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lookup {
    /// The key is in the set.
    Present,
    /// The key is not in the set (`NFT_LOOKUP_F_INV`).
    Absent,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict<S = String> {
    /// Through this hook.
    Accept,
    /// Nowhere.
    Drop,
    /// Back to the calling chain, or to the policy.
    Return,
    /// To the next rule.
    Continue,
    /// Into a chain, and back.
    Jump(S),
    /// Into a chain, not back.
    Goto(S),
}

impl<S: AsRef<str>> Verdict<S> {
    /// The same with borrowed names.
    pub fn as_ref(&self) -> Verdict<&str> {
        match self {
            Verdict::Accept => Verdict::Accept,
            Verdict::Drop => Verdict::Drop,
            Verdict::Return => Verdict::Return,
            Verdict::Continue => Verdict::Continue,
            Verdict::Jump(chain) => Verdict::Jump(chain.as_ref()),
            Verdict::Goto(chain) => Verdict::Goto(chain.as_ref()),
        }
    }

    /// The same with names of its own.
    pub fn to_owned(&self) -> Verdict {
        match self {
            Verdict::Accept => Verdict::Accept,
            Verdict::Drop => Verdict::Drop,
            Verdict::Return => Verdict::Return,
            Verdict::Continue => Verdict::Continue,
            Verdict::Jump(chain) => Verdict::Jump(chain.as_ref().to_owned()),
            Verdict::Goto(chain) => Verdict::Goto(chain.as_ref().to_owned()),
        }
    }
}

/// One instruction of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload {
        /// Header the offset counts from.
        base: Base,
        /// Bytes from there.
        offset: u32,
        /// Bytes to load.
        len: u32,
        /// Destination.
        dreg: Reg,
    },
    /// Loads what is known of the packet.
    Meta {
        /// Which.
        key: MetaKey,
        /// Destination.
        dreg: Reg,
    },
    /// Changes what is known of the packet.
    MetaSet {
        /// Which.
        key: MetaKey,
        /// Source.
        sreg: Reg,
    },
    /// Loads what is known of the connection.
    Ct {
        /// Which.
        key: CtKey,
        /// Direction, for addresses and ports.
        dir: Option<Dir>,
        /// Destination.
        dreg: Reg,
    },
    /// Looks up a route.
    Fib {
        /// Bits of [`fib`].
        flags: u32,
        /// What is loaded.
        result: FibResult,
        /// Destination.
        dreg: Reg,
    },
    /// Ends the rule unless the comparison holds.
    Cmp {
        /// Comparison.
        op: CmpOp,
        /// Left side.
        sreg: Reg,
        /// Right side.
        data: Vec<u8>,
    },
    /// `dreg = (sreg & mask) ^ xor`.
    Bitwise {
        /// Source.
        sreg: Reg,
        /// Destination.
        dreg: Reg,
        /// Bytes.
        len: u32,
        /// Mask, `len` bytes.
        mask: Vec<u8>,
        /// Bits to flip, `len` bytes.
        xor: Vec<u8>,
    },
    /// Looks a key up in a set or map; the rule ends when it is not there.
    Lookup {
        /// Set.
        set: String,
        /// Key.
        sreg: Reg,
        /// Where a map's value goes; [`Reg::VERDICT`] for a verdict map.
        dreg: Option<Reg>,
        /// Whether the key must be there.
        expect: Lookup,
    },
    /// Loads a random number, host order: `offset` to `offset + modulus - 1`.
    Numgen {
        /// Count of numbers, at least 1.
        modulus: u32,
        /// First number.
        offset: u32,
        /// Destination.
        dreg: Reg,
    },
    /// Loads a constant.
    Immediate {
        /// Destination.
        dreg: Reg,
        /// The constant.
        data: Vec<u8>,
    },
    /// Ends the rule with a verdict (an immediate to the verdict register).
    Verdict(Verdict),
    /// Translates an address.
    Nat {
        /// Which end.
        kind: NatKind,
        /// Family of the address.
        family: Family,
        /// Address.
        addr: Reg,
        /// Port, network order.
        port: Option<Reg>,
        /// Bits of [`nat`].
        flags: u32,
    },
    /// Translates the source to the address of the output interface.
    Masquerade {
        /// Bits of [`nat`].
        flags: u32,
    },
    /// Translates the destination to this machine.
    Redirect {
        /// Port, network order.
        port: Option<Reg>,
        /// Bits of [`nat`].
        flags: u32,
    },
    /// Refuses the packet.
    Reject {
        /// How.
        kind: RejectKind,
        /// ICMP code.
        code: u8,
    },
    /// Changes a set from the packet path.
    Dynset {
        /// Operation.
        op: DynsetOp,
        /// Set.
        set: String,
        /// Key.
        key: Reg,
        /// A map's value.
        data: Option<Reg>,
        /// Time-out other than the set's, milliseconds.
        timeout_ms: Option<u64>,
    },
    /// Counts packets and bytes.
    Counter {
        /// Packets so far.
        packets: u64,
        /// Bytes so far.
        bytes: u64,
    },
    /// One that this crate does not write, by its kernel name; only ever read.
    Unknown(String),
}
