//! Objects of a scenario, read as manifests are.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sluice_model::fact::Fact;
use sluice_model::name::{Names, ObjectKey};
use sluice_source::manifest::{Outcome, facts_from_str};

use crate::scenario::Object;

/// The facts that objects state. What a manifest reader would only remark upon is an error here:
/// a scenario must say what its author means.
pub fn facts(objects: &[Object], names: &mut Names) -> Result<Vec<Fact>> {
    let mut facts = Vec::new();
    for object in objects {
        let read = one(object.value.clone(), names);
        facts.extend(read.with_context(|| format!("object on line {}", object.defined.line()))?);
    }
    Ok(facts)
}

fn one(mut object: Value, names: &mut Names) -> Result<Vec<Fact>> {
    complete(&mut object)?;
    // JSON is YAML, so the one reader of manifests reads it.
    let parsed = facts_from_str("object", &object.to_string(), names);
    if let Some(problem) = parsed.problems.first() {
        bail!("{problem}");
    }
    if parsed.outcome == Outcome::Broken || parsed.facts.is_empty() {
        bail!("states nothing that a service proxy reads");
    }
    Ok(parsed.facts)
}

/// Adds what scenarios leave out since it follows from the rest: apiVersion, and the namespace
/// `default`.
fn complete(object: &mut Value) -> Result<()> {
    let (version, namespaced) = match object["kind"].as_str() {
        Some("Service" | "Endpoints") => ("v1", true),
        Some("EndpointSlice") => ("discovery.k8s.io/v1", true),
        Some("Node") => ("v1", false),
        Some("ServiceCIDR") => ("networking.k8s.io/v1", false),
        kind => bail!("kind {kind:?} is none that a service proxy reads"),
    };
    let map = object.as_object_mut().context("is no object")?;
    map.entry("apiVersion").or_insert_with(|| json!(version));
    if namespaced {
        let metadata = map.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.context("has no metadata")?;
        metadata
            .entry("namespace")
            .or_insert_with(|| json!("default"));
    }
    Ok(())
}

/// The fact that an object is gone, from `service/web` or `service/namespace/web`.
pub fn gone(object: &str) -> Result<Fact> {
    let parts: Vec<&str> = object.split('/').collect();
    let (kind, key) = match parts[..] {
        [kind, name] => (kind, ObjectKey::new("default", name)),
        [kind, namespace, name] => (kind, ObjectKey::new(namespace, name)),
        _ => bail!("delete {object:?}: want kind/name or kind/namespace/name"),
    };
    Ok(match kind {
        "service" => Fact::Service(key, None),
        "endpointslice" => Fact::Slice(key, None),
        "endpoints" => Fact::Endpoints(key, None),
        "node" => Fact::Node(key.name, None),
        "servicecidr" => Fact::Cidrs(key.name, None),
        _ => bail!("delete {object:?}: kind {kind:?} is none that a service proxy reads"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_object_is_named_by_kind_and_name() {
        let fact = gone("service/shop/web").expect("a kind that is read");
        assert_eq!(fact, Fact::Service(ObjectKey::new("shop", "web"), None));
        let fact = gone("endpointslice/web-1").expect("a kind that is read");
        assert_eq!(fact, Fact::Slice(ObjectKey::new("default", "web-1"), None));
        let error = gone("pod/web").expect_err("pods are not read");
        let text = r#"delete "pod/web": kind "pod" is none that a service proxy reads"#;
        assert_eq!(error.to_string(), text);
    }
}
