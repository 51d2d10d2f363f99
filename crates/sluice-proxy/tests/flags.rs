//! The command line.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end at the first surprise; clippy knows only #[test] functions as tests"
)]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use sluice_model::settings::{DetectLocal, NodePortAddresses};
use sluice_proxy::config::{Config, ConfigError, Mode};
use sluice_proxy::flags::{Invocation, Loaded, Task, parse};

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

fn invocation(line: &str) -> Invocation {
    parse(line.split_whitespace().map(OsString::from)).unwrap()
}

fn config(line: &str) -> Config {
    let Loaded { config, notes } = invocation(line).load().unwrap();
    assert_eq!(notes, []);
    config
}

fn with_file(line: &str, rest: &str) -> (Config, Vec<String>) {
    let text = format!("{HEAD}{rest}");
    let file = Some((Path::new("c.conf"), text.as_str()));
    let Loaded { config, notes } = invocation(line).load_text(file).unwrap();
    (config, notes.iter().map(ToString::to_string).collect())
}

fn refusal(line: &str) -> String {
    let args = line.split_whitespace().map(OsString::from);
    parse(args).unwrap_err().to_string()
}

fn printed(line: &str) -> String {
    let Task::Print(text) = invocation(line).task else {
        panic!("{line} prints nothing")
    };
    text
}

#[test]
fn nothing_typed_means_what_an_empty_file_means() {
    assert_eq!(config(""), with_file("", "").0);
    assert_eq!(invocation("").task, Task::Run);
}

#[test]
fn values_follow_after_a_blank_or_an_equals_sign_and_underscores_are_dashes() {
    for line in [
        "--cluster-cidr=10.0.0.0/8 --oom-score-adj=-5",
        "--cluster-cidr 10.0.0.0/8 --oom-score-adj -5",
        "--cluster_cidr 10.0.0.0/8 --oom_score_adj=-5",
    ] {
        let config = config(line);
        let cidrs = vec!["10.0.0.0/8".parse().unwrap()];
        assert_eq!(
            config.detect_local,
            DetectLocal::ClusterCidr(cidrs),
            "{line}"
        );
        assert_eq!(config.oom_score_adj, -5, "{line}");
    }
}

#[test]
fn switches_need_no_value_and_take_one_after_an_equals_sign() {
    assert!(config("--masquerade-all").masquerade_all);
    assert!(config("--masquerade-all=T").masquerade_all);
    assert!(!config("--masquerade-all --masquerade-all=false").masquerade_all);
    assert_eq!(invocation("--cleanup").task, Task::Cleanup);
    assert_eq!(invocation("--cleanup=false").task, Task::Run);
    assert_eq!(invocation("--init-only").task, Task::InitOnly);
    let write = invocation("--cleanup --write-config-to /tmp/x").task;
    assert_eq!(write, Task::WriteConfig("/tmp/x".into()));
}

#[test]
fn verbosity_is_typed_in_many_ways() {
    for line in ["-v=4", "-v 4", "-v4", "--v=4", "--v 4"] {
        assert_eq!(config(line).logging.verbosity, 4, "{line}");
    }
}

#[test]
fn lists_add_up() {
    let line = "--nodeport-addresses 192.0.2.0/24,10.0.0.0/8 --nodeport-addresses 2001:db8::/32";
    let nets = ["192.0.2.0/24", "10.0.0.0/8", "2001:db8::/32"].map(|net| net.parse().unwrap());
    assert_eq!(
        config(line).node_port_addresses,
        NodePortAddresses::Within(nets.to_vec())
    );
    let gates = config("--feature-gates A=true,B=false --feature-gates A=false").feature_gates;
    assert_eq!(
        gates.into_iter().collect::<Vec<_>>(),
        [("A".into(), false), ("B".into(), false)]
    );
}

#[test]
fn sync_periods_go_by_mode() {
    let line = "--iptables-sync-period 10s --iptables-min-sync-period 1s --ipvs-sync-period 20s";
    let shape = |mode| {
        let config = config(&format!("{line} --proxy-mode {mode}"));
        (
            config.mode,
            config.sync_period.as_secs(),
            config.min_sync_period.as_secs(),
        )
    };
    assert_eq!(shape("nftables"), (Mode::Nftables, 10, 1));
    assert_eq!(shape("iptables"), (Mode::Iptables, 10, 1));
    assert_eq!(shape("userspace"), (Mode::Userspace, 10, 1));
    assert_eq!(shape("ipvs"), (Mode::Ipvs, 20, 0));
}

#[test]
fn beside_a_file_most_flags_are_without_effect_and_named() {
    let line = "--config c.conf --proxy-mode ipvs --cluster_cidr 10.0.0.0/8 -v 3 \
                --hostname-override Node-A --master https://a --manifests m";
    let (config, notes) = with_file(
        line,
        "mode: iptables\nlogging: {verbosity: 1}\nhostnameOverride: x\n",
    );
    assert_eq!(config.mode, Mode::Iptables);
    assert_eq!(config.logging.verbosity, 3);
    assert_eq!(config.hostname_override.as_deref(), Some("node-a"));
    assert_eq!(
        notes,
        [
            "c.conf: flags without effect beside --config: --proxy-mode, --cluster-cidr; set the \
          keys in the file instead"
        ]
    );
    let invocation = invocation(line);
    assert_eq!(invocation.master, "https://a");
    assert_eq!(invocation.manifests.as_deref(), Some(Path::new("m")));
    assert_eq!(invocation.config_file.as_deref(), Some(Path::new("c.conf")));
}

#[test]
fn vmodule_of_flags_comes_before_that_of_the_file() {
    let rest = "logging: {vmodule: [{filePattern: b, verbosity: 2}]}\n";
    let (config, _) = with_file("--vmodule a=1", rest);
    assert_eq!(
        config.logging.vmodule,
        [("a".to_owned(), 1), ("b".to_owned(), 2)]
    );
}

#[test]
fn a_blank_hostname_override_is_refused() {
    let args = ["--hostname-override", "  "].map(OsString::from);
    let error = parse(args.into_iter()).unwrap().load().unwrap_err();
    assert!(matches!(error, ConfigError::BlankNodeName));
    assert_eq!(config("--hostname-override=").hostname_override, None);
}

#[test]
fn the_ports_of_old_still_count() {
    let healthz = |line| config(line).healthz_bind_address.map(|a| a.to_string());
    assert_eq!(healthz("--healthz-port=0"), None);
    assert_eq!(healthz("--healthz-port=80").as_deref(), Some("0.0.0.0:80"));
    let line = "--healthz-bind-address 10.0.0.1 --healthz-port=80";
    assert_eq!(healthz(line).as_deref(), Some("10.0.0.1:80"));
    let line = "--healthz-port=80 --healthz-bind-address fd00::1";
    assert_eq!(healthz(line).as_deref(), Some("[fd00::1]:80"));
    let line = "--healthz-bind-address 10.0.0.1:90 --healthz-port=80";
    assert_eq!(healthz(line).as_deref(), Some("10.0.0.1:90"));
    let metrics = config("--metrics-port=0").metrics_bind_address.to_string();
    assert_eq!(metrics, "127.0.0.1:10249");
}

#[test]
fn durations_are_those_of_go() {
    let config = config("--config-sync-period 1h30m --conntrack-udp-timeout=1.5s");
    assert_eq!(config.config_sync_period, Duration::from_secs(5400));
    assert_eq!(config.conntrack.udp_timeout, Duration::from_millis(1500));
}

#[test]
fn what_cannot_be_understood_is_named() {
    let hint = "(kube-proxy --help lists the flags)";
    assert_eq!(
        refusal("--proxy-mod ipvs"),
        format!("unexpected argument '--proxy-mod' found {hint}")
    );
    assert_eq!(
        refusal("serve"),
        format!("unexpected argument 'serve' found {hint}")
    );
    assert_eq!(
        refusal("--oom-score-adj=low"),
        "invalid value \"low\" for --oom-score-adj: must be a whole number of 32 bits"
    );
    assert_eq!(
        refusal("--masquerade-all=maybe"),
        "invalid value \"maybe\" for --masquerade-all: must be true or false"
    );
    assert_eq!(
        refusal("--config-sync-period=15"),
        "invalid value \"15\" for --config-sync-period: must be a duration such as 30s, 5m or 1h30m"
    );
    assert!(refusal("--cluster-cidr").contains("a value is required for '--cluster-cidr <CIDRS>'"));
}

#[test]
fn the_version_starts_as_tools_expect() {
    let ours = env!("CARGO_PKG_VERSION");
    assert_eq!(
        printed("--version"),
        format!("Kubernetes v1.36.2 (Sluice {ours})\n")
    );
    assert_eq!(
        printed("--version=v1.2.3"),
        format!("Kubernetes v1.2.3 (Sluice {ours})\n")
    );
    assert_eq!(invocation("--version=false").task, Task::Run);
}

#[test]
fn help_lists_every_flag() {
    let help = printed("--help");
    for flag in [
        "--manifests <PATH>",
        "--proxy-mode <MODE>",
        "-v, --v <LEVEL>",
        "--machine-id-file",
    ] {
        assert!(help.contains(flag), "{flag} is missing from\n{help}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = invocation("--config /nowhere/c.conf").load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the configuration file /nowhere/c.conf: No such file or directory (os error 2)"
    );
}
