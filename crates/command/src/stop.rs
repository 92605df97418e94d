//! Words that stop a session's runs.

/// Form of a stop command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopForm {
    /// `/stop`: always a command.
    Slash,
    /// A bare word such as `stop`: a command only during an active run, else an ordinary message.
    Word,
}

const STOP_WORDS: [&str; 6] = ["stop", "esc", "abort", "wait", "exit", "interrupt"];

impl StopForm {
    /// Parses a text that consists of a stop command only.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("/stop") {
            return Some(Self::Slash);
        }
        STOP_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)).then_some(Self::Word)
    }
}

/// Reply to a stop that a crash interrupted, if nothing was left to stop.
pub const AFTER_RESTART: &str = "Stopped. The gateway was restarted meanwhile.";

/// Builds the reply with the numbers of stopped runs, sub-agents and background commands.
pub fn reply(runs: usize, subagents: usize, commands: usize) -> String {
    let counted = [(runs, "run"), (subagents, "sub-agent"), (commands, "background command")];
    let counted = counted.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<_> = counted.map(|(n, noun)| format!("{n} {noun}{}", if n == 1 { "" } else { "s" })).collect();
    match &*parts {
        [] => "There was nothing to stop.".to_owned(),
        [all @ .., last] if !all.is_empty() => format!("Stopped {} and {last}.", all.join(", ")),
        [only, ..] => format!("Stopped {only}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_and_the_bare_words_are_told_apart() {
        for text in ["/stop", " /STOP\n"] {
            assert_eq!(StopForm::parse(text), Some(StopForm::Slash), "{text:?}");
        }
        for text in ["stop", "Esc", "ABORT", "wait", "\texit ", "interrupt"] {
            assert_eq!(StopForm::parse(text), Some(StopForm::Word), "{text:?}");
        }
        for text in ["", "/stop it", "/stopp", "stop!", "wait a moment", "/wait", "halt"] {
            assert_eq!(StopForm::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_reply_counts_what_was_stopped() {
        assert_eq!(reply(0, 0, 0), "There was nothing to stop.");
        assert_eq!(reply(1, 0, 0), "Stopped 1 run.");
        assert_eq!(reply(2, 1, 0), "Stopped 2 runs and 1 sub-agent.");
        assert_eq!(reply(0, 3, 0), "Stopped 3 sub-agents.");
        assert_eq!(reply(0, 0, 1), "Stopped 1 background command.");
        assert_eq!(reply(1, 1, 2), "Stopped 1 run, 1 sub-agent and 2 background commands.");
    }
}
