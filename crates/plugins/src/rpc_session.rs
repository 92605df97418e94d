//! The RPC session with a plugin's process: requests in both directions, and their fate when the process ends.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_runtime::task;
use homard_stdx::sync::{Mutex, MutexGuard};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Error,
    blob_refs::BlobStore,
    host_api::HostApi,
    process::{Process, ProcessSpec},
    rpc::{self, LineDecoder, RpcMessage},
};

/// Maximum number of lines queued for the process. Beyond that senders wait, up to their deadline.
const MAX_QUEUED_LINES: usize = 64;

/// Time a process has to exit after it closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Error for pending calls when a process writes an oversized line.
const TOO_LONG_ERROR: &str =
    "the plugin wrote a line of more than 8 MiB, which was discarded; if it was a response, it must be shorter";

/// Callback for progress of a call.
pub(crate) type OnProgress = Box<dyn Fn(Value) + Send + Sync>;

/// An RPC session. Dropping it kills the process and its descendants.
#[derive(Debug)]
pub(crate) struct RpcSession {
    state: Arc<SessionState>,
    stop: CancellationToken,
    tasks: TaskTracker,
    pid: Option<u32>,
}

/// State shared by both directions of the session.
#[derive(Debug)]
pub(crate) struct SessionState {
    lines: mpsc::Sender<OutgoingLine>,
    pending: Mutex<HashMap<u64, PendingCall>>,
    last: AtomicU64,
    /// Values that the process may fetch.
    pub(crate) blobs: BlobStore,
    ended: CancellationToken,
    reason: OnceLock<String>,
}

/// A line for the process.
#[derive(Debug)]
struct OutgoingLine {
    line: String,
    /// True once it is being written, and false again if that failed: then the process cannot have read it.
    is_sent: Arc<AtomicBool>,
}

impl From<String> for OutgoingLine {
    fn from(line: String) -> Self {
        Self { line, is_sent: Arc::default() }
    }
}

struct PendingCall {
    answer: oneshot::Sender<Result<Value, String>>,
    on_progress: Option<OnProgress>,
}

impl std::fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCall").finish_non_exhaustive()
    }
}

impl SessionState {
    fn lock_pending(&self) -> MutexGuard<'_, HashMap<u64, PendingCall>> {
        self.pending.lock()
    }

    /// Sends a line; waits while the process does not read.
    pub(crate) async fn send_line(&self, line: String) {
        self.send(line.into()).await;
    }

    async fn send(&self, outgoing: OutgoingLine) {
        // If the session has ended, the line is dropped.
        self.ended.run_until_cancelled(self.lines.send(outgoing)).await;
    }

    fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_else(|| "the plugin process has ended".to_owned())
    }
}

/// A pending call; dropping it before the response cancels it.
struct CallGuard<'a> {
    state: &'a SessionState,
    id: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.state.lock_pending().remove(&self.id).is_some() {
            // Best effort: a process that does not read its input needs no cancellation.
            self.state.lines.try_send(rpc::notification("$/cancel", &json!({"id": self.id})).into()).ok();
        }
    }
}

impl RpcSession {
    /// Starts a process and its session. Its requests go to the host API. Waiting for the tasks of `tracker` includes its
    /// end.
    pub(crate) fn open(spec: &ProcessSpec, host_api: HostApi, tracker: &TaskTracker) -> io::Result<Self> {
        let (process, stdout, stdin) = Process::start(spec)?;
        let (outbox, lines) = mpsc::channel(MAX_QUEUED_LINES);
        let state = Arc::new(SessionState {
            lines: outbox,
            pending: Mutex::default(),
            last: AtomicU64::new(0),
            blobs: BlobStore::default(),
            ended: CancellationToken::new(),
            reason: OnceLock::new(),
        });
        let (stop, tasks, pid) = (CancellationToken::new(), TaskTracker::new(), process.pid());
        task::spawn("plugin stdin", tasks.track_future(write(stdin, lines, state.ended.clone())));
        let reading = read_output(process, stdout, state.clone(), host_api, stop.clone());
        task::spawn("plugin stdout", tracker.track_future(tasks.track_future(reading)));
        tasks.close();
        Ok(Self { state, stop, tasks, pid })
    }

    /// Calls a method and waits for the response, with a timeout.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &RawValue,
        time_limit: Duration,
        on_progress: Option<OnProgress>,
    ) -> Result<Value, Error> {
        self.call_once(method, params, time_limit, on_progress).await.0
    }

    /// Like [`call`](Self::call). Also returns whether the process may have read the request: if not, it can be sent to
    /// the next one.
    pub(crate) async fn call_once(
        &self,
        method: &str,
        params: &RawValue,
        time_limit: Duration,
        on_progress: Option<OnProgress>,
    ) -> (Result<Value, Error>, bool) {
        let id = self.state.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, receiver) = oneshot::channel();
        self.state.lock_pending().insert(id, PendingCall { answer, on_progress });
        let guard = CallGuard { state: &self.state, id };
        if self.state.ended.is_cancelled() {
            return (Err(Error::Unavailable(self.state.reason())), false);
        }
        let outgoing = OutgoingLine::from(rpc::request(id, method, params));
        let is_sent = outgoing.is_sent.clone();
        let receiver = timeout(time_limit, async {
            self.state.send(outgoing).await;
            receiver.await
        });
        let outcome = match receiver.await {
            Err(_) => Err(Error::Timeout(time_limit)),
            Ok(Err(_)) => Err(Error::Unavailable(self.state.reason())),
            Ok(Ok(Err(reason))) => Err(Error::Failed(reason)),
            Ok(Ok(Ok(value))) => Ok(value),
        };
        drop(guard);
        (outcome, is_sent.load(Ordering::Acquire))
    }

    /// Returns the values that the process may fetch.
    pub(crate) fn blobs(&self) -> &BlobStore {
        &self.state.blobs
    }

    /// Returns true if the process is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.ended.is_cancelled()
    }

    /// Returns true if no call is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock_pending().is_empty()
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Waits until the process is gone, and returns the reason.
    pub(crate) async fn ended(&self) -> String {
        self.state.ended.cancelled().await;
        self.state.reason()
    }

    /// Ends the process and waits until all of it is gone. Pending calls fail with the reason.
    pub(crate) async fn end(&self, reason: &str) {
        // The first reason is kept.
        self.state.reason.set(reason.to_owned()).ok();
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for RpcSession {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<OutgoingLine>, ended: CancellationToken) {
    let writing = async {
        while let Some(OutgoingLine { line, is_sent }) = lines.recv().await {
            is_sent.store(true, Ordering::Release);
            if stdin.write_all(line.as_bytes()).await.is_err() {
                is_sent.store(false, Ordering::Release);
                // It closed its input and will not respond. The reader of its output notices its end.
                break;
            }
        }
    };
    ended.run_until_cancelled(writing).await;
}

/// Processes the output of the process until it ends or has to be killed.
async fn read_output(
    mut process: Process,
    mut stdout: ChildStdout,
    state: Arc<SessionState>,
    mut host_api: HostApi,
    stop: CancellationToken,
) {
    let mut lines = LineDecoder::default();
    let mut buffer = vec![0; 64 * 1024];
    // At most those of one buffer: nothing is read while they wait, so a process that does not read its input is not
    // read either, and the ping decides.
    let mut refusals = VecDeque::new();
    let (reason, is_gentle) = loop {
        // The exit is checked last, so that earlier output is processed first.
        tokio::select! {
            biased;
            () = stop.cancelled() => break ("the plugin process was stopped".to_owned(), true),
            permit = state.lines.reserve(), if !refusals.is_empty() => match permit {
                Ok(permit) => if let Some(line) = refusals.pop_front() { permit.send(OutgoingLine::from(line)) },
                // It closed its input, so the responses are dropped.
                Err(_) => refusals.clear(),
            },
            read = stdout.read(&mut buffer), if refusals.is_empty() => match read {
                Ok(count @ 1..) => match handle_messages(lines.push(&buffer[..count]), &state, &mut host_api) {
                    Ok(refused) => refusals.extend(refused),
                    Err(reason) => break (reason, false),
                },
                Ok(0) | Err(_) => match timeout(EXIT_TIMEOUT, process.wait()).await {
                    Ok(status) => break (process.describe_exit(&status).await, false),
                    Err(_) => break ("the plugin process closed its stdout".to_owned(), false),
                },
            },
            status = process.wait() => break (process.describe_exit(&status).await, false),
        }
    };
    state.reason.set(reason).ok();
    state.ended.cancel();
    // Pending calls fail.
    state.lock_pending().clear();
    host_api.close();
    process.end(is_gentle).await;
}

/// Processes messages and returns the lines that reject requests; an error is the reason to end the process.
fn handle_messages(
    messages: Vec<RpcMessage>,
    state: &Arc<SessionState>,
    host_api: &mut HostApi,
) -> Result<Vec<String>, String> {
    let mut refusals = Vec::new();
    for message in messages {
        match message {
            RpcMessage::Response { id, result } => {
                let call = state.lock_pending().remove(&id);
                match call {
                    // The caller may have gone.
                    Some(call) => drop(call.answer.send(result)),
                    // Late, or never requested.
                    None => host_api.unsolicited()?,
                }
            }
            RpcMessage::Notification { method, params } if method == "$/progress" => {
                let id = params.get("id").and_then(Value::as_u64);
                let value = params.get("value").cloned().unwrap_or_default();
                host_api.unsolicited()?;
                let call = state.lock_pending();
                // The call may have ended.
                if let Some(on_progress) = id.and_then(|id| call.get(&id)).and_then(|call| call.on_progress.as_ref()) {
                    on_progress(value);
                }
            }
            RpcMessage::Notification { method, params } => host_api.handle_notification(&method, &params)?,
            RpcMessage::Request { id, method, params } => {
                refusals.extend(host_api.handle_request(id, &method, params, state)?)
            }
            RpcMessage::Malformed(bytes) => host_api.malformed(bytes)?,
            RpcMessage::TooLong => {
                host_api.malformed(rpc::MAX_LINE_BYTES)?;
                // It is unknown which call the response belongs to, so all pending calls fail rather than wait in vain.
                let call: Vec<PendingCall> = state.lock_pending().drain().map(|(_, call)| call).collect();
                for call in call {
                    drop(call.answer.send(Err(TOO_LONG_ERROR.to_owned())));
                }
            }
        }
    }
    Ok(refusals)
}
