//! The Kubernetes API as a source of facts.
//!
//! [`ApiSource::start`] follows Services, EndpointSlices, this machine's Node and ServiceCIDRs
//! (and Endpoints, where the server has no EndpointSlices), whatever happens to the connection.
//!
//! - [`decode`]: bodies and frames to facts, in protobuf or JSON.
//! - `follow`: list and watch of one resource, a state machine without I/O.
//! - `frames`, `pace`: a stream's bytes to frames; back-off and request rate.
//! - `access`: kubeconfig and service account to a client, anew when credentials are rotated.
//! - `run`: the part that waits, asks and reads.

mod access;
pub mod decode;
mod follow;
mod frames;
mod pace;
mod resource;
mod run;

use std::fmt;
use std::time::Duration;

use sluice_model::fact::Fact;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use access::{Access, AccessError, SERVICE_ACCOUNT};
pub use decode::Encoding;
pub use pace::Rate;
pub use resource::Resource;

/// Batches of facts that may wait to be taken; a source that runs ahead of its reader stops
/// reading from the server.
const BATCHES: usize = 16;

/// What to follow, and how.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Where the server is and who is asking.
    pub access: Access,
    /// The Node that is followed.
    pub node: String,
    /// The encoding asked for. Either is understood, whatever the server answers with.
    pub encoding: Encoding,
    /// How many requests may be made. The pages of a list count as one.
    pub rate: Rate,
    /// The User-Agent header.
    pub user_agent: String,
    /// Seeds the jitter of waits; should differ from node to node.
    pub seed: u64,
}

/// What the source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Statements about the cluster, in order; at most a few hundred.
    Facts(Vec<Fact>),
    /// How following goes.
    Notice(Notice),
}

/// How following goes: for logs, metrics and health.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A complete list has been reported; a watch goes on from it.
    Synced {
        /// Of what.
        resource: Resource,
        /// How many objects it held.
        objects: usize,
    },
    /// Facts of a resource are no longer current. Said again only when the reason changes, or
    /// after five minutes.
    Trouble {
        /// Of what.
        resource: Resource,
        /// Why, in one line.
        text: String,
        /// When the server is asked again.
        again: Duration,
    },
    /// A watch runs again after [`Notice::Trouble`].
    Recovered {
        /// Of what.
        resource: Resource,
    },
    /// The server does not have this resource. It is looked for again every few minutes.
    Absent {
        /// Which.
        resource: Resource,
    },
    /// Credentials were read anew, because their files changed or the server refused them.
    Renewed,
    /// Changed credentials cannot be used; the former ones stay in use.
    NotRenewed {
        /// Why, in one line.
        text: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Synced { resource, objects } => {
                write!(f, "{resource}: list complete, {objects} objects")
            }
            Notice::Trouble {
                resource,
                text,
                again,
            } => {
                let seconds = again.as_secs_f64();
                write!(f, "{resource}: {text}; next try in {seconds:.1} s")
            }
            Notice::Recovered { resource } => write!(f, "{resource}: followed again"),
            Notice::Absent { resource } => write!(f, "{resource}: not served"),
            Notice::Renewed => f.write_str("credentials read anew"),
            Notice::NotRenewed { text } => {
                write!(f, "credentials changed but cannot be used: {text}")
            }
        }
    }
}

/// A server that is being followed. Dropping it ends that.
#[derive(Debug)]
pub struct ApiSource {
    updates: mpsc::Receiver<Update>,
    task: JoinHandle<()>,
}

impl ApiSource {
    /// Reads the credentials and starts to follow the server on the current tokio runtime. Fails
    /// only where the credentials do not do; a server that does not answer is asked for ever.
    pub async fn start(options: ApiOptions) -> Result<ApiSource, AccessError> {
        let (sender, updates) = mpsc::channel(BATCHES);
        let run = run::Run::new(options, sender).await?;
        let task = tokio::spawn(run.follow_all());
        Ok(ApiSource { updates, task })
    }

    /// The next update; waits for it. `None` never comes while the runtime lives.
    pub async fn next(&mut self) -> Option<Update> {
        self.updates.recv().await
    }
}

impl Drop for ApiSource {
    fn drop(&mut self) {
        self.task.abort();
    }
}
