//! What was typed to what it means: defaults, parsing, validation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use sluice_model::fact::{Family, parse_ip, parse_net};
use sluice_model::settings::{DetectLocal, NodePortAddresses};

use super::typed::{Typed, TypedClient, TypedConntrack, TypedIpvs, TypedLogging, TypedSection};
use super::{Client, Config, Conntrack, Ipvs, LogFormat, Logging, Mode, Span};

const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;
const DEFAULT_SYNC_PERIOD: Span = Span::seconds(30);

/// A value that cannot be, and what could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The key, as the file spells it.
    pub field: String,
    /// What it said.
    pub value: String,
    /// Why that does not do.
    pub why: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invalid { field, value, why } = self;
        write!(
            f,
            "KubeProxyConfiguration.{field}: invalid value: {value:?}: {why}"
        )
    }
}

/// Collects everything that is wrong; what is invalid is replaced by anything valid meanwhile.
#[derive(Default)]
struct Errors(Vec<Invalid>);

impl Errors {
    fn add(&mut self, field: &str, value: impl fmt::Display, why: impl Into<String>) {
        self.0.push(Invalid {
            field: field.to_owned(),
            value: value.to_string(),
            why: why.into(),
        });
    }

    fn within(&mut self, field: &str, value: Option<i64>, at: (i64, RangeInclusive<i64>)) -> i64 {
        let (default, range) = at;
        let value = value.unwrap_or(default);
        if range.contains(&value) {
            return value;
        }
        let why = if *range.end() >= i64::from(i32::MAX) {
            format!("must be greater than or equal to {}", range.start())
        } else {
            format!(
                "must be within the range [{}, {}]",
                range.start(),
                range.end()
            )
        };
        self.add(field, value, why);
        default
    }

    fn not_negative(&mut self, field: &str, span: Span) -> Duration {
        if span < Span(0) {
            self.add(field, span, "must be greater than or equal to 0");
        }
        span.duration()
    }

    fn positive(&mut self, field: &str, span: Span) -> Duration {
        if span <= Span(0) {
            self.add(field, span, "must be greater than 0");
        }
        span.duration()
    }
}

/// The configuration of an empty file.
pub(super) fn defaults() -> Config {
    let mut errors = Errors::default();
    build(Typed::default(), &mut errors)
}

pub(super) fn resolve(typed: Typed) -> Result<Config, Vec<Invalid>> {
    let mut errors = Errors::default();
    let config = build(typed, &mut errors);
    if errors.0.is_empty() {
        Ok(config)
    } else {
        Err(errors.0)
    }
}

fn build(typed: Typed, errors: &mut Errors) -> Config {
    let mode = mode(set(&typed.mode), errors);
    let bind_address = bind_address(&typed, errors);
    let periods = periods(mode, &typed, errors);
    let bits = masquerade_bits(mode, &typed, errors);
    let section = section(mode, &typed);
    Config {
        client: client(typed.client.clone(), errors),
        logging: logging(&typed.logging, errors),
        hostname_override: hostname(typed.hostname_override.as_deref()),
        bind_address,
        healthz_bind_address: healthz(&typed, bind_address, errors),
        metrics_bind_address: metrics(&typed, bind_address, errors),
        bind_address_hard_fail: typed.bind_address_hard_fail.unwrap_or(false),
        enable_profiling: typed.enable_profiling.unwrap_or(false),
        show_hidden_metrics: hidden_metrics(&typed, errors),
        mode,
        masquerade_all: section.masquerade_all.unwrap_or(false),
        masquerade_bit: bits,
        sync_period: periods.0,
        min_sync_period: periods.1,
        localhost_node_ports: typed.localhost_node_ports.unwrap_or(true),
        ipvs: ipvs(&typed.ipvs, mode, errors),
        detect_local: detect_local(&typed, errors),
        node_port_addresses: node_port_addresses(&typed, mode, errors),
        oom_score_adj: small(errors.within(
            "oomScoreAdj",
            typed.oom_score_adj,
            (-999, -1000..=1000),
        )),
        conntrack: conntrack(&typed.conntrack, errors),
        config_sync_period: errors.positive(
            "configSyncPeriod",
            or_default(typed.config_sync_period, Span::seconds(15 * 60)),
        ),
        feature_gates: typed.feature_gates,
        foreign: typed.foreign,
    }
}

/// The text, unless it is missing or empty: an empty value in a file means the default.
fn set(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The span, unless it is missing or zero: a file written out by kube-proxy says `0s` in the
/// sections of the modes that are not in use.
fn or_default(span: Option<Span>, default: Span) -> Span {
    span.filter(|span| *span != Span(0)).unwrap_or(default)
}

fn small<T: TryFrom<i64> + Default>(value: i64) -> T {
    T::try_from(value).unwrap_or_default()
}

fn hostname(text: Option<&str>) -> Option<String> {
    let name = text?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

fn mode(text: Option<&str>, errors: &mut Errors) -> Mode {
    match text {
        None | Some("nftables") => Mode::Nftables,
        Some("iptables") => Mode::Iptables,
        Some("ipvs") => Mode::Ipvs,
        Some("userspace") => Mode::Userspace,
        Some(other) => {
            let why = "must be nftables, iptables, ipvs, userspace or blank, which is nftables";
            errors.add("mode", other, why);
            Mode::Nftables
        }
    }
}

/// The section whose values count in a mode; ipvs and userspace share that of iptables.
fn section(mode: Mode, typed: &Typed) -> &TypedSection {
    match mode {
        Mode::Nftables => &typed.nftables,
        Mode::Iptables | Mode::Ipvs | Mode::Userspace => &typed.iptables,
    }
}

fn masquerade_bits(mode: Mode, typed: &Typed, errors: &mut Errors) -> u8 {
    let range = || (14, 0..=31);
    let field = "iptables.masqueradeBit";
    let classical = errors.within(field, typed.iptables.masquerade_bit, range());
    let bit = match mode {
        Mode::Nftables => {
            let field = "nftables.masqueradeBit";
            errors.within(field, typed.nftables.masquerade_bit, range())
        }
        Mode::Iptables | Mode::Ipvs | Mode::Userspace => classical,
    };
    small(bit)
}

fn periods(mode: Mode, typed: &Typed, errors: &mut Errors) -> (Duration, Duration) {
    let (name, period, min) = match mode {
        Mode::Ipvs => ("ipvs", typed.ipvs.sync_period, typed.ipvs.min_sync_period),
        Mode::Nftables => (
            "nftables",
            typed.nftables.sync_period,
            typed.nftables.min_sync_period,
        ),
        Mode::Iptables | Mode::Userspace => (
            "iptables",
            typed.iptables.sync_period,
            typed.iptables.min_sync_period,
        ),
    };
    let field = format!("{name}.syncPeriod");
    let period = or_default(period, DEFAULT_SYNC_PERIOD);
    let min = min.unwrap_or_default();
    let min_duration = errors.not_negative(&format!("{name}.minSyncPeriod"), min);
    let duration = errors.positive(&field, period);
    if min > period && period > Span(0) {
        let why = format!("must be greater than or equal to {name}.minSyncPeriod, which is {min}");
        errors.add(&field, period, why);
    }
    (duration, min_duration)
}

fn bind_address(typed: &Typed, errors: &mut Errors) -> IpAddr {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let Some(text) = set(&typed.bind_address) else {
        return any;
    };
    // `[::]` is what people write after YAML refused them a bare `::`.
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    parse_ip(inner.unwrap_or(text)).unwrap_or_else(|| {
        errors.add("bindAddress", text, "must be an IP address without a port");
        any
    })
}

fn healthz(typed: &Typed, bind: IpAddr, errors: &mut Errors) -> Option<SocketAddr> {
    let port = typed.healthz_port.unwrap_or(HEALTHZ_PORT);
    if port == 0 {
        return None;
    }
    let default = match bind {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let default = SocketAddr::new(default, port);
    let text = set(&typed.healthz_bind_address);
    Some(address("healthzBindAddress", text, default, errors))
}

fn metrics(typed: &Typed, bind: IpAddr, errors: &mut Errors) -> SocketAddr {
    let default = match bind {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let port = typed.metrics_port.filter(|port| *port != 0);
    let default = SocketAddr::new(default, port.unwrap_or(METRICS_PORT));
    let text = set(&typed.metrics_bind_address);
    address("metricsBindAddress", text, default, errors)
}

/// `IP` or `IP:port` (`[IP]:port` in IPv6); the default's port where none is given.
fn address(
    field: &str,
    text: Option<&str>,
    default: SocketAddr,
    errors: &mut Errors,
) -> SocketAddr {
    let Some(text) = text else { return default };
    if let Some(ip) = parse_ip(text) {
        return SocketAddr::new(ip, default.port());
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        errors.add(field, text, "must be IP:port");
        return default;
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let ip = match bare {
        Some(inner) => parse_ip(inner).filter(IpAddr::is_ipv6),
        None => parse_ip(host).filter(IpAddr::is_ipv4),
    };
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port = digits.then(|| port.parse().ok()).flatten();
    match (ip, port) {
        (Some(ip), Some(port)) if port != 0 => SocketAddr::new(ip, port),
        (None, _) => {
            errors.add(
                field,
                text,
                "must be IP:port, the host an IP address and no name",
            );
            default
        }
        (Some(_), _) => {
            errors.add(field, text, "must be IP:port, the port from 1 to 65535");
            default
        }
    }
}

fn hidden_metrics(typed: &Typed, errors: &mut Errors) -> String {
    let Some(text) = set(&typed.show_hidden_metrics) else {
        return String::new();
    };
    let previous = "1.35";
    if text != previous {
        let why = format!("must be blank or {previous}, the version before this one");
        errors.add("showHiddenMetricsForVersion", text, why);
    }
    text.to_owned()
}

fn client(typed: TypedClient, errors: &mut Errors) -> Client {
    let content_type = set(&typed.content_type);
    Client {
        content_type: content_type
            .unwrap_or("application/vnd.kubernetes.protobuf")
            .to_owned(),
        kubeconfig: typed.kubeconfig.unwrap_or_default(),
        accept_content_types: typed.accept_content_types.unwrap_or_default(),
        qps: typed.qps.filter(|qps| *qps != 0.0).unwrap_or(5.0),
        burst: small(errors.within(
            "clientConnection.burst",
            typed.burst.filter(|burst| *burst != 0),
            (10, 0..=i64::from(i32::MAX)),
        )),
    }
}

fn logging(typed: &TypedLogging, errors: &mut Errors) -> Logging {
    let format = match set(&typed.format) {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => {
            errors.add("logging.format", other, "must be text or json");
            LogFormat::Text
        }
    };
    if format == LogFormat::Json && !typed.vmodule.is_empty() {
        errors.add("logging.vmodule", "set", "only works with the format text");
    }
    let flush = or_default(typed.flush_frequency, Span::seconds(5));
    let range = || (0, 0..=i64::from(i32::MAX));
    let mut vmodule = Vec::new();
    for (index, (pattern, level)) in typed.vmodule.iter().enumerate() {
        let field = format!("logging.vmodule[{index}]");
        if pattern.is_empty() || pattern.contains(['=', ',']) {
            let why = "must be a pattern for file names without = and ,";
            errors.add(&format!("{field}.filePattern"), pattern, why);
        }
        let level = errors.within(&format!("{field}.verbosity"), Some(*level), range());
        vmodule.push((pattern.clone(), small(level)));
    }
    if typed.split_stream || typed.info_buffer.is_some() {
        let why = "splitStream and infoBufferSize need a feature gate that this version lacks";
        errors.add("logging.options", "set", why);
    }
    Logging {
        format,
        flush_frequency: errors.positive("logging.flushFrequency", flush),
        verbosity: small(errors.within("logging.verbosity", typed.verbosity, range())),
        vmodule,
    }
}

fn detect_local(typed: &Typed, errors: &mut Errors) -> DetectLocal {
    let named = |text: &Option<String>, field: &str, errors: &mut Errors| {
        let name = set(text).unwrap_or_default();
        if name.is_empty() {
            errors.add(field, "", "must be given with this detectLocalMode");
        }
        name.into()
    };
    match set(&typed.detect_local_mode) {
        Some("BridgeInterface") => {
            let field = "detectLocal.bridgeInterface";
            DetectLocal::BridgeInterface(named(&typed.bridge_interface, field, errors))
        }
        Some("InterfaceNamePrefix") => {
            let field = "detectLocal.interfaceNamePrefix";
            DetectLocal::InterfaceNamePrefix(named(&typed.interface_name_prefix, field, errors))
        }
        Some("NodeCIDR") => DetectLocal::NodeCidr,
        None | Some("ClusterCIDR") => DetectLocal::ClusterCidr(cluster_cidrs(typed, errors)),
        Some(other) => {
            let why = "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
            errors.add("detectLocalMode", other, why);
            DetectLocal::ClusterCidr(Vec::new())
        }
    }
}

fn cluster_cidrs(typed: &Typed, errors: &mut Errors) -> Vec<IpNet> {
    let Some(text) = set(&typed.cluster_cidr) else {
        return Vec::new();
    };
    let field = "clusterCIDR";
    let parts: Vec<&str> = text.split(',').collect();
    let nets: Vec<IpNet> = parts.iter().filter_map(|part| parse_net(part)).collect();
    if nets.len() != parts.len() {
        let why = "must be a range such as 10.100.0.0/16, or one of each IP family with a comma";
        errors.add(field, text, why);
        return Vec::new();
    }
    let both = nets.len() == 2 && Family::of_net(nets[0]) != Family::of_net(nets[1]);
    if nets.len() > 2 || (nets.len() == 2 && !both) {
        let why = "must be one range, or two of different IP families";
        errors.add(field, text, why);
    }
    nets
}

fn node_port_addresses(typed: &Typed, mode: Mode, errors: &mut Errors) -> NodePortAddresses {
    let given = typed.node_port_addresses.as_deref().unwrap_or_default();
    if given.is_empty() {
        return match mode {
            Mode::Nftables => NodePortAddresses::Primary,
            Mode::Iptables | Mode::Ipvs | Mode::Userspace => NodePortAddresses::Within(Vec::new()),
        };
    }
    if given == ["primary"] {
        return NodePortAddresses::Primary;
    }
    let mut nets = Vec::new();
    for (index, text) in given.iter().enumerate() {
        let field = format!("nodePortAddresses[{index}]");
        if text == "primary" {
            errors.add(
                &field,
                text,
                "must stand alone: take the ranges beside it away",
            );
            break;
        }
        match parse_net(text) {
            Some(net) => nets.push(net),
            None => errors.add(
                &field,
                text,
                "must be a range such as 192.0.2.0/24, or primary",
            ),
        }
    }
    NodePortAddresses::Within(nets)
}

fn ipvs(typed: &TypedIpvs, mode: Mode, errors: &mut Errors) -> Ipvs {
    // What is written for a mode that is not in use is not looked at closely.
    let mut ignored = Errors::default();
    let errors = if mode == Mode::Ipvs {
        errors
    } else {
        &mut ignored
    };
    let mut exclude_cidrs = Vec::new();
    for (index, text) in typed.exclude_cidrs.iter().enumerate() {
        match parse_net(text) {
            Some(net) => exclude_cidrs.push(net),
            None => {
                let field = format!("ipvs.excludeCIDRs[{index}]");
                errors.add(&field, text, "must be a range such as 192.0.2.0/24");
            }
        }
    }
    let zero = Span::default();
    Ipvs {
        scheduler: set(&typed.scheduler).unwrap_or("rr").to_owned(),
        exclude_cidrs,
        strict_arp: typed.strict_arp.unwrap_or(false),
        tcp_timeout: errors.not_negative("ipvs.tcpTimeout", typed.tcp_timeout.unwrap_or(zero)),
        tcp_fin_timeout: errors
            .not_negative("ipvs.tcpFinTimeout", typed.tcp_fin_timeout.unwrap_or(zero)),
        udp_timeout: errors.not_negative("ipvs.udpTimeout", typed.udp_timeout.unwrap_or(zero)),
    }
}

fn conntrack(typed: &TypedConntrack, errors: &mut Errors) -> Conntrack {
    let count = |default| (default, 0..=i64::from(i32::MAX));
    let mut span = |field: &str, span: Option<Span>, default: Span| {
        errors.not_negative(&format!("conntrack.{field}"), span.unwrap_or(default))
    };
    let zero = Span::default();
    let hour = Span::seconds(3600);
    let tcp_established_timeout = span(
        "tcpEstablishedTimeout",
        typed.tcp_established_timeout,
        Span::seconds(24 * 3600),
    );
    let tcp_close_wait_timeout = span("tcpCloseWaitTimeout", typed.tcp_close_wait_timeout, hour);
    let udp_timeout = span("udpTimeout", typed.udp_timeout, zero);
    let udp_stream_timeout = span("udpStreamTimeout", typed.udp_stream_timeout, zero);
    Conntrack {
        max_per_core: small(errors.within(
            "conntrack.maxPerCore",
            typed.max_per_core,
            count(32768),
        )),
        min: small(errors.within("conntrack.min", typed.min, count(131_072))),
        tcp_established_timeout,
        tcp_close_wait_timeout,
        tcp_be_liberal: typed.tcp_be_liberal.unwrap_or(false),
        udp_timeout,
        udp_stream_timeout,
    }
}
