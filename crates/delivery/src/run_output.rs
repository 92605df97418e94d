//! Channel output of one run, on its way into the outbox.
//!
//! Blocks are queued while the run is active, the rest with its end. A block is reliable if neither it nor an earlier
//! block has failed: if one cannot be sent, it and those after it are withdrawn, and their text is sent with the rest
//! of the answer. The epilogue closes the output first, so that this is decided before the rest is computed.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homard_proto::{Route, RunId};
use homard_reply::{
    footer::ReplyPrefix,
    pace::BlockDelay,
    payload::{Kind, Payload, ReplyTo},
    thread::{ThreadMode, Threading},
};
use homard_store::{Delivery, DeliveryRow, DeliveryState, DeliveryTarget, ReplyDelivery};

use crate::{
    channel_sender::ChannelTraits,
    payload::{OutboxPayload, is_url, split_text},
    plan::attach_reply,
};

/// Reason for dropping a message of an aborted run.
pub const ABORTED: &str = "aborted";
/// Reason for dropping a withdrawn block.
const WITHDRAWN: &str = "taken back: it comes with the rest of the answer";

/// Why a medium with a URL is not sent with a reply.
const NO_WEB: &str = "web_fetch is not allowed here, so URLs are not loaded";
/// Why a file of the workspace is not sent with a reply.
const NO_FILES: &str = "files of the workspace are sent to the owner only";

/// True if a message was withdrawn by its run.
pub fn is_withdrawal(reason: &str) -> bool {
    reason == ABORTED || reason == WITHDRAWN
}

/// Channel output of one run.
#[derive(Debug)]
pub struct RunOutput {
    run: RunId,
    target: DeliveryTarget,
    thread: Option<String>,
    options: ReplyDelivery,
    traits: ChannelTraits,
    style: OutputStyle,
    inner: Mutex<RunOutputState>,
}

/// Formatting and media permissions of a run's messages.
#[derive(Debug, Clone, Default)]
pub struct OutputStyle {
    /// Prefix of every block.
    pub prefix: Option<ReplyPrefix>,
    /// Delay between two blocks.
    pub delay: BlockDelay,
    /// Directory of files that may be attached; `None` if none may.
    pub root: Option<PathBuf>,
    /// True if no URL may be loaded: neither media nor previews.
    pub is_offline: bool,
    /// True if the session is verbose.
    pub is_verbose: bool,
}

#[derive(Debug)]
struct RunOutputState {
    threading: Threading,
    /// Number of deliveries.
    parts: u32,
    /// Number of blocks, including those before a restart.
    blocks: u32,
    /// Number of blocks that are not on the run's tape, because they were withdrawn before a restart.
    missing: u32,
    /// Number of blocks with text of the answer.
    answer_blocks: usize,
    /// Number of the first withdrawn block, if one has failed: its text and that of all later blocks is sent with the
    /// rest of the answer.
    broken: Option<u32>,
    is_aborted: bool,
    is_closed: bool,
}

impl RunOutput {
    /// Opens the output of a run whose route has a recipient; `None` for any other.
    pub fn open(
        run: &RunId,
        route: &Route,
        options: ReplyDelivery,
        traits: ChannelTraits,
        style: OutputStyle,
    ) -> Option<Arc<Self>> {
        let (channel, to) = (route.channel.clone()?, route.to.clone()?);
        let target = DeliveryTarget { channel, account: route.account.clone().unwrap_or_default(), to };
        let threading = Threading::new(traits.replies, options.reply_to.clone());
        let threading = if traits.allows_tags { threading.with_tags() } else { threading };
        let inner = RunOutputState {
            threading,
            parts: 0,
            blocks: 0,
            missing: 0,
            answer_blocks: 0,
            broken: None,
            is_aborted: false,
            is_closed: false,
        };
        let (run, thread, inner) = (run.clone(), route.thread.clone(), Mutex::new(inner));
        Some(Arc::new(Self { run, target, thread, options, traits, style, inner }))
    }

    /// Returns the recipient.
    pub fn target(&self) -> &DeliveryTarget {
        &self.target
    }

    /// Returns the properties of the channel.
    pub fn traits(&self) -> &ChannelTraits {
        &self.traits
    }

    /// True if the session is verbose.
    pub fn is_verbose(&self) -> bool {
        self.style.is_verbose
    }

    /// True if tool calls are announced.
    pub fn announces_tools(&self) -> bool {
        self.style.is_verbose && self.options.reports_tools
    }

    /// Restores the run's deliveries from before a restart. Returns the reliable blocks.
    pub fn resume(&self, rows: &[DeliveryRow]) -> Vec<Payload> {
        let mut inner = self.lock();
        let mut reliable = Vec::new();
        for row in rows {
            let message = OutboxPayload::of(&row.delivery);
            inner.parts = inner.parts.max(row.delivery.part + 1);
            inner.blocks = inner.blocks.max(message.block.map_or(0, |block| block + 1));
            let Some(text) = message.original_text.filter(|_| !matches!(row.state, DeliveryState::Dead { .. })) else {
                continue;
            };
            let kind = if message.is_of_tool { Kind::Tool } else { Kind::Answer };
            reliable.push(Payload { kind, text, media: message.media, ..Payload::default() });
        }
        for payload in &reliable {
            inner.answer_blocks += usize::from(payload.kind == Kind::Answer);
            drop(inner.threading.apply(payload.clone()));
        }
        inner.missing = inner.blocks.saturating_sub(u32::try_from(reliable.len()).unwrap_or(u32::MAX));
        reliable
    }

    /// Builds the deliveries of a block; empty once blocks have failed. `random` is a random number.
    pub fn block(&self, payload: &Payload, at: u64, random: u64) -> Vec<Delivery> {
        let mut inner = self.lock();
        if inner.broken.is_some() || inner.is_aborted || inner.is_closed {
            return Vec::new();
        }
        let prefixed = match &self.style.prefix {
            Some(prefix) if payload.kind == Kind::Answer => prefix.apply(payload.clone()),
            Some(_) | None => payload.clone(),
        };
        let mut messages = self.payloads(&mut inner, prefixed);
        let block = inner.blocks;
        inner.blocks += 1;
        messages.iter_mut().for_each(|message| message.block = Some(block));
        if let Some(first) = messages.first_mut() {
            first.original_text = Some(payload.text.clone());
            first.is_of_tool = matches!(payload.kind, Kind::Tool | Kind::Notice);
            if payload.kind == Kind::Answer {
                let delay = self.style.delay.after(inner.answer_blocks, random);
                first.delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                inner.answer_blocks += 1;
            }
        }
        self.deliveries(&mut inner, &format!("b{block}"), messages, at)
    }

    /// Builds the deliveries of the final replies. Empty messages are left out.
    pub fn finals(&self, replies: impl IntoIterator<Item = Payload>, at: u64) -> Vec<Delivery> {
        let mut inner = self.lock();
        let mut queued = Vec::new();
        for (number, payload) in replies.into_iter().filter(|payload| !payload.is_empty()).enumerate() {
            let messages = self.payloads(&mut inner, payload);
            queued.extend(self.deliveries(&mut inner, &number.to_string(), messages, at));
        }
        queued
    }

    /// Builds a message about the run itself, which is not part of its answer. A run sends each notice name once.
    pub fn notice(&self, name: &str, text: &str, at: u64) -> Vec<Delivery> {
        let mut inner = self.lock();
        let messages = self.payloads(&mut inner, Payload { text: text.to_owned(), ..Payload::default() });
        self.deliveries(&mut inner, name, messages, at)
    }

    /// Converts a payload into messages that the channel accepts.
    fn payloads(&self, inner: &mut RunOutputState, payload: Payload) -> Vec<OutboxPayload> {
        let payload = self.sendable(inner.threading.apply(payload));
        let reply_id = match payload.reply_to {
            Some(ReplyTo::Id(id)) => Some(id),
            Some(ReplyTo::Current) | None => None,
        };
        let has_files = payload.media.iter().any(|media| !is_url(media));
        let mut media = Some((payload.media, self.style.root.clone().filter(|_| has_files)));
        let message = |(index, text)| {
            // A long reply is attached to its message once, unless all are.
            let reply_id = reply_id.clone().filter(|_| index == 0 || self.traits.replies == ThreadMode::All);
            let (reply_to, thread) = attach_reply(&self.traits, self.thread.clone(), reply_id);
            let (media, root) = media.take().unwrap_or_default();
            let (is_voice, is_best_effort) = (payload.is_voice, self.options.is_best_effort);
            let hides_previews = self.style.is_offline;
            OutboxPayload {
                text,
                media,
                root,
                reply_to,
                thread,
                is_voice,
                is_best_effort,
                hides_previews,
                ..OutboxPayload::default()
            }
        };
        split_text(payload.text, self.traits.text_limit).into_iter().enumerate().map(message).collect()
    }

    /// Removes media that may not be sent; the text names them.
    fn sendable(&self, mut payload: Payload) -> Payload {
        let refusal = |media: &str| match is_url(media) {
            true => self.style.is_offline.then_some(NO_WEB),
            false => self.style.root.is_none().then_some(NO_FILES),
        };
        for media in std::mem::take(&mut payload.media) {
            let Some(reason) = refusal(&media) else {
                payload.media.push(media);
                continue;
            };
            let gap = if payload.text.is_empty() { "" } else { "\n\n" };
            payload.text.push_str(&format!("{gap}({media} was not sent: {reason})"));
        }
        payload
    }

    fn deliveries(
        &self,
        inner: &mut RunOutputState,
        name: &str,
        messages: Vec<OutboxPayload>,
        at: u64,
    ) -> Vec<Delivery> {
        let delivery = |(index, message): (usize, OutboxPayload)| {
            let id = format!("{}/{name}.{index}", self.run);
            let part = inner.parts;
            inner.parts += 1;
            Delivery {
                key: id.clone(),
                id,
                run: Some(self.run.clone()),
                target: self.target.clone(),
                part,
                is_idempotent: self.traits.is_idempotent,
                payload: serde_json::to_value(message).unwrap_or_default(),
                at,
                is_immediate: false,
            }
        };
        messages.into_iter().enumerate().map(delivery).collect()
    }

    /// Marks blocks from this one on as failed: they are sent with the rest of the answer. Returns false, without
    /// effect, once the output is closed.
    pub fn break_at(&self, block: u32) -> bool {
        let mut inner = self.lock();
        if !inner.is_closed {
            inner.broken = Some(inner.broken.map_or(block, |broken| broken.min(block)));
        }
        !inner.is_closed
    }

    /// Aborts the output: messages that are not being sent yet are dropped.
    pub fn abort(&self) {
        self.lock().is_aborted = true;
    }

    /// Closes the output for blocks. Returns the number of reliable blocks on the tape, if not all.
    pub fn close(&self) -> Option<usize> {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.broken.map(|broken| broken.saturating_sub(inner.missing) as usize)
    }

    /// Returns the reason for dropping a queued block: [`ABORTED`] if the run was aborted, `WITHDRAWN` if the block
    /// or an earlier one has failed; `None` if it is to be sent.
    pub fn withdrawal(&self, block: u32) -> Option<&'static str> {
        let inner = self.lock();
        if inner.is_aborted { Some(ABORTED) } else { inner.broken.filter(|broken| block >= *broken).map(|_| WITHDRAWN) }
    }

    fn lock(&self) -> MutexGuard<'_, RunOutputState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homard_reply::footer::PrefixValues;

    use super::*;

    fn run_output(traits: ChannelTraits, thread: Option<&str>, style: OutputStyle) -> Arc<RunOutput> {
        let route = Route::new(Some("slack"), Some("C1"), None, thread);
        let options = ReplyDelivery { reply_to: Some("m1".to_owned()), ..ReplyDelivery::default() };
        RunOutput::open(&RunId::parse("k1").unwrap(), &route, options, traits, style).unwrap()
    }

    fn payloads_of(deliveries: &[Delivery]) -> Vec<OutboxPayload> {
        deliveries.iter().map(OutboxPayload::of).collect()
    }

    fn answers(texts: &[&str]) -> Vec<Payload> {
        texts.iter().map(|text| Payload::answer(*text)).collect()
    }

    fn rows(deliveries: &[Delivery]) -> Vec<DeliveryRow> {
        deliveries.iter().cloned().map(DeliveryRow::new).collect()
    }

    // Case 152.
    #[test]
    fn only_the_first_message_is_a_reply_in_first_mode() {
        let output = run_output(
            ChannelTraits { replies: ThreadMode::First, ..ChannelTraits::default() },
            None,
            OutputStyle::default(),
        );
        let sent = output.finals(answers(&["One.", "Two.", "Three."]), 7);
        let reply_ids: Vec<_> = payloads_of(&sent).into_iter().map(|payload| payload.reply_to).collect();
        assert_eq!(reply_ids, [Some("m1".to_owned()), None, None]);
        let names: Vec<_> = sent.iter().map(|delivery| (delivery.id.as_str(), delivery.part, delivery.at)).collect();
        assert_eq!(names, [("k1/0.0", 0, 7), ("k1/1.0", 1, 7), ("k1/2.0", 2, 7)]);
    }

    #[test]
    fn a_block_counts_as_the_first_reply() {
        let output = run_output(
            ChannelTraits { replies: ThreadMode::First, ..ChannelTraits::default() },
            None,
            OutputStyle::default(),
        );
        assert_eq!(payloads_of(&output.block(&Payload::answer("One."), 0, 0))[0].reply_to.as_deref(), Some("m1"));
        assert_eq!(payloads_of(&output.finals(answers(&["Two."]), 0))[0].reply_to, None);
    }

    #[test]
    fn a_long_answer_is_split_and_stays_in_its_thread() {
        let traits = ChannelTraits { text_limit: Some(12), threads_by_reply: true, ..ChannelTraits::default() };
        let output = run_output(traits, Some("1.5"), OutputStyle::default());
        let sent = payloads_of(&output.finals(answers(&["One and two.\n\nThree."]), 0));
        let expected = ["One and two.", "Three."].map(|text| OutboxPayload {
            text: text.to_owned(),
            reply_to: Some("1.5".to_owned()),
            ..OutboxPayload::default()
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn files_are_attached_only_if_the_run_may_read_them() {
        let payload = || Payload {
            media: vec!["./taxes.txt".to_owned(), "https://a.example/b.png".to_owned()],
            ..Payload::answer("Look.")
        };
        let root = Some(PathBuf::from("/home/main"));
        let open =
            run_output(ChannelTraits::default(), None, OutputStyle { root: root.clone(), ..OutputStyle::default() });
        let closed = run_output(ChannelTraits::default(), None, OutputStyle::default());
        let expected =
            OutboxPayload { text: "Look.".to_owned(), media: payload().media, root, ..OutboxPayload::default() };
        assert_eq!(payloads_of(&open.finals([payload()], 0)), [expected]);
        let expected = OutboxPayload {
            text: format!("Look.\n\n(./taxes.txt was not sent: {NO_FILES})"),
            media: vec!["https://a.example/b.png".to_owned()],
            ..OutboxPayload::default()
        };
        assert_eq!(payloads_of(&closed.finals([payload()], 0)), [expected]);
        let alone = Payload { media: vec!["taxes.txt".to_owned()], ..Payload::default() };
        let sent = payloads_of(&closed.block(&alone, 0, 0));
        assert_eq!(sent[0].text, format!("(taxes.txt was not sent: {NO_FILES})"));
        assert!(sent[0].media.is_empty() && sent[0].root.is_none());
    }

    #[test]
    fn a_run_without_web_access_sends_no_urls_as_media() {
        let output =
            run_output(ChannelTraits::default(), None, OutputStyle { is_offline: true, ..OutputStyle::default() });
        let media = vec!["https://evil.example/?d=1".to_owned()];
        let sent = payloads_of(&output.finals([Payload { media, ..Payload::answer("Look.") }], 0));
        let expected = OutboxPayload {
            text: format!("Look.\n\n(https://evil.example/?d=1 was not sent: {NO_WEB})"),
            hides_previews: true,
            ..OutboxPayload::default()
        };
        assert_eq!(sent, [expected]);
    }

    // Case 137.
    #[test]
    fn the_first_block_is_sent_at_once_and_later_ones_are_delayed() {
        let output = run_output(
            ChannelTraits::default(),
            None,
            OutputStyle { delay: BlockDelay::Natural, ..OutputStyle::default() },
        );
        let tool = Payload { kind: Kind::Tool, ..Payload::answer("read x") };
        let delays: Vec<_> = [Payload::answer("One."), tool, Payload::answer("Two."), Payload::answer("Three.")]
            .iter()
            .map(|payload| payloads_of(&output.block(payload, 0, 1700))[0].delay_ms)
            .collect();
        assert_eq!(delays, [0, 0, 2500, 2500]);
        assert_eq!(payloads_of(&output.finals(answers(&["Four."]), 0))[0].delay_ms, 0);
    }

    #[test]
    fn a_block_has_the_prefix_and_keeps_its_original_text() {
        let prefix = ReplyPrefix::new("[Pincer]", PrefixValues::default());
        let output = run_output(ChannelTraits::default(), None, OutputStyle { prefix, ..OutputStyle::default() });
        let sent = payloads_of(&output.block(&Payload::answer("One."), 0, 0));
        assert_eq!((sent[0].text.as_str(), sent[0].original_text.as_deref()), ("[Pincer] One.", Some("One.")));
    }

    // Case 135.
    #[test]
    fn blocks_after_a_failed_one_are_withdrawn() {
        let output = run_output(ChannelTraits::default(), None, OutputStyle::default());
        for text in ["One.", "Two.", "Three."] {
            output.block(&Payload::answer(text), 0, 0);
        }
        output.break_at(1);
        assert_eq!(output.block(&Payload::answer("Four."), 0, 0), []);
        assert_eq!([0, 1, 2].map(|block| output.withdrawal(block).is_some()), [false, true, true]);
        assert_eq!(output.close(), Some(1));
        output.break_at(0);
        assert_eq!(output.withdrawal(0), None, "the rest is on its way already");
    }

    #[test]
    fn an_aborted_output_sends_nothing_more() {
        let output = run_output(ChannelTraits::default(), None, OutputStyle::default());
        output.block(&Payload::answer("One."), 0, 0);
        output.abort();
        assert_eq!((output.withdrawal(0), output.block(&Payload::answer("Two."), 0, 0)), (Some("aborted"), vec![]));
    }

    #[test]
    fn after_a_restart_the_output_continues() {
        let first = run_output(
            ChannelTraits { replies: ThreadMode::First, ..ChannelTraits::default() },
            None,
            OutputStyle::default(),
        );
        let sent = [first.block(&Payload::answer("One."), 0, 0), first.block(&Payload::answer("Two."), 0, 0)];
        let mut stored = rows(&sent.concat());
        stored[1].state = DeliveryState::Dead { reason: "taken back".to_owned() };
        let second = run_output(
            ChannelTraits { replies: ThreadMode::First, ..ChannelTraits::default() },
            None,
            OutputStyle {
                delay: BlockDelay::Custom { min: Duration::from_millis(9), max: Duration::ZERO },
                ..OutputStyle::default()
            },
        );
        assert_eq!(second.resume(&stored), answers(&["One."]));
        let next = second.block(&Payload::answer("Three."), 0, 0);
        assert_eq!((next[0].id.as_str(), next[0].part), ("k1/b2.0", 2));
        assert_eq!((payloads_of(&next)[0].reply_to.clone(), payloads_of(&next)[0].delay_ms), (None, 9));
        second.break_at(2);
        assert_eq!(second.close(), Some(1), "the block on its tape from before");
    }
}
