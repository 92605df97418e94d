//! Commands that are answered at once, even during an active run: they read or change the state of the session.
//!
//! Such a command is a run like any other, with an id, a reply and one end, but it adds no entry to the transcript: it
//! is not part of the conversation, and it must not come between a tool call and its result.

use std::{borrow::Cow, sync::Arc, time::Duration};

use homard_command::{ApproveCommand, Command, CommandResult, LevelSetting, StatusInput, StopForm, stop};
use homard_prompt::{
    context_budget::measure,
    report::{ContextReport, format_report},
};
use homard_proto::{RunId, SessionKey, message::Usage, session::Record};
use homard_queue::{inbox::QueueItem, settings::QueueOverrides};
use homard_reply::payload::Payload;
use homard_store::{
    AbortReason, EndRecord, Outcome, Rec,
    usage::{UsageQuery, day_of},
};

use super::{
    Lane, Ticket,
    model_choice::{self, ModelRequirements},
    mutations::merge_record,
    output::ShownProgress,
    ticket::ActiveRun,
};
use crate::{
    budget::Spend,
    context::gather::{self, PromptInput},
    delivery::queue_records,
    event::{RunEnd, StoredEvent},
    history::SessionHistory,
    hub::{Inbound, Shared},
    timeline,
    tool::RunOrigin,
};

const NO_SESSION: &str = "Session not found.";

/// Builds the context report for the session's next run with this origin: prompt sections and their sizes.
pub(crate) async fn context_report(
    hub: &Shared,
    key: &SessionKey,
    (record, history): (&Record, &SessionHistory),
    (run, extra_prompt, origin): (&RunId, Option<&str>, &RunOrigin),
) -> ContextReport {
    let profile = hub.config.agents().of(key.agent()).in_session(key, origin.cwd.as_ref());
    let (mut record, at) = (record.clone(), hub.ambient.now_ms());
    let failover = model_choice::choose(
        &profile,
        &mut record,
        ModelRequirements { run, thinking: None, is_attended: true },
        (at, None),
    )
    .failover;
    let model = failover.candidate().model.clone();
    let spec = model.spec();
    let prompt_input = PromptInput::new(&profile, key, &record, (extra_prompt, &origin.route));
    let hooks = hub.config.rules().hooks.clone();
    let files = gather::gather(&profile, (origin, key), &hooks, (Some(&record.session_id), at)).await;
    let prompt_input = PromptInput { files, ..prompt_input };
    let tools = prompt_input.tool_specs(spec, &profile.tools_for((origin, key), spec));
    let mut report = prompt_input.report(spec, failover.level(), &tools, (&record.session_id, at));
    if let Some(tokens) = report.tokens.as_mut().filter(|_| !history.is_empty()) {
        tokens.context = Some(measure(spec, tokens.overhead(), history.measured()).tokens());
    }
    report
}

impl Ticket {
    /// True for a command that is answered at once. A bare stop word is a command only while a run is active.
    pub(super) fn is_control(&self, is_busy: bool) -> bool {
        match &self.inbound.command {
            Some(Command::Stop(StopForm::Word)) => is_busy,
            Some(_) | None => !self.inbound.asks_model(),
        }
    }
}

impl Lane {
    /// Formats token usage and cost of this session, of today and of the last 30 days.
    async fn costs(&self) -> String {
        let today = day_of(self.hub.ambient.now_ms());
        let session = self.session.as_ref().map(|session| UsageQuery::Session(session.record.session_id.clone()));
        let periods = [
            ("This conversation", session),
            ("Today (UTC)", Some(UsageQuery::Days(today, today))),
            ("The last 30 days", Some(UsageQuery::Days(today.saturating_sub(29), today))),
        ];
        let mut lines = Vec::new();
        for (name, period) in periods {
            let Some(period) = period else { continue };
            let sum: Spend = match self.hub.store.usage(&period).await {
                Ok(sums) => sums.iter().map(|row| Spend::from(&row.usage)).sum(),
                Err(error) => return format!("The token usage cannot be read: {error}."),
            };
            lines.push(format!("{name}: {} tokens, ${:.4}", sum.tokens, sum.cost));
        }
        lines.join("\n")
    }

    /// Executes a command and answers it.
    pub(super) async fn control(&mut self, mut ticket: Ticket, active: Option<&mut ActiveRun>) {
        let Some(command) = ticket.inbound.command.clone() else { return };
        if !ticket.is_recovered {
            self.fire_command(&ticket.inbound);
        }
        let result = self.execute(command, &mut ticket, active).await;
        let is_new = ticket.acceptance.is_unsent();
        let ticket = self.commit_result(ticket, result);
        // A recovered command is accepted already; its changes must be stored before the session is read again.
        if !is_new && self.hub.writer.barrier().await.is_err() {
            self.is_stale = true;
        }
        if ticket.is_admitted().await {
            self.hub.forget(&ticket.tape);
        } else {
            self.drop_rejected(&ticket);
        }
    }

    /// Executes a command. Returns its changes to the session, which are not stored yet, and its reply.
    async fn execute(
        &mut self,
        command: Command,
        ticket: &mut Ticket,
        active: Option<&mut ActiveRun>,
    ) -> CommandResult {
        match command {
            Command::Stop(_) => {
                // Stored first: after a crash, the next start repeats the stop and sends its reply.
                ticket.accept(&self.hub.writer);
                let runs = self.abort(None, AbortReason::Stop, active).await.len();
                let children = self.hub.stop_descendants(&self.key, AbortReason::Stop);
                let commands = self.hub.background.stop(&self.key);
                CommandResult::reply_only(match (runs, children, commands) {
                    (0, 0, 0) if ticket.is_recovered => stop::AFTER_RESTART.to_owned(),
                    (runs, children, commands) => stop::reply(runs, children, commands),
                })
            }
            Command::Context(view) => CommandResult::reply_only(match self.report(ticket).await {
                Some(report) => format_report(&report, view),
                None => NO_SESSION.to_owned(),
            }),
            Command::Level(LevelSetting::Usage, value) if value.eq_ignore_ascii_case("cost") => {
                CommandResult::reply_only(self.costs().await)
            }
            Command::Approve(approve) => {
                CommandResult::reply_only(self.approve(approve, &ticket.inbound.sender.principal).await)
            }
            Command::Status => {
                let report = self.report(ticket).await;
                self.evaluate(&command, &ticket.inbound, report.as_ref(), active.as_deref())
            }
            Command::NewTranscript { .. }
            | Command::NewTranscriptWith(_)
            | Command::Compact(_)
            | Command::Plugin(..)
            | Command::Queue(_)
            | Command::Level(..)
            | Command::Model(_)
            | Command::Help => self.evaluate(&command, &ticket.inbound, None, active.as_deref()),
        }
    }

    /// Queues the changes and the reply of a command for the writer, as the end of its run.
    fn commit_result(&mut self, ticket: Ticket, result: CommandResult) -> Ticket {
        let mut run = ActiveRun::from(ticket);
        let (at, id) = (self.hub.ambient.now_ms(), run.ticket.inbound.id.run.clone());
        let mut commit = run.ticket.acceptance.begin(&run.ticket.tape);
        if !result.fields.is_empty()
            && let Some(session) = &mut self.session
        {
            // The fields come from a record, so the merge cannot fail.
            if let Ok(record) = merge_record(&session.record, &result.changes()) {
                session.record = record;
            }
            let (expect, record) = (Some(session.record.session_id.clone()), Box::new(session.record.clone()));
            commit.record(Rec::Patch { run: Some(id.clone()), key: self.key.clone(), expect, record });
        }
        let end = self.end_with_reply(result.reply, at);
        let stored = stored_reply(&end, run.ticket.tape.accepted_at());
        let profile = self.hub.config.agents().of(self.key.agent());
        self.open_output(&mut run, &profile);
        let outgoing = self.finals(&run, &end, ShownProgress { is_compacted: false, has_blocks: true });
        commit.records(queue_records(&outgoing));
        if let Some(reply) = end.replies.first() {
            run.ticket.tape.text(at, 0, &reply.text);
        }
        let terminal = Rec::Terminal { run: id, ended: Box::new(stored) };
        commit.fact(at, StoredEvent::Ended(Arc::new(end)), terminal);
        self.hub.send_deliveries(commit, outgoing, None);
        run.ticket
    }

    /// Decides an exec approval. Only the owner's messages are parsed as commands.
    async fn approve(&self, approve: Result<ApproveCommand, String>, principal: &str) -> String {
        let approve = match approve {
            Ok(approve) => approve,
            Err(usage) => return usage,
        };
        let Some(approvals) = self.hub.approvals.get() else { return "Approvals are not enabled here.".to_owned() };
        match approvals.decide(&approve.id, approve.verdict, principal).await {
            Ok(entry) => format!("Approval {}: {}.", entry.id, entry.state.as_str()),
            Err(error) => format!("The decision was not accepted: {error}."),
        }
    }

    /// Builds the context report for the session's next run.
    async fn report(&self, ticket: &Ticket) -> Option<ContextReport> {
        let (session, inbound) = (self.session.as_ref()?, &ticket.inbound);
        let origin = RunOrigin::of(inbound);
        let request = (&inbound.id.run, inbound.options.extra_prompt.as_deref(), &origin);
        Some(context_report(&self.hub, &self.key, (&session.record, &session.history), request).await)
    }

    /// Computes the changes and the reply of a command. The report is about the next request.
    fn evaluate(
        &self,
        command: &Command,
        inbound: &Inbound,
        report: Option<&ContextReport>,
        active: Option<&ActiveRun>,
    ) -> CommandResult {
        let no_session = || CommandResult { fields: Vec::new(), reply: NO_SESSION.to_owned() };
        let Some(session) = &self.session else { return no_session() };
        let profile = self.hub.config.agents().of(self.key.agent());
        // A name may be an alias; the resolved name is stored.
        let mut command = Cow::Borrowed(command);
        if let Command::Model(name) = &*command
            && !name.is_empty()
            && !name.eq_ignore_ascii_case("default")
        {
            match model_choice::resolve_model(&profile, name) {
                Ok((provider, model)) => command = Cow::Owned(Command::Model(format!("{provider}/{model}"))),
                Err(why) => return CommandResult::reply_only(format!("{why}.")),
            }
        }
        let model = model_choice::model(&profile, &session.record);
        let rules = self.hub.config.rules();
        let (channel, config) = rules.queue.of(&inbound.reply.route);
        let now = self.hub.ambient.now_ms();
        let elapsed = |active: &ActiveRun| Duration::from_millis(now.saturating_sub(active.ticket.tape.accepted_at()));
        let shortened = report.and_then(ContextReport::shortening_text);
        let input = StatusInput {
            version: env!("CARGO_PKG_VERSION"),
            model: &model_choice::model_name(&profile, &session.record),
            models: &profile.selectable_models,
            key: &self.key,
            record: &session.record,
            tokens: report.and_then(|report| report.tokens?.context),
            shortened: shortened.as_deref(),
            queue: homard_queue::settings::resolve(
                &QueueOverrides::default(),
                &QueueOverrides::from(&session.record),
                &channel,
                &config,
            ),
            queued: self.inbox.len(),
            active_run: active.map(|active| (active.ticket.run(), elapsed(active))),
            triggers: &rules.triggers,
            levels: profile.levels(model.spec()),
            has_xhigh: model.spec().thinking.contains(&homard_model::ReasoningLevel::Xhigh),
        };
        command.change(&input).unwrap_or_else(no_session)
    }

    fn end_with_reply(&self, reply: String, at: u64) -> RunEnd {
        RunEnd {
            outcome: Outcome::Done,
            replies: vec![Payload::answer(reply)],
            complete_reply: None,
            heartbeat: None,
            entries: Vec::new(),
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

/// Builds the stored end of a command.
fn stored_reply(end: &RunEnd, accepted_at: u64) -> EndRecord {
    let range =
        timeline::TimelineRange { accepted_at, earlier_starts: &[], held: None, stored_at: None, until: end.ended_at };
    EndRecord {
        outcome: Outcome::Done,
        replies: Vec::new(),
        model: end.model.clone(),
        usage: Usage::default(),
        steps: timeline::build_timeline(&[], range),
        ended_at: end.ended_at,
        command_reply: end.replies.first().map(|reply| reply.text.clone()),
        payloads: None,
    }
}
