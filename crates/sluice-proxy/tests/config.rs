//! Configuration files: what they may say, what they mean, what is said about them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end at the first surprise; clippy knows only #[test] functions as tests"
)]

use std::time::Duration;

use sluice_model::settings::{DetectLocal, ExternalIps, NodePortAddresses};
use sluice_proxy::config::{Config, ConfigError, LogFormat, Mode, Typed, read};

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

fn typed(rest: &str) -> (Typed, Vec<String>) {
    let (typed, notes) = read("config.conf", &format!("{HEAD}{rest}")).unwrap();
    (typed, notes.iter().map(ToString::to_string).collect())
}

fn config(rest: &str) -> Config {
    let (typed, notes) = typed(rest);
    assert_eq!(notes, [] as [&str; 0]);
    Config::resolve(typed).unwrap()
}

fn file_error(text: &str) -> String {
    read("config.conf", text).unwrap_err().to_string()
}

/// Everything that is wrong with a file's values.
fn invalid(rest: &str) -> Vec<String> {
    match Config::resolve(typed(rest).0) {
        Err(ConfigError::Invalid(errors)) => errors.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// As kubeadm's ConfigMap has it: every key written out.
const WRITTEN_OUT: &str = r#"
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
"#;

#[test]
fn the_file_that_kubeadm_writes_means_the_defaults() {
    let (typed, notes) = read("config.conf", WRITTEN_OUT).unwrap();
    assert_eq!(notes, []);
    let config = Config::resolve(typed).unwrap();
    let cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(cidrs));
    assert_eq!(config.not_yet_in_effect(), [] as [&str; 0]);
    let mut expected = Config::resolve(Typed::default()).unwrap();
    expected.detect_local = config.detect_local.clone();
    expected.client.kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf".into();
    assert_eq!(config, expected);
}

#[test]
fn the_defaults() {
    let config = config("");
    assert_eq!(config.mode, Mode::Nftables);
    assert_eq!(config.bind_address.to_string(), "0.0.0.0");
    let healthz = config.healthz_bind_address.map(|a| a.to_string());
    assert_eq!(healthz.as_deref(), Some("0.0.0.0:10256"));
    assert_eq!(config.metrics_bind_address.to_string(), "127.0.0.1:10249");
    assert_eq!(config.node_port_addresses, NodePortAddresses::Primary);
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(Vec::new()));
    assert_eq!(config.sync_period, Duration::from_secs(30));
    assert_eq!(config.min_sync_period, Duration::ZERO);
    assert_eq!(config.config_sync_period, Duration::from_secs(900));
    assert_eq!((config.masquerade_bit, config.masquerade_all), (14, false));
    assert_eq!(config.oom_score_adj, -999);
    assert_eq!((config.client.qps, config.client.burst), (5.0, 10));
    assert_eq!(config.conntrack.max_per_core, 32_768);
    assert_eq!(
        config.conntrack.tcp_established_timeout,
        Duration::from_secs(86_400)
    );
    assert_eq!(config.logging.format, LogFormat::Text);
    assert_eq!(config.not_yet_in_effect(), [] as [&str; 0]);
}

#[test]
fn explicit_zeros_of_pointers_are_kept() {
    let config = config("conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s}\n");
    assert_eq!(
        (config.conntrack.max_per_core, config.conntrack.min),
        (0, 0)
    );
    assert_eq!(config.conntrack.tcp_established_timeout, Duration::ZERO);
    assert_eq!(config.not_yet_in_effect(), ["conntrack"]);
}

#[test]
fn an_ipv6_bind_address_moves_the_servers_to_ipv6() {
    for spelling in ["\"::\"", "\"[::]\"", "::0"] {
        let config = config(&format!("bindAddress: {spelling}\n"));
        assert_eq!(config.bind_address.to_string(), "::", "{spelling}");
        let healthz = config.healthz_bind_address.map(|a| a.to_string());
        assert_eq!(healthz.as_deref(), Some("[::]:10256"), "{spelling}");
        assert_eq!(
            config.metrics_bind_address.to_string(),
            "[::1]:10249",
            "{spelling}"
        );
    }
}

#[test]
fn an_ipv6_default_is_a_default() {
    let config = config("bindAddress: ::0\n");
    assert_eq!(config.not_yet_in_effect(), [] as [&str; 0]);
}

#[test]
fn addresses_without_a_port_get_the_default_one() {
    let config = config("healthzBindAddress: 010.0.0.1\nmetricsBindAddress: \"fd00::1\"\n");
    let healthz = config.healthz_bind_address.map(|a| a.to_string());
    assert_eq!(healthz.as_deref(), Some("10.0.0.1:10256"));
    assert_eq!(config.metrics_bind_address.to_string(), "[fd00::1]:10249");
}

#[test]
fn a_mode_reads_its_own_section() {
    let sections = "
iptables: {syncPeriod: 10s, masqueradeAll: true, masqueradeBit: 1}
ipvs: {syncPeriod: 20s, minSyncPeriod: 5s}
nftables: {syncPeriod: 40s, minSyncPeriod: 1500ms, masqueradeBit: 3}
";
    let shape = |mode: &str| {
        let config = config(&format!("mode: {mode}\n{sections}"));
        let periods = (
            config.sync_period.as_secs(),
            config.min_sync_period.as_millis(),
        );
        (periods, config.masquerade_all, config.masquerade_bit)
    };
    assert_eq!(shape("nftables"), ((40, 1500), false, 3));
    assert_eq!(shape("iptables"), ((10, 0), true, 1));
    assert_eq!(shape("ipvs"), ((20, 5000), true, 1));
}

#[test]
fn settings_hold_what_policy_depends_on() {
    let config = config(
        "bindAddress: 192.0.2.11
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0}
nodePortAddresses: [192.0.2.0/24, 2001:db8::/32]
nftables: {masqueradeAll: true}
featureGates: {AllowServiceExternalIPs: false}
",
    );
    let settings = config.to_settings("node-a");
    assert_eq!(&*settings.node_name, "node-a");
    assert!(settings.masquerade_all);
    assert_eq!(
        settings.detect_local,
        DetectLocal::BridgeInterface("cni0".into())
    );
    let nets = ["192.0.2.0/24", "2001:db8::/32"].map(|net| net.parse().unwrap());
    assert_eq!(
        settings.node_port_addresses,
        NodePortAddresses::Within(nets.to_vec())
    );
    assert_eq!(
        settings.node_ip_override,
        Some("192.0.2.11".parse().unwrap())
    );
    assert_eq!(settings.external_ips, ExternalIps::Ignored);
}

#[test]
fn node_names_are_trimmed_and_lower_cased() {
    assert_eq!(config("").node_name(" Host-A ").unwrap(), "host-a");
    assert_eq!(
        config("hostnameOverride: Node-B\n").node_name("x").unwrap(),
        "node-b"
    );
    let error = config("").node_name("  ").unwrap_err();
    assert!(matches!(error, ConfigError::BlankNodeName));
}

#[test]
fn unknown_and_doubled_keys_are_named_with_place_and_remedy_and_the_rest_counts() {
    let (typed, notes) = typed(
        "clusterCIDRs: 10.0.0.0/8
mode: iptables
mode: nftables
nftables:
  masquaradeAll: true
  masqueradeAll: true
  teapot: 1
",
    );
    assert_eq!(
        notes,
        [
            "config.conf:3:1: unknown key clusterCIDRs is ignored: did you mean clusterCIDR?",
            "config.conf:5:1: mode is given twice: the last one counts, remove the other",
            "config.conf:7:3: unknown key nftables.masquaradeAll is ignored: did you mean \
             masqueradeAll?",
            "config.conf:9:3: unknown key nftables.teapot is ignored: remove it",
        ]
    );
    let config = Config::resolve(typed).unwrap();
    assert_eq!(config.mode, Mode::Nftables);
    assert!(config.masquerade_all);
}

#[test]
fn values_of_the_wrong_sort_are_all_named() {
    let text = format!(
        "{HEAD}oomScoreAdj: low\nconfigSyncPeriod: 15\nenableProfiling: \"yes\"\nipvs: [1]\n"
    );
    assert_eq!(
        file_error(&text),
        "config.conf:3:14: oomScoreAdj: \"low\": must be a whole number from -2147483648 to 2147483647
config.conf:4:19: configSyncPeriod: 15: must be a duration such as 30s, 5m or 1h30m
config.conf:5:18: enableProfiling: \"yes\": must be true or false, without quotes
config.conf:6:7: ipvs: a list: must be a mapping of keys to values"
    );
}

#[test]
fn other_kinds_and_broken_yaml_are_fatal() {
    assert_eq!(
        file_error("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n"),
        "config.conf:2:7: kind is KubeletConfiguration: must be KubeProxyConfiguration"
    );
    assert_eq!(
        file_error("kind: KubeProxyConfiguration\n"),
        "config.conf:1:1: apiVersion is missing: must be kubeproxy.config.k8s.io/v1alpha1"
    );
    assert_eq!(
        file_error(&format!("{HEAD}mode: \"nft\n")),
        "config.conf:3:7: is no YAML: unclosed quote"
    );
    assert_eq!(
        file_error(""),
        "config.conf: must hold one YAML document, which is a KubeProxyConfiguration"
    );
}

#[test]
fn json_is_read_too() {
    let text = r#"{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "ipvs", "logging": {"format": "json", "flushFrequency": 3000000000}}"#;
    let config = Config::resolve(read("c.json", text).unwrap().0).unwrap();
    assert_eq!(
        (config.mode, config.logging.format),
        (Mode::Ipvs, LogFormat::Json)
    );
    assert_eq!(config.logging.flush_frequency, Duration::from_secs(3));
}

#[test]
fn values_that_cannot_be_are_all_named() {
    let errors = invalid(
        "mode: magic
bindAddress: 10.0.0.1:80
healthzBindAddress: localhost:80
metricsBindAddress: 10.0.0.1:0
oomScoreAdj: 2000
iptables: {masqueradeBit: 32}
nftables: {syncPeriod: 1s, minSyncPeriod: 2s}
conntrack: {min: -1, udpTimeout: -1s}
configSyncPeriod: -1s
clientConnection: {burst: -5}
clusterCIDR: 10.0.0.0/8,10.1.0.0/16
nodePortAddresses: [192.0.2.0/24, primary, nonsense]
logging: {format: xml}
showHiddenMetricsForVersion: \"1.20\"
",
    );
    let short: Vec<&str> = errors
        .iter()
        .map(|e| e.strip_prefix("KubeProxyConfiguration.").unwrap())
        .map(|e| e.split(": must").next().unwrap())
        .collect();
    let mut sorted = short.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "bindAddress: invalid value: \"10.0.0.1:80\"",
            "clientConnection.burst: invalid value: \"-5\"",
            "clusterCIDR: invalid value: \"10.0.0.0/8,10.1.0.0/16\"",
            "configSyncPeriod: invalid value: \"-1s\"",
            "conntrack.min: invalid value: \"-1\"",
            "conntrack.udpTimeout: invalid value: \"-1s\"",
            "healthzBindAddress: invalid value: \"localhost:80\"",
            "iptables.masqueradeBit: invalid value: \"32\"",
            "logging.format: invalid value: \"xml\"",
            "metricsBindAddress: invalid value: \"10.0.0.1:0\"",
            "mode: invalid value: \"magic\"",
            "nftables.syncPeriod: invalid value: \"1s\"",
            "nodePortAddresses[1]: invalid value: \"primary\"",
            "oomScoreAdj: invalid value: \"2000\"",
            "showHiddenMetricsForVersion: invalid value: \"1.20\"",
        ]
    );
}

#[test]
fn interface_modes_need_a_name() {
    assert_eq!(
        invalid("detectLocalMode: BridgeInterface\n"),
        [
            "KubeProxyConfiguration.detectLocal.bridgeInterface: invalid value: \"\": must be given \
          with this detectLocalMode"
        ]
    );
    assert_eq!(
        invalid("detectLocalMode: Guess\n"),
        [
            "KubeProxyConfiguration.detectLocalMode: invalid value: \"Guess\": must be ClusterCIDR, \
          NodeCIDR, BridgeInterface or InterfaceNamePrefix"
        ]
    );
}

#[test]
fn sections_of_other_modes_are_not_validated() {
    config("ipvs: {tcpTimeout: -1s, excludeCIDRs: [x]}\n");
    let errors = invalid("mode: ipvs\nipvs: {tcpTimeout: -1s, excludeCIDRs: [x]}\n");
    assert_eq!(errors.len(), 2);
}

#[test]
fn a_written_configuration_reads_back_to_the_same() {
    let rest = "mode: ipvs
ipvs: {syncPeriod: 45s, minSyncPeriod: 250ms, excludeCIDRs: [10.0.0.0/8], udpTimeout: 5m}
iptables: {masqueradeAll: true}
hostnameOverride: node-a
detectLocalMode: InterfaceNamePrefix
detectLocal: {interfaceNamePrefix: \"a\\\"b\"}
nodePortAddresses: [192.0.2.0/24]
logging: {verbosity: 4, vmodule: [{filePattern: proxier, verbosity: 5}]}
featureGates: {AllowServiceExternalIPs: false}
bindAddress: \"::\"
";
    for text in [rest, "", "mode: iptables\niptables: {minSyncPeriod: 1s}\n"] {
        let before = config(text);
        let (typed, notes) = read("written", &before.to_yaml()).unwrap();
        assert_eq!(notes, []);
        assert_eq!(Config::resolve(typed).unwrap(), before);
    }
}
