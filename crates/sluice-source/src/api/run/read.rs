//! Answers as they come in: frames of a watch, pages of a list.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::timeout_at;

use super::super::access::describe;
use super::super::decode::{self, Encoding};
use super::super::follow::{Call, Flow, Loss};
use super::super::frames::Frames;
use super::{Alive, BATCH, Run, Session, lock, said};

/// The longest page that is taken: 500 objects of half a megabyte each.
const LONGEST_PAGE: usize = 256 << 20;

impl Run {
    /// Reads the frames of a watch to its end, whatever that is.
    pub(super) async fn read_frames(
        &self,
        session: &mut Session,
        encoding: Encoding,
        body: Body,
    ) -> Alive {
        let mut frames = Frames::new(encoding);
        let mut body = body;
        loop {
            let deadline = self.instant(session.follower.deadline());
            let part = match timeout_at(deadline, body.frame()).await {
                Err(_) => {
                    let text = "the watch fell silent".into();
                    return self.lost(session, Loss::Silent, text).await;
                }
                Ok(None) if frames.is_empty() => return self.ended(session).await,
                Ok(None) => {
                    let text = "the watch ended within a frame".into();
                    return self.lost(session, Loss::Broken, text).await;
                }
                Ok(Some(Err(error))) => {
                    let text = describe(&error);
                    return self.lost(session, Loss::Broken, text).await;
                }
                Ok(Some(Ok(part))) => part,
            };
            if let Ok(data) = part.into_data() {
                frames.push(&data);
                session.follower.heard(self.now());
                if self.take_frames(session, encoding, &mut frames).await? == Flow::Stop {
                    return Ok(());
                }
            }
        }
    }

    /// Hands on every frame that is complete.
    async fn take_frames(
        &self,
        session: &mut Session,
        encoding: Encoding,
        frames: &mut Frames,
    ) -> Alive<Flow> {
        loop {
            let text = match frames.next() {
                Ok(None) => break,
                Err(error) => error.to_string(),
                Ok(Some(frame)) => match self.take_frame(session, encoding, &frame) {
                    Ok(Flow::Go) if session.facts.len() < BATCH => continue,
                    Ok(Flow::Go) => {
                        self.flush(session).await?;
                        continue;
                    }
                    Ok(Flow::Stop) => {
                        self.flush(session).await?;
                        let text = session.stopped.take().unwrap_or_default();
                        self.trouble(session, text).await?;
                        return Ok(Flow::Stop);
                    }
                    Err(text) => text,
                },
            };
            self.flush(session).await?;
            self.lost(session, Loss::Broken, text).await?;
            return Ok(Flow::Stop);
        }
        self.flush(session).await?;
        Ok(Flow::Go)
    }

    fn take_frame(
        &self,
        session: &mut Session,
        encoding: Encoding,
        frame: &Bytes,
    ) -> Result<Flow, String> {
        let event = decode::event(session.resource, encoding, frame, &mut lock(&self.names));
        let Some(event) = event.map_err(|error| error.to_string())? else {
            return Ok(Flow::Go);
        };
        let why = match &event {
            decode::Event::Error(status) => said(status),
            decode::Event::Change { .. } | decode::Event::Bookmark { .. } => {
                "events come out of order".to_owned()
            }
        };
        let flow = session
            .follower
            .event(self.now(), event, &mut session.facts);
        if flow == Flow::Stop {
            session.stopped = Some(why);
        }
        Ok(flow)
    }

    /// Reads a page of a list, or the answer to a probe.
    pub(super) async fn read_list(
        &self,
        session: &mut Session,
        encoding: Encoding,
        body: Body,
        call: &Call,
    ) -> Alive {
        let body = match self.whole(session, body, LONGEST_PAGE).await {
            Ok(body) => body,
            Err((loss, text)) => return self.lost(session, loss, text).await,
        };
        let mut facts = Vec::new();
        let page = {
            let mut names = lock(&self.names);
            decode::page(session.resource, encoding, &body, &mut names, &mut facts)
        };
        drop(body);
        let page = match page {
            Ok(page) => page,
            Err(error) => return self.lost(session, Loss::Broken, error.to_string()).await,
        };
        if *call == Call::Probe {
            facts.clear();
        }
        session.facts.append(&mut facts);
        session.follower.page(self.now(), page, &mut session.facts);
        self.flush(session).await
    }

    /// A body as a whole, at most `limit` bytes of it.
    pub(super) async fn whole(
        &self,
        session: &mut Session,
        mut body: Body,
        limit: usize,
    ) -> Result<Bytes, (Loss, String)> {
        let mut bytes = BytesMut::new();
        loop {
            let deadline = self.instant(session.follower.deadline());
            match timeout_at(deadline, body.frame()).await {
                Err(_) => return Err((Loss::Silent, "the answer stopped half-way".into())),
                Ok(None) => return Ok(bytes.freeze()),
                Ok(Some(Err(error))) => return Err((Loss::Broken, describe(&error))),
                Ok(Some(Ok(part))) => {
                    session.follower.heard(self.now());
                    if let Ok(data) = part.into_data() {
                        bytes.extend_from_slice(&data);
                    }
                }
            }
            if bytes.len() > limit {
                let text = format!("the answer is longer than {limit} bytes");
                return Err((Loss::Broken, text));
            }
        }
    }
}
