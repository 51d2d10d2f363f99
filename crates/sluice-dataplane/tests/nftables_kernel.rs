//! The nftables driver on the real kernel, each test in a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::Arc;

use sluice_dataplane::nftables::Compiler;
use sluice_dataplane::nftables::driver::Driver;
use sluice_dataplane::nftables::tx::Tx;
use sluice_model::fact::{Family, Protocol};
use sluice_model::name::ObjectKey;
use sluice_model::route::{
    At, Backend, Changes, Frontend, Masquerade, NodePortMatch, NodeView, Path, PodMatch, Pool,
    PoolChoice, PortKey, Refusal, Route, RouteChange, Scope,
};

fn in_namespace(test: impl FnOnce(Driver) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        #[allow(
            unsafe_code,
            deprecated,
            reason = "a thread of its own, which ends with the test"
        )]
        let entered =
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
        entered.expect("kernel tests need root, or a user namespace with CAP_NET_ADMIN");
        test(Driver::open().expect("nf_tables socket"));
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(family: Family, last: u16) -> std::net::IpAddr {
    match family {
        Family::V4 => [10, 96, (last >> 8) as u8, last as u8].into(),
        Family::V6 => std::net::Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, last).into(),
    }
}

fn view(family: Family) -> NodeView {
    let cidr = match family {
        Family::V4 => "10.96.0.0/16",
        Family::V6 => "fd00:10:96::/112",
    };
    let pods = match family {
        Family::V4 => PodMatch::Source("198.51.100.0/24".parse().unwrap()),
        Family::V6 => PodMatch::InterfacePrefix("pod".into()),
    };
    NodeView {
        pods: Some(pods),
        node_ports: NodePortMatch::Addresses(vec![ip(family, 9)]),
        service_cidrs: vec![cidr.parse().unwrap()],
    }
}

fn pool(family: Family, backends: &[u16]) -> Pool {
    let backend = |n: &u16| Backend {
        ip: ip(family, 1000 + n),
        port: 8080,
        local: n.is_multiple_of(2),
    };
    Pool::new(backends.iter().map(backend).collect())
}

fn frontend(at: At, scope: Scope, path: Path) -> Frontend {
    Frontend {
        at,
        scope,
        path,
        allow: None,
        refusal: None,
    }
}

/// A service with every kind of frontend.
fn route(family: Family, number: u16, backends: &[u16], affinity: Option<u32>) -> Arc<Route> {
    let net = |n| {
        format!(
            "{}/{}",
            ip(family, n),
            if family == Family::V4 { 31 } else { 127 }
        )
    };
    let guarded = Frontend {
        allow: Some(vec![net(2).parse().unwrap(), net(8).parse().unwrap()]),
        ..frontend(
            At::Vip(ip(family, number + 300), 80),
            Scope::LoadBalancer,
            Path::Split,
        )
    };
    let cluster = Path::Uniform(PoolChoice::Cluster, Masquerade::NotPods);
    let external = Path::Uniform(PoolChoice::Cluster, Masquerade::Always);
    let refusal = backends.is_empty().then_some(Refusal::Reject);
    let mut frontends = vec![
        frontend(At::Vip(ip(family, number), 80), Scope::Cluster, cluster),
        guarded,
        frontend(
            At::Vip(ip(family, number + 600), 80),
            Scope::ExternalIp,
            external,
        ),
        frontend(At::NodePort(30_000 + number), Scope::NodePort, Path::Split),
    ];
    frontends.iter_mut().for_each(|f| f.refusal = refusal);
    Arc::new(Route {
        key: PortKey {
            service: ObjectKey::new("default", &format!("s{number}")),
            port: "http".into(),
            protocol: Protocol::Tcp,
        },
        family,
        cluster: pool(family, backends),
        local: pool(
            family,
            &backends
                .iter()
                .copied()
                .filter(|n| n % 2 == 0)
                .collect::<Vec<_>>(),
        ),
        affinity,
        frontends,
    })
}

fn change(old: Option<Arc<Route>>, new: Option<Arc<Route>>) -> RouteChange {
    RouteChange { old, new }
}

fn some_services() -> Changes {
    let mut changes = Changes::default();
    for family in Family::ALL {
        changes.node[family as usize] = Some(view(family));
        for (number, backends, affinity) in [
            (1, &[1, 2, 3][..], None),
            (2, &[1, 4], Some(10_800)),
            (3, &[], None),
            (4, &[2], Some(60)),
        ] {
            changes.routes.push(change(
                None,
                Some(route(family, number, backends, affinity)),
            ));
        }
    }
    changes
}

fn load(driver: &mut Driver, changes: &Changes) -> (Compiler, Tx) {
    let mut compiler = Compiler::new(0x4000);
    let observed = driver.read().unwrap();
    compiler.adopt(changes, &observed);
    let (tx, _) = compiler.resync(&observed);
    driver.commit(&tx).unwrap();
    (compiler, tx)
}

fn assert_in_sync(driver: &mut Driver, compiler: &mut Compiler) {
    let (tx, drifts) = compiler.resync(&driver.read().unwrap());
    assert_eq!(
        (&tx, drifts.iter().all(|d| d.is_none())),
        (&Tx::default(), true),
        "{drifts:?}"
    );
}

fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft")
        .args(arguments)
        .output()
        .expect("nft is installed");
    assert!(output.status.success(), "nft {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_was_written_reads_back_as_intended() {
    in_namespace(|mut driver| {
        let (mut compiler, tx) = load(&mut driver, &some_services());
        assert!(tx.len() > 100);
        assert_in_sync(&mut driver, &mut compiler);
    });
}

#[test]
fn a_restart_adopts_everything_and_writes_nothing() {
    in_namespace(|mut driver| {
        load(&mut driver, &some_services());
        let (_, again) = load(&mut driver, &some_services());
        assert_eq!(again, Tx::default());
    });
}

#[test]
fn a_restart_after_churn_keeps_the_slots_that_the_kernel_has() {
    in_namespace(|mut driver| {
        let (mut compiler, _) = load(&mut driver, &some_services());
        let (old, new) = (
            route(Family::V4, 1, &[1, 2, 3], None),
            route(Family::V4, 1, &[0, 2, 3, 9], None),
        );
        let routes = vec![change(Some(old), Some(Arc::clone(&new)))];
        driver
            .commit(&compiler.update(&Changes {
                routes,
                ..Changes::default()
            }))
            .unwrap();
        let mut now = some_services();
        now.routes[0].new = Some(new);
        let (_, again) = load(&mut driver, &now);
        assert_eq!(again, Tx::default());
    });
}

#[test]
fn a_restart_after_the_last_affinity_is_gone_writes_nothing() {
    in_namespace(|mut driver| {
        let (mut compiler, _) = load(&mut driver, &some_services());
        let mut now = some_services();
        let mut routes = Vec::new();
        for service in &mut now.routes {
            let old = service.new.take().unwrap();
            let free = Arc::new(Route {
                affinity: None,
                ..Route::clone(&old)
            });
            service.new = Some(Arc::clone(&free));
            routes.push(change(Some(old), Some(free)));
        }
        let changes = Changes {
            routes,
            ..Changes::default()
        };
        driver.commit(&compiler.update(&changes)).unwrap();
        // The idle chains still read the map.
        assert_in_sync(&mut driver, &mut compiler);
        let (_, again) = load(&mut driver, &now);
        assert_eq!(again, Tx::default());
    });
}

#[test]
fn every_incremental_change_leaves_what_a_full_load_would() {
    in_namespace(|mut driver| {
        let (mut compiler, _) = load(&mut driver, &some_services());
        let mut state: Vec<Option<Arc<Route>>> =
            some_services().routes.into_iter().map(|c| c.new).collect();
        let steps: [(usize, Option<Arc<Route>>); 8] = [
            (0, Some(route(Family::V4, 1, &[1, 2, 4], None))),
            (0, Some(route(Family::V4, 1, &[1], None))),
            (0, Some(route(Family::V4, 1, &[], None))),
            (0, None),
            (0, Some(route(Family::V4, 1, &[7, 8], Some(5)))),
            (1, Some(route(Family::V4, 2, &[4], Some(10_800)))),
            (1, Some(route(Family::V4, 2, &[4], None))),
            (
                4,
                Some(route(Family::V6, 1, &(0..70).collect::<Vec<_>>(), Some(99))),
            ),
        ];
        for (index, new) in steps {
            let old = std::mem::replace(&mut state[index], new.clone());
            let routes = vec![change(old, new)];
            driver
                .commit(&compiler.update(&Changes {
                    routes,
                    ..Changes::default()
                }))
                .unwrap();
            // Idle class chains may stay until swept; nothing else may differ.
            let (_, drifts) = compiler_clone_resync(&mut driver, &state);
            assert!(drifts.iter().all(|d| d.is_none()), "{drifts:?}");
        }
    });
}

fn compiler_clone_resync(
    driver: &mut Driver,
    state: &[Option<Arc<Route>>],
) -> (Tx, [sluice_dataplane::drift::Drift; 2]) {
    let mut changes = Changes::default();
    for family in Family::ALL {
        changes.node[family as usize] = Some(view(family));
    }
    changes.routes = state
        .iter()
        .flatten()
        .map(|r| change(None, Some(Arc::clone(r))))
        .collect();
    let observed = driver.read().unwrap();
    let mut fresh = Compiler::new(0x4000);
    fresh.adopt(&changes, &observed);
    fresh.resync(&observed)
}

#[test]
fn a_change_of_the_node_rewrites_only_the_rules_that_differ() {
    in_namespace(|mut driver| {
        let (mut compiler, _) = load(&mut driver, &some_services());
        let mut changes = Changes::default();
        let node_ports = NodePortMatch::AnyLocal;
        changes.node[0] = Some(NodeView {
            pods: None,
            node_ports,
            service_cidrs: vec![],
        });
        let tx = compiler.update(&changes);
        assert!(tx.len() < 60, "{}", tx.len());
        driver.commit(&tx).unwrap();
        let (_, drifts) = compiler.resync(&driver.read().unwrap());
        assert!(drifts.iter().all(|d| d.is_none()), "{drifts:?}");
    });
}

#[test]
fn what_others_change_is_noticed_and_repaired() {
    let intrusions: [&[&str]; 11] = [
        &["delete table ip kube-proxy"],
        &["flush chain ip kube-proxy services"],
        &["add rule ip kube-proxy services counter"],
        &["insert rule ip6 kube-proxy plain-1-sticky-60 drop"],
        &["flush map ip kube-proxy endpoints"],
        &["add element ip kube-proxy cluster-ips { 192.0.2.77 }"],
        &[
            "add chain ip kube-proxy mine",
            "add rule ip kube-proxy mine drop",
        ],
        &["add set ip kube-proxy mine { type mark; }"],
        &["insert rule ip kube-proxy services tcp dport { 1, 2, 3 } drop"],
        &[
            "add chain ip kube-proxy mine",
            "add map ip kube-proxy mine { type ipv4_addr : verdict; }",
            "add element ip kube-proxy mine { 192.0.2.77 : jump mine }",
        ],
        &["add table ip kube-proxy { flags dormant; }"],
    ];
    in_namespace(move |mut driver| {
        let (mut compiler, _) = load(&mut driver, &some_services());
        for commands in intrusions {
            for command in commands {
                nft(&[command]);
            }
            let (tx, drifts) = compiler.resync(&driver.read().unwrap());
            assert!(
                drifts
                    .iter()
                    .any(|d| !d.is_none() && !d.examples.is_empty()),
                "{commands:?}"
            );
            driver.commit(&tx).unwrap();
            assert_in_sync(&mut driver, &mut compiler);
        }
    });
}

#[test]
fn another_makes_table_is_replaced_in_one_transaction() {
    in_namespace(|mut driver| {
        nft(&["add table ip kube-proxy"]);
        nft(&[
            "add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }",
        ]);
        nft(&["add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -90; }"]);
        let (mut compiler, tx) = load(&mut driver, &some_services());
        assert!(tx.len() > 100);
        assert_in_sync(&mut driver, &mut compiler);
    });
}

#[test]
fn nft_lists_every_rule() {
    in_namespace(|mut driver| {
        load(&mut driver, &some_services());
        let text = nft(&["list", "ruleset"]);
        for wanted in [
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints",
            "iifname \"pod*\" goto plain-",
            "masquerade fully-random",
            "update @affinity-10800 { ip saddr . ct original ip daddr",
            "10.96.0.1 . tcp . 80 : goto cluster-3",
            "typeof ip daddr . meta l4proto . th dport . numgen random mod",
            "comment \"hairpin\"",
        ] {
            assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
        }
    });
}
