//! When it is shown in a chat that an answer is being written.

use std::time::Duration;

use super::{agents::Defaults, session::Session};

/// How often it is shown again, where nobody says.
const USUAL: u64 = 6;

/// When it is first shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Never.
    Never,
    /// When the run begins.
    Instant,
    /// When the model thinks.
    Thinking,
    /// When there are words, or a tool is at work.
    Message,
}

super::word::words! {
    Mode:
        "never" => Self::Never, "instant" => Self::Instant, "thinking" => Self::Thinking, "message" => Self::Message;
}

/// What the owner says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Typing {
    /// When it is first shown; `None` to leave it to the conversation.
    pub(crate) mode: Option<Mode>,
    /// How often it is shown again.
    pub(crate) every: Duration,
}

impl Typing {
    /// What both sections say: the session's word counts first for when, the agents' for how often.
    pub(crate) fn of(defaults: &Defaults, session: &Session) -> Self {
        let mode = session.typing_mode.or(defaults.typing_mode).map(|word| word.0);
        let seconds = defaults.typing_interval_seconds.or(session.typing_interval_seconds).unwrap_or(USUAL);
        Self { mode, every: Duration::from_secs(seconds) }
    }

    /// When it is first shown in a conversation: at once where somebody waits for an answer, else with its words.
    pub(crate) fn mode(self, is_awaited: bool) -> Mode {
        self.mode.unwrap_or(if is_awaited { Mode::Instant } else { Mode::Message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn typing(text: &str) -> Typing {
        let config = Config::parse(text).unwrap();
        Typing::of(&config.agents.defaults, &config.session)
    }

    #[test]
    fn whoever_waits_sees_it_at_once_unless_the_owner_says_otherwise() {
        assert_eq!([true, false].map(|awaited| typing("{}").mode(awaited)), [Mode::Instant, Mode::Message]);
        assert_eq!(typing("{}").every, Duration::from_secs(6));
        let said = typing(
            "{agents: {defaults: {typingMode: 'thinking', typingIntervalSeconds: 4}}, session: {typingMode: 'never', typingIntervalSeconds: 9}}",
        );
        assert_eq!(said, Typing { mode: Some(Mode::Never), every: Duration::from_secs(4) });
        assert_eq!(said.mode(true), Mode::Never);
    }

    #[test]
    fn a_wrong_word_is_told() {
        for (text, why) in [
            (
                "{session: {typingMode: 'always'}}",
                "session.typingMode must be one of never, instant, thinking, message",
            ),
            ("{agents: {defaults: {typingIntervalSeconds: 0}}}", "agents.defaults.typingIntervalSeconds"),
        ] {
            let told = Config::parse(text).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
