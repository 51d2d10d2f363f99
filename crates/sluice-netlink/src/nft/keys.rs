//! Types of keys and values, as nft numbers them in `NFTA_SET_KEY_TYPE`.
//!
//! The kernel stores the number without a look; nft reads it to print elements. Six bits a field,
//! the first field highest.

/// A type of nft (`enum datatypes` of nft's `datatype.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// A number of host order; four bytes here.
    Integer,
    /// `ipv4_addr`.
    Ipv4Addr,
    /// `ipv6_addr`.
    Ipv6Addr,
    /// `inet_proto`.
    InetProto,
    /// `inet_service`.
    InetService,
    /// `mark`.
    Mark,
    /// `ifname`.
    IfName,
}

impl DataType {
    /// nft's number.
    pub const fn raw(self) -> u32 {
        match self {
            DataType::Integer => 4,
            DataType::Ipv4Addr => 7,
            DataType::Ipv6Addr => 8,
            DataType::InetProto => 12,
            DataType::InetService => 13,
            DataType::Mark => 19,
            DataType::IfName => 41,
        }
    }

    /// Bytes of a value.
    pub const fn size(self) -> u32 {
        match self {
            DataType::Integer | DataType::Ipv4Addr | DataType::Mark => 4,
            DataType::Ipv6Addr | DataType::IfName => 16,
            DataType::InetProto => 1,
            DataType::InetService => 2,
        }
    }
}

/// Number, length and field lengths of a key or value of one or more fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// For `key_type` or a value's `kind`.
    pub kind: u32,
    /// Bytes: a single field's own length; of a concatenation, each field padded to four.
    pub len: u32,
    /// True lengths of the fields of a concatenation; empty for a single field.
    pub fields: Vec<u32>,
}

impl KeyLayout {
    /// The layout of these fields.
    pub fn of(fields: &[DataType]) -> KeyLayout {
        let kind = fields.iter().fold(0, |kind, field| kind << 6 | field.raw());
        match fields {
            [single] => KeyLayout {
                kind,
                len: single.size(),
                fields: Vec::new(),
            },
            _ => KeyLayout {
                kind,
                len: fields
                    .iter()
                    .map(|field| field.size().next_multiple_of(4))
                    .sum(),
                fields: fields.iter().map(|field| field.size()).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::{InetProto, InetService, Integer, Ipv4Addr, Ipv6Addr};

    #[test]
    fn concatenated_types_are_numbered_as_nft_numbers_them() {
        // As sent by nft 1.0.6 for `ipv4_addr . inet_proto . inet_service . integer`.
        assert_eq!(
            KeyLayout::of(&[Ipv4Addr, InetProto, InetService, Integer]),
            KeyLayout {
                kind: 0x001c_c344,
                len: 16,
                fields: vec![4, 1, 2, 4]
            }
        );
        assert_eq!(KeyLayout::of(&[Ipv6Addr, InetService]).len, 20);
    }

    #[test]
    fn a_single_field_is_not_padded() {
        assert_eq!(
            KeyLayout::of(&[InetService]),
            KeyLayout {
                kind: 13,
                len: 2,
                fields: vec![]
            }
        );
    }
}
