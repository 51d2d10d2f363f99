//! The engine's messages as log lines.

use crate::engine::Message;

/// Logs a message.
pub(super) fn say(message: &Message) {
    match message {
        Message::Started {
            operations: 0,
            routes,
        } => {
            tracing::info!(
                routes,
                "Adopted the rules in place: nothing had to be written"
            );
        }
        Message::Started { operations, routes } => {
            tracing::info!(routes, operations, "Programmed the kernel");
        }
        Message::Failed { failure, retry_ms } => {
            tracing::error!(retry_ms, "Programming the kernel failed: {}", failure.text);
        }
        Message::LeftOut { outcome, retry_ms } => {
            tracing::error!(retry_ms, "Not everything could be programmed: {outcome}");
        }
        Message::Drifted { family, drift, by } => {
            let by = by.as_ref().map_or_else(
                || "an unknown process".to_owned(),
                |who| format!("{} (pid {})", who.process, who.pid),
            );
            tracing::warn!(
                missing = drift.missing,
                unexpected = drift.unexpected,
                "The {family} rules were changed by {by}, repairing: {}",
                drift.examples.join("; ")
            );
        }
        Message::Notice(notice) => tracing::warn!("{}: {}", notice.object, notice.text),
    }
}
