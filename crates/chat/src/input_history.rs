//! Earlier inputs: recalled with the arrow keys and searched with Ctrl+R.

use serde_json::Value;

/// Maximum number of inputs that are kept.
const MAX_INPUTS: usize = 1_000;
/// Maximum length of an input that is kept.
const MAX_INPUT_CHARS: usize = 20_000;

/// Earlier inputs, and the position while the user goes through them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputHistory {
    inputs: Vec<String>,
    /// Index of the recalled input, and what was typed before.
    recalled: Option<(usize, String)>,
}

impl InputHistory {
    /// Reads a history file: one JSON string per line. Other lines are ignored.
    pub fn parse(file: &str) -> Self {
        let read = |line| match serde_json::from_str(line) {
            Ok(Value::String(input)) => Some(input),
            Ok(_) | Err(_) => None,
        };
        let mut inputs: Vec<_> = file.lines().filter_map(read).collect();
        inputs.drain(..inputs.len().saturating_sub(MAX_INPUTS));
        Self { inputs, recalled: None }
    }

    /// Returns the line of a history file for an input; `None` if it is not kept.
    pub fn line(input: &str) -> Option<String> {
        let is_kept = !input.trim().is_empty() && input.chars().count() <= MAX_INPUT_CHARS;
        is_kept.then(|| format!("{}\n", Value::from(input)))
    }

    /// Adds an input. Returns false if it is not kept, or repeats the last one.
    pub fn add(&mut self, input: &str) -> bool {
        self.recalled = None;
        if Self::line(input).is_none() || self.inputs.last().is_some_and(|last| last == input) {
            return false;
        }
        self.inputs.push(input.to_owned());
        if self.inputs.len() > MAX_INPUTS {
            self.inputs.remove(0);
        }
        true
    }

    /// Returns the input before the recalled one. `typed` is what the composer has now.
    pub fn previous(&mut self, typed: &str) -> Option<&str> {
        let (index, typed) = match self.recalled.take() {
            Some((index, before)) => (index.checked_sub(1).unwrap_or(index), before),
            None => (self.inputs.len().checked_sub(1)?, typed.to_owned()),
        };
        self.recalled = Some((index, typed));
        self.inputs.get(index).map(String::as_str)
    }

    /// Returns the input after the recalled one, or what was typed before the first was recalled.
    pub fn following(&mut self) -> Option<String> {
        let (index, typed) = self.recalled.take()?;
        match self.inputs.get(index + 1) {
            Some(input) => {
                self.recalled = Some((index + 1, typed));
                Some(input.clone())
            }
            None => Some(typed),
        }
    }

    /// True while an earlier input is shown.
    pub fn is_recalling(&self) -> bool {
        self.recalled.is_some()
    }

    /// Forgets the position: the recalled input was changed.
    pub fn leave(&mut self) {
        self.recalled = None;
    }

    /// Finds the newest input that contains a text, after skipping `skip` different ones.
    pub fn search(&self, text: &str, skip: usize) -> Option<&str> {
        let text = text.to_lowercase();
        let mut found: Vec<&str> = Vec::new();
        for input in self.inputs.iter().rev().filter(|input| input.to_lowercase().contains(&text)) {
            if !found.contains(&input.as_str()) {
                found.push(input);
            }
            if found.len() > skip {
                break;
            }
        }
        found.get(skip).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> InputHistory {
        InputHistory::parse("\"one\"\nnot json\n\"two\\nlines\"\n3\n\"three\"\n")
    }

    #[test]
    fn inputs_are_recalled_and_the_typed_text_comes_back() {
        let mut history = history();
        assert_eq!(history.previous("typed"), Some("three"));
        assert_eq!(history.previous("three"), Some("two\nlines"));
        assert_eq!(history.previous(""), Some("one"));
        assert_eq!(history.previous(""), Some("one"));
        assert_eq!(history.following().as_deref(), Some("two\nlines"));
        assert_eq!(history.following().as_deref(), Some("three"));
        assert_eq!(history.following().as_deref(), Some("typed"));
        assert_eq!(history.following(), None);
        assert_eq!(InputHistory::default().previous("x"), None);
    }

    #[test]
    fn inputs_are_searched_from_the_newest() {
        let mut history = history();
        history.add("Three more");
        history.add("three");
        assert_eq!(history.search("THR", 0), Some("three"));
        assert_eq!(history.search("thr", 1), Some("Three more"));
        assert_eq!(history.search("thr", 2), None);
    }

    #[test]
    fn the_file_has_one_line_per_input() {
        assert_eq!(InputHistory::line("a\n\"b\"").as_deref(), Some("\"a\\n\\\"b\\\"\"\n"));
        assert_eq!(InputHistory::line(" \n"), None);
        let mut history = history();
        assert!(!history.add("three"));
        assert!(history.add("four"));
    }
}
