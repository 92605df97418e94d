//! Entry point of the crate: submit a message, abort a run, wait for one, read sessions.

mod background;
mod backlog;
mod children;
mod compact;
mod config;
mod held;
mod hook_events;
mod inbound;
mod lifecycle;
mod live_status;
mod model_requests;
mod recover;
mod registry;
mod request;
mod runs;
mod sessions;
pub(crate) mod shared;
mod status;
mod submit;
mod trace;
mod waits;

use std::sync::{Arc, Mutex, OnceLock};

use homard_approvals::ExecApprovals;
use homard_audit::Audit;
use homard_queue::slots::Slots;
use homard_request_log::RequestLog;
use homard_runtime::ambient::Ambient;
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    delivery::{Deliveries, HubDeliveries},
    lane::idle_cache::IdleCache,
    profile::Agents,
    writer::CommitWriter,
};
use background::RunningCommands;
use backlog::Backlog;
use config::HubConfig;
use held::HeldRuns;

pub use background::{BackgroundCommand, HubBackground};
pub use children::{ChildOutcome, ChildRun, Cleanup, HubChildren, SpawnError, SpawnParams, SpawnedChild, parent_of};
pub use compact::CompactionResult;
pub use config::FencedStore;
pub use held::{HeldError, drop_records};
pub use homard_events::trace::{HeldRun, RunTrace};
pub use homard_store::{
    RunFilter, RunQuery,
    usage::{UsageQuery, UsageSum, day_of},
};
pub use hook_events::HubHooks;
pub(crate) use inbound::is_answer_due;
pub use inbound::{HTTP, Inbound, InboundId, InboundOptions, InboundReply, InboundSender, InboundSession, SCHEDULE};
pub use lifecycle::HubLifecycle;
pub use live_status::{LiveRunStatus, RunProgress};
pub use model_requests::{LoggedRequest, ModelRequests, RequestError, model_requests};
pub use recover::{CrashLoops, RecoveryResult};
pub(crate) use request::Admission;
pub use request::{
    AcceptedRun, HubEvent, HubRules, QueueDefaults, SubmitError, SubmitOutcome, WaitResult, WorkingDirs,
};
pub use runs::HubRuns;
pub use sessions::{HistoryEntries, HubSessions};
pub(crate) use shared::Shared;
pub use waits::WaitGuard;

/// Handle of the agent loop. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct Hub(pub(crate) Arc<Shared>);

impl Hub {
    /// Starts a hub. The receiver gets events of all runs; it may be dropped if it is not needed.
    pub fn start(
        ambient: Ambient,
        store: FencedStore,
        agents: Agents,
        slots: Slots,
        rules: HubRules,
    ) -> (Self, mpsc::UnboundedReceiver<HubEvent>) {
        let FencedStore { store, fence } = store;
        // Unbounded: a tape is queued at most once until it is read, so there are never more entries than live runs,
        // plus one event for each delivery.
        let (feed, receiver) = mpsc::unbounded_channel();
        let (writer, _) = CommitWriter::start(store.clone(), fence);
        let shared = Shared {
            ambient,
            store,
            writer,
            config: HubConfig::new(agents, rules),
            slots,
            idle_cache: IdleCache::default(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            feed,
            tracker: TaskTracker::new(),
            live: Mutex::default(),
            arrivals: Notify::new(),
            approvals: OnceLock::new(),
            deliveries: Deliveries::default(),
            background: RunningCommands::default(),
            budgets: Arc::default(),
            backlog: Backlog::default(),
            held: HeldRuns::default(),
        };
        (Self(Arc::new(shared)), receiver)
    }

    /// Source of time and ids.
    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    /// Returns the configured agents.
    pub fn agents(&self) -> Agents {
        self.0.config.agents()
    }

    /// Replaces agents and rules. Active runs keep the old ones; runs that start later use the new ones.
    pub fn reconfigure(&self, agents: Agents, rules: HubRules) {
        self.0.config.change(agents, rules);
    }

    /// Sets where exec approvals are requested. Can be set once; later calls are ignored.
    pub fn set_approvals(&self, approvals: &ExecApprovals) {
        self.0.approvals.get_or_init(|| approvals.clone());
    }

    /// Returns where exec approvals are requested, if set.
    pub fn approvals(&self) -> Option<&ExecApprovals> {
        self.0.approvals.get()
    }

    /// Returns the audit log.
    pub fn audit(&self) -> Audit {
        self.0.config.rules().audit.clone()
    }

    /// Returns where the prompts of model requests are kept.
    pub fn request_log(&self) -> RequestLog {
        self.0.config.rules().request_log.clone()
    }

    /// Accepts a message. When this returns `Ok`, the message is on disk and its run will end exactly once.
    ///
    /// Unfinished runs of earlier processes in the session are queued first. The run id is then checked and claimed
    /// under one lock: of two equal requests at the same time one runs, and both get the same result.
    pub async fn submit(&self, inbound: Inbound) -> Result<AcceptedRun, SubmitError> {
        self.runs().submit(inbound).await
    }

    /// Sessions: their records, transcripts, changes and status.
    pub fn sessions(&self) -> HubSessions<'_> {
        HubSessions { hub: self }
    }

    /// Runs: live, held and finished ones.
    pub fn runs(&self) -> HubRuns<'_> {
        HubRuns { hub: self }
    }

    /// Messages to channels.
    pub fn deliveries(&self) -> HubDeliveries<'_> {
        HubDeliveries { hub: self }
    }

    /// Commands that outlive their tool call.
    pub fn background(&self) -> HubBackground<'_> {
        HubBackground { hub: self }
    }

    /// Sub-agents.
    pub fn children(&self) -> HubChildren<'_> {
        HubChildren { hub: self }
    }

    /// Events for hooks that do not come from a run.
    pub fn hooks(&self) -> HubHooks<'_> {
        HubHooks { hub: self }
    }

    /// Recovery at start-up, and shutdown.
    pub fn lifecycle(&self) -> HubLifecycle<'_> {
        HubLifecycle { hub: self }
    }
}
