//! Connects the configured chat platforms with the hub: inbound messages become runs, and deliveries are sent.
//!
//! `build` creates a channel from an account of the config, `policy` the access policy for its messages.
//! `inbound_pipeline` passes inbound messages to the hub, through the `spool`, which survives a crash. `sender` sends
//! the hub's deliveries, `direct` what a client asks to send, `hosted` has the processes of OpenClaw's packages,
//! `http_routes` serves webhooks of platforms, `status` records the state of each account. What a
//! platform is, and how it is spoken to, is in `homard-channels`. Start with [`Channels`].

mod approve;
mod build;
mod direct;
mod draft;
mod hosted;
mod http_routes;
mod inbound_pipeline;
mod media;
mod policy;
mod queue_status;
mod sender;
mod spool;
mod status;
mod typing;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
};

use homard_agent::{Hub, channel_sender::SendError, tape::TapeState};
use homard_audit::Audit;
use homard_channels::{AccountIdentity, Channel, HttpClients, Outgoing, Receipt, pairing::PairingStore};
use homard_config::LoadedConfig;
use homard_proto::{ChannelAccount, RunId};
use homard_runtime::Ambient;
use homard_settings::{
    Config,
    channel_kinds::{CHANNEL_KINDS, is_hosted, issuer, label},
    channels as section,
    paths::Paths,
};
use homard_store::{DeliveryRow, Error as StoreError};
use homard_tools::FileAccess;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::{
    build::{BuiltChannel, build},
    draft::{DraftLocation, Drafts, has_reply},
    hosted::ChannelHosts,
    inbound_pipeline::{InboundPipeline, PipelineDeps, SentMessages},
    policy::ChannelPolicy,
    spool::Spool,
    status::AccountStatus,
};

pub use approve::{ApprovedSender, SenderApproval, approve};
pub use direct::{DirectError, DirectMessage, SentDirectly};
pub use http_routes::HttpRoutes;
pub use status::Incident;

/// The chat platforms of a gateway. Clones share their state.
#[derive(Clone)]
pub struct Channels(Arc<ChannelsInner>);

struct ChannelsInner {
    paths: Paths,
    hub: Arc<OnceLock<Hub>>,
    clients: HttpClients,
    hosts: ChannelHosts,
    pairing_store: Arc<PairingStore>,
    accounts: Mutex<Accounts>,
    /// By file name: the old and the new pipeline of an account share one spool.
    spools: Mutex<BTreeMap<String, Arc<Spool>>>,
    /// Accounts that cannot be used, and why.
    unusable: Mutex<Vec<((String, String), String)>>,
    /// Replies that are being streamed, created on first use.
    drafts: OnceLock<Arc<Drafts>>,
    /// Set when inbound messages are received; cancelled when that stops.
    receiving: OnceLock<CancellationToken>,
    ambient: Ambient,
}

/// An account as the config describes it.
struct ConfiguredAccount<'a> {
    channel: &'a str,
    name: &'a str,
    config: section::Account,
    /// Its section of the config file, to find out whether it changed.
    source: Value,
    /// The channel's section of the config file, for a package that reads it itself.
    section: Value,
    policy: ChannelPolicy,
}

type Accounts = BTreeMap<(String, String), Arc<AccountRuntime>>;

/// One account of one platform.
pub struct AccountRuntime {
    pub channel: Arc<dyn Channel>,
    built: BuiltChannel,
    /// The account's section of the config.
    pub config: section::Account,
    /// The parts of the config that the account was built from: if they change, it is rebuilt.
    source_config: Value,
    policy: Arc<RwLock<Arc<ChannelPolicy>>>,
    status: Arc<AccountStatus>,
    sent_messages: Arc<SentMessages>,
    pipeline: OnceLock<Arc<InboundPipeline>>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channels").field("accounts", &self.accounts().keys()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AccountRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountRuntime").field("status", &self.status).finish_non_exhaustive()
    }
}

impl AccountRuntime {
    /// Returns the inbound pipeline, if one is running.
    fn pipeline(&self) -> Option<&Arc<InboundPipeline>> {
        self.pipeline.get()
    }

    /// Returns the account's name.
    fn name(&self) -> String {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).account.account().to_owned()
    }

    /// Returns which files may be attached to messages.
    fn files(&self) -> FileAccess {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).files.clone()
    }

    /// Remembers the ids of messages that were sent successfully.
    fn remember(&self, to: &str, result: &Result<Receipt, SendError>) {
        let Ok(receipt) = result else { return };
        let all = receipt.details["messageIds"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let last = receipt.message.as_deref();
        all.chain(last).for_each(|message| self.sent_messages.remember(to, message));
    }

    /// Returns the account's state as reported to clients.
    pub fn view(&self) -> Value {
        self.status.view()
    }

    /// Returns the memory of the process that serves a hosted channel, if it runs. Accounts of a channel share it.
    pub fn host_memory(&self) -> Option<u64> {
        self.built.host()?.memory()
    }

    /// Returns recent incidents, oldest first.
    pub fn incidents(&self) -> Vec<Incident> {
        self.status.incidents()
    }
}

impl Drop for AccountRuntime {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Channels {
    /// Creates the channels without any account.
    pub fn new(paths: &Paths, hub: &Arc<OnceLock<Hub>>) -> Self {
        Self(Arc::new(ChannelsInner {
            paths: paths.clone(),
            hub: hub.clone(),
            clients: HttpClients::default(),
            hosts: ChannelHosts::new(&paths.state),
            pairing_store: Arc::new(PairingStore::new(paths.state.join("credentials"))),
            accounts: Mutex::default(),
            spools: Mutex::default(),
            unusable: Mutex::default(),
            drafts: OnceLock::new(),
            receiving: OnceLock::new(),
            ambient: Ambient::system(),
        }))
    }

    /// Applies a config and returns warnings. Accounts whose config has not changed keep running.
    pub fn apply_config(&self, loaded: &LoadedConfig<Config>) -> Vec<String> {
        let (mut next, mut warnings, mut broken) = (Accounts::new(), Vec::new(), Vec::new());
        let mut accounts = self.accounts();
        for (channel, section) in &loaded.config.channels {
            let name = channel.trim().to_lowercase();
            if !CHANNEL_KINDS.iter().any(|(known, _)| *known == name) {
                // Sections of unknown platforms are ignored: other programs read this file, too.
                continue;
            }
            let described = section.resolved_accounts();
            let is_only = described.len() == 1;
            for (account, config) in described {
                if config.enabled == Some(false) {
                    continue;
                }
                let key = (name.clone(), account);
                if let Some(why) = &config.fault {
                    // The config check reports this fault with its place in the file.
                    broken.push((key, why.clone()));
                    continue;
                }
                let at = ChannelAccount::new(&name, &key.1, issuer(&name), is_only);
                let (policy, policy_warnings) = ChannelPolicy::of(&loaded.config, &self.0.paths, at, &config);
                warnings.extend(policy_warnings);
                let configured = ConfiguredAccount {
                    channel: &key.0,
                    name: &key.1,
                    config,
                    source: source_config(loaded, channel, &key.1),
                    section: loaded.tree["channels"][channel].clone(),
                    policy,
                };
                match self.account_of(configured, accounts.remove(&key)) {
                    Ok(account) => drop(next.insert(key, account)),
                    Err(why) => {
                        warnings.push(format!("{} ({}): {why}", label(&key.0), key.1));
                        broken.push((key, why));
                    }
                }
            }
        }
        *self.0.unusable.lock().unwrap_or_else(PoisonError::into_inner) = broken;
        let stopped = std::mem::replace(&mut *accounts, next);
        stopped.values().for_each(|account| account.stop.cancel());
        if self.0.receiving.get().is_some() {
            accounts
                .iter()
                .for_each(|((channel, name), account)| warnings.extend(self.start_pipeline(channel, name, account)));
        }
        warnings
    }

    /// Returns an account for a config: the existing one if it still matches, else a new one.
    fn account_of(
        &self,
        configured: ConfiguredAccount<'_>,
        previous: Option<Arc<AccountRuntime>>,
    ) -> Result<Arc<AccountRuntime>, String> {
        let ConfiguredAccount { channel, name, config, source, section, policy } = configured;
        if let Some(previous) = previous {
            if previous.source_config == source {
                *previous.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
                return Ok(previous);
            }
            previous.stop.cancel();
        }
        let commands = self.0.hub.get().map(|hub| hub.sessions().commands()).unwrap_or_default();
        let built = if is_hosted(channel) {
            BuiltChannel::Hosted(Arc::new(self.0.hosts.build(channel, name, &config, section)?))
        } else {
            build(&self.0.clients, channel, name, &config, &commands)?
        };
        Ok(Arc::new(AccountRuntime {
            channel: built.channel(),
            built,
            config,
            source_config: source,
            policy: Arc::new(RwLock::new(Arc::new(policy))),
            status: Arc::default(),
            sent_messages: Arc::default(),
            pipeline: OnceLock::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Starts to receive messages on all accounts until `stop` is cancelled. Returns warnings.
    pub fn start(&self, stop: CancellationToken) -> Vec<String> {
        self.0.receiving.get_or_init(|| stop.clone());
        let channels = self.clone();
        drop(homard_runtime::task::spawn("channels", async move {
            stop.cancelled().await;
            channels.accounts().values().for_each(|account| account.stop.cancel());
        }));
        for (run, location) in self.drafts().leftover() {
            drop(homard_runtime::task::spawn("draft", self.clone().resolve_draft(run, location)));
        }
        self.accounts()
            .iter()
            .filter_map(|((channel, name), account)| self.start_pipeline(channel, name, account))
            .collect()
    }

    /// Resolves a draft message that the previous process left: if its run has no reply, the draft is deleted.
    /// Otherwise the reply replaces it, or already has.
    async fn resolve_draft(self, run: RunId, location: DraftLocation) {
        let Some(hub) = self.0.hub.get() else { return };
        if self.drafts().settle_interrupted(&run).await {
            return;
        }
        let has_no_reply = match hub.runs().follow(&run) {
            Some(subscriber) => match subscriber.end().await {
                TapeState::Ended(end) => !has_reply(&end.outcome, &end.replies),
                TapeState::Queued | TapeState::Running | TapeState::Broken(_) | TapeState::Rejected => false,
            },
            None => {
                let report = hub.runs().result(&run).await.ok().flatten();
                report.is_some_and(|report| !has_reply(report.outcome(), report.replies()))
            }
        };
        if let Some(account) = self.account(&location.channel, &location.account).filter(|_| has_no_reply) {
            self.drafts().withdraw(account.channel.as_ref(), &run).await;
        }
    }

    /// Returns the drafts: replies that are being streamed.
    fn drafts(&self) -> &Arc<Drafts> {
        let path = || self.0.paths.state.join("channels/drafts.json");
        self.0.drafts.get_or_init(|| Arc::new(Drafts::open(path(), self.0.hub.clone())))
    }

    /// Starts the inbound pipeline of an account if it has none. Returns a warning if its spool was damaged.
    fn start_pipeline(&self, channel: &str, name: &str, account: &Arc<AccountRuntime>) -> Option<String> {
        let hub = self.0.hub.get()?;
        let mut warning = None;
        account.pipeline.get_or_init(|| {
            let file = format!("{channel}-{}.json", file_safe_name(name));
            let mut spools = self.0.spools.lock().unwrap_or_else(PoisonError::into_inner);
            let spool = spools.entry(file.clone()).or_insert_with(|| {
                let (spool, open_warning) = Spool::open(self.0.paths.state.join("channels").join(file));
                warning = open_warning;
                Arc::new(spool)
            });
            InboundPipeline::start(PipelineDeps {
                channel: account.channel.clone(),
                account_key: (channel.to_owned(), name.to_owned()),
                hub: hub.clone(),
                pairing_store: self.0.pairing_store.clone(),
                spool: spool.clone(),
                policy: account.policy.clone(),
                status: account.status.clone(),
                drafts: self.drafts().clone(),
                sent_messages: account.sent_messages.clone(),
                stop: account.stop.clone(),
            })
        });
        warning
    }

    /// Returns all accounts by channel and name.
    pub fn all(&self) -> Vec<((String, String), Arc<AccountRuntime>)> {
        self.accounts().iter().map(|(key, account)| (key.clone(), account.clone())).collect()
    }

    /// Returns the accounts that are down, and why.
    pub fn outages(&self) -> Vec<((String, String), String)> {
        let accounts = self.accounts();
        let down = accounts.iter().filter_map(|(key, account)| Some((key.clone(), account.status.outage()?)));
        down.chain(self.unusable()).collect()
    }

    /// Returns the accounts that cannot be used, and why.
    pub fn unusable(&self) -> Vec<((String, String), String)> {
        self.0.unusable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the pairing store: pending requests and approved senders.
    pub fn pairing_store(&self) -> &Arc<PairingStore> {
        &self.0.pairing_store
    }

    /// Sends a message immediately, without the outbox, and returns the result.
    pub async fn send_now(
        &self,
        channel: Option<&str>,
        account: Option<&str>,
        outgoing: Outgoing,
    ) -> Result<(String, Receipt), SendError> {
        let (channel, account) = self.select_account(channel, account)?;
        let to = outgoing.destination.to.clone();
        let result = account.channel.send(outgoing).await.map_err(sender::delivery_error);
        account.remember(&to, &result);
        account.status.sent(self.now(), result.as_ref().err().map(ToString::to_string));
        Ok((channel, result?))
    }

    /// Returns the deliveries that have not arrived, as far as known.
    pub async fn outbox(&self) -> Result<Vec<DeliveryRow>, StoreError> {
        match self.0.hub.get() {
            Some(hub) => hub.deliveries().outbox().await,
            None => Ok(Vec::new()),
        }
    }

    /// Queries the platform for our own identity.
    pub async fn probe(account: &AccountRuntime) -> Result<AccountIdentity, String> {
        account.channel.identity().await.map_err(|failure| failure.to_string())
    }

    fn default_recipient(&self, account: &AccountRuntime) -> Option<String> {
        let policy = account.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        policy.default_recipient(&self.0.pairing_store.approved(&policy.account).unwrap_or_default())
    }

    /// Returns true if the owner has named this chat or approved its sender.
    fn is_known_chat(&self, account: &AccountRuntime, id: &str) -> bool {
        let policy = account.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        policy.is_known_chat(id, &self.0.pairing_store.approved(&policy.account).unwrap_or_default())
    }

    /// Returns the audit log for recording downloads of attachments.
    fn audit(&self) -> Audit {
        self.0.hub.get().map(Hub::audit).unwrap_or_default()
    }

    fn account(&self, channel: &str, account: &str) -> Option<Arc<AccountRuntime>> {
        self.accounts().get(&(channel.to_owned(), account.to_lowercase())).cloned()
    }

    fn has_account(&self, channel: &str, account: &str) -> bool {
        self.account(channel, account).is_some()
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.0.ambient.now_ms()
    }
}

/// Returns the parts of the config that an account is built from.
fn source_config(loaded: &LoadedConfig<Config>, channel: &str, account: &str) -> Value {
    let section = &loaded.tree["channels"][channel];
    let mut base = section.clone();
    if let Some(fields) = base.as_object_mut() {
        fields.remove("accounts");
    }
    let accounts = section["accounts"].as_object().into_iter().flatten();
    let overrides = accounts
        .filter(|(name, _)| name.trim().to_lowercase() == account)
        .map(|(_, account_config)| account_config.clone());
    Value::Array([base].into_iter().chain(overrides).collect())
}

/// Replaces characters that are unsafe in file names.
fn file_safe_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' }).take(64).collect()
}
