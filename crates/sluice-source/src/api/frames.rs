//! A watch's bytes to frames.

use bytes::{Buf, Bytes, BytesMut};

use super::decode::Encoding;

/// The longest frame that is taken. The server's own limit on a stored object is 1.5 MiB.
pub(crate) const LONGEST_FRAME: usize = 16 << 20;

/// A frame is longer than [`LONGEST_FRAME`], or claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of the watch is longer than {LONGEST_FRAME} bytes")]
pub(crate) struct TooLong;

/// Bytes that came and were not yet handed out as frames.
#[derive(Debug)]
pub(crate) struct Frames {
    encoding: Encoding,
    buffer: BytesMut,
    /// How far a line end was looked for in vain.
    scanned: usize,
}

impl Frames {
    pub(crate) fn new(encoding: Encoding) -> Frames {
        Frames {
            encoding,
            buffer: BytesMut::new(),
            scanned: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether nothing is left of a frame that has only begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.iter().all(u8::is_ascii_whitespace)
    }

    /// The next complete frame. Only bytes that came take up memory, whatever length is claimed.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        match self.encoding {
            Encoding::Protobuf => self.next_counted(),
            Encoding::Json => self.next_line(),
        }
    }

    /// Four bytes of length, most significant first, and as many bytes.
    fn next_counted(&mut self) -> Result<Option<Bytes>, TooLong> {
        let Some(&length) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST_FRAME {
            return Err(TooLong);
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// One JSON object a line.
    fn next_line(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(end) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.buffer.len();
                return match self.scanned > LONGEST_FRAME {
                    true => Err(TooLong),
                    false => Ok(None),
                };
            };
            let line = self.buffer.split_to(self.scanned + end + 1).freeze();
            self.scanned = 0;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(encoding: Encoding, bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut frames = Frames::new(encoding);
        let mut out = Vec::new();
        for part in bytes.chunks(step) {
            frames.push(part);
            while let Some(frame) = frames.next().unwrap() {
                out.push(frame.to_vec());
            }
        }
        assert!(frames.is_empty());
        out
    }

    #[test]
    fn frames_do_not_depend_on_how_the_bytes_arrive() {
        let counted = b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c";
        let lines = b"{\"a\":1}\n\n{\"b\":2}\n";
        for step in 1..=counted.len() {
            let frames = all(Encoding::Protobuf, counted, step);
            assert_eq!(frames, [b"ab".to_vec(), Vec::new(), b"c".to_vec()]);
            let frames = all(Encoding::Json, lines, step);
            assert_eq!(frames, [b"{\"a\":1}\n".to_vec(), b"{\"b\":2}\n".to_vec()]);
        }
    }

    #[test]
    fn a_claimed_length_beyond_the_limit_ends_the_watch() {
        let mut frames = Frames::new(Encoding::Protobuf);
        frames.push(&[0xff, 0xff, 0xff, 0xff]);
        assert_eq!(frames.next(), Err(TooLong));
    }

    #[test]
    fn a_frame_that_is_cut_short_shows() {
        let mut frames = Frames::new(Encoding::Protobuf);
        frames.push(b"\0\0\0\x05ab");
        assert_eq!(frames.next(), Ok(None));
        assert!(!frames.is_empty());
    }
}
