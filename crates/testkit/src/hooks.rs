//! Scripted hooks, listeners and chat commands of a trace; records what they receive.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{
    Answer, Asked, Context, Event, Heard, Hook, HookError, Hooks, Listener, Point, Registration, Signal, SlashCommand,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock::Clock;

/// A scripted hook, listener or command.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Name.
    pub name: String,
    /// Where it is registered.
    pub at: Place,
    /// What it does.
    pub does: Does,
    /// How long that takes.
    pub takes: Duration,
}

/// Where a participant is registered.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// At a hook point of the agent loop.
    Point(Registration),
    /// For a signal such as `agent:bootstrap`; the flag makes it a guard.
    Signal(String, bool),
    /// As a chat command.
    Command,
}

/// What a participant does.
#[derive(Debug, Clone, PartialEq)]
pub enum Does {
    /// Returns this value.
    Answers(Value),
    /// Fails with this message.
    Fails(String),
    /// Never returns.
    Hangs,
}

/// A recorded invocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Rung {
    /// Time since the beginning of the trace.
    pub at: Duration,
    /// Name of the participant.
    pub name: String,
    /// What it received.
    pub what: String,
}

/// All scripted participants of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    parts: Vec<Part>,
    clock: Clock,
    rung: Arc<Mutex<Vec<Rung>>>,
}

impl Bell {
    pub(crate) fn new(parts: Vec<Part>, clock: Clock) -> Self {
        Self { parts, clock, rung: Arc::default() }
    }

    fn rung_so_far(&self) -> MutexGuard<'_, Vec<Rung>> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the invocations so far.
    pub(crate) fn rung(&self) -> Vec<Rung> {
        self.rung_so_far().clone()
    }

    /// Builds the hooks of a hub. Called for each lifetime, because pending notifications are lost with the process.
    pub(crate) fn hooks(&self) -> Hooks {
        let scripted =
            |part: &Part| Arc::new(Scripted { part: part.clone(), bell: self.clone(), events: events(part) });
        let of =
            |is_wanted: fn(&Place) -> bool| self.parts.iter().filter(move |part| is_wanted(&part.at)).map(scripted);
        let hooks = of(|place| matches!(place, Place::Point(_))).map(|it| it as Arc<dyn Hook>);
        let listeners = of(|place| matches!(place, Place::Signal(..))).map(|it| it as Arc<dyn Listener>);
        let commands = of(|place| matches!(place, Place::Command)).map(|it| it as Arc<dyn SlashCommand>);
        Hooks::new(hooks.collect(), listeners.collect()).with_commands(commands.collect())
    }
}

fn events(part: &Part) -> Vec<String> {
    match &part.at {
        Place::Signal(event, _) => vec![event.clone()],
        Place::Point(_) | Place::Command => Vec::new(),
    }
}

struct Scripted {
    part: Part,
    bell: Bell,
    events: Vec<String>,
}

impl Scripted {
    /// Records an invocation and behaves as scripted.
    async fn ring(&self, what: String) -> Result<Value, HookError> {
        let (at, name) = (self.bell.clock.now(), self.part.name.clone());
        self.bell.rung_so_far().push(Rung { at, name, what });
        sleep(self.part.takes).await;
        match &self.part.does {
            Does::Answers(value) => Ok(value.clone()),
            Does::Fails(why) => Err(HookError::Failed(why.clone())),
            Does::Hangs => pending().await,
        }
    }
}

#[async_trait]
impl Hook for Scripted {
    fn name(&self) -> &str {
        &self.part.name
    }

    fn registrations(&self) -> Vec<Registration> {
        match &self.part.at {
            Place::Point(registration) => vec![registration.clone()],
            Place::Signal(..) | Place::Command => Vec::new(),
        }
    }

    async fn call(&self, event: Event, context: Context) -> Result<Answer, HookError> {
        let told = told(event.point(), &json!(event), &json!(context));
        let answer = self.ring(told).await?;
        serde_json::from_value(answer).map_err(|error| HookError::Failed(error.to_string()))
    }
}

#[async_trait]
impl Listener for Scripted {
    fn name(&self) -> &str {
        &self.part.name
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn is_guard(&self, event: &str) -> bool {
        matches!(&self.part.at, Place::Signal(own, true) if own == event)
    }

    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        let mut context = json!(signal.context);
        abridge(&mut context);
        let answer = self.ring(format!("{}:{} {context}", signal.kind, signal.action)).await?;
        let files = answer.get("bootstrapFiles").map(|files| serde_json::from_value(files.clone()));
        let dropped = answer.get("drops").and_then(Value::as_str);
        let without = |name: &str| {
            let files = signal.files().unwrap_or_default();
            files.into_iter().filter(|file| file.name != name).collect()
        };
        Ok(Heard {
            messages: answer.get("says").and_then(Value::as_str).map(str::to_owned).into_iter().collect(),
            bootstrap_files: files.and_then(Result::ok).or_else(|| dropped.map(without)),
        })
    }
}

#[async_trait]
impl SlashCommand for Scripted {
    fn name(&self) -> &str {
        &self.part.name
    }

    fn description(&self) -> &str {
        "says what it was told to say"
    }

    fn takes_words(&self) -> bool {
        true
    }

    async fn run(&self, asked: Asked) -> Result<String, HookError> {
        let answer = self.ring(format!("command {}", json!(asked))).await?;
        Ok(answer.as_str().map_or_else(|| answer.to_string(), str::to_owned))
    }
}

/// Formats what a hook received, in one line: long values are replaced by their length, and constant ones are omitted.
fn told(point: Point, event: &Value, context: &Value) -> String {
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
