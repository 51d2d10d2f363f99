//! What nft keeps for itself beside an object: comments and the declarations of sets.
//!
//! Type, length (one byte each), value; nested values repeat that. The kernel stores up to 256
//! bytes unread. The numbers are libnftnl's (`include/libnftnl/udata.h`) and nft's; numbers in
//! values are of host order.

/// `NFTNL_UDATA_TABLE_COMMENT`, and of chains, rules and elements.
pub(super) const COMMENT: u8 = 0;
/// `NFTNL_UDATA_SET_COMMENT`.
const SET_COMMENT: u8 = 7;
/// `NFTNL_UDATA_COMMENT_MAXLEN`, NUL included.
const COMMENT_MAX: usize = 128;
/// `NFTNL_UDATA_SET_KEYBYTEORDER`, `..._DATABYTEORDER`, `..._KEY_TYPEOF`, `..._DATA_TYPEOF`.
const KEY_BYTE_ORDER: u8 = 0;
const DATA_BYTE_ORDER: u8 = 1;
const KEY_TYPEOF: u8 = 3;
const DATA_TYPEOF: u8 = 4;
/// `NFTNL_UDATA_SET_DATA_INTERVAL`.
const DATA_INTERVAL: u8 = 6;
/// `NFTNL_UDATA_SET_TYPEOF_EXPR`, `NFTNL_UDATA_SET_TYPEOF_DATA`.
const TYPEOF_EXPR: u8 = 0;
const TYPEOF_DATA: u8 = 1;
/// nft's `enum expr_types`.
const EXPR_VERDICT: u32 = 1;
const EXPR_PAYLOAD: u32 = 7;
const EXPR_META: u32 = 9;
const EXPR_CONCAT: u32 = 13;
const EXPR_NUMGEN: u32 = 23;
/// nft's `enum proto_desc_id`.
const HEADER_TCP: u32 = 8;
const HEADER_TH: u32 = 11;
const HEADER_IP: u32 = 12;
const HEADER_IP6: u32 = 13;
/// `NFT_NG_RANDOM`.
const NUMGEN_RANDOM: u32 = 1;

/// Appends a value.
fn put(buffer: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u8::MAX))];
    buffer.push(kind);
    buffer.push(value.len() as u8);
    buffer.extend_from_slice(value);
}

/// A comment alone; cut at a character to what nft reads.
pub(super) fn with_comment(kind: u8, comment: &str) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(comment.len() + 3);
    put_comment(&mut buffer, kind, comment);
    buffer
}

fn put_comment(buffer: &mut Vec<u8>, kind: u8, comment: &str) {
    let length = comment.floor_char_boundary(COMMENT_MAX - 1);
    let mut text = comment.as_bytes()[..length].to_vec();
    text.push(0);
    put(buffer, kind, &text);
}

/// Finds a comment.
pub(super) fn comment(mut userdata: &[u8], wanted: u8) -> Option<&str> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            let text = value.split(|byte| *byte == 0).next()?;
            return std::str::from_utf8(text).ok();
        }
        userdata = rest.get(usize::from(*length)..)?;
    }
    None
}

/// The userdata of a set or map that has only a comment.
pub fn set_comment(comment: &str) -> Vec<u8> {
    with_comment(SET_COMMENT, comment)
}

/// What a field of a key or value is, where its type alone does not tell: nft declares such sets
/// with `typeof`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `ip saddr`.
    IpSaddr,
    /// `ip daddr`.
    IpDaddr,
    /// `ip6 saddr`.
    Ip6Saddr,
    /// `ip6 daddr`.
    Ip6Daddr,
    /// `meta l4proto`.
    L4Proto,
    /// `th sport`: the source port of any protocol.
    ThSport,
    /// `th dport`: the destination port of any protocol. Declared as the port of a map's value,
    /// nft restores a listing to the same rules; nft 1.0.6 refuses to read it on top of the
    /// table that it lists, without a flush ("conflicting protocols specified").
    ThDport,
    /// `tcp dport`. Declared as the port of a map's value, nft can read its listing on top of
    /// the table; but it restricts rules that use the map to TCP when it restores them.
    TcpDport,
    /// `numgen random mod N`; the modulus is only for show.
    NumgenRandom(u32),
}

impl Field {
    /// nft's expression type and the values that describe it, numbered from 0.
    fn describe(self) -> (u32, Vec<u32>) {
        match self {
            Field::IpSaddr => (EXPR_PAYLOAD, vec![HEADER_IP, 11]),
            Field::IpDaddr => (EXPR_PAYLOAD, vec![HEADER_IP, 12]),
            Field::Ip6Saddr => (EXPR_PAYLOAD, vec![HEADER_IP6, 8]),
            Field::Ip6Daddr => (EXPR_PAYLOAD, vec![HEADER_IP6, 9]),
            Field::L4Proto => (EXPR_META, vec![super::MetaKey::L4Proto.raw()]),
            Field::ThSport => (EXPR_PAYLOAD, vec![HEADER_TH, 1]),
            Field::ThDport => (EXPR_PAYLOAD, vec![HEADER_TH, 2]),
            Field::TcpDport => (EXPR_PAYLOAD, vec![HEADER_TCP, 2]),
            Field::NumgenRandom(modulus) => (EXPR_NUMGEN, vec![NUMGEN_RANDOM, modulus, 0]),
        }
    }

    fn encode(self) -> Vec<u8> {
        let (expr, values) = self.describe();
        let mut data = Vec::new();
        for (kind, value) in (0..).zip(values) {
            put(&mut data, kind, &value.to_ne_bytes());
        }
        typeof_expr(expr, &data)
    }
}

fn typeof_expr(expr: u32, data: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    put(&mut buffer, TYPEOF_EXPR, &expr.to_ne_bytes());
    put(&mut buffer, TYPEOF_DATA, data);
    buffer
}

fn fields(fields: &[Field]) -> Vec<u8> {
    if let [single] = fields {
        return single.encode();
    }
    let mut concat = Vec::new();
    for (kind, field) in (0..).zip(fields) {
        put(&mut concat, kind, &field.encode());
    }
    typeof_expr(EXPR_CONCAT, &concat)
}

/// A field's byte order where it stands alone; a concatenation has none.
fn byte_order(fields: &[Field]) -> u32 {
    const HOST: u32 = 1;
    const BIG: u32 = 2;
    match fields {
        [Field::NumgenRandom(_)] => HOST,
        [_] => BIG,
        _ => 0,
    }
}

/// The userdata of a map that nft shows as `typeof KEY : DATA`, as nft 1.0.6 writes it.
pub fn typeof_map(key: &[Field], data: &[Field], comment: Option<&str>) -> Vec<u8> {
    declaration(key, Some((byte_order(data), fields(data))), comment)
}

/// The userdata of a map that nft shows as `typeof KEY : verdict`.
pub fn typeof_verdict_map(key: &[Field], comment: Option<&str>) -> Vec<u8> {
    declaration(key, Some((0, typeof_expr(EXPR_VERDICT, &[]))), comment)
}

/// The userdata of a set that nft shows as `typeof KEY`.
pub fn typeof_set(key: &[Field], comment: Option<&str>) -> Vec<u8> {
    declaration(key, None, comment)
}

fn declaration(key: &[Field], data: Option<(u32, Vec<u8>)>, comment: Option<&str>) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(192);
    put(&mut buffer, KEY_BYTE_ORDER, &byte_order(key).to_ne_bytes());
    if let Some((order, _)) = &data {
        put(&mut buffer, DATA_BYTE_ORDER, &order.to_ne_bytes());
    }
    put(&mut buffer, KEY_TYPEOF, &fields(key));
    if let Some((_, expr)) = &data {
        put(&mut buffer, DATA_TYPEOF, expr);
        // Values are values, not ranges.
        put(&mut buffer, DATA_INTERVAL, &[0; 4]);
    }
    if let Some(comment) = comment {
        put_comment(&mut buffer, SET_COMMENT, comment);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_cut_at_a_character_to_what_nft_reads() {
        let long = "é".repeat(100);
        let userdata = set_comment(&long);
        assert_eq!(userdata[..2], [7, 127]);
        assert_eq!(
            comment(&userdata, SET_COMMENT),
            Some("é".repeat(63).as_str())
        );
        assert_eq!(comment(&userdata, COMMENT), None);
    }

    #[test]
    fn a_typeof_map_is_written_byte_for_byte_as_nft_writes_it() {
        // nft 1.0.6: `typeof ip daddr . numgen random mod 2 : ip daddr`, read back from a kernel.
        let userdata = typeof_map(
            &[Field::IpDaddr, Field::NumgenRandom(2)],
            &[Field::IpDaddr],
            None,
        );
        #[rustfmt::skip]
        let expected = [
            0, 4, 0, 0, 0, 0,
            1, 4, 2, 0, 0, 0,
            3, 58,
                0, 4, 13, 0, 0, 0,
                1, 50,
                    0, 20,
                        0, 4, 7, 0, 0, 0,
                        1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
                    1, 26,
                        0, 4, 23, 0, 0, 0,
                        1, 18, 0, 4, 1, 0, 0, 0, 1, 4, 2, 0, 0, 0, 2, 4, 0, 0, 0, 0,
            4, 20,
                0, 4, 7, 0, 0, 0,
                1, 12, 0, 4, 12, 0, 0, 0, 1, 4, 12, 0, 0, 0,
            6, 4, 0, 0, 0, 0,
        ];
        assert_eq!(userdata, expected);
    }

    #[test]
    fn garbage_has_no_comment() {
        assert_eq!(comment(&[7, 9, b'a'], SET_COMMENT), None);
        assert_eq!(comment(&[7], SET_COMMENT), None);
        assert_eq!(comment(&[], SET_COMMENT), None);
    }
}
