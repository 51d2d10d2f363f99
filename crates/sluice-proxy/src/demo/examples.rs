//! The manifests of `examples/`, in the binary so that it works anywhere.

use sluice_model::fact::Fact;
use sluice_model::name::Names;
use sluice_source::manifest::facts_from_str;

const FILES: [(&str, &str); 3] = [
    (
        "examples/nodes.yaml",
        include_str!("../../../../examples/nodes.yaml"),
    ),
    (
        "examples/cluster-ip.yaml",
        include_str!("../../../../examples/cluster-ip.yaml"),
    ),
    (
        "examples/from-outside.yaml",
        include_str!("../../../../examples/from-outside.yaml"),
    ),
];

/// Everything the manifests say.
pub(super) fn facts() -> anyhow::Result<Vec<Fact>> {
    let mut names = Names::default();
    let mut facts = Vec::new();
    for (file, text) in FILES {
        let parsed = facts_from_str(file, text, &mut names);
        if let Some(problem) = parsed.problems.first() {
            anyhow::bail!("{problem}");
        }
        facts.extend(parsed.facts);
    }
    Ok(facts)
}
