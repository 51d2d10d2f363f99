//! Configuration: KubeProxyConfiguration v1alpha1, from a file or from flags.
//!
//! Two stages. [`Typed`] is what somebody wrote, with gaps. [`Config`] is what it means: defaults
//! filled in, text parsed, everything validated. Nothing past this module asks whether a setting
//! came from a file or a flag.
//!
//! Where this differs from kube-proxy: the mode defaults to nftables, minSyncPeriod to 0 (changes
//! are carried out at once, and coalesced only while a commit runs), and the names of fields in
//! messages are those of the file, so that they can be searched for.

mod duration;
mod read;
mod resolve;
mod typed;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use sluice_model::settings::{DetectLocal, ExternalIps, NodePortAddresses, Settings};

pub use duration::Span;
pub use read::{ConfigNote, read};
pub use resolve::Invalid;
pub use typed::{Typed, TypedClient, TypedConntrack, TypedIpvs, TypedLogging, TypedSection};

/// Why there is no configuration to run with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is no KubeProxyConfiguration, or values in it are of the wrong sort.
    #[error("{}", lines(.0))]
    File(Vec<ConfigNote>),
    /// Values that cannot be: all of them.
    #[error("failed validate: {}", lines(.0))]
    Invalid(Vec<Invalid>),
    /// `--hostname-override`, or the machine's own name, is blank.
    #[error(
        "the node name is blank: set hostnameOverride or --hostname-override to the Node's name"
    )]
    BlankNodeName,
}

fn lines<T: fmt::Display>(parts: &[T]) -> String {
    let parts: Vec<String> = parts.iter().map(T::to_string).collect();
    parts.join("\n")
}

/// How services are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// nf_tables over netlink.
    Nftables,
    /// The classical chains.
    Iptables,
    /// The kernel's virtual server.
    Ipvs,
    /// The proxy relays itself.
    Userspace,
}

impl fmt::Display for Mode {
    /// As the configuration spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Userspace => "userspace",
        })
    }
}

/// The configuration in effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// featureGates as given.
    pub feature_gates: BTreeMap<String, bool>,
    /// clientConnection.
    pub client: Client,
    /// logging.
    pub logging: Logging,
    /// hostnameOverride, trimmed and lower-cased; `None` for the machine's own name.
    pub hostname_override: Option<String>,
    /// bindAddress: overrides the node IP where it is not unspecified; binds nothing.
    pub bind_address: IpAddr,
    /// healthzBindAddress; `None` where health is not served.
    pub healthz_bind_address: Option<SocketAddr>,
    /// metricsBindAddress.
    pub metrics_bind_address: SocketAddr,
    /// bindAddressHardFail: an address that cannot be bound ends the process.
    pub bind_address_hard_fail: bool,
    /// enableProfiling.
    pub enable_profiling: bool,
    /// showHiddenMetricsForVersion, empty for none.
    pub show_hidden_metrics: String,
    /// mode.
    pub mode: Mode,
    /// masqueradeAll of the mode's section.
    pub masquerade_all: bool,
    /// masqueradeBit of the mode's section, 0 to 31.
    pub masquerade_bit: u8,
    /// syncPeriod of the mode's section: how often everything is checked.
    pub sync_period: Duration,
    /// minSyncPeriod of the mode's section; zero for at once.
    pub min_sync_period: Duration,
    /// iptables.localhostNodePorts.
    pub localhost_node_ports: bool,
    /// ipvs.
    pub ipvs: Ipvs,
    /// detectLocalMode with detectLocal and clusterCIDR.
    pub detect_local: DetectLocal,
    /// nodePortAddresses.
    pub node_port_addresses: NodePortAddresses,
    /// oomScoreAdj.
    pub oom_score_adj: i32,
    /// conntrack.
    pub conntrack: Conntrack,
    /// configSyncPeriod.
    pub config_sync_period: Duration,
    /// Keys for Windows or for versions long gone were set.
    foreign: bool,
}

/// clientConnection.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// kubeconfig, empty for in-cluster.
    pub kubeconfig: String,
    /// acceptContentTypes.
    pub accept_content_types: String,
    /// contentType.
    pub content_type: String,
    /// qps.
    pub qps: f64,
    /// burst.
    pub burst: u32,
}

/// logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// format.
    pub format: LogFormat,
    /// flushFrequency.
    pub flush_frequency: Duration,
    /// verbosity, klog's V.
    pub verbosity: u32,
    /// vmodule: file pattern and verbosity.
    pub vmodule: Vec<(String, u32)>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// ipvs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipvs {
    /// scheduler, `rr` where unset.
    pub scheduler: String,
    /// excludeCIDRs.
    pub exclude_cidrs: Vec<IpNet>,
    /// strictARP.
    pub strict_arp: bool,
    /// tcpTimeout, zero to leave the kernel's.
    pub tcp_timeout: Duration,
    /// tcpFinTimeout, zero to leave the kernel's.
    pub tcp_fin_timeout: Duration,
    /// udpTimeout, zero to leave the kernel's.
    pub udp_timeout: Duration,
}

/// conntrack: sysctls, zero to leave the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// maxPerCore.
    pub max_per_core: u32,
    /// min.
    pub min: u32,
    /// tcpEstablishedTimeout.
    pub tcp_established_timeout: Duration,
    /// tcpCloseWaitTimeout.
    pub tcp_close_wait_timeout: Duration,
    /// tcpBeLiberal.
    pub tcp_be_liberal: bool,
    /// udpTimeout.
    pub udp_timeout: Duration,
    /// udpStreamTimeout.
    pub udp_stream_timeout: Duration,
}

impl Config {
    /// What was typed, with defaults, or everything that is wrong with it.
    pub fn resolve(typed: Typed) -> Result<Config, ConfigError> {
        resolve::resolve(typed).map_err(ConfigError::Invalid)
    }

    /// The Node's name: the override, else the machine's own, trimmed and lower-cased.
    pub fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        let name = self.hostname_override.as_deref().unwrap_or(hostname);
        match name.trim().to_lowercase() {
            name if name.is_empty() => Err(ConfigError::BlankNodeName),
            name => Ok(name),
        }
    }

    /// The part that decides what services do, for the node of this name.
    pub fn to_settings(&self, node_name: &str) -> Settings {
        let external_ips = match self.feature_gates.get("AllowServiceExternalIPs") {
            Some(false) => ExternalIps::Ignored,
            Some(true) | None => ExternalIps::Served,
        };
        Settings {
            node_name: node_name.into(),
            masquerade_all: self.masquerade_all,
            detect_local: self.detect_local.clone(),
            node_port_addresses: self.node_port_addresses.clone(),
            node_ip_override: Some(self.bind_address).filter(|ip| !ip.is_unspecified()),
            external_ips,
        }
    }

    /// The configuration as a file would spell it out, every key included.
    pub fn to_yaml(&self) -> String {
        write::to_yaml(self)
    }

    /// Keys that were set to something other than their default and that this version accepts
    /// but does not act on. To be said once, at start.
    pub fn not_yet_in_effect(&self) -> Vec<&'static str> {
        let default = resolve::defaults();
        let table = [
            (
                "clientConnection.acceptContentTypes",
                self.client.accept_content_types == default.client.accept_content_types,
            ),
            (
                "logging.flushFrequency",
                self.logging.flush_frequency == default.logging.flush_frequency,
            ),
            ("logging.vmodule", self.logging.vmodule.is_empty()),
            (
                "metricsBindAddress",
                self.metrics_bind_address.ip().is_loopback()
                    && self.metrics_bind_address.port() == default.metrics_bind_address.port(),
            ),
            ("bindAddressHardFail", !self.bind_address_hard_fail),
            ("enableProfiling", !self.enable_profiling),
            (
                "showHiddenMetricsForVersion",
                self.show_hidden_metrics.is_empty(),
            ),
            ("ipvs", self.ipvs == default.ipvs),
            ("oomScoreAdj", self.oom_score_adj == default.oom_score_adj),
            ("conntrack", self.conntrack == default.conntrack),
            (
                "configSyncPeriod",
                self.config_sync_period == default.config_sync_period,
            ),
            ("winkernel, windowsRunAsService or portRange", !self.foreign),
        ];
        let idle = table.into_iter().filter(|(_, in_default)| !in_default);
        idle.map(|(key, _)| key).collect()
    }
}
