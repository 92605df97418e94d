//! One account of a hosted channel.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use homard_channels::{
    AccountIdentity, Attachment, AttachmentSource, Batch, Channel, ChannelAction, ChannelCapabilities, ChannelError,
    ChannelEvent, ConnectionState, Incoming, MarkdownRendering, Outgoing, Receipt, Sink,
};
use homard_plugins::RunningProgram;
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    host::{AccountState, ChannelHost, HostEvent},
    memory,
    outgoing::{SendRequest, action_params, read_answer},
};

/// Timeout for starting an account.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for stopping an account.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for sending a message with its attachments.
const SEND_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout for other actions.
const ACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a failed account is started again; doubles each time.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// Maximum delay.
const MAX_RETRY: Duration = Duration::from_secs(120);
/// Interval of the checks of the process's memory.
const MEMORY_CHECK: Duration = Duration::from_secs(5);

/// One account of a hosted channel.
#[derive(Debug)]
pub struct HostedChannel {
    host: Arc<ChannelHost>,
    account: String,
    /// The channel's section of the config, with all accounts.
    section: Value,
    text_limit: Option<usize>,
}

impl HostedChannel {
    /// Creates an account without connecting to its platform. `section` is the channel's section of the config.
    pub fn new(host: Arc<ChannelHost>, account: &str, section: Value, text_limit: Option<usize>) -> Self {
        Self { host, account: account.to_owned(), section, text_limit }
    }

    /// Returns the process that serves it.
    pub fn host(&self) -> &Arc<ChannelHost> {
        &self.host
    }

    fn name(&self) -> &'static str {
        self.host.settings().package.name
    }

    /// Returns the running process, to send with.
    fn running(&self) -> Result<RunningProgram, ChannelError> {
        self.host
            .running()
            .ok_or_else(|| ChannelError::Unavailable(format!("the channel host of {} is not running", self.name())))
    }

    /// Receives until the process or the account ends, and returns the reason.
    async fn receive_from(
        &self,
        process: &RunningProgram,
        generation: u64,
        events: &mut mpsc::Receiver<HostEvent>,
        sink: &dyn Sink,
    ) -> String {
        let mut memory_check = interval(MEMORY_CHECK);
        memory_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                biased;
                why = process.ended() => return why,
                _ = memory_check.tick() => {
                    self.check_memory(process).await;
                    continue;
                }
                event = events.recv() => event,
            };
            match event {
                Some(HostEvent::Message(incoming, answer)) => {
                    let next = store_batch(vec![(incoming, answer)], events, sink).await;
                    if let Some((current, state)) = next
                        && let Some(why) = self.report(current == generation, state, sink)
                    {
                        return why;
                    }
                }
                Some(HostEvent::State { generation: current, state }) => {
                    if let Some(why) = self.report(current == generation, state, sink) {
                        return why;
                    }
                }
                None => return "another receiver took over the account".to_owned(),
            }
        }
    }

    /// Reports a state of the connection; returns the reason if it has ended.
    fn report(&self, is_current: bool, state: AccountState, sink: &dyn Sink) -> Option<String> {
        match state {
            _ if !is_current => {}
            AccountState::Up => sink.report_state(ConnectionState::Up),
            // The package reconnects by itself.
            AccountState::Down(why) => sink.report_state(ConnectionState::Down { why, wait: Duration::ZERO }),
            AccountState::Ended(why) => return Some(why),
        }
        None
    }

    /// Ends a process that uses too much memory.
    async fn check_memory(&self, process: &RunningProgram) {
        let limit = self.host.settings().max_memory;
        if let Some(used) = process.pid().and_then(memory::resident)
            && used > limit
        {
            let why = format!("the channel host used {} MiB, more than the limit of {} MiB", used >> 20, limit >> 20);
            process.end(&why).await;
        }
    }
}

/// A received message, and where to report that it is stored.
type ReceivedMessage = (Box<Incoming>, oneshot::Sender<Result<(), String>>);

/// Stores a message and those that are already waiting, in one batch. Returns a state that came between.
async fn store_batch(
    mut batch: Vec<ReceivedMessage>,
    events: &mut mpsc::Receiver<HostEvent>,
    sink: &dyn Sink,
) -> Option<(u64, AccountState)> {
    let mut state = None;
    while let Ok(event) = events.try_recv() {
        match event {
            HostEvent::Message(incoming, answer) => batch.push((incoming, answer)),
            HostEvent::State { generation, state: next } => {
                state = Some((generation, next));
                break;
            }
        }
    }
    let (messages, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let stored = sink
        .store(Batch { events: messages.into_iter().map(ChannelEvent::Message).collect(), cursor: None })
        .await
        .map_err(|error| error.to_string());
    for answer in answers {
        // The package may have gone; it asks for the message again.
        drop(answer.send(stored.clone()));
    }
    state
}

/// Stops an account when its receiver is dropped.
struct Receiving {
    host: Arc<ChannelHost>,
    account: String,
    generation: u64,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.host.unregister(&self.account, self.generation);
        let Some(process) = self.host.running() else { return };
        let params = json!({"account": self.account, "generation": self.generation});
        let account = self.account.clone();
        // A later start of the account has another generation, so it does not matter which comes first.
        drop(task::spawn("channel stop", async move {
            if let Err(error) = process.call("account.stop", &params, STOP_TIMEOUT).await {
                tracing::debug!(account, %error, "an account of a hosted channel was not stopped");
            }
        }));
    }
}

#[async_trait]
impl Channel for HostedChannel {
    fn capabilities(&self) -> ChannelCapabilities {
        let (traits, package) = (self.host.traits(), self.host.settings().package);
        let limit = traits.text_limit.unwrap_or(package.text_limit);
        ChannelCapabilities {
            channel: package.name,
            text_limit: self.text_limit.map_or(limit, |own| own.min(limit)).max(1),
            markdown: MarkdownRendering::Styled,
            has_blocks: true,
            has_threads: traits.threads,
            has_reactions: traits.reactions,
            has_polls: traits.polls,
            has_edits: false,
            is_idempotent: false,
            has_previews: true,
        }
    }

    fn recipient(&self, to: &str) -> Result<String, ChannelError> {
        let to = to.trim();
        let own = to.get(..self.name().len()).filter(|prefix| prefix.eq_ignore_ascii_case(self.name()));
        let plain = own.and_then(|prefix| to[prefix.len()..].strip_prefix(':')).unwrap_or(to);
        if plain.is_empty() {
            return Err(ChannelError::Refused(format!("{to:?} is not a chat of {}", self.name())));
        }
        Ok(plain.to_owned())
    }

    async fn receive(&self, _cursor: Option<String>, sink: &dyn Sink) -> ChannelError {
        let (generation, mut events) = self.host.register(&self.account);
        let _receiving = Receiving { host: self.host.clone(), account: self.account.clone(), generation };
        let mut retry = MIN_RETRY;
        loop {
            let process = match self.host.up().await {
                Ok(process) => process,
                Err(down) => {
                    let wait = down.retry_after.clamp(MIN_RETRY, MAX_RETRY);
                    sink.report_state(ConnectionState::Down { why: down.why, wait });
                    sleep(wait).await;
                    continue;
                }
            };
            let params = json!({"account": self.account, "generation": generation, "section": self.section});
            let started_at = tokio::time::Instant::now();
            let why = match process.call("account.start", &params, START_TIMEOUT).await {
                Ok(_) => self.receive_from(&process, generation, &mut events, sink).await,
                Err(failed) => failed.to_string(),
            };
            if events.is_closed() {
                return ChannelError::Refused(why);
            }
            if started_at.elapsed() > MAX_RETRY {
                retry = MIN_RETRY;
            }
            sink.report_state(ConnectionState::Down { why, wait: retry });
            sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY);
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
        let process = self.running()?;
        let (account, folder) = (self.account.clone(), self.host.settings().dir.join("outgoing"));
        let request = spawn_blocking(move || SendRequest::new(&account, outgoing, &folder)).await;
        let request = request
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| ChannelError::Unavailable(format!("the attachments cannot be written: {error}")))?;
        read_answer(process.call("send", &request.params, SEND_TIMEOUT).await, self.name(), "messages")
    }

    async fn perform(&self, action: ChannelAction) -> Result<Receipt, ChannelError> {
        let (process, name) = (self.running()?, action.name());
        let params = action_params(&self.account, action);
        read_answer(process.call("perform", &params, ACTION_TIMEOUT).await, self.name(), name)
    }

    async fn fetch(&self, attachment: &Attachment, max_bytes: usize) -> Result<Vec<u8>, ChannelError> {
        match &attachment.source {
            AttachmentSource::Platform(path) => {
                let (root, path) = (self.host.settings().state_dir(), PathBuf::from(path));
                let read = spawn_blocking(move || read_below(&root, &path, max_bytes)).await;
                read.map_err(|error| ChannelError::Unavailable(error.to_string()))?.map_err(ChannelError::Refused)
            }
            AttachmentSource::Bytes(bytes) if bytes.len() <= max_bytes => Ok(bytes.clone()),
            AttachmentSource::Bytes(_) => Err(ChannelError::Refused(too_large(max_bytes))),
            AttachmentSource::Url(_) => {
                Err(ChannelError::Unsupported { channel: self.name(), action: "downloads from a URL" })
            }
        }
    }

    async fn identity(&self) -> Result<AccountIdentity, ChannelError> {
        let params = json!({"account": self.account});
        let answer = self.running()?.call("account.probe", &params, ACTION_TIMEOUT).await;
        let answer = answer.map_err(|failed| ChannelError::Unavailable(failed.to_string()))?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let username = Some(text("username")).filter(|name| !name.is_empty());
        Ok(AccountIdentity { id: text("id"), username, name: text("name"), hints: Vec::new() })
    }
}

fn too_large(max_bytes: usize) -> String {
    format!("the file exceeds the limit of {max_bytes} bytes")
}

/// Reads a file that the package saved. A file elsewhere is refused: the package chooses the path.
fn read_below(root: &Path, path: &Path, max_bytes: usize) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("the attachment cannot be read: {error}");
    let root = root.canonicalize().map_err(failed)?;
    let path = path.canonicalize().map_err(failed)?;
    if !path.starts_with(&root) {
        return Err("the attachment is outside of the channel's directory".to_owned());
    }
    let file = File::open(&path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err("the attachment is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > max_bytes { Err(too_large(max_bytes)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn attachments_outside_of_the_channels_directory_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("state");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "text").unwrap();
        fs::write(home.path().join("secret"), "key").unwrap();
        std::os::unix::fs::symlink(home.path().join("secret"), root.join("link")).unwrap();
        assert_eq!(read_below(&root, &root.join("a"), 4), Ok(b"text".to_vec()));
        assert!(read_below(&root, &root.join("a"), 3).unwrap_err().contains("exceeds"));
        for path in [home.path().join("secret"), root.join("../secret"), root.join("link"), root.clone()] {
            assert!(read_below(&root, &path, 100).is_err(), "{}", path.display());
        }
    }
}
