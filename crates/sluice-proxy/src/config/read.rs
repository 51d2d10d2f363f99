//! A configuration file to what was typed in it.

use std::fmt;

use sluice_source::yaml::{self, Complaint, Field, Node, Place};

use super::typed::{Typed, TypedClient, TypedConntrack, TypedIpvs, TypedLogging, TypedSection};
use super::{ConfigError, Span};

/// A remark about the file that does not keep the rest of it from counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNote {
    /// The file.
    pub file: String,
    /// Line and column; 0 where it concerns the whole.
    pub place: Place,
    /// What, and the remedy.
    pub text: String,
}

impl fmt::Display for ConfigNote {
    /// `file:line:column: text`, the form editors can jump to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.place.line > 0 {
            write!(f, ":{}:{}", self.place.line, self.place.column)?;
        }
        write!(f, ": {}", self.text)
    }
}

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// Reads a file's text, YAML or JSON. Unknown keys and keys given twice are remarks, since a file
/// written for a newer or older version must not keep a node from its services; a value of the
/// wrong sort is an error, as nobody can tell what it was to mean.
pub fn read(file: &str, text: &str) -> Result<(Typed, Vec<ConfigNote>), ConfigError> {
    let place_error = |place, text: String| {
        ConfigError::File(vec![ConfigNote {
            file: file.to_owned(),
            place,
            text,
        }])
    };
    let chunks = yaml::documents(text);
    let [chunk] = chunks[..] else {
        let text = "must hold one YAML document, which is a KubeProxyConfiguration";
        return Err(place_error(Place::default(), text.into()));
    };
    let root = yaml::parse(chunk)
        .map_err(|error| place_error(error.place, format!("is no YAML: {}", error.text)))?;
    check_identity(&root).map_err(|(place, text)| place_error(place, text))?;
    let mut reader = Reader {
        file,
        notes: Vec::new(),
        errors: Vec::new(),
    };
    let typed = reader.configuration(Field::root(&root));
    // Keys are read by their meaning; people read a file from its top.
    reader.notes.sort_by_key(|note| note.place);
    reader.errors.sort_by_key(|note| note.place);
    if reader.errors.is_empty() {
        Ok((typed, reader.notes))
    } else {
        Err(ConfigError::File(reader.errors))
    }
}

fn check_identity(root: &Node) -> Result<(), (Place, String)> {
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = root.get(key);
        if found.and_then(Node::text) != Some(expected) {
            let place = found.map_or(root.place, |node| node.place);
            let shown = found.map_or("missing".into(), Node::shown);
            return Err((place, format!("{key} is {shown}: must be {expected}")));
        }
    }
    Ok(())
}

struct Reader<'f> {
    file: &'f str,
    notes: Vec<ConfigNote>,
    errors: Vec<ConfigNote>,
}

/// The keys of a section are what its reader asks for: those nobody asked for are unknown.
struct Section<'a, 'r, 'f> {
    field: Field<'a>,
    asked: Vec<&'a str>,
    reader: &'r mut Reader<'f>,
}

impl<'a> Section<'a, '_, '_> {
    fn value<T>(
        &mut self,
        key: &'a str,
        read: impl FnOnce(&Field<'_>) -> Result<T, Complaint>,
    ) -> Option<T> {
        self.asked.push(key);
        let field = self.field.get(key)?;
        read(&field).map_err(|c| self.reader.wrong(c)).ok()
    }

    fn text(&mut self, key: &'a str) -> Option<String> {
        self.value(key, |field| field.text().map(str::to_owned))
    }

    fn flag(&mut self, key: &'a str) -> Option<bool> {
        self.value(key, |field| field.flag())
    }

    fn int32(&mut self, key: &'a str) -> Option<i64> {
        self.value(key, |field| {
            field.whole(i64::from(i32::MIN)..=i64::from(i32::MAX))
        })
    }

    fn span(&mut self, key: &'a str) -> Option<Span> {
        self.value(key, |field| {
            let why = "must be a duration such as 30s, 5m or 1h30m";
            let text = field.text().map_err(|_| field.complaint(why))?;
            Span::parse(text).ok_or_else(|| field.complaint(why))
        })
    }

    fn texts(&mut self, key: &'a str) -> Option<Vec<String>> {
        self.value(key, |field| {
            field
                .list()?
                .map(|entry| entry.text().map(str::to_owned))
                .collect()
        })
    }

    /// Reads a section within; a missing one is read as an empty one would be.
    fn section<T: Default>(
        &mut self,
        key: &'a str,
        read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
    ) -> T {
        self.asked.push(key);
        let Some(field) = self.field.get(key) else {
            return T::default();
        };
        self.reader.section(field, read)
    }
}

impl Reader<'_> {
    fn section<T: Default>(
        &mut self,
        field: Field<'_>,
        read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
    ) -> T {
        if !matches!(field.node().value, yaml::Value::Map(_)) {
            self.wrong(field.complaint("must be a mapping of keys to values"));
            return T::default();
        }
        let mut section = Section {
            field,
            asked: Vec::new(),
            reader: self,
        };
        let value = read(&mut section);
        let asked = section.asked.iter().map(|key| (*key).to_owned()).collect();
        self.check_keys(&field, asked);
        value
    }

    fn check_keys(&mut self, field: &Field<'_>, known: Vec<String>) {
        let path = field.to_string();
        let dot = if path.is_empty() { "" } else { "." };
        let mut seen: Vec<&str> = Vec::new();
        for entry in field.node().entries() {
            let key = &entry.key;
            if seen.contains(&key.as_str()) {
                let text = format!(
                    "{path}{dot}{key} is given twice: the last one counts, remove the other"
                );
                self.note(entry.place, text);
            } else if !known.contains(key) {
                let remedy = match closest(key, &known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "remove it".to_owned(),
                };
                self.note(
                    entry.place,
                    format!("unknown key {path}{dot}{key} is ignored: {remedy}"),
                );
            }
            seen.push(key);
        }
    }

    fn note(&mut self, place: Place, text: String) {
        self.notes.push(ConfigNote {
            file: self.file.to_owned(),
            place,
            text,
        });
    }

    fn wrong(&mut self, complaint: Complaint) {
        self.errors.push(ConfigNote {
            file: self.file.to_owned(),
            place: complaint.place,
            text: complaint.to_string(),
        });
    }

    fn configuration(&mut self, root: Field<'_>) -> Typed {
        self.section(root, |top| {
            top.asked.extend(["apiVersion", "kind"]);
            let winkernel = top.section("winkernel", winkernel);
            let iptables = top.section("iptables", |s| {
                (common_section(s), s.flag("localhostNodePorts"))
            });
            let (bridge_interface, interface_name_prefix) = top.section("detectLocal", |s| {
                (s.text("bridgeInterface"), s.text("interfaceNamePrefix"))
            });
            let port_range = top.text("portRange").is_some_and(|text| !text.is_empty());
            let service = top.flag("windowsRunAsService").unwrap_or(false);
            Typed {
                feature_gates: top.value("featureGates", gates).unwrap_or_default(),
                client: top.section("clientConnection", client),
                logging: top.section("logging", logging),
                hostname_override: top.text("hostnameOverride"),
                bind_address: top.text("bindAddress"),
                healthz_bind_address: top.text("healthzBindAddress"),
                metrics_bind_address: top.text("metricsBindAddress"),
                healthz_port: None,
                metrics_port: None,
                bind_address_hard_fail: top.flag("bindAddressHardFail"),
                enable_profiling: top.flag("enableProfiling"),
                show_hidden_metrics: top.text("showHiddenMetricsForVersion"),
                mode: top.text("mode"),
                iptables: iptables.0,
                localhost_node_ports: iptables.1,
                nftables: top.section("nftables", common_section),
                ipvs: top.section("ipvs", ipvs),
                detect_local_mode: top.text("detectLocalMode"),
                bridge_interface,
                interface_name_prefix,
                cluster_cidr: top.text("clusterCIDR"),
                node_port_addresses: top.texts("nodePortAddresses"),
                oom_score_adj: top.int32("oomScoreAdj"),
                conntrack: top.section("conntrack", conntrack),
                config_sync_period: top.span("configSyncPeriod"),
                foreign: winkernel || port_range || service,
            }
        })
    }
}

fn gates(field: &Field<'_>) -> Result<std::collections::BTreeMap<String, bool>, Complaint> {
    let entries = field.node().entries().iter();
    entries
        .map(|entry| {
            let value = field.get(&entry.key);
            let on = value.map_or(Ok(false), |value| value.flag())?;
            Ok((entry.key.clone(), on))
        })
        .collect()
}

fn client(s: &mut Section<'_, '_, '_>) -> TypedClient {
    TypedClient {
        kubeconfig: s.text("kubeconfig"),
        accept_content_types: s.text("acceptContentTypes"),
        content_type: s.text("contentType"),
        qps: s.value("qps", |field| match field.node().value {
            yaml::Value::Int(value) => Ok(value as f64),
            yaml::Value::Float(value) => Ok(value),
            yaml::Value::Null
            | yaml::Value::Bool(_)
            | yaml::Value::Text(_)
            | yaml::Value::Seq(_)
            | yaml::Value::Map(_) => Err(field.complaint("must be a number")),
        }),
        burst: s.int32("burst"),
    }
}

fn logging(s: &mut Section<'_, '_, '_>) -> TypedLogging {
    let (text, json) = s.section("options", |s| {
        (s.section("text", log_sink), s.section("json", log_sink))
    });
    TypedLogging {
        format: s.text("format"),
        flush_frequency: s.value("flushFrequency", |field| {
            // A number counts nanoseconds, as older versions wrote it.
            if let Ok(nanos) = field.whole(i64::MIN..=i64::MAX) {
                return Ok(Span(nanos));
            }
            field
                .node()
                .text()
                .and_then(Span::parse)
                .ok_or_else(|| field.complaint("must be a duration such as 5s"))
        }),
        verbosity: s.value("verbosity", |field| field.whole(0..=i64::from(u32::MAX))),
        vmodule: s.value("vmodule", vmodule).unwrap_or_default(),
        split_stream: text.0 || json.0,
        info_buffer: text.1.or(json.1),
    }
}

fn log_sink(s: &mut Section<'_, '_, '_>) -> (bool, Option<String>) {
    let split = s.flag("splitStream").unwrap_or(false);
    let size = s.value("infoBufferSize", |field| Ok(field.node().shown()));
    (split, size.filter(|size| size != "0" && !size.is_empty()))
}

fn vmodule(field: &Field<'_>) -> Result<Vec<(String, i64)>, Complaint> {
    field
        .list()?
        .map(|entry| {
            let pattern = entry
                .require("filePattern", "name the source files it is for")?
                .text()?
                .to_owned();
            let verbosity = entry
                .get("verbosity")
                .map_or(Ok(0), |value| value.whole(0..=i64::from(u32::MAX)))?;
            Ok((pattern, verbosity))
        })
        .collect()
}

fn common_section(s: &mut Section<'_, '_, '_>) -> TypedSection {
    TypedSection {
        masquerade_bit: s.int32("masqueradeBit"),
        masquerade_all: s.flag("masqueradeAll"),
        sync_period: s.span("syncPeriod"),
        min_sync_period: s.span("minSyncPeriod"),
    }
}

fn ipvs(s: &mut Section<'_, '_, '_>) -> TypedIpvs {
    TypedIpvs {
        sync_period: s.span("syncPeriod"),
        min_sync_period: s.span("minSyncPeriod"),
        scheduler: s.text("scheduler"),
        exclude_cidrs: s.texts("excludeCIDRs").unwrap_or_default(),
        strict_arp: s.flag("strictARP"),
        tcp_timeout: s.span("tcpTimeout"),
        tcp_fin_timeout: s.span("tcpFinTimeout"),
        udp_timeout: s.span("udpTimeout"),
    }
}

fn conntrack(s: &mut Section<'_, '_, '_>) -> TypedConntrack {
    TypedConntrack {
        max_per_core: s.int32("maxPerCore"),
        min: s.int32("min"),
        tcp_established_timeout: s.span("tcpEstablishedTimeout"),
        tcp_close_wait_timeout: s.span("tcpCloseWaitTimeout"),
        tcp_be_liberal: s.flag("tcpBeLiberal"),
        udp_timeout: s.span("udpTimeout"),
        udp_stream_timeout: s.span("udpStreamTimeout"),
    }
}

/// Whether any key of the Windows section says something.
fn winkernel(s: &mut Section<'_, '_, '_>) -> bool {
    let texts = ["networkName", "sourceVip", "rootHnsEndpointName"];
    let flags = ["enableDSR", "forwardHealthCheckVip"];
    let named = texts.map(|key| s.text(key).is_some_and(|text| !text.is_empty()));
    let set = flags.map(|key| s.flag(key).unwrap_or(false));
    named.contains(&true) || set.contains(&true)
}

/// The known key that was most likely meant: equal but for case, or one or two letters away.
fn closest(key: &str, known: &[String]) -> Option<String> {
    let lower = key.to_lowercase();
    let near = |candidate: &&String| distance(&lower, &candidate.to_lowercase());
    let best = known.iter().min_by_key(near)?;
    (near(&best) <= 2.min(key.len() / 3)).then(|| best.clone())
}

/// Levenshtein's distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let above = row[j + 1];
            let replace = diagonal + usize::from(left != *right);
            row[j + 1] = replace.min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
