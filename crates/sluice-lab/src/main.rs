//! The command of the lab: plays scenarios and says how they went.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use sluice_lab::backend::Backend;
use sluice_lab::kernel::Kernel;
use sluice_lab::oracle::Oracle;
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
        paths,
    } = act;
    let mut backend = open(backend, &mode)?;
    let mut verdicts = Vec::new();
    for filed in scenario::load(&paths)? {
        for verdict in runner::run(&filed.scenario, &mut *backend) {
            write!(stdout(), "{}", report::line(&verdict))?;
            verdicts.push(verdict);
        }
    }
    write!(stdout(), "\n{}", report::table(&verdicts))?;
    let passed = verdicts.iter().all(runner::Verdict::passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn open(backend: On, mode: &str) -> Result<Box<dyn Backend>> {
    match backend {
        On::Oracle => Ok(Box::new(Oracle)),
        On::Kernel => {
            // Before any thread exists: the kernel refuses it afterwards.
            enter_user_namespace()?;
            Ok(Box::new(Kernel::new(mode)?))
        }
    }
}
