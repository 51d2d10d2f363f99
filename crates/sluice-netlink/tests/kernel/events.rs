//! What others, and we, did.

use sluice_netlink::nft::{Batch, Chain, Event, Events, Family, Socket};

use crate::listing::nft;
use crate::namespace::fresh_namespace;
use crate::sample::{TABLE, add_sample_elements, load_sample};

#[test]
fn events_name_the_requester_and_the_process() {
    fresh_namespace();
    let mut events = Events::open().unwrap();
    let mut socket = Socket::open().unwrap();
    assert_eq!(events.read().unwrap(), []);
    load_sample(&mut socket, TABLE);
    let own = events.read().unwrap();
    let portids: Vec<u32> = own
        .iter()
        .filter_map(|event| match event {
            Event::Object {
                portid,
                table,
                family,
                ..
            } => {
                assert_eq!(
                    (table.as_str(), *family),
                    ("kube-proxy", Some(Family::Ipv4))
                );
                Some(*portid)
            }
            Event::Generation { .. } | Event::Overflow => None,
        })
        .collect();
    assert_eq!(portids, vec![socket.portid(); 1 + 7 + 6 + 9]);
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let generation = socket.generation().unwrap();
    assert!(matches!(
        own.last(),
        Some(Event::Generation { id, thread: by, .. }) if (*id, *by) == (generation, thread)
    ));
    nft(&["flush", "chain", "ip", "kube-proxy", "sticky"], "").unwrap();
    let foreign = events.read().unwrap();
    assert!(matches!(
        foreign.last(),
        Some(Event::Generation { process, .. }) if process == "nft"
    ));
    events.leave().unwrap();
    add_sample_elements(&mut socket);
    assert_eq!(events.read().unwrap(), []);
    events.join().unwrap();
    let mut batch = Batch::new();
    batch.delete_table(TABLE, 1);
    socket.commit(&batch).unwrap();
    assert!(!events.read().unwrap().is_empty());
}

#[test]
fn too_many_events_are_told_as_an_overflow() {
    fresh_namespace();
    let mut events = Events::open().unwrap();
    let mut socket = Socket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE, None, 0);
    for tag in 0..60_000 {
        batch.add_chain(TABLE, &Chain::regular(format!("chain-{tag:0200}")), tag);
    }
    socket.commit(&batch).unwrap();
    let read = events.read().unwrap();
    assert!(read.contains(&Event::Overflow), "{} events", read.len());
    assert_eq!(events.read().unwrap(), []);
}
