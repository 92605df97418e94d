//! Keys and pastes.
#![expect(clippy::wildcard_enum_match_arm, reason = "most keys have no function")]

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::json;

use super::{CallKind, Effect, PendingState, Phase, State, input::Search};
use crate::{
    approval::Decision,
    command::LocalCommand,
    composer::{Composer, Motion},
    pager::{Pager, Scroll},
};

/// Time without a key before a single key answers a request for approval: the user may be typing when it appears.
const APPROVAL_PAUSE: u64 = 400;
/// Time in which a second Ctrl+C leaves the chat.
const QUIT_WINDOW: u64 = 2_000;
/// Endings of pictures.
const IMAGE_ENDINGS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

impl State {
    pub(super) fn key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let previous_key_at = std::mem::replace(&mut self.last_key_at, self.conversation.now);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('l') {
            effects.push(Effect::Redraw);
        } else if self.pager.is_some() {
            self.pager_key(key);
        } else if self.picker.is_some() {
            self.picker_key(key, effects);
        } else if self.input.search.is_some() {
            if self.input.search_key(key) {
                self.composer_key(key, effects);
            }
        } else if !self.approval_key(key, previous_key_at, effects) && !self.completion_key(key, effects) {
            self.composer_key(key, effects);
        }
    }

    pub(super) fn paste(&mut self, text: String, effects: &mut Vec<Effect>) {
        if let Some(picker) = &mut self.picker {
            return picker.edit(|filter| filter.push_str(&crate::sanitize::one_line(&text)));
        }
        if let Some(search) = &mut self.input.search {
            search.text.push_str(&crate::sanitize::one_line(&text));
            return;
        }
        if self.pager.is_some() {
            return;
        }
        if may_be_image(&text) {
            effects.push(Effect::ReadImage(text));
        } else {
            self.input.edit(effects, |composer| composer.paste(&text));
        }
    }

    fn pager_key(&mut self, key: KeyEvent) {
        let Some(pager) = &mut self.pager else { return };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let scroll = match key.code {
            KeyCode::Up | KeyCode::Char('k') => Scroll::Up,
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => Scroll::Down,
            KeyCode::PageUp | KeyCode::Char('b') => Scroll::PageUp,
            KeyCode::PageDown | KeyCode::Char(' ' | 'f') => Scroll::PageDown,
            KeyCode::Home | KeyCode::Char('g') => Scroll::Start,
            KeyCode::End | KeyCode::Char('G') => Scroll::End,
            KeyCode::Esc | KeyCode::Char('q') => return self.pager = None,
            KeyCode::Char('o' | 'c' | 'd') if control => return self.pager = None,
            _ => return,
        };
        pager.scroll(scroll);
    }

    fn picker_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let Some(picker) = &mut self.picker else { return };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.picker = None,
            KeyCode::Char('c' | 'd') if control => self.picker = None,
            KeyCode::Up | KeyCode::BackTab => picker.select(false),
            KeyCode::Down | KeyCode::Tab => picker.select(true),
            KeyCode::Char('p') if control => picker.select(false),
            KeyCode::Char('n') if control => picker.select(true),
            KeyCode::Char('u') if control => picker.edit(String::clear),
            KeyCode::Enter => self.choose(effects),
            KeyCode::Backspace => picker.edit(|filter| {
                filter.pop();
            }),
            KeyCode::Char(char) if !control => picker.edit(|filter| filter.push(char)),
            _ => {}
        }
    }

    /// Answers a request for approval with a single key. Keys of a message that is being typed are not taken for it.
    fn approval_key(&mut self, key: KeyEvent, previous_key_at: u64, effects: &mut Vec<Effect>) -> bool {
        let Some(approval) = self.conversation.open_approval() else { return false };
        let KeyCode::Char(char) = key.code else { return false };
        let is_plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let Some(decision) = Decision::of_key(char).filter(|_| is_plain && self.input.composer.is_empty()) else {
            return false;
        };
        let since = approval.shown_at.max(previous_key_at);
        if self.conversation.now.saturating_sub(since) < APPROVAL_PAUSE {
            return false;
        }
        self.decide(decision, effects);
        true
    }

    fn completion_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
        let Some(completion) = &mut self.input.completion else { return false };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Up => completion.select(false),
            KeyCode::Down => completion.select(true),
            KeyCode::Char('p') if control => completion.select(false),
            KeyCode::Char('n') if control => completion.select(true),
            KeyCode::Esc => self.input.dismiss_completion(),
            KeyCode::Tab | KeyCode::Enter if key.modifiers.is_empty() => {
                let Some(text) = completion.text().map(str::to_owned) else { return false };
                let (replaces, is_command) = (completion.replaces, completion.is_command);
                self.input.completion = None;
                if is_command && key.code == KeyCode::Enter {
                    // A command that is chosen is executed.
                    self.input.composer.complete(replaces, &text);
                    self.submit_composer(None, effects);
                } else {
                    let is_directory = text.ends_with('/');
                    self.input.composer.complete(replaces, &text);
                    if !is_directory {
                        self.input.composer.insert(" ");
                    }
                    self.input.complete(effects);
                }
            }
            _ => return false,
        }
        true
    }

    fn composer_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Char(char) if control => self.control_key(char, effects),
            KeyCode::Char('b') if alt => self.input.composer.go(Motion::WordLeft),
            KeyCode::Char('f') if alt => self.input.composer.go(Motion::WordRight),
            KeyCode::Char('d') if alt => self.input.composer.cut(Motion::WordRight),
            KeyCode::Char(char) => self.input.edit(effects, |composer| composer.insert(&char.to_string())),
            KeyCode::Enter if shift || alt => self.input.edit(effects, |composer| composer.insert("\n")),
            KeyCode::Enter
                if self.input.composer.is_at_end() && self.input.composer.before_cursor().ends_with('\\') =>
            {
                self.input.edit(effects, |composer| {
                    composer.delete(Motion::Left);
                    composer.insert("\n");
                });
            }
            KeyCode::Enter => self.submit_composer(None, effects),
            KeyCode::Tab if self.conversation.run.is_some() => self.submit_composer(Some("followup"), effects),
            KeyCode::Backspace if alt || control => self.input.edit(effects, |composer| composer.cut(Motion::WordLeft)),
            KeyCode::Backspace => self.input.edit(effects, |composer| composer.delete(Motion::Left)),
            KeyCode::Delete => self.input.edit(effects, |composer| composer.delete(Motion::Right)),
            KeyCode::Left if control || alt => self.input.composer.go(Motion::WordLeft),
            KeyCode::Right if control || alt => self.input.composer.go(Motion::WordRight),
            KeyCode::Left => self.input.composer.go(Motion::Left),
            KeyCode::Right => self.input.composer.go(Motion::Right),
            KeyCode::Home => self.input.composer.go(Motion::LineStart),
            KeyCode::End => self.input.composer.go(Motion::LineEnd),
            KeyCode::Up => self.up(effects),
            KeyCode::Down => self.input.down(self.composer_columns()),
            KeyCode::PageUp => self.pager = Some(Pager::default()),
            KeyCode::Esc if self.conversation.run.is_some() => self.abort(effects),
            _ => {}
        }
    }

    fn control_key(&mut self, char: char, effects: &mut Vec<Effect>) {
        match char {
            'a' => self.input.composer.go(Motion::LineStart),
            'e' => self.input.composer.go(Motion::LineEnd),
            'b' => self.input.composer.go(Motion::Left),
            'f' => self.input.composer.go(Motion::Right),
            'p' => self.up(effects),
            'n' => self.input.down(self.composer_columns()),
            'h' => self.input.edit(effects, |composer| composer.delete(Motion::Left)),
            'w' => self.input.edit(effects, |composer| composer.cut(Motion::WordLeft)),
            'u' => self.input.edit(effects, |composer| composer.cut(Motion::LineStart)),
            'k' => self.input.edit(effects, |composer| composer.cut(Motion::LineEnd)),
            'y' => self.input.edit(effects, Composer::yank),
            'j' => self.input.edit(effects, |composer| composer.insert("\n")),
            'd' if !self.input.composer.is_empty() => {
                self.input.edit(effects, |composer| composer.delete(Motion::Right))
            }
            'd' => effects.push(Effect::Quit),
            'c' => self.interrupt(effects),
            'g' => effects.push(Effect::OpenEditor(self.input.composer.draft().text)),
            'o' => self.execute(LocalCommand::Details, "", effects),
            'r' => self.input.search = Some(Search::default()),
            't' => self.toggle_tool(),
            _ => {}
        }
    }

    /// Expands the last tool call, or collapses it.
    fn toggle_tool(&mut self) {
        if !self.conversation.transcript.toggle_last_tool() {
            self.hint("no tool was called yet");
        }
    }

    /// Ctrl+C: clears the message, then stops the run, then leaves.
    fn interrupt(&mut self, effects: &mut Vec<Effect>) {
        self.input.completion = None;
        if !self.input.composer.is_empty() {
            self.input.take(effects);
            self.hint("the message can be recalled with Up");
        } else if self.conversation.run.as_ref().is_some_and(|run| run.phase != Phase::Stopping) {
            self.abort(effects);
        } else if self.conversation.now < self.quit_armed_until {
            effects.push(Effect::Quit);
        } else {
            self.quit_armed_until = self.conversation.now + QUIT_WINDOW;
            self.hint("press Ctrl+C again to leave");
        }
    }

    fn submit_composer(&mut self, queue_mode: Option<&'static str>, effects: &mut Vec<Effect>) {
        let draft = self.input.take(effects);
        self.submit(draft, queue_mode, effects);
    }

    /// Width of the composer's text.
    pub(crate) fn composer_columns(&self) -> usize {
        usize::from(self.size.0).saturating_sub(2).max(2)
    }

    /// Up: takes a queued message back, moves the cursor, or recalls an earlier message.
    fn up(&mut self, effects: &mut Vec<Effect>) {
        if self.input.composer.is_empty() && !self.input.history.is_recalling() {
            let waits = |state: PendingState| {
                matches!(state, PendingState::Unsent | PendingState::Queued(_) | PendingState::Collected)
            };
            if let Some(index) = self.conversation.pending.iter().rposition(|message| waits(message.state)) {
                return self.take_back(index, effects);
            }
        }
        self.input.up(self.composer_columns());
    }

    fn take_back(&mut self, index: usize, effects: &mut Vec<Effect>) {
        let is_connected = self.gateway.is_connected();
        let message = &mut self.conversation.pending[index];
        if message.state == PendingState::Unsent && !message.was_sent {
            let message = self.conversation.pending.remove(index);
            self.input.composer.restore(&message.draft);
            return;
        }
        if !is_connected || message.state == PendingState::Unsent {
            return self.hint("the gateway may have this message; it can be taken back when the connection is back");
        }
        message.state = PendingState::Recalling;
        let params = json!({"sessionKey": message.session, "runId": message.run});
        let kind = CallKind::Recall(message.run.clone());
        self.gateway.call(kind, "chat.abort", params, effects);
    }
}

/// True if a pasted text looks like the path of a picture.
fn may_be_image(text: &str) -> bool {
    let text = text.trim().trim_matches(['\'', '"']).to_lowercase();
    !text.contains('\n') && text.len() < 4_096 && IMAGE_ENDINGS.iter().any(|ending| text.ends_with(ending))
}
