//! The rules of single services, literally, and how many there are.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod iptables_common;

use iptables_common::{cluster, compiled, settings};
use sluice_dataplane::iptables::Compiler;
use sluice_dataplane::iptables::ground::{Counter, InvalidPackets, LocalhostNodePorts, Options};
use sluice_dataplane::iptables::name::{Chain, Fixed, Table};
use sluice_dataplane::iptables::rule::PortChoice;
use sluice_dataplane::iptables::ruleset::Ruleset;
use sluice_dataplane::iptables::tx::Observed;
use sluice_model::fact::{Fact, Family};
use sluice_model::testing::{ServiceBuilder, ip, net, node, service, slice};

/// Rules that are there because of these facts.
fn rules(facts: Vec<Fact>) -> String {
    let text = |facts| compiled(facts).ruleset(Family::V4).to_string();
    let empty = text(vec![]);
    let mut base: Vec<&str> = empty.lines().collect();
    let all = text(facts);
    let mut rules = String::new();
    for line in all.lines().filter(|line| *line != "*mangle") {
        match base
            .iter()
            .position(|other| *other == line && !line.starts_with('*'))
        {
            Some(at) => drop(base.remove(at)),
            None => rules.extend([line, "\n"]),
        }
    }
    rules
}

fn first() -> ServiceBuilder {
    service("ns1/svc1").cluster_ip("172.30.0.41").tcp("p80", 80)
}

/// Two endpoints, on other nodes.
fn two() -> Fact {
    let slice = slice("ns1/svc1-1", "svc1").tcp("p80", 80);
    slice
        .ready("10.180.0.1", "there")
        .ready("10.180.0.2", "there")
        .fact()
}

/// What one test intends with options other than the usual.
fn with(change: impl FnOnce(&mut Options)) -> String {
    let mut options = Options::with_mark(0x4000);
    change(&mut options);
    let mut compiler = Compiler::new(&options);
    compiler.update(&cluster(settings(), vec![first().node_port(30080).fact(), two()]).changes());
    compiler.ruleset(Family::V4).to_string()
}

#[test]
fn a_node_without_services() {
    assert_eq!(
        compiled(vec![]).ruleset(Family::V4).to_string(),
        "\
*filter
-A INPUT -j KUBE-FIREWALL
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-SERVICES -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
*nat
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
*mangle
"
    );
}

#[test]
fn a_cluster_ip_with_two_endpoints() {
    assert_eq!(
        rules(vec![first().fact(), two()]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
*nat
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-LXVODXWDISEETFEF -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.2:80
-A KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.1:80
-A KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/8 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -j KUBE-SEP-LXVODXWDISEETFEF
"
    );
}

#[test]
fn a_node_port() {
    assert_eq!(
        rules(vec![first().node_port(30080).fact(), two()]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
*nat
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-NODEPORTS -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp --dport 30080 -j KUBE-EXT-XPGD46QRK7WJZT7O
-A KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-LXVODXWDISEETFEF -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.2:80
-A KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.1:80
-A KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/8 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -j KUBE-SEP-LXVODXWDISEETFEF
-A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment \"masquerade traffic for ns1/svc1:p80 external destinations\" -j KUBE-MARK-MASQ
-A KUBE-EXT-XPGD46QRK7WJZT7O -j KUBE-SVC-XPGD46QRK7WJZT7O
"
    );
}

#[test]
fn a_guarded_load_balancer_under_local_policy_without_local_endpoints() {
    assert_eq!(
        rules(vec![
            node("here", &["192.0.2.1"], None),
            first()
                .node_port(30080)
                .load_balancer("192.0.2.9")
                .source_range("203.0.113.0/24")
                .external_local()
                .health_check(32_000)
                .fact(),
            two(),
        ]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
-A KUBE-NODEPORTS -p tcp -m comment --comment \"ns1/svc1 health check node port\" -m tcp --dport 32000 -j ACCEPT
-A KUBE-EXTERNAL-SERVICES -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no local endpoints\" -m tcp --dport 80 -j DROP
-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment \"ns1/svc1:p80 has no local endpoints\" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP
-A KUBE-PROXY-FIREWALL -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 traffic not accepted by KUBE-FW-XPGD46QRK7WJZT7O\" -m tcp --dport 80 -j DROP
*nat
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-SERVICES -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 loadbalancer IP\" -m tcp --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
-A KUBE-NODEPORTS -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp --dport 30080 -j KUBE-EXT-XPGD46QRK7WJZT7O
-A KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-LXVODXWDISEETFEF -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.2:80
-A KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.1:80
-A KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/8 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -j KUBE-SEP-LXVODXWDISEETFEF
-A KUBE-EXT-XPGD46QRK7WJZT7O -s 10.0.0.0/8 -m comment --comment \"pod traffic for ns1/svc1:p80 external destinations\" -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment \"masquerade LOCAL traffic for ns1/svc1:p80 external destinations\" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment \"route LOCAL traffic for ns1/svc1:p80 external destinations\" -m addrtype --src-type LOCAL -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-FW-XPGD46QRK7WJZT7O -s 203.0.113.0/24 -m comment --comment \"ns1/svc1:p80 loadbalancer IP\" -j KUBE-EXT-XPGD46QRK7WJZT7O
-A KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment \"other traffic to ns1/svc1:p80 will be dropped by KUBE-PROXY-FIREWALL\"
"
    );
}

#[test]
fn a_service_without_endpoints() {
    assert_eq!(
        rules(vec![
            first()
                .node_port(30080)
                .load_balancer("192.0.2.9")
                .external_ip("192.0.2.10")
                .fact(),
        ]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
-A KUBE-EXTERNAL-SERVICES -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-EXTERNAL-SERVICES -d 192.0.2.10/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j REJECT --reject-with icmp-port-unreachable
*nat
"
    );
}

#[test]
fn a_guarded_load_balancer_without_endpoints_answers_only_whom_it_knows() {
    assert_eq!(
        rules(vec![
            first().load_balancer("192.0.2.9").source_range("203.0.113.0/24").fact(),
        ]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
-A KUBE-EXTERNAL-SERVICES -s 203.0.113.0/24 -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-EXTERNAL-SERVICES -d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" -m tcp --dport 80 -j DROP
*nat
"
    );
}

#[test]
fn client_affinity() {
    assert_eq!(
        rules(vec![first().affinity(10_800).fact(), two()]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
*nat
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-LXVODXWDISEETFEF -p tcp -m comment --comment \"ns1/svc1:p80\" -m recent --set --name KUBE-SEP-LXVODXWDISEETFEF -m tcp -j DNAT --to-destination 10.180.0.2:80
-A KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m comment --comment \"ns1/svc1:p80\" -m recent --set --name KUBE-SEP-SXIVWICOYRO3J4NJ -m tcp -j DNAT --to-destination 10.180.0.1:80
-A KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/8 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-SXIVWICOYRO3J4NJ -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-LXVODXWDISEETFEF -j KUBE-SEP-LXVODXWDISEETFEF
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -j KUBE-SEP-LXVODXWDISEETFEF
"
    );
}

#[test]
fn internal_local_policy_without_local_endpoints_drops() {
    assert_eq!(
        rules(vec![first().internal_local().fact(), two()]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no local endpoints\" -m tcp --dport 80 -j DROP
-A KUBE-SERVICES -d 172.30.0.41/32 -m comment --comment \"port not in use on this cluster IP\" -m addrtype ! --dst-type LOCAL -j REJECT --reject-with icmp-port-unreachable
*nat
"
    );
}

#[test]
fn a_service_range_is_watched_as_a_whole() {
    assert_eq!(
        rules(vec![
            Fact::Cidrs("kubernetes".into(), Some(vec![net("172.30.0.0/16")])),
            first().fact(),
            two(),
        ]),
        "\
*filter
-A KUBE-SERVICES -d 172.30.0.0/16 -m comment --comment \"ports and addresses not in use\" -m addrtype ! --dst-type LOCAL -j KUBE-CLUSTER-IPS
-A KUBE-CLUSTER-IPS -d 172.30.0.41/32 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-CLUSTER-IPS -m comment --comment \"unallocated service address\" -j DROP
*nat
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
-A KUBE-SEP-LXVODXWDISEETFEF -s 10.180.0.2/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-LXVODXWDISEETFEF -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.2:80
-A KUBE-SEP-SXIVWICOYRO3J4NJ -s 10.180.0.1/32 -m comment --comment \"ns1/svc1:p80\" -j KUBE-MARK-MASQ
-A KUBE-SEP-SXIVWICOYRO3J4NJ -p tcp -m comment --comment \"ns1/svc1:p80\" -m tcp -j DNAT --to-destination 10.180.0.1:80
-A KUBE-SVC-XPGD46QRK7WJZT7O ! -s 10.0.0.0/8 -d 172.30.0.41/32 -p tcp -m comment --comment \"ns1/svc1:p80 cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.1:80\" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
-A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment \"ns1/svc1:p80 -> 10.180.0.2:80\" -j KUBE-SEP-LXVODXWDISEETFEF
"
    );
}

#[test]
fn ranges_that_change_while_there_are_no_endpoints_still_let_their_sources_know() {
    let guarded = |range| {
        first()
            .load_balancer("192.0.2.9")
            .source_range(range)
            .fact()
    };
    let mut cluster = cluster(settings(), vec![guarded("203.0.113.0/24")]);
    let mut compiler = Compiler::new(&Options::with_mark(0x4000));
    let mut kernel = Ruleset::default();
    let observed = Observed {
        families: [Some(kernel.listing()), None],
    };
    compiler.adopt(&cluster.changes(), &observed);
    let (tx, _) = compiler.resync(&observed);
    kernel.apply(&tx.parts[0]).unwrap();
    cluster.apply(guarded("198.51.100.0/24"));
    kernel
        .apply(&compiler.update(&cluster.changes()).parts[0])
        .unwrap();
    let chain = (Table::Filter, Chain::Fixed(Fixed::ExternalServices));
    let lines: Vec<String> = kernel.chains[&chain]
        .iter()
        .map(ToString::to_string)
        .collect();
    let place = "-d 192.0.2.9/32 -p tcp -m comment --comment \"ns1/svc1:p80 has no endpoints\" \
                 -m tcp --dport 80";
    assert_eq!(
        lines,
        [
            format!(" -s 198.51.100.0/24 {place} -j REJECT --reject-with icmp-port-unreachable"),
            format!(" {place} -j DROP"),
        ]
    );
}

#[test]
fn options_change_the_rules_they_are_for() {
    let text = with(|_| {});
    for usual in [
        "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n",
        "-j MASQUERADE --random-fully\n",
        "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n",
        "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 ",
    ] {
        assert!(text.contains(usual), "{usual}");
    }
    let text = with(|options| {
        options.invalid = InvalidPackets::Passed;
        options.source_ports = PortChoice::Kept;
        options.localhost = LocalhostNodePorts::Closed;
    });
    assert!(!text.contains("INVALID"));
    assert!(text.contains("-j MASQUERADE\n"));
    assert!(!text.contains("-A KUBE-FIREWALL"));
    assert!(text.contains("-A KUBE-SERVICES ! -d 127.0.0.0/8 -m comment"));
    let text = with(|options| {
        options.count_invalid = Counter::Present;
        options.count_localhost = Counter::Present;
    });
    assert!(text.contains("INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP"));
    let counted = text
        .find("-A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp")
        .unwrap();
    assert!(counted < text.find("-A KUBE-NODEPORTS -p tcp").unwrap());
    assert!(text.contains("--dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts"));
}

#[test]
fn node_ports_on_listed_addresses_have_a_rule_each() {
    let mut settings = settings();
    let list = sluice_model::settings::NodePortAddresses::Within(vec![net("192.0.2.0/24")]);
    settings.node_port_addresses = list;
    let facts = vec![
        Fact::LocalAddresses(vec![ip("192.0.2.1"), ip("192.0.2.2"), ip("127.0.0.1")]),
        first().node_port(30080).fact(),
    ];
    let mut compiler = Compiler::new(&Options::with_mark(0x4000));
    compiler.update(&cluster(settings, facts).changes());
    let text = compiler.ruleset(Family::V4).to_string();
    let ends = |end: &str| text.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!(
        ends("-j KUBE-NODEPORTS"),
        3,
        "two addresses, and the health checks of INPUT"
    );
    assert_eq!(
        ends("--dport 30080 -j REJECT --reject-with icmp-port-unreachable"),
        2
    );
}

#[test]
fn above_a_thousand_endpoints_their_rules_go_without_comments() {
    let many = |count: usize| {
        let mut slice = slice("ns1/svc1-1", "svc1").tcp("p80", 80);
        for n in 0..count {
            slice = slice.ready(&format!("10.180.{}.{}", n / 250, n % 250), "there");
        }
        compiled(vec![first().fact(), slice.fact()])
            .ruleset(Family::V4)
            .to_string()
    };
    let with_comments = many(1_000);
    assert_eq!(with_comments.matches(" -> 10.180.").count(), 1_000);
    let without = many(1_001);
    assert_eq!(without.matches(" -> 10.180.").count(), 0);
    assert!(without.contains("svc1:p80 cluster IP"));
    let service = "KUBE-SVC-XPGD46QRK7WJZT7O";
    let picks: Vec<&str> = without
        .lines()
        .filter(|line| line.contains("statistic"))
        .collect();
    assert_eq!(picks.len(), 1_000);
    let first = format!("-A {service} -m statistic --mode random --probability 0.0009990010 -j ");
    assert!(picks[0].starts_with(&first), "{}", picks[0]);
    assert!(picks[999].contains(" 0.5000000000 "));
}

/// Rules in `filter` and in `nat`, jumps from the kernel's chains aside.
fn count(
    services: usize,
    endpoints: usize,
    shape: fn(ServiceBuilder, usize) -> ServiceBuilder,
) -> (usize, usize) {
    let mut facts = Vec::new();
    for s in 0..services {
        let name = format!("ns{s}/svc{s}");
        let plain = service(&name)
            .cluster_ip(&format!("172.30.0.{}", s + 1))
            .tcp("p80", 80);
        facts.push(shape(plain, s).fact());
        let mut slice = slice(&format!("{name}-1"), &format!("svc{s}")).tcp("p80", 80);
        for e in 0..endpoints {
            slice = slice.ready(&format!("10.180.{s}.{}", e + 1), "there");
        }
        facts.push(slice.fact());
    }
    let mut options = Options::with_mark(0x4000);
    options.count_localhost = Counter::Present;
    let mut compiler = Compiler::new(&options);
    compiler.update(&cluster(settings(), facts).changes());
    let ruleset = compiler.ruleset(Family::V4);
    let of = |wanted: Table| {
        let ours = |chain: &str| chain.starts_with("KUBE-");
        let chains = ruleset.chains.iter();
        let chains =
            chains.filter(|((table, chain), _)| *table == wanted && ours(&chain.to_string()));
        chains.map(|(_, rules)| rules.len()).sum()
    };
    (of(Table::Filter), of(Table::Nat))
}

/// kube-proxy's own counts, and what is added here on purpose: one rule that takes processes of
/// the node past external services, one per cluster IP that refuses its other ports, one per
/// guarded address without endpoints that drops strangers.
#[test]
fn there_are_as_many_rules_as_kube_proxy_has() {
    let plain: fn(ServiceBuilder, usize) -> ServiceBuilder = |service, _| service;
    let guarded: fn(ServiceBuilder, usize) -> ServiceBuilder = |service, n| {
        service
            .node_port(30_000 + n as u16)
            .external_ip(&format!("192.0.2.{}", n + 1))
            .load_balancer(&format!("192.0.2.{}", n + 101))
            .source_range("203.0.113.0/24")
    };
    let rows = [
        (count(0, 0, plain), (4 + 1, 5)),
        (count(1, 0, plain), (5 + 2, 5)),
        (count(1, 1, plain), (4 + 2, 10)),
        (count(1, 2, plain), (4 + 2, 13)),
        (count(1, 10, plain), (4 + 2, 37)),
        (count(10, 1, plain), (4 + 11, 55)),
        (count(10, 10, plain), (4 + 11, 325)),
        (count(1, 0, guarded), (8 + 3, 5)),
        (count(1, 1, guarded), (5 + 2, 18)),
        (count(1, 2, guarded), (5 + 2, 21)),
        (count(1, 10, guarded), (5 + 2, 45)),
        (count(10, 1, guarded), (14 + 11, 135)),
        (count(10, 10, guarded), (14 + 11, 405)),
    ];
    for (row, (counted, expected)) in rows.into_iter().enumerate() {
        assert_eq!(counted, expected, "row {row}");
    }
}
