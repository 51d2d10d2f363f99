//! Every scenario, with real packets through the rules of every mode.
//!
//! No test harness: an ordinary user must enter a user namespace before the first thread starts.

#![allow(clippy::panic, reason = "this file is a test")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use sluice_lab::backend::Backend;
use sluice_lab::kernel::{Kernel, ModeName};
use sluice_lab::runner::Verdict;
use sluice_lab::{report, runner, scenario};
use sluice_proxy::sandbox::enter_user_namespace;

const NAME: &str = "every_mode_does_what_every_scenario_expects";

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("{NAME}: test");
        return Ok(ExitCode::SUCCESS);
    }
    let filters: Vec<_> = words
        .iter()
        .filter(|word| !word.starts_with("--"))
        .collect();
    if !filters.is_empty() && !filters.iter().any(|word| NAME.contains(word.as_str())) {
        println!("filtered out: {NAME}");
        return Ok(ExitCode::SUCCESS);
    }
    enter_user_namespace()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let scenarios = scenario::load(&[folder])?;
    let mut verdicts = Vec::new();
    for mode in ModeName::ALL {
        let open = || -> Result<Box<dyn Backend>> { Ok(Box::new(Kernel::new(mode.word())?)) };
        let each = |verdict: &Verdict| {
            if !verdict.passed() {
                println!("{}", report::line(verdict));
            }
        };
        verdicts.extend(runner::run_all(&scenarios, 8, &open, &each)?);
    }
    println!("{}", report::table(&verdicts));
    let passed = verdicts.iter().all(Verdict::passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
