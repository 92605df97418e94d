//! Hooks within a run.

use std::{sync::Arc, time::Duration};

use homard_hooks::{
    CompactionEnd, CompactionStart, HookContext, HookEvent, HookOutcome, HookPoint, HookResult, InternalEvent,
    LlmInput, LlmOutput, RunStart, SlashCommandCall, ToolCallEnd, ToolCallStart,
};
use homard_model::{
    ModelSpec, Request,
    candidates::PreferredCredential,
    failover::{Failover, FailoverTerms},
};
use homard_prompt::sections::SystemPrompt;
use homard_proto::{
    CallId,
    message::{Assistant, Block, Content, Message, STEERED_INTO, User, join_text},
};
use homard_reply::silent::TOKEN as SILENCE;
use serde_json::{Map, Value, json};

use super::{FinalRecords, RunError, RunScope};
use crate::tool::{ToolResult, Toolbox};

/// Time limit of a plugin's chat command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Changes that hooks made to the prompt for this run. Not stored: the transcript has the original messages.
#[derive(Debug, Default)]
pub(crate) struct PromptChanges {
    /// The original message that the run answers.
    user_message: Option<User>,
    before_message: Option<String>,
    after_message: Option<String>,
    system: Option<String>,
    before_system: Option<String>,
    after_system: Option<String>,
    /// If set, the only tools that may be called.
    tools: Option<Vec<String>>,
}

impl PromptChanges {
    /// Merges the answers of the newer hook and of its older name, in this order.
    fn of(newer: HookResult, older: HookResult) -> Self {
        let join = |newer: Option<String>, older: Option<String>| match (newer, older) {
            (Some(newer), Some(older)) => Some(format!("{newer}\n\n{older}")),
            (newer, older) => newer.or(older),
        };
        Self {
            user_message: None,
            before_message: join(newer.prepend_context, older.prepend_context),
            after_message: join(newer.append_context, older.append_context),
            system: newer.system_prompt.or(older.system_prompt),
            before_system: join(newer.prepend_system_context, older.prepend_system_context),
            after_system: join(newer.append_system_context, older.append_system_context),
            tools: match (newer.tools_allow, older.tools_allow) {
                (Some(newer), Some(older)) => Some(newer.into_iter().filter(|name| older.contains(name)).collect()),
                (newer, older) => newer.or(older),
            },
        }
    }

    /// Restricts the toolbox to the tools that hooks allow.
    pub(super) fn restrict_tools(&self, toolbox: Toolbox) -> Toolbox {
        match &self.tools {
            Some(names) => toolbox.only(|name| names.iter().any(|allowed| allowed == name)),
            None => toolbox,
        }
    }

    /// Applies the changes to the system prompt.
    pub(super) fn apply(&self, mut prompt: SystemPrompt) -> SystemPrompt {
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
    async fn run_hooks(&mut self, event: HookEvent, context: HookContext) -> Result<HookOutcome, RunError> {
        if !self.hooks.registered.has(event.point()) {
            return Ok(HookOutcome::default());
        }
        let (hooks, cancel) = (self.hooks.registered.clone(), self.io.cancel.clone());
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RunError::Stopped),
            outcome = hooks.call(event, &context) => outcome,
        };
        for note in &outcome.notes {
            self.io.emit(Arc::new(note.clone()));
        }
        Ok(outcome)
    }

    /// Runs the hooks before the first model request. `Some` if one of them answers instead.
    pub(super) async fn begin_with_hooks(&mut self) -> Result<Option<FinalRecords>, RunError> {
        if let Some(why) = self.prompt.input.files.refusal.take() {
            return Err(RunError::Refused(why));
        }
        let Some(user_message) = self.own_message() else { return Ok(None) };
        let (context, prompt) = (self.hooks.context.clone(), user_message.content.text());
        // A resumed run may have started to answer already.
        if self.output.message_count == 0 {
            let event = HookEvent::BeforeAgentReply { cleaned_body: prompt.clone() };
            let outcome = self.run_hooks(event, context.clone()).await?;
            allowed(&outcome)?;
            if outcome.answer.handled == Some(true) {
                let reply = outcome.answer.reply_text().unwrap_or(SILENCE).to_owned();
                return Ok(Some(super::answer_without_model(self, &reply).await));
            }
        }
        let outcome = self.run_hooks(HookEvent::BeforeModelResolve { prompt: prompt.clone() }, context.clone()).await?;
        allowed(&outcome)?;
        self.choose_model(&outcome.answer);
        if self.hooks.registered.has(HookPoint::BeforePromptBuild)
            || self.hooks.registered.has(HookPoint::BeforeAgentStart)
        {
            let before =
                self.context.history.iter().take_while(|message| !is_same(message, &user_message)).cloned().collect();
            let run_start = RunStart { prompt, messages: before };
            let newer = self.run_hooks(HookEvent::BeforePromptBuild(run_start.clone()), context.clone()).await?;
            allowed(&newer)?;
            let older = self.run_hooks(HookEvent::BeforeAgentStart(run_start), context).await?;
            allowed(&older)?;
            self.prompt.changes =
                PromptChanges { user_message: Some(user_message), ..PromptChanges::of(newer.answer, older.answer) };
            self.prompt.rendered = None;
            self.add_context();
        }
        Ok(None)
    }

    /// Returns the message that the run answers.
    fn own_message(&self) -> Option<User> {
        let mut users = self.context.history.iter().rev().filter_map(|message| match &**message {
            Message::User(user) => Some(user),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => None,
        });
        users.find(|user| !user.extra.contains_key(STEERED_INTO)).cloned()
    }

    /// Adds the hooks' context to the message that the run answers, as seen by the model.
    pub(super) fn add_context(&mut self) {
        let PromptChanges { user_message: Some(user_message), before_message, after_message, .. } =
            &self.prompt.changes
        else {
            return;
        };
        if before_message.is_none() && after_message.is_none() {
            return;
        }
        // A compaction may have replaced the message by its quotation.
        let Some(index) = self.context.history.iter().rposition(|message| is_same(message, user_message)) else {
            return;
        };
        let mut message = user_message.clone();
        message.content = surrounded(message.content, before_message.as_deref(), after_message.as_deref());
        self.context.history.override_message(index, Arc::new(Message::User(message)));
    }

    /// Overrides the session's model for this run, if a hook asks for it and the model exists.
    fn choose_model(&mut self, answer: &HookResult) {
        let spec = self.model.spec();
        let name = match (&answer.provider_override, &answer.model_override) {
            (None, None) => return,
            (Some(provider), Some(model)) => format!("{provider}/{model}"),
            (None, Some(model)) if model.contains('/') => model.clone(),
            (None, Some(model)) => format!("{}/{model}", spec.provider),
            (Some(provider), None) => format!("{provider}/{}", spec.model),
        };
        let candidates = match (self.profile.resolve_model)(&name) {
            Ok(candidates) => candidates,
            Err(why) => return tracing::warn!(%name, %why, "hook chose an unavailable model; keeping the current one"),
        };
        let terms = FailoverTerms {
            preferred: PreferredCredential::Any,
            level: self.model.failover.level(),
            deadline: self.io.deadline,
            limits: self.profile.retry.limits,
            seed: 0,
        };
        self.model.failover = Failover::begin(candidates, terms, self.io.now());
        self.model.reported_failures = 0;
        let model = self.model.current();
        self.choose_tools(model.spec());
    }

    /// Fires the hook for a model request.
    pub(super) fn fire_llm_input(&self, spec: &ModelSpec, request: &Request) {
        if !self.hooks.registered.has(HookPoint::LlmInput) {
            return;
        }
        let (prompt, history) =
            request.messages.split_last().map_or((String::new(), &[][..]), |(last, before)| (text_of(last), before));
        let image_count = |message: &Arc<Message>| match &**message {
            Message::User(user) => user.content.images().count(),
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => 0,
        };
        let tools = request
            .tools
            .iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters}));
        let event = HookEvent::LlmInput(LlmInput {
            run_id: self.io.tape.run().to_string(),
            session_id: self.io.session.to_string(),
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            system_prompt: request.system.to_string(),
            prompt,
            history_messages: history.to_vec(),
            images_count: request.messages.iter().map(image_count).sum(),
            tools: tools.collect(),
        });
        self.hooks.registered.notify(&event, &self.context_with(spec));
    }

    /// Fires the hook for a model's answer.
    pub(super) fn fire_llm_output(&self, answer: &Assistant) {
        if !self.hooks.registered.has(HookPoint::LlmOutput) {
            return;
        }
        let model = self.model.current();
        let event = HookEvent::LlmOutput(LlmOutput {
            run_id: self.io.tape.run().to_string(),
            session_id: self.io.session.to_string(),
            provider: answer.provider.clone(),
            model: answer.model.clone(),
            resolved_ref: format!("{}/{}", answer.provider, answer.model),
            assistant_texts: answer.content.iter().filter_map(Block::as_text).map(str::to_owned).collect(),
            last_assistant: serde_json::to_value(Message::Assistant(answer.clone())).unwrap_or_default(),
            usage: answer.usage.clone(),
        });
        self.hooks.registered.notify(&event, &self.context_with(model.spec()));
    }

    /// Runs the hooks before a compaction.
    pub(super) async fn before_compaction(&mut self, tokens: u64) -> Result<(), RunError> {
        let compacting = CompactionStart { message_count: self.context.history.len(), token_count: Some(tokens) };
        self.signal_compaction(
            "compact:before",
            json!({"messageCount": self.context.history.len(), "tokenCount": tokens}),
        )
        .await;
        // Hooks cannot prevent it: the context would overflow.
        self.run_hooks(HookEvent::BeforeCompaction(compacting), self.hooks.context.clone()).await?;
        Ok(())
    }

    /// Fires the hooks after a compaction: `previous_count` messages before, `tokens` after.
    pub(super) fn after_compaction(&self, previous_count: usize, tokens: u64) {
        let count = self.context.history.len();
        let event = HookEvent::AfterCompaction(CompactionEnd {
            message_count: count,
            token_count: Some(tokens),
            compacted_count: previous_count.saturating_sub(count),
            session_file: self.io.hub.store.transcript_path(self.io.tape.key(), &self.io.session),
        });
        self.hooks.registered.notify(&event, &self.hooks.context);
        if self.hooks.registered.has_listener("session", "compact:after") {
            let context = json!({
                "messageCount": count, "tokenCount": tokens, "compactedCount": previous_count.saturating_sub(count),
            });
            let (hooks, signal) = (self.hooks.registered.clone(), self.compaction_signal("compact:after", context));
            self.io.hub.spawn("hook", async move { hooks.emit(signal).await });
        }
    }

    async fn signal_compaction(&self, action: &str, context: Value) {
        if self.hooks.registered.has_listener("session", action) {
            let signal = self.compaction_signal(action, context);
            tokio::select! {
                biased;
                () = self.io.cancel.cancelled() => {}
                _ = self.hooks.registered.emit(signal) => {}
            }
        }
    }

    fn compaction_signal(&self, action: &str, context: Value) -> InternalEvent {
        let mut context = if let Value::Object(fields) = context { fields } else { Map::new() };
        context.insert("sessionId".to_owned(), self.io.session.to_string().into());
        InternalEvent {
            kind: "session".to_owned(),
            action: action.to_owned(),
            session_key: self.io.tape.key().to_string(),
            context,
            timestamp: self.io.now(),
            messages: Vec::new(),
        }
    }

    fn context_with(&self, spec: &ModelSpec) -> HookContext {
        let (provider, model) = (Some(spec.provider.clone()), Some(spec.model.clone()));
        HookContext { model_provider_id: provider, model_id: model, ..self.hooks.context.clone() }
    }

    /// Runs the hooks before a tool call. Returns the arguments to use, or the result of a denied call.
    pub(super) async fn before_call(
        &mut self,
        call: &CallId,
        name: &str,
        arguments: Value,
    ) -> Result<Result<Value, ToolResult>, RunError> {
        let Value::Object(params) = arguments else { return Ok(Ok(arguments)) };
        let event = HookEvent::BeforeToolCall(ToolCallStart {
            tool_name: name.to_owned(),
            params: params.clone(),
            run_id: self.io.tape.run().to_string(),
            tool_call_id: call.to_string(),
        });
        let context = self.call_context(call, name);
        let outcome = self.run_hooks(event, context).await?;
        if let Some(why) = outcome.block_reason() {
            let details = json!({"status": "error", "tool": name, "error": why});
            return Ok(Err(ToolResult::error(why).with_details(details)));
        }
        let mut params = params;
        params.extend(outcome.answer.params.unwrap_or_default());
        Ok(Ok(Value::Object(params)))
    }

    /// Executes a plugin's chat command. Its reply is not stored in the transcript.
    pub(super) async fn run_plugin_command(&mut self, name: &str, arguments: String) -> Result<FinalRecords, RunError> {
        let hooks = self.hooks.registered.clone();
        let command = hooks.commands().iter().find(|command| command.name() == name);
        let Some(command) = command else {
            return Err(RunError::Refused(format!("the command /{name} no longer exists")));
        };
        let call = SlashCommandCall {
            sender_id: self.request.origin.principal.clone(),
            channel: self.hooks.context.channel_id.clone().unwrap_or_default(),
            is_authorized_sender: self.request.origin.is_owner(),
            command_body: format!("/{name} {arguments}").trim_end().to_owned(),
            args: Some(arguments).filter(|arguments| !arguments.is_empty()),
            session_key: self.io.tape.key().to_string(),
            workspace_dir: self.profile.home().clone(),
            config: Value::Null,
        };
        let result = tokio::select! {
            biased;
            () = self.io.cancel.cancelled() => return Err(RunError::Stopped),
            result = tokio::time::timeout(COMMAND_TIMEOUT, command.run(call)) => result,
        };
        let reply = match result {
            Ok(Ok(text)) => self.profile.secrets.mask(&text).into_owned(),
            Ok(Err(error)) => format!("/{name} failed: {error}."),
            Err(_) => format!("/{name} gave no answer within {} s.", COMMAND_TIMEOUT.as_secs()),
        };
        self.io.tape.text(self.io.now(), self.output.message_count, &reply);
        Ok(FinalRecords { reply: Some(reply), ..FinalRecords::default() })
    }

    pub(super) fn call_context(&self, call: &CallId, name: &str) -> HookContext {
        HookContext {
            tool_name: Some(name.to_owned()),
            tool_call_id: Some(call.to_string()),
            ..self.hooks.context.clone()
        }
    }
}

/// A tool call that has a result.
pub(super) struct FinishedCall<'a> {
    pub(super) run: &'a str,
    /// Its arguments, with masked secrets.
    pub(super) params: Map<String, Value>,
    pub(super) duration_ms: u64,
}

/// Runs the hooks after a tool call, which may replace its result.
pub(super) async fn after_call(
    hooks: &homard_hooks::Hooks,
    context: &HookContext,
    call: FinishedCall<'_>,
    result: ToolResult,
) -> ToolResult {
    let FinishedCall { run, params, duration_ms } = call;
    let event = HookEvent::AfterToolCall(ToolCallEnd {
        tool_name: context.tool_name.clone().unwrap_or_default(),
        params,
        run_id: run.to_owned(),
        tool_call_id: context.tool_call_id.clone().unwrap_or_default(),
        result: json!({"content": result.content, "details": result.details}),
        error: result.is_error.then(|| join_text(&result.content)),
        duration_ms,
    });
    let outcome = hooks.call(event, context).await;
    if let Some(why) = outcome.block_reason() {
        return ToolResult::error(format!("The result is withheld: {why}"));
    }
    match outcome.answer.result {
        Some(Value::String(text)) => ToolResult { content: vec![Block::text(text)], ..result },
        Some(replacement) => replace_result(result, &replacement),
        None => result,
    }
}

fn replace_result(result: ToolResult, replacement: &Value) -> ToolResult {
    match serde_json::from_value(replacement["content"].clone()) {
        Ok(content) => ToolResult { content, details: replacement.get("details").cloned(), ..result },
        Err(error) => {
            tracing::warn!(%error, "hook returned an invalid tool result; keeping the original");
            result
        }
    }
}

/// Returns an error if a hook denied the run.
fn allowed(outcome: &HookOutcome) -> Result<(), RunError> {
    outcome.block_reason().map_or(Ok(()), |why| Err(RunError::Refused(why.to_owned())))
}

fn is_same(message: &Arc<Message>, user_message: &User) -> bool {
    matches!(&**message, Message::User(user) if user == user_message)
}

fn text_of(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(),
        Message::Assistant(answer) => join_text(&answer.content),
        Message::ToolResult(result) => join_text(&result.content),
        Message::Other(_) => String::new(),
    }
}

/// Puts text before and after the content of a message.
fn surrounded(content: Content, before: Option<&str>, after: Option<&str>) -> Content {
    let surround = |text: &str| {
        let parts = [before, Some(text), after];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    };
    match content {
        Content::Text(text) => Content::Text(surround(&text)),
        Content::Blocks(mut blocks) => {
            match blocks.iter().position(|block| block.as_text().is_some()) {
                Some(index) => blocks[index] = Block::text(surround(blocks[index].as_text().unwrap_or_default())),
                None => blocks.insert(0, Block::text(surround(""))),
            }
            Content::Blocks(blocks)
        }
    }
}
