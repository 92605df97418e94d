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
    hooks::fire_command,
    model_choice::{self, ModelRequirements},
    mutations::merge_record,
    output::{ShownProgress, final_deliveries, open_output},
    ticket::ActiveRun,
};
use crate::{
    budget::Spend,
    context::gather::{self, PromptInput, PromptSession, ReportedSession},
    delivery::queue_records,
    event::{RunEnd, StoredEvent},
    history::SessionHistory,
    hub::{Inbound, Shared},
    timeline,
    tool::RunOrigin,
};

const NO_SESSION: &str = "Session not found.";

/// A session as a report reads it.
pub(crate) struct SessionView<'a> {
    pub(crate) record: &'a Record,
    pub(crate) history: &'a SessionHistory,
}

/// The request that a report is for.
pub(crate) struct ReportRequest<'a> {
    pub(crate) run: &'a RunId,
    /// Addition of the caller to the system prompt.
    pub(crate) extra_prompt: Option<&'a str>,
    pub(crate) origin: &'a RunOrigin,
}

/// Builds the context report for the session's next run with this origin: prompt sections and their sizes.
pub(crate) async fn context_report(
    hub: &Shared,
    key: &SessionKey,
    session: SessionView<'_>,
    request: ReportRequest<'_>,
) -> ContextReport {
    let (SessionView { record, history }, ReportRequest { run, extra_prompt, origin }) = (session, request);
    let profile = hub.config.agents().of(key.agent()).in_session(key, origin.cwd.as_ref());
    let (mut record, at) = (record.clone(), hub.ambient.now_ms());
    let failover = model_choice::choose(
        &profile,
        &mut record,
        ModelRequirements { run, thinking: None, is_attended: true },
        at,
        None,
    )
    .failover;
    let model = failover.candidate().model.clone();
    let spec = model.spec();
    let prompt_input = PromptInput::new(&profile, key, &record, extra_prompt, &origin.route);
    let hooks = hub.config.rules().hooks.clone();
    let files =
        gather::gather(&profile, origin, PromptSession { key, id: Some(&record.session_id), now: at }, &hooks).await;
    let prompt_input = PromptInput { files, ..prompt_input };
    let tools = prompt_input.tool_specs(spec, &profile.tools_for(origin, key, spec));
    let mut report =
        prompt_input.report(spec, failover.level(), &tools, ReportedSession { id: &record.session_id, at });
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

/// Formats token usage and cost of this session, of today and of the last 30 days.
async fn costs(lane: &Lane) -> String {
    let today = day_of(lane.hub.ambient.now_ms());
    let session = lane.session.as_ref().map(|session| UsageQuery::Session(session.record.session_id.clone()));
    let periods = [
        ("This conversation", session),
        ("Today (UTC)", Some(UsageQuery::Days(today, today))),
        ("The last 30 days", Some(UsageQuery::Days(today.saturating_sub(29), today))),
    ];
    let mut lines = Vec::new();
    for (name, period) in periods {
        let Some(period) = period else { continue };
        let sum: Spend = match lane.hub.store.usage(&period).await {
            Ok(sums) => sums.iter().map(|row| Spend::from(&row.usage)).sum(),
            Err(error) => return format!("The token usage cannot be read: {error}."),
        };
        lines.push(format!("{name}: {} tokens, ${:.4}", sum.tokens, sum.cost));
    }
    lines.join("\n")
}

/// Executes a command and answers it.
pub(super) async fn control(lane: &mut Lane, mut ticket: Ticket, active: Option<&mut ActiveRun>) {
    let Some(command) = ticket.inbound.command.clone() else { return };
    if !ticket.is_recovered {
        fire_command(lane, &ticket.inbound);
    }
    let result = execute(lane, command, &mut ticket, active).await;
    let is_new = ticket.acceptance.is_unsent();
    let ticket = commit_result(lane, ticket, result);
    // A recovered command is accepted already; its changes must be stored before the session is read again.
    if !is_new {
        if let Err(error) = lane.hub.writer.barrier().await {
            ticket.tape.mark_broken(&error.to_string());
        }
        if !ticket.tape.is_end_stored() {
            lane.must_reload = true;
            lane.hub.force_end_later(ticket.inbound.id.run.clone(), ticket.tape.accepted_at());
        }
    }
    if ticket.is_admitted().await {
        lane.hub.forget(&ticket.tape);
    } else {
        lane.drop_rejected(&ticket);
    }
}

/// Executes a command. Returns its changes to the session, which are not stored yet, and its reply.
async fn execute(
    lane: &mut Lane,
    command: Command,
    ticket: &mut Ticket,
    active: Option<&mut ActiveRun>,
) -> CommandResult {
    match command {
        Command::Stop(_) => {
            // Stored first: after a crash, the next start repeats the stop and sends its reply.
            ticket.accept(&lane.hub.writer);
            let runs = lane.abort(None, AbortReason::Stop, active).await.len();
            let children = lane.hub.stop_descendants(&lane.key, AbortReason::Stop);
            let commands = lane.hub.background.stop(&lane.key);
            CommandResult::reply_only(match (runs, children, commands) {
                (0, 0, 0) if ticket.is_recovered => stop::AFTER_RESTART.to_owned(),
                (runs, children, commands) => stop::reply(runs, children, commands),
            })
        }
        Command::Context(view) => CommandResult::reply_only(match report(lane, ticket).await {
            Some(report) => format_report(&report, view),
            None => NO_SESSION.to_owned(),
        }),
        Command::Level(LevelSetting::Usage, value) if value.eq_ignore_ascii_case("cost") => {
            CommandResult::reply_only(costs(lane).await)
        }
        Command::Approve(approve) => {
            CommandResult::reply_only(decide_approval(lane, approve, &ticket.inbound.sender.principal).await)
        }
        Command::Status => {
            let report = report(lane, ticket).await;
            evaluate(lane, &command, &ticket.inbound, report.as_ref(), active.as_deref())
        }
        Command::NewTranscript { .. }
        | Command::NewTranscriptWith(_)
        | Command::Compact(_)
        | Command::Plugin(..)
        | Command::Queue(_)
        | Command::Level(..)
        | Command::Model(_)
        | Command::Help => evaluate(lane, &command, &ticket.inbound, None, active.as_deref()),
    }
}

/// Queues the changes and the reply of a command for the writer, as the end of its run.
fn commit_result(lane: &mut Lane, ticket: Ticket, result: CommandResult) -> Ticket {
    let mut run = ActiveRun::from(ticket);
    let (at, id) = (lane.hub.ambient.now_ms(), run.ticket.inbound.id.run.clone());
    let mut commit = run.ticket.acceptance.begin(&run.ticket.tape);
    if !result.fields.is_empty()
        && let Some(session) = &mut lane.session
    {
        // The fields come from a record, so the merge cannot fail.
        if let Ok(record) = merge_record(&session.record, &result.changes()) {
            session.record = record;
        }
        let (expect, record) = (Some(session.record.session_id.clone()), Box::new(session.record.clone()));
        commit.record(Rec::Patch { run: Some(id.clone()), key: lane.key.clone(), expect, record });
    }
    let end = end_with_reply(lane, result.reply, at);
    let stored = stored_reply(&end, run.ticket.tape.accepted_at());
    let profile = lane.hub.config.agents().of(lane.key.agent());
    open_output(lane, &mut run, &profile);
    let outgoing = final_deliveries(lane, &run, &end, ShownProgress { is_compacted: false, has_blocks: true });
    commit.records(queue_records(&outgoing));
    if let Some(reply) = end.replies.first() {
        run.ticket.tape.text(at, 0, &reply.text);
    }
    let terminal = Rec::Terminal { run: id, ended: Box::new(stored) };
    commit.stored_event(at, StoredEvent::Ended(Arc::new(end)), terminal);
    lane.hub.send_with_deliveries(commit, outgoing, None);
    run.ticket
}

/// Decides an exec approval. Only the owner's messages are parsed as commands.
async fn decide_approval(lane: &Lane, approve: Result<ApproveCommand, String>, principal: &str) -> String {
    let approve = match approve {
        Ok(approve) => approve,
        Err(usage) => return usage,
    };
    let Some(approvals) = lane.hub.approvals.get() else { return "Approvals are not enabled here.".to_owned() };
    match approvals.decide(&approve.id, approve.verdict, principal).await {
        Ok(entry) => format!("Approval {}: {}.", entry.id, entry.state.as_str()),
        Err(error) => format!("The decision was not accepted: {error}."),
    }
}

/// Builds the context report for the session's next run.
async fn report(lane: &Lane, ticket: &Ticket) -> Option<ContextReport> {
    let (session, inbound) = (lane.session.as_ref()?, &ticket.inbound);
    let origin = RunOrigin::of(inbound);
    let extra_prompt = inbound.options.extra_prompt.as_deref();
    let request = ReportRequest { run: &inbound.id.run, extra_prompt, origin: &origin };
    let view = SessionView { record: &session.record, history: &session.history };
    Some(context_report(&lane.hub, &lane.key, view, request).await)
}

/// Computes the changes and the reply of a command. The report is about the next request.
fn evaluate(
    lane: &Lane,
    command: &Command,
    inbound: &Inbound,
    report: Option<&ContextReport>,
    active: Option<&ActiveRun>,
) -> CommandResult {
    let no_session = || CommandResult { fields: Vec::new(), reply: NO_SESSION.to_owned() };
    let Some(session) = &lane.session else { return no_session() };
    let profile = lane.hub.config.agents().of(lane.key.agent());
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
    let rules = lane.hub.config.rules();
    let (channel, config) = rules.queue.of(&inbound.reply.route);
    let now = lane.hub.ambient.now_ms();
    let elapsed = |active: &ActiveRun| Duration::from_millis(now.saturating_sub(active.ticket.tape.accepted_at()));
    let shortened = report.and_then(ContextReport::shortening_text);
    let input = StatusInput {
        version: env!("CARGO_PKG_VERSION"),
        model: &model_choice::model_name(&profile, &session.record),
        models: &profile.selectable_models,
        key: &lane.key,
        record: &session.record,
        tokens: report.and_then(|report| report.tokens?.context),
        shortened: shortened.as_deref(),
        queue: homard_queue::settings::resolve(
            &QueueOverrides::default(),
            &QueueOverrides::from(&session.record),
            &channel,
            &config,
        ),
        queued: lane.inbox.len(),
        active_run: active.map(|active| (active.ticket.run(), elapsed(active))),
        triggers: &rules.triggers,
        levels: profile.levels(model.spec()),
        has_xhigh: model.spec().thinking.contains(&homard_model::ReasoningLevel::Xhigh),
    };
    command.change(&input).unwrap_or_else(no_session)
}

fn end_with_reply(lane: &Lane, reply: String, at: u64) -> RunEnd {
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
        session: lane.session.as_ref().map(|session| session.record.session_id.clone()),
        started_at: Some(at),
        ended_at: at,
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
