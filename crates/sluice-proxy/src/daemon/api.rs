//! The Kubernetes API as the daemon's source.

use std::path::PathBuf;

use sluice_source::api::{Access, ApiOptions, Encoding, Notice, Rate, SERVICE_ACCOUNT};

use crate::config::Client;

/// How the server is reached: `--kubeconfig` (with `--master` in place of its server), else
/// `--master` alone, else the service account of the Pod that this process runs in.
pub fn options(
    client: &Client,
    master: &str,
    node: &str,
    in_cluster: Option<(String, String)>,
) -> Option<ApiOptions> {
    let server = Some(master.to_owned()).filter(|url| !url.is_empty());
    let access = match (client.kubeconfig.as_str(), server, in_cluster) {
        ("", Some(server), _) => Access::Server(server),
        ("", None, Some((host, port))) => Access::InCluster {
            server: url(&host, &port),
            folder: PathBuf::from(SERVICE_ACCOUNT),
        },
        ("", None, None) => return None,
        (path, server, _) => Access::Kubeconfig {
            path: PathBuf::from(path),
            server,
        },
    };
    Some(ApiOptions {
        access,
        node: node.to_owned(),
        encoding: Encoding::of_content_type(&client.content_type).unwrap_or_default(),
        rate: Rate {
            qps: client.qps,
            burst: client.burst,
        },
        user_agent: concat!(
            "kube-proxy/v1.36.2 (linux) sluice/",
            env!("CARGO_PKG_VERSION")
        )
        .into(),
        // Nodes that start together must not ask together for ever.
        seed: node
            .bytes()
            .fold(u64::from(std::process::id()), |seed, byte| {
                seed.wrapping_mul(31).wrapping_add(byte.into())
            }),
    })
}

fn url(host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    }
}

/// Logs how following goes.
pub(super) fn say(notice: &Notice) {
    match notice {
        Notice::Trouble { .. } | Notice::NotRenewed { .. } => tracing::error!("API: {notice}"),
        Notice::Absent { .. } => tracing::warn!("API: {notice}"),
        Notice::Synced { .. } | Notice::Recovered { .. } | Notice::Renewed => {
            tracing::info!("API: {notice}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(kubeconfig: &str) -> Client {
        Client {
            kubeconfig: kubeconfig.into(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".into(),
            qps: 5.0,
            burst: 10,
        }
    }

    fn access(kubeconfig: &str, master: &str, cluster: Option<(&str, &str)>) -> Option<Access> {
        let cluster = cluster.map(|(host, port)| (host.to_owned(), port.to_owned()));
        options(&client(kubeconfig), master, "node-a", cluster).map(|o| o.access)
    }

    #[test]
    fn the_most_explicit_way_to_the_server_is_taken() {
        let pod = Some(("fd00::1", "443"));
        let file = |server: Option<&str>| Access::Kubeconfig {
            path: "/k".into(),
            server: server.map(str::to_owned),
        };
        assert_eq!(access("/k", "", pod), Some(file(None)));
        assert_eq!(
            access("/k", "https://m", pod),
            Some(file(Some("https://m")))
        );
        assert_eq!(
            access("", "https://m", pod),
            Some(Access::Server("https://m".into()))
        );
        let Some(Access::InCluster { server, .. }) = access("", "", pod) else {
            panic!("a Pod's own account");
        };
        assert_eq!(server, "https://[fd00::1]:443");
        assert_eq!(access("", "", None), None);
    }
}
