//! A conversation with a plugin's process: questions in both directions, and what becomes of them when it ends.

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

/// How many lines may wait until the process reads them. Beyond that whoever speaks waits, as long as it may.
const OUTBOX: usize = 64;

/// How long a process may take to be gone when it has closed its output.
const CLOSING: Duration = Duration::from_millis(500);

/// What those are told who wait while a process writes a line that is too long.
const TOO_LONG: &str =
    "it wrote a line of more than 8 MiB, which is not read; if that was the answer, it has to be shorter";

/// Hears how far a call has come.
pub(crate) type OnProgress = Box<dyn Fn(Value) + Send + Sync>;

/// A conversation with a process. Dropped, it ends the process and all that it has started.
#[derive(Debug)]
pub(crate) struct Link {
    talk: Arc<Talk>,
    stop: CancellationToken,
    tasks: TaskTracker,
    pid: Option<u32>,
}

/// What both sides of the conversation share.
#[derive(Debug)]
pub(crate) struct Talk {
    outbox: mpsc::Sender<Outgoing>,
    open: Mutex<HashMap<u64, Open>>,
    last: AtomicU64,
    /// What the process may fetch.
    pub(crate) shelf: Shelf,
    over: CancellationToken,
    why: OnceLock<String>,
}

/// A line for the process.
#[derive(Debug)]
struct Outgoing {
    line: String,
    /// True from when it is written, and false again if that failed: then the process cannot have read it.
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

    /// Says something, when the process reads.
    pub(crate) async fn say(&self, line: String) {
        self.send(line.into()).await;
    }

    async fn send(&self, outgoing: Outgoing) {
        // Who is over hears nothing, and that is fine.
        self.over.run_until_cancelled(self.outbox.send(outgoing)).await;
    }

    fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "its process is gone".to_owned())
    }
}

/// A question that is asked; dropped before its answer, it is taken back.
struct Asked<'a> {
    talk: &'a Talk,
    id: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.talk.open().remove(&self.id).is_some() {
            // A process that does not even read needs no word that it may stop.
            self.talk.outbox.try_send(rpc::notice("$/cancel", &json!({"id": self.id})).into()).ok();
        }
    }
}

impl Link {
    /// Starts a process and listens to it. What it asks goes to the door. Whoever waits for `house` waits for its end.
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

    /// Asks the process something, and waits for the answer for so long.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &RawValue,
        within: Duration,
        on_progress: Option<OnProgress>,
    ) -> Result<Value, Error> {
        self.call_once(method, params, within, on_progress).await.0
    }

    /// The same. Also says whether the process may have read the question: if not, it can be asked of the next one.
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

    /// Tells the process something.
    pub(crate) async fn tell(&self, method: &str, params: &Value) {
        self.talk.say(rpc::notice(method, params)).await;
    }

    /// What the process may fetch.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.talk.shelf
    }

    /// Whether the process is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.talk.over.is_cancelled()
    }

    /// Whether nobody waits for an answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.talk.open().is_empty()
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Waits until the process is gone, and says why.
    pub(crate) async fn over(&self) -> String {
        self.talk.over.cancelled().await;
        self.talk.why()
    }

    /// Ends the process, and waits until all of it is gone. Whoever still waits for an answer is told why.
    pub(crate) async fn end(&self, why: &str) {
        // Who was first has said why.
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
                // It closed its input: it will not answer. The one who reads its output learns of its end.
                break;
            }
        }
    };
    over.run_until_cancelled(writing).await;
}

/// Hears the process until its end, or brings that about.
async fn attend(
    mut process: Process,
    mut stdout: ChildStdout,
    talk: Arc<Talk>,
    mut door: Door,
    stop: CancellationToken,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 64 * 1024];
    // No more than one buffer brings: as long as they wait nothing is read, so one that does not listen is not heard, and
    // its ping decides.
    let mut refusals = VecDeque::new();
    let (why, is_gentle) = loop {
        // Its end comes last: what it said before is heard first.
        tokio::select! {
            biased;
            () = stop.cancelled() => break ("it was stopped".to_owned(), true),
            place = talk.outbox.reserve(), if !refusals.is_empty() => match place {
                Ok(place) => if let Some(line) = refusals.pop_front() { place.send(Outgoing::from(line)) },
                // It closed its input, so it does not want to know.
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
    // Those who wait see that nobody will answer.
    talk.open().clear();
    door.close();
    process.end(is_gentle).await;
}

/// Deals with what the process said, and gives the lines that refuse what it asked; an error is why it cannot go on.
fn hear(all: Vec<Said>, talk: &Arc<Talk>, door: &mut Door) -> Result<Vec<String>, String> {
    let mut refusals = Vec::new();
    for said in all {
        match said {
            Said::Answer { id, result } => {
                let open = talk.open().remove(&id);
                match open {
                    // Whoever asked may have gone, and that is fine.
                    Some(open) => drop(open.answer.send(result)),
                    // Late, or never asked for.
                    None => door.unasked()?,
                }
            }
            Said::Notice { method, params } if method == "$/progress" => {
                let id = params.get("id").and_then(Value::as_u64);
                let value = params.get("value").cloned().unwrap_or_default();
                door.unasked()?;
                let open = talk.open();
                // Its call may be over.
                if let Some(on_progress) = id.and_then(|id| open.get(&id)).and_then(|open| open.on_progress.as_ref()) {
                    on_progress(value);
                }
            }
            Said::Notice { method, params } => door.notice(&method, &params)?,
            Said::Request { id, method, params } => refusals.extend(door.request(id, &method, params, talk)?),
            Said::Garbage(bytes) => door.garbage(bytes)?,
            Said::TooLong => {
                door.garbage(rpc::LINE)?;
                // Whose answer it was is not known, so nobody waits for one that will not come.
                let open: Vec<Open> = talk.open().drain().map(|(_, open)| open).collect();
                for open in open {
                    drop(open.answer.send(Err(TOO_LONG.to_owned())));
                }
            }
        }
    }
    Ok(refusals)
}
