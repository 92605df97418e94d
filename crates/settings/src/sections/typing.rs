//! When a typing indicator is shown in a chat.

use std::time::Duration;

use super::{agents::Defaults, session::Session};

/// Default refresh interval in seconds.
const DEFAULT_INTERVAL_SECS: u64 = 6;

/// When the indicator is first shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Never,
    /// When the run starts.
    Instant,
    /// When the model is reasoning.
    Thinking,
    /// With the first text, or when a tool runs.
    Message,
}

super::word::words! {
    Mode:
        "never" => Self::Never, "instant" => Self::Instant, "thinking" => Self::Thinking, "message" => Self::Message;
}

/// Settings of the typing indicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Typing {
    /// When it is first shown; `None` for a default that depends on the chat.
    pub mode: Option<Mode>,
    /// Refresh interval.
    pub every: Duration,
}

impl Typing {
    /// Merges both sections: `session` takes precedence for the mode, `agents.defaults` for the interval.
    pub fn of(defaults: &Defaults, session: &Session) -> Self {
        let mode = session.typing_mode.or(defaults.typing_mode).map(|word| word.0);
        let seconds =
            defaults.typing_interval_seconds.or(session.typing_interval_seconds).unwrap_or(DEFAULT_INTERVAL_SECS);
        Self { mode, every: Duration::from_secs(seconds) }
    }

    /// Returns when it is first shown: at the start of the run if the sender expects a reply, else with the first text.
    pub fn mode(self, is_awaited: bool) -> Mode {
        self.mode.unwrap_or(if is_awaited { Mode::Instant } else { Mode::Message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn typing(text: &str) -> Typing {
        let config = Config::parse(text).unwrap();
        Typing::of(&config.agents.defaults, &config.session)
    }

    #[test]
    fn typing_starts_at_once_in_direct_chats_by_default() {
        assert_eq!([true, false].map(|is_awaited| typing("{}").mode(is_awaited)), [Mode::Instant, Mode::Message]);
        assert_eq!(typing("{}").every, Duration::from_secs(6));
        let configured = typing(
            "{agents: {defaults: {typingMode: 'thinking', typingIntervalSeconds: 4}}, session: {typingMode: 'never', typingIntervalSeconds: 9}}",
        );
        assert_eq!(configured, Typing { mode: Some(Mode::Never), every: Duration::from_secs(4) });
        assert_eq!(configured.mode(true), Mode::Never);
    }

    #[test]
    fn an_invalid_typing_mode_is_rejected() {
        for (text, expected) in [
            (
                "{session: {typingMode: 'always'}}",
                "session.typingMode must be one of never, instant, thinking, message",
            ),
            ("{agents: {defaults: {typingIntervalSeconds: 0}}}", "agents.defaults.typingIntervalSeconds"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
