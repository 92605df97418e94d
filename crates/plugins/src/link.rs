//! The RPC session with a plugin's process: requests in both directions, and their fate when the process ends.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_agent::task;
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
    door::Door,
    large::Shelf,
    process::{Process, Recipe},
    rpc::{self, Lines, Said},
};

/// Maximum number of lines queued for the process. Beyond that senders wait, up to their deadline.
const OUTBOX: usize = 64;

/// Time a process has to exit after it closed its output.
const CLOSING: Duration = Duration::from_millis(500);

/// Error for pending calls when a process writes an oversized line.
const TOO_LONG: &str =
    "it wrote a line of more than 8 MiB, which is not read; if that was the answer, it has to be shorter";

/// Callback for progress of a call.
pub(crate) type OnProgress = Box<dyn Fn(Value) + Send + Sync>;

/// An RPC session. Dropping it kills the process and its descendants.
#[derive(Debug)]
pub(crate) struct Link {
    talk: Arc<Talk>,
    stop: CancellationToken,
    tasks: TaskTracker,
    pid: Option<u32>,
}

/// State shared by both directions of the session.
#[derive(Debug)]
pub(crate) struct Talk {
    outbox: mpsc::Sender<Outgoing>,
    open: Mutex<HashMap<u64, Open>>,
    last: AtomicU64,
    /// Values that the process may fetch.
    pub(crate) shelf: Shelf,
    over: CancellationToken,
    why: OnceLock<String>,
}

/// A line for the process.
#[derive(Debug)]
struct Outgoing {
    line: String,
    /// True once it is being written, and false again if that failed: then the process cannot have read it.
    is_sent: Arc<AtomicBool>,
}

impl From<String> for Outgoing {
    fn from(line: String) -> Self {
        Self { line, is_sent: Arc::default() }
    }
}

struct Open {
    answer: oneshot::Sender<Result<Value, String>>,
    on_progress: Option<OnProgress>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

impl Talk {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line; waits while the process does not read.
    pub(crate) async fn say(&self, line: String) {
        self.send(line.into()).await;
    }

    async fn send(&self, outgoing: Outgoing) {
        // If the session has ended, the line is dropped.
        self.over.run_until_cancelled(self.outbox.send(outgoing)).await;
    }

    fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "its process is gone".to_owned())
    }
}

/// A pending call; dropping it before the response cancels it.
struct Asked<'a> {
    talk: &'a Talk,
    id: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.talk.open().remove(&self.id).is_some() {
            // Best effort: a process that does not read its input needs no cancellation.
            self.talk.outbox.try_send(rpc::notice("$/cancel", &json!({"id": self.id})).into()).ok();
        }
    }
}

impl Link {
    /// Starts a process and its session. Its requests go to the host API. Waiting for the tasks of `house` includes its
    /// end.
    pub(crate) fn open(recipe: &Recipe, door: Door, house: &TaskTracker) -> io::Result<Self> {
        let (process, stdout, stdin) = Process::start(recipe)?;
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let talk = Arc::new(Talk {
            outbox,
            open: Mutex::default(),
            last: AtomicU64::new(0),
            shelf: Shelf::default(),
            over: CancellationToken::new(),
            why: OnceLock::new(),
        });
        let (stop, tasks, pid) = (CancellationToken::new(), TaskTracker::new(), process.pid());
        task::spawn("plugin stdin", tasks.track_future(write(stdin, lines, talk.over.clone())));
        let attended = attend(process, stdout, talk.clone(), door, stop.clone());
        task::spawn("plugin stdout", house.track_future(tasks.track_future(attended)));
        tasks.close();
        Ok(Self { talk, stop, tasks, pid })
    }

    /// Calls a method and waits for the response, with a timeout.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &RawValue,
        within: Duration,
        on_progress: Option<OnProgress>,
    ) -> Result<Value, Error> {
        self.call_once(method, params, within, on_progress).await.0
    }

    /// Like [`call`](Self::call). Also returns whether the process may have read the request: if not, it can be sent to
    /// the next one.
    pub(crate) async fn call_once(
        &self,
        method: &str,
        params: &RawValue,
        within: Duration,
        on_progress: Option<OnProgress>,
    ) -> (Result<Value, Error>, bool) {
        let id = self.talk.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = oneshot::channel();
        self.talk.open().insert(id, Open { answer, on_progress });
        let asked = Asked { talk: &self.talk, id };
        if self.talk.over.is_cancelled() {
            return (Err(Error::Gone(self.talk.why())), false);
        }
        let outgoing = Outgoing::from(rpc::request(id, method, params));
        let is_sent = outgoing.is_sent.clone();
        let answered = timeout(within, async {
            self.talk.send(outgoing).await;
            answered.await
        });
        let outcome = match answered.await {
            Err(_) => Err(Error::Late(within)),
            Ok(Err(_)) => Err(Error::Gone(self.talk.why())),
            Ok(Ok(Err(why))) => Err(Error::Failed(why)),
            Ok(Ok(Ok(value))) => Ok(value),
        };
        drop(asked);
        (outcome, is_sent.load(Ordering::Acquire))
    }

    /// Sends a notification.
    pub(crate) async fn tell(&self, method: &str, params: &Value) {
        self.talk.say(rpc::notice(method, params)).await;
    }

    /// Returns the values that the process may fetch.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.talk.shelf
    }

    /// Returns true if the process is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.talk.over.is_cancelled()
    }

    /// Returns true if no call is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.talk.open().is_empty()
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Waits until the process is gone, and returns the reason.
    pub(crate) async fn over(&self) -> String {
        self.talk.over.cancelled().await;
        self.talk.why()
    }

    /// Ends the process and waits until all of it is gone. Pending calls fail with the reason.
    pub(crate) async fn end(&self, why: &str) {
        // The first reason is kept.
        self.talk.why.set(why.to_owned()).ok();
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Outgoing>, over: CancellationToken) {
    let writing = async {
        while let Some(Outgoing { line, is_sent }) = lines.recv().await {
            is_sent.store(true, Ordering::Release);
            if stdin.write_all(line.as_bytes()).await.is_err() {
                is_sent.store(false, Ordering::Release);
                // It closed its input and will not respond. The reader of its output notices its end.
                break;
            }
        }
    };
    over.run_until_cancelled(writing).await;
}

/// Processes the output of the process until it ends or has to be killed.
async fn attend(
    mut process: Process,
    mut stdout: ChildStdout,
    talk: Arc<Talk>,
    mut door: Door,
    stop: CancellationToken,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 64 * 1024];
    // At most those of one buffer: nothing is read while they wait, so a process that does not read its input is not
    // read either, and the ping decides.
    let mut refusals = VecDeque::new();
    let (why, is_gentle) = loop {
        // The exit is checked last, so that earlier output is processed first.
        tokio::select! {
            biased;
            () = stop.cancelled() => break ("it was stopped".to_owned(), true),
            place = talk.outbox.reserve(), if !refusals.is_empty() => match place {
                Ok(place) => if let Some(line) = refusals.pop_front() { place.send(Outgoing::from(line)) },
                // It closed its input, so the responses are dropped.
                Err(_) => refusals.clear(),
            },
            read = stdout.read(&mut buffer), if refusals.is_empty() => match read {
                Ok(count @ 1..) => match hear(lines.take(&buffer[..count]), &talk, &mut door) {
                    Ok(refused) => refusals.extend(refused),
                    Err(why) => break (why, false),
                },
                Ok(0) | Err(_) => match timeout(CLOSING, process.ended()).await {
                    Ok(status) => break (process.obituary(&status).await, false),
                    Err(_) => break ("it closed its output".to_owned(), false),
                },
            },
            status = process.ended() => break (process.obituary(&status).await, false),
        }
    };
    talk.why.set(why).ok();
    talk.over.cancel();
    // Pending calls fail.
    talk.open().clear();
    door.close();
    process.end(is_gentle).await;
}

/// Processes messages and returns the lines that reject requests; an error is the reason to end the process.
fn hear(all: Vec<Said>, talk: &Arc<Talk>, door: &mut Door) -> Result<Vec<String>, String> {
    let mut refusals = Vec::new();
    for said in all {
        match said {
            Said::Answer { id, result } => {
                let open = talk.open().remove(&id);
                match open {
                    // The caller may have gone.
                    Some(open) => drop(open.answer.send(result)),
                    // Late, or never requested.
                    None => door.unasked()?,
                }
            }
            Said::Notice { method, params } if method == "$/progress" => {
                let id = params.get("id").and_then(Value::as_u64);
                let value = params.get("value").cloned().unwrap_or_default();
                door.unasked()?;
                let open = talk.open();
                // The call may have ended.
                if let Some(on_progress) = id.and_then(|id| open.get(&id)).and_then(|open| open.on_progress.as_ref()) {
                    on_progress(value);
                }
            }
            Said::Notice { method, params } => door.notice(&method, &params)?,
            Said::Request { id, method, params } => refusals.extend(door.request(id, &method, params, talk)?),
            Said::Garbage(bytes) => door.garbage(bytes)?,
            Said::TooLong => {
                door.garbage(rpc::LINE)?;
                // It is unknown which call the response belongs to, so all pending calls fail rather than wait in vain.
                let open: Vec<Open> = talk.open().drain().map(|(_, open)| open).collect();
                for open in open {
                    drop(open.answer.send(Err(TOO_LONG.to_owned())));
                }
            }
        }
    }
    Ok(refusals)
}
