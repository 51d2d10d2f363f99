//! The configuration in effect, spelled out as a file.

use std::fmt::Write;

use sluice_model::settings::{DetectLocal, NodePortAddresses};

use super::{Config, LogFormat, Mode, Span};

/// Every key with its value. The periods and masquerade settings stand in the section of the mode
/// in use; the other sections show the defaults, so that the file reads back to the same
/// configuration.
pub(super) fn to_yaml(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    write_all(config, &mut out).ok();
    out
}

fn write_all(config: &Config, out: &mut String) -> std::fmt::Result {
    writeln!(out, "apiVersion: kubeproxy.config.k8s.io/v1alpha1")?;
    writeln!(
        out,
        "bindAddress: {}",
        quoted(&config.bind_address.to_string())
    )?;
    writeln!(
        out,
        "bindAddressHardFail: {}",
        config.bind_address_hard_fail
    )?;
    let client = &config.client;
    writeln!(out, "clientConnection:")?;
    writeln!(
        out,
        "  acceptContentTypes: {}",
        quoted(&client.accept_content_types)
    )?;
    writeln!(out, "  burst: {}", client.burst)?;
    writeln!(out, "  contentType: {}", quoted(&client.content_type))?;
    writeln!(out, "  kubeconfig: {}", quoted(&client.kubeconfig))?;
    writeln!(out, "  qps: {}", client.qps)?;
    detect_local(config, out)?;
    writeln!(out, "configSyncPeriod: {}", span(config.config_sync_period))?;
    conntrack(config, out)?;
    writeln!(out, "enableProfiling: {}", config.enable_profiling)?;
    if !config.feature_gates.is_empty() {
        writeln!(out, "featureGates:")?;
        for (gate, on) in &config.feature_gates {
            writeln!(out, "  {}: {on}", quoted(gate))?;
        }
    }
    let healthz = config
        .healthz_bind_address
        .map(|address| address.to_string());
    writeln!(
        out,
        "healthzBindAddress: {}",
        quoted(&healthz.unwrap_or_default())
    )?;
    let hostname = config.hostname_override.as_deref().unwrap_or_default();
    writeln!(out, "hostnameOverride: {}", quoted(hostname))?;
    section(config, "iptables", out)?;
    writeln!(out, "  localhostNodePorts: {}", config.localhost_node_ports)?;
    ipvs(config, out)?;
    writeln!(out, "kind: KubeProxyConfiguration")?;
    logging(config, out)?;
    writeln!(
        out,
        "metricsBindAddress: {}",
        quoted(&config.metrics_bind_address.to_string())
    )?;
    writeln!(out, "mode: {}", config.mode)?;
    section(config, "nftables", out)?;
    let addresses = match &config.node_port_addresses {
        NodePortAddresses::Primary => vec!["primary".to_owned()],
        NodePortAddresses::Within(nets) => nets.iter().map(ToString::to_string).collect(),
    };
    list("nodePortAddresses", &addresses, out)?;
    writeln!(out, "oomScoreAdj: {}", config.oom_score_adj)?;
    writeln!(out, "portRange: \"\"")?;
    writeln!(
        out,
        "showHiddenMetricsForVersion: {}",
        quoted(&config.show_hidden_metrics)
    )
}

fn detect_local(config: &Config, out: &mut String) -> std::fmt::Result {
    let (mode, bridge, prefix, cidrs) = match &config.detect_local {
        DetectLocal::ClusterCidr(nets) => {
            let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
            ("ClusterCIDR", "", "", nets.join(","))
        }
        DetectLocal::NodeCidr => ("NodeCIDR", "", "", String::new()),
        DetectLocal::BridgeInterface(name) => ("BridgeInterface", &**name, "", String::new()),
        DetectLocal::InterfaceNamePrefix(name) => {
            ("InterfaceNamePrefix", "", &**name, String::new())
        }
    };
    writeln!(out, "clusterCIDR: {}", quoted(&cidrs))?;
    writeln!(out, "detectLocal:")?;
    writeln!(out, "  bridgeInterface: {}", quoted(bridge))?;
    writeln!(out, "  interfaceNamePrefix: {}", quoted(prefix))?;
    writeln!(out, "detectLocalMode: {mode}")
}

fn conntrack(config: &Config, out: &mut String) -> std::fmt::Result {
    let conntrack = &config.conntrack;
    writeln!(out, "conntrack:")?;
    writeln!(out, "  maxPerCore: {}", conntrack.max_per_core)?;
    writeln!(out, "  min: {}", conntrack.min)?;
    writeln!(out, "  tcpBeLiberal: {}", conntrack.tcp_be_liberal)?;
    for (key, value) in [
        ("tcpCloseWaitTimeout", conntrack.tcp_close_wait_timeout),
        ("tcpEstablishedTimeout", conntrack.tcp_established_timeout),
        ("udpStreamTimeout", conntrack.udp_stream_timeout),
        ("udpTimeout", conntrack.udp_timeout),
    ] {
        writeln!(out, "  {key}: {}", span(value))?;
    }
    Ok(())
}

fn section(config: &Config, name: &str, out: &mut String) -> std::fmt::Result {
    let in_use = match config.mode {
        Mode::Nftables => "nftables",
        Mode::Iptables | Mode::Ipvs | Mode::Userspace => "iptables",
    };
    writeln!(out, "{name}:")?;
    if name != in_use {
        writeln!(out, "  masqueradeAll: false\n  masqueradeBit: 14")?;
        return writeln!(out, "  minSyncPeriod: 0s\n  syncPeriod: 0s");
    }
    writeln!(out, "  masqueradeAll: {}", config.masquerade_all)?;
    writeln!(out, "  masqueradeBit: {}", config.masquerade_bit)?;
    let (min, period) = match config.mode {
        Mode::Ipvs => ("0s".into(), "0s".into()),
        Mode::Nftables | Mode::Iptables | Mode::Userspace => {
            (span(config.min_sync_period), span(config.sync_period))
        }
    };
    writeln!(out, "  minSyncPeriod: {min}\n  syncPeriod: {period}")
}

fn ipvs(config: &Config, out: &mut String) -> std::fmt::Result {
    let ipvs = &config.ipvs;
    writeln!(out, "ipvs:")?;
    let exclude: Vec<String> = ipvs.exclude_cidrs.iter().map(ToString::to_string).collect();
    list("  excludeCIDRs", &exclude, out)?;
    let (min, period) = match config.mode {
        Mode::Ipvs => (span(config.min_sync_period), span(config.sync_period)),
        Mode::Nftables | Mode::Iptables | Mode::Userspace => ("0s".into(), "0s".into()),
    };
    writeln!(out, "  minSyncPeriod: {min}")?;
    writeln!(out, "  scheduler: {}", quoted(&ipvs.scheduler))?;
    writeln!(out, "  strictARP: {}", ipvs.strict_arp)?;
    writeln!(out, "  syncPeriod: {period}")?;
    for (key, value) in [
        ("tcpFinTimeout", ipvs.tcp_fin_timeout),
        ("tcpTimeout", ipvs.tcp_timeout),
        ("udpTimeout", ipvs.udp_timeout),
    ] {
        writeln!(out, "  {key}: {}", span(value))?;
    }
    Ok(())
}

fn logging(config: &Config, out: &mut String) -> std::fmt::Result {
    let logging = &config.logging;
    writeln!(out, "logging:")?;
    writeln!(out, "  flushFrequency: {}", span(logging.flush_frequency))?;
    let format = match logging.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    writeln!(out, "  format: {format}")?;
    writeln!(out, "  options:")?;
    for sink in ["json", "text"] {
        writeln!(
            out,
            "    {sink}:\n      infoBufferSize: \"0\"\n      splitStream: false"
        )?;
    }
    writeln!(out, "  verbosity: {}", logging.verbosity)?;
    if !logging.vmodule.is_empty() {
        writeln!(out, "  vmodule:")?;
        for (pattern, level) in &logging.vmodule {
            writeln!(
                out,
                "  - filePattern: {}\n    verbosity: {level}",
                quoted(pattern)
            )?;
        }
    }
    Ok(())
}

fn list(key: &str, values: &[String], out: &mut String) -> std::fmt::Result {
    if values.is_empty() {
        return writeln!(out, "{key}: null");
    }
    let indent = &key[..key.len() - key.trim_start().len()];
    writeln!(out, "{key}:")?;
    for value in values {
        writeln!(out, "{indent}- {}", quoted(value))?;
    }
    Ok(())
}

fn span(duration: std::time::Duration) -> String {
    Span(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

/// In double quotes, which make any text a YAML string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
