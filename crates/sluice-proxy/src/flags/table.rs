//! Every flag.

use super::value::{boolean, gates, int, list, port, span, vmodule};
use crate::config::Typed;

/// A flag: how it is written, what it says in the help page, what it does.
pub(super) struct Flag {
    /// Name without dashes.
    pub(super) name: &'static str,
    /// What values it takes.
    pub(super) shape: Shape,
    /// Whether it counts beside `--config`.
    pub(super) kept: Kept,
    /// One line; a flag without one is accepted and not shown.
    pub(super) help: &'static str,
    /// Writes the value where it belongs, or says what it must be.
    pub(super) apply: fn(&str, &mut Typed) -> Result<(), &'static str>,
}

/// What values a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// None, which means true, or one after `=`.
    Switch,
    /// One; the last one given counts.
    One(&'static str),
    /// One each time it is given; all count.
    Many(&'static str),
}

/// Whether a flag counts beside `--config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It does.
    Always,
    /// It does not: the file decides alone.
    WithoutConfig,
}

use Kept::{Always, WithoutConfig};
use Shape::{Many, One, Switch};

type Apply = fn(&str, &mut Typed) -> Result<(), &'static str>;

const fn flag(
    name: &'static str,
    shape: Shape,
    kept: Kept,
    help: &'static str,
    apply: Apply,
) -> Flag {
    Flag {
        name,
        shape,
        kept,
        help,
        apply,
    }
}

/// For flags whose value is taken from the command line itself and not from a setting.
fn nowhere(_: &str, _: &mut Typed) -> Result<(), &'static str> {
    Ok(())
}

fn switch_nowhere(value: &str, _: &mut Typed) -> Result<(), &'static str> {
    boolean(value).map(drop)
}

/// Sets a field to what the value says. A macro since every field has its own type and place.
macro_rules! set {
    ($read:path => $($field:ident).+) => {
        |value, typed| {
            typed.$($field).+ = Some($read(value)?);
            Ok(())
        }
    };
    ($($field:ident).+) => {
        |value, typed| {
            typed.$($field).+ = Some(value.to_owned());
            Ok(())
        }
    };
}

/// The flags in the order of the help page: ours and the common ones first.
pub(super) const FLAGS: &[Flag] = &[
    flag(
        "manifests",
        One("PATH"),
        Always,
        "Read Services, EndpointSlices, Endpoints, Nodes and ServiceCIDRs from this file or folder of YAML or JSON instead of an API server, and follow its changes",
        nowhere,
    ),
    flag(
        "config",
        One("FILE"),
        Always,
        "KubeProxyConfiguration file; most flags have no effect beside it",
        nowhere,
    ),
    flag(
        "hostname-override",
        One("NAME"),
        Always,
        "Name of the Node this proxy runs on, instead of the machine's own name",
        set!(hostname_override),
    ),
    flag(
        "proxy-mode",
        One("MODE"),
        WithoutConfig,
        "nftables, iptables, ipvs or userspace; blank is nftables",
        set!(mode),
    ),
    flag(
        "cluster-cidr",
        One("CIDRS"),
        WithoutConfig,
        "Addresses of pods, one range or one per IP family with a comma; for --detect-local-mode=ClusterCIDR",
        set!(cluster_cidr),
    ),
    flag(
        "nodeport-addresses",
        Many("CIDRS"),
        WithoutConfig,
        "Node addresses that accept node ports: ranges, or \"primary\" for the Node's own (the default in nftables mode)",
        |value, typed| {
            typed
                .node_port_addresses
                .get_or_insert_default()
                .extend(list(value));
            Ok(())
        },
    ),
    flag(
        "masquerade-all",
        Switch,
        WithoutConfig,
        "Masquerade all traffic to cluster IPs",
        |value, typed| {
            let on = Some(boolean(value)?);
            typed.iptables.masquerade_all = on;
            typed.nftables.masquerade_all = on;
            Ok(())
        },
    ),
    flag(
        "detect-local-mode",
        One("MODE"),
        WithoutConfig,
        "How to tell this node's pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        set!(detect_local_mode),
    ),
    flag(
        "pod-bridge-interface",
        One("NAME"),
        WithoutConfig,
        "Bridge of this node's pods; for --detect-local-mode=BridgeInterface",
        set!(bridge_interface),
    ),
    flag(
        "pod-interface-name-prefix",
        One("PREFIX"),
        WithoutConfig,
        "Start of the names of pod interfaces; for --detect-local-mode=InterfaceNamePrefix",
        set!(interface_name_prefix),
    ),
    flag(
        "bind-address",
        One("IP"),
        WithoutConfig,
        "Takes the place of the Node's primary IP unless it is unspecified; binds nothing",
        set!(bind_address),
    ),
    flag(
        "healthz-bind-address",
        One("IP:PORT"),
        WithoutConfig,
        "Address of the health server (default 0.0.0.0:10256)",
        set!(healthz_bind_address),
    ),
    flag(
        "metrics-bind-address",
        One("IP:PORT"),
        WithoutConfig,
        "Address of the metrics server (default 127.0.0.1:10249)",
        set!(metrics_bind_address),
    ),
    flag(
        "bind-address-hard-fail",
        Switch,
        WithoutConfig,
        "End the process when a server cannot bind its address",
        set!(boolean => bind_address_hard_fail),
    ),
    flag(
        "kubeconfig",
        One("FILE"),
        WithoutConfig,
        "How to reach the API server; blank is in-cluster",
        set!(client.kubeconfig),
    ),
    flag(
        "master",
        One("URL"),
        Always,
        "Address of the API server, instead of that of the kubeconfig",
        nowhere,
    ),
    flag(
        "kube-api-content-type",
        One("TYPE"),
        WithoutConfig,
        "Content type of requests to the API server",
        set!(client.content_type),
    ),
    flag(
        "kube-api-burst",
        One("N"),
        WithoutConfig,
        "Burst of requests to the API server (default 10)",
        set!(int => client.burst),
    ),
    flag(
        "kube-api-qps",
        One("N"),
        WithoutConfig,
        "Requests per second to the API server (default 5)",
        |value, typed| {
            typed.client.qps = Some(value.parse().map_err(|_| "must be a number")?);
            Ok(())
        },
    ),
    flag(
        "cleanup",
        Switch,
        Always,
        "Remove the rules of all modes and exit",
        switch_nowhere,
    ),
    flag(
        "init-only",
        Switch,
        Always,
        "Do the privileged set-up and exit; kube-proxy then needs only CAP_NET_ADMIN",
        switch_nowhere,
    ),
    flag(
        "write-config-to",
        One("FILE"),
        Always,
        "Write the configuration in effect to this file and exit",
        nowhere,
    ),
    flag(
        "version",
        Switch,
        Always,
        "Print the version and exit",
        nowhere,
    ),
    flag(
        "v",
        One("LEVEL"),
        Always,
        "How much to log, 0 to 10 (default 0)",
        |value, typed| {
            typed.logging.verbosity = Some(int(value)?);
            Ok(())
        },
    ),
    flag(
        "logging-format",
        One("FORMAT"),
        Always,
        "text or json (default text)",
        set!(logging.format),
    ),
    flag(
        "log-flush-frequency",
        One("DURATION"),
        Always,
        "How long a log line may wait (default 5s)",
        set!(span => logging.flush_frequency),
    ),
    flag(
        "vmodule",
        Many("PATTERN=LEVEL,..."),
        Always,
        "How much to log per source file",
        |value, typed| {
            typed.logging.vmodule.extend(vmodule(value)?);
            Ok(())
        },
    ),
    flag(
        "log-text-split-stream",
        Switch,
        Always,
        "Needs a feature gate that this version lacks",
        |value, typed| {
            typed.logging.split_stream |= boolean(value)?;
            Ok(())
        },
    ),
    flag(
        "log-text-info-buffer-size",
        One("SIZE"),
        Always,
        "Needs a feature gate that this version lacks",
        |value, typed| {
            typed.logging.info_buffer = Some(value.to_owned()).filter(|size| size != "0");
            Ok(())
        },
    ),
    flag(
        "log-json-split-stream",
        Switch,
        Always,
        "Needs a feature gate that this version lacks",
        |value, typed| {
            typed.logging.split_stream |= boolean(value)?;
            Ok(())
        },
    ),
    flag(
        "log-json-info-buffer-size",
        One("SIZE"),
        Always,
        "Needs a feature gate that this version lacks",
        |value, typed| {
            typed.logging.info_buffer = Some(value.to_owned()).filter(|size| size != "0");
            Ok(())
        },
    ),
    flag(
        "feature-gates",
        Many("NAME=BOOL,..."),
        WithoutConfig,
        "Feature gates; of Kubernetes' many, AllowServiceExternalIPs matters here",
        |value, typed| {
            typed.feature_gates.extend(gates(value)?);
            Ok(())
        },
    ),
    flag(
        "iptables-masquerade-bit",
        One("BIT"),
        WithoutConfig,
        "Bit of the packet mark in modes iptables and ipvs (default 14)",
        set!(int => iptables.masquerade_bit),
    ),
    flag(
        "iptables-localhost-nodeports",
        Switch,
        WithoutConfig,
        "Node ports on 127.0.0.1 in mode iptables (default true)",
        set!(boolean => localhost_node_ports),
    ),
    flag(
        "iptables-sync-period",
        One("DURATION"),
        WithoutConfig,
        "How often everything is checked, in every mode but ipvs (default 30s)",
        set!(span => iptables.sync_period),
    ),
    flag(
        "iptables-min-sync-period",
        One("DURATION"),
        WithoutConfig,
        "Least time between two changes, in every mode but ipvs (default 0: at once)",
        set!(span => iptables.min_sync_period),
    ),
    flag(
        "ipvs-sync-period",
        One("DURATION"),
        WithoutConfig,
        "How often everything is checked in mode ipvs (default 30s)",
        set!(span => ipvs.sync_period),
    ),
    flag(
        "ipvs-min-sync-period",
        One("DURATION"),
        WithoutConfig,
        "Least time between two changes in mode ipvs (default 0: at once)",
        set!(span => ipvs.min_sync_period),
    ),
    flag(
        "ipvs-scheduler",
        One("NAME"),
        WithoutConfig,
        "Scheduler in mode ipvs (default rr)",
        set!(ipvs.scheduler),
    ),
    flag(
        "ipvs-exclude-cidrs",
        Many("CIDRS"),
        WithoutConfig,
        "Virtual servers in these ranges are left alone in mode ipvs",
        |value, typed| {
            typed.ipvs.exclude_cidrs.extend(list(value));
            Ok(())
        },
    ),
    flag(
        "ipvs-strict-arp",
        Switch,
        WithoutConfig,
        "Answer ARP only on the interface that has the address, in mode ipvs",
        set!(boolean => ipvs.strict_arp),
    ),
    flag(
        "ipvs-tcp-timeout",
        One("DURATION"),
        WithoutConfig,
        "Time-out of idle TCP connections in mode ipvs, 0 for the kernel's",
        set!(span => ipvs.tcp_timeout),
    ),
    flag(
        "ipvs-tcpfin-timeout",
        One("DURATION"),
        WithoutConfig,
        "Time-out of TCP connections after a FIN in mode ipvs, 0 for the kernel's",
        set!(span => ipvs.tcp_fin_timeout),
    ),
    flag(
        "ipvs-udp-timeout",
        One("DURATION"),
        WithoutConfig,
        "Time-out of idle UDP flows in mode ipvs, 0 for the kernel's",
        set!(span => ipvs.udp_timeout),
    ),
    flag(
        "conntrack-max-per-core",
        One("N"),
        WithoutConfig,
        "Connections to track per CPU, 0 for the kernel's (default 32768)",
        set!(int => conntrack.max_per_core),
    ),
    flag(
        "conntrack-min",
        One("N"),
        WithoutConfig,
        "Connections to track at least (default 131072)",
        set!(int => conntrack.min),
    ),
    flag(
        "conntrack-tcp-timeout-established",
        One("DURATION"),
        WithoutConfig,
        "Time-out of idle TCP connections, 0 for the kernel's (default 24h)",
        set!(span => conntrack.tcp_established_timeout),
    ),
    flag(
        "conntrack-tcp-timeout-close-wait",
        One("DURATION"),
        WithoutConfig,
        "Time-out of TCP connections in CLOSE_WAIT, 0 for the kernel's (default 1h)",
        set!(span => conntrack.tcp_close_wait_timeout),
    ),
    flag(
        "conntrack-tcp-be-liberal",
        Switch,
        WithoutConfig,
        "Track TCP packets outside the window",
        set!(boolean => conntrack.tcp_be_liberal),
    ),
    flag(
        "conntrack-udp-timeout",
        One("DURATION"),
        WithoutConfig,
        "Time-out of UDP flows without an answer, 0 for the kernel's",
        set!(span => conntrack.udp_timeout),
    ),
    flag(
        "conntrack-udp-timeout-stream",
        One("DURATION"),
        WithoutConfig,
        "Time-out of UDP flows with an answer, 0 for the kernel's",
        set!(span => conntrack.udp_stream_timeout),
    ),
    flag(
        "config-sync-period",
        One("DURATION"),
        WithoutConfig,
        "How often the API objects are gone through again (default 15m)",
        set!(span => config_sync_period),
    ),
    flag(
        "oom-score-adj",
        One("N"),
        WithoutConfig,
        "oom_score_adj of this process, -1000 to 1000 (default -999)",
        set!(int => oom_score_adj),
    ),
    flag(
        "profiling",
        Switch,
        WithoutConfig,
        "Profiles at the metrics server",
        set!(boolean => enable_profiling),
    ),
    flag(
        "show-hidden-metrics-for-version",
        One("VERSION"),
        WithoutConfig,
        "Show metrics hidden since this version, 1.35 at most",
        set!(show_hidden_metrics),
    ),
    flag(
        "healthz-port",
        One("PORT"),
        WithoutConfig,
        "Deprecated: port of the health server, 0 for none",
        set!(port => healthz_port),
    ),
    flag(
        "metrics-port",
        One("PORT"),
        WithoutConfig,
        "Deprecated: port of the metrics server; 0 is ignored",
        set!(port => metrics_port),
    ),
    flag(
        "machine-id-file",
        One("FILES"),
        Always,
        "Without effect",
        nowhere,
    ),
    flag(
        "boot-id-file",
        One("FILES"),
        Always,
        "Without effect",
        nowhere,
    ),
];

/// What follows from flags together: the periods of `--iptables-...` are those of every mode but
/// ipvs, so nftables takes them over.
pub(super) fn after_flags(typed: &mut Typed) {
    typed.nftables.sync_period = typed.iptables.sync_period;
    typed.nftables.min_sync_period = typed.iptables.min_sync_period;
}
