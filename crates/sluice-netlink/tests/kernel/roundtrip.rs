//! What is written is what is read.

use sluice_netlink::nft::{
    Batch, DataRef, Element, ElementEnd, ElementOp, ElementRef, Family, Rule, Socket, Verdict,
};
use sluice_netlink::{Errno, Error};

use crate::listing::nft;
use crate::namespace::fresh_namespace;
use crate::sample::{
    TABLE, TABLE6, add_sample_elements, load_sample, sample_chains, sample_elements, sample_rules,
    sample_sets, set, sorted, vip_key,
};

#[test]
fn what_is_written_is_read_back_alike() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    for table in [TABLE, TABLE6] {
        load_sample(&mut socket, table);
        let chains: Vec<_> = socket
            .chains(table)
            .unwrap()
            .into_iter()
            .map(|info| info.chain)
            .collect();
        assert_eq!(chains, sample_chains());
        let sets: Vec<_> = socket
            .sets(table)
            .unwrap()
            .into_iter()
            .map(|info| info.set)
            .collect();
        assert_eq!(sets, sample_sets(table.family));
        let mut rules: Vec<_> = socket
            .rules(table)
            .unwrap()
            .into_iter()
            .map(|info| info.rule)
            .collect();
        let mut expected = sample_rules(table.family);
        // The kernel lists chain after chain.
        let order = |rule: &Rule| {
            sample_chains()
                .iter()
                .position(|chain| chain.name == rule.chain)
                .unwrap()
        };
        expected.sort_by_key(order);
        rules.sort_by_key(order);
        assert_eq!(rules, expected);
    }
    let tables = socket.tables().unwrap();
    let named: Vec<_> = tables
        .iter()
        .map(|t| (t.family, t.name.as_str(), t.comment.as_deref(), t.owner))
        .collect();
    assert_eq!(
        named,
        [
            (
                Some(Family::Ipv4),
                "kube-proxy",
                Some("service rules"),
                None
            ),
            (
                Some(Family::Ipv6),
                "kube-proxy",
                Some("service rules"),
                None
            ),
        ]
    );
}

#[test]
fn elements_are_read_back_alike_and_go_away_again() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    add_sample_elements(&mut socket);
    for (name, elements) in sample_elements() {
        assert_eq!(
            sorted(socket.elements(set(name)).unwrap()),
            sorted(elements),
            "{name}"
        );
    }
    let mut batch = Batch::new();
    for (name, elements) in sample_elements() {
        batch.elements(
            ElementOp::Delete,
            set(name),
            9,
            elements.iter().map(Element::as_ref),
        );
    }
    socket.commit(&batch).unwrap();
    for (name, _) in sample_elements() {
        assert_eq!(socket.elements(set(name)).unwrap(), [], "{name}");
    }
}

#[test]
fn a_value_changes_by_delete_and_add_in_one_batch() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    add_sample_elements(&mut socket);
    let key = vip_key(1, 80);
    let mut batch = Batch::new();
    batch.elements(
        ElementOp::Delete,
        set("service-ips"),
        1,
        [ElementRef::key(&key)],
    );
    let replaced = ElementRef::verdict(&key, Verdict::Goto("sticky"));
    batch.elements(ElementOp::Add, set("service-ips"), 2, [replaced]);
    socket.commit(&batch).unwrap();
    assert!(
        socket
            .elements(set("service-ips"))
            .unwrap()
            .contains(&replaced.to_owned())
    );
}

#[test]
fn elements_with_a_time_out_tell_what_is_left() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let key = [vec![192, 0, 2, 9], vip_key(1, 80)].concat();
    let value = [192, 0, 2, 1, 0x1f, 0x90, 0, 0];
    let mut batch = Batch::new();
    let element = ElementRef {
        timeout_ms: Some(3_600_000),
        expiration_ms: Some(1_800_000),
        ..ElementRef::value(&key, &value)
    };
    batch.elements(ElementOp::Add, set("affinity-10800"), 1, [element]);
    socket.commit(&batch).unwrap();
    let listed = socket.elements(set("affinity-10800")).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].timeout_ms, Some(3_600_000));
    let left = listed[0].expiration_ms.unwrap();
    assert!((1_700_000..=1_800_000).contains(&left), "{left}");
}

#[test]
fn objects_go_away_by_name_and_rules_by_handle() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let in_forward = |socket: &mut Socket| -> Vec<u64> {
        let rules = socket.rules(TABLE).unwrap().into_iter();
        rules
            .filter(|info| info.rule.chain == "filter-forward")
            .map(|info| info.handle)
            .collect()
    };
    let handles = in_forward(&mut socket);
    assert_eq!(handles.len(), 2);
    let mut batch = Batch::new();
    batch.delete_rule(TABLE, "filter-forward", handles[0], 1);
    batch.flush_chain(TABLE, "pick-3", 2);
    batch.delete_chain(TABLE, "pick-3", 3);
    batch.delete_set(TABLE, "endpoints", 4);
    socket.commit(&batch).unwrap();
    assert_eq!(in_forward(&mut socket), handles[1..]);
    assert!(
        !socket
            .sets(TABLE)
            .unwrap()
            .iter()
            .any(|info| info.set.name == "endpoints")
    );
    assert!(
        !socket
            .chains(TABLE)
            .unwrap()
            .iter()
            .any(|info| info.chain.name == "pick-3")
    );
    batch.begin(None);
    batch.destroy_table(TABLE6, 1);
    batch.delete_table(TABLE, 2);
    batch.destroy_table(TABLE, 3);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.tables().unwrap(), []);
    assert_eq!(socket.rules(TABLE).unwrap(), []);
    assert_eq!(socket.sets(TABLE).unwrap(), []);
    assert_eq!(
        socket.elements(set("x")).unwrap_err().errno(),
        Some(Errno::NOENT)
    );
}

#[test]
fn what_others_put_into_a_set_does_not_hide_the_rest_of_it() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    add_sample_elements(&mut socket);
    let foreign = "add element ip kube-proxy service-ips { * : drop }
        add rule ip kube-proxy refuse log prefix \"x\" ct mark set meta mark";
    nft(&["-f", "-"], foreign).unwrap();
    let elements = socket.elements(set("service-ips")).unwrap();
    assert_eq!(elements.len(), 3);
    let catch_all = elements
        .iter()
        .find(|element| element.end == ElementEnd::CatchAll)
        .unwrap();
    assert_eq!(catch_all.to_string(), "* : drop");
    let rules = socket.rules(TABLE).unwrap();
    let added = rules
        .iter()
        .rfind(|info| info.rule.chain == "refuse")
        .unwrap();
    assert_eq!(
        added.rule.to_string(),
        "refuse: [log]; r0 = meta mark; [ct]"
    );
    let mut batch = Batch::new();
    let gone = [catch_all.as_ref()];
    batch.elements(ElementOp::Delete, set("service-ips"), 1, gone);
    batch.delete_rule(TABLE, "refuse", added.handle, 2);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.elements(set("service-ips")).unwrap().len(), 2);
}

#[test]
fn a_list_that_changes_while_it_is_read_is_read_again() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    let keys: Vec<Vec<u8>> = (0..5_000u32)
        .map(|number| [vip_key(1, 80), number.to_ne_bytes().to_vec()].concat())
        .collect();
    let (old, new) = (
        [192, 0, 2, 1, 0x1f, 0x90, 0, 0],
        [192, 0, 2, 2, 0x1f, 0x90, 0, 0],
    );
    let mut batch = Batch::new();
    let elements = keys.iter().map(|key| ElementRef::value(key, &old));
    batch.elements(ElementOp::Add, set("endpoints"), 1, elements);
    socket.commit(&batch).unwrap();
    // A writer in the same namespace: threads inherit it. Every commit replaces all elements.
    let writer = std::thread::spawn(move || {
        let mut socket = Socket::open().unwrap();
        let mut batch = Batch::new();
        for round in 0..20 {
            let (gone, come) = if round % 2 == 0 {
                (&old, &new)
            } else {
                (&new, &old)
            };
            batch.begin(None);
            let elements = keys.iter().map(|key| ElementRef::value(key, gone));
            batch.elements(ElementOp::Delete, set("endpoints"), 1, elements);
            let elements = keys.iter().map(|key| ElementRef::value(key, come));
            batch.elements(ElementOp::Add, set("endpoints"), 2, elements);
            socket.commit(&batch).unwrap();
        }
    });
    while !writer.is_finished() {
        let values = socket.elements_as(set("endpoints"), |element| match element.data {
            DataRef::Value(value) => value[3],
            DataRef::None | DataRef::Verdict(_) => 0,
        });
        let values = match values {
            Ok(values) => values,
            Err(Error::Interrupted { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(values.len(), 5_000);
        assert!(
            values.iter().all(|value| *value == values[0]),
            "of two generations"
        );
    }
    writer.join().unwrap();
}
