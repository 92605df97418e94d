//! Scripted hooks, listeners and chat commands of a trace; records what they receive.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{
    Hook, HookContext, HookError, HookEvent, HookPoint, HookResult, Hooks, InternalEvent, Listener, ListenerResult,
    Registration, SlashCommand, SlashCommandCall,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock::TraceClock;

/// A scripted hook, listener or command.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedParticipant {
    /// Name.
    pub name: String,
    /// Where it is registered.
    pub at: HookPlace,
    /// What it does.
    pub behaviour: HookBehaviour,
    /// How long that takes.
    pub delay: Duration,
}

/// Where a participant is registered.
#[derive(Debug, Clone, PartialEq)]
pub enum HookPlace {
    /// At a hook point of the agent loop.
    Point(Registration),
    /// For a signal such as `agent:bootstrap`; the flag makes it a guard.
    Signal(String, bool),
    /// As a chat command.
    Command,
}

/// What a participant does.
#[derive(Debug, Clone, PartialEq)]
pub enum HookBehaviour {
    /// Returns this value.
    Answers(Value),
    /// Fails with this message.
    Fails(String),
    /// Never returns.
    Hangs,
}

/// A recorded invocation.
#[derive(Debug, Clone, PartialEq)]
pub struct HookInvocation {
    /// Time since the beginning of the trace.
    pub at: Duration,
    /// Name of the participant.
    pub name: String,
    /// What it received.
    pub what: String,
}

/// All scripted participants of a trace.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedHooks {
    participants: Vec<ScriptedParticipant>,
    clock: TraceClock,
    invocations: Arc<Mutex<Vec<HookInvocation>>>,
}

impl ScriptedHooks {
    pub(crate) fn new(participants: Vec<ScriptedParticipant>, clock: TraceClock) -> Self {
        Self { participants, clock, invocations: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HookInvocation>> {
        self.invocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the invocations so far.
    pub(crate) fn invocations(&self) -> Vec<HookInvocation> {
        self.lock().clone()
    }

    /// Builds the hooks of a hub. Called for each lifetime, because pending notifications are lost with the process.
    pub(crate) fn hooks(&self) -> Hooks {
        let scripted = |participant: &ScriptedParticipant| {
            Arc::new(ScriptedHook {
                participant: participant.clone(),
                scripted: self.clone(),
                events: events(participant),
            })
        };
        let participants_at = |is_wanted: fn(&HookPlace) -> bool| {
            self.participants.iter().filter(move |participant| is_wanted(&participant.at)).map(scripted)
        };
        let hooks = participants_at(|place| matches!(place, HookPlace::Point(_))).map(|it| it as Arc<dyn Hook>);
        let listeners =
            participants_at(|place| matches!(place, HookPlace::Signal(..))).map(|it| it as Arc<dyn Listener>);
        let commands =
            participants_at(|place| matches!(place, HookPlace::Command)).map(|it| it as Arc<dyn SlashCommand>);
        Hooks::new(hooks.collect(), listeners.collect()).with_commands(commands.collect())
    }
}

fn events(participant: &ScriptedParticipant) -> Vec<String> {
    match &participant.at {
        HookPlace::Signal(event, _) => vec![event.clone()],
        HookPlace::Point(_) | HookPlace::Command => Vec::new(),
    }
}

struct ScriptedHook {
    participant: ScriptedParticipant,
    scripted: ScriptedHooks,
    events: Vec<String>,
}

impl ScriptedHook {
    /// Records an invocation and behaves as scripted.
    async fn invoke(&self, what: String) -> Result<Value, HookError> {
        let (at, name) = (self.scripted.clock.now(), self.participant.name.clone());
        self.scripted.lock().push(HookInvocation { at, name, what });
        sleep(self.participant.delay).await;
        match &self.participant.behaviour {
            HookBehaviour::Answers(value) => Ok(value.clone()),
            HookBehaviour::Fails(why) => Err(HookError::Failed(why.clone())),
            HookBehaviour::Hangs => pending().await,
        }
    }
}

#[async_trait]
impl Hook for ScriptedHook {
    fn name(&self) -> &str {
        &self.participant.name
    }

    fn registrations(&self) -> Vec<Registration> {
        match &self.participant.at {
            HookPlace::Point(registration) => vec![registration.clone()],
            HookPlace::Signal(..) | HookPlace::Command => Vec::new(),
        }
    }

    async fn call(&self, event: HookEvent, context: HookContext) -> Result<HookResult, HookError> {
        let invocation = format_invocation(event.point(), &json!(event), &json!(context));
        let answer = self.invoke(invocation).await?;
        serde_json::from_value(answer).map_err(|error| HookError::Failed(error.to_string()))
    }
}

#[async_trait]
impl Listener for ScriptedHook {
    fn name(&self) -> &str {
        &self.participant.name
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn is_guard(&self, event: &str) -> bool {
        matches!(&self.participant.at, HookPlace::Signal(own, true) if own == event)
    }

    async fn handle(&self, signal: &InternalEvent) -> Result<ListenerResult, HookError> {
        let mut context = json!(signal.context);
        abridge(&mut context);
        let answer = self.invoke(format!("{}:{} {context}", signal.kind, signal.action)).await?;
        let files = answer.get("bootstrapFiles").map(|files| serde_json::from_value(files.clone()));
        let dropped = answer.get("drops").and_then(Value::as_str);
        let without = |name: &str| {
            let files = signal.files().unwrap_or_default();
            files.into_iter().filter(|file| file.name != name).collect()
        };
        Ok(ListenerResult {
            messages: answer.get("says").and_then(Value::as_str).map(str::to_owned).into_iter().collect(),
            bootstrap_files: files.and_then(Result::ok).or_else(|| dropped.map(without)),
        })
    }
}

#[async_trait]
impl SlashCommand for ScriptedHook {
    fn name(&self) -> &str {
        &self.participant.name
    }

    fn description(&self) -> &str {
        "says what it was told to say"
    }

    fn accepts_args(&self) -> bool {
        true
    }

    async fn run(&self, call: SlashCommandCall) -> Result<String, HookError> {
        let answer = self.invoke(format!("command {}", json!(call))).await?;
        Ok(answer.as_str().map_or_else(|| answer.to_string(), str::to_owned))
    }
}

/// Formats what a hook received, in one line: long values are replaced by their length, and constant ones are omitted.
fn format_invocation(point: HookPoint, event: &Value, context: &Value) -> String {
    let (mut event, mut context) = (event.clone(), context.clone());
    abridge(&mut event);
    if let Some(fields) = context.as_object_mut() {
        fields.shift_remove("workspaceDir");
    }
    format!("{} {event} in {context}", point.name())
}

fn abridge(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for (name, value) in fields {
        match name.as_str() {
            "messages" | "historyMessages" | "tools" | "bootstrapFiles" => {
                *value = format!("({} of them)", value.as_array().map_or(0, Vec::len)).into();
            }
            "systemPrompt" | "workspaceDir" | "sessionEntry" | "previousSessionEntry" => *value = "…".into(),
            _ => {}
        }
    }
}
