//! Streaming parser of one model message. Returns the text that is certainly for the user, reasoning, and directives.
//! The result does not depend on how the message is split into deltas.
//!
//! The text passes three stages, each of which holds back only what is undecided: `scan` (tags, directives, leaked
//! calls), `media_line`, and `trim` (whitespace and tokens at the ends).

use crate::{media_line::MediaLines, payload::ReplyTo, scan::StreamScanner, trim::Trimmer};

/// Parsing rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParseRules {
    /// Only text between `<final>` tags is for the user.
    pub enforce_final: bool,
}

/// Output that became certain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedPart {
    /// Next text for the user. It is never taken back.
    pub text: String,
    /// Next reasoning text.
    pub thinking: String,
}

/// Directives and tokens found in a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageDirectives {
    /// Message to reply to.
    pub reply_to: Option<ReplyTo>,
    /// True if attached audio is sent as a voice message.
    pub is_voice: bool,
    /// Media to attach, in order.
    pub media: Vec<String>,
    /// True if it is the silence token and nothing else. During streaming: if it ended here.
    pub is_silent: bool,
    /// True if the heartbeat token is at one of its ends. During streaming: if it ended here.
    pub is_heartbeat: bool,
}

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedReply {
    /// Text for the user.
    pub text: String,
    /// Reasoning; several parts are on lines of their own.
    pub thinking: String,
    /// Directives, and whether the message has the control tokens `NO_REPLY` and `HEARTBEAT_OK`.
    pub found: MessageDirectives,
}

/// Parses a complete message.
pub fn parse_message(text: &str, rules: ParseRules) -> ParsedReply {
    let mut parser = MessageParser::new(rules);
    let ParsedPart { mut text, mut thinking } = parser.push(text);
    let rest = parser.finish();
    text.push_str(&rest.text);
    thinking.push_str(&rest.thinking);
    ParsedReply { text, thinking, found: parser.found }
}

/// Parser of one streamed message. The cost per character is constant.
#[derive(Debug)]
pub struct MessageParser {
    scan: StreamScanner,
    lines: MediaLines,
    trimmer: Trimmer,
    found: MessageDirectives,
}

impl MessageParser {
    /// Creates a parser.
    pub fn new(rules: ParseRules) -> Self {
        let found = MessageDirectives::default();
        Self { scan: StreamScanner::new(rules), lines: MediaLines::default(), trimmer: Trimmer::default(), found }
    }

    /// Processes a delta. Undecided text is held back.
    pub fn push(&mut self, delta: &str) -> ParsedPart {
        self.scan.push(delta, &mut self.found);
        let mut lines = String::new();
        self.lines.push(&std::mem::take(&mut self.scan.visible), &mut lines, &mut self.found.media);
        let mut text = String::new();
        self.trimmer.push(&lines, &mut text);
        self.note_edges();
        ParsedPart { text, thinking: std::mem::take(&mut self.scan.reasoning) }
    }

    /// Ends the message and returns the text that was held back. Must be called exactly once.
    pub fn finish(&mut self) -> ParsedPart {
        // Each stage is flushed into the next one.
        self.scan.finish(&mut self.found);
        let ParsedPart { mut text, thinking } = self.push("");
        let mut lines = String::new();
        self.lines.finish(&mut lines, &mut self.found.media);
        self.trimmer.push(&lines, &mut text);
        self.trimmer.finish(&mut text);
        self.note_edges();
        ParsedPart { text, thinking }
    }

    /// Returns the whitespace after the text so far. It shows whether a line or paragraph is complete.
    pub fn trailing(&self) -> &str {
        self.trimmer.trailing()
    }

    /// Returns the directives and tokens found so far.
    pub fn found(&self) -> &MessageDirectives {
        &self.found
    }

    fn note_edges(&mut self) {
        self.found.is_silent = self.trimmer.is_silent();
        self.found.is_heartbeat = self.trimmer.is_heartbeat();
    }
}

#[cfg(test)]
mod tests;
