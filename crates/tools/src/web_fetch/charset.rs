//! Detects the character encoding of a body and decodes it.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

use homard_egress::Body;

/// Number of bytes searched for a `charset` in the page itself.
const SNIFF_BYTES: usize = 1024;

/// Decodes a body by its byte order mark, the `Content-Type` header, the page's own declaration, or a guess.
pub(super) fn decode(body: &Body, content_type: &str) -> String {
    let bytes = body.bytes.as_slice();
    let declared = label(content_type.as_bytes()).or_else(|| label(&bytes[..bytes.len().min(SNIFF_BYTES)]));
    let encoding = declared.unwrap_or(if is_utf8(body) { UTF_8 } else { WINDOWS_1252 });
    encoding.decode(bytes).0.into_owned()
}

/// Returns the encoding that `charset=` names.
fn label(text: &[u8]) -> Option<&'static Encoding> {
    const KEY: &[u8] = b"charset=";
    let at = text.windows(KEY.len()).position(|window| window.eq_ignore_ascii_case(KEY))?;
    let value = text[at + KEY.len()..].trim_ascii_start();
    let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
    let end = value.iter().position(|byte| !byte.is_ascii_alphanumeric() && !b"-_:.".contains(byte));
    Encoding::for_label(&value[..end.unwrap_or(value.len())])
}

/// True if the body is valid UTF-8, except for a truncated last character.
fn is_utf8(body: &Body) -> bool {
    str::from_utf8(&body.bytes).err().is_none_or(|error| !body.is_complete && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_declared_or_guessed() {
        for (bytes, content_type, text) in [
            (&b"caf\xc3\xa9"[..], "text/html", "café"),
            (b"caf\xe9", "text/html", "café"),
            (b"\xa4", "text/html; Charset=\"ISO-8859-15\"", "€"),
            (b"<meta charset='shift_jis'>\x83\x8d", "text/html", "<meta charset='shift_jis'>ロ"),
            (b"<meta content='text/html; charset=koi8-r'>\xc4", "", "<meta content='text/html; charset=koi8-r'>д"),
            (b"\xff\xfeh\0i\0", "text/plain", "hi"),
            (b"\xef\xbb\xbfhi", "text/plain; charset=latin1", "hi"),
            (b"hi", "text/plain; charset=nonsense", "hi"),
            (b"", "", ""),
        ] {
            assert_eq!(decode(&Body { bytes: bytes.to_vec(), is_complete: true }, content_type), text);
        }
    }

    #[test]
    fn a_character_that_was_cut_off_does_not_change_the_others() {
        let cut = |is_whole| decode(&Body { bytes: b"caf\xc3\xa9 \xc3".to_vec(), is_complete: is_whole }, "");
        assert_eq!([cut(false), cut(true)], ["café \u{fffd}", "cafÃ© Ã"]);
    }
}
