//! /healthz and /livez.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::clock::Clock;
use crate::engine::{Health, Moment};
use crate::logging::rfc3339;

/// What the answers are made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vitals {
    pub(super) health: Health,
    /// The Node is known and not about to be removed.
    pub(super) node_eligible: bool,
}

/// A request must be complete, and its answer taken, within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// More requests at once than any prober sends; the rest waits in the listen queue.
const CONNECTIONS: usize = 64;
const BIND_RETRY: Duration = Duration::from_secs(5);

/// Serves for ever; a failed bind is logged and tried again every 5 s, as kube-proxy does.
pub(super) async fn serve(address: SocketAddr, clock: Clock, vitals: watch::Receiver<Vitals>) {
    let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let listener = match listen(address) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(
                    "Health server cannot listen on {address}: {error}; retrying in 5 s"
                );
                tokio::time::sleep(BIND_RETRY).await;
                continue;
            }
        };
        tracing::info!("Health server listens on {address}");
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let vitals = vitals.clone();
                    tokio::task::spawn_local(async move {
                        connection(stream, clock, vitals).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::error!("Health server on {address}: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// A wildcard means both families, as Go's listeners do: probes of IPv6 nodes count on it.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let any_v4 = address.is_ipv4() && address.ip().is_unspecified();
    if any_v4 {
        let both = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, address.port()));
        if let Ok(listener) = bind(both) {
            return Ok(listener);
        }
    }
    bind(address)
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

async fn connection(stream: TcpStream, clock: Clock, vitals: watch::Receiver<Vitals>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.uri().path(), clock, &vitals.borrow());
        async move { Ok::<_, Infallible>(answer) }
    });
    let http = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A prober that breaks off is its own problem.
    drop(tokio::time::timeout(PATIENCE, http).await);
}

fn answer(path: &str, clock: Clock, vitals: &Vitals) -> Response<Full<Bytes>> {
    let (moment, wall) = clock.now();
    let healthy = vitals.health.is_healthy(moment);
    let (ok, eligible) = match path {
        "/healthz" => (healthy && vitals.node_eligible, Some(vitals.node_eligible)),
        "/livez" => (healthy, None),
        _ => return respond(StatusCode::NOT_FOUND, "404 page not found\n".into()),
    };
    let at = |moment: Moment| rfc3339(clock.wall(moment));
    let now = rfc3339(wall);
    let last = match (ok, vitals.health.last_updated()) {
        (false, Some(updated)) => at(updated),
        (true, _) | (false, None) => now.clone(),
    };
    let mut body = serde_json::Map::new();
    body.insert("lastUpdated".into(), last.into());
    body.insert("currentTime".into(), now.into());
    if let Some(eligible) = eligible {
        body.insert("nodeEligible".into(), eligible.into());
    }
    body.insert("healthy".into(), healthy.into());
    let families: serde_json::Map<_, _> = vitals
        .health
        .families(moment)
        .into_iter()
        .map(|part| {
            let state =
                serde_json::json!({"lastUpdated": at(part.updated), "healthy": part.healthy});
            (part.family.to_string(), state)
        })
        .collect();
    if !families.is_empty() {
        body.insert("status".into(), families.into());
    }
    let status = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    respond(status, serde_json::Value::from(body).to_string())
}

fn respond(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    response
}
