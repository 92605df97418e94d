//! What a model says in one message, read as it comes. Out come the words that are certainly for the user, what was thought,
//! and what the message asks of the house. However the message is cut into deltas, the same comes out.
//!
//! The text flows through three readers, each of which holds back only what it is not sure of: `scan` (tags,
//! directives, leaked calls), `media_line`, and `edge` (white space and words at the ends).

use crate::{edge::Edges, media_line::MediaLines, payload::ReplyTo, scan::Scan};

/// How a model's text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// Only what stands between `<final>` tags is for the user.
    pub enforce_final: bool,
}

/// What became certain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The next words for the user. They are never taken back.
    pub text: String,
    /// The next words that were thought.
    pub thinking: String,
}

/// What a message asks of the house.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Which message it answers.
    pub reply_to: Option<ReplyTo>,
    /// Whether its sound is a voice message.
    pub is_voice: bool,
    /// Media to attach, in order.
    pub media: Vec<String>,
    /// Whether it is the word for silence and nothing else. While it comes: whether it would be if it ended here.
    pub is_silent: bool,
    /// Whether the heartbeat word stood at one of its ends. While it comes: whether it would if the message ended here.
    pub is_heartbeat: bool,
}

/// A message, read as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// The words for the user.
    pub text: String,
    /// What was thought; several thoughts are on lines of their own.
    pub thinking: String,
    /// What it asks of the house.
    pub found: Found,
}

/// Reads a whole message.
pub fn read(text: &str, rules: Rules) -> Said {
    let mut spoken = Spoken::new(rules);
    let Part { mut text, mut thinking } = spoken.hear(text);
    let rest = spoken.finish();
    text.push_str(&rest.text);
    thinking.push_str(&rest.thinking);
    Said { text, thinking, found: spoken.found }
}

/// Reads one message as it comes. Each character costs the same, however long the message is.
#[derive(Debug)]
pub struct Spoken {
    scan: Scan,
    lines: MediaLines,
    edges: Edges,
    found: Found,
}

impl Spoken {
    /// Before the first delta.
    pub fn new(rules: Rules) -> Self {
        let found = Found::default();
        Self { scan: Scan::new(rules), lines: MediaLines::default(), edges: Edges::default(), found }
    }

    /// Takes a delta. What is not certain yet is held back.
    pub fn hear(&mut self, delta: &str) -> Part {
        self.scan.push(delta, &mut self.found);
        let mut lines = String::new();
        self.lines.push(&std::mem::take(&mut self.scan.said), &mut lines, &mut self.found.media);
        let mut text = String::new();
        self.edges.push(&lines, &mut text);
        self.note_edges();
        Part { text, thinking: std::mem::take(&mut self.scan.thought) }
    }

    /// The message ended: the rest becomes certain. Call it once.
    pub fn finish(&mut self) -> Part {
        self.scan.finish(&mut self.found);
        let Part { mut text, thinking } = self.hear("");
        let mut lines = String::new();
        self.lines.finish(&mut lines, &mut self.found.media);
        self.edges.push(&lines, &mut text);
        self.edges.finish(&mut text);
        self.note_edges();
        Part { text, thinking }
    }

    /// White space after the text so far. It shows whether a line or a paragraph is complete.
    pub fn trailing(&self) -> &str {
        self.edges.trailing()
    }

    /// What the message has asked of the house so far.
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn note_edges(&mut self) {
        self.found.is_silent = self.edges.is_silent();
        self.found.is_heartbeat = self.edges.is_heartbeat();
    }
}

#[cfg(test)]
mod tests;
