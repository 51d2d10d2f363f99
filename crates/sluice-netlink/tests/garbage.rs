//! Decoders return for any bytes, also for those that are almost right.

use proptest::prelude::*;
use sluice_netlink::fuzz::datagram;

/// Attributes whose lengths are right or slightly wrong, nested to some depth.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop::collection::vec(any::<u8>(), 0..24);
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop::collection::vec((0u16..20, any::<bool>(), -1i32..6, inner), 1..6).prop_map(|attrs| {
            let mut bytes = Vec::new();
            for (kind, nested, error, value) in attrs {
                // One in several lengths is off by a little.
                let error = if error > 2 { error - 3 } else { 0 };
                let length = (value.len() as i32 + 4 + error) as u16;
                bytes.extend_from_slice(&length.to_ne_bytes());
                bytes.extend_from_slice(&(kind | u16::from(nested) << 15).to_ne_bytes());
                bytes.extend_from_slice(&value);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        })
    })
}

/// Expressions by the names that the decoder knows, with arbitrary contents.
fn expression() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "payload",
        "meta",
        "ct",
        "fib",
        "cmp",
        "bitwise",
        "numgen",
        "immediate",
        "counter",
        "lookup",
        "dynset",
        "nat",
        "masq",
        "redir",
        "reject",
        "xt",
    ];
    (prop::sample::select(names.to_vec()), attributes()).prop_map(|(name, data)| {
        let element = [attr(1, name.as_bytes()), attr(2, &data)].concat();
        attr(2, b"chain\0")
            .into_iter()
            .chain(attr(4, &attr(1, &element)))
            .collect()
    })
}

fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 20).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&[0, 3, 1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&[2, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        datagram(&bytes);
    }

    #[test]
    fn any_body_of_a_well_formed_message(kind in 0u16..40, body in attributes()) {
        datagram(&message(kind, &body));
        datagram(&message(10 << 8 | kind, &body));
    }

    #[test]
    fn any_contents_of_a_known_expression(body in expression()) {
        // It is understood as a rule at least.
        prop_assert!(datagram(&message(10 << 8 | 6, &body)) > 0);
    }

    #[test]
    fn every_cut_of_a_message(body in expression(), cut in 0usize..400) {
        let mut bytes = message(10 << 8 | 6, &body);
        bytes.truncate(cut);
        datagram(&bytes);
    }
}
