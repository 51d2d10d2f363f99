//! On what the figures were measured.

use std::fs::read_to_string;
use std::process::Command;

use serde::Serialize;

/// The machine, as far as it can be told.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// Of the source tree; `-dirty` where it had changes.
    pub(crate) commit: String,
    /// Mean number of runnable tasks during the last minute: above 0, something else ran too.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
}

impl Machine {
    pub(crate) fn look() -> Machine {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
        let load = load();
        Machine {
            kernel: read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            cpu: model.unwrap_or_else(unknown),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            commit: commit().unwrap_or_else(unknown),
            load_before: load,
            load_after: load,
        }
    }

    /// To be called when everything was measured.
    pub(crate) fn look_again(&mut self) {
        self.load_after = load();
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn load() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}
