//! Start of a run: a new one with its message, or a recovered one with its earlier progress.

use std::{collections::HashMap, sync::Arc, time::Duration};

use homard_compact::escalate::Ladder;
use homard_proto::{
    CallId, Extra, Route, RunId, SessionId,
    message::{Block, Content, Message, ToolResult, Usage, User},
    transcript::{Entry, Header, Kind, ModelChange},
};
use homard_reply::blocks::Blocks;
use homard_store::{
    Hold, Input, Rec, Start, Unfinished, branch,
    recovery::{assistant, own_lines},
};

use super::{
    Lane, Queued,
    answerer::{self, Answerer, Question},
    inbox::Placed,
    prelude,
    slots::Lender,
};
use crate::{
    Inbound, access,
    ambient::{from_iso, iso},
    command::{Command, OWNER},
    context::{
        brief::{Brief, Found},
        bring::Brought,
        notes,
        setting::Kit,
    },
    conversation::Conversation,
    event::{Event, RunEvent},
    hooks,
    profile::Profile,
    purse::{Payer, Sum},
    run::{HeldBlocks, Plea, RunScope, Wanted, compact::Wish, guard::Guard, margin},
    shorten::{self, Next},
    tool::{Origin, Toolbox},
    writer::Then,
};

/// Method name of the message that the gateway submits itself when the context is full.
pub(super) const AUTO_COMPACT: &str = "compaction";

/// Method name of the message that the gateway submits itself when the context is nearly full.
pub(super) const AUTO_FLUSH: &str = "memory-flush";

/// Progress of a run at the time the process ended.
#[derive(Debug)]
pub(crate) struct Resume {
    /// Transcript that the run wrote to.
    pub(crate) session: Option<SessionId>,
    /// Time of each start, in milliseconds since the epoch.
    pub(crate) begun: Vec<u64>,
    /// Entries that the run added to the transcript after its own message.
    pub(crate) entries: Vec<Entry>,
    /// Known results of open tool calls; the other open calls are executed again.
    pub(crate) answers: Vec<ToolResult>,
    /// Set for a run that was held and released: its message is added to the transcript again.
    pub(crate) reentry: Option<Hold>,
}

/// Note to the model beside a message that is added to the transcript again.
const REENTERED: &str = "Work on this message was interrupted several times. It stands in this conversation once before, with \
                         what was done until then. Do not repeat what is done already.";

impl Resume {
    /// Builds the progress of a run that was held and released. Its open calls were answered when it was held, and it
    /// continues in the current transcript of its session.
    pub(crate) fn reentry(found: &Unfinished) -> Self {
        Self {
            session: None,
            begun: found.row.started_at.into_iter().chain(found.row.taken_up.iter().copied()).collect(),
            entries: own_lines(&found.row.run, &found.entries).to_vec(),
            answers: Vec::new(),
            reentry: found.row.hold,
        }
    }

    /// Returns the token usage of the run's answers before the process ended.
    fn took(&self) -> Sum {
        self.entries.iter().filter_map(assistant).map(|said| Sum::from(&said.usage)).sum()
    }
}

impl Lane {
    /// Queues the records of the run's start for the writer and builds the run's scope.
    ///
    /// Returns `None` if the session is not loaded: an earlier commit failed, and its cached state cannot be trusted.
    pub(super) async fn begin(
        &mut self,
        queued: &mut Queued,
        profile: &Arc<Profile>,
        slot: Lender,
        (found, mut brought): (Found, Brought),
    ) -> Option<RunScope> {
        let (hub, tape) = (self.hub.clone(), queued.tape.clone());
        let at = hub.ambient.now_ms();
        let (prepared, told) = self.prepare(queued, at);
        if !self.inbox.is_empty() {
            queued.hurry.cancel();
        }
        let session = self.session.as_mut()?;
        // A resumed run got its events with its message, which is the last user message: a heartbeat absorbs no others.
        let is_user = |message: &&Arc<Message>| matches!(***message, Message::User(_));
        let own = session.history.iter().rev().find(is_user).filter(|_| queued.is_resumed);
        queued.has_events =
            told.iter().any(|note| notes::is_event(note)) || own.is_some_and(|own| notes::has_events(own));
        let id = session.record.session_id.clone();
        // A resumed run belongs to the transcript it started in.
        if queued.resume.as_ref().and_then(|resume| resume.session.as_ref()).is_some_and(|began| *began != id) {
            queued.take_up(at);
            return None;
        }
        let inherited = session.inherited.take();
        let mut header = Header::new(id.clone(), iso(at), profile.workdir.display().to_string());
        header.parent_session =
            inherited.as_ref().and_then(|told| told.from.as_ref()).map(|from| format!("{from}.jsonl"));
        let run = queued.inbound.run.clone();
        let start = Start { run: run.clone(), key: self.key.clone(), header, at };
        queued.session = Some(id.clone());
        tape.hold(at, RunEvent::Started { session: id.clone() });
        let summarized = queued.summarized();
        if !summarized.is_empty() {
            tape.note(at, RunEvent::Summarized(summarized));
        }
        let mut records = std::mem::take(&mut queued.accepting);
        let then = if records.is_empty() { Then::default() } else { Then::admit(queued.admit.clone(), &tape) };
        records.extend(prepared);
        records.push(Rec::Start(start));
        let limit = queued.inbound.timeout.or(profile.timeout);
        let Answerer { failover, deadline, trouble } =
            answerer::choose(profile, &mut session.record, Question::from(&queued.inbound), (at, limit));
        let spec = failover.candidate().model.clone();
        let spec = spec.spec();
        let origin = Origin::of(&queued.inbound);
        let ceiling = access::ceiling(&hub.setup.agents(), (&self.key, &session.record), &origin);
        let mut scope = RunScope {
            hub: hub.clone(),
            profile: profile.clone(),
            tape: tape.clone(),
            session: id.clone(),
            is_strict: queued.inbound.is_strict,
            cancel: queued.cancel.clone(),
            offers: self.offers.clone(),
            slot,
            failover,
            told_failures: 0,
            told_model: (profile.spec().provider.clone(), profile.spec().model.clone()),
            deadline,
            trouble,
            toolbox: Toolbox::default(),
            ceiling,
            client_tools: queued.inbound.client_tools.clone(),
            origin,
            variables: found.kit.variables.clone(),
            brief: Brief { found, ..Brief::new(profile, &self.key, &session.record, queued.told_by()) },
            written: None,
            class: queued.inbound.class,
            plea: Plea::Nothing,
            blocks: queued.inbound.blocks.clone().map(Blocks::new),
            held_blocks: HeldBlocks::default(),
            waited: Duration::ZERO,
            is_wait_told: false,
            post: None,
            beside: Usage::default(),
            history: Conversation::default(),
            is_tried: false,
            ladder: Ladder::default(),
            made: Vec::new(),
            void: Vec::new(),
            compacting: queued.compacting.clone(),
            wish: queued.wish(),
            margin: session.margin.clone(),
            // It is unknown how far a resumed run had come with its flush, and nothing must be done twice.
            is_flushed: margin::is_flushed(&session.record) || (queued.is_resumed && queued.wish().is_some()),
            hurry: queued.hurry.clone(),
            said: 0,
            answers: Vec::new(),
            words: queued.answer(),
            dispatch: None,
            arguments: HashMap::new(),
            guard: Guard::default(),
            hooks: hub.setup.rules().hooks.clone(),
            place: hooks::Context {
                model_provider_id: Some(spec.provider.clone()),
                model_id: Some(spec.model.clone()),
                ..hooks::place_of(profile, Some(&id), &queued.inbound)
            },
            wanted: Wanted::default(),
            payer: Payer::new(
                (&hub.purse, &hub.ambient, &hub.store),
                hub.setup.rules().limits,
                (profile.id.clone(), id.clone()),
                queued.resume.as_ref().map(Resume::took).unwrap_or_default(),
            ),
        };
        scope.choose_tools(spec);
        let mut facts = 1;
        if queued.is_resumed {
            queued.take_up(at);
            scope.said = queued.said;
            scope.answers = queued.answers.clone();
        }
        if (!queued.is_resumed || queued.reentry.is_some()) && scope.wish.is_none() {
            let mut message = queued.first_message();
            let reentered = queued.reentry.map(|_| REENTERED.to_owned());
            let told: Vec<_> = told.into_iter().chain(std::mem::take(&mut brought.notes)).chain(reentered).collect();
            notes::attach(&mut message, &told);
            brought.show(&mut message);
            scope.dispatch = brought.dispatch;
            let message = hooks::write(&scope.hooks, &scope.place, Message::User(message)).await;
            let message = Arc::new(message);
            let entry = |kind| Entry { kind, id: hub.ambient.entry_id(), parent_id: None, timestamp: iso(at) };
            let mut entries = inherited.map(|inherited| inherited.entries).unwrap_or_default();
            if session.set_model(&spec.provider, &spec.model, spec.context_window) {
                let (provider, model_id) = (spec.provider.clone(), spec.model.clone());
                entries.push(entry(Kind::ModelChange(ModelChange { provider, model_id, extra: Extra::new() })));
            }
            if !session.is_marked && prelude::is_needed(&session.history, spec) {
                session.is_marked = true;
                entries.push(entry(prelude::mark(at)));
            }
            let own = entry(Kind::message((*message).clone()));
            queued.input_line = Some(own.id.clone());
            session.history.push(own.id.clone(), message.clone());
            entries.push(own);
            let absorbs = queued.guests.iter().map(|guest| guest.inbound.run.clone()).collect();
            records.push(Rec::Input(Input { run, key: self.key.clone(), session: id, absorbs, entries }));
            tape.hold(at, RunEvent::Input(message));
            facts += 1;
        }
        scope.history = session.history.clone();
        hub.writer.send(records, then.and_publish(&tape, facts));
        Some(scope)
    }
}

impl Inbound {
    /// True if the gateway submitted it itself, so that no sender waits for it.
    pub(crate) fn is_of_house(&self) -> bool {
        [AUTO_COMPACT, AUTO_FLUSH].contains(&self.method.as_str())
    }
}

impl Queued {
    /// Returns what the message asks for instead of an answer, if anything.
    pub(super) fn wish(&self) -> Option<Wish> {
        match (self.inbound.method.as_str(), &self.inbound.command) {
            // By method, because after a restart only the owner's messages are parsed as commands.
            (AUTO_FLUSH, _) => Some(Wish::Notes),
            (AUTO_COMPACT, _) => Some(Wish::Short { focus: None, is_quiet: true }),
            (_, Some(Command::Foreign(word, words))) => {
                Some(Wish::Foreign { word: word.clone(), words: words.clone() })
            }
            (_, Some(Command::Compact(focus))) => Some(Wish::Short { focus: focus.clone(), is_quiet: false }),
            _ => None,
        }
    }

    /// True if the gateway submitted it itself, so that no sender waits for it.
    pub(super) fn is_of_house(&self) -> bool {
        self.inbound.is_of_house()
    }

    /// Returns the caller's addition to the system prompt and the route of the message.
    pub(super) fn told_by(&self) -> (Option<&str>, &Route) {
        (self.inbound.extra_prompt.as_deref(), &self.inbound.route)
    }

    /// Loads the attachments of a run for this message.
    pub(super) async fn bring(&self, profile: &Profile, kit: &Kit, sees: bool) -> Brought {
        // A run that had started before the restart has them in its transcript.
        if self.resume.is_some() || self.is_resumed {
            return Brought::default();
        }
        let text = self.first_message().content.text();
        let is_owner = self.inbound.principal == OWNER && self.inbound.command.is_none() && !self.inbound.is_literal;
        let mut brought = if is_owner { Brought::skill(kit, &text) } else { Brought::default() };
        // A path named by anyone else may be a file they must not see. A model reads pictures with its tools, which are
        // confined to the workspace.
        if sees && self.inbound.principal == OWNER && self.inbound.is_written_by_client() {
            brought.add_pictures(profile, &text).await;
        }
        brought
    }

    /// Returns the message for the transcript: without its command if it starts a new transcript, and with the merged
    /// text if it hosts absorbed messages.
    pub(super) fn first_message(&self) -> User {
        let inbound = &self.inbound;
        let text = match (&self.prompt, &inbound.command) {
            (Some(prompt), _) => prompt,
            (None, Some(Command::BeginWith(text))) => text,
            (None, _) => return inbound.message.clone(),
        };
        let mut message = User { extra: inbound.message.extra.clone(), ..User::text(text, inbound.message.timestamp) };
        // Pictures of all messages that are merged into it.
        let all = std::iter::once(inbound).chain(self.guests.iter().map(|guest| &guest.inbound));
        let pictures = all.flat_map(|inbound| inbound.message.content.images().cloned()).map(Block::Image);
        if let Content::Blocks(blocks) = &mut message.content {
            blocks.extend(pictures);
        }
        message
    }

    /// Returns the runs whose messages the model gets only as a summary.
    fn summarized(&self) -> Arc<[RunId]> {
        let all = self.guests.iter().chain([self]);
        let summarized = all.filter(|one| one.tape.placed() == Placed::Summarized);
        summarized.map(|one| one.inbound.run.clone()).collect()
    }

    /// Restores the run's progress from before the restart, whether the run continues or ends.
    pub(super) fn take_up(&mut self, at: u64) {
        if let Some(resume) = self.resume.take() {
            self.session = resume.session;
            self.begun = resume.begun;
            self.said = replay(&self.tape, at, &resume.entries);
            self.answers = resume.answers;
        }
    }
}

/// Emits the events of a run from before the restart on its tape. Returns the number of assistant messages.
fn replay(tape: &Arc<crate::tape::Tape>, at: u64, entries: &[Entry]) -> u32 {
    let mut said_so_far = 0;
    let mut made: Vec<_> = branch::compactions(entries).into_iter().filter(|made| !made.is_undone).collect();
    for entry in entries {
        if let Some(place) = made.iter().position(|made| made.id == entry.id) {
            // An assistant message contains its own timestamp; a compaction does not.
            let at = from_iso(&entry.timestamp).map_or(at, |written| written.min(at));
            tape.pass(at, RunEvent::Compacting);
            let next = if said_so_far == 0 { Next::FirstAnswer } else { Next::Answer };
            tape.pass(at, shorten::told(made.remove(place), next));
        }
        let Some(event) = told_before(entry, at) else { continue };
        said_so_far += u32::from(matches!(event.kind, RunEvent::Assistant { .. }));
        tape.pass(event.at, event.kind);
    }
    said_so_far
}

/// Maps a transcript entry to the event that it records.
pub(super) fn told_before(entry: &Entry, at: u64) -> Option<Event> {
    let Kind::Message(said) = &entry.kind else { return None };
    let mut at = at;
    let kind = match &said.message {
        Message::Assistant(said) => RunEvent::Assistant { entry: entry.id.clone(), said: Arc::new(said.clone()) },
        Message::ToolResult(result) => {
            let call = CallId::parse(&result.tool_call_id).ok()?;
            RunEvent::ToolEnded { call, result: Arc::new(result.clone()), shown: None }
        }
        // A message that the run took in: what was sent before it does not answer it.
        Message::User(_) => {
            at = from_iso(&entry.timestamp).map_or(at, |written| written.min(at));
            RunEvent::Input(Arc::new(said.message.clone()))
        }
        Message::Other(_) => return None,
    };
    Some(Event { at, kind })
}
