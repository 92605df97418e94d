//! What a chat keeps in the state directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_chat::input_history::InputHistory;

/// Size above which the oldest half of the history file is dropped.
const MAX_HISTORY: usize = 1 << 20;

/// The files of the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFiles {
    /// Earlier inputs.
    pub history: PathBuf,
    /// Key of the session that was used last.
    pub last_session: PathBuf,
}

impl StateFiles {
    /// The files in a state directory.
    pub fn in_directory(state: &Path) -> Self {
        Self { history: state.join("chat-history.jsonl"), last_session: state.join("chat-session") }
    }

    /// Reads the earlier inputs, and drops the older half of a file that has become large. Without it the chat works.
    pub fn read_history(&self) -> InputHistory {
        let Ok(text) = fs::read_to_string(&self.history) else { return InputHistory::default() };
        if text.len() > MAX_HISTORY {
            let middle = text.len() - MAX_HISTORY / 2;
            let newline = text.bytes().skip(middle).position(|byte| byte == b'\n');
            let start = newline.map_or(text.len(), |at| middle + at + 1);
            // A failure leaves a file that is too large.
            homard_stdx::file::replace(&self.history, &text.as_bytes()[start..]).ok();
        }
        InputHistory::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_file_does_not_grow_without_bound() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::in_directory(directory.path());
        let line = format!("\"{}\"\n", "x".repeat(998));
        fs::write(&files.history, line.repeat(1_100)).unwrap();
        assert_eq!(files.read_history().search("x", 0).map(str::len), Some(998));
        let left = fs::read_to_string(&files.history).unwrap();
        assert!(left.len() < MAX_HISTORY && left.starts_with('"'), "{}", left.len());
    }
}
