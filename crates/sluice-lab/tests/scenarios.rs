//! Every scenario, on the oracle.

use std::path::Path;

use sluice_lab::oracle::Oracle;
use sluice_lab::{report, runner, scenario};

#[test]
fn the_model_does_what_every_scenario_expects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let filed = scenario::load(&[folder]).expect("readable scenarios");
    let runs = filed
        .iter()
        .flat_map(|filed| runner::run(&filed.scenario, &mut Oracle));
    let verdicts: Vec<_> = runs.collect();
    println!("{}", report::table(&verdicts));
    let failed: String = verdicts
        .iter()
        .filter(|v| !v.passed())
        .map(report::line)
        .collect();
    assert!(failed.is_empty(), "\n{failed}");
    assert!(
        filed.len() >= 60,
        "only {} scenarios were found",
        filed.len()
    );
}
