//! What nft keeps for itself beside an object: comments and the declarations of sets.
//!
//! Type, length (one byte each), value; nested values repeat that. The kernel stores up to 256
//! bytes unread. The numbers are libnftnl's (`include/libnftnl/udata.h`) and nft's; numbers in
//! values are of host order.

/// `NFTNL_UDATA_TABLE_COMMENT`, and of chains, rules and elements.
pub(super) const COMMENT: u8 = 0;
/// `NFTNL_UDATA_SET_COMMENT`.
const SET_COMMENT: u8 = 7;
/// `NFTNL_UDATA_COMMENT_MAXLEN`, NUL included.
const COMMENT_MAX: usize = 128;

/// Appends a value.
fn put(buffer: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u8::MAX))];
    buffer.push(kind);
    buffer.push(value.len() as u8);
    buffer.extend_from_slice(value);
}

/// A comment alone; cut at a character to what nft reads.
pub(super) fn with_comment(kind: u8, comment: &str) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(comment.len() + 3);
    put_comment(&mut buffer, kind, comment);
    buffer
}

fn put_comment(buffer: &mut Vec<u8>, kind: u8, comment: &str) {
    let length = comment.floor_char_boundary(COMMENT_MAX - 1);
    let mut text = comment.as_bytes()[..length].to_vec();
    text.push(0);
    put(buffer, kind, &text);
}

/// Finds a comment.
pub(super) fn comment(mut userdata: &[u8], wanted: u8) -> Option<&str> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            let text = value.split(|byte| *byte == 0).next()?;
            return std::str::from_utf8(text).ok();
        }
        userdata = rest.get(usize::from(*length)..)?;
    }
    None
}

/// The userdata of a set or map that has only a comment.
pub fn set_comment(comment: &str) -> Vec<u8> {
    with_comment(SET_COMMENT, comment)
}
