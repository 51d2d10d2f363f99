//! Expressions as attributes: `NFTA_EXPR_NAME` and, nested, `NFTA_EXPR_DATA`.

use super::Family;
use super::expr::{
    Base, CmpOp, CtKey, Dir, DynsetOp, Expr, FibResult, Lookup, MetaKey, NatKind, Reg, RejectKind,
    Verdict, nat,
};
use crate::wire::{Attr, Attrs, Writer};

/// `NFTA_LIST_ELEM`.
pub(super) const LIST_ELEM: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

/// `NFT_NG_RANDOM`.
const NUMGEN_RANDOM: u32 = 1;
/// `NFT_LOOKUP_F_INV`.
const LOOKUP_INVERT: u32 = 1;
/// `NFT_BITWISE_MASK_XOR`.
const BITWISE_MASK_XOR: u32 = 0;

/// `enum nft_verdicts` and `linux/netfilter.h`.
mod code {
    pub(super) const DROP: i32 = 0;
    pub(super) const ACCEPT: i32 = 1;
    pub(super) const CONTINUE: i32 = -1;
    pub(super) const JUMP: i32 = -3;
    pub(super) const GOTO: i32 = -4;
    pub(super) const RETURN: i32 = -5;
}

/// A value within `kind`.
pub(super) fn put_value(writer: &mut Writer<'_>, kind: u16, value: &[u8]) {
    writer.nest(kind, |writer| writer.bytes(DATA_VALUE, value));
}

/// A verdict within `kind`.
pub(super) fn put_verdict(writer: &mut Writer<'_>, kind: u16, verdict: Verdict<&str>) {
    let (code, chain) = match verdict {
        Verdict::Accept => (code::ACCEPT, None),
        Verdict::Drop => (code::DROP, None),
        Verdict::Return => (code::RETURN, None),
        Verdict::Continue => (code::CONTINUE, None),
        Verdict::Jump(chain) => (code::JUMP, Some(chain)),
        Verdict::Goto(chain) => (code::GOTO, Some(chain)),
    };
    writer.nest(kind, |writer| {
        writer.nest(DATA_VERDICT, |writer| {
            writer.be32(VERDICT_CODE, code as u32);
            if let Some(chain) = chain {
                writer.text(VERDICT_CHAIN, chain);
            }
        });
    });
}

/// The value that [`put_value`] wrote.
pub(super) fn value<'a>(attr: &Attr<'a>) -> Option<&'a [u8]> {
    Some(attr.nested().find(DATA_VALUE)?.value)
}

/// The verdict that [`put_verdict`] wrote.
pub(super) fn verdict<'a>(attr: &Attr<'a>) -> Option<Verdict<&'a str>> {
    let attrs = attr.nested().find(DATA_VERDICT)?.nested();
    let chain = || attrs.find(VERDICT_CHAIN)?.text();
    match attrs.find(VERDICT_CODE)?.be32()? as i32 {
        code::ACCEPT => Some(Verdict::Accept),
        code::DROP => Some(Verdict::Drop),
        code::RETURN => Some(Verdict::Return),
        code::CONTINUE => Some(Verdict::Continue),
        code::JUMP => Some(Verdict::Jump(chain()?)),
        code::GOTO => Some(Verdict::Goto(chain()?)),
        _ => None,
    }
}

/// Writes one expression as a list element.
pub(super) fn put(writer: &mut Writer<'_>, expr: &Expr) {
    let list = writer.open(LIST_ELEM);
    writer.text(EXPR_NAME, name(expr));
    writer.nest(EXPR_DATA, |writer| put_data(writer, expr));
    writer.close(list);
}

/// The kernel's name of an expression.
fn name(expr: &Expr) -> &str {
    match expr {
        Expr::Payload { .. } => "payload",
        Expr::Meta { .. } | Expr::MetaSet { .. } => "meta",
        Expr::Ct { .. } => "ct",
        Expr::Fib { .. } => "fib",
        Expr::Cmp { .. } => "cmp",
        Expr::Bitwise { .. } => "bitwise",
        Expr::Lookup { .. } => "lookup",
        Expr::Numgen { .. } => "numgen",
        Expr::Immediate { .. } | Expr::Verdict(_) => "immediate",
        Expr::Nat { .. } => "nat",
        Expr::Masquerade { .. } => "masq",
        Expr::Redirect { .. } => "redir",
        Expr::Reject { .. } => "reject",
        Expr::Dynset { .. } => "dynset",
        Expr::Counter { .. } => "counter",
        Expr::Unknown(name) => name,
    }
}

fn put_data(w: &mut Writer<'_>, expr: &Expr) {
    match expr {
        Expr::Payload {
            base,
            offset,
            len,
            dreg,
        } => {
            w.be32(1, dreg.0);
            w.be32(2, base.raw());
            w.be32(3, *offset);
            w.be32(4, *len);
        }
        Expr::Meta { key, dreg } => {
            w.be32(1, dreg.0);
            w.be32(2, key.raw());
        }
        Expr::MetaSet { key, sreg } => {
            w.be32(2, key.raw());
            w.be32(3, sreg.0);
        }
        Expr::Ct { key, dir, dreg } => {
            w.be32(1, dreg.0);
            w.be32(2, key.raw());
            if let Some(dir) = dir {
                w.u8(3, dir.raw() as u8);
            }
        }
        Expr::Fib {
            flags,
            result,
            dreg,
        } => {
            w.be32(1, dreg.0);
            w.be32(2, result.raw());
            w.be32(3, *flags);
        }
        Expr::Cmp { op, sreg, data } => {
            w.be32(1, sreg.0);
            w.be32(2, op.raw());
            put_value(w, 3, data);
        }
        Expr::Bitwise {
            sreg,
            dreg,
            len,
            mask,
            xor,
        } => {
            w.be32(1, sreg.0);
            w.be32(2, dreg.0);
            w.be32(3, *len);
            put_value(w, 4, mask);
            put_value(w, 5, xor);
        }
        Expr::Numgen {
            modulus,
            offset,
            dreg,
        } => {
            w.be32(1, dreg.0);
            w.be32(2, *modulus);
            w.be32(3, NUMGEN_RANDOM);
            w.be32(4, *offset);
        }
        Expr::Immediate { dreg, data } => {
            w.be32(1, dreg.0);
            put_value(w, 2, data);
        }
        Expr::Verdict(verdict) => {
            w.be32(1, Reg::VERDICT.0);
            put_verdict(w, 2, verdict.as_ref());
        }
        Expr::Counter { packets, bytes } => {
            w.be64(1, *bytes);
            w.be64(2, *packets);
        }
        Expr::Lookup { .. } | Expr::Dynset { .. } => put_set_use(w, expr),
        Expr::Nat { .. }
        | Expr::Masquerade { .. }
        | Expr::Redirect { .. }
        | Expr::Reject { .. } => put_statement(w, expr),
        Expr::Unknown(_) => {}
    }
}

fn put_set_use(w: &mut Writer<'_>, expr: &Expr) {
    if let Expr::Lookup {
        set,
        sreg,
        dreg,
        expect,
    } = expr
    {
        w.text(1, set);
        w.be32(2, sreg.0);
        if let Some(dreg) = dreg {
            w.be32(3, dreg.0);
        }
        if *expect == Lookup::Absent {
            w.be32(5, LOOKUP_INVERT);
        }
    }
    if let Expr::Dynset {
        op,
        set,
        key,
        data,
        timeout_ms,
    } = expr
    {
        w.text(1, set);
        w.be32(3, op.raw());
        w.be32(4, key.0);
        if let Some(data) = data {
            w.be32(5, data.0);
        }
        if let Some(timeout) = timeout_ms {
            w.be64(6, *timeout);
        }
    }
}

fn put_statement(w: &mut Writer<'_>, expr: &Expr) {
    if let Expr::Nat {
        kind,
        family,
        addr,
        port,
        flags,
    } = expr
    {
        w.be32(1, kind.raw());
        w.be32(2, u32::from(family.raw()));
        w.be32(3, addr.0);
        if let Some(port) = port {
            w.be32(5, port.0);
        }
        if *flags != 0 {
            w.be32(7, *flags);
        }
    }
    if let Expr::Masquerade { flags } = expr
        && *flags != 0
    {
        w.be32(1, *flags);
    }
    if let Expr::Redirect { port, flags } = expr {
        if let Some(port) = port {
            w.be32(1, port.0);
        }
        if *flags != 0 {
            w.be32(3, *flags);
        }
    }
    if let Expr::Reject { kind, code } = expr {
        w.be32(1, kind.raw());
        w.u8(2, *code);
    }
}

/// Reads a list element. What is not understood is [`Expr::Unknown`] with the kernel's name.
pub(super) fn get(element: Attrs<'_>) -> Option<Expr> {
    let name = element.find(EXPR_NAME)?.text()?;
    let data = element
        .find(EXPR_DATA)
        .map_or(Attrs(&[]), |attr| attr.nested());
    Some(get_known(name, data).unwrap_or_else(|| Expr::Unknown(name.to_owned())))
}

fn get_known(name: &str, data: Attrs<'_>) -> Option<Expr> {
    let word = |kind| data.find(kind)?.be32();
    let reg = |kind| Some(Reg(word(kind)?).canonical());
    let bytes = |kind| Some(value(&data.find(kind)?)?.to_vec());
    Some(match name {
        "payload" => Expr::Payload {
            dreg: reg(1)?,
            base: Base::from_raw(word(2)?)?,
            offset: word(3)?,
            len: word(4)?,
        },
        "meta" => {
            let key = MetaKey::from_raw(word(2)?)?;
            match reg(3) {
                Some(sreg) => Expr::MetaSet { key, sreg },
                None => Expr::Meta { key, dreg: reg(1)? },
            }
        }
        "ct" => Expr::Ct {
            dreg: reg(1)?,
            key: CtKey::from_raw(word(2)?)?,
            dir: match data.find(3) {
                Some(attr) => Some(Dir::from_raw(u32::from(attr.u8()?))?),
                None => None,
            },
        },
        "fib" => Expr::Fib {
            dreg: reg(1)?,
            result: FibResult::from_raw(word(2)?)?,
            flags: word(3)?,
        },
        "cmp" => Expr::Cmp {
            sreg: reg(1)?,
            op: CmpOp::from_raw(word(2)?)?,
            data: bytes(3)?,
        },
        "bitwise" if word(6).is_none_or(|op| op == BITWISE_MASK_XOR) => Expr::Bitwise {
            sreg: reg(1)?,
            dreg: reg(2)?,
            len: word(3)?,
            mask: bytes(4)?,
            xor: bytes(5)?,
        },
        "numgen" if word(3)? == NUMGEN_RANDOM => Expr::Numgen {
            dreg: reg(1)?,
            modulus: word(2)?,
            offset: word(4).unwrap_or(0),
        },
        "immediate" if reg(1)? == Reg::VERDICT => {
            Expr::Verdict(verdict(&data.find(2)?)?.to_owned())
        }
        "immediate" => Expr::Immediate {
            dreg: reg(1)?,
            data: bytes(2)?,
        },
        "counter" => Expr::Counter {
            bytes: data.find(1)?.be64()?,
            packets: data.find(2)?.be64()?,
        },
        "lookup" | "dynset" => return get_set_use(name, data),
        "nat" | "masq" | "redir" | "reject" => return get_statement(name, data),
        _ => return None,
    })
}

fn get_set_use(name: &str, data: Attrs<'_>) -> Option<Expr> {
    let word = |kind| data.find(kind)?.be32();
    let reg = |kind| Some(Reg(word(kind)?).canonical());
    let set = data.find(1)?.text()?.to_owned();
    Some(if name == "lookup" {
        Expr::Lookup {
            set,
            sreg: reg(2)?,
            dreg: reg(3),
            expect: match word(5).unwrap_or(0) & LOOKUP_INVERT {
                0 => Lookup::Present,
                _ => Lookup::Absent,
            },
        }
    } else {
        // Flags: inverted, or with expressions of its own; this crate writes neither.
        if word(9).unwrap_or(0) != 0 {
            return None;
        }
        Expr::Dynset {
            set,
            op: DynsetOp::from_raw(word(3)?)?,
            key: reg(4)?,
            data: reg(5),
            timeout_ms: data
                .find(6)
                .and_then(|attr| attr.be64())
                .filter(|ms| *ms != 0),
        }
    })
}

fn get_statement(name: &str, data: Attrs<'_>) -> Option<Expr> {
    let word = |kind| data.find(kind)?.be32();
    let reg = |kind| Some(Reg(word(kind)?).canonical());
    let flags = |kind| word(kind).unwrap_or(0) & !nat::IMPLIED;
    // A range of addresses or ports is not something this crate writes.
    let same = |low, high| reg(high).is_none_or(|high| Some(high) == reg(low));
    match name {
        "nat" if same(3, 4) && same(5, 6) => Some(Expr::Nat {
            kind: NatKind::from_raw(word(1)?)?,
            family: Family::from_raw(u8::try_from(word(2)?).ok()?)?,
            addr: reg(3)?,
            port: reg(5),
            flags: flags(7),
        }),
        "masq" if reg(2).is_none() => Some(Expr::Masquerade { flags: flags(1) }),
        "redir" if same(1, 2) => Some(Expr::Redirect {
            port: reg(1),
            flags: flags(3),
        }),
        "reject" => Some(Expr::Reject {
            kind: RejectKind::from_raw(word(1)?)?,
            code: data.find(2).and_then(|attr| attr.u8()).unwrap_or(0),
        }),
        _ => None,
    }
}
