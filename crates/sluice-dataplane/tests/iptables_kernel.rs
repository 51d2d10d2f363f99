//! The iptables driver on the real kernel with both backends, each test in a network namespace of
//! its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod iptables_common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use iptables_common::{cluster, in_namespace, run, settings, some_services};
use sluice_dataplane::iptables::Compiler;
use sluice_dataplane::iptables::driver::{Choice, Driver, DriverError, Look};
use sluice_dataplane::iptables::ground::Options;
use sluice_dataplane::iptables::tool::{Backend, ToolError};
use sluice_dataplane::iptables::tx::{Outcome, Tx};
use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_model::testing::{net, no_service, no_slice, service, slice};

const BACKENDS: [Backend; 2] = [Backend::Nft, Backend::Legacy];

/// A proxy in small: model, compiler and driver.
struct Proxy {
    cluster: Cluster,
    compiler: Compiler,
    driver: Driver,
    backend: Backend,
}

impl Proxy {
    fn start(backend: Backend, facts: Vec<Fact>) -> Proxy {
        let mut proxy = Proxy {
            cluster: cluster(settings(), facts),
            compiler: Compiler::new(&Options::with_mark(0x4000)),
            driver: Driver::open(Choice::Fixed(backend)).expect("both backends are installed"),
            backend,
        };
        let outcome = proxy.resync();
        assert_eq!(outcome, Outcome::default());
        proxy
    }

    /// What the engine does at a start, after a failure and where something is damaged.
    fn resync(&mut self) -> Outcome {
        let observed = self.driver.read().unwrap();
        self.compiler.adopt(&self.cluster.changes(), &observed);
        let (tx, _) = self.compiler.resync(&observed);
        let outcome = self.driver.commit(&tx).unwrap();
        self.compiler.settle(&outcome);
        outcome
    }

    fn apply(&mut self, facts: impl IntoIterator<Item = Fact>) -> (Tx, Outcome) {
        facts.into_iter().for_each(|fact| self.cluster.apply(fact));
        let tx = self.compiler.update(&self.cluster.changes());
        let outcome = self.driver.commit(&tx).unwrap();
        self.compiler.settle(&outcome);
        (tx, outcome)
    }

    fn assert_in_sync(&mut self) {
        let observed = self.driver.read().unwrap();
        let (tx, drifts) = self.compiler.resync(&observed);
        assert!(tx.is_empty(), "{:?}: {drifts:#?}", self.backend);
    }

    fn suffix(&self) -> &'static str {
        suffix(self.backend)
    }
}

fn suffix(backend: Backend) -> &'static str {
    match backend {
        Backend::Nft => "-nft",
        Backend::Legacy => "-legacy",
    }
}

/// Everything that is there, sorted, without what differs by time.
fn saved(backend: Backend) -> Vec<String> {
    let mut all = Vec::new();
    for family in ["iptables", "ip6tables"] {
        let text = run(&format!("{family}{}-save", suffix(backend)), &[]);
        let mut table = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with('*') {
                table = line.to_owned();
            }
            let line = line.split(" [").next().unwrap_or(line);
            all.push(format!("{family} {table} {line}"));
        }
    }
    all.sort();
    all
}

#[test]
fn both_backends_accept_every_rule_and_list_it_as_written() {
    for backend in BACKENDS {
        in_namespace(move || {
            let mut proxy = Proxy::start(backend, some_services());
            assert_eq!(proxy.driver.backend(), backend);
            assert!(saved(backend).len() > 150);
            proxy.assert_in_sync();
            assert_eq!(proxy.driver.look().unwrap(), Look::Intact);
        });
    }
}

#[test]
fn what_is_saved_can_be_restored() {
    for backend in BACKENDS {
        in_namespace(move || {
            Proxy::start(backend, some_services());
            for family in ["iptables", "ip6tables"] {
                let text = run(&format!("{family}{}-save", suffix(backend)), &[]);
                let mut child = Command::new(format!("{family}{}-restore", suffix(backend)))
                    .arg("--test")
                    .stdin(Stdio::piped())
                    .spawn()
                    .unwrap();
                child
                    .stdin
                    .take()
                    .unwrap()
                    .write_all(text.as_bytes())
                    .unwrap();
                assert!(child.wait().unwrap().success());
            }
        });
    }
}

/// Changes one after the other, each a step of a service's life.
fn life() -> Vec<Vec<Fact>> {
    let local = || {
        slice("ns2/near-5", "near")
            .udp("dns", 5353)
            .ready("10.1.0.6", "here")
            .fact()
    };
    vec![
        vec![local()],
        vec![no_slice("ns2/near-4")],
        vec![
            slice("ns1/web-4", "web")
                .tcp("http", 8080)
                .ready("10.1.0.2", "there")
                .fact(),
        ],
        vec![no_slice("ns1/web-4"), no_slice("ns1/web-6")],
        vec![
            slice("ns3/empty-4", "empty")
                .tcp("", 80)
                .ready("10.1.0.7", "here")
                .fact(),
            slice("ns1/web-6", "web")
                .tcp("http", 8080)
                .ready("fd00:10:1::2", "there")
                .fact(),
        ],
        vec![
            service("ns3/empty")
                .cluster_ip("172.30.0.53")
                .tcp("", 81)
                .node_port(30082)
                .load_balancer("192.0.2.12")
                .source_range("203.0.113.128/25")
                .source_range("198.51.100.0/24")
                .fact(),
        ],
        vec![no_slice("ns3/empty-4")],
        vec![Fact::Cidrs(
            "kubernetes".into(),
            Some(vec![net("172.30.0.0/16")]),
        )],
        vec![
            service("ns3/empty")
                .cluster_ip("172.30.0.53")
                .tcp("", 81)
                .load_balancer("192.0.2.12")
                .source_range("203.0.113.0/25")
                .fact(),
            service("ns5/new")
                .cluster_ip("172.30.0.60")
                .tcp("a", 1)
                .tcp("b", 2)
                .fact(),
        ],
        vec![Fact::Cidrs("kubernetes".into(), None)],
        vec![
            no_service("ns2/near"),
            no_slice("ns2/near-5"),
            no_service("ns5/new"),
        ],
        vec![
            no_service("ns1/web"),
            no_service("ns3/empty"),
            no_service("ns4/inside"),
        ],
    ]
}

/// What a proxy that knows only the present writes into an empty namespace.
fn fresh(backend: Backend, facts: Vec<Fact>) -> Vec<String> {
    let (send, receive) = std::sync::mpsc::channel();
    in_namespace(move || {
        Proxy::start(backend, facts);
        send.send(saved(backend)).unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn incremental_changes_leave_what_a_fresh_start_would() {
    for backend in BACKENDS {
        in_namespace(move || {
            let mut all = some_services();
            let mut proxy = Proxy::start(backend, all.clone());
            for (step, facts) in life().into_iter().enumerate() {
                all.extend(facts.clone());
                let (_, outcome) = proxy.apply(facts);
                assert_eq!(outcome, Outcome::default());
                assert_eq!(
                    saved(backend),
                    fresh(backend, all.clone()),
                    "{backend:?}, step {step}"
                );
                proxy.assert_in_sync();
            }
        });
    }
}

#[test]
fn a_restart_changes_nothing_that_is_seen() {
    for backend in BACKENDS {
        in_namespace(move || {
            Proxy::start(backend, some_services());
            let before = saved(backend);
            let mut again = Proxy::start(backend, some_services());
            assert_eq!(saved(backend), before);
            again.assert_in_sync();
        });
    }
}

#[test]
fn a_restart_removes_what_was_deleted_meanwhile() {
    for backend in BACKENDS {
        in_namespace(move || {
            Proxy::start(backend, some_services());
            let mut facts = some_services();
            facts.truncate(3);
            let mut again = Proxy::start(backend, facts.clone());
            again.assert_in_sync();
            let after = saved(backend);
            run(
                &format!("iptables{}", again.suffix()),
                &["-t", "nat", "-L", "-n"],
            );
            assert!(
                !after.iter().any(|line| line.contains("ns2/near")),
                "{after:#?}"
            );
        });
    }
}

#[test]
fn a_refused_rule_costs_only_its_own_service_and_is_named() {
    for backend in BACKENDS {
        in_namespace(move || {
            let mut proxy = Proxy::start(backend, some_services());
            let bad = service("ns6/bad")
                .cluster_ip("172.30.0.70")
                .tcp("p", 80)
                .fact();
            let good = service("ns6/good")
                .cluster_ip("172.30.0.71")
                .tcp("p", 80)
                .fact();
            let mut facts = vec![bad, good];
            facts.push(
                slice("ns6/good-4", "good")
                    .tcp("p", 80)
                    .ready("10.1.0.9", "there")
                    .fact(),
            );
            facts.push(
                slice("ns6/bad-4", "bad")
                    .tcp("p", 80)
                    .ready("10.1.0.8", "there")
                    .fact(),
            );
            facts.into_iter().for_each(|fact| proxy.cluster.apply(fact));
            let changes = proxy.cluster.changes();
            let mut tx = proxy.compiler.update(&changes);
            spoil(&mut tx);
            let outcome = proxy.driver.commit(&tx).unwrap();
            assert_eq!(outcome.left_out.len(), 1, "{outcome:?}");
            let said = outcome.left_out[0].to_string();
            assert!(said.contains("ns6/bad:p/tcp (IPv4)"), "{said}");
            assert!(said.contains("-s fd00::1/128"), "{said}");
            let now = saved(backend);
            assert!(
                now.iter()
                    .any(|line| line.contains("ns6/good:p cluster IP"))
            );
            assert!(!now.iter().any(|line| line.contains("ns6/bad:p")));
            proxy.compiler.settle(&outcome);
            assert!(proxy.compiler.in_doubt());
            assert_eq!(proxy.resync(), Outcome::default());
            proxy.assert_in_sync();
            assert!(
                saved(backend)
                    .iter()
                    .any(|line| line.contains("ns6/bad:p cluster IP"))
            );
        });
    }
}

/// Gives the service ns6/bad an endpoint of the other family, which the tool does not take.
fn spoil(tx: &mut Tx) {
    use std::sync::Arc;
    for unit in tx.parts.iter_mut().flat_map(|part| &mut part.units) {
        if &*unit.key.service.name == "bad" {
            let route = unit.new.as_mut().unwrap();
            let mut wrong = (**route).clone();
            wrong.cluster = sluice_model::route::Pool::new(vec![sluice_model::route::Backend {
                ip: "fd00::1".parse().unwrap(),
                port: 80,
                local: false,
            }]);
            *route = Arc::new(wrong);
        }
    }
}

#[test]
fn a_flush_or_a_deleted_jump_is_noticed_and_repaired() {
    let intrusions: [&[&[&str]]; 5] = [
        &[&["-t", "nat", "-F"]],
        &[&["-t", "nat", "-F"], &["-t", "nat", "-X"]],
        &[&["-t", "filter", "-F"]],
        &[&["-t", "nat", "-D", "POSTROUTING", "1"]],
        &[&["-t", "filter", "-F", "FORWARD"]],
    ];
    for backend in BACKENDS {
        in_namespace(move || {
            let mut proxy = Proxy::start(backend, some_services());
            let before = saved(backend);
            for commands in intrusions {
                for command in commands {
                    run(&format!("iptables{}", proxy.suffix()), command);
                }
                let look = proxy.driver.look().unwrap();
                assert!(matches!(look, Look::Damaged(_)), "{backend:?} {commands:?}");
                assert_eq!(proxy.resync(), Outcome::default());
                assert_eq!(saved(backend), before, "{backend:?} {commands:?}");
                assert_eq!(proxy.driver.look().unwrap(), Look::Intact);
            }
        });
    }
}

#[test]
fn lines_that_others_change_in_shared_chains_are_put_right() {
    for backend in BACKENDS {
        in_namespace(move || {
            let mut proxy = Proxy::start(backend, some_services());
            let before = saved(backend);
            let program = format!("iptables{}", proxy.suffix());
            run(
                &program,
                &["-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN"],
            );
            run(
                &program,
                &[
                    "-t",
                    "nat",
                    "-A",
                    "KUBE-SERVICES",
                    "-d",
                    "192.0.2.77",
                    "-j",
                    "ACCEPT",
                ],
            );
            run(
                &program,
                &["-t", "filter", "-D", "KUBE-PROXY-FIREWALL", "1"],
            );
            proxy.resync();
            assert_eq!(saved(backend), before);
            proxy.assert_in_sync();
        });
    }
}

#[test]
fn cleaning_up_removes_ours_and_nothing_else() {
    for backend in BACKENDS {
        in_namespace(move || {
            let program = format!("iptables{}", suffix(backend));
            run(&program, &["-t", "nat", "-N", "THEIRS"]);
            run(
                &program,
                &["-t", "nat", "-A", "POSTROUTING", "-j", "THEIRS"],
            );
            run(&program, &["-t", "mangle", "-N", "KUBE-KUBELET-CANARY"]);
            run(
                &program,
                &["-A", "FORWARD", "-p", "tcp", "--dport", "99", "-j", "DROP"],
            );
            Proxy::start(backend, some_services());
            let (removed, errors) = Driver::remove_rules();
            assert!(errors.is_empty(), "{errors:?}");
            assert!(removed > 60, "{removed}");
            let rest: Vec<String> = saved(backend)
                .into_iter()
                .filter(|line| line.starts_with("iptables ") && !line.contains("COMMIT"))
                .filter(|line| {
                    line.contains(" -A ") || line.contains(" :KUBE") || line.contains(":T")
                })
                .collect();
            assert_eq!(
                rest,
                [
                    "iptables *filter -A FORWARD -p tcp -m tcp --dport 99 -j DROP",
                    "iptables *filter -A INPUT -j KUBE-FIREWALL",
                    "iptables *filter -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment \
                     --comment \"block incoming localnet connections\" -m conntrack ! --ctstate \
                     RELATED,ESTABLISHED,DNAT -j DROP",
                    "iptables *filter -A OUTPUT -j KUBE-FIREWALL",
                    "iptables *filter :KUBE-FIREWALL -",
                    "iptables *mangle :KUBE-KUBELET-CANARY -",
                    "iptables *nat -A POSTROUTING -j THEIRS",
                    "iptables *nat :THEIRS -",
                ]
            );
        });
    }
}

#[test]
fn the_kubelets_hint_decides_which_programs_are_used() {
    for backend in BACKENDS {
        in_namespace(move || {
            let program = format!("iptables{}", suffix(backend));
            run(&program, &["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
            assert_eq!(Driver::open(Choice::Host).unwrap().backend(), backend);
        });
    }
}

#[test]
fn a_lock_that_somebody_holds_is_named_and_nothing_is_lost() {
    in_namespace(|| {
        let mut proxy = Proxy::start(Backend::Legacy, some_services());
        let mut holder = Command::new("flock")
            .args(["/run/xtables.lock", "-c", "echo held; cat >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        holder.stdout.take().unwrap().read_exact(&mut said).unwrap();
        proxy.cluster.apply(no_service("ns1/web"));
        let tx = proxy.compiler.update(&proxy.cluster.changes());
        let error = proxy.driver.commit(&tx).unwrap_err();
        let locked = |e: &DriverError| {
            matches!(
                e,
                DriverError::Write {
                    source: ToolError::Locked { .. },
                    ..
                }
            )
        };
        assert!(locked(&error), "{error}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(proxy.resync(), Outcome::default());
        proxy.assert_in_sync();
        assert!(
            !saved(Backend::Legacy)
                .iter()
                .any(|line| line.contains("ns1/web"))
        );
    });
}

/// Puts a program in the place of a restoring one that reads a part of its input, carries it out
/// and is killed, once.
fn kill_the_next(backend: Backend) {
    let multi = match backend {
        Backend::Nft => "xtables-nft-multi",
        Backend::Legacy => "xtables-legacy-multi",
    };
    let directory = "/run/programs";
    std::fs::create_dir(directory).unwrap();
    for multi in ["xtables-nft-multi", "xtables-legacy-multi"] {
        run("cp", &[&format!("/usr/sbin/{multi}"), directory]);
    }
    for family in ["iptables", "ip6tables"] {
        for (suffix, multi) in [
            ("-nft", "xtables-nft-multi"),
            ("-legacy", "xtables-legacy-multi"),
        ] {
            for verb in ["", "-save", "-restore"] {
                let name = format!("{directory}/{family}{suffix}{verb}");
                std::os::unix::fs::symlink(multi, name).unwrap();
            }
        }
    }
    let name = format!("iptables{}-restore", suffix(backend));
    let script = format!(
        "#!/bin/sh\n[ -e /run/killed ] && exec {directory}/{multi} {name} \"$@\"\n\
         touch /run/killed\n(sed '/COMMIT/q') | {directory}/{multi} {name} \"$@\"\nkill -9 $$\n"
    );
    let path = format!("{directory}/{name}");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, script).unwrap();
    run("chmod", &["755", &path]);
    run("mount", &["--bind", directory, "/usr/sbin"]);
}

#[test]
fn a_program_that_is_killed_half_way_loses_nothing() {
    for backend in BACKENDS {
        in_namespace(move || {
            let mut all = some_services();
            let mut proxy = Proxy::start(backend, all.clone());
            let change = vec![no_slice("ns1/web-4"), no_slice("ns1/web-6")];
            all.extend(change.clone());
            let wanted = fresh(backend, all);
            kill_the_next(backend);
            change
                .into_iter()
                .for_each(|fact| proxy.cluster.apply(fact));
            let tx = proxy.compiler.update(&proxy.cluster.changes());
            let error = proxy.driver.commit(&tx).unwrap_err();
            assert!(error.to_string().contains("signal: 9"), "{error}");
            assert_eq!(proxy.resync(), Outcome::default());
            proxy.assert_in_sync();
            assert_eq!(saved(backend), wanted);
        });
    }
}
