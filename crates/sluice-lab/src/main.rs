//! The command of the lab: plays scenarios and says how they went.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use sluice_lab::backend::Backend;
use sluice_lab::kernel::Kernel;
use sluice_lab::oracle::Oracle;
use sluice_lab::runner::Verdict;
use sluice_lab::{report, runner, scenario};
use sluice_proxy::sandbox::enter_user_namespace;

/// Scenarios of Kubernetes service networking, played on the oracle or on a real kernel.
#[derive(Debug, Parser)]
#[command(name = "sluice-lab")]
struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Work with scenario files.
    #[command(subcommand)]
    Scenario(Act),
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Play scenarios; ends with 1 if one fails.
    Run {
        /// What to play them on.
        #[arg(long, value_enum, default_value = "oracle")]
        backend: On,
        /// The proxy mode under test, with `--backend kernel`.
        #[arg(long, default_value = "nftables")]
        mode: String,
        /// How many scenarios are played at the same time; on a kernel most of it is waiting.
        #[arg(long, default_value_t = 8)]
        jobs: usize,
        /// Scenario files, and folders of them.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum On {
    /// The model alone.
    Oracle,
    /// Real packets through rules that a mode wrote.
    Kernel,
}

fn main() -> Result<ExitCode> {
    let Arguments {
        subject: Subject::Scenario(act),
    } = Arguments::parse();
    let Act::Run {
        backend,
        mode,
        jobs,
        paths,
    } = act;
    if let On::Kernel = backend {
        // Before any thread exists: the kernel refuses it afterwards.
        enter_user_namespace()?;
    }
    let open = || -> Result<Box<dyn Backend>> {
        Ok(match backend {
            On::Oracle => Box::new(Oracle),
            On::Kernel => Box::new(Kernel::new(&mode)?),
        })
    };
    let each = |verdict: &Verdict| say(&report::line(verdict));
    let verdicts = runner::run_all(&scenario::load(&paths)?, jobs, &open, &each)?;
    say(&format!("\n{}", report::table(&verdicts)));
    let passed = verdicts.iter().all(Verdict::passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints to whoever still reads; the exit code does not depend on it.
fn say(text: &str) {
    drop(stdout().lock().write_all(text.as_bytes()));
}
