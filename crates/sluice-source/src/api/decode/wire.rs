//! Protocol buffers, as far as the API uses them: varints and length-delimited fields, read in
//! place and never beyond the message that holds them.

use std::borrow::Cow;
use std::fmt;

/// What is wrong with bytes that should be a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end within a field.
    Truncated,
    /// A number has more than 64 bits.
    LongNumber,
    /// A field's wire type does not exist or is one that the API never uses.
    WireType(u8),
    /// A field has the number 0.
    FieldZero,
    /// A field has another wire type than its definition says.
    OtherType,
    /// Text is not UTF-8.
    NotUtf8,
    /// The envelope's magic bytes are missing.
    NoMagic,
    /// The object is of another kind than was asked for.
    OtherKind,
    /// A field without which the object means nothing is missing.
    Missing,
    /// The text is not JSON, or not of the object's shape.
    NotJson,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Truncated => f.write_str("ends too early"),
            Fault::LongNumber => f.write_str("a number has more than 64 bits"),
            Fault::WireType(wire) => write!(f, "wire type {wire} is never used here"),
            Fault::FieldZero => f.write_str("field number 0"),
            Fault::OtherType => f.write_str("has another type than defined"),
            Fault::NotUtf8 => f.write_str("is not UTF-8"),
            Fault::NoMagic => f.write_str("is no Kubernetes protobuf"),
            Fault::OtherKind => f.write_str("is of another kind than was asked for"),
            Fault::Missing => f.write_str("is missing"),
            Fault::NotJson => f.write_str("is not the JSON that was expected"),
        }
    }
}

/// A fault with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireError {
    /// Path of the field or message, as `spec.ports`.
    pub(crate) field: &'static str,
    /// Bytes from the start of the frame.
    pub(crate) offset: usize,
    pub(crate) fault: Fault,
}

pub(crate) type Wire<T> = Result<T, WireError>;

/// A message, to be read field by field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    rest: &'a [u8],
    /// Where `rest` starts in the frame.
    offset: usize,
    path: &'static str,
}

/// One field: its number, its value and where the value starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    value: Value<'a>,
    offset: usize,
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed 32 or 64 bits: no message that is read has such.
    Fixed,
}

impl<'a> Message<'a> {
    /// A whole frame.
    pub(crate) fn new(bytes: &'a [u8], path: &'static str) -> Message<'a> {
        Message {
            rest: bytes,
            offset: 0,
            path,
        }
    }

    /// The same, where the message starts at `offset` within the frame.
    pub(crate) fn at(bytes: &'a [u8], offset: usize, path: &'static str) -> Message<'a> {
        Message {
            rest: bytes,
            offset,
            path,
        }
    }

    /// Where the unread part starts in the frame.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    fn fail<T>(&self, fault: Fault) -> Wire<T> {
        Err(WireError {
            field: self.path,
            offset: self.offset,
            fault,
        })
    }

    /// The next field; `None` at the end.
    pub(crate) fn next(&mut self) -> Wire<Option<Field<'a>>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let Ok(number) = u32::try_from(tag >> 3) else {
            return self.fail(Fault::LongNumber);
        };
        if number == 0 {
            return self.fail(Fault::FieldZero);
        }
        let offset = self.offset;
        let (value, offset) = match (tag & 7) as u8 {
            0 => (Value::Number(self.varint()?), offset),
            1 => (self.take(8).map(|_| Value::Fixed)?, offset),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let offset = self.offset;
                (Value::Bytes(self.take(length)?), offset)
            }
            5 => (self.take(4).map(|_| Value::Fixed)?, offset),
            other => return self.fail(Fault::WireType(other)),
        };
        Ok(Some(Field {
            number,
            value,
            offset,
        }))
    }

    fn varint(&mut self) -> Wire<u64> {
        let mut number = 0u64;
        for (index, byte) in self.rest.iter().enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index > 9 || (index == 9 && bits > 1) {
                return self.fail(Fault::LongNumber);
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.take(index + 1)?;
                return Ok(number);
            }
        }
        self.fail(Fault::Truncated)
    }

    fn take(&mut self, count: usize) -> Wire<&'a [u8]> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset += count;
                Ok(taken)
            }
            None => self.fail(Fault::Truncated),
        }
    }
}

impl<'a> Field<'a> {
    fn fail<T>(&self, field: &'static str, fault: Fault) -> Wire<T> {
        Err(WireError {
            field,
            offset: self.offset,
            fault,
        })
    }

    /// Bytes. `path` names the field in errors, here and below.
    pub(crate) fn bytes(&self, path: &'static str) -> Wire<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) | Value::Fixed => self.fail(path, Fault::OtherType),
        }
    }

    /// Where the value starts in the frame.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Text.
    pub(crate) fn text(&self, path: &'static str) -> Wire<&'a str> {
        let bytes = self.bytes(path)?;
        std::str::from_utf8(bytes).or_else(|_| self.fail(path, Fault::NotUtf8))
    }

    /// Text in the form that drafts take.
    pub(crate) fn shared(&self, path: &'static str) -> Wire<Cow<'a, str>> {
        self.text(path).map(Cow::Borrowed)
    }

    /// A message within.
    pub(crate) fn message(&self, path: &'static str) -> Wire<Message<'a>> {
        let bytes = self.bytes(path)?;
        Ok(Message::at(bytes, self.offset, path))
    }

    /// An int32 or int64.
    pub(crate) fn number(&self, path: &'static str) -> Wire<i64> {
        match self.value {
            Value::Number(number) => Ok(number as i64),
            Value::Bytes(_) | Value::Fixed => self.fail(path, Fault::OtherType),
        }
    }

    /// A bool.
    pub(crate) fn flag(&self, path: &'static str) -> Wire<bool> {
        self.number(path).map(|number| number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order_with_their_places() {
        // 1: varint 300; 2: "ab"; 3: fixed32
        let bytes = [0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x1d, 1, 2, 3, 4];
        let mut message = Message::new(&bytes, "thing");
        let first = message.next().unwrap().unwrap();
        assert_eq!((first.number, first.number("n").unwrap()), (1, 300));
        let second = message.next().unwrap().unwrap();
        assert_eq!((second.text("t").unwrap(), second.offset()), ("ab", 5));
        let third = message.next().unwrap().unwrap();
        assert_eq!(third.number, 3);
        assert_eq!(third.text("t").unwrap_err().fault, Fault::OtherType);
        assert!(message.next().unwrap().is_none());
    }

    #[test]
    fn a_length_beyond_the_message_is_refused() {
        let bytes = [
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7,
        ];
        let error = Message::new(&bytes, "thing").next().unwrap_err();
        assert_eq!(
            error,
            WireError {
                field: "thing",
                offset: 11,
                fault: Fault::Truncated
            }
        );
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        let fault = |bytes: &[u8]| Message::new(bytes, "").next().unwrap_err().fault;
        assert_eq!(fault(&[0x00, 0]), Fault::FieldZero);
        assert_eq!(fault(&[0x0b]), Fault::WireType(3));
        assert_eq!(fault(&[0x08, 0x80]), Fault::Truncated);
        assert_eq!(fault(&[0x08; 1]), Fault::Truncated);
        let mut long = vec![0x08];
        long.extend([0xff; 9]);
        long.push(2);
        assert_eq!(fault(&long), Fault::LongNumber);
    }

    #[test]
    fn negative_numbers_come_as_ten_bytes() {
        let mut bytes = vec![0x08];
        bytes.extend([0xff; 9]);
        bytes.push(1);
        let field = Message::new(&bytes, "").next().unwrap().unwrap();
        assert_eq!(field.number("n"), Ok(-1));
    }
}
