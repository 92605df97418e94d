//! Converts the events of the terminal, and recognises pastes of terminals that do not mark them.

use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::state::Event;

/// Keys that arrive at once and are taken for a paste, if a line break is among them.
const MIN_BURST: usize = 6;

/// Converts events that arrived at once. Returns them, and whether the last ones are a paste whose end may still come.
pub(super) fn coalesce(batch: Vec<TerminalEvent>, is_in_burst: bool) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    let mut typed: Vec<KeyEvent> = Vec::new();
    let mut is_burst = false;
    for event in batch {
        match event {
            TerminalEvent::Key(key) if key.kind == KeyEventKind::Release => {}
            TerminalEvent::Key(key) => match char_of(&key) {
                Some(_) => typed.push(key),
                None => {
                    flush(&mut typed, is_in_burst, &mut events);
                    events.push(Event::Key(key));
                }
            },
            TerminalEvent::Paste(text) => {
                flush(&mut typed, is_in_burst, &mut events);
                events.push(Event::Paste(text));
            }
            TerminalEvent::Resize(columns, rows) => events.push(Event::Resize(columns, rows)),
            TerminalEvent::FocusGained | TerminalEvent::FocusLost | TerminalEvent::Mouse(_) => {}
        }
    }
    is_burst |= flush(&mut typed, is_in_burst, &mut events);
    (events, is_burst)
}

/// The character that a key types.
fn char_of(key: &KeyEvent) -> Option<char> {
    let is_plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys type nothing")]
    match key.code {
        KeyCode::Char(char) if is_plain => Some(char),
        KeyCode::Enter if key.modifiers.is_empty() => Some('\n'),
        KeyCode::Tab if key.modifiers.is_empty() => Some('\t'),
        // Terminals in raw mode send line feeds of pastes as this key.
        KeyCode::Char('j') if key.modifiers == KeyModifiers::CONTROL => Some('\n'),
        _ => None,
    }
}

/// Moves typed keys to the events: as a paste, if they contain a line break before their end.
fn flush(typed: &mut Vec<KeyEvent>, is_in_burst: bool, events: &mut Vec<Event>) -> bool {
    let text: String = typed.iter().filter_map(char_of).collect();
    let has_inner_break = text.len() >= MIN_BURST && text.trim_end_matches('\n').contains('\n');
    let is_paste = has_inner_break || (is_in_burst && text.contains('\n'));
    if is_paste {
        typed.clear();
        events.push(Event::Paste(text));
    } else {
        events.extend(typed.drain(..).map(Event::Key));
    }
    is_paste
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<TerminalEvent> {
        let key = |char| match char {
            '\n' => KeyCode::Enter,
            char => KeyCode::Char(char),
        };
        text.chars().map(|char| TerminalEvent::Key(KeyEvent::new(key(char), KeyModifiers::NONE))).collect()
    }

    fn pastes(batch: Vec<TerminalEvent>, is_in_burst: bool) -> (Vec<String>, bool) {
        let (events, is_burst) = coalesce(batch, is_in_burst);
        let text = |event: Event| match event {
            Event::Paste(text) => text,
            Event::Key(key) => format!("{}", key.code),
            Event::Resize(..)
            | Event::Tick
            | Event::Link(_)
            | Event::Files(_)
            | Event::Image { .. }
            | Event::Edited(_) => unreachable!(),
        };
        (events.into_iter().map(text).collect(), is_burst)
    }

    #[test]
    fn a_burst_of_keys_with_line_breaks_is_a_paste() {
        assert_eq!(pastes(keys("one\ntwo\n"), false), (vec!["one\ntwo\n".to_owned()], true));
        assert_eq!(pastes(keys("end\n"), true), (vec!["end\n".to_owned()], true));
        assert_eq!(pastes(keys("ok\n"), false), (["o", "k", "Enter"].map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn other_keys_are_not_part_of_a_burst() {
        let mut batch = keys("abc");
        batch.push(TerminalEvent::Key(KeyEvent::new(KeyCode::Char('a'), KeyModifiers::CONTROL)));
        batch.extend(keys("one\ntwo"));
        assert_eq!(pastes(batch, false).0, ["a", "b", "c", "a", "one\ntwo"]);
    }
}
