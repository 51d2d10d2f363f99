//! What the installed nft makes of our tables.

use std::io::Write;
use std::process::{Command, Stdio};

use sluice_netlink::nft::userdata::Field;
use sluice_netlink::nft::{Batch, Chain, Family, Socket, userdata};

use crate::namespace::fresh_namespace;
use crate::sample::{TABLE, TABLE6, add_sample_elements, load_sample, pick_rule, sample_sets};

/// Runs nft in the namespace of this thread; its output, or what it complained about.
pub(crate) fn nft(args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("these tests need nft");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("nft reads its input");
    let output = child.wait_with_output().expect("nft ends");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The listing of everything, after nft has read it back, in place of what is there, without a
/// complaint.
fn listing() -> String {
    let text = nft(&["list", "ruleset"], "").expect("nft lists the ruleset");
    // nft 1.0.6 lists the recording of IPv6 affinity but aborts when it is to load it: key and
    // value fill 15 of 16 registers and its allocator rounds both up to whole 128-bit ones.
    let loadable: String = text
        .lines()
        .filter(|line| !line.contains("update @affinity-10800 { ip6"))
        .fold("flush ruleset\n".to_owned(), |text, line| {
            text + line + "\n"
        });
    nft(&["-c", "-f", "-"], &loadable).unwrap_or_else(|error| panic!("{error}\n{text}"));
    text
}

#[test]
fn nft_lists_the_table_and_reads_its_listing_back() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_sample(&mut socket, TABLE);
    load_sample(&mut socket, TABLE6);
    add_sample_elements(&mut socket);
    let text = listing();
    for expected in [
        "table ip kube-proxy {",
        "comment \"service rules\"",
        "typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport",
        "typeof ip6 daddr . meta l4proto . th dport . numgen random mod 2 : ip6 daddr . th dport",
        "comment \"backends\"",
        "10.96.0.1 . tcp . 80 . 65537 comment \"ns/svc:http\" : 192.0.2.2 . 8080",
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 offset 65536 \
         map @endpoints comment \"why\"",
        "dnat ip6 to ip6 daddr . meta l4proto . th dport . numgen random mod 3 offset 65536 \
         map @endpoints comment \"why\"",
        "type ipv4_addr . ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service",
        "flags dynamic,timeout",
        "timeout 3h",
        "meta l4proto tcp ct state new ct status dnat update @affinity-10800 { ip saddr . \
         ct original ip daddr . meta l4proto . ct original proto-dst : ip daddr . tcp dport }",
        "meta l4proto tcp ct state new ct status dnat update @affinity-10800 { ip6 saddr . \
         ct original ip6 daddr . meta l4proto . ct original proto-dst : ip6 daddr . tcp dport }",
        "dnat ip to ip saddr . ip daddr . meta l4proto . th dport map @affinity-10800",
        "dnat ip6 to ip6 saddr . ip6 daddr . meta l4proto . th dport map @affinity-10800",
        "elements = { 10.96.0.1 . tcp . 80 : goto pick-3,",
        "elements = { 10.96.0.1 . tcp . 80 . 10.0.0.0/8 }",
        "elements = { 10.0.0.0/8 }",
        "ip daddr . meta l4proto . th dport vmap @service-ips",
        "ip saddr . ip daddr @hairpin masquerade fully-random",
        "fib daddr type local counter packets 0 bytes 0 jump refuse",
        "ip saddr != @nets reject",
        "reject with tcp reset",
        "meta mark set 0x00004000",
        "type filter hook forward priority -110; policy drop;",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

/// Loads the sample with maps whose values are declared with this port.
fn load_declared(socket: &mut Socket, port: Field) {
    let mut batch = Batch::new();
    batch.add_table(TABLE, None, 1);
    batch.add_chain(TABLE, &Chain::regular("pick-3"), 2);
    for mut set in sample_sets(Family::Ipv4) {
        if set.name == "endpoints" {
            let key = [
                Field::IpDaddr,
                Field::L4Proto,
                Field::ThDport,
                Field::NumgenRandom(2),
            ];
            set.userdata = userdata::typeof_map(&key, &[Field::IpDaddr, port], None);
        }
        batch.add_set(TABLE, &set, 3);
    }
    batch.add_rule(TABLE, &pick_rule(Family::Ipv4), 4);
    socket.commit(&batch).unwrap();
}

#[test]
fn a_restored_listing_is_the_same_rules_where_values_are_declared_with_th_dport() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_declared(&mut socket, Field::ThDport);
    let before = socket.rules(TABLE).unwrap();
    let text = nft(&["list", "ruleset"], "").unwrap();
    nft(&["-f", "-"], &format!("flush ruleset\n{text}")).unwrap();
    let after = socket.rules(TABLE).unwrap();
    assert_eq!(before[0].rule.to_string(), after[0].rule.to_string());
    // nft 1.0.6 cannot add to such a table what uses the map without a flush.
    let error = nft(&["-c", "-f", "-"], &text).unwrap_err();
    assert!(
        error.contains("conflicting protocols specified: ip vs. th"),
        "{error}"
    );
}

#[test]
fn a_listing_can_be_read_on_top_but_for_tcp_only_where_values_are_declared_with_tcp_dport() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    load_declared(&mut socket, Field::TcpDport);
    let text = nft(&["list", "ruleset"], "").unwrap();
    assert!(text.contains(
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 offset 65536 \
         map @endpoints"
    ));
    nft(&["-c", "-f", "-"], &text).unwrap();
    nft(&["-f", "-"], &format!("flush ruleset\n{text}")).unwrap();
    let restored = socket.rules(TABLE).unwrap()[0].rule.to_string();
    assert!(
        restored.starts_with("pick-3: r0 = meta l4proto; r0 == 0x06; "),
        "{restored}"
    );
}

#[test]
fn declarations_are_what_nft_itself_would_have_written() {
    fresh_namespace();
    nft(
        &["-f", "-"],
        "table ip kube-proxy {
            map endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport; comment \"backends\"; }
            map one { typeof ip saddr . th sport : ip daddr; }
            map verdicts { typeof ip saddr . tcp dport : verdict; }
            set plain { typeof ip saddr . ip daddr; comment \"x\"; }
            map old { typeof ip daddr . th dport : ip daddr . tcp dport; }
        }
        table ip6 kube-proxy {
            map endpoints { typeof ip6 daddr . meta l4proto . th dport . numgen random mod 2 : ip6 daddr . th dport; }
            set plain { typeof ip6 saddr . ip6 daddr; }
        }",
    )
    .unwrap();
    let mut socket = Socket::open().unwrap();
    let mut written = |table| -> Vec<(String, Vec<u8>)> {
        let sets = socket.sets(table).unwrap();
        sets.into_iter()
            .map(|info| (info.set.name, info.set.userdata))
            .collect()
    };
    use Field::{
        Ip6Daddr, Ip6Saddr, IpDaddr, IpSaddr, L4Proto, NumgenRandom, TcpDport, ThDport, ThSport,
    };
    let key = [IpDaddr, L4Proto, ThDport, NumgenRandom(2)];
    let map = userdata::typeof_map;
    assert_eq!(
        written(TABLE),
        [
            (
                "endpoints".to_owned(),
                map(&key, &[IpDaddr, ThDport], Some("backends"))
            ),
            ("one".to_owned(), map(&[IpSaddr, ThSport], &[IpDaddr], None)),
            (
                "verdicts".to_owned(),
                userdata::typeof_verdict_map(&[IpSaddr, TcpDport], None)
            ),
            (
                "plain".to_owned(),
                userdata::typeof_set(&[IpSaddr, IpDaddr], Some("x"))
            ),
            (
                "old".to_owned(),
                map(&[IpDaddr, ThDport], &[IpDaddr, TcpDport], None)
            ),
        ]
    );
    let key = [Ip6Daddr, L4Proto, ThDport, NumgenRandom(2)];
    assert_eq!(
        written(TABLE6),
        [
            (
                "endpoints".to_owned(),
                map(&key, &[Ip6Daddr, ThDport], None)
            ),
            (
                "plain".to_owned(),
                userdata::typeof_set(&[Ip6Saddr, Ip6Daddr], None)
            ),
        ]
    );
}
