//! Threading: the message that a reply refers to on the chat platform.

use crate::payload::{Kind, Payload, ReplyTo};

/// Which replies refer to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThreadMode {
    /// None.
    #[default]
    Off,
    /// The first one of a run.
    First,
    /// All of them.
    All,
}

impl ThreadMode {
    /// Parses the setting `replyToMode`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "off" => Some(Self::Off),
            "first" => Some(Self::First),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

/// Threading of the replies of one run, blocks and final ones alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threading {
    mode: ThreadMode,
    /// Message that started the run, if the platform gave it an id.
    current: Option<String>,
    /// True if the model may name a message although the mode is off.
    allows_tags: bool,
    is_used: bool,
}

impl Threading {
    /// Creates the threading of a run that `current` started.
    pub fn new(mode: ThreadMode, current: Option<String>) -> Self {
        Self { mode, current, allows_tags: false, is_used: false }
    }

    /// Allows the model to name a message although the mode is off, for channels that support it.
    pub fn with_tags(self) -> Self {
        Self { allows_tags: true, ..self }
    }

    /// Sets or clears the id of the message that the next outgoing payload refers to.
    ///
    /// A notice refers to no message, so that it does not take the place of the first reply.
    pub fn apply(&mut self, payload: Payload) -> Payload {
        let named = payload.reply_to.clone();
        let target = match (payload.kind, self.mode) {
            (Kind::Notice, _) => None,
            (_, ThreadMode::Off) => named.filter(|_| self.allows_tags),
            (_, ThreadMode::First) if self.is_used => None,
            (_, ThreadMode::First | ThreadMode::All) => named.or(Some(ReplyTo::Current)),
        };
        self.is_used |= payload.kind != Kind::Notice;
        let id = match target {
            Some(ReplyTo::Id(id)) => Some(id),
            Some(ReplyTo::Current) => self.current.clone(),
            None => None,
        };
        Payload { reply_to: id.map(ReplyTo::Id), ..payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(mut threading: Threading, targets: [Option<ReplyTo>; 3]) -> Vec<Option<ReplyTo>> {
        let payloads = targets.map(|reply_to| Payload { reply_to, ..Payload::answer("x") });
        payloads.map(|payload| threading.apply(payload).reply_to).to_vec()
    }

    fn id(text: &str) -> Option<ReplyTo> {
        Some(ReplyTo::Id(text.to_owned()))
    }

    fn run(mode: ThreadMode) -> Threading {
        Threading::new(mode, Some("m1".to_owned()))
    }

    #[test]
    fn off_drops_ids_unless_the_channel_allows_tags() {
        let targets = [Some(ReplyTo::Current), None, id("m0")];
        assert_eq!(ids(run(ThreadMode::Off), targets.clone()), [None, None, None]);
        assert_eq!(ids(run(ThreadMode::Off).with_tags(), targets), [id("m1"), None, id("m0")]);
    }

    // Case 152.
    #[test]
    fn first_gives_an_id_to_the_first_payload_only() {
        assert_eq!(ids(run(ThreadMode::First), [None, Some(ReplyTo::Current), id("m0")]), [id("m1"), None, None]);
        assert_eq!(ids(run(ThreadMode::First), [id("m0"), None, None]), [id("m0"), None, None]);
    }

    #[test]
    fn all_gives_an_id_to_every_payload() {
        assert_eq!(ids(run(ThreadMode::All), [None, id("m0"), None]), [id("m1"), id("m0"), id("m1")]);
    }

    #[test]
    fn without_a_message_id_only_named_ids_are_used() {
        let no_id = Threading::new(ThreadMode::All, None);
        assert_eq!(ids(no_id, [None, Some(ReplyTo::Current), id("m0")]), [None, None, id("m0")]);
    }

    #[test]
    fn a_notice_does_not_take_the_place_of_the_first_reply() {
        let mut threading = run(ThreadMode::First);
        let notice = Payload { kind: Kind::Notice, ..Payload::answer("new session") };
        assert_eq!(threading.apply(notice.clone()), notice);
        assert_eq!(threading.apply(Payload::answer("x")).reply_to, id("m1"));
    }

    #[test]
    fn modes_are_parsed_from_config_values() {
        let read = ["off", " First", "ALL", "some"].map(ThreadMode::parse);
        assert_eq!(read, [Some(ThreadMode::Off), Some(ThreadMode::First), Some(ThreadMode::All), None]);
    }
}
