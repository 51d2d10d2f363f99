//! Netlink messages within a datagram (`linux/netlink.h`, `struct nlmsghdr`, `struct nlmsgerr`).

use rustix::io::Errno;

use crate::wire::{Attrs, Writer, align};

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;

pub(crate) const NLM_F_REQUEST: u16 = 0x01;
pub(crate) const NLM_F_ACK: u16 = 0x04;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_ROOT | NLM_F_MATCH`.
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;

/// `nlmsgerr` was cut to its header: `NETLINK_CAP_ACK`.
const NLM_F_CAPPED: u16 = 0x100;
/// Attributes follow the error: `NETLINK_EXT_ACK`.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) portid: u32,
    /// What follows the header.
    pub(crate) body: &'a [u8],
}

/// Walks the messages of a datagram; garbage ends the walk.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header: &[u8; HEADER] = self.0.first_chunk()?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = word(0) as usize;
        let Some(body) = self.0.get(HEADER..length) else {
            self.0 = &[];
            return None;
        };
        let message = Message {
            kind: half(4),
            flags: half(6),
            sequence: word(8),
            portid: word(12),
            body,
        };
        self.0 = self.0.get(align(length)..).unwrap_or(&[]);
        Some(message)
    }
}

/// What the kernel says to a request: zero is an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `None` for success.
    pub(crate) errno: Option<Errno>,
    /// The kernel's words.
    pub(crate) text: Option<String>,
    /// Offset of the offending attribute from the start of the request.
    pub(crate) offset: Option<u32>,
}

/// Error number of an answer: the kernel stores it negated.
fn negated(word: [u8; 4]) -> Option<Errno> {
    match i32::from_ne_bytes(word) {
        0 => None,
        // The kernel knows no other numbers (`MAX_ERRNO`), and rustix asserts that.
        code @ -4095..=-1 => Some(Errno::from_raw_os_error(-code)),
        _ => Some(Errno::IO),
    }
}

impl Message<'_> {
    /// Reads an `NLMSG_ERROR`.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let errno = negated(*self.body.first_chunk()?);
        let original: [u8; 4] = *self.body.get(4..)?.first_chunk()?;
        // Where the request was echoed, the attributes follow the echo.
        let echoed = if self.flags & NLM_F_CAPPED == 0 && errno.is_some() {
            u32::from_ne_bytes(original) as usize
        } else {
            HEADER
        };
        let mut answer = Answer {
            errno,
            text: None,
            offset: None,
        };
        if self.flags & NLM_F_ACK_TLVS != 0 {
            let attrs = Attrs(self.body.get(4 + align(echoed)..).unwrap_or(&[]));
            answer.text = attrs
                .find(NLMSGERR_ATTR_MSG)
                .and_then(|a| Some(a.text()?.to_owned()));
            answer.offset = attrs.find(NLMSGERR_ATTR_OFFS).and_then(|a| a.ne32());
        }
        Some(answer)
    }

    /// Error number at the end of a list, if it did not end well (`NLMSG_DONE`).
    pub(crate) fn done_error(&self) -> Option<Errno> {
        negated(*self.body.first_chunk()?)
    }
}

/// Starts a message at the end of `buffer` and returns its offset. The length is filled in by
/// [`end`].
pub(crate) fn begin(buffer: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(&flags.to_ne_bytes());
    buffer.extend_from_slice(&sequence.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]);
    start
}

/// Ends the message that starts at `start`.
pub(crate) fn end(buffer: &mut [u8], start: usize) {
    let length = (buffer.len() - start) as u32;
    buffer[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// A request without its sequence number, which the socket fills in.
#[derive(Debug)]
pub(crate) struct Request {
    /// The message.
    pub(crate) bytes: Vec<u8>,
    /// An attribute did not fit.
    pub(crate) too_long: bool,
}

impl Request {
    /// A message of fixed header and attributes.
    pub(crate) fn new(
        kind: u16,
        flags: u16,
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Request {
        let mut bytes = Vec::with_capacity(256);
        let start = begin(&mut bytes, kind, NLM_F_REQUEST | flags, 0);
        let mut writer = Writer::new(&mut bytes);
        writer.raw(header);
        fill(&mut writer);
        let too_long = writer.is_too_long();
        end(&mut bytes, start);
        Request { bytes, too_long }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_error_yields_number_text_and_offset() {
        let mut body = (-17i32).to_ne_bytes().to_vec();
        body.extend_from_slice(&[0x20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(&[8, 0, 2, 0, 0x2c, 0, 0, 0]);
        body.extend_from_slice(&[7, 0, 1, 0, b'n', b'o', 0, 0]);
        let message = Message {
            kind: NLMSG_ERROR,
            flags: NLM_F_CAPPED | NLM_F_ACK_TLVS,
            sequence: 7,
            portid: 0,
            body: &body,
        };
        assert_eq!(
            message.answer(),
            Some(Answer {
                errno: Some(Errno::EXIST),
                text: Some("no".to_owned()),
                offset: Some(0x2c),
            })
        );
    }

    #[test]
    fn an_error_number_that_no_kernel_has_is_an_error_nevertheless() {
        assert_eq!(negated(0i32.to_ne_bytes()), None);
        assert_eq!(negated((-2i32).to_ne_bytes()), Some(Errno::NOENT));
        for strange in [1, 4096, -4096, i32::MIN, i32::MAX] {
            assert_eq!(negated(strange.to_ne_bytes()), Some(Errno::IO));
        }
    }

    #[test]
    fn a_message_longer_than_the_datagram_ends_the_walk() {
        let mut datagram = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Messages(&datagram).count(), 1);
        datagram[0] = 21;
        assert_eq!(Messages(&datagram).count(), 0);
    }
}
