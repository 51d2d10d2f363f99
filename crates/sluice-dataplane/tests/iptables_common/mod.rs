//! Clusters and namespaces for the tests of iptables mode.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part, and fails by panicking"
)]

use std::process::Command;

use sluice_dataplane::iptables::Compiler;
use sluice_dataplane::iptables::ground::Options;
use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_model::settings::{DetectLocal, NodePortAddresses, Settings};
use sluice_model::testing::{listed, net, node, service, slice};

/// A node whose pods are in 10.0.0.0/8 and fd00:10::/32, with node ports on every address.
pub(crate) fn settings() -> Settings {
    Settings {
        detect_local: DetectLocal::ClusterCidr(vec![net("10.0.0.0/8"), net("fd00:10::/32")]),
        node_port_addresses: NodePortAddresses::Within(Vec::new()),
        ..Settings::for_node("here")
    }
}

/// A synced cluster with these facts.
pub(crate) fn cluster(settings: Settings, facts: impl IntoIterator<Item = Fact>) -> Cluster {
    let mut cluster = Cluster::new(settings);
    listed(facts)
        .into_iter()
        .for_each(|fact| cluster.apply(fact));
    cluster
}

/// A compiler that intends what the facts say, with kube-proxy's defaults.
pub(crate) fn compiled(facts: impl IntoIterator<Item = Fact>) -> Compiler {
    let mut compiler = Compiler::new(&Options::with_mark(0x4000));
    compiler.update(&cluster(settings(), facts).changes());
    compiler
}

/// Services of every shape, in both families.
pub(crate) fn some_services() -> Vec<Fact> {
    let mut web = service("ns1/web")
        .cluster_ip("172.30.0.41")
        .cluster_ip("fd00:172::41")
        .tcp("http", 80)
        .node_port(30080)
        .load_balancer("192.0.2.9")
        .load_balancer("2001:db8::9")
        .external_ip("192.0.2.10")
        .source_range("203.0.113.0/24")
        .source_range("2001:db8:1::/64")
        .affinity(10_800);
    web.service.health_check_node_port = 0;
    vec![
        node("here", &["192.0.2.1", "2001:db8::1"], None),
        web.fact(),
        slice("ns1/web-4", "web")
            .tcp("http", 8080)
            .ready("10.1.0.1", "here")
            .ready("10.1.0.2", "there")
            .ready("10.1.0.3", "there")
            .fact(),
        slice("ns1/web-6", "web")
            .tcp("http", 8080)
            .ready("fd00:10:1::1", "here")
            .ready("fd00:10:1::2", "there")
            .fact(),
        service("ns2/near")
            .cluster_ip("172.30.0.42")
            .udp("dns", 53)
            .node_port(30053)
            .load_balancer("192.0.2.11")
            .external_local()
            .health_check(32_000)
            .fact(),
        slice("ns2/near-4", "near")
            .udp("dns", 5353)
            .ready("10.1.0.4", "there")
            .fact(),
        service("ns3/empty")
            .cluster_ip("172.30.0.43")
            .cluster_ip("fd00:172::43")
            .tcp("", 80)
            .node_port(30081)
            .load_balancer("192.0.2.12")
            .source_range("203.0.113.0/24")
            .external_ip("192.0.2.13")
            .fact(),
        service("ns4/inside")
            .cluster_ip("172.30.0.44")
            .internal_local()
            .tcp("p", 80)
            .fact(),
        slice("ns4/inside-4", "inside")
            .tcp("p", 80)
            .ready("10.1.0.5", "there")
            .fact(),
    ]
}

/// Runs a test in network and mount namespaces of its own, with a /run of its own: the lock of the
/// legacy programs lies there.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let thread = std::thread::spawn(|| {
        #[allow(
            unsafe_code,
            deprecated,
            reason = "a thread of its own, which ends with the test"
        )]
        let entered = unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) };
        entered.expect("kernel tests need root, or a user namespace with CAP_NET_ADMIN");
        run("mount", &["--make-rprivate", "/"]);
        run("mount", &["-t", "tmpfs", "none", "/run"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What a program prints; it must succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("the program is installed");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}
