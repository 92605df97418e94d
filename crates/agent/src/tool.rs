//! The seam between the loop and what an agent can do.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use homard_audit::Audit;
pub use homard_model::ToolSpec;
use homard_proto::{
    CallId, Route, RunId, SessionKey,
    message::Block,
    schema::{Problem, Schema},
};
pub use homard_store::{Authority, ToolClass};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[cfg(doc)]
use crate::Profile;
use crate::{Hub, Inbound, command::OWNER, context::lean, policy::Sender, sandboxing::SandboxView, schedule::SCHEDULE};

pub use crate::lane::slots::Lender;

/// Something that an agent can do.
///
/// The arguments were checked against the spec's schema before `call`. A failure is a [`ToolResult`] that says so:
/// the model reads it and goes on. `call` must end soon after `cx.cancel` fires; one that does not is dropped.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model is told of it.
    fn spec(&self) -> ToolSpec;

    /// Whether it may be repeated after a crash.
    fn class(&self) -> ToolClass;

    /// Does it.
    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult;
}

/// What a tool may know of the run that calls it.
#[derive(Debug, Clone)]
pub struct ToolCx {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionKey,
    /// The call.
    pub call: CallId,
    /// The directory that the agent works in; paths do not leave it.
    pub workdir: PathBuf,
    /// What a sandboxed run has of the agent's workspace; `None` for a run that is not sandboxed.
    pub sandbox: Option<SandboxView>,
    /// Fires when the run is stopped or out of time.
    pub cancel: CancellationToken,
    /// Where news of a long call goes.
    pub progress: Progress,
    /// The run's right to be at work, for a tool that waits for others.
    pub slot: Lender,
    /// What commands of this run find in their environment besides what every command does.
    pub variables: Variables,
    /// Who asked, and from where.
    pub origin: Origin,
    /// The house, for tools that look at sessions or start runs; none for a tool that is called outside a run.
    pub hub: Option<Hub>,
}

impl ToolCx {
    /// A directory besides the working directory that the call may read.
    pub fn readable(&self) -> Option<&Path> {
        self.sandbox.as_ref().and_then(SandboxView::readable)
    }

    /// Whether the call may send files of the workspace to somebody.
    pub fn opens_workspace(&self) -> bool {
        let is_granted =
            |hub: &Hub| hub.agents().of(self.session.agent()).opens_workspace((&self.origin, &self.session));
        self.origin.is_owner() || self.hub.as_ref().is_some_and(is_granted)
    }

    /// Whether the call may have addresses of the web loaded that it writes: see [`Profile::loads_addresses`].
    pub fn loads_addresses(&self) -> bool {
        let may = |hub: &Hub| hub.agents().of(self.session.agent()).loads_addresses((&self.origin, &self.session));
        self.hub.as_ref().is_none_or(may)
    }

    /// Where it is noted what matters to whoever guards the house; nowhere for a tool that is called outside a run.
    pub fn audit(&self) -> Audit {
        self.hub.as_ref().map(Hub::audit).unwrap_or_default()
    }
}

/// Who asked for a run, and from where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Who asked.
    pub principal: String,
    /// Where the message came from, and where answers go.
    pub route: Route,
    /// Working directory that the request asked for; `None` for the agent's workspace. Runs that this one starts work
    /// there, too.
    pub cwd: Option<PathBuf>,
    /// How much of the principal's authority the run has.
    pub authority: Authority,
}

impl Origin {
    /// Origin of the run that a message asks for.
    pub(crate) fn of(inbound: &Inbound) -> Self {
        Self {
            principal: inbound.principal.clone(),
            route: inbound.route.clone(),
            cwd: inbound.cwd.clone(),
            authority: inbound.authority,
        }
    }

    /// Whether the owner asked, now or when a job was made.
    pub fn is_owner(&self) -> bool {
        is_owner(&self.principal)
    }

    /// Whether the owner asked with all of their authority: for what needs `operator.admin` as a method.
    pub fn is_admin(&self) -> bool {
        self.sender() == Sender::Owner
    }

    /// Who asked, as far as the rules for tools go.
    pub(crate) fn sender(&self) -> Sender {
        sender(&self.principal, self.authority)
    }
}

impl Inbound {
    /// Who asks, as far as the rules for tools go.
    pub(crate) fn rights(&self) -> Sender {
        sender(&self.principal, self.authority)
    }
}

fn is_owner(principal: &str) -> bool {
    principal == OWNER || principal == SCHEDULE
}

fn sender(principal: &str, authority: Authority) -> Sender {
    match (is_owner(principal), authority) {
        (true, Authority::Full) => Sender::Owner,
        (true, Authority::Limited) => Sender::Operator,
        (false, _) => Sender::Other,
    }
}

/// Environment variables for the commands of a run, which may be secrets: they are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(Arc<BTreeMap<String, String>>);

impl Variables {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        Self(Arc::new(all.into_iter().collect()))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Where news of a long call goes.
#[derive(Debug, Clone)]
pub struct Progress {
    sender: Option<mpsc::UnboundedSender<ToolResult>>,
}

impl Progress {
    pub(crate) fn channel() -> (Self, mpsc::UnboundedReceiver<ToolResult>) {
        // Unbounded: a tool must not wait for a reader. The run reads it all the time while the tool is at work.
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender: Some(sender) }, receiver)
    }

    /// Nobody listens: for a tool that is called outside a run.
    pub fn silent() -> Self {
        Self { sender: None }
    }

    /// Tells how far the call has come: the result so far, or its newest part.
    pub fn report(&self, partial: ToolResult) {
        if let Some(sender) = &self.sender {
            // A run that is over does not listen any more, and that is fine.
            sender.send(partial).ok();
        }
    }
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// What the model reads.
    pub content: Vec<Block>,
    /// What programs read.
    pub details: Option<Value>,
    /// Whether it failed.
    pub is_error: bool,
}

impl ToolResult {
    /// A plain answer.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Block::text(text)], details: None, is_error: false }
    }

    /// A failure that the model can read and act on.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// The same answer with facts for programs.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

/// The tools of an agent, their schemas compiled once.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Held>,
    told: Arc<Told>,
    /// What is told of some of them only, as far as somebody asked: most runs are asked by the same people.
    parts: Arc<Mutex<Vec<Arc<Told>>>>,
}

/// How many selections of a toolbox are remembered.
const PARTS: usize = 16;

/// What models are told of tools, written once.
#[derive(Default)]
struct Told {
    all: Arc<[ToolSpec]>,
    briefly: OnceLock<Arc<[ToolSpec]>>,
}

impl Told {
    fn new(specs: impl Iterator<Item = ToolSpec>) -> Arc<Self> {
        Arc::new(Self { all: specs.collect(), briefly: OnceLock::new() })
    }
}

#[derive(Clone)]
struct Held {
    tool: Arc<dyn Tool>,
    schema: Arc<Schema>,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.keys()).finish()
    }
}

impl Toolbox {
    /// Puts tools together; of two with one name the later stays.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut specs = BTreeMap::new();
        let mut held = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec();
            let schema = Arc::new(Schema::compile(&spec.parameters));
            held.insert(spec.name.clone(), Held { tool, schema });
            specs.insert(spec.name.clone(), spec);
        }
        Self { tools: held, told: Told::new(specs.into_values()), ..Self::default() }
    }

    /// These tools and others; of two with one name the other stays.
    pub(crate) fn and(mut self, others: Self) -> Self {
        if others.tools.is_empty() {
            return self;
        }
        let mut specs: BTreeMap<_, _> = self.told.all.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
        specs.extend(others.told.all.iter().map(|spec| (spec.name.clone(), spec.clone())));
        self.tools.extend(others.tools);
        Self { tools: self.tools, told: Told::new(specs.into_values()), ..Self::default() }
    }

    /// Their names.
    pub(crate) fn names(&self) -> std::collections::BTreeSet<String> {
        self.tools.keys().cloned().collect()
    }

    /// What the model is told, by name.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.told.all.clone()
    }

    /// What a model is told that takes little.
    pub(crate) fn brief_specs(&self) -> Arc<[ToolSpec]> {
        self.told.briefly.get_or_init(|| lean::tools(&self.told.all)).clone()
    }

    /// The same tools without those that are not `allowed`; no schema is compiled again.
    pub fn only(&self, allowed: impl Fn(&str) -> bool) -> Self {
        let tools = self.tools.iter().filter(|(name, _)| allowed(name));
        let tools: BTreeMap<_, _> = tools.map(|(name, held)| (name.clone(), held.clone())).collect();
        let told = self.told_of(&tools);
        // What is told of a part is remembered where it was asked for first, so that copies find it again.
        let parts = if Arc::ptr_eq(&told, &self.told) { self.parts.clone() } else { Arc::default() };
        Self { tools, told, parts }
    }

    /// What is told of some of these tools.
    fn told_of(&self, tools: &BTreeMap<String, Held>) -> Arc<Told> {
        if tools.len() == self.tools.len() {
            return self.told.clone();
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |told: &&Arc<Told>| {
            told.all.len() == tools.len() && told.all.iter().all(|spec| tools.contains_key(&spec.name))
        };
        if let Some(told) = parts.iter().find(is_of) {
            return told.clone();
        }
        let told = Told::new(self.told.all.iter().filter(|spec| tools.contains_key(&spec.name)).cloned());
        if parts.len() >= PARTS {
            parts.clear();
        }
        parts.push(told.clone());
        told
    }

    /// Whether there is a tool of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Finds a tool and checks its arguments; `Err` is the answer for the model.
    pub fn prepare(&self, name: &str, arguments: &Value) -> Result<(Arc<dyn Tool>, Value), ToolResult> {
        let Some(held) = self.tools.get(name) else {
            return Err(ToolResult::error(format!("Tool {name} not found")));
        };
        let arguments = held.schema.coerce(arguments);
        let problems = held.schema.check(&arguments);
        if problems.is_empty() {
            Ok((held.tool.clone(), arguments))
        } else {
            Err(bad_arguments(name, &problems, &arguments))
        }
    }
}

fn bad_arguments(name: &str, problems: &[Problem], received: &Value) -> ToolResult {
    let mut text = format!("The arguments for {name} do not fit its schema:\n");
    for Problem { path, what } in problems {
        let path = if path.is_empty() { "arguments" } else { path };
        text.push_str(&format!("  - {path}: {what}\n"));
    }
    text.push_str(&format!("Received: {received}"));
    ToolResult::error(text).with_details(json!({"status": "error", "tool": name, "error": "invalid arguments"}))
}
