//! An API server that misbehaves on demand: lists, streamed lists, watches and pages over real
//! TCP, from a small store with versions. What it sends is written by independent encoders.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_source::api::Resource;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::objects::{
    Object, bookmark, event_json, event_protobuf, list_json, list_protobuf, status_json,
    status_protobuf,
};

/// Objects per page, whatever is asked for.
const PAGE: usize = 3;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    None,
    /// The connection is reset after so many bytes of the body.
    Cut(usize),
    /// Nonsense in the middle.
    Garbage,
    /// A frame claims to be very long.
    Oversized,
    /// A page for people.
    WrongType,
    /// An error status.
    Refuse(u16),
    /// A watch ends with an error event.
    ErrorEvent(u16),
    /// The answer starts and never goes on.
    Silent,
    /// There is no answer.
    Deaf,
    /// Every event comes twice.
    Double,
    /// Events change places.
    Swap,
    /// JSON, whatever was asked for.
    Json,
}

type Key = (Resource, String, String);

/// The store.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Key, Object>,
    pub(crate) version: u64,
    history: Vec<(u64, &'static str, Object)>,
    /// Watches from before this version have expired.
    compacted: u64,
    /// Troubles of the next requests.
    pub(crate) troubles: VecDeque<Trouble>,
    /// Later requests: from these at random, with this generator.
    pub(crate) random: Option<Dice>,
    /// Path and query of every request.
    pub(crate) requests: Vec<String>,
    /// The Authorization headers of every request.
    pub(crate) credentials: Vec<String>,
    pub(crate) no_streaming: bool,
    pub(crate) absent: Vec<Resource>,
    pub(crate) forbidden: Option<Resource>,
    /// Watches from a version are answered and then stay silent.
    pub(crate) mute: bool,
    /// Watches of an earlier life are cut.
    life: u64,
}

/// Pseudo-random numbers (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn trouble(&mut self) -> Trouble {
        match self.roll(30) {
            0 | 1 => Trouble::Cut(self.roll(2000)),
            2 => Trouble::Garbage,
            3 => Trouble::Oversized,
            4 => Trouble::WrongType,
            5 => Trouble::Refuse([429, 503, 500, 410, 403][self.roll(5)]),
            6 => Trouble::ErrorEvent([410, 500][self.roll(2)]),
            7 => Trouble::Silent,
            8 => Trouble::Deaf,
            9 | 10 => Trouble::Double,
            11 | 12 => Trouble::Swap,
            13 | 14 => Trouble::Json,
            _ => Trouble::None,
        }
    }
}

impl Store {
    fn key(object: &Object) -> Key {
        let resource = object.resource();
        let mut object = object.clone();
        let meta = object.meta();
        let namespace = meta.namespace.clone().unwrap_or_default();
        (resource, namespace, meta.name.clone().unwrap_or_default())
    }

    pub(crate) fn put(&mut self, object: Object) {
        self.version += 1;
        let object = object.at_version(self.version);
        let before = self.objects.insert(Store::key(&object), object.clone());
        let sort = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.history.push((self.version, sort, object));
    }

    pub(crate) fn delete(&mut self, object: &Object) {
        if let Some(object) = self.objects.remove(&Store::key(object)) {
            self.version += 1;
            let object = object.at_version(self.version);
            self.history.push((self.version, "DELETED", object));
        }
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// All connections are cut; the store stays as it is.
    pub(crate) fn restart(&mut self) {
        self.life += 1;
    }

    /// The store is empty again and counts from 1, as a new etcd does.
    pub(crate) fn wipe(&mut self) {
        self.objects.clear();
        self.history.clear();
        self.version = 1;
        self.compacted = 0;
        self.restart();
    }

    fn of(&self, resource: Resource) -> Vec<Object> {
        let objects = self.objects.iter();
        let of_kind = objects.filter(|((kind, _, _), _)| kind.kind() == resource.kind());
        of_kind.map(|(_, object)| object.clone()).collect()
    }
}

/// A running server.
#[derive(Clone)]
pub(crate) struct Server {
    store: Arc<Mutex<Store>>,
    changed: Arc<Notify>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Serves on a port of its own until the runtime ends.
    pub(crate) async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            store: Arc::default(),
            changed: Arc::default(),
            address: listener.local_addr().unwrap(),
        };
        server.with(|store| store.version = 100);
        tokio::spawn(server.clone().accept(listener));
        tokio::spawn(pace());
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Looks at or changes the store; watches hear of it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let result = change(&mut self.store.lock().unwrap());
        self.changed.notify_waiters();
        result
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            // Held-back segments would arrive after the paused clock has moved on.
            tcp.set_nodelay(true).unwrap();
            let server = self.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(|request| server.clone().answer(request));
                // Cut connections are what this server is for.
                hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(tcp), service)
                    .await
                    .ok();
            });
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Parts>, Infallible> {
        let uri = request.uri();
        let header = |name| {
            let value = request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let trouble = {
            let store = &mut *self.store.lock().unwrap();
            store.requests.push(uri.to_string());
            store.credentials.push(header("authorization"));
            let planned = store.troubles.pop_front();
            planned.unwrap_or_else(|| store.random.as_mut().map_or(Trouble::None, Dice::trouble))
        };
        let json = trouble == Trouble::Json || !header("accept").contains("protobuf");
        let query = Query::new(uri.query().unwrap_or_default());
        let mut writer = Writer {
            json,
            trouble,
            sent: 0,
            held: None,
            out: mpsc::unbounded_channel().0,
        };
        let resource = Resource::ALL
            .into_iter()
            .find(|known| known.path() == uri.path());
        let absent = self.with_quietly(|store| store.absent.clone());
        let Some(resource) = resource.filter(|resource| !absent.contains(resource)) else {
            return Ok(writer.status(404, "NotFound"));
        };
        if self.with_quietly(|store| store.forbidden) == Some(resource) {
            return Ok(writer.status(403, "Forbidden"));
        }
        match trouble {
            Trouble::Deaf => std::future::pending::<()>().await,
            Trouble::Refuse(code) => return Ok(writer.status(code, "Trouble")),
            Trouble::WrongType => {
                let body = Parts::whole(b"<html>Sign in</html>".to_vec());
                return Ok(response(200, "text/html", body));
            }
            _ => {}
        }
        if !query.is("watch", "true") {
            return Ok(self.list(resource, &query, &mut writer));
        }
        let streams = query.is("sendInitialEvents", "true");
        if streams && self.with_quietly(|store| store.no_streaming) {
            return Ok(writer.status(422, "Invalid"));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        writer.out = sender;
        let kind = writer.content_type(";stream=watch");
        tokio::spawn(self.watch(resource, query, writer));
        Ok(response(200, kind, Parts(receiver)))
    }

    fn list(&self, resource: Resource, query: &Query, writer: &mut Writer) -> Response<Parts> {
        let (objects, version) = self.with_quietly(|store| (store.of(resource), store.version));
        let start = query.get("continue");
        let start: usize = start.map_or(0, |start| start.parse().unwrap());
        let limit: usize = query
            .get("limit")
            .map_or(PAGE, |limit| limit.parse().unwrap());
        let end = (start + limit.min(PAGE)).min(objects.len());
        let rest = if end < objects.len() {
            end.to_string()
        } else {
            String::new()
        };
        // A list that changes between its pages keeps to its first version; this one cannot.
        let items = objects.get(start..end).unwrap_or_default();
        let body = match writer.json {
            true => list_json(resource, items, version, &rest)
                .to_string()
                .into_bytes(),
            false => list_protobuf(resource, items, version, &rest),
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        writer.out = sender;
        match writer.trouble {
            Trouble::Silent => {
                let out = writer.out.clone();
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(out);
                });
            }
            Trouble::Garbage | Trouble::Oversized => writer.bytes(vec![0x5a; 300]),
            _ => writer.bytes(body),
        }
        response(200, writer.content_type(""), Parts(receiver))
    }

    async fn watch(self, resource: Resource, query: Query, mut writer: Writer) {
        let life = self.with_quietly(|store| store.life);
        let mut cursor: u64 = query
            .get("resourceVersion")
            .map_or(0, |text| text.parse().unwrap());
        let seconds: u64 = query.get("timeoutSeconds").unwrap().parse().unwrap();
        let end = Instant::now() + Duration::from_secs(seconds);
        if query.is("sendInitialEvents", "true") {
            let (objects, version) = self.with_quietly(|store| (store.of(resource), store.version));
            for object in objects {
                writer.event("ADDED", &object);
            }
            writer.event("BOOKMARK", &bookmark(resource, version, true));
            cursor = version;
        }
        if self.with_quietly(|store| store.mute) && query.get("resourceVersion").is_some() {
            writer.trouble = Trouble::Silent;
        }
        match writer.trouble {
            Trouble::Silent => std::future::pending().await,
            Trouble::Garbage => writer.bytes(vec![0xee; 70]),
            Trouble::Oversized => writer.bytes(vec![0x7f, 0xff, 0xff, 0xff, 1]),
            Trouble::ErrorEvent(code) => return writer.error(code),
            _ => {}
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (events, expired, alive, version) = self.with_quietly(|store| {
                let news = store.history.iter().filter(|(version, _, object)| {
                    *version > cursor && object.resource().kind() == resource.kind()
                });
                let news: Vec<_> = news.cloned().collect();
                let expired = cursor < store.compacted;
                (news, expired, store.life == life, store.version)
            });
            if !alive {
                return writer.cut();
            }
            if expired {
                return writer.error(410);
            }
            for (version, sort, object) in events {
                writer.event(sort, &object);
                cursor = version;
            }
            writer.release();
            let minute = Instant::now() + Duration::from_secs(60);
            tokio::select! {
                () = changed => {}
                () = sleep_until(end) => return,
                () = sleep_until(minute) => {
                    cursor = cursor.max(version);
                    writer.event("BOOKMARK", &bookmark(resource, cursor, false));
                    writer.release();
                }
            }
            if writer.out.is_closed() {
                return;
            }
        }
    }

    fn with_quietly<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.store.lock().unwrap())
    }
}

/// Keeps the paused clock from running away from the network: it jumps from timer to timer
/// whenever all tasks wait, even while bytes are on their way. Client and server share this
/// thread, and loopback delivers at once, so that after a few looks at the sockets everything on
/// the way has arrived; only then may the clock move on, by a second at most.
async fn pace() {
    // A yield with nothing else to do is one look at the sockets, and each look carries what is
    // on the way one step further: connect, accept, request, answer.
    const LOOKS: usize = 100;
    loop {
        for _ in 0..LOOKS {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Query parameters.
struct Query(Vec<(String, String)>);

impl Query {
    fn new(text: &str) -> Query {
        let pairs = text
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Query(
            pairs
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|pair| pair.0 == key)
            .map(|pair| &*pair.1)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }
}

/// Writes one body, with its trouble.
struct Writer {
    json: bool,
    trouble: Trouble,
    sent: usize,
    /// An event that waits to change places.
    held: Option<Vec<u8>>,
    out: mpsc::UnboundedSender<io::Result<Bytes>>,
}

impl Writer {
    fn content_type(&self, parameter: &str) -> String {
        match self.json {
            true => "application/json".into(),
            false => format!("application/vnd.kubernetes.protobuf{parameter}"),
        }
    }

    fn status(&self, code: u16, reason: &str) -> Response<Parts> {
        let message = "as the test wants it";
        let body = match self.json {
            true => status_json(code, reason, message).to_string().into_bytes(),
            false => status_protobuf(code, reason, message),
        };
        response(code, self.content_type(""), Parts::whole(body))
    }

    fn event(&mut self, sort: &str, object: &Object) {
        let frame = match self.json {
            true => event_json(sort, &object.json()).to_string().into_bytes(),
            false => event_protobuf(sort, object.protobuf()),
        };
        match self.trouble {
            Trouble::Double => {
                self.frame(&frame);
                self.frame(&frame);
            }
            Trouble::Swap if sort != "BOOKMARK" && self.held.is_none() => self.held = Some(frame),
            Trouble::Swap if sort == "BOOKMARK" => {
                self.release();
                self.frame(&frame);
            }
            _ => {
                self.frame(&frame);
                self.release();
            }
        }
    }

    /// Sends an event that was held back.
    fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.frame(&held);
        }
    }

    fn error(&mut self, code: u16) {
        let (reason, message) = ("Trouble", "as the test wants it");
        let frame = match self.json {
            true => event_json("ERROR", &status_json(code, reason, message))
                .to_string()
                .into_bytes(),
            false => event_protobuf("ERROR", status_protobuf(code, reason, message)),
        };
        self.frame(&frame);
    }

    fn frame(&mut self, frame: &[u8]) {
        let mut bytes = Vec::new();
        if self.json {
            bytes.extend(frame);
            bytes.push(b'\n');
        } else {
            bytes.extend(u32::try_from(frame.len()).unwrap().to_be_bytes());
            bytes.extend(frame);
        }
        self.bytes(bytes);
    }

    fn bytes(&mut self, mut bytes: Vec<u8>) {
        let mut cut = false;
        if let Trouble::Cut(limit) = self.trouble
            && self.sent + bytes.len() > limit
        {
            bytes.truncate(limit.saturating_sub(self.sent));
            cut = true;
        }
        self.sent += bytes.len();
        // A reader that has gone is as good as a sent byte.
        self.out.send(Ok(bytes.into())).ok();
        if cut {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.out
            .send(Err(io::ErrorKind::ConnectionReset.into()))
            .ok();
        self.out = mpsc::unbounded_channel().0;
    }
}

/// A body that comes in parts.
struct Parts(mpsc::UnboundedReceiver<io::Result<Bytes>>);

impl Parts {
    fn whole(bytes: Vec<u8>) -> Parts {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(Ok(bytes.into())).unwrap();
        Parts(receiver)
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let part = self.0.poll_recv(context);
        part.map(|part| part.map(|part| part.map(Frame::data)))
    }
}

fn response(code: u16, kind: impl AsRef<str>, body: Parts) -> Response<Parts> {
    Response::builder()
        .status(code)
        .header("content-type", kind.as_ref())
        .body(body)
        .unwrap()
}
