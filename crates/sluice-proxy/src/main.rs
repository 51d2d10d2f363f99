//! kube-proxy, as Sluice builds it: programs this node so that Services reach their pods.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use sluice_dataplane::iptables::driver::Choice;
use sluice_dataplane::iptables::ground::LocalhostNodePorts;
use sluice_dataplane::mode::Dataplane;
use sluice_proxy::config::{Config, LogFormat, Mode};
use sluice_proxy::daemon::{self, DaemonOptions};
use sluice_proxy::engine::Pace;
use sluice_proxy::flags::{self, Invocation, Task};
use sluice_proxy::logging::{self, Format};
use sluice_proxy::{cleanup, demo};
use sluice_source::api::ApiOptions;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let outcome = match arguments.peek().and_then(|word| word.to_str()) {
        Some("demo") => demo::main(arguments.skip(1)),
        _ => proxy(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn proxy(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let invocation = flags::parse(arguments)?;
    if let Task::Print(text) = &invocation.task {
        print!("{text}");
        return Ok(());
    }
    let loaded = invocation.load()?;
    let config = loaded.config;
    let format = match config.logging.format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    logging::init(format, config.logging.verbosity);
    for note in &loaded.notes {
        tracing::warn!("{note}");
    }
    match &invocation.task {
        Task::Print(_) => Ok(()),
        Task::WriteConfig(path) => {
            std::fs::write(path, config.to_yaml())
                .with_context(|| format!("writing the configuration to {}", path.display()))?;
            tracing::info!("Wrote configuration to {}", path.display());
            Ok(())
        }
        Task::Cleanup => cleanup::run(),
        Task::InitOnly => {
            tracing::info!(
                "Nothing to set up: mode {} needs no privileged step yet",
                config.mode
            );
            Ok(())
        }
        Task::Run => run(&invocation, &config),
    }
}

fn run(invocation: &Invocation, config: &Config) -> anyhow::Result<()> {
    let mode = match config.mode {
        Mode::Nftables => Dataplane::Nftables,
        Mode::Iptables => {
            let localhost = match config.localhost_node_ports {
                true => LocalhostNodePorts::Open,
                false => LocalhostNodePorts::Closed,
            };
            Dataplane::Iptables(Choice::Host, localhost)
        }
        Mode::Ipvs | Mode::Userspace => anyhow::bail!(
            "proxy mode {} is not there yet; use --proxy-mode=nftables or iptables",
            config.mode
        ),
    };
    let not_yet = config.not_yet_in_effect();
    if !not_yet.is_empty() {
        tracing::warn!("Accepted but not yet in effect: {}", not_yet.join(", "));
    }
    let hostname = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let node_name = config.node_name(&hostname)?;
    let manifests = invocation.manifests.clone();
    let api = match &manifests {
        Some(_) => None,
        None => Some(api(invocation, config, &node_name)?),
    };
    tracing::info!(
        node = node_name.as_str(),
        mode = config.mode.to_string(),
        "Starting kube-proxy (Sluice {})",
        env!("CARGO_PKG_VERSION")
    );
    daemon::run(DaemonOptions {
        mode,
        settings: config.to_settings(&node_name),
        mark: 1 << config.masquerade_bit,
        pace: Pace {
            min_sync_period: config.min_sync_period,
            sync_period: config.sync_period.max(Duration::from_millis(1)),
        },
        manifests,
        api,
        healthz: config.healthz_bind_address,
        netns: None,
    })
}

fn api(invocation: &Invocation, config: &Config, node: &str) -> anyhow::Result<ApiOptions> {
    #[expect(
        clippy::disallowed_methods,
        reason = "how a Pod is told where its API server is"
    )]
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let in_cluster = variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT"));
    daemon::api::options(&config.client, &invocation.master, node, in_cluster).context(
        "no source of Services: give --kubeconfig FILE or --master URL, run in a Pod, or give \
         --manifests PATH (a file or folder of Kubernetes manifests)",
    )
}
