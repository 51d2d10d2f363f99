//! Golden bytes: the kernel header and a capture of nft agree with every one of them.

use super::*;
use crate::nft::{DataRef, Expr, Lookup, Reg, Verdict};

const TABLE: TableId<'static> = TableId {
    family: Family::Ipv4,
    name: "t",
};

/// The messages behind the begin mark, as words of four bytes in hexadecimal.
fn words(batch: &Batch) -> Vec<String> {
    let start = batch
        .entries
        .first()
        .map_or(batch.bytes.len(), |entry| entry.start);
    batch.bytes[start..]
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

#[test]
fn a_batch_begins_with_the_subsystem_and_the_generation() {
    let mut batch = Batch::new();
    batch.begin(Some(0x0102_0304));
    assert_eq!(
        batch.bytes,
        [
            28, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // header
            0, 0, 0, 10, // AF_UNSPEC, version 0, NFNL_SUBSYS_NFTABLES
            8, 0, 1, 0, 1, 2, 3, 4, // NFNL_BATCH_GENID
        ]
    );
    assert_eq!(
        Batch::end_mark(),
        [
            20, 0, 0, 0, 17, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10
        ]
    );
}

#[test]
fn only_the_last_change_asks_for_an_acknowledgement() {
    let mut batch = Batch::new();
    batch.add_table(TABLE, None, 1);
    batch.delete_table(TABLE, 2);
    #[rustfmt::skip]
    assert_eq!(
        words(&batch),
        [
            "24000000", "000a0104", "01000000", "00000000",
            "02000000", // NEWTABLE, CREATE
            "06000100", "74000000", "08000200", "00000000", // name "t", flags 0
            "1c000000", "020a0500", "02000000", "00000000", "02000000", // DELTABLE, ACK
            "06000100", "74000000",
        ]
    );
}

#[test]
fn a_rule_is_a_list_of_named_expressions() {
    let mut batch = Batch::new();
    let exprs = vec![
        Expr::Lookup {
            set: "s".to_owned(),
            sreg: Reg::r32(0),
            dreg: None,
            expect: Lookup::Absent,
        },
        Expr::Verdict(Verdict::Goto("d".to_owned())),
    ];
    batch.add_rule(
        TABLE,
        &Rule {
            chain: "c".to_owned(),
            exprs,
            comment: Some("x".into()),
        },
        1,
    );
    #[rustfmt::skip]
    assert_eq!(
        words(&batch),
        [
            "94000000", "060a050c", "01000000", "00000000", "02000000", // NEWRULE
            "06000100", "74000000", "06000200", "63000000", // table t, chain c
            "68000480", // expressions
            "2c000180", "0b000100", "6c6f6f6b", "75700000", // lookup
            "1c000280", "06000100", "73000000", // set s
            "08000200", "00000008", "08000500", "00000001", // register, inverted
            "38000180", "0e000100", "696d6d65", "64696174", "65000000", // immediate
            "24000280", "08000100", "00000000", "18000280", "14000280",
            "08000100", "fffffffc", "06000200", "64000000", // goto d
            "08000700", "00027800", // comment x
        ]
    );
}

#[test]
fn an_element_list_is_split_before_64_kib_and_counts_on() {
    let keys: Vec<[u8; 4]> = (0..4_000u32).map(u32::to_be_bytes).collect();
    let elements = keys.iter().map(|key| ElementRef {
        data: DataRef::Verdict(Verdict::Drop),
        ..ElementRef::key(key)
    });
    let mut batch = Batch::new();
    batch.elements(
        ElementOp::Add,
        SetId {
            table: TABLE,
            name: "s",
        },
        7,
        elements,
    );
    // 4 + 12 + 16 bytes an element: header, key, verdict.
    let firsts: Vec<usize> = batch
        .entries
        .iter()
        .map(|entry| entry.first_element)
        .collect();
    assert_eq!(firsts, [0, 2047]);
    let second = batch.entries[1].start;
    assert_eq!(batch.too_long(), None);
    assert_eq!(batch.bytes.len() - second, 36 + 4 + (4_000 - 2_047) * 32);
    assert_eq!(batch.locate(2, Some(36 + 4 + 32)), Some((7, Some(2_048))));
    assert_eq!(batch.locate(2, None), Some((7, None)));
    assert_eq!(batch.locate(0, None), None);
    assert_eq!(batch.locate(3, None), None);
}

#[test]
fn an_empty_list_of_elements_is_no_message() {
    let mut batch = Batch::new();
    batch.elements(
        ElementOp::Add,
        SetId {
            table: TABLE,
            name: "s",
        },
        7,
        [],
    );
    assert!(batch.is_empty());
}

#[test]
fn an_element_that_fills_a_list_by_itself_is_too_long() {
    let value = vec![0; 70_000];
    let mut batch = Batch::new();
    batch.elements(
        ElementOp::Add,
        SetId {
            table: TABLE,
            name: "s",
        },
        7,
        [ElementRef::value(&[0; 4], &value), ElementRef::key(&[1; 4])],
    );
    assert_eq!(batch.too_long(), Some(7));
}
