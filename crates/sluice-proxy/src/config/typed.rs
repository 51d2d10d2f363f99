//! What was typed, in a file or on the command line, before anybody asked what it means.

use std::collections::BTreeMap;

use super::Span;

/// The keys of KubeProxyConfiguration v1alpha1 as written; `None` where nothing was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Typed {
    /// featureGates.
    pub feature_gates: BTreeMap<String, bool>,
    /// clientConnection.
    pub client: TypedClient,
    /// logging.
    pub logging: TypedLogging,
    /// hostnameOverride.
    pub hostname_override: Option<String>,
    /// bindAddress.
    pub bind_address: Option<String>,
    /// healthzBindAddress.
    pub healthz_bind_address: Option<String>,
    /// metricsBindAddress.
    pub metrics_bind_address: Option<String>,
    /// `--healthz-port`: port of an address without one, 0 for no health server. No key of a file.
    pub healthz_port: Option<u16>,
    /// `--metrics-port`: port of an address without one, 0 without effect. No key of a file.
    pub metrics_port: Option<u16>,
    /// bindAddressHardFail.
    pub bind_address_hard_fail: Option<bool>,
    /// enableProfiling.
    pub enable_profiling: Option<bool>,
    /// showHiddenMetricsForVersion.
    pub show_hidden_metrics: Option<String>,
    /// mode.
    pub mode: Option<String>,
    /// iptables.
    pub iptables: TypedSection,
    /// iptables.localhostNodePorts.
    pub localhost_node_ports: Option<bool>,
    /// nftables.
    pub nftables: TypedSection,
    /// ipvs.
    pub ipvs: TypedIpvs,
    /// detectLocalMode.
    pub detect_local_mode: Option<String>,
    /// detectLocal.bridgeInterface.
    pub bridge_interface: Option<String>,
    /// detectLocal.interfaceNamePrefix.
    pub interface_name_prefix: Option<String>,
    /// clusterCIDR, commas and all.
    pub cluster_cidr: Option<String>,
    /// nodePortAddresses.
    pub node_port_addresses: Option<Vec<String>>,
    /// oomScoreAdj.
    pub oom_score_adj: Option<i64>,
    /// conntrack.
    pub conntrack: TypedConntrack,
    /// configSyncPeriod.
    pub config_sync_period: Option<Span>,
    /// windowsRunAsService, winkernel and portRange are accepted and mean nothing here; whether
    /// any of them was set.
    pub foreign: bool,
}

/// clientConnection as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedClient {
    /// kubeconfig.
    pub kubeconfig: Option<String>,
    /// acceptContentTypes.
    pub accept_content_types: Option<String>,
    /// contentType.
    pub content_type: Option<String>,
    /// qps.
    pub qps: Option<f64>,
    /// burst.
    pub burst: Option<i64>,
}

/// logging as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedLogging {
    /// format.
    pub format: Option<String>,
    /// flushFrequency.
    pub flush_frequency: Option<Span>,
    /// verbosity.
    pub verbosity: Option<i64>,
    /// vmodule: file pattern and verbosity.
    pub vmodule: Vec<(String, i64)>,
    /// options.text.splitStream or options.json.splitStream.
    pub split_stream: bool,
    /// options.text.infoBufferSize or options.json.infoBufferSize, where not zero.
    pub info_buffer: Option<String>,
}

/// What the sections iptables and nftables have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedSection {
    /// masqueradeBit.
    pub masquerade_bit: Option<i64>,
    /// masqueradeAll.
    pub masquerade_all: Option<bool>,
    /// syncPeriod.
    pub sync_period: Option<Span>,
    /// minSyncPeriod.
    pub min_sync_period: Option<Span>,
}

/// ipvs as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedIpvs {
    /// syncPeriod.
    pub sync_period: Option<Span>,
    /// minSyncPeriod.
    pub min_sync_period: Option<Span>,
    /// scheduler.
    pub scheduler: Option<String>,
    /// excludeCIDRs.
    pub exclude_cidrs: Vec<String>,
    /// strictARP.
    pub strict_arp: Option<bool>,
    /// tcpTimeout.
    pub tcp_timeout: Option<Span>,
    /// tcpFinTimeout.
    pub tcp_fin_timeout: Option<Span>,
    /// udpTimeout.
    pub udp_timeout: Option<Span>,
}

/// conntrack as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedConntrack {
    /// maxPerCore.
    pub max_per_core: Option<i64>,
    /// min.
    pub min: Option<i64>,
    /// tcpEstablishedTimeout.
    pub tcp_established_timeout: Option<Span>,
    /// tcpCloseWaitTimeout.
    pub tcp_close_wait_timeout: Option<Span>,
    /// tcpBeLiberal.
    pub tcp_be_liberal: Option<bool>,
    /// udpTimeout.
    pub udp_timeout: Option<Span>,
    /// udpStreamTimeout.
    pub udp_stream_timeout: Option<Span>,
}
