//! News of conversations: what was said in them, for clients that follow what is said.
//!
//! A tape tells that something was stored, not where it stands in the conversation. That is read from the transcript, once
//! for all that was said in a moment, and only if somebody follows: a run that nobody follows costs a look at a number.

use std::{sync::Arc, time::Duration};

use homard_agent::{Hub, RunEvent, task};
use homard_proto::{
    EntryId, Generation, SessionKey,
    message::{Message, ToolResult},
    session::Record,
};
use serde_json::{Value, json};
use tokio::{sync::mpsc::Receiver, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    changes::AtWork,
    methods::chat::history::{Shown, show_lines},
    projector::Projector,
};

/// How many messages may wait to be told. Of more, those who follow hear when they read the conversation.
pub(crate) const WAITING: usize = 1024;

/// How long is waited for more.
const MOMENT: Duration = Duration::from_millis(50);

/// How much longer than reading took nothing is read: long conversations are told of less often, not at a higher price.
const REST: u32 = 9;

/// What of a conversation the clients are told that follow what is said in it.
const ADDRESS: [&str; 3] = ["lastChannel", "lastTo", "lastAccountId"];

/// Something that was said and is stored, as far as a tape tells.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// This message.
    Message(Arc<Message>),
    /// What is on this line.
    Line(EntryId),
    /// This answer of a tool.
    Answer(Arc<ToolResult>),
}

impl Said {
    /// What an event tells, if it tells of something that was said.
    pub(crate) fn of(event: &RunEvent) -> Option<Self> {
        match event {
            RunEvent::Input(message) => Some(Self::Message(message.clone())),
            RunEvent::Assistant { entry, .. } => Some(Self::Line(entry.clone())),
            RunEvent::ToolEnded { result, .. } => Some(Self::Answer(result.clone())),
            RunEvent::Started { .. }
            | RunEvent::Waited(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::Asking(_)
            | RunEvent::Heard
            | RunEvent::Discarded { .. }
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::Switched { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Hooked(_)
            | RunEvent::Compacting
            | RunEvent::Compacted { .. }
            | RunEvent::NotCompacted { .. }
            | RunEvent::Block(_)
            | RunEvent::Ended(_) => None,
        }
    }

    /// Whether it is this one.
    fn is(&self, (id, message): &(EntryId, Arc<Message>)) -> bool {
        match self {
            Self::Message(said) => said == message,
            Self::Line(line) => line == id,
            Self::Answer(said) => matches!(&**message, Message::ToolResult(answer) if *answer == **said),
        }
    }
}

/// Tells those who follow what is said, for as long as the handle lives.
pub(crate) fn tell(hub: Hub, projector: Projector, mut said: Receiver<(SessionKey, Said)>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(task::spawn("message news", async move {
        let mut rest = MOMENT;
        while let Some((key, first)) = said.recv().await {
            tokio::time::sleep(rest).await;
            let mut all = vec![(key, vec![first])];
            while let Ok((key, next)) = said.try_recv() {
                match all.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, said)) => said.push(next),
                    None => all.push((key, vec![next])),
                }
            }
            let begun = Instant::now();
            for (key, said) in all {
                if projector.is_followed() {
                    tell_of(&hub, &projector, &key, &said).await;
                }
            }
            rest = MOMENT.max(begun.elapsed() * REST);
        }
    }))
}

async fn tell_of(hub: &Hub, projector: &Projector, key: &SessionKey, said: &[Said]) {
    let (record, lines) = match hub.history_lines(key).await {
        Ok(Some(found)) => found,
        // It was deleted meanwhile.
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, session = %key, "what was said in a session is not told"),
    };
    let mut places: Vec<usize> = said.iter().filter_map(|said| lines.iter().rposition(|line| said.is(line))).collect();
    places.sort_unstable();
    places.dedup();
    let row = AtWork::now(hub).row(key, &record, Generation::Four);
    for message in show_lines(&lines, &places) {
        projector.tell_said(key.clone(), &payload(key, message, (&record, &row)));
    }
}

fn payload(key: &SessionKey, shown: Shown, (record, row): (&Record, &Value)) -> Value {
    let mut payload = json!({
        "sessionKey": key, "agentId": key.agent(), "message": shown.message, "messageId": shown.id,
        "messageSeq": shown.seq, "sessionId": record.session_id, "updatedAt": record.updated_at, "session": row,
    });
    if let Some(run) = shown.run {
        payload["runId"] = run.into();
    }
    for name in ADDRESS {
        if !row[name].is_null() {
            payload[name] = row[name].clone();
        }
    }
    payload
}
