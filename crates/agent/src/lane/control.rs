//! Commands that are answered at once, even during an active run: they read or change the state of the session.
//!
//! Such a command is a run like any other, with an id, a reply and one end, but it adds no entry to the transcript: it
//! is not part of the conversation, and it must not come between a tool call and its result.

use std::{borrow::Cow, sync::Arc, time::Duration};

use homard_proto::{RunId, SessionKey, message::Usage, session::Record};
use homard_reply::payload::Payload;
use homard_store::{
    AbortReason, Ended, Outcome, Rec,
    spend::{Period, day_of},
};

use super::{
    Lane, Queued,
    answerer::{self, Question},
    chores::merged,
    inbox::Letter,
};
use crate::{
    command::{Approve, Change, Command, Level, StatusFacts, Stop, queue::Overrides, stop},
    context::{
        brief::{self, Brief},
        budget::weigh,
        report::{Report, words},
    },
    conversation::Conversation,
    course,
    event::{End, RunEvent},
    hub::Shared,
    post::queueing,
    purse::Sum,
    tool::Origin,
    writer::Then,
};

const NO_SESSION: &str = "There is no such session.";

/// Builds the context report for the session's next run with this origin: prompt sections and their sizes.
pub(crate) async fn report(
    hub: &Shared,
    key: &SessionKey,
    (record, history): (&Record, &Conversation),
    (run, extra_prompt, origin): (&RunId, Option<&str>, &Origin),
) -> Report {
    let profile = hub.setup.agents().of(key.agent()).in_session(key, origin.cwd.as_ref());
    let (mut record, at) = (record.clone(), hub.ambient.now_ms());
    let failover =
        answerer::choose(&profile, &mut record, Question { run, thinking: None, is_attended: true }, (at, None))
            .failover;
    let model = failover.candidate().model.clone();
    let spec = model.spec();
    let brief = Brief::new(&profile, key, &record, (extra_prompt, &origin.route));
    let hooks = hub.setup.rules().hooks.clone();
    let found = brief::gather(&profile, (origin, key), &hooks, (Some(&record.session_id), at)).await;
    let brief = Brief { found, ..brief };
    let tools = brief.told(spec, &profile.tools_for((origin, key), spec));
    let mut report = brief.report(spec, failover.level(), &tools, (&record.session_id, at));
    if let Some(tokens) = report.tokens.as_mut().filter(|_| !history.is_empty()) {
        tokens.context = Some(weigh(spec, tokens.overhead(), history.said()).tokens());
    }
    report
}

impl Queued {
    /// True for a command that is answered at once. A bare stop word is a command only while a run is active.
    pub(super) fn is_control(&self, is_busy: bool) -> bool {
        match &self.inbound.command {
            Some(Command::Stop(Stop::Word)) => is_busy,
            Some(_) | None => !self.inbound.asks_model(),
        }
    }
}

impl Lane {
    /// Formats token usage and cost of this session, of today and of the last 30 days.
    async fn costs(&self) -> String {
        let today = day_of(self.hub.ambient.now_ms());
        let session = self.session.as_ref().map(|session| Period::Session(session.record.session_id.clone()));
        let periods = [
            ("This conversation", session),
            ("Today (UTC)", Some(Period::Days(today, today))),
            ("The last 30 days", Some(Period::Days(today.saturating_sub(29), today))),
        ];
        let mut lines = Vec::new();
        for (name, period) in periods {
            let Some(period) = period else { continue };
            let sum: Sum = match self.hub.store.spent(&period).await {
                Ok(spent) => spent.iter().map(|one| Sum::from(&one.usage)).sum(),
                Err(error) => return format!("The token usage cannot be read: {error}."),
            };
            lines.push(format!("{name}: {} tokens, ${:.4}", sum.tokens, sum.cost));
        }
        lines.join("\n")
    }

    /// Executes a command and answers it.
    pub(super) async fn control(&mut self, mut queued: Queued, active: Option<&mut Queued>) {
        let Some(command) = queued.inbound.command.clone() else { return };
        if !queued.was_found {
            self.tell_command(&queued.inbound);
        }
        let change = match command {
            Command::Stop(_) => {
                // Stored first: after a crash, the next start repeats the stop and sends its reply.
                queued.accept(&self.hub.writer);
                let runs = self.abort(None, AbortReason::Stop, active).await.len();
                let children = self.hub.stop_descendants(&self.key, AbortReason::Stop);
                let commands = self.hub.running.stop(&self.key);
                Change::says(match (runs, children, commands) {
                    (0, 0, 0) if queued.was_found => stop::AFTER_RESTART.to_owned(),
                    (runs, children, commands) => stop::reply(runs, children, commands),
                })
            }
            Command::Context(ask) => Change::says(match self.report(&queued).await {
                Some(report) => words(&report, ask),
                None => NO_SESSION.to_owned(),
            }),
            Command::Level(Level::Usage, word) if word.eq_ignore_ascii_case("cost") => Change::says(self.costs().await),
            Command::Approve(approve) => Change::says(self.approve(approve, &queued.inbound.principal).await),
            Command::Begin { .. }
            | Command::BeginWith(_)
            | Command::Compact(_)
            | Command::Foreign(..)
            | Command::Queue(_)
            | Command::Level(..)
            | Command::Model(_)
            | Command::Help => self.consider(&command, (&queued, None), active.as_deref()),
            Command::Status => {
                let report = self.report(&queued).await;
                self.consider(&command, (&queued, report.as_ref()), active.as_deref())
            }
        };
        let at = self.hub.ambient.now_ms();
        let run = queued.inbound.run.clone();
        let mut records = std::mem::take(&mut queued.accepting);
        let is_new = !records.is_empty();
        if !change.fields.is_empty()
            && let Some(session) = &mut self.session
        {
            // The fields come from a record, so the merge cannot fail.
            if let Ok(record) = merged(&session.record, &change.changes()) {
                session.record = record;
            }
            let (expect, record) = (Some(session.record.session_id.clone()), Box::new(session.record.clone()));
            records.push(Rec::Patch { run: Some(run.clone()), key: self.key.clone(), expect, record });
        }
        let end = self.answered(change.reply, at);
        let ended = Ended {
            outcome: Outcome::Done,
            replies: Vec::new(),
            model: end.model.clone(),
            usage: Usage::default(),
            steps: course::of(
                &[],
                course::Span {
                    accepted_at: queued.tape.accepted_at(),
                    begun: &[],
                    held: None,
                    stored_at: None,
                    until: at,
                },
            ),
            ended_at: at,
            words: end.replies.first().map(|reply| reply.text.clone()),
            payloads: None,
        };
        let profile = self.hub.setup.agents().of(self.key.agent());
        self.open_line(&mut queued, &profile);
        let outgoing = self.finals(&queued, &end, (false, true));
        records.extend(queueing(&outgoing));
        records.push(Rec::Terminal { run, ended: Box::new(ended) });
        if let Some(reply) = end.replies.first() {
            queued.tape.text(at, 0, &reply.text);
        }
        queued.tape.hold(at, RunEvent::Ended(Arc::new(end)));
        let then = if is_new { Then::admit(queued.admit.clone(), &queued.tape) } else { Then::default() };
        self.hub.mail_out((records, then.and_publish(&queued.tape, 1)), outgoing, None);
        // A recovered command is accepted already; its changes must be stored before the session is read again.
        if !is_new && self.hub.writer.barrier().await.is_err() {
            self.is_stale = true;
        }
        if super::is_admitted(&queued).await {
            self.hub.forget(&queued.tape);
        } else {
            self.never_was(&queued);
        }
    }

    /// Decides an exec approval. Only the owner's messages are parsed as commands.
    async fn approve(&self, approve: Result<Approve, String>, by: &str) -> String {
        let approve = match approve {
            Ok(approve) => approve,
            Err(usage) => return usage,
        };
        let Some(desk) = self.hub.desk.get() else { return "Nobody asks here before commands run.".to_owned() };
        match desk.decide(&approve.id, approve.verdict, by).await {
            Ok(entry) => format!("Approval {}: {}.", entry.id, entry.state.as_str()),
            Err(error) => format!("It was not answered: {error}."),
        }
    }

    /// Builds the context report for the session's next run.
    async fn report(&self, queued: &Queued) -> Option<Report> {
        let (session, inbound) = (self.session.as_ref()?, &queued.inbound);
        let origin = Origin::of(inbound);
        let told_by = (&inbound.run, inbound.extra_prompt.as_deref(), &origin);
        Some(report(&self.hub, &self.key, (&session.record, &session.history), told_by).await)
    }

    /// Computes the changes and the reply of a command. The report is about the next request.
    fn consider(
        &self,
        command: &Command,
        (queued, report): (&Queued, Option<&Report>),
        active: Option<&Queued>,
    ) -> Change {
        let nothing = || Change { fields: Vec::new(), reply: NO_SESSION.to_owned() };
        let Some(session) = &self.session else { return nothing() };
        let profile = self.hub.setup.agents().of(self.key.agent());
        // A name may be an alias; the resolved name is stored.
        let mut command = Cow::Borrowed(command);
        if let Command::Model(name) = &*command
            && !name.is_empty()
            && !name.eq_ignore_ascii_case("default")
        {
            match answerer::find(&profile, name) {
                Ok((provider, model)) => command = Cow::Owned(Command::Model(format!("{provider}/{model}"))),
                Err(why) => return Change::says(format!("{why}.")),
            }
        }
        let model = answerer::model(&profile, &session.record);
        let rules = self.hub.setup.rules();
        let (channel, config) = rules.queue.of(&queued.inbound.route);
        let now = self.hub.ambient.now_ms();
        let since = |active: &Queued| Duration::from_millis(now.saturating_sub(active.tape.accepted_at()));
        let shortened = report.and_then(Report::shortened_words);
        let facts = StatusFacts {
            version: env!("CARGO_PKG_VERSION"),
            model: &answerer::name(&profile, &session.record),
            models: &profile.offers,
            key: &self.key,
            record: &session.record,
            tokens: report.and_then(|report| report.tokens?.context),
            shortened: shortened.as_deref(),
            queue: crate::command::queue::resolve(
                &Overrides::default(),
                &Overrides::from(&session.record),
                &channel,
                &config,
            ),
            waiting: self.inbox.len(),
            at_work: active.map(|active| (active.run(), since(active))),
            triggers: &rules.triggers,
            levels: profile.levels(model.spec()),
            has_xhigh: model.spec().thinking.contains(&homard_model::Level::Xhigh),
        };
        command.change(&facts).unwrap_or_else(nothing)
    }

    fn answered(&self, reply: String, at: u64) -> End {
        End {
            outcome: Outcome::Done,
            replies: vec![Payload::answer(reply)],
            whole: None,
            heartbeat: None,
            lines: Vec::new(),
            calls: Vec::new(),
            model: ("homard".to_owned(), "command".to_owned()),
            usage: Usage::default(),
            last_usage: Usage::default(),
            truncated_input: None,
            is_summarized: false,
            session: self.session.as_ref().map(|session| session.record.session_id.clone()),
            started_at: Some(at),
            ended_at: at,
        }
    }
}
