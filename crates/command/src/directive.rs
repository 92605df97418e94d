//! `/queue`: alone it changes the session, within a longer message it applies to that message.

use std::{fmt, time::Duration};

use homard_queue::settings::{DropPolicy, MAX_DEBOUNCE, QueueMode, QueueOverrides, QueueSettings, resolve};

use super::{CommandResult, StatusInput, command_arguments, quoted};

/// A `/queue` command on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueCommand {
    /// Shows the current settings.
    Show,
    /// Sets these values for the session.
    Set(QueueOverrides),
    /// Clears the session's own settings.
    Reset,
    /// Invalid; one line for each mistake.
    Invalid(Vec<String>),
}

impl QueueCommand {
    /// True if it changes the session's settings.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Self::Set(_) | Self::Reset => true,
            Self::Show | Self::Invalid(_) => false,
        }
    }
}

/// Queue settings within a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InlineQueue {
    /// None: those of the session apply.
    #[default]
    Nothing,
    /// These values.
    Set(QueueOverrides),
    /// The session's settings are ignored.
    Reset,
}

impl fmt::Display for InlineQueue {
    /// Formats the arguments of `/queue`; empty if there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Set(overrides) => overrides.fmt(f),
            Self::Reset => f.write_str("reset"),
        }
    }
}

impl InlineQueue {
    /// Parses the arguments of `/queue`: the inverse of [`Display`](fmt::Display).
    pub fn parse(arguments: &str) -> Self {
        match QueueArgs::read(arguments) {
            QueueArgs { is_reset: true, .. } => Self::Reset,
            QueueArgs { overrides, .. } if overrides == QueueOverrides::default() => Self::Nothing,
            QueueArgs { overrides, .. } => Self::Set(overrides),
        }
    }

    /// Returns the effective settings of the message. See [`resolve`].
    pub fn settings(
        &self,
        session: &QueueOverrides,
        channel: &QueueOverrides,
        config: &QueueOverrides,
    ) -> QueueSettings {
        let none = QueueOverrides::default();
        match self {
            Self::Nothing => resolve(&none, session, channel, config),
            Self::Set(overrides) => resolve(overrides, session, channel, config),
            Self::Reset => resolve(&none, &none, channel, config),
        }
    }
}

/// A `/queue` found in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueDirective {
    /// The message contains nothing else, or the arguments are invalid, so that the message is not processed.
    Alone(QueueCommand),
    /// The message contains other text: the queue settings for it, and that text.
    Within(InlineQueue, String),
}

/// Finds the first `/queue` with arguments, at the beginning of a text or after whitespace. In the middle of a sentence
/// the bare word has no effect.
pub(super) fn find(text: &str) -> Option<QueueDirective> {
    text.match_indices('/').find_map(|(offset, _)| {
        let (before, rest) = text.split_at(offset);
        let is_word = before.is_empty() || before.ends_with(char::is_whitespace);
        let arguments = command_arguments(rest, "/queue").filter(|_| is_word)?;
        QueueArgs::read(arguments).interpret(before)
    })
}

/// Parsed arguments of `/queue`.
#[derive(Debug, Default)]
struct QueueArgs<'a> {
    overrides: QueueOverrides,
    is_reset: bool,
    errors: Vec<String>,
    /// Text after the last argument.
    rest: &'a str,
}

impl<'a> QueueArgs<'a> {
    fn read(arguments: &'a str) -> Self {
        let mut args = Self { rest: arguments, ..Self::default() };
        while !args.is_reset {
            let rest = args.rest.trim_start();
            let (word, rest) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            if !args.parse_word(word) {
                break;
            }
            args.rest = rest;
        }
        args
    }

    /// Parses a word. A second mode is not accepted: the message that follows may begin with such a word.
    fn parse_word(&mut self, argument: &str) -> bool {
        if let Some((name, value)) = argument.split_once([':', '=']) {
            return self.parse_option(&name.to_lowercase(), value);
        }
        if ["default", "reset", "clear"].iter().any(|known| argument.eq_ignore_ascii_case(known)) {
            self.is_reset = true;
            return true;
        }
        let mode = QueueMode::parse(argument).filter(|_| self.overrides.mode.is_none());
        self.overrides.mode = mode.or(self.overrides.mode);
        mode.is_some()
    }

    fn parse_option(&mut self, name: &str, value: &str) -> bool {
        let error = match name {
            "debounce" => {
                self.overrides.debounce = duration(value);
                self.overrides
                    .debounce
                    .is_none()
                    .then_some("not a debounce time: use a duration such as 500ms, 2s or 1m")
            }
            "cap" => {
                self.overrides.cap = number(value).map(|cap| cap as usize).filter(|cap| *cap > 0);
                self.overrides.cap.is_none().then_some("not a cap: use a number of messages, at least 1")
            }
            "drop" => {
                self.overrides.drop = DropPolicy::parse(value);
                self.overrides.drop.is_none().then_some("not a drop rule: choose old, new or summarize")
            }
            _ => return false,
        };
        self.errors.extend(error.map(|error| format!("{} is {error}.", quoted(value))));
        true
    }

    /// Interprets the arguments after this text; `None` if it is not a directive.
    fn interpret(self, before: &str) -> Option<QueueDirective> {
        let is_first = before.trim().is_empty();
        let is_alone = is_first && self.rest.trim().is_empty();
        if !self.errors.is_empty() {
            let mut lines = self.errors;
            lines.extend(
                (!is_alone).then(|| "Your message was not processed; correct it and send it again.".to_owned()),
            );
            return Some(QueueDirective::Alone(QueueCommand::Invalid(lines)));
        }
        if !self.is_reset && self.overrides == QueueOverrides::default() {
            let unknown = self.rest.split_whitespace().next();
            let command = unknown.map_or(QueueCommand::Show, |word| {
                let modes = QueueMode::ALL.map(QueueMode::name).join(", ");
                QueueCommand::Invalid(vec![format!("{} is not a queue mode: choose one of {modes}.", quoted(word))])
            });
            return is_first.then_some(QueueDirective::Alone(command));
        }
        Some(match (is_alone, self.is_reset) {
            (true, true) => QueueDirective::Alone(QueueCommand::Reset),
            (true, false) => QueueDirective::Alone(QueueCommand::Set(self.overrides)),
            (false, true) => QueueDirective::Within(InlineQueue::Reset, joined(before, self.rest)),
            (false, false) => QueueDirective::Within(InlineQueue::Set(self.overrides), joined(before, self.rest)),
        })
    }
}

/// Joins the text before and after a removed directive: of the whitespace between them only the larger break is kept,
/// and every other byte is unchanged.
fn joined(before: &str, after: &str) -> String {
    let (head, tail) = (before.trim_end(), after.trim_start());
    let lines = |blank: &str| blank.matches('\n').count();
    let (left, right) = (&before[head.len()..], &after[..after.len() - tail.len()]);
    let between = match (lines(left), lines(right)) {
        _ if head.is_empty() || tail.is_empty() => "",
        (0, 0) => " ",
        (left_lines, right_lines) if left_lines > right_lines => left,
        _ => right,
    };
    [head, between, tail].concat()
}

/// Parses a decimal number.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| is_plain)
}

/// Parses a duration with its unit; milliseconds without one.
fn duration(text: &str) -> Option<Duration> {
    let (amount, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit.to_lowercase().as_str() {
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let duration = Duration::from_millis((number(amount)? * unit).round() as u64);
    (duration <= MAX_DEBOUNCE).then_some(duration)
}

impl QueueCommand {
    /// Returns the changes to the session and the reply.
    pub(super) fn change(&self, input: &StatusInput<'_>) -> CommandResult {
        match self {
            Self::Show => {
                let modes = QueueMode::ALL.map(QueueMode::name).join(", ");
                let rules = DropPolicy::ALL.map(DropPolicy::name).join("|");
                CommandResult::reply_only(format!(
                    "Queue: {}\nModes: {modes}\nOptions: debounce:<time, such as 500ms, 2s or 1m> cap:<messages> \
                     drop:{rules}\n/queue default removes this session's own settings.",
                    input.queue
                ))
            }
            Self::Set(overrides) => {
                CommandResult { fields: overrides.fields(), reply: format!("Queue of this session: {overrides}") }
            }
            Self::Reset => CommandResult {
                fields: QueueOverrides::CLEARED.to_vec(),
                reply: "Removed this session's own queue settings; the defaults apply.".to_owned(),
            },
            Self::Invalid(lines) => CommandResult::reply_only(lines.join("\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*, sample::select};
    use serde_json::json;

    use super::*;
    use crate::tests::TestSession;

    /// Arbitrary settings.
    fn overrides() -> impl Strategy<Value = QueueOverrides> {
        let debounce = (0..=MAX_DEBOUNCE.as_millis() as u64).prop_map(Duration::from_millis);
        let parts = (
            option::of(select(QueueMode::ALL.to_vec())),
            option::of(debounce),
            option::of(1..1_000_000_000_usize),
            option::of(select(DropPolicy::ALL.to_vec())),
        );
        parts.prop_map(|(mode, debounce, cap, drop)| QueueOverrides { mode, debounce, cap, drop })
    }

    fn set(overrides: QueueOverrides) -> Option<QueueDirective> {
        Some(QueueDirective::Alone(QueueCommand::Set(overrides)))
    }

    fn mode(mode: QueueMode) -> QueueOverrides {
        QueueOverrides { mode: Some(mode), ..QueueOverrides::default() }
    }

    fn wrong(lines: &[&str]) -> Option<QueueDirective> {
        Some(QueueDirective::Alone(QueueCommand::Invalid(lines.iter().map(|line| (*line).to_owned()).collect())))
    }

    #[test]
    fn a_queue_command_alone_applies_to_the_session() {
        let all = QueueOverrides {
            mode: Some(QueueMode::Collect),
            debounce: Some(Duration::from_secs(2)),
            cap: Some(25),
            drop: Some(DropPolicy::Old),
        };
        assert_eq!(find("/queue collect debounce:2s cap:25 drop:old"), set(all));
        assert_eq!(find(" /queue DROP=Oldest cap=25.9\nCOALESCE Debounce=2000 "), set(all));
        assert_eq!(find("/QUEUE interrupt"), set(mode(QueueMode::Interrupt)));
        for text in ["/queue:followup", "/queue: followup", "/queue :follow-ups"] {
            assert_eq!(find(text), set(mode(QueueMode::Followup)), "{text}");
        }
        for text in ["/queue default", "/queue Reset", "/queue cap:3 clear"] {
            assert_eq!(find(text), Some(QueueDirective::Alone(QueueCommand::Reset)), "{text}");
        }
        for text in ["/queue", "/Queue:", "\t/queue\n"] {
            assert_eq!(find(text), Some(QueueDirective::Alone(QueueCommand::Show)), "{text:?}");
        }
    }

    #[test]
    fn a_queue_directive_within_a_message_applies_to_it_and_is_removed() {
        for (text, inline, rest) in [
            ("hey /queue steer please", InlineQueue::Set(mode(QueueMode::Steer)), "hey please"),
            ("/queue interrupt Look  here", InlineQueue::Set(mode(QueueMode::Interrupt)), "Look  here"),
            ("look here\n/QUEUE:queued", InlineQueue::Set(mode(QueueMode::Steer)), "look here"),
            ("/queue reset now", InlineQueue::Reset, "now"),
            ("/queue steer abort that", InlineQueue::Set(mode(QueueMode::Steer)), "abort that"),
            (
                "if x:\n  /queue collect\n    y\n\n  z",
                InlineQueue::Set(mode(QueueMode::Collect)),
                "if x:\n    y\n\n  z",
            ),
            ("a\n\n/queue collect b", InlineQueue::Set(mode(QueueMode::Collect)), "a\n\nb"),
            ("no /queue here, but /queue collect", InlineQueue::Set(mode(QueueMode::Collect)), "no /queue here, but"),
        ] {
            assert_eq!(find(text), Some(QueueDirective::Within(inline, rest.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        let times = ["0", "250", "250ms", "1.5s", "2M", "1h", "365d"];
        let millis = [0, 250, 250, 1_500, 120_000, 3_600_000, 31_536_000_000];
        assert_eq!(times.map(duration), millis.map(|ms| Some(Duration::from_millis(ms))));
        for text in ["", "s", "-1", "1w", "1 s", "1e3", "inf", "1.2.3s", "366d", "1sm", "٣s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn each_invalid_queue_option_is_reported() {
        let modes = "choose one of steer, followup, collect, steer-backlog, interrupt.";
        assert_eq!(find("/queue bogus"), wrong(&[&format!("\"bogus\" is not a queue mode: {modes}")]));
        assert_eq!(find("/queue the:photos now"), wrong(&[&format!("\"the:photos\" is not a queue mode: {modes}")]));
        assert_eq!(find("/queue cap:0"), wrong(&["\"0\" is not a cap: use a number of messages, at least 1."]));
        assert_eq!(
            find("/queue collect debounce:soon cap:x drop: "),
            wrong(&[
                "\"soon\" is not a debounce time: use a duration such as 500ms, 2s or 1m.",
                "\"x\" is not a cap: use a number of messages, at least 1.",
                "\"\" is not a drop rule: choose old, new or summarize.",
            ])
        );
        assert_eq!(
            find("go on /queue drop=all"),
            wrong(&[
                "\"all\" is not a drop rule: choose old, new or summarize.",
                "Your message was not processed; correct it and send it again.",
            ])
        );
    }

    #[test]
    fn queue_without_arguments_in_a_sentence_is_plain_text() {
        for text in ["what is /queue", "hey /queue bogus", "a/queue collect", "/queues collect", "//queue collect", ""]
        {
            assert_eq!(find(text), None, "{text:?}");
        }
    }

    #[test]
    fn queue_settings_are_stored_and_confirmed() {
        let session = TestSession::new(json!({}));
        assert_eq!(
            session.execute("/queue coalesce debounce:2s cap:25 drop:oldest"),
            (
                json!({"queueMode": "collect", "queueDebounceMs": 2000, "queueCap": 25, "queueDrop": "old"}),
                "Queue of this session: collect debounce:2000ms cap:25 drop:old".to_owned()
            )
        );
        assert_eq!(
            session.execute("/queue cap:3"),
            (json!({"queueCap": 3}), "Queue of this session: cap:3".to_owned())
        );
        assert_eq!(
            session.execute("/queue default"),
            (
                json!({"queueMode": null, "queueDebounceMs": null, "queueCap": null, "queueDrop": null}),
                "Removed this session's own queue settings; the defaults apply.".to_owned()
            )
        );
    }

    #[test]
    fn showing_or_invalid_queue_commands_change_nothing() {
        let session = TestSession::new(json!({}));
        let status = "Queue: steer debounce:500ms cap:20 drop:summarize\n\
                      Modes: steer, followup, collect, steer-backlog, interrupt\n\
                      Options: debounce:<time, such as 500ms, 2s or 1m> cap:<messages> drop:old|new|summarize\n\
                      /queue default removes this session's own settings.";
        assert_eq!(session.execute("/queue"), (json!({}), status.to_owned()));
        let mistakes = "\"0\" is not a cap: use a number of messages, at least 1.\n\
                        \"x\" is not a drop rule: choose old, new or summarize.";
        assert_eq!(session.execute("/queue collect cap:0 drop:x"), (json!({}), mistakes.to_owned()));
    }

    proptest! {
        #[test]
        fn formatted_overrides_can_be_parsed(
            expected in overrides().prop_filter("asks", |expected| *expected != QueueOverrides::default()),
        ) {
            prop_assert_eq!(find(&format!("/queue {expected}")), set(expected));
            let within = Some(QueueDirective::Within(InlineQueue::Set(expected), "a  b c  d".to_owned()));
            prop_assert_eq!(find(&format!("a  b \t/queue  {expected}  c  d")), within);
        }
    }
}
