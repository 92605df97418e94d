//! Tools that do what they were told to do: answer, fail, hang, break, report.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{
    task,
    tool::{Progress, Tool, ToolCx, ToolResult, Toolbox},
};
use homard_model::ToolSpec;
use homard_store::ToolClass;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// How it is called.
    pub name: String,
    /// Whether it may be repeated.
    pub class: ToolClass,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a tool does when it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct Behaviour {
    /// How long until it answers.
    pub takes: Duration,
    /// What it tells meanwhile, and when. One that is due after the answer is told nevertheless.
    pub reports: Vec<(Duration, String)>,
    /// Whether it ends when it is told to.
    pub obeys: bool,
    /// What it does in the end.
    pub answer: Answer,
}

/// What a tool does in the end.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It answers, well or badly.
    Says(ToolResult),
    /// It breaks.
    Panics(String),
    /// It never answers.
    Hangs,
}

/// The scripted tools of one trace, and what they do: by the id of a call, else by the tool's name.
#[derive(Debug)]
pub struct Bench {
    behaviours: BTreeMap<String, Behaviour>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    used: BTreeSet<String>,
    complaints: Vec<String>,
}

impl Bench {
    /// Tools that behave like this.
    pub fn new(behaviours: BTreeMap<String, Behaviour>) -> Arc<Self> {
        Arc::new(Self { behaviours, inner: Mutex::default() })
    }

    /// The tools.
    pub fn toolbox(self: &Arc<Self>, definitions: &[Definition]) -> Toolbox {
        let tool = |definition: &Definition| -> Arc<dyn Tool> {
            Arc::new(Scripted { definition: definition.clone(), bench: self.clone() })
        };
        Toolbox::new(definitions.iter().map(tool))
    }

    /// What did not go by the script: calls without a behaviour, behaviours without a call.
    pub fn complaints(&self) -> Vec<String> {
        let inner = self.lock();
        let unused = self.behaviours.keys().filter(|name| !inner.used.contains(*name));
        let unused = unused.map(|name| format!("`tool {name}` was never called"));
        inner.complaints.iter().cloned().chain(unused).collect()
    }

    fn find(&self, call: &str, name: &str) -> Option<Behaviour> {
        let mut inner = self.lock();
        let found = [call, name].into_iter().find_map(|target| self.behaviours.get_key_value(target));
        match found {
            Some((target, behaviour)) => {
                inner.used.insert(target.clone());
                Some(behaviour.clone())
            }
            None => {
                inner.complaints.push(format!("call {call} of {name} was not expected: no `tool` line for it"));
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Scripted {
    definition: Definition,
    bench: Arc<Bench>,
}

#[async_trait]
impl Tool for Scripted {
    fn spec(&self) -> ToolSpec {
        let Definition { name, parameters, .. } = self.definition.clone();
        ToolSpec { description: format!("The scripted tool {name}."), name, parameters }
    }

    fn class(&self) -> ToolClass {
        self.definition.class
    }

    async fn call(&self, cx: ToolCx, _: Value) -> ToolResult {
        let Some(behaviour) = self.bench.find(cx.call.as_str(), &self.definition.name) else {
            return ToolResult::error("the script has no line for this call");
        };
        if !behaviour.obeys {
            return act(behaviour, cx.progress).await;
        }
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => ToolResult::error("stopped as it was told to"),
            result = act(behaviour, cx.progress) => result,
        }
    }
}

async fn act(behaviour: Behaviour, progress: Progress) -> ToolResult {
    let start = Instant::now();
    let Behaviour { takes, reports, answer, .. } = behaviour;
    let (early, late): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|(at, _)| *at < takes || answer == Answer::Hangs);
    if !late.is_empty() {
        // Nobody waits for it, as nobody waits for a tool that goes on talking.
        drop(task::spawn("late reports", report(start, late, progress.clone())));
    }
    report(start, early, progress).await;
    sleep_until(start + takes).await;
    match answer {
        Answer::Says(result) => result,
        // Without the panic hook, so that the test's output stays clean.
        Answer::Panics(text) => resume_unwind(Box::new(text)),
        Answer::Hangs => pending().await,
    }
}

async fn report(start: Instant, reports: Vec<(Duration, String)>, progress: Progress) {
    for (at, text) in reports {
        sleep_until(start + at).await;
        progress.report(ToolResult::text(text));
    }
}

/// The tools that every trace has: `exec {cmd}` has effects, `read {path}` has none.
pub fn usual() -> Vec<Definition> {
    let tool = |name: &str, class, argument: &str| Definition {
        name: name.to_owned(),
        class,
        parameters: json!({
            "type": "object", "required": [argument], "properties": {argument: {"type": "string"}},
        }),
    };
    vec![tool("exec", ToolClass::Effect, "cmd"), tool("read", ToolClass::Read, "path")]
}
