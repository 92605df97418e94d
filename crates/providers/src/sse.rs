//! Parser of server-sent events.
//!
//! A push parser without I/O, so that a recorded stream can be replayed, and any split of it yields the same events.
//! Every byte is examined once. `id:` and `retry:` are ignored, because a model's answer cannot be resumed.

/// Maximum size of an incomplete event.
const LIMIT: usize = 16 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Name of the event; empty if it has none.
    pub event: String,
    /// Data; several lines are joined by a line feed.
    pub data: String,
}

/// An event exceeds the maximum size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {} MiB", LIMIT / 1024 / 1024)]
pub struct TooLarge;

/// Parser state.
#[derive(Debug)]
pub struct Parser {
    /// The current line, without its end.
    line: Vec<u8>,
    /// Data lines of the current event, each with a line feed.
    data: String,
    event: String,
    /// True if the last byte was a carriage return, so that a line feed now ends nothing.
    after_carriage_return: bool,
    /// True until the first line was read, which may start with a byte order mark.
    at_start: bool,
    limit: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            data: String::new(),
            event: String::new(),
            after_carriage_return: false,
            at_start: true,
            limit: LIMIT,
        }
    }
}

impl Parser {
    /// Processes the next bytes, split anywhere, and returns the events that they complete.
    ///
    /// After an error the parser must not be used. An event that is cut off by the end of the stream is dropped.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_carriage_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + part.len() > self.limit {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            bytes = rest;
            if let Some((end, rest)) = rest.split_first() {
                self.after_carriage_return = *end == b'\r';
                bytes = rest;
                frames.extend(self.end_line());
            }
        }
        Ok(frames)
    }

    /// Processes a complete line. A blank line ends an event and returns it.
    fn end_line(&mut self) -> Option<Frame> {
        let mut line = self.line.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        let frame = if line.is_empty() { end_event(&mut self.event, &mut self.data) } else { None };
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.push_str(&String::from_utf8_lossy(value));
                self.data.push('\n');
            }
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            // Comments (an empty field, used as heartbeats) and unused fields.
            _ => {}
        }
        self.line.clear();
        frame
    }
}

/// Ends the current event. An event without data is dropped, whatever its name.
fn end_event(event: &mut String, data: &mut String) -> Option<Frame> {
    let event = std::mem::take(event);
    data.pop()?;
    Some(Frame { event, data: std::mem::take(data) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Frame> {
        let mut parser = Parser::default();
        pieces.into_iter().flat_map(|piece| parser.push(piece).unwrap()).collect()
    }

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn fields_comments_and_line_ends_follow_the_standard() {
        let cases: &[(&str, &[Frame])] = &[
            ("data: a\n\n", &[frame("", "a")]),
            ("data:a\r\rdata:b\r\n\r\n", &[frame("", "a"), frame("", "b")]),
            ("data:  two spaces\n\n", &[frame("", " two spaces")]),
            ("data: a\ndata\ndata: b\n\n", &[frame("", "a\n\nb")]),
            ("data:\n\n", &[frame("", "")]),
            ("event: ping\ndata: {}\n\ndata: x\n\n", &[frame("ping", "{}"), frame("", "x")]),
            ("event: lost\n\ndata: x\n\n", &[frame("", "x")]),
            (": heartbeat\n\n:\n\ndata: x\nid: 7\nretry: 1\nunknown\n\n", &[frame("", "x")]),
            ("\u{feff}data: x\n\n", &[frame("", "x")]),
            ("\u{feff}\ndata: \u{feff}x\n\n", &[frame("", "\u{feff}x")]),
            ("data: cut off\n", &[]),
            ("data: cut off", &[]),
        ];
        for (text, frames) in cases {
            assert_eq!(parse([text.as_bytes()]), *frames, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_become_replacement_characters() {
        assert_eq!(parse([b"data: a\xffb\n\n".as_slice()]), [frame("", "a\u{fffd}b")]);
    }

    #[test]
    fn an_event_over_the_size_limit_is_rejected() {
        let parser = || Parser { limit: 10, ..Parser::default() };
        assert_eq!(parser().push(b"data: 12345"), Err(TooLarge));
        assert_eq!(parser().push(b"data:1234\ndata:1234\n"), Err(TooLarge));
        assert_eq!(parser().push(b"data: 1234\n\n").map(|frames| frames.len()), Ok(1));
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"data:".to_vec()),
            Just(b"event: ".to_vec()),
            Just(b":".to_vec()),
            Just("\u{feff}".as_bytes().to_vec()),
            Just("wörld 🦞".as_bytes().to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\n\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(bytes in stream(), sizes in proptest::collection::vec(1usize..9, 1..20)) {
            let mut rest = bytes.as_slice();
            let mut pieces = Vec::new();
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(parse(pieces), parse([bytes.as_slice()]));
        }
    }
}
