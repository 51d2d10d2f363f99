//! The scenario files: their shape, and how they are read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_saphyr::Spanned;
use sluice_model::fact::Protocol;

/// One case: a cluster, and what must happen to connections in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// Unique name, in words joined by hyphens.
    pub name: String,
    /// The rule of Kubernetes that it pins, in a sentence.
    pub about: String,
    /// How often it runs: as written, and with its addresses turned into IPv6.
    #[serde(default = "both_families")]
    pub families: Vec<Variant>,
    /// The node under test.
    #[serde(default)]
    pub node: NodeSpec,
    /// KubeProxyConfiguration fields.
    #[serde(default)]
    pub config: ConfigSpec,
    /// API objects at the start.
    #[serde(default)]
    pub objects: Vec<Object>,
    /// Connections tried once `objects` are in force.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// Changes over time, each with probes of its own.
    #[serde(default)]
    pub steps: Vec<Step>,
}

fn both_families() -> Vec<Variant> {
    vec![Variant::V4, Variant::V6]
}

/// One API object as kubectl prints it, with its place in the file.
pub type Object = Spanned<serde_json::Value>;

/// One way to run a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// As written, in IPv4.
    V4,
    /// With every IPv4 address replaced by its IPv6 twin, see [`crate::family`].
    V6,
    /// As written, in both families at once or in IPv6.
    Dual,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::V4 => "v4",
            Variant::V6 => "v6",
            Variant::Dual => "dual",
        })
    }
}

/// The node under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeSpec {
    /// Name, `node-a` unless given.
    pub name: String,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// status.addresses, primary first; also on its interfaces.
    pub addresses: Vec<IpAddr>,
    /// Addresses on its interfaces that its Node object does not list.
    pub extra_addresses: Vec<IpAddr>,
    /// spec.podCIDRs.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
}

/// The fields of KubeProxyConfiguration that change what happens to a packet. `masqueradeAll` and
/// `masqueradeBit` stand here for the field of the same name of whichever mode runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConfigSpec {
    /// clusterCIDR, comma-separated. Absent: all pods of the lab; empty: none.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: Option<String>,
    /// detectLocalMode.
    pub detect_local_mode: DetectLocalMode,
    /// detectLocal.
    pub detect_local: DetectLocalSpec,
    /// nodePortAddresses. Absent: `primary`.
    pub node_port_addresses: Option<Vec<String>>,
    /// masqueradeAll of the mode's section.
    pub masquerade_all: bool,
    /// masqueradeBit of the mode's section.
    pub masquerade_bit: Option<u8>,
    /// bindAddress.
    pub bind_address: Option<IpAddr>,
}

/// detectLocalMode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DetectLocalMode {
    /// By clusterCIDR.
    #[default]
    ClusterCIDR,
    /// By the Node's spec.podCIDRs.
    NodeCIDR,
    /// By the bridge that pods hang on.
    BridgeInterface,
    /// By the start of the names of pods' interfaces.
    InterfaceNamePrefix,
}

/// detectLocal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DetectLocalSpec {
    /// bridgeInterface.
    pub bridge_interface: String,
    /// interfaceNamePrefix.
    pub interface_name_prefix: String,
}

/// A change of the cluster, taken in as one, and connections tried after it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// What changes, in a few words.
    pub about: String,
    /// Objects that appear or replace those of the same kind and name.
    #[serde(default)]
    pub apply: Vec<Object>,
    /// Objects that go, as `service/web` or `endpointslice/namespace/web-1`.
    #[serde(default)]
    pub delete: Vec<String>,
    /// Connections tried once the change is in force.
    #[serde(default)]
    pub probes: Vec<Probe>,
}

/// A connection, tried as often as its expectation needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// Who connects.
    pub from: From,
    /// Whereto.
    pub to: SocketAddr,
    /// Transport protocol, `tcp` unless given.
    #[serde(default)]
    pub protocol: Transport,
    /// What must come of it.
    pub expect: Expect,
}

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum From {
    /// A pod of the node under test that is no endpoint.
    Pod,
    /// A process on the node under test.
    Node,
    /// A machine outside the cluster.
    Outside,
    /// A pod of another node.
    RemotePod,
    /// Whoever has this address.
    Address(IpAddr),
}

impl TryFrom<String> for From {
    type Error = String;

    fn try_from(text: String) -> Result<From, String> {
        let address = text.strip_prefix("pod:").unwrap_or(&text);
        match &*text {
            "pod" => Ok(From::Pod),
            "node" => Ok(From::Node),
            "outside" => Ok(From::Outside),
            "remote-pod" => Ok(From::RemotePod),
            _ => address.parse().map(From::Address).map_err(|_| {
                format!("{text:?}: want pod, node, outside, remote-pod, pod:ADDRESS or an address")
            }),
        }
    }
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::Pod => f.write_str("pod"),
            From::Node => f.write_str("node"),
            From::Outside => f.write_str("outside"),
            From::RemotePod => f.write_str("remote-pod"),
            From::Address(ip) => write!(f, "{ip}"),
        }
    }
}

/// A transport protocol in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Transport {
    /// The model's name of it.
    pub fn protocol(self) -> Protocol {
        match self {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp,
            Transport::Sctp => Protocol::Sctp,
        }
    }
}

/// What must come of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// ICMP port unreachable.
    Refused,
    /// Silence.
    Dropped,
    /// The packet goes on as it is.
    Untouched,
    /// A connection to an endpoint.
    Served(Served),
}

/// Endpoints that must answer, and what they must see.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Served {
    /// Exactly these, in any order.
    pub endpoints: Vec<SocketAddr>,
    /// The peer's address that they see.
    pub source: Source,
    /// Endpoints whose peer's address differs from `source`.
    #[serde(default)]
    pub except: BTreeMap<SocketAddr, Source>,
    /// How connections spread over the endpoints.
    #[serde(default)]
    pub spread: Option<Spread>,
    /// All tries of one client end at one endpoint, whichever.
    #[serde(default)]
    pub sticky: bool,
}

/// How connections spread over endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// In 60 tries or more, each gets a third of its fair share at least.
    Even,
}

/// What an endpoint sees as its peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Source {
    /// The client's.
    Kept,
    /// Any of the node's.
    Node,
    /// This one.
    Address(IpAddr),
}

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Source, String> {
        match &*text {
            "kept" => Ok(Source::Kept),
            "node" => Ok(Source::Node),
            _ => text
                .parse()
                .map(Source::Address)
                .map_err(|_| format!("{text:?}: want kept, node or an address")),
        }
    }
}

impl<'de> Deserialize<'de> for Expect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expect, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Expect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("refused, dropped, untouched or {endpoints: [...], source: ...}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Expect, E> {
                match text {
                    "refused" => Ok(Expect::Refused),
                    "dropped" => Ok(Expect::Dropped),
                    "untouched" => Ok(Expect::Untouched),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Expect, A::Error> {
                Served::deserialize(MapAccessDeserializer::new(map)).map(Expect::Served)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

/// Reads every scenario of a text, one per YAML document.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scenario>> {
    let scenarios: Vec<Scenario> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error
            .location()
            .map_or(String::new(), |at| format!(":{}", at.line()));
        anyhow::anyhow!("{file}{place}: {}", error.without_snippet())
    })?;
    for scenario in &scenarios {
        check(scenario).with_context(|| format!("{file}: scenario {:?}", scenario.name))?;
    }
    Ok(scenarios)
}

/// What the types cannot say. A scenario that checks nothing would pass for ever.
fn check(scenario: &Scenario) -> Result<()> {
    let steps = &scenario.steps;
    if scenario.families.is_empty() {
        bail!("families is empty: it would never run");
    }
    if scenario.probes.is_empty() && steps.is_empty() {
        bail!("it has neither probes nor steps: it checks nothing");
    }
    if let Some(step) = steps
        .iter()
        .find(|s| s.apply.is_empty() && s.delete.is_empty())
    {
        bail!("step {:?} changes nothing", step.about);
    }
    let probes = || {
        scenario
            .probes
            .iter()
            .chain(steps.iter().flat_map(|s| &s.probes))
    };
    if probes().next().is_none() {
        bail!("none of its steps has a probe: it checks nothing");
    }
    for probe in probes() {
        if let Expect::Served(served) = &probe.expect {
            if served.endpoints.is_empty() {
                bail!(
                    "probe of {}: endpoints is empty: say refused or dropped",
                    probe.to
                );
            }
            if let Some(stray) = served.except.keys().find(|e| !served.endpoints.contains(e)) {
                bail!(
                    "probe of {}: except names {stray}, which is no endpoint",
                    probe.to
                );
            }
        }
    }
    Ok(())
}

/// A scenario with the file it is from.
#[derive(Clone, Debug)]
pub struct Filed {
    /// The file.
    pub path: PathBuf,
    /// The scenario.
    pub scenario: Scenario,
}

/// Reads the scenarios of files, and of all `.yaml` files in and below folders, by path. Names
/// must be unique.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Filed>> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, &mut files)?;
    }
    let mut loaded: Vec<Filed> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        for scenario in parse(&path.display().to_string(), &text)? {
            if let Some(twin) = loaded.iter().find(|f| f.scenario.name == scenario.name) {
                let (name, here, there) = (&scenario.name, path.display(), twin.path.display());
                bail!("{here}: the name {name:?} is taken by a scenario in {there}");
            }
            loaded.push(Filed {
                path: path.clone(),
                scenario,
            });
        }
    }
    if loaded.is_empty() {
        bail!("no scenario found");
    }
    Ok(loaded)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let why = || format!("cannot read {}", path.display());
    if !std::fs::metadata(path).with_context(why)?.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_context(why)?;
    let mut entries: Vec<_> = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<std::io::Result<_>>()
        .with_context(why)?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() || entry.extension().is_some_and(|e| e == "yaml") {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name: one\nabout: a rule\n";

    fn error(text: &str) -> String {
        let error = parse("one.yaml", text).expect_err("a bad scenario");
        format!("{error:#}")
    }

    #[test]
    fn an_unknown_field_is_an_error_with_file_and_line() {
        let text = error(&format!("{HEAD}probe:\n  - {{from: pod}}\n"));
        assert!(text.starts_with("one.yaml:3: "), "{text}");
        assert!(text.contains("probe"), "{text}");
    }

    #[test]
    fn an_unknown_field_of_an_expectation_is_an_error_too() {
        let probe = r#"{from: pod, to: "10.96.0.10:80", expect: {endpoints: [], peer: kept}}"#;
        let text = error(&format!("{HEAD}probes:\n  - {probe}\n"));
        assert!(text.starts_with("one.yaml:4: "), "{text}");
    }

    #[test]
    fn a_scenario_that_checks_nothing_is_an_error() {
        let text = "one.yaml: scenario \"one\": it has neither probes nor steps: it checks nothing";
        assert_eq!(error(HEAD), text);
    }

    #[test]
    fn a_file_may_hold_several_scenarios() {
        let probe = r#"probes: [{from: node, to: "[::1]:80", protocol: sctp, expect: refused}]"#;
        let text = format!("{HEAD}{probe}\n---\n{HEAD}{probe}\n");
        let read = parse("one.yaml", &text).expect("good scenarios");
        assert_eq!(read.len(), 2);
        assert_eq!(read[1].probes[0].expect, Expect::Refused);
        assert_eq!(read[1].families, [Variant::V4, Variant::V6]);
    }
}
