//! Rules in words, for logs and differences. Close to nft's, with registers where nft has none.

use std::fmt;

use super::expr::{Expr, Lookup, Reg, RejectKind, Verdict, fib, nat};
use super::object::{Chain, Data, DataRef, Element, ElementEnd, ElementRef, Hook, Policy, Rule};

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.canonical().0 {
            0 => f.write_str("verdict"),
            other => write!(f, "r{}", other.saturating_sub(8)),
        }
    }
}

impl<S: fmt::Display> fmt::Display for Verdict<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accept => f.write_str("accept"),
            Verdict::Drop => f.write_str("drop"),
            Verdict::Return => f.write_str("return"),
            Verdict::Continue => f.write_str("continue"),
            Verdict::Jump(chain) => write!(f, "jump {chain}"),
            Verdict::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Words of the bits that are set, each with a blank before it.
struct Bits<'a>(u32, &'a [(u32, &'a str)]);

impl fmt::Display for Bits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bits(flags, words) = self;
        words
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .try_for_each(|(_, word)| write!(f, " {word}"))
    }
}

const NAT_FLAGS: &[(u32, &str)] = &[
    (nat::RANDOM, "random"),
    (nat::PERSISTENT, "persistent"),
    (nat::RANDOM_FULLY, "fully-random"),
];

const FIB_FLAGS: &[(u32, &str)] = &[
    (fib::SADDR, "saddr"),
    (fib::DADDR, "daddr"),
    (fib::MARK, "mark"),
    (fib::IIF, "iif"),
    (fib::OIF, "oif"),
    (fib::PRESENT, "exists"),
];

/// `: r4`, or nothing.
struct Port(Option<Reg>);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(port) => write!(f, " : {port}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Payload {
                base,
                offset,
                len,
                dreg,
            } => {
                write!(f, "{dreg} = {base} header {offset} length {len}")
            }
            Expr::Meta { key, dreg } => write!(f, "{dreg} = meta {key}"),
            Expr::MetaSet { key, sreg } => write!(f, "meta {key} set {sreg}"),
            Expr::Ct {
                key,
                dir: Some(dir),
                dreg,
            } => write!(f, "{dreg} = ct {dir} {key}"),
            Expr::Ct {
                key,
                dir: None,
                dreg,
            } => write!(f, "{dreg} = ct {key}"),
            Expr::Fib {
                flags,
                result,
                dreg,
            } => {
                write!(f, "{dreg} = fib{} {result}", Bits(*flags, FIB_FLAGS))
            }
            Expr::Cmp { op, sreg, data } => write!(f, "{sreg} {op} {}", Hex(data)),
            Expr::Bitwise {
                sreg,
                dreg,
                len: _,
                mask,
                xor,
            } => {
                write!(f, "{dreg} = {sreg} & {} ^ {}", Hex(mask), Hex(xor))
            }
            Expr::Lookup {
                set,
                sreg,
                dreg: Some(dreg),
                expect: _,
            } => {
                write!(f, "{dreg} = {sreg} map @{set}")
            }
            Expr::Lookup {
                set,
                sreg,
                dreg: None,
                expect,
            } => match expect {
                Lookup::Present => write!(f, "{sreg} @{set}"),
                Lookup::Absent => write!(f, "{sreg} != @{set}"),
            },
            Expr::Numgen {
                modulus,
                offset,
                dreg,
            } => {
                write!(f, "{dreg} = numgen random mod {modulus} offset {offset}")
            }
            Expr::Immediate { dreg, data } => write!(f, "{dreg} = {}", Hex(data)),
            Expr::Verdict(verdict) => verdict.fmt(f),
            Expr::Nat {
                kind,
                family,
                addr,
                port,
                flags,
            } => {
                write!(
                    f,
                    "{kind} {family} to {addr}{}{}",
                    Port(*port),
                    Bits(*flags, NAT_FLAGS)
                )
            }
            Expr::Masquerade { flags } => write!(f, "masquerade{}", Bits(*flags, NAT_FLAGS)),
            Expr::Redirect { port, flags } => {
                write!(f, "redirect to{}{}", Port(*port), Bits(*flags, NAT_FLAGS))
            }
            Expr::Reject {
                kind: kind @ RejectKind::TcpRst,
                code: _,
            } => {
                write!(f, "reject with {kind}")
            }
            Expr::Reject { kind, code } => write!(f, "reject with {kind} code {code}"),
            Expr::Dynset {
                op,
                set,
                key,
                data,
                timeout_ms,
            } => {
                write!(f, "{op} @{set} {{ {key}")?;
                if let Some(timeout) = timeout_ms {
                    write!(f, " timeout {timeout}ms")?;
                }
                write!(f, "{} }}", Port(*data))
            }
            Expr::Counter { packets, bytes } => {
                write!(f, "counter packets {packets} bytes {bytes}")
            }
            Expr::Unknown(name) => write!(f, "[{name}]"),
        }
    }
}

/// ` comment "text"`, or nothing.
struct Comment<'a>(Option<&'a str>);

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(comment) => write!(f, " comment {comment:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule {
            chain,
            exprs,
            comment,
        } = self;
        write!(f, "{chain}:")?;
        for (index, expr) in exprs.iter().enumerate() {
            let separator = if index == 0 { " " } else { "; " };
            write!(f, "{separator}{expr}")?;
        }
        Comment(comment.as_deref()).fmt(f)
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chain {
            name,
            hook,
            policy,
            comment,
        } = self;
        write!(f, "chain {name}")?;
        if let Some(
            hook @ Hook {
                kind,
                number: _,
                priority,
            },
        ) = hook
        {
            let policy = match policy {
                Policy::Accept => "accept",
                Policy::Drop => "drop",
            };
            let (kind, at) = (kind.word(), hook.number_word());
            write!(
                f,
                " type {kind} hook {at} priority {priority} policy {policy}"
            )?;
        }
        Comment(comment.as_deref()).fmt(f)
    }
}

impl fmt::Display for ElementRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ElementRef {
            key,
            key_end,
            data,
            timeout_ms,
            expiration_ms: _,
            comment,
            end,
        } = self;
        match end {
            ElementEnd::Start => Hex(key).fmt(f)?,
            ElementEnd::End => write!(f, "before {}", Hex(key))?,
            ElementEnd::CatchAll => f.write_str("*")?,
        }
        if let Some(key_end) = key_end {
            write!(f, "-{}", Hex(key_end))?;
        }
        if let Some(timeout) = timeout_ms {
            write!(f, " timeout {timeout}ms")?;
        }
        Comment(*comment).fmt(f)?;
        match data {
            DataRef::None => Ok(()),
            DataRef::Verdict(verdict) => write!(f, " : {verdict}"),
            DataRef::Value(value) => write!(f, " : {}", Hex(value)),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::None => f.write_str("nothing"),
            Data::Verdict(verdict) => verdict.fmt(f),
            Data::Value(value) => Hex(value).fmt(f),
        }
    }
}
