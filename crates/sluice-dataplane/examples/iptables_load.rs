//! How long iptables mode takes, by the real tool, in the network namespace it is started in:
//! `unshare -n iptables_load nft 1000 10`. Prints a load, a restart, single changes and a burst,
//! in milliseconds, and the memory of this process.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement, not a part of the proxy"
)]

use std::time::Instant;

use sluice_dataplane::iptables::Compiler;
use sluice_dataplane::iptables::driver::{Choice, Driver, Look};
use sluice_dataplane::iptables::ground::Options;
use sluice_dataplane::iptables::tool::Backend;
use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_model::settings::{DetectLocal, Settings};
use sluice_model::testing::{endpoint, listed, net, node, service, slice};

fn service_facts(n: usize, endpoints: usize, generation: usize) -> Vec<Fact> {
    let name = format!("ns/svc{n}");
    let port = service(&name).cluster_ip(&format!("172.16.{}.{}", n >> 8, n & 255));
    let mut slice = slice(&format!("{name}-1"), &format!("svc{n}")).tcp("http", 8080);
    for e in 0..endpoints {
        let at = n * endpoints + (e + generation) % (endpoints + 1);
        let ip = format!("10.{}.{}.{}", 64 + (at >> 16), (at >> 8) & 255, at & 255);
        slice = slice.with(endpoint(&ip).on("there"));
    }
    vec![port.tcp("http", 80).fact(), slice.fact()]
}

struct Proxy {
    cluster: Cluster,
    compiler: Compiler,
    driver: Driver,
}

impl Proxy {
    fn start(backend: Backend, facts: Vec<Fact>) -> Proxy {
        let settings = Settings {
            detect_local: DetectLocal::ClusterCidr(vec![net("10.0.0.0/8")]),
            ..Settings::for_node("here")
        };
        let mut cluster = Cluster::new(settings);
        listed(facts)
            .into_iter()
            .for_each(|fact| cluster.apply(fact));
        let start = Instant::now();
        let mut driver = Driver::open(Choice::Fixed(backend)).unwrap();
        let mut compiler = Compiler::new(&Options::with_mark(0x4000));
        let observed = driver.read().unwrap();
        println!("  read {:?}", start.elapsed());
        compiler.adopt(&cluster.changes(), &observed);
        let (tx, _) = compiler.resync(&observed);
        println!("  compared {:?}, {} steps", start.elapsed(), tx.len());
        let outcome = driver.commit(&tx).unwrap();
        compiler.settle(&outcome);
        println!(
            "start {:?}, left out {}",
            start.elapsed(),
            outcome.left_out.len()
        );
        Proxy {
            cluster,
            compiler,
            driver,
        }
    }

    fn change(&mut self, facts: Vec<Fact>) -> f64 {
        let start = Instant::now();
        facts.into_iter().for_each(|fact| self.cluster.apply(fact));
        let tx = self.compiler.update(&self.cluster.changes());
        let outcome = self.driver.commit(&tx).unwrap();
        self.compiler.settle(&outcome);
        start.elapsed().as_secs_f64() * 1e3
    }
}

fn memory(label: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let lines = status
        .lines()
        .filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM"));
    println!(
        "memory, {label}: {}",
        lines.collect::<Vec<_>>().join(" ").replace('\t', " ")
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next().as_deref() {
        Some("legacy") => Backend::Legacy,
        _ => Backend::Nft,
    };
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().unwrap());
    let (services, endpoints) = (number(1_000), number(10));
    let facts = || -> Vec<Fact> {
        let cidr = Fact::Cidrs("kubernetes".into(), Some(vec![net("172.16.0.0/16")]));
        let all = (0..services).flat_map(|n| service_facts(n, endpoints, 0));
        [node("here", &["192.0.2.1"], None), cidr]
            .into_iter()
            .chain(all)
            .collect()
    };
    let mut proxy = Proxy::start(backend, facts());
    memory("loaded");
    let middle = services / 2;
    let mut changes: Vec<f64> = (1..10)
        .map(|g| proxy.change(service_facts(middle, endpoints, g)))
        .collect();
    changes.sort_by(f64::total_cmp);
    println!(
        "endpoint change p50 {:.1} max {:.1}",
        changes[4], changes[8]
    );
    println!(
        "new service {:.1}",
        proxy.change(service_facts(services, endpoints, 0))
    );
    println!(
        "lost its endpoints {:.1}",
        proxy.change(service_facts(services, 0, 0))
    );
    let burst = (0..services.min(1_000))
        .flat_map(|n| service_facts(n, endpoints, 1))
        .collect();
    println!("burst of 1000 changes {:.1}", proxy.change(burst));
    let start = Instant::now();
    assert_eq!(proxy.driver.look().unwrap(), Look::Intact);
    println!("look {:?}", start.elapsed());
    memory("after changes");
    drop(proxy);
    Proxy::start(backend, facts());
    let start = Instant::now();
    let (removed, errors) = Driver::remove_rules();
    println!(
        "cleanup {:?}: {removed} removed, {errors:?}",
        start.elapsed()
    );
}
