//! How the server is reached: from options and files to a client, and anew when files change.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt};
use kube::config::{
    AuthInfo, Cluster, Config, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use tower::ServiceBuilder;

/// Where Pods find their credentials.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Who the server is and who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A kubeconfig file, its current context.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Takes the place of the server in the file (`--master`).
        server: Option<String>,
    },
    /// A Pod's service account.
    InCluster {
        /// URL from `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
        server: String,
        /// Holds `token` and `ca.crt`, usually [`SERVICE_ACCOUNT`].
        folder: PathBuf,
    },
    /// This URL and no credentials (`--master` alone).
    Server(String),
}

/// The server cannot be asked, for reasons on this machine.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig file does not do.
    #[error("kubeconfig {}: {why}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why, without anything that the file says.
        why: String,
    },
    /// The server's address does not do.
    #[error("{url:?} is no URL of a server: write it as https://192.0.2.1:6443")]
    Server {
        /// What was given.
        url: String,
    },
    /// A token file cannot be read.
    #[error("token file {}: {why}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Credentials or certificates cannot be used.
    #[error("{0}")]
    Credentials(String),
}

/// A connection's silence until the kernel asks the other side, and between its questions. With
/// [`PROBES`] unanswered, 25 s in all, the connection is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// How long data may stay unacknowledged before the connection is dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);
const CONNECT: Duration = Duration::from_secs(10);
/// Enough for a large event, and no more than that for each connection.
const READ_BUFFER: usize = 64 * 1024;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Device, inode, size, seconds and nanoseconds of the last change; `None` where there is
    /// no such file.
    seen: Option<(u64, u64, u64, i64, i64)>,
}

impl Stamp {
    fn now(path: PathBuf) -> Stamp {
        let meta = std::fs::metadata(&path).ok();
        let seen = meta.map(|m| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
        Stamp { path, seen }
    }

    fn is_stale(&self) -> bool {
        Stamp::now(self.path.clone()) != *self
    }
}

/// A client and the files it was made from.
struct Made {
    client: Client,
    stamps: Vec<Stamp>,
}

/// Makes clients.
pub(crate) struct Connector {
    access: Access,
    made: Option<Made>,
    /// The client must be made anew even though no file changed.
    distrusted: bool,
}

/// What [`Connector::client`] had to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Nothing.
    Kept,
    /// Changed files were read.
    Renewed,
    /// Changed files could not be used, for this reason; the former client goes on.
    Failed(String),
}

impl Connector {
    pub(crate) fn new(access: Access) -> Connector {
        Connector {
            access,
            made: None,
            distrusted: false,
        }
    }

    /// The client for the credentials as they are on disk now.
    pub(crate) async fn client(&mut self) -> Result<(Client, Renewal), AccessError> {
        if let Some(made) = &self.made
            && !self.distrusted
            && !made.stamps.iter().any(Stamp::is_stale)
        {
            return Ok((made.client.clone(), Renewal::Kept));
        }
        let access = self.access.clone();
        // Reads files and may run a credential plugin.
        let fresh = tokio::task::spawn_blocking(move || make(&access)).await;
        let fresh =
            fresh.unwrap_or_else(|_| Err(AccessError::Credentials("reading broke off".into())));
        match (fresh, &self.made) {
            (Ok(fresh), before) => {
                let renewal = match before {
                    Some(_) => Renewal::Renewed,
                    None => Renewal::Kept,
                };
                let client = fresh.client.clone();
                self.made = Some(fresh);
                self.distrusted = false;
                Ok((client, renewal))
            }
            // A rotation that is half done: what worked so far may still work.
            (Err(error), Some(made)) => {
                Ok((made.client.clone(), Renewal::Failed(error.to_string())))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The server did not take the credentials: they are got anew before the next request.
    pub(crate) fn distrust(&mut self) {
        self.distrusted = true;
    }
}

fn make(access: &Access) -> Result<Made, AccessError> {
    let (kubeconfig, mut paths) = kubeconfig(access)?;
    collect_paths(&kubeconfig, &mut paths);
    // Stamps are taken before the files are read: a change in between shows the next time.
    let stamps = paths.into_iter().map(Stamp::now).collect();
    let path = match access {
        Access::Kubeconfig { path, .. } => path.clone(),
        Access::InCluster { folder, .. } => folder.clone(),
        Access::Server(_) => PathBuf::new(),
    };
    let mut config = Config::try_from(kubeconfig).map_err(|error| AccessError::Kubeconfig {
        path,
        why: safe_kubeconfig(&error),
    })?;
    if let Access::Kubeconfig {
        server: Some(url), ..
    } = access
    {
        config.cluster_url = server_url(url)?;
    }
    if let Some(file) = &config.auth_info.token_file {
        let token = read_token(Path::new(file))?;
        config.auth_info.token = Some(token.into());
    }
    let client = client(&config)?;
    Ok(Made { client, stamps })
}

fn kubeconfig(access: &Access) -> Result<(Kubeconfig, Vec<PathBuf>), AccessError> {
    match access {
        Access::Kubeconfig { path, .. } => {
            let kubeconfig = Kubeconfig::read_from(path);
            let kubeconfig = kubeconfig.map_err(|error| AccessError::Kubeconfig {
                path: path.clone(),
                why: safe_kubeconfig(&error),
            })?;
            Ok((kubeconfig, vec![path.clone()]))
        }
        Access::InCluster { server, folder } => {
            server_url(server)?;
            let cluster = Cluster {
                server: Some(server.clone()),
                certificate_authority: Some(folder.join("ca.crt").display().to_string()),
                ..Cluster::default()
            };
            let user = AuthInfo {
                token_file: Some(folder.join("token").display().to_string()),
                ..AuthInfo::default()
            };
            Ok((synthetic(cluster, user), Vec::new()))
        }
        Access::Server(url) => {
            server_url(url)?;
            let cluster = Cluster {
                server: Some(url.clone()),
                ..Cluster::default()
            };
            Ok((synthetic(cluster, AuthInfo::default()), Vec::new()))
        }
    }
}

fn synthetic(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = "default".to_owned();
    Kubeconfig {
        current_context: Some(name.clone()),
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Context {
                cluster: name.clone(),
                user: Some(name),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        ..Kubeconfig::default()
    }
}

fn server_url(url: &str) -> Result<Uri, AccessError> {
    let wrong = || AccessError::Server {
        url: url.to_owned(),
    };
    let full = match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    };
    let uri: Uri = full.parse().map_err(|_| wrong())?;
    let good = uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"));
    good.then_some(uri).ok_or_else(wrong)
}

/// Files whose change must be noticed.
fn collect_paths(kubeconfig: &Kubeconfig, paths: &mut Vec<PathBuf>) {
    for named in &kubeconfig.clusters {
        let cluster = named.cluster.as_ref();
        paths.extend(cluster.and_then(|c| c.certificate_authority.as_ref().map(PathBuf::from)));
    }
    for named in &kubeconfig.auth_infos {
        if let Some(user) = &named.auth_info {
            let files = [&user.token_file, &user.client_certificate, &user.client_key];
            paths.extend(files.into_iter().flatten().map(PathBuf::from));
        }
    }
}

fn read_token(path: &Path) -> Result<String, AccessError> {
    let wrong = |why: String| AccessError::Token {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.kind().to_string()))?;
    let token = text.trim();
    match token.is_empty() {
        true => Err(wrong("is empty".into())),
        false => Ok(token.to_owned()),
    }
}

fn client(config: &Config) -> Result<Client, AccessError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let Some(proxy) = &config.proxy_url else {
        return stack(config, tcp);
    };
    match proxy.scheme_str() {
        Some("socks5") => stack(config, SocksV5::new(proxy.clone(), tcp)),
        Some("http") => stack(
            config,
            with_proxy_user(Tunnel::new(proxy.clone(), tcp), proxy)?,
        ),
        Some("https") => {
            let tls = config.rustls_https_connector_with_connector(tcp);
            let tls = tls.map_err(|error| safe_client(&error))?;
            stack(
                config,
                with_proxy_user(Tunnel::new(proxy.clone(), tls), proxy)?,
            )
        }
        Some(_) | None => Err(AccessError::Credentials(
            "proxy-url must start with http://, https:// or socks5://".into(),
        )),
    }
}

/// The layers of a request: address, credentials, connection. `kube`'s own stack also retries and
/// logs, which the follower and the daemon do here.
fn stack<C>(config: &Config, connector: C) -> Result<Client, AccessError>
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let tls = config.rustls_https_connector_with_connector(connector);
    let tls = tls.map_err(|error| safe_client(&error))?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .http1_max_buf_size(READ_BUFFER)
        .build(tls);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|error| safe_client(&error))?)
        .layer(
            config
                .extra_headers_layer()
                .map_err(|error| safe_client(&error))?,
        )
        .map_err(Box::<dyn Error + Send + Sync>::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Adds the user and password of a proxy's URL.
fn with_proxy_user<C>(tunnel: Tunnel<C>, proxy: &Uri) -> Result<Tunnel<C>, AccessError> {
    let authority = proxy.authority().map_or("", http::uri::Authority::as_str);
    let Some((user, _)) = authority.rsplit_once('@') else {
        return Ok(tunnel);
    };
    let value = format!("Basic {}", base64(&unescape(user)));
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| AccessError::Credentials("proxy-url: user and password".into()))?;
    value.set_sensitive(true);
    Ok(tunnel.with_auth(value))
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => [*high, *low]
                .iter()
                .map(|digit| char::from(*digit).to_digit(16))
                .try_fold(0, |sum, digit| digit.map(|digit| sum * 16 + digit)),
            _ => None,
        };
        match escaped.and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for index in 0..3 {
            bits = bits << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        for index in 0..4 {
            let digit = (bits >> (18 - 6 * index)) & 63;
            let known = index <= group.len();
            out.push(if known {
                char::from(DIGITS[digit as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// What is wrong with a kubeconfig, without its text: that holds secrets.
fn safe_kubeconfig(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else {
        return error.to_string();
    };
    match error.location() {
        Some(at) => format!(
            "cannot be read at line {}, column {}",
            at.line(),
            at.column()
        ),
        None => "cannot be read as YAML".into(),
    }
}

/// What is wrong with the credentials, without what a plugin printed.
fn safe_client(error: &kube::Error) -> AccessError {
    let text = if let kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) = error {
        format!("credential plugin {cmd:?} ended with {}", out.status)
    } else if let kube::Error::Auth(AuthError::AuthExecParse(_)) = error {
        "the credential plugin's output is no ExecCredential".into()
    } else if let kube::Error::InferKubeconfig(error) = error {
        safe_kubeconfig(error)
    } else {
        describe(error)
    };
    AccessError::Credentials(text)
}

/// An error with its causes in one line. None of the errors of a request quotes a header.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    // The wrapper adds nothing but its name.
    if let Some(kube::Error::Service(inner)) = error.downcast_ref() {
        return describe(&**inner);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    tidy(&text)
}

/// One line of at most 300 characters, whatever a server sent.
pub(crate) fn tidy(text: &str) -> String {
    let shown = text.chars().take(300);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
