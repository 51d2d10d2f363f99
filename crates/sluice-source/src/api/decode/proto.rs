//! Envelopes, lists and watch events in protobuf.
//!
//! Field numbers are those of the API's published `generated.proto` files (meta/v1, runtime).

use sluice_model::fact::Fact;
use sluice_model::name::Names;

use super::messages::{self, metadata};
use super::wire::{Fault, Field, Message, Wire, WireError};
use super::{Change, DecodeError, Event, ListState, Page, Resource, Status, Version, gone};
use crate::object::draft::Meta;

/// What every body starts with; the rest is one `runtime.Unknown`.
const MAGIC: &[u8] = b"k8s\0";

/// An object in its envelope.
struct Envelope<'a> {
    kind: &'a str,
    body: Message<'a>,
}

fn envelope<'a>(bytes: &'a [u8], offset: usize) -> Wire<Envelope<'a>> {
    let fail = |field, fault| {
        Err(WireError {
            field,
            offset,
            fault,
        })
    };
    let Some(unknown) = bytes.strip_prefix(MAGIC) else {
        return fail("envelope", Fault::NoMagic);
    };
    let mut message = Message::at(unknown, offset + MAGIC.len(), "envelope");
    let mut kind = "";
    let mut body = None;
    while let Some(field) = message.next()? {
        match field.number {
            1 => kind = type_kind(field.message("typeMeta")?)?,
            2 => body = Some(field.message("object")?),
            // contentEncoding: nothing is asked for compressed.
            3 if !field.bytes("contentEncoding")?.is_empty() => {
                return fail("contentEncoding", Fault::OtherKind);
            }
            _ => {}
        }
    }
    // An object whose fields are all unset has no bytes at all.
    let body = body.unwrap_or(Message::at(&[], offset, "object"));
    Ok(Envelope { kind, body })
}

fn type_kind<'a>(mut message: Message<'a>) -> Wire<&'a str> {
    let mut kind = "";
    while let Some(field) = message.next()? {
        if field.number == 2 {
            kind = field.text("typeMeta.kind")?;
        }
    }
    Ok(kind)
}

pub(super) fn page(
    resource: Resource,
    body: &[u8],
    names: &mut Names,
    facts: &mut Vec<Fact>,
) -> Result<Page, DecodeError> {
    let of_list = |error| DecodeError::of(resource, &Meta::default(), error);
    let Envelope { kind, body } = envelope(body, 0).map_err(of_list)?;
    if kind.strip_suffix("List") != Some(resource.kind()) {
        return Err(of_list(WireError {
            field: "typeMeta.kind",
            offset: 0,
            fault: Fault::OtherKind,
        }));
    }
    let mut page = Page {
        version: Version::Text(String::new()),
        rest: None,
    };
    let mut message = body;
    while let Some(field) = message.next().map_err(of_list)? {
        match field.number {
            1 => page = list_meta(field).map_err(of_list)?,
            2 => {
                let item = field.message("items").map_err(of_list)?;
                facts.push(object(resource, item, Change::Set, names)?.0);
            }
            _ => {}
        }
    }
    Ok(page)
}

fn list_meta(field: Field<'_>) -> Wire<Page> {
    let mut message = field.message("metadata")?;
    let mut page = Page {
        version: Version::Text(String::new()),
        rest: None,
    };
    while let Some(field) = message.next()? {
        match field.number {
            2 => page.version = Version::new(field.text("metadata.resourceVersion")?),
            3 => {
                let text = field.text("metadata.continue")?;
                page.rest = (!text.is_empty()).then(|| text.to_owned());
            }
            _ => {}
        }
    }
    Ok(page)
}

/// An object's fact and version. Deleted objects are read no further than their metadata.
fn object(
    resource: Resource,
    message: Message<'_>,
    change: Change,
    names: &mut Names,
) -> Result<(Fact, Version), DecodeError> {
    let mut meta = Meta::default();
    let read = metadata(message, &mut meta).and_then(|()| {
        if meta.name.is_empty() {
            return Err(WireError {
                field: "metadata.name",
                offset: message.offset(),
                fault: Fault::Missing,
            });
        }
        match change {
            Change::Gone => Ok(gone(resource, &meta, names)),
            Change::Set => messages::fact(resource, message, &meta, names),
        }
    });
    match read {
        Ok(fact) => Ok((fact, Version::new(&meta.version))),
        Err(error) => Err(DecodeError::of(resource, &meta, error)),
    }
}

pub(super) fn event(
    resource: Resource,
    frame: &[u8],
    names: &mut Names,
) -> Result<Option<Event>, DecodeError> {
    let of_frame = |error| DecodeError::of(resource, &Meta::default(), error);
    let (sort, envelope) = watch_event(frame).map_err(of_frame)?;
    let change = match sort {
        "ADDED" | "MODIFIED" => Change::Set,
        "DELETED" => Change::Gone,
        "BOOKMARK" => {
            let mut meta = Meta::default();
            metadata(envelope.body, &mut meta).map_err(of_frame)?;
            return Ok(Some(bookmark(&meta)));
        }
        "ERROR" => {
            let status = read_status(envelope.body).map_err(of_frame)?;
            return Ok(Some(Event::Error(status)));
        }
        _ => return Ok(None),
    };
    if envelope.kind != resource.kind() {
        return Err(of_frame(WireError {
            field: "typeMeta.kind",
            offset: envelope.body.offset(),
            fault: Fault::OtherKind,
        }));
    }
    let (fact, version) = object(resource, envelope.body, change, names)?;
    Ok(Some(Event::Change { fact, version }))
}

pub(super) fn bookmark(meta: &Meta<'_>) -> Event {
    Event::Bookmark {
        version: Version::new(&meta.version),
        list: match meta.initial_end {
            true => ListState::Complete,
            false => ListState::Unsaid,
        },
    }
}

/// A WatchEvent's type and its object. The event itself comes bare, its object in an envelope.
fn watch_event<'a>(frame: &'a [u8]) -> Wire<(&'a str, Envelope<'a>)> {
    let mut message = if frame.starts_with(MAGIC) {
        envelope(frame, 0)?.body
    } else {
        Message::new(frame, "event")
    };
    let (mut sort, mut object) = ("", None);
    while let Some(field) = message.next()? {
        match field.number {
            1 => sort = field.text("event.type")?,
            2 => object = Some(raw(field)?),
            _ => {}
        }
    }
    match object {
        Some(object) => Ok((sort, object)),
        None => Err(WireError {
            field: "event.object",
            offset: 0,
            fault: Fault::Missing,
        }),
    }
}

/// The envelope in a RawExtension.
fn raw<'a>(field: Field<'a>) -> Wire<Envelope<'a>> {
    let mut message = field.message("event.object")?;
    let (mut bytes, mut offset): (&[u8], usize) = (&[], field.offset());
    while let Some(field) = message.next()? {
        if field.number == 1 {
            bytes = field.bytes("event.object.raw")?;
            offset = field.offset();
        }
    }
    envelope(bytes, offset)
}

pub(super) fn status(body: &[u8]) -> Option<Status> {
    let envelope = envelope(body, 0).ok()?;
    if envelope.kind != "Status" {
        return None;
    }
    read_status(envelope.body).ok()
}

fn read_status(mut message: Message<'_>) -> Wire<Status> {
    let mut status = Status::default();
    while let Some(field) = message.next()? {
        match field.number {
            3 => status.message = field.text("message")?.to_owned(),
            4 => status.reason = field.text("reason")?.to_owned(),
            5 => details(field.message("details")?, &mut status)?,
            6 => status.code = u16::try_from(field.number("code")?).unwrap_or(0),
            _ => {}
        }
    }
    Ok(status)
}

fn details(mut message: Message<'_>, status: &mut Status) -> Wire<()> {
    while let Some(field) = message.next()? {
        match field.number {
            4 => {
                let mut cause = field.message("details.causes")?;
                while let Some(field) = cause.next()? {
                    if field.number == 1 {
                        let reason = field.text("details.causes.reason")?;
                        status.causes.push(reason.to_owned());
                    }
                }
            }
            5 => {
                let seconds = u32::try_from(field.number("details.retryAfterSeconds")?);
                status.retry_after = seconds.ok().filter(|seconds| *seconds > 0);
            }
            _ => {}
        }
    }
    Ok(())
}
