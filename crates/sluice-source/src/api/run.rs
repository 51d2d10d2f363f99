//! The part that waits, asks and reads; what to do is the follower's to say.

mod read;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, Response};
use kube::client::Body;
use sluice_model::fact::Fact;
use sluice_model::name::Names;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::access::{AccessError, Connector, Renewal, describe, tidy};
use super::decode::{self, Encoding, Status};
use super::follow::{Body as BodySort, Call, Follower, Loss, Todo};
use super::pace::{Bucket, Moment};
use super::resource::Resource;
use super::{ApiOptions, Notice, Update};

/// Facts per batch.
const BATCH: usize = 256;
/// The longest error that is read.
const LONGEST_ERROR: usize = 64 << 10;
/// How often a resource that is not served is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// How often the same trouble is reported.
const REPEAT: Duration = Duration::from_secs(300);

/// The reader of the updates is gone.
struct Closed;

type Alive<T = ()> = Result<T, Closed>;

/// What the followers of all resources share.
pub(crate) struct Run {
    options: ApiOptions,
    connector: tokio::sync::Mutex<Connector>,
    names: Mutex<Names>,
    bucket: Mutex<Bucket>,
    start: Instant,
    updates: mpsc::Sender<Update>,
}

/// One resource's follower and what it has said.
struct Session {
    resource: Resource,
    follower: Follower,
    /// Facts that are not sent yet.
    facts: Vec<Fact>,
    /// Facts to follow the first complete list.
    after: Vec<Fact>,
    /// Objects of the list under way.
    objects: usize,
    /// The trouble last reported, until it is over.
    trouble: Option<(String, Moment)>,
    /// Why the follower stopped reading.
    stopped: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is shared stays sound whatever its holder did.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(crate) async fn new(
        options: ApiOptions,
        updates: mpsc::Sender<Update>,
    ) -> Result<Run, AccessError> {
        let mut connector = Connector::new(options.access.clone());
        connector.client().await?;
        Ok(Run {
            connector: tokio::sync::Mutex::new(connector),
            names: Mutex::default(),
            bucket: Mutex::new(Bucket::new(options.rate)),
            start: Instant::now(),
            updates,
            options,
        })
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// The instant of a moment; one too far off becomes a far one.
    fn instant(&self, at: Moment) -> Instant {
        let far = Duration::from_secs(86_400);
        self.start + at.min(self.now() + far)
    }

    /// Ends only when nobody takes the updates any more.
    pub(crate) async fn follow_all(self) {
        let followed = tokio::try_join!(self.services(), self.slices(), self.node(), self.cidrs());
        drop(followed);
    }

    async fn services(&self) -> Alive {
        loop {
            self.follow(Resource::Services, Vec::new()).await?;
            self.absent(Resource::Services).await?;
        }
    }

    async fn node(&self) -> Alive {
        loop {
            self.follow(Resource::Node, Vec::new()).await?;
            self.absent(Resource::Node).await?;
        }
    }

    /// EndpointSlices, or Endpoints as long as the server has no slices. Either list counts as
    /// complete only after the other has taken its place, so that no service is without its
    /// endpoints in between.
    async fn slices(&self) -> Alive {
        let mut after = Vec::new();
        loop {
            self.follow(Resource::Slices, after).await?;
            self.tell(Notice::Absent {
                resource: Resource::Slices,
            })
            .await?;
            let empty = empty_list(Resource::Slices);
            tokio::select! {
                gone = self.endpoints(empty) => gone?,
                served = self.served(Resource::Slices) => served?,
            }
            after = empty_list(Resource::Endpoints);
        }
    }

    async fn endpoints(&self, mut after: Vec<Fact>) -> Alive {
        loop {
            let list = std::mem::take(&mut after);
            self.follow(Resource::Endpoints, list).await?;
            self.absent(Resource::Endpoints).await?;
        }
    }

    /// ServiceCIDRs, which older servers have in beta or not at all.
    async fn cidrs(&self) -> Alive {
        loop {
            self.follow(Resource::Cidrs, Vec::new()).await?;
            self.follow(Resource::CidrsBeta, Vec::new()).await?;
            let none = empty_list(Resource::Cidrs);
            self.send(Update::Facts(none)).await?;
            self.absent(Resource::Cidrs).await?;
        }
    }

    async fn absent(&self, resource: Resource) -> Alive {
        self.tell(Notice::Absent { resource }).await?;
        sleep(LOOK_AGAIN).await;
        Ok(())
    }

    /// Ends once a resource that was absent is served.
    async fn served(&self, resource: Resource) -> Alive {
        loop {
            sleep(LOOK_AGAIN).await;
            let follower = Follower::new(resource, self.options.seed);
            let target = follower.target(&Call::Probe, &self.options.node);
            let deadline = Instant::now() + LOOK_AGAIN;
            if let Ok(Ok(response)) = timeout_at(deadline, self.ask(&target)).await
                && response.status().is_success()
            {
                return Ok(());
            }
        }
    }

    async fn send(&self, update: Update) -> Alive {
        self.updates.send(update).await.map_err(|_| Closed)
    }

    async fn tell(&self, notice: Notice) -> Alive {
        self.send(Update::Notice(notice)).await
    }

    /// Follows a resource until it turns out that the server does not have it.
    async fn follow(&self, resource: Resource, after: Vec<Fact>) -> Alive {
        let seed = self.options.seed ^ (resource as u64) << 32;
        let mut session = Session::new(resource, seed);
        session.after = after;
        loop {
            match session.follower.next(self.now()) {
                Todo::Wait(at) => sleep_until(self.instant(at)).await,
                Todo::Call(call) => self.call(&mut session, &call).await?,
                Todo::Absent => return Ok(()),
            }
        }
    }

    /// Makes a request and reads what comes back.
    async fn call(&self, session: &mut Session, call: &Call) -> Alive {
        if !matches!(call, Call::Pages { rest: Some(_) }) {
            let wait = lock(&self.bucket).take(self.now());
            sleep(wait).await;
        }
        session.follower.begun(self.now());
        let target = session.follower.target(call, &self.options.node);
        let deadline = self.instant(session.follower.deadline());
        let response = match timeout_at(deadline, self.ask(&target)).await {
            Ok(Ok(response)) => response,
            Ok(Err(text)) => return self.lost(session, Loss::Connect, text).await,
            Err(_) => {
                let text = "the server does not answer".into();
                return self.lost(session, Loss::Connect, text).await;
            }
        };
        if !response.status().is_success() {
            return self.refused(session, response).await;
        }
        let sort = header(response.headers(), CONTENT_TYPE);
        let Some(encoding) = Encoding::of_content_type(&sort) else {
            let text = format!(
                "the answer is of type {:?}, is this an API server?",
                tidy(&sort)
            );
            return self.lost(session, Loss::Broken, text).await;
        };
        session.follower.accepted(self.now(), &mut session.facts);
        self.flush(session).await?;
        let body = response.into_body();
        match call.body() {
            BodySort::Frames => self.read_frames(session, encoding, body).await,
            BodySort::List => self.read_list(session, encoding, body, call).await,
        }
    }

    /// Sends a request. An error is for people, in one line.
    async fn ask(&self, target: &str) -> Result<Response<Body>, String> {
        let (client, renewal) = {
            let mut connector = self.connector.lock().await;
            connector
                .client()
                .await
                .map_err(|error| error.to_string())?
        };
        let notice = match renewal {
            Renewal::Kept => None,
            Renewal::Renewed => Some(Notice::Renewed),
            Renewal::Failed(text) => Some(Notice::NotRenewed { text }),
        };
        if let Some(notice) = notice {
            // A reader that is gone shows at the next fact.
            self.tell(notice).await.ok();
        }
        let accept = match self.options.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
            Encoding::Json => "application/json",
        };
        let request = Request::get(target)
            .header(ACCEPT, accept)
            .header(USER_AGENT, &self.options.user_agent)
            .body(Body::empty())
            .map_err(|error| describe(&error))?;
        match client.send(request).await {
            Ok(response) => Ok(response),
            Err(error) => {
                let text = describe(&error);
                if text.contains("fatal alert") {
                    self.connector.lock().await.distrust();
                }
                Err(text)
            }
        }
    }

    /// The server answered with an error.
    async fn refused(&self, session: &mut Session, response: Response<Body>) -> Alive {
        let (parts, body) = response.into_parts();
        let code = parts.status.as_u16();
        if code == 401 {
            self.connector.lock().await.distrust();
        }
        let body = self
            .whole(session, body, LONGEST_ERROR)
            .await
            .unwrap_or_default();
        let sort = header(&parts.headers, CONTENT_TYPE);
        let status = Encoding::of_content_type(&sort);
        let status = status.and_then(|encoding| decode::status(encoding, &body));
        let mut status = status.unwrap_or_default();
        // What the server says with the answer counts; what it says in it may come from elsewhere.
        status.code = code;
        let header = header(&parts.headers, RETRY_AFTER).parse().ok();
        status.retry_after = status.retry_after.or(header);
        session.follower.refused(self.now(), &status);
        match session.follower.due() <= self.now() {
            // Asked differently at once: nothing to complain about.
            true => Ok(()),
            false => self.trouble(session, said(&status)).await,
        }
    }

    async fn ended(&self, session: &mut Session) -> Alive {
        session.follower.ended(self.now());
        match session.follower.due() <= self.now() {
            true => Ok(()),
            false => {
                let text = "the server ended the watch early".into();
                self.trouble(session, text).await
            }
        }
    }

    async fn lost(&self, session: &mut Session, loss: Loss, text: String) -> Alive {
        session.follower.lost(self.now(), loss);
        self.trouble(session, text).await
    }

    /// Reports why facts are not current, unless that was said a moment ago.
    async fn trouble(&self, session: &mut Session, text: String) -> Alive {
        let now = self.now();
        let due = session.follower.due();
        if due == Moment::MAX {
            return Ok(());
        }
        let text = tidy(&text);
        if let Some((said, at)) = &session.trouble
            && *said == text
            && now < *at + REPEAT
        {
            return Ok(());
        }
        session.trouble = Some((text.clone(), now));
        self.tell(Notice::Trouble {
            resource: session.resource,
            text,
            again: due.saturating_sub(now),
        })
        .await
    }

    /// Sends what has been read, and says so where a list is complete or a watch runs again.
    async fn flush(&self, session: &mut Session) -> Alive {
        let resource = session.resource;
        let mut complete = None;
        if !session.facts.is_empty() {
            let mut facts = std::mem::take(&mut session.facts);
            for fact in &facts {
                match fact {
                    Fact::Begin(_) => session.objects = 0,
                    Fact::Synced(_) => complete = Some(session.objects),
                    Fact::Service(..)
                    | Fact::Slice(..)
                    | Fact::Endpoints(..)
                    | Fact::Node(..)
                    | Fact::Cidrs(..)
                    | Fact::LocalAddresses(_) => session.objects += 1,
                }
            }
            if complete.is_some() {
                facts.append(&mut session.after);
            }
            let mut facts = facts.into_iter();
            while facts.len() > 0 {
                let batch = facts.by_ref().take(BATCH).collect();
                self.send(Update::Facts(batch)).await?;
            }
        }
        if let Some(objects) = complete {
            self.tell(Notice::Synced { resource, objects }).await?;
        }
        if session.follower.is_watching() && session.trouble.take().is_some() {
            self.tell(Notice::Recovered { resource }).await?;
        }
        Ok(())
    }
}

impl Session {
    fn new(resource: Resource, seed: u64) -> Session {
        Session {
            resource,
            follower: Follower::new(resource, seed),
            facts: Vec::new(),
            after: Vec::new(),
            objects: 0,
            trouble: None,
            stopped: None,
        }
    }
}

/// A complete list without anything in it.
fn empty_list(resource: Resource) -> Vec<Fact> {
    let kind = resource.facts();
    vec![Fact::Begin(kind), Fact::Synced(kind)]
}

/// What a Status says, for people.
fn said(status: &Status) -> String {
    match (status.code, &*status.message) {
        (code, "") => format!("the server answers {code}"),
        (code, message) => format!("the server answers {code}: {message}"),
    }
}

fn header(headers: &HeaderMap, name: http::header::HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
