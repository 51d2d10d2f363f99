//! Batches that fail, batches that are large.

use sluice_netlink::Errno;
use sluice_netlink::nft::{Batch, Chain, ElementOp, ElementRef, Expr, Rule, Socket, Verdict};

use crate::namespace::fresh_namespace;
use crate::sample::{TABLE, load_sample, set, vip_key};

#[test]
fn an_error_names_the_change_and_nothing_is_in_force() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE, None, 10);
    batch.add_chain(TABLE, &Chain::regular("a"), 11);
    batch.add_rule(
        TABLE,
        &Rule {
            chain: "a".into(),
            exprs: vec![Expr::Verdict(Verdict::Jump("nowhere".into()))],
            comment: None,
        },
        12,
    );
    batch.delete_chain(TABLE, "b", 13);
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!(
        (error.errno, error.tag, error.also),
        (Errno::NOENT, Some(12), 1)
    );
    assert_eq!(
        error.to_string(),
        "No such file or directory (os error 2) and 1 more"
    );
    assert_eq!(socket.tables().unwrap(), []);
    batch.begin(None);
    batch.add_table(TABLE, None, 10);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.tables().unwrap().len(), 1);
}

#[test]
fn the_offending_element_is_found_also_behind_a_split() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let keys: Vec<Vec<u8>> = (0..10_000u16).map(|port| vip_key(1, port)).collect();
    let mut batch = Batch::new();
    let element = |at: usize| match at {
        7_777 => ElementRef::verdict(&keys[at], Verdict::Goto("nowhere")),
        _ => ElementRef::verdict(&keys[at], Verdict::Goto("pick-3")),
    };
    batch.flush_set(TABLE, "nets", 1);
    batch.elements(
        ElementOp::Add,
        set("service-ips"),
        2,
        (0..keys.len()).map(element),
    );
    assert!(batch.messages() > 5, "{} messages", batch.messages());
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!((error.errno, error.tag), (Errno::NOENT, Some(2)));
    assert_eq!(error.element, Some(7_777));
    assert_eq!(socket.elements(set("service-ips")).unwrap(), []);
}

#[test]
fn a_large_batch_goes_through_in_one_piece() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let keys: Vec<Vec<u8>> = (0..100_000u32)
        .map(|number| [vip_key(1, 80), number.to_ne_bytes().to_vec()].concat())
        .collect();
    let value = [192, 0, 2, 1, 0x1f, 0x90, 0, 0];
    let mut batch = Batch::new();
    let elements = keys.iter().map(|key| ElementRef::value(key, &value));
    batch.elements(ElementOp::Add, set("endpoints"), 1, elements);
    assert!(batch.byte_len() > 4 * 1024 * 1024);
    socket.commit(&batch).unwrap();
    assert_eq!(
        socket.elements_as(set("endpoints"), |_| ()).unwrap().len(),
        100_000
    );
    batch.begin(None);
    batch.flush_set(TABLE, "endpoints", 1);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.elements(set("endpoints")).unwrap(), []);
}

#[test]
fn thousands_of_errors_leave_the_socket_in_step() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let mut batch = Batch::new();
    for tag in 0..50_000 {
        batch.delete_chain(TABLE, "nowhere", tag);
    }
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!((error.errno, error.tag), (Errno::NOENT, Some(0)));
    assert!(socket.generation().unwrap() > 0);
    batch.begin(None);
    batch.add_chain(TABLE, &Chain::regular("new"), 1);
    socket.commit(&batch).unwrap();
}

#[test]
fn a_batch_of_an_old_generation_is_refused() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    let generation = socket.generation().unwrap();
    let mut batch = Batch::new();
    batch.begin(Some(generation));
    batch.add_table(TABLE, None, 1);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.generation().unwrap(), generation + 1);
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!((error.errno, error.tag), (Errno::RESTART, None));
    assert!(!error.is_unknown());
}

#[test]
fn what_cannot_be_expressed_is_refused_without_asking_the_kernel() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE, None, 1);
    let exprs = vec![Expr::Verdict(Verdict::Accept); 5_000];
    batch.add_rule(
        TABLE,
        &Rule {
            chain: "a".into(),
            exprs,
            comment: None,
        },
        2,
    );
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!((error.errno, error.tag), (Errno::MSGSIZE, Some(2)));
    assert_eq!(socket.tables().unwrap(), []);
}
