//! `--cleanup`: removes the rules of every mode, and nothing else.

/// Removes what there is. Errors are reported one by one; the rest goes on.
pub fn run() -> anyhow::Result<()> {
    let (removed, errors) = sluice_dataplane::mode::remove_all();
    tracing::info!(objects = removed, "Removed the rules of all modes");
    for error in &errors {
        tracing::error!("{error}");
    }
    anyhow::ensure!(
        errors.is_empty(),
        "encountered an error while tearing down rules"
    );
    Ok(())
}
