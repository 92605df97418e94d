//! The lane's cached session, and the admission of messages into it.

use std::sync::Arc;

use homard_command::Command;
use homard_delivery::plan::set_last_route;
use homard_model::ModelSpec;
use homard_prompt::notes;
use homard_proto::{
    Extra, SessionId, SessionKey,
    message::Message,
    session,
    transcript::{Entry, Kind, ModelChange},
};
use homard_queue::slots::RunClass;
use homard_runtime::{Ambient, ambient::iso};
use homard_store::{Accept, Error as StoreError, OnRestart, Options, Rec, RunRow, branch};
use serde_json::json;

use super::{
    Lane, Ticket,
    hooks::{ResetCause, TranscriptChange, before_reset},
    mutations::record_for_new_transcript,
    prelude,
};
use crate::{
    auto_reset::{AutoReset, SessionUse},
    context::background::{self, CommandOrigin},
    history::SessionHistory,
    hub::{Admission, Inbound},
    profile::Profile,
    run::session_stats::SessionStats,
    tool::RunOrigin,
};

/// The lane's cached session.
pub(super) struct OpenSession {
    pub(super) record: session::Record,
    /// True if the record is neither on disk nor queued for the writer.
    is_new: bool,
    pub(super) history: SessionHistory,
    /// True if the transcript is marked as needing a leading user turn for its provider.
    pub(super) has_prelude_mark: bool,
    /// History that a new thread inherits from its parent session, until its first run starts.
    pub(super) inherited: Option<InitialHistory>,
    /// Statistics that runs collected for the session.
    pub(super) stats: SessionStats,
    /// Set if the transcript is new and the hooks have not been fired.
    pub(super) transcript_change: Option<TranscriptChange>,
}

/// Initial history of a new session.
pub(super) struct InitialHistory {
    /// Id of the session it comes from, if any.
    pub(super) from: Option<SessionId>,
    pub(super) entries: Vec<Entry>,
}

impl Lane {
    /// Loads the session if it is not cached.
    pub(super) async fn open(&mut self) -> Result<(), StoreError> {
        if self.session.is_none() {
            self.session = self.hub.store.load(&self.key).await?.map(OpenSession::from);
        }
        Ok(())
    }

    /// Builds the records that accept a message, or rejects it.
    pub(super) async fn build_acceptance(&mut self, mut ticket: Ticket, is_idle: bool) -> Option<Ticket> {
        let at = ticket.tape.accepted_at();
        if let Some(rejection) = self.rejection(&ticket.inbound, at, is_idle).await {
            self.hub.forget(&ticket.tape);
            ticket.tape.mark_rejected();
            ticket.acceptance.decide(rejection);
            return None;
        }
        if self.is_stale_for(&ticket.inbound, at) {
            before_reset(self, "idle", ResetCause::Stale).await;
        }
        if let Err(error) = self.open_named(&ticket.inbound, at).await {
            self.hub.forget(&ticket.tape);
            ticket.tape.mark_rejected();
            ticket.acceptance.decide(Admission::Failed(error));
            return None;
        }
        let inbound = &ticket.inbound;
        let (ambient, rules) = (&self.hub.ambient, self.hub.config.rules());
        let profile = self.hub.config.agents().of(self.key.agent());
        let session = self.session.get_or_insert_with(|| OpenSession::new(ambient.session_id(), at));
        let expect = (!std::mem::take(&mut session.is_new)).then(|| session.record.session_id.clone());
        let before = session.record.clone();
        // Here and not at the run's start, because the message itself makes the session fresh, and a restart must keep
        // the decision. An active run finishes in the transcript it started in.
        if expect.is_some() && session.is_stale_for(inbound, &self.key, &rules.auto_reset, at) {
            session.start_transcript(ambient.session_id(), at, "idle");
        }
        session.apply_message(inbound, &profile, &rules.auto_reset, at);
        let accept = Accept {
            run: inbound.id.run.clone(),
            principal: inbound.sender.principal.clone(),
            method: inbound.sender.method.clone(),
            fingerprint: inbound.id.fingerprint.clone(),
            key: self.key.clone(),
            message: Message::User(inbound.message.clone()),
            options: options(inbound),
            origin: inbound.id.origin.clone(),
            at,
        };
        // A record in which only the time of use has changed is not written here, but with the end of the run.
        let has_changes = before != session::Record { updated_at: before.updated_at, ..session.record.clone() };
        let patch = (expect.is_none() || has_changes).then(|| {
            let (run, record) = (Some(inbound.id.run.clone()), Box::new(session.record.clone()));
            Rec::Patch { run, key: self.key.clone(), expect, record }
        });
        ticket.acceptance.build(Rec::Accept(Box::new(accept)), patch);
        Some(ticket)
    }

    /// True if a message starts a new transcript because the session's is stale.
    fn is_stale_for(&self, inbound: &Inbound, at: u64) -> bool {
        let rules = self.hub.config.rules();
        let session = self.session.as_ref().filter(|session| !session.is_new);
        session.is_some_and(|session| session.is_stale_for(inbound, &self.key, &rules.auto_reset, at))
    }

    /// Returns why a message is rejected before it is stored.
    ///
    /// The store detects a reused run id when the message is stored. But a message that also changes the session must
    /// change nothing if it is rejected, so in that case the store is queried first.
    async fn rejection(&mut self, inbound: &Inbound, at: u64, is_idle: bool) -> Option<Admission> {
        if let Err(error) = self.open().await {
            return Some(Admission::Failed(error));
        }
        if let Some(expected) = &inbound.session.expected
            && self.session.as_ref().is_none_or(|session| session.record.session_id != *expected)
        {
            // A request that was accepted before is the same one, whatever happened to its session since.
            return Some(match self.known_admission(inbound).await {
                Some(known) => known,
                None => Admission::SessionChanged,
            });
        }
        let session = self.session.as_ref()?;
        if session.is_closed() {
            return Some(Admission::Blocked);
        }
        // A wake must be the next run and have a pending report: see `hub/background.rs`.
        if inbound.is_wake() && !(is_idle && background::pending_reports(&session.record).is_some()) {
            return Some(Admission::Blocked);
        }
        let is_stale = session.is_stale_for(inbound, &self.key, &self.hub.config.rules().auto_reset, at);
        // Commands with an immediate effect, such as a stop, must not be repeated for a retry.
        if inbound.command.is_none() && (is_idle || !(is_stale || inbound.has_settings())) {
            return None;
        }
        self.known_admission(inbound).await
    }

    /// Returns the admission of a message whose run id the store knows.
    async fn known_admission(&self, inbound: &Inbound) -> Option<Admission> {
        match self.hub.store.run(&inbound.id.run).await {
            Ok(Some(row)) if inbound.is_same_request(&row) => Some(Admission::Duplicate(Box::new(row))),
            Ok(Some(_)) => Some(Admission::Conflict),
            Ok(None) => None,
            Err(error) => Some(Admission::Failed(error)),
        }
    }

    /// Loads the session for a run that starts, with its initial history.
    ///
    /// A session that was deleted since the message was accepted is created again, except for a resumed run, which
    /// needs the transcript it started in. A run that was held and released (`reentry`) does not: it continues in the
    /// current transcript of its session.
    pub(super) async fn open_for(&mut self, ticket: &Ticket) -> Result<(), StoreError> {
        self.open().await?;
        if !ticket.is_resumed || ticket.reentry.is_some() {
            let at = self.hub.ambient.now_ms();
            self.open_named(&ticket.inbound, at).await?;
            self.session.get_or_insert_with(|| OpenSession::new(self.hub.ambient.session_id(), at));
        }
        self.inherit(ticket).await
    }

    /// Creates the session of a message that names a transcript, if the lane's key has no session yet. The earlier
    /// messages of that transcript, under any key, are its history.
    async fn open_named(&mut self, inbound: &Inbound, at: u64) -> Result<(), StoreError> {
        if let (None, Some(id)) = (&self.session, &inbound.session.transcript) {
            let entries = self.hub.store.live_transcript(&self.key, id).await?;
            self.session = Some(OpenSession::continuing(id.clone(), &entries, at));
        }
        Ok(())
    }

    /// Sets the initial history of an empty session: the one that was sent with the message, else, in a thread, that of
    /// the parent session. A command inherits none from the parent. A resumed run did this when it first started.
    async fn inherit(&mut self, ticket: &Ticket) -> Result<(), StoreError> {
        let has_history = |session: &OpenSession| !session.history.is_empty();
        if let Some(session) = self.session.as_mut().filter(|session| !has_history(session) && !ticket.is_resumed) {
            session.set_history(&ticket.inbound.session.history, &self.hub.ambient, self.hub.ambient.now_ms());
        }
        let Some(parent) = self.key.thread_parent() else { return Ok(()) };
        if ticket.is_resumed || ticket.inbound.command.is_some() || self.session.as_ref().is_none_or(has_history) {
            return Ok(());
        }
        if let (Some(parent), Some(session)) = (self.hub.store.load(&parent).await?, &mut self.session) {
            let entries: Vec<_> = branch::path(&parent.entries).into_iter().cloned().collect();
            session.history = SessionHistory::read(&entries);
            session.has_prelude_mark = entries.iter().any(prelude::is_mark);
            session.inherited = Some(InitialHistory { from: Some(parent.record.session_id), entries });
        }
        Ok(())
    }

    /// Returns the session's record to commit with a run's start (session created, transcript replaced, notes
    /// consumed), and the notes for the run's prompt. A resumed run did this when it first started.
    pub(super) fn prepare(&mut self, ticket: &mut Ticket, at: u64) -> (Option<Rec>, Vec<String>) {
        let Some(session) = &mut self.session else { return (None, Vec::new()) };
        let starts_new = ticket.inbound.starts_transcript() && !ticket.is_resumed;
        let expect = (!session.is_new).then(|| session.record.session_id.clone());
        if starts_new {
            session.start_transcript(self.hub.ambient.session_id(), at, ticket.reset_reason());
        }
        let uses_notes = !ticket.is_resumed && ticket.fixed_reply().is_none() && ticket.task().is_none();
        if uses_notes && ticket.inbound.options.class == RunClass::Heartbeat {
            // No person asked for this run: the notes may be all that it works on.
            ticket.inbound.sender.authority = ticket.inbound.sender.authority.min(notes::authority(&session.record));
        }
        let mut notes = if uses_notes { notes::take(&mut session.record) } else { Vec::new() };
        if uses_notes && ticket.inbound.is_wake() {
            let origin = CommandOrigin::from(&RunOrigin::of(&ticket.inbound));
            notes.extend(background::take_reports(&mut session.record, Some(&origin)));
        } else if uses_notes && ticket.inbound.options.class != RunClass::Heartbeat {
            notes.extend(background::take_reports(&mut session.record, None));
        }
        if !std::mem::take(&mut session.is_new) && !starts_new && notes.is_empty() {
            return (None, notes);
        }
        let (run, record) = (Some(ticket.inbound.id.run.clone()), Box::new(session.record.clone()));
        (Some(Rec::Patch { run, key: self.key.clone(), expect, record }), notes)
    }
}

impl Inbound {
    /// True if it asks for a new transcript.
    pub(super) fn starts_transcript(&self) -> bool {
        matches!(self.command, Some(Command::NewTranscript { .. } | Command::NewTranscriptWith(_)))
    }

    /// True if it starts a new transcript where the old one is stale. A message that names its transcript or asks for a
    /// new one does not, and automated messages neither start one nor keep it fresh.
    fn can_auto_reset(&self) -> bool {
        self.session.transcript.is_none() && self.command.is_none() && self.session_use() == SessionUse::Person
    }

    /// True if it changes settings of its session.
    fn has_settings(&self) -> bool {
        self.session.label.is_some() || self.session.spawned_by.is_some() || self.session.thinking.is_some()
    }

    /// True if a known run was requested by the same principal and method with the same content.
    fn is_same_request(&self, row: &RunRow) -> bool {
        (&self.sender.principal, &self.sender.method, &self.id.fingerprint)
            == (&row.principal, &row.method, &row.fingerprint)
    }

    fn session_use(&self) -> SessionUse {
        match self.options.class {
            RunClass::Main => SessionUse::Person,
            RunClass::Subagent | RunClass::Cron | RunClass::Nested | RunClass::Heartbeat => SessionUse::Machine,
        }
    }
}

fn options(inbound: &Inbound) -> Options {
    Options {
        class: inbound.options.class.name().to_owned(),
        timeout: inbound.options.timeout,
        extra_prompt: inbound.options.extra_prompt.clone(),
        is_strict: inbound.options.is_strict,
        on_restart: if inbound.options.reports_restart { OnRestart::Interrupt } else { OnRestart::Resume },
        route: inbound.reply.route.clone(),
        is_literal: inbound.is_literal,
        queue: inbound.queue.map(|inline| inline.to_string()).unwrap_or_default(),
        delivery: inbound.reply.delivery.clone(),
        sender: inbound.sender.on_channel.clone(),
        cwd: inbound.options.cwd.clone(),
        authority: inbound.sender.authority,
        overrides: inbound.options.overrides.clone(),
        history: inbound.session.history.iter().map(|message| json!(message)).collect(),
        is_ephemeral: inbound.session.is_ephemeral,
    }
}

impl From<homard_store::Session> for OpenSession {
    fn from(session: homard_store::Session) -> Self {
        let history = SessionHistory::read(&session.entries);
        Self { history, has_prelude_mark: session.entries.iter().any(prelude::is_mark), ..Self::stored(session.record) }
    }
}

impl OpenSession {
    /// A session that is not on disk yet.
    fn new(id: SessionId, at: u64) -> Self {
        let change = Some(TranscriptChange { before: None, reason: "new" });
        Self { is_new: true, transcript_change: change, ..Self::stored(session::Record::new(id, at)) }
    }

    /// A session that is not on disk yet, with a transcript that may be.
    fn continuing(id: SessionId, entries: &[Entry], at: u64) -> Self {
        let new = Self::new(id, at);
        if entries.is_empty() {
            return new;
        }
        // The transcript is not new, so no hooks are fired.
        let is_marked = entries.iter().any(prelude::is_mark);
        Self { history: SessionHistory::read(entries), has_prelude_mark: is_marked, transcript_change: None, ..new }
    }

    /// A session whose record is on disk or queued for the writer, with an empty transcript.
    pub(super) fn stored(record: session::Record) -> Self {
        let stats = SessionStats::of(&record);
        Self {
            record,
            is_new: false,
            history: SessionHistory::default(),
            has_prelude_mark: false,
            inherited: None,
            stats,
            transcript_change: None,
        }
    }

    /// Sets the initial history given by the sender of the first message.
    fn set_history(&mut self, history: &[Message], ambient: &Ambient, at: u64) {
        let entry = |message: &Message| Entry {
            kind: Kind::message(message.clone()),
            id: ambient.entry_id(),
            parent_id: None,
            timestamp: iso(at),
        };
        let entries: Vec<_> = history.iter().map(entry).collect();
        for (entry, message) in entries.iter().zip(history) {
            self.history.push(entry.id.clone(), Arc::new(message.clone()));
        }
        if !entries.is_empty() {
            self.inherited = Some(InitialHistory { from: None, entries });
        }
    }

    /// Starts a new transcript for this reason.
    pub(super) fn start_transcript(&mut self, id: SessionId, at: u64, reason: &'static str) {
        // A transcript that never started was never reported to hooks.
        let before = match (&self.transcript_change, self.is_new) {
            (Some(change), true) => change.before.clone(),
            _ => Some((self.record.session_id.clone(), self.history.len())),
        };
        *self = Self {
            transcript_change: Some(TranscriptChange { before, reason }),
            ..Self::stored(record_for_new_transcript(&self.record, id, at))
        };
    }

    /// True if a message starts a new transcript because this one is stale.
    fn is_stale_for(&self, inbound: &Inbound, key: &SessionKey, auto_reset: &AutoReset, at: u64) -> bool {
        inbound.can_auto_reset() && auto_reset.is_stale(key, &self.record, at)
    }

    /// True if the session does not accept messages.
    fn is_closed(&self) -> bool {
        self.record.send_policy.as_deref() == Some("deny")
    }

    /// Applies a message's changes to the session's record.
    fn apply_message(&mut self, inbound: &Inbound, profile: &Profile, auto_reset: &AutoReset, at: u64) {
        let record = &mut self.record;
        auto_reset.record_use(record, inbound.session_use(), at);
        record.updated_at = record.updated_at.max(at);
        if inbound.reply.delivery.as_ref().is_some_and(|delivery| delivery.is_origin) {
            set_last_route(record, &inbound.reply.route);
        }
        if inbound.session.label.is_some() {
            record.label.clone_from(&inbound.session.label);
        }
        if inbound.session.spawned_by.is_some() {
            record.spawned_by.clone_from(&inbound.session.spawned_by);
        }
        match inbound.session.thinking.as_deref() {
            // `off` is stored as no level, unless the default level is not `off`.
            Some("off") if profile.levels(profile.spec()).thinking == "off" => record.thinking_level = None,
            Some(level) => record.thinking_level = Some(level.to_owned()),
            None => {}
        }
    }

    /// Appends a run's message to the history. Returns the new entries; the last one is that of the message.
    pub(super) fn add_message(&mut self, message: &Arc<Message>, spec: &ModelSpec, ambient: &Ambient) -> Vec<Entry> {
        let at = ambient.now_ms();
        let entry = |kind| Entry { kind, id: ambient.entry_id(), parent_id: None, timestamp: iso(at) };
        let mut entries = Vec::new();
        if self.set_model(&spec.provider, &spec.model, spec.context_window) {
            let (provider, model_id) = (spec.provider.clone(), spec.model.clone());
            entries.push(entry(Kind::ModelChange(ModelChange { provider, model_id, extra: Extra::new() })));
        }
        if !self.has_prelude_mark && prelude::is_needed(&self.history, spec) {
            self.has_prelude_mark = true;
            entries.push(entry(prelude::mark(at)));
        }
        let user_entry = entry(Kind::message((**message).clone()));
        self.history.push(user_entry.id.clone(), message.clone());
        entries.push(user_entry);
        entries
    }

    /// Records the model that answers from now on. Returns true if it changed.
    fn set_model(&mut self, provider: &str, model: &str, window: u64) -> bool {
        let record = &mut self.record;
        let before = (record.model_provider.as_deref(), record.model.as_deref());
        if before == (Some(provider), Some(model)) {
            return false;
        }
        record.model_provider = Some(provider.to_owned());
        record.model = Some(model.to_owned());
        record.context_tokens = Some(window);
        true
    }
}
