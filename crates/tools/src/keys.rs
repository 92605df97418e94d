//! Maps key names to the bytes that a terminal sends.

/// Keys with irregular byte sequences. Names are case-insensitive.
const NAMED: [(&str, &str); 30] = [
    ("enter", "\r"),
    ("return", "\r"),
    ("cr", "\r"),
    ("tab", "\t"),
    ("s-tab", "\x1b[Z"),
    ("btab", "\x1b[Z"),
    ("escape", "\x1b"),
    ("esc", "\x1b"),
    ("space", " "),
    ("backspace", "\x7f"),
    ("bspace", "\x7f"),
    ("delete", "\x1b[3~"),
    ("del", "\x1b[3~"),
    ("dc", "\x1b[3~"),
    ("insert", "\x1b[2~"),
    ("ic", "\x1b[2~"),
    ("up", "\x1b[A"),
    ("down", "\x1b[B"),
    ("right", "\x1b[C"),
    ("left", "\x1b[D"),
    ("home", "\x1b[H"),
    ("end", "\x1b[F"),
    ("pageup", "\x1b[5~"),
    ("pgup", "\x1b[5~"),
    ("ppage", "\x1b[5~"),
    ("pagedown", "\x1b[6~"),
    ("pgdn", "\x1b[6~"),
    ("npage", "\x1b[6~"),
    ("f1", "\x1bOP"),
    ("f2", "\x1bOQ"),
];

/// Function keys from F3 on.
const FUNCTION: [(&str, &str); 10] = [
    ("f3", "\x1bOR"),
    ("f4", "\x1bOS"),
    ("f5", "\x1b[15~"),
    ("f6", "\x1b[17~"),
    ("f7", "\x1b[18~"),
    ("f8", "\x1b[19~"),
    ("f9", "\x1b[20~"),
    ("f10", "\x1b[21~"),
    ("f11", "\x1b[23~"),
    ("f12", "\x1b[24~"),
];

/// Returns the bytes of a key: a name such as `Enter` or `Up`, `C-c` or `^C`, `M-x`; anything else is sent literally.
pub(crate) fn bytes(key: &str) -> Vec<u8> {
    let lower = key.to_lowercase();
    if let Some((_, text)) = NAMED.iter().chain(&FUNCTION).find(|(name, _)| *name == lower) {
        return text.as_bytes().to_vec();
    }
    let control = lower.strip_prefix("c-").or_else(|| lower.strip_prefix('^'));
    if let Some(byte) = control.and_then(with_control) {
        return vec![byte];
    }
    if let Some(rest) = key.strip_prefix("M-").or_else(|| key.strip_prefix("m-")).filter(|rest| !rest.is_empty()) {
        return [b"\x1b".to_vec(), bytes(rest)].concat();
    }
    key.as_bytes().to_vec()
}

/// Returns the byte of a key pressed with Control.
fn with_control(key: &str) -> Option<u8> {
    match key.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(letter - b'a' + 1),
        [b'@'] => Some(0),
        [sign @ (b'[' | b'\\' | b']' | b'^' | b'_')] => Some(sign - b'@'),
        [b'?'] => Some(0x7f),
        _ if key == "space" => Some(0),
        _ => None,
    }
}

/// Parses a byte in hexadecimal, with or without `0x`.
pub(crate) fn hex(text: &str) -> Option<u8> {
    let digits = text.trim().to_lowercase();
    u8::from_str_radix(digits.strip_prefix("0x").unwrap_or(&digits), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_bytes_of_a_terminal() {
        let bytes_of = |keys: &[&str]| keys.iter().map(|key| bytes(key)).collect::<Vec<_>>();
        let expected: Vec<Vec<u8>> = vec![
            b"\r".into(),
            b"\x03".into(),
            b"\x03".into(),
            b"\x1bx".into(),
            b"\x1b\x1b[A".into(),
            b"\x1b[24~".into(),
            b"\x1b".into(),
            b"\0".into(),
            "é".into(),
            b"hello".into(),
            b"C-".into(),
            b"M-".into(),
        ];
        let keys = ["Enter", "C-c", "^C", "M-x", "M-Up", "F12", "C-[", "C-Space", "é", "hello", "C-", "M-"];
        assert_eq!(bytes_of(&keys), expected);
    }

    #[test]
    fn bytes_are_read_in_hexadecimal() {
        assert_eq!(["1b", "0x0D", " ff ", "100", "", "x"].map(hex), [Some(27), Some(13), Some(255), None, None, None]);
    }
}
