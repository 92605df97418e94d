//! How a run begins: a new one with its message, one that a restart found with what it did before.

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

/// The method of a message that the house sends itself when a conversation is full.
pub(super) const AUTO_COMPACT: &str = "compaction";

/// The method of one that it sends itself when a conversation is nearly full.
pub(super) const AUTO_FLUSH: &str = "memory-flush";

/// How far a run had come when the process ended.
#[derive(Debug)]
pub(crate) struct Resume {
    /// The transcript that it worked in.
    pub(crate) session: Option<SessionId>,
    /// When it began, each time. Milliseconds since the epoch.
    pub(crate) begun: Vec<u64>,
    /// What it added to the transcript after its own message.
    pub(crate) entries: Vec<Entry>,
    /// Answers to open calls that are known; the other open calls are run again.
    pub(crate) answers: Vec<ToolResult>,
    /// Set for a run that was held and released: its message enters the transcript again.
    pub(crate) reentry: Option<Hold>,
}

/// What a model reads beside a message that enters the transcript again.
const REENTERED: &str = "Work on this message was interrupted several times. It stands in this conversation once before, with \
                         what was done until then. Do not repeat what is done already.";

impl Resume {
    /// For a run that was held and released. Its calls were answered when it was held, and it works in whichever transcript
    /// its session has by now.
    pub(crate) fn reentry(found: &Unfinished) -> Self {
        Self {
            session: None,
            begun: found.row.started_at.into_iter().chain(found.row.taken_up.iter().copied()).collect(),
            entries: own_lines(&found.row.run, &found.entries).to_vec(),
            answers: Vec::new(),
            reentry: found.row.hold,
        }
    }

    /// What its answers took before the process ended.
    fn took(&self) -> Sum {
        self.entries.iter().filter_map(assistant).map(|said| Sum::from(&said.usage)).sum()
    }
}

impl Lane {
    /// Puts the run's beginning on its way to disk and gathers what the run needs.
    ///
    /// `None` when the session is not at hand: an earlier commit failed, and nothing about it can be trusted.
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
        queued.has_events = !told.is_empty();
        if !self.inbox.is_empty() {
            queued.hurry.cancel();
        }
        let session = self.session.as_mut()?;
        let id = session.record.session_id.clone();
        // A run that goes on belongs to the transcript that it began in.
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
            // Nobody knows how far one that a restart found had come with it, and nothing is to be done twice.
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
    /// Whether the house sent it to itself, and nobody waits for it.
    pub(crate) fn is_of_house(&self) -> bool {
        [AUTO_COMPACT, AUTO_FLUSH].contains(&self.method.as_str())
    }
}

impl Queued {
    /// What it asks for instead of an answer, if it does.
    pub(super) fn wish(&self) -> Option<Wish> {
        match (self.inbound.method.as_str(), &self.inbound.command) {
            // By the method: after a restart only the owner's messages are read as commands.
            (AUTO_FLUSH, _) => Some(Wish::Notes),
            (AUTO_COMPACT, _) => Some(Wish::Short { focus: None, is_quiet: true }),
            (_, Some(Command::Foreign(word, words))) => {
                Some(Wish::Foreign { word: word.clone(), words: words.clone() })
            }
            (_, Some(Command::Compact(focus))) => Some(Wish::Short { focus: focus.clone(), is_quiet: false }),
            _ => None,
        }
    }

    /// Whether the house sent it to itself, and nobody waits for it.
    pub(super) fn is_of_house(&self) -> bool {
        self.inbound.is_of_house()
    }

    /// What the caller tells the model, and where the message came from.
    pub(super) fn told_by(&self) -> (Option<&str>, &Route) {
        (self.inbound.extra_prompt.as_deref(), &self.inbound.route)
    }

    /// What a run of this message brings along.
    pub(super) async fn bring(&self, profile: &Profile, kit: &Kit, sees: bool) -> Brought {
        // What a run had before the restart is in its transcript.
        if self.resume.is_some() || self.is_resumed {
            return Brought::default();
        }
        let text = self.first_message().content.text();
        let is_owner = self.inbound.principal == OWNER && self.inbound.command.is_none() && !self.inbound.is_literal;
        let mut brought = if is_owner { Brought::skill(kit, &text) } else { Brought::default() };
        // What anybody else names may be a file that is not theirs to see. A model reads pictures with its tools, which stay
        // in the workspace.
        if sees && self.inbound.principal == OWNER && self.inbound.is_written_by_client() {
            brought.add_pictures(profile, &text).await;
        }
        brought
    }

    /// What stands in the transcript: a message that begins a new one stands there without the command, and one that
    /// speaks for others with all that they said.
    pub(super) fn first_message(&self) -> User {
        let inbound = &self.inbound;
        let text = match (&self.prompt, &inbound.command) {
            (Some(prompt), _) => prompt,
            (None, Some(Command::BeginWith(text))) => text,
            (None, _) => return inbound.message.clone(),
        };
        let mut message = User { extra: inbound.message.extra.clone(), ..User::text(text, inbound.message.timestamp) };
        // Pictures of all for whom it speaks.
        let all = std::iter::once(inbound).chain(self.guests.iter().map(|guest| &guest.inbound));
        let pictures = all.flat_map(|inbound| inbound.message.content.images().cloned()).map(Block::Image);
        if let Content::Blocks(blocks) = &mut message.content {
            blocks.extend(pictures);
        }
        message
    }

    /// Those of its messages of which the model gets a summary only.
    fn summarized(&self) -> Arc<[RunId]> {
        let all = self.guests.iter().chain([self]);
        let summarized = all.filter(|one| one.tape.placed() == Placed::Summarized);
        summarized.map(|one| one.inbound.run.clone()).collect()
    }

    /// Takes up what the run did before the restart, whether it goes on or ends.
    pub(super) fn take_up(&mut self, at: u64) {
        if let Some(resume) = self.resume.take() {
            self.session = resume.session;
            self.begun = resume.begun;
            self.said = replay(&self.tape, at, &resume.entries);
            self.answers = resume.answers;
        }
    }
}

/// Puts what a run did before the restart on its tape; returns how many assistant messages that were.
fn replay(tape: &Arc<crate::tape::Tape>, at: u64, entries: &[Entry]) -> u32 {
    let mut said_so_far = 0;
    let mut made: Vec<_> = branch::compactions(entries).into_iter().filter(|made| !made.is_undone).collect();
    for entry in entries {
        if let Some(place) = made.iter().position(|made| made.id == entry.id) {
            // An answer says itself when it was written; this does not.
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

/// What a line of a transcript says that happened.
pub(super) fn told_before(entry: &Entry, at: u64) -> Option<Event> {
    let Kind::Message(said) = &entry.kind else { return None };
    let kind = match &said.message {
        Message::Assistant(said) => RunEvent::Assistant { entry: entry.id.clone(), said: Arc::new(said.clone()) },
        Message::ToolResult(result) => {
            let call = CallId::parse(&result.tool_call_id).ok()?;
            RunEvent::ToolEnded { call, result: Arc::new(result.clone()), shown: None }
        }
        Message::User(_) | Message::Other(_) => return None,
    };
    Some(Event { at, kind })
}
