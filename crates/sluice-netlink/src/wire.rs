//! Netlink attributes: four bytes of header (length, type), a value, padding to four bytes.
//!
//! `linux/netlink.h`, `struct nlattr`. The length is 16 bits wide, so a nest ends at 64 KiB.

/// Bytes of an attribute's header.
pub(crate) const ATTR_HEADER: usize = 4;
/// The longest attribute, header included.
pub(crate) const ATTR_MAX: usize = u16::MAX as usize;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `~NLA_TYPE_MASK`: nested and network-byte-order marks.
const MARKS: u16 = 0b11 << 14;

/// Rounds up to netlink's alignment.
pub(crate) const fn align(length: usize) -> usize {
    (length + 3) & !3
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr<'a> {
    /// Type without its marks.
    pub(crate) kind: u16,
    /// Value without padding.
    pub(crate) value: &'a [u8],
}

impl<'a> Attr<'a> {
    pub(crate) fn u8(&self) -> Option<u8> {
        self.value.first().copied()
    }

    /// A 32-bit number in network order, as nf_tables has them.
    pub(crate) fn be32(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.value.try_into().ok()?))
    }

    pub(crate) fn be64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.value.try_into().ok()?))
    }

    /// A 32-bit number in host order, as rtnetlink has them.
    pub(crate) fn ne32(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.value.try_into().ok()?))
    }

    /// Text up to the first NUL.
    pub(crate) fn text(&self) -> Option<&'a str> {
        let end = self.value.iter().position(|byte| *byte == 0);
        std::str::from_utf8(&self.value[..end.unwrap_or(self.value.len())]).ok()
    }

    pub(crate) fn nested(&self) -> Attrs<'a> {
        Attrs(self.value)
    }
}

/// Walks attributes. Garbage ends the walk: what a decoder needs and does not find, it reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attrs<'a>(pub(crate) &'a [u8]);

impl<'a> Attrs<'a> {
    /// The first attribute of a type.
    pub(crate) fn find(mut self, kind: u16) -> Option<Attr<'a>> {
        self.by_ref().find(|attr| attr.kind == kind)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let length = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?);
        let Some(value) = self.0.get(ATTR_HEADER..length) else {
            self.0 = &[];
            return None;
        };
        self.0 = self.0.get(align(length)..).unwrap_or(&[]);
        Some(Attr {
            kind: kind & !MARKS,
            value,
        })
    }
}

/// Appends attributes to a buffer. An attribute that does not fit 16 bits of length sets a mark
/// instead of a wrong length; whoever sends the buffer looks at [`Writer::is_too_long`].
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    too_long: bool,
}

/// Where an open nest starts.
#[must_use = "an open nest has no length yet"]
pub(crate) struct Nest(usize);

impl Nest {
    /// Offset of the nest's header in the buffer.
    pub(crate) fn start(&self) -> usize {
        self.0
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn new(buffer: &'a mut Vec<u8>) -> Self {
        Writer {
            buffer,
            too_long: false,
        }
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Bytes without a header, padded.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.pad();
    }

    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let nest = self.open_as(kind);
        self.buffer.extend_from_slice(value);
        self.close(nest);
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    pub(crate) fn be32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn be64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn ne32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Text with its NUL.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let nest = self.open_as(kind);
        self.buffer.extend_from_slice(value.as_bytes());
        self.buffer.push(0);
        self.close(nest);
    }

    pub(crate) fn open(&mut self, kind: u16) -> Nest {
        self.open_as(kind | NESTED)
    }

    fn open_as(&mut self, kind: u16) -> Nest {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0, 0]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        Nest(start)
    }

    pub(crate) fn close(&mut self, nest: Nest) {
        let start = nest.0;
        match u16::try_from(self.buffer.len() - start) {
            Ok(length) => self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
        self.pad();
    }

    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let nest = self.open(kind);
        fill(self);
        self.close(nest);
    }

    fn pad(&mut self) {
        self.buffer.resize(align(self.buffer.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nests_count_the_padding() {
        let mut buffer = Vec::new();
        let mut writer = Writer::new(&mut buffer);
        writer.nest(1, |writer| {
            writer.text(2, "ab");
            writer.be32(3, 0x0102_0304);
        });
        assert_eq!(
            buffer,
            [
                20, 0, 1, 0x80, // nest
                7, 0, 2, 0, b'a', b'b', 0, 0, // text
                8, 0, 3, 0, 1, 2, 3, 4,
            ]
        );
        let nest = Attrs(&buffer).find(1).unwrap();
        assert_eq!(nest.nested().find(2).unwrap().text(), Some("ab"));
        assert_eq!(nest.nested().find(3).unwrap().be32(), Some(0x0102_0304));
        assert_eq!(nest.nested().find(4), None);
    }

    #[test]
    fn an_attribute_over_64_kib_is_noticed() {
        let mut buffer = Vec::new();
        let mut writer = Writer::new(&mut buffer);
        writer.bytes(1, &vec![0; ATTR_MAX - ATTR_HEADER]);
        assert!(!writer.is_too_long());
        writer.bytes(1, &vec![0; ATTR_MAX - ATTR_HEADER + 1]);
        assert!(writer.is_too_long());
    }

    #[test]
    fn a_length_beyond_the_buffer_or_below_the_header_ends_the_walk() {
        assert_eq!(Attrs(&[9, 0, 1, 0, 5, 5, 5, 5]).count(), 0);
        assert_eq!(Attrs(&[3, 0, 1, 0, 4, 0, 1, 0]).count(), 0);
        assert_eq!(Attrs(&[4, 0, 1, 0, 4, 0]).count(), 1);
    }
}
