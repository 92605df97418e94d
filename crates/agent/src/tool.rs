//! Interface between the agent loop and tools.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use homard_audit::Audit;
use homard_command::OWNER;
use homard_policy::tools::SenderRole;
use homard_prompt::compact_tools;
use homard_proto::{
    CallId, Route, RunId, SessionKey,
    schema::{Schema, SchemaViolation},
};
use homard_workspace::skills::Variables;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    Hub, Inbound,
    hub::{InboundSender, SCHEDULE},
    sandboxing::SandboxView,
};

pub use homard_events::ToolResult;
pub use homard_model::ToolSpec;
pub use homard_store::{Authority, ToolClass};

#[cfg(doc)]
use crate::Profile;

pub use homard_queue::slots::Lender;

/// A tool of an agent.
///
/// The arguments were validated against the spec's schema before `call`. A failure is a [`ToolResult`] with `is_error`:
/// the model reads it and continues. `call` must return soon after `cx.cancel` is cancelled; otherwise it is dropped.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the tool's description for the model.
    fn spec(&self) -> ToolSpec;

    /// Returns whether a call may be repeated after a crash.
    fn class(&self) -> ToolClass;

    /// Executes a call.
    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult;
}

/// Context of a tool call.
#[derive(Debug, Clone)]
pub struct ToolCx {
    /// Id of the run.
    pub run: RunId,
    /// Key of the session.
    pub session: SessionKey,
    /// Id of the call.
    pub call: CallId,
    /// Working directory of the agent; paths must not leave it.
    pub workdir: PathBuf,
    /// Access of a sandboxed run to the agent's workspace; `None` for a run that is not sandboxed.
    pub sandbox: Option<SandboxView>,
    /// Cancelled when the run is aborted or out of time.
    pub cancel: CancellationToken,
    /// Receives progress of a long call.
    pub progress: ProgressSender,
    /// The run's slot, for a tool that waits for other runs.
    pub slot: Lender,
    /// Additional environment variables for commands of this run.
    pub variables: Variables,
    /// Principal and route of the request.
    pub origin: RunOrigin,
    /// The hub, for tools that read sessions or start runs; `None` for a call outside a run.
    pub hub: Option<Hub>,
}

impl ToolCx {
    /// Returns a directory besides the working directory that the call may read.
    pub fn readable(&self) -> Option<&Path> {
        self.sandbox.as_ref().and_then(SandboxView::readable)
    }

    /// True if the call may send files of the workspace.
    pub fn may_read_workspace(&self) -> bool {
        let is_granted =
            |hub: &Hub| hub.agents().of(self.session.agent()).may_read_workspace(&self.origin, &self.session);
        self.origin.is_owner() || self.hub.as_ref().is_some_and(is_granted)
    }

    /// True if the call may cause URLs that it writes to be loaded: see [`Profile::may_load_urls`].
    pub fn may_load_urls(&self) -> bool {
        let is_granted = |hub: &Hub| hub.agents().of(self.session.agent()).may_load_urls(&self.origin, &self.session);
        self.hub.as_ref().is_none_or(is_granted)
    }

    /// Returns the audit log; a disabled one for a call outside a run.
    pub fn audit(&self) -> Audit {
        self.hub.as_ref().map(Hub::audit).unwrap_or_default()
    }
}

/// Who requested a run, and from where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOrigin {
    /// Principal.
    pub principal: String,
    /// Origin of the message and destination of replies.
    pub route: Route,
    /// Working directory that the request asked for; `None` for the agent's workspace. Runs started by this one inherit
    /// it.
    pub cwd: Option<PathBuf>,
    /// How much of the principal's authority the run has.
    pub authority: Authority,
}

impl RunOrigin {
    /// Origin of a message's run.
    pub(crate) fn of(inbound: &Inbound) -> Self {
        Self {
            principal: inbound.sender.principal.clone(),
            route: inbound.reply.route.clone(),
            cwd: inbound.options.cwd.clone(),
            authority: inbound.sender.authority,
        }
    }

    /// True if the owner requested it, now or by creating a job.
    pub fn is_owner(&self) -> bool {
        is_owner(&self.principal)
    }

    /// True if the owner requested it with full authority: for actions that need `operator.admin` as a method.
    pub fn is_admin(&self) -> bool {
        self.sender() == SenderRole::Owner
    }

    /// Returns the sender for the tool policy.
    pub(crate) fn sender(&self) -> SenderRole {
        sender(&self.principal, self.authority)
    }
}

impl InboundSender {
    /// Returns the sender for the tool policy.
    pub(crate) fn role(&self) -> SenderRole {
        sender(&self.principal, self.authority)
    }
}

fn is_owner(principal: &str) -> bool {
    principal == OWNER || principal == SCHEDULE
}

fn sender(principal: &str, authority: Authority) -> SenderRole {
    match (is_owner(principal), authority) {
        (true, Authority::Full) => SenderRole::Owner,
        (true, Authority::Limited) => SenderRole::Operator,
        (false, _) => SenderRole::Other,
    }
}

/// Receives progress of a long call.
#[derive(Debug, Clone)]
pub struct ProgressSender {
    sender: Option<mpsc::UnboundedSender<ToolResult>>,
}

impl ProgressSender {
    pub(crate) fn channel() -> (Self, mpsc::UnboundedReceiver<ToolResult>) {
        // Unbounded: a tool must not wait for a reader. The run drains it while the tool runs.
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender: Some(sender) }, receiver)
    }

    /// Drops all progress: for a call outside a run.
    pub fn silent() -> Self {
        Self { sender: None }
    }

    /// Reports progress: the result so far, or its newest part.
    pub fn report(&self, partial: ToolResult) {
        if let Some(sender) = &self.sender {
            // A run that has ended no longer reads it.
            sender.send(partial).ok();
        }
    }
}

/// Tools of an agent, with compiled schemas.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, ToolEntry>,
    cached: Arc<CachedSpecs>,
    /// Cached specs of subsets: most runs of an agent use the same few.
    subsets: Arc<Mutex<Vec<Arc<CachedSpecs>>>>,
}

/// Maximum number of cached subsets.
const MAX_CACHED_SUBSETS: usize = 16;

/// Tool specs for models, built once.
#[derive(Default)]
struct CachedSpecs {
    all: Arc<[ToolSpec]>,
    compact: OnceLock<Arc<[ToolSpec]>>,
}

impl CachedSpecs {
    fn new(specs: impl Iterator<Item = ToolSpec>) -> Arc<Self> {
        Arc::new(Self { all: specs.collect(), compact: OnceLock::new() })
    }
}

#[derive(Clone)]
struct ToolEntry {
    tool: Arc<dyn Tool>,
    schema: Arc<Schema>,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.keys()).finish()
    }
}

impl Toolbox {
    /// Builds a toolbox; of two tools with the same name the later one is kept.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut specs = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec();
            let schema = Arc::new(Schema::compile(&spec.parameters));
            entries.insert(spec.name.clone(), ToolEntry { tool, schema });
            specs.insert(spec.name.clone(), spec);
        }
        Self { tools: entries, cached: CachedSpecs::new(specs.into_values()), ..Self::default() }
    }

    /// Adds other tools; of two with the same name the other one is kept.
    pub(crate) fn and(mut self, others: Self) -> Self {
        if others.tools.is_empty() {
            return self;
        }
        let mut specs: BTreeMap<_, _> = self.cached.all.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
        specs.extend(others.cached.all.iter().map(|spec| (spec.name.clone(), spec.clone())));
        self.tools.extend(others.tools);
        Self { tools: self.tools, cached: CachedSpecs::new(specs.into_values()), ..Self::default() }
    }

    /// Returns the names of all tools.
    pub(crate) fn names(&self) -> std::collections::BTreeSet<String> {
        self.tools.keys().cloned().collect()
    }

    /// Returns all tool specs, sorted by name.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.cached.all.clone()
    }

    /// Returns compact tool specs, for models with a small context window.
    pub(crate) fn compact_specs(&self) -> Arc<[ToolSpec]> {
        self.cached.compact.get_or_init(|| compact_tools::compact_specs(&self.cached.all)).clone()
    }

    /// Returns the toolbox with only the `allowed` tools, without compiling schemas again.
    pub fn only(&self, allowed: impl Fn(&str) -> bool) -> Self {
        let tools = self.tools.iter().filter(|(name, _)| allowed(name));
        let tools: BTreeMap<_, _> = tools.map(|(name, entry)| (name.clone(), entry.clone())).collect();
        let cached = self.specs_of(&tools);
        // Specs of a subset are cached in the original toolbox, so that clones find them again.
        let subsets = if Arc::ptr_eq(&cached, &self.cached) { self.subsets.clone() } else { Arc::default() };
        Self { tools, cached, subsets }
    }

    /// Returns the specs of a subset of these tools.
    fn specs_of(&self, tools: &BTreeMap<String, ToolEntry>) -> Arc<CachedSpecs> {
        if tools.len() == self.tools.len() {
            return self.cached.clone();
        }
        let mut subsets = self.subsets.lock().unwrap_or_else(PoisonError::into_inner);
        let has_tools = |cached: &&Arc<CachedSpecs>| {
            cached.all.len() == tools.len() && cached.all.iter().all(|spec| tools.contains_key(&spec.name))
        };
        if let Some(cached) = subsets.iter().find(has_tools) {
            return cached.clone();
        }
        let cached = CachedSpecs::new(self.cached.all.iter().filter(|spec| tools.contains_key(&spec.name)).cloned());
        if subsets.len() >= MAX_CACHED_SUBSETS {
            subsets.clear();
        }
        subsets.push(cached.clone());
        cached
    }

    /// True if there is a tool with this name.
    pub fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Finds a tool and validates its arguments; `Err` is the result for the model.
    pub fn prepare(&self, name: &str, arguments: &Value) -> Result<(Arc<dyn Tool>, Value), ToolResult> {
        let Some(entry) = self.tools.get(name) else {
            return Err(ToolResult::error(format!("Tool {name} not found")));
        };
        let arguments = entry.schema.coerce(arguments);
        let problems = entry.schema.check(&arguments);
        if problems.is_empty() {
            Ok((entry.tool.clone(), arguments))
        } else {
            Err(bad_arguments(name, &problems, &arguments))
        }
    }
}

fn bad_arguments(name: &str, problems: &[SchemaViolation], received: &Value) -> ToolResult {
    let mut text = format!("The arguments for {name} do not fit its schema:\n");
    for SchemaViolation { path, message } in problems {
        let path = if path.is_empty() { "arguments" } else { path };
        text.push_str(&format!("  - {path}: {message}\n"));
    }
    text.push_str(&format!("Received: {received}"));
    ToolResult::error(text).with_details(json!({"status": "error", "tool": name, "error": "invalid arguments"}))
}
