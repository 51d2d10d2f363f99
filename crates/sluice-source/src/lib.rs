//! Where facts about the cluster come from.
//!
//! A source turns what it reads into [`sluice_model::fact::Fact`]s and never decides what they
//! mean. `api` (behind the feature of that name) follows an API server; [`manifest`] reads files
//! as `kubectl get -o yaml` prints them; [`yaml`] is the reader with places (line and column)
//! beneath it, of use to whoever reads YAML for people.

#[cfg(feature = "api")]
pub mod api;
pub mod manifest;
mod object;
pub mod time;
pub mod yaml;
