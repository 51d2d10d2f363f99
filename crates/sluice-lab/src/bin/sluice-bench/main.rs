//! `sluice-bench`: what the proxy costs, in time and memory, on this machine.
//!
//! Each figure comes from a process of its own, so that none inherits another one's heap: this
//! program runs itself again with a hidden subcommand, and the child prints a line of JSON.
//! `docs/performance.md` says what each figure means.

mod changes;
mod figures;
mod fleet;
mod latency;
mod machine;
mod memory;
mod report;
mod stages;
mod subject;

use std::io::{Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_proxy::sandbox::enter_user_namespace;

use figures::{Changes, Shares, Spread};
use fleet::Size;
use machine::Machine;
use report::{LatencyReport, Report, SizeReport};

/// Measures the proxy in network namespaces of its own and prints a table.
#[derive(Debug, Parser)]
#[command(name = "sluice-bench")]
struct Arguments {
    /// Sizes to measure, SERVICESxENDPOINTS.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000x10,10000x10,5000x50,30000x10"
    )]
    sizes: Vec<Size>,
    /// Small changes of each kind at each size.
    #[arg(long, default_value_t = 1000)]
    repetitions: u32,
    /// Whole loads at each size, each by a fresh process.
    #[arg(long, default_value_t = 5)]
    loads: u32,
    /// Size of the table through which connections are made.
    #[arg(long, default_value = "30000x10")]
    latency_at: Size,
    /// Connections per round, each way; 0 leaves the measurement out.
    #[arg(long, default_value_t = 1000)]
    connections: u32,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
    /// What this process itself is to measure, for a parent: one figure at the first size.
    #[arg(long, hide = true, value_enum)]
    only: Option<Figure>,
}

/// What a child process measures.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Figure {
    Load,
    Life,
    Stages,
    Memory,
    Latency,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(figure) = arguments.only {
        return be_child(figure, &arguments);
    }
    let mut report = Report {
        machine: Machine::look(),
        sizes: Vec::new(),
        latency: None,
        targets: Vec::new(),
    };
    for size in &arguments.sizes {
        writeln!(stderr(), "measuring {size} ...")?;
        report.sizes.push(measure(*size, &arguments)?);
    }
    if arguments.connections > 0 {
        let size = arguments.latency_at;
        writeln!(stderr(), "connecting at {size} ...")?;
        let latencies = child(Figure::Latency, size, arguments.connections)?;
        report.latency = Some(LatencyReport { size, latencies });
    }
    report.machine.look_again();
    report.judge();
    write!(stdout(), "{report}")?;
    save(&report, &arguments.json)
}

fn measure(size: Size, arguments: &Arguments) -> anyhow::Result<SizeReport> {
    let repetitions = arguments.repetitions;
    let mut changes: Changes = child(Figure::Life, size, repetitions)?;
    let loads = (0..arguments.loads).map(|_| child(Figure::Load, size, 0));
    let loads = loads.collect::<anyhow::Result<Vec<f64>>>()?;
    if !loads.is_empty() {
        changes.load = Spread::of(loads);
    }
    let [load_shares, swap_shares]: [Shares; 2] = child(Figure::Stages, size, repetitions)?;
    Ok(SizeReport {
        size,
        changes,
        load_shares,
        swap_shares,
        memory: child(Figure::Memory, size, repetitions)?,
    })
}

fn save(report: &Report, path: &PathBuf) -> anyhow::Result<()> {
    let failed = || format!("writing {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    std::fs::write(path, text).with_context(failed)
}

/// Has one figure measured by a process of its own.
fn child<T: DeserializeOwned>(figure: Figure, size: Size, count: u32) -> anyhow::Result<T> {
    let name = figure
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let Size {
        services,
        endpoints,
    } = size;
    let size = format!("{services}x{endpoints}");
    let count = count.to_string();
    let output = Command::new(std::env::current_exe()?)
        .args(["--only", &name, "--sizes", &size])
        .args(["--repetitions", &count, "--connections", &count])
        .stderr(Stdio::inherit())
        .output()
        .context("starting a child process")?;
    anyhow::ensure!(
        output.status.success(),
        "measuring {name} at {size} failed: {}",
        output.status
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading {name} at {size}"))
}

fn be_child(figure: Figure, arguments: &Arguments) -> anyhow::Result<()> {
    // Before any thread exists: the kernel refuses it afterwards.
    enter_user_namespace()?;
    let size = *arguments.sizes.first().context("a size to measure")?;
    let count = arguments.repetitions;
    match figure {
        Figure::Load => tell(&changes::load(size)?),
        Figure::Life => tell(&changes::life(size, count)?),
        Figure::Stages => tell(&stages::measure(size, count)?),
        Figure::Memory => tell(&memory::measure(size, count)?),
        Figure::Latency => tell(&latency::measure(size, arguments.connections)?),
    }
}

fn tell(figure: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(stdout(), figure)?;
    Ok(())
}
