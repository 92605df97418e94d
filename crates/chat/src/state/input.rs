//! What the user is about to send: the composer with its completions, and the earlier inputs.
#![expect(clippy::wildcard_enum_match_arm, reason = "most keys have no function")]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::Effect;
use crate::{
    command::CommandInfo,
    completion::{self, Completion},
    composer::{Composer, Draft},
    input_history::InputHistory,
};

/// A search in the input history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) text: String,
    pub(crate) skip: usize,
}

/// The input.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) composer: Composer,
    pub(crate) history: InputHistory,
    pub(crate) search: Option<Search>,
    pub(crate) completion: Option<Completion>,
    /// The text for which the list of completions was closed.
    dismissed: Option<String>,
    pub(super) commands: Vec<CommandInfo>,
    pub(super) files: Option<Vec<String>>,
}

impl Input {
    /// An empty composer.
    pub(super) fn new(history: InputHistory, commands: Vec<CommandInfo>) -> Self {
        Self { history, commands, ..Self::default() }
    }

    /// Changes the message.
    pub(super) fn edit(&mut self, effects: &mut Vec<Effect>, change: impl FnOnce(&mut Composer)) {
        change(&mut self.composer);
        self.history.leave();
        self.complete(effects);
    }

    /// Updates the list of completions after a change.
    pub(super) fn complete(&mut self, effects: &mut Vec<Effect>) {
        let before = self.composer.before_cursor();
        if self.dismissed.as_ref().is_some_and(|dismissed| *dismissed == self.composer.shown()) {
            self.completion = None;
            return;
        }
        self.dismissed = None;
        let is_file = completion::file_query(&before).is_some();
        if is_file && self.files.is_none() {
            self.files = Some(Vec::new());
            effects.push(Effect::ListFiles);
        }
        if !is_file && self.files.as_ref().is_some_and(|files| !files.is_empty()) {
            // The next completion sees the files as they are then.
            self.files = None;
        }
        let is_recalled = self.history.is_recalling();
        let files = self.files.as_deref().unwrap_or_default();
        self.completion = completion::find(&before, &self.commands, files).filter(|_| !is_recalled);
    }

    /// Closes the list of completions until the message changes.
    pub(super) fn dismiss_completion(&mut self) {
        self.completion = None;
        self.dismissed = Some(self.composer.shown());
    }

    /// Takes the message out of the composer, and adds it to the history.
    pub(super) fn take(&mut self, effects: &mut Vec<Effect>) -> Draft {
        self.completion = None;
        let draft = self.composer.take();
        if self.history.add(&draft.text) {
            effects.extend(InputHistory::line(&draft.text).map(Effect::SaveInput));
        }
        draft
    }

    /// Puts a message back into the composer, if that is empty; otherwise it can be recalled from the history.
    pub(super) fn restore(&mut self, draft: &Draft) {
        if self.composer.is_empty() {
            self.composer.restore(draft);
        } else {
            self.history.add(&draft.text);
        }
    }

    /// Up: moves the cursor, or recalls an earlier message.
    pub(super) fn up(&mut self, columns: usize) {
        if !self.history.is_recalling() && self.composer.move_row(columns, false) {
            return;
        }
        let typed = self.composer.draft().text;
        if let Some(recalled) = self.history.previous(&typed) {
            self.composer.set(recalled);
        }
    }

    /// Down: moves the cursor, or recalls a later message.
    pub(super) fn down(&mut self, columns: usize) {
        if !self.history.is_recalling() && self.composer.move_row(columns, true) {
            return;
        }
        if let Some(next) = self.history.following() {
            self.composer.set(&next);
        }
    }

    /// Processes a key of the search. Returns true if the search ended and the key acts on what was found.
    pub(super) fn search_key(&mut self, key: KeyEvent) -> bool {
        let Some(search) = &mut self.search else { return true };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.search = None,
            KeyCode::Char('c' | 'g') if control => self.search = None,
            KeyCode::Char('r') | KeyCode::Up if control || key.code == KeyCode::Up => {
                if self.history.search(&search.text, search.skip + 1).is_some() {
                    search.skip += 1;
                }
            }
            KeyCode::Char('s') | KeyCode::Down if control || key.code == KeyCode::Down => {
                search.skip = search.skip.saturating_sub(1);
            }
            KeyCode::Backspace => {
                search.text.pop();
                search.skip = 0;
            }
            KeyCode::Char(char) if !control => {
                search.text.push(char);
                search.skip = 0;
            }
            // The found message is edited; other keys act on it.
            _ => {
                let found = self.history.search(&search.text, search.skip).map(str::to_owned);
                self.search = None;
                if let Some(found) = found {
                    self.composer.set(&found);
                }
                return key.code != KeyCode::Enter;
            }
        }
        false
    }
}
