//! `--cleanup`: removes the rules of every mode so far, and nothing else.

use sluice_dataplane::nftables::driver::Driver;

/// Removes our tables in both families. What is not there is no error.
pub fn run() -> anyhow::Result<()> {
    let removed = Driver::open()?.remove_tables()?;
    tracing::info!(tables = removed, "Removed the rules of mode nftables");
    Ok(())
}
