//! Who is asking: kubeconfig files, service accounts and plugins, and their rotation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use sluice_source::api::{Access, ApiSource, Notice};

use crate::mirror::{Mirror, options};
use crate::server::Server;

const MINUTE: Duration = Duration::from_secs(60);

fn kubeconfig(folder: &Path, server: &str, user: &str) -> Access {
    let path = folder.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {user}}}]\n"
    );
    fs::write(&path, text).unwrap();
    Access::Kubeconfig { path, server: None }
}

/// The Authorization headers that the server has seen, in order and without repetition.
fn seen(server: &Server) -> Vec<String> {
    let mut seen = server.with(|store| store.credentials.clone());
    seen.dedup();
    seen
}

fn assert_tells_no_secret(mirror: &Mirror) {
    assert!(
        mirror
            .notices
            .iter()
            .all(|notice| !notice.to_string().contains("secret"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_of_the_kubeconfig_is_sent() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let access = kubeconfig(folder.path(), &server.url(), "{token: secret-1}");
    let mut mirror = Mirror::with(options(access, 1)).await;
    mirror.until_same(&server, MINUTE).await;
    assert_eq!(seen(&server), ["Bearer secret-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_token_file_takes_effect_with_the_next_request() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    // Beside the kubeconfig, with a line end as tools write it.
    fs::write(folder.path().join("token"), "secret-1\n").unwrap();
    let access = kubeconfig(
        folder.path(),
        &server.url(),
        "{tokenFile: token, token: stale}",
    );
    let mut mirror = Mirror::with(options(access, 1)).await;
    mirror.until_same(&server, MINUTE).await;
    fs::write(folder.path().join("token"), "secret-22\n").unwrap();
    server.with(|store| store.restart());
    mirror
        .until(MINUTE, |mirror| mirror.notices.contains(&Notice::Renewed))
        .await;
    mirror.during(MINUTE).await;
    assert_eq!(seen(&server), ["Bearer secret-1", "Bearer secret-22"]);
    assert_tells_no_secret(&mirror);
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_breaks_later_leaves_the_former_one_in_force() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let access = kubeconfig(folder.path(), &server.url(), "{token: secret-1}");
    let mut mirror = Mirror::with(options(access, 1)).await;
    mirror.until_same(&server, MINUTE).await;
    fs::write(folder.path().join("kubeconfig"), "users: [{secret-1").unwrap();
    server.with(|store| store.restart());
    mirror
        .until(MINUTE, |mirror| {
            let failed = |notice: &Notice| matches!(notice, Notice::NotRenewed { .. });
            mirror.notices.iter().any(failed)
        })
        .await;
    mirror.during(MINUTE).await;
    assert_eq!(seen(&server), ["Bearer secret-1"]);
    assert_tells_no_secret(&mirror);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_read_again() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("count");
    let plugin = folder.path().join("plugin");
    let script = format!(
        "#!/bin/sh\necho x >> {0}\nn=$(wc -l < {0})\n\
         echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \
         \"ExecCredential\", \"status\": {{\"token\": \"secret-'$n'\"}}}}'\n",
        counter.display()
    );
    fs::write(&plugin, script).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, \
         interactiveMode: Never}}}}",
        plugin.display()
    );
    let access = kubeconfig(folder.path(), &server.url(), &user);
    let mut mirror = Mirror::with(options(access, 1)).await;
    mirror.until_same(&server, MINUTE).await;
    let first = seen(&server);
    assert_eq!(first.len(), 1);
    assert!(first[0].starts_with("Bearer secret-"));
    server.with(|store| {
        store.restart();
        store
            .troubles
            .extend([crate::server::Trouble::Refuse(401); 4]);
    });
    mirror.during(MINUTE).await;
    let later = seen(&server);
    assert!(later.len() > 1 && later.last() != first.last(), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_plugin_is_named_without_what_it_printed() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("plugin");
    fs::write(
        &plugin,
        "#!/bin/sh\necho secret-1; echo secret-2 >&2; exit 3\n",
    )
    .unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, \
         interactiveMode: Never}}}}",
        plugin.display()
    );
    let access = kubeconfig(folder.path(), "http://127.0.0.1:1", &user);
    let text = ApiSource::start(options(access, 1))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("plugin") && text.contains("exit status: 3"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn master_takes_the_place_of_the_server_in_the_file() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let access = kubeconfig(folder.path(), "http://127.0.0.1:1", "{token: secret-1}");
    let Access::Kubeconfig { path, .. } = access else {
        panic!("another access");
    };
    let access = Access::Kubeconfig {
        path,
        server: Some(server.url()),
    };
    let mut mirror = Mirror::with(options(access, 1)).await;
    mirror.until_same(&server, MINUTE).await;
    assert_eq!(seen(&server), ["Bearer secret-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_account_needs_its_authority_and_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let access = || Access::InCluster {
        server: "https://127.0.0.1:1".into(),
        folder: folder.path().to_owned(),
    };
    let start = |access| async move {
        ApiSource::start(options(access, 1))
            .await
            .unwrap_err()
            .to_string()
    };
    let text = start(access()).await;
    assert!(text.contains("ca.crt"), "{text}");
    fs::write(folder.path().join("ca.crt"), "").unwrap();
    let text = start(access()).await;
    assert!(text.contains("token"), "{text}");
}
