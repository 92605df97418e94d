//! Hooks within a run.

use std::{sync::Arc, time::Duration};

use homard_hooks::{
    Answer, Asked, Called, Compacted, Compacting, Context, Event, LlmInput, LlmOutput, Outcome, Point, Signal,
    ToolCalled, Turn,
};
use homard_model::{
    Request, Spec,
    failover::{Failover, Terms},
    roster::Preferred,
};
use homard_proto::{
    CallId,
    message::{Assistant, Block, Content, Message, User, join_text},
};
use homard_reply::silent::TOKEN as SILENCE;
use homard_store::recovery::STEERED_INTO;
use serde_json::{Map, Value, json};

use super::{Last, RunError, RunScope};
use crate::{
    context::prompt::Prompt,
    event::RunEvent,
    tool::{ToolResult, Toolbox},
};

/// Time limit of a plugin's chat command.
const COMMAND: Duration = Duration::from_secs(30);

/// Changes that hooks made to the prompt for this run. Not stored: the transcript has the original messages.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The original message that the run answers.
    own: Option<User>,
    before_message: Option<String>,
    after_message: Option<String>,
    system: Option<String>,
    before_system: Option<String>,
    after_system: Option<String>,
    /// If set, the only tools that may be called.
    pub(super) tools: Option<Vec<String>>,
}

impl Wanted {
    /// Merges the answers of the newer hook and of its older name, in this order.
    fn of(newer: Answer, older: Answer) -> Self {
        let both = |newer: Option<String>, older: Option<String>| match (newer, older) {
            (Some(newer), Some(older)) => Some(format!("{newer}\n\n{older}")),
            (newer, older) => newer.or(older),
        };
        Self {
            own: None,
            before_message: both(newer.prepend_context, older.prepend_context),
            after_message: both(newer.append_context, older.append_context),
            system: newer.system_prompt.or(older.system_prompt),
            before_system: both(newer.prepend_system_context, older.prepend_system_context),
            after_system: both(newer.append_system_context, older.append_system_context),
            tools: match (newer.tools_allow, older.tools_allow) {
                (Some(newer), Some(older)) => Some(newer.into_iter().filter(|name| older.contains(name)).collect()),
                (newer, older) => newer.or(older),
            },
        }
    }

    /// Applies the changes to the system prompt.
    pub(super) fn apply(&self, mut prompt: Prompt) -> Prompt {
        if let Some(system) = &self.system {
            prompt.text = system.as_str().into();
            prompt.stable = system.len();
        }
        if let Some(before) = &self.before_system {
            prompt.stable += before.len() + 2;
            prompt.text = format!("{before}\n\n{}", prompt.text).into();
        }
        if let Some(after) = &self.after_system {
            prompt.text = format!("{}\n\n{after}", prompt.text).into();
        }
        prompt
    }
}

impl RunScope {
    /// Runs hooks, unless the run is cancelled.
    async fn consult(&mut self, event: Event, place: Context) -> Result<Outcome, RunError> {
        if !self.hooks.has(event.point()) {
            return Ok(Outcome::default());
        }
        let (hooks, cancel) = (self.hooks.clone(), self.cancel.clone());
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RunError::Stopped),
            outcome = hooks.ask(event, &place) => outcome,
        };
        for note in &outcome.notes {
            self.pass(RunEvent::Hooked(Arc::new(note.clone())));
        }
        Ok(outcome)
    }

    /// Runs the hooks before the first model request. `Some` if one of them answers instead.
    pub(super) async fn begin_with_hooks(&mut self) -> Result<Option<Last>, RunError> {
        if let Some(why) = self.brief.found.refusal.take() {
            return Err(RunError::Refused(why));
        }
        let Some(own) = self.own_message() else { return Ok(None) };
        let (place, prompt) = (self.place.clone(), own.content.text());
        // A resumed run may have started to answer already.
        if self.said == 0 {
            let event = Event::BeforeAgentReply { cleaned_body: prompt.clone() };
            let outcome = self.consult(event, place.clone()).await?;
            allowed(&outcome)?;
            if outcome.answer.handled == Some(true) {
                let words = outcome.answer.spoken().unwrap_or(SILENCE).to_owned();
                return Ok(Some(super::say(self, &words).await));
            }
        }
        let outcome = self.consult(Event::BeforeModelResolve { prompt: prompt.clone() }, place.clone()).await?;
        allowed(&outcome)?;
        self.choose_model(&outcome.answer);
        if self.hooks.has(Point::BeforePromptBuild) || self.hooks.has(Point::BeforeAgentStart) {
            let before = self.history.iter().take_while(|message| !is_same(message, &own)).cloned().collect();
            let turn = Turn { prompt, messages: before };
            let newer = self.consult(Event::BeforePromptBuild(turn.clone()), place.clone()).await?;
            allowed(&newer)?;
            let older = self.consult(Event::BeforeAgentStart(turn), place).await?;
            allowed(&older)?;
            self.wanted = Wanted { own: Some(own), ..Wanted::of(newer.answer, older.answer) };
            self.written = None;
            self.add_context();
        }
        Ok(None)
    }

    /// Returns the message that the run answers.
    fn own_message(&self) -> Option<User> {
        let mut users = self.history.iter().rev().filter_map(|message| match &**message {
            Message::User(user) => Some(user),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => None,
        });
        users.find(|user| !user.extra.contains_key(STEERED_INTO)).cloned()
    }

    /// Adds the hooks' context to the message that the run answers, as seen by the model.
    pub(super) fn add_context(&mut self) {
        let Wanted { own: Some(own), before_message, after_message, .. } = &self.wanted else { return };
        if before_message.is_none() && after_message.is_none() {
            return;
        }
        // A compaction may have replaced the message by its quotation.
        let Some(place) = self.history.iter().rposition(|message| is_same(message, own)) else { return };
        let mut told = own.clone();
        told.content = surrounded(told.content, before_message.as_deref(), after_message.as_deref());
        self.history.dress(place, Arc::new(Message::User(told)));
    }

    /// Overrides the session's model for this run, if a hook asks for it and the model exists.
    fn choose_model(&mut self, answer: &Answer) {
        let spec = self.failover.candidate().model.spec();
        let name = match (&answer.provider_override, &answer.model_override) {
            (None, None) => return,
            (Some(provider), Some(model)) => format!("{provider}/{model}"),
            (None, Some(model)) if model.contains('/') => model.clone(),
            (None, Some(model)) => format!("{}/{model}", spec.provider),
            (Some(provider), None) => format!("{provider}/{}", spec.model),
        };
        let roster = match (self.profile.choose)(&name) {
            Ok(roster) => roster,
            Err(why) => return tracing::warn!(%name, %why, "a hook wants a model that cannot be had; it stays"),
        };
        let terms = Terms {
            preferred: Preferred::Any,
            level: self.failover.level(),
            deadline: self.deadline,
            limits: self.profile.limits,
            seed: 0,
        };
        self.failover = Failover::begin(roster, terms, self.hub.ambient.now_ms());
        self.told_failures = 0;
        let model = self.failover.candidate().model.clone();
        self.choose_tools(model.spec());
    }

    /// Fires the hook for a model request.
    pub(super) fn tell_question(&self, spec: &Spec, request: &Request) {
        if !self.hooks.has(Point::LlmInput) {
            return;
        }
        let (prompt, history) =
            request.messages.split_last().map_or((String::new(), &[][..]), |(last, before)| (text_of(last), before));
        let pictures = |message: &Arc<Message>| match &**message {
            Message::User(user) => user.content.images().count(),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => 0,
        };
        let tools = request
            .tools
            .iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters}));
        let event = Event::LlmInput(LlmInput {
            run_id: self.tape.run().to_string(),
            session_id: self.session.to_string(),
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            system_prompt: request.system.to_string(),
            prompt,
            history_messages: history.to_vec(),
            images_count: request.messages.iter().map(pictures).sum(),
            tools: tools.collect(),
        });
        self.hooks.tell(&event, &self.place_with(spec));
    }

    /// Fires the hook for a model's answer.
    pub(super) fn tell_answer(&self, said: &Assistant) {
        if !self.hooks.has(Point::LlmOutput) {
            return;
        }
        let model = self.failover.candidate().model.clone();
        let event = Event::LlmOutput(LlmOutput {
            run_id: self.tape.run().to_string(),
            session_id: self.session.to_string(),
            provider: said.provider.clone(),
            model: said.model.clone(),
            resolved_ref: format!("{}/{}", said.provider, said.model),
            assistant_texts: said.content.iter().filter_map(Block::as_text).map(str::to_owned).collect(),
            last_assistant: serde_json::to_value(Message::Assistant(said.clone())).unwrap_or_default(),
            usage: said.usage.clone(),
        });
        self.hooks.tell(&event, &self.place_with(model.spec()));
    }

    /// Runs the hooks before a compaction.
    pub(super) async fn before_compaction(&mut self, tokens: u64) -> Result<(), RunError> {
        let compacting = Compacting { message_count: self.history.len(), token_count: Some(tokens) };
        self.signal_compaction("compact:before", json!({"messageCount": self.history.len(), "tokenCount": tokens}))
            .await;
        // Hooks cannot prevent it: the context would overflow.
        self.consult(Event::BeforeCompaction(compacting), self.place.clone()).await?;
        Ok(())
    }

    /// Fires the hooks after a compaction: `had` messages before, `tokens` after.
    pub(super) fn after_compaction(&self, had: usize, tokens: u64) {
        let left = self.history.len();
        let event = Event::AfterCompaction(Compacted {
            message_count: left,
            token_count: Some(tokens),
            compacted_count: had.saturating_sub(left),
            session_file: self.hub.store.transcript_path(self.tape.key(), &self.session),
        });
        self.hooks.tell(&event, &self.place);
        if self.hooks.is_heard("session", "compact:after") {
            let context =
                json!({"messageCount": left, "tokenCount": tokens, "compactedCount": had.saturating_sub(left)});
            let (hooks, signal) = (self.hooks.clone(), self.compaction_signal("compact:after", context));
            self.hub.spawn("hook", async move { hooks.signal(signal).await });
        }
    }

    async fn signal_compaction(&self, action: &str, context: Value) {
        if self.hooks.is_heard("session", action) {
            let signal = self.compaction_signal(action, context);
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => {}
                _ = self.hooks.signal(signal) => {}
            }
        }
    }

    fn compaction_signal(&self, action: &str, context: Value) -> Signal {
        let mut context = if let Value::Object(fields) = context { fields } else { Map::new() };
        context.insert("sessionId".to_owned(), self.session.to_string().into());
        Signal {
            kind: "session".to_owned(),
            action: action.to_owned(),
            session_key: self.tape.key().to_string(),
            context,
            timestamp: self.hub.ambient.now_ms(),
            messages: Vec::new(),
        }
    }

    fn place_with(&self, spec: &Spec) -> Context {
        let (provider, model) = (Some(spec.provider.clone()), Some(spec.model.clone()));
        Context { model_provider_id: provider, model_id: model, ..self.place.clone() }
    }

    /// Runs the hooks before a tool call. Returns the arguments to use, or the result of a denied call.
    pub(super) async fn before_call(
        &mut self,
        (call, name): (&CallId, &str),
        arguments: Value,
    ) -> Result<Result<Value, ToolResult>, RunError> {
        let Value::Object(params) = arguments else { return Ok(Ok(arguments)) };
        let event = Event::BeforeToolCall(Called {
            tool_name: name.to_owned(),
            params: params.clone(),
            run_id: self.tape.run().to_string(),
            tool_call_id: call.to_string(),
        });
        let place = self.place_of_call(call, name);
        let outcome = self.consult(event, place).await?;
        if let Some(why) = outcome.refusal() {
            let details = json!({"status": "error", "tool": name, "error": why});
            return Ok(Err(ToolResult::error(why).with_details(details)));
        }
        let mut params = params;
        params.extend(outcome.answer.params.unwrap_or_default());
        Ok(Ok(Value::Object(params)))
    }

    /// Executes a plugin's chat command. Its reply is not stored in the transcript.
    pub(super) async fn obey(&mut self, word: &str, words: String) -> Result<Last, RunError> {
        let hooks = self.hooks.clone();
        let command = hooks.commands().iter().find(|command| command.name() == word);
        let Some(command) = command else {
            return Err(RunError::Refused(format!("there is no command /{word} any more")));
        };
        let asked = Asked {
            sender_id: self.origin.principal.clone(),
            channel: self.place.channel_id.clone().unwrap_or_default(),
            is_authorized_sender: self.origin.is_owner(),
            command_body: format!("/{word} {words}").trim_end().to_owned(),
            args: Some(words).filter(|words| !words.is_empty()),
            session_key: self.tape.key().to_string(),
            workspace_dir: self.profile.home().clone(),
            config: Value::Null,
        };
        let said = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(RunError::Stopped),
            said = tokio::time::timeout(COMMAND, command.run(asked)) => said,
        };
        let words = match said {
            Ok(Ok(words)) => self.profile.secrets.mask(&words).into_owned(),
            Ok(Err(error)) => format!("/{word} failed: {error}."),
            Err(_) => format!("/{word} gave no answer within {} s.", COMMAND.as_secs()),
        };
        self.tape.text(self.hub.ambient.now_ms(), self.said, &words);
        Ok(Last { words: Some(words), ..Last::default() })
    }

    pub(super) fn place_of_call(&self, call: &CallId, name: &str) -> Context {
        Context { tool_name: Some(name.to_owned()), tool_call_id: Some(call.to_string()), ..self.place.clone() }
    }

    /// Restricts the toolbox to the tools that hooks allow.
    pub(super) fn without_unwanted(&self, own: Toolbox) -> Toolbox {
        match &self.wanted.tools {
            Some(names) => own.only(|name| names.iter().any(|allowed| allowed == name)),
            None => own,
        }
    }
}

/// Runs the hooks after a tool call, which may replace its result.
pub(super) async fn after_call(
    (hooks, place): (&homard_hooks::Hooks, &Context),
    run: &str,
    params: Map<String, Value>,
    (result, duration_ms): (ToolResult, u64),
) -> ToolResult {
    let event = Event::AfterToolCall(ToolCalled {
        tool_name: place.tool_name.clone().unwrap_or_default(),
        params,
        run_id: run.to_owned(),
        tool_call_id: place.tool_call_id.clone().unwrap_or_default(),
        result: json!({"content": result.content, "details": result.details}),
        error: result.is_error.then(|| join_text(&result.content)),
        duration_ms,
    });
    let outcome = hooks.ask(event, place).await;
    if let Some(why) = outcome.refusal() {
        return ToolResult::error(format!("The result is withheld: {why}"));
    }
    match outcome.answer.result {
        Some(Value::String(text)) => ToolResult { content: vec![Block::text(text)], ..result },
        Some(wanted) => instead_of(result, &wanted),
        None => result,
    }
}

fn instead_of(result: ToolResult, wanted: &Value) -> ToolResult {
    match serde_json::from_value(wanted["content"].clone()) {
        Ok(content) => ToolResult { content, details: wanted.get("details").cloned(), ..result },
        Err(error) => {
            tracing::warn!(%error, "hook returned an invalid tool result; keeping the original");
            result
        }
    }
}

/// Returns an error if a hook denied the run.
fn allowed(outcome: &Outcome) -> Result<(), RunError> {
    outcome.refusal().map_or(Ok(()), |why| Err(RunError::Refused(why.to_owned())))
}

fn is_same(message: &Arc<Message>, own: &User) -> bool {
    matches!(&**message, Message::User(user) if user == own)
}

fn text_of(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(),
        Message::Assistant(said) => join_text(&said.content),
        Message::ToolResult(result) => join_text(&result.content),
        Message::Other(_) => String::new(),
    }
}

/// Puts text before and after the content of a message.
fn surrounded(content: Content, before: Option<&str>, after: Option<&str>) -> Content {
    let around = |text: &str| {
        let parts = [before, Some(text), after];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    };
    match content {
        Content::Text(text) => Content::Text(around(&text)),
        Content::Blocks(mut blocks) => {
            match blocks.iter().position(|block| block.as_text().is_some()) {
                Some(place) => blocks[place] = Block::text(around(blocks[place].as_text().unwrap_or_default())),
                None => blocks.insert(0, Block::text(around(""))),
            }
            Content::Blocks(blocks)
        }
    }
}
