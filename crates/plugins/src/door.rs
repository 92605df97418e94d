//! The door between a plugin's process and the house: what it may ask, and how much of its talk is borne.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_agent::task;
use homard_hooks::{FailureLog, FrequentFailures};
use serde_json::Value;
use tokio::{sync::Semaphore, task::AbortHandle, time::Instant};

use crate::{
    host::{Ask, Host},
    link::Talk,
    rpc::{self, DENIED, FAILED, UNKNOWN_METHOD, one_line},
};

/// How many questions of a process are answered at once.
const AT_ONCE: usize = 32;

/// How many lines that are no messages are borne in a minute.
const GARBAGE: Patience = Patience::new(1000, Duration::from_secs(60));

/// How many messages that nobody asked for are borne in ten seconds.
const UNASKED: Patience = Patience::new(20_000, Duration::from_secs(10));

/// How many of them are put into the log.
const LOGGED: Patience = Patience::new(100, Duration::from_secs(10));

/// Who is behind a door.
#[derive(Clone)]
pub(crate) struct Behind {
    /// The plugin, or the process of several.
    pub(crate) name: String,
    /// Whether the process says itself for which plugin it speaks.
    pub(crate) is_shared: bool,
    /// What it may ask, by name; none for everything.
    pub(crate) asks: Option<Vec<String>>,
    /// The house.
    pub(crate) host: Arc<dyn Host>,
    /// The errors that plugins threw and did not catch.
    pub(crate) uncaught: Uncaught,
}

/// The errors that plugins threw outside of any call, and did not catch: by plugin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uncaught(Arc<Mutex<BTreeMap<String, FailureLog>>>);

impl Uncaught {
    /// Notes one; says whether it is to be logged, and how many before it were not.
    fn note(&self, plugin: &str, error: &str) -> Option<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(plugin.to_owned()).or_default().note(Instant::now(), error)
    }

    /// The plugins that throw often now.
    pub(crate) fn frequent(&self) -> Vec<FrequentFailures> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter_map(|(plugin, failures)| failures.frequent(plugin, Instant::now())).collect()
    }
}

/// The door of one process.
pub(crate) struct Door {
    behind: Behind,
    garbage: Patience,
    unasked: Patience,
    logged: Patience,
    is_warned: bool,
    seats: Arc<Semaphore>,
    asking: Asking,
}

/// The questions that are being answered, by their ids.
type Asking = Arc<Mutex<HashMap<String, AbortHandle>>>;

/// What a process may ask.
enum Asked {
    /// A value that was lent to it.
    Lent,
    /// Something of the house.
    House(Ask),
}

/// How much of something is borne.
#[derive(Debug, Clone, Copy)]
struct Patience {
    most: usize,
    within: Duration,
    count: usize,
    since: Option<Instant>,
}

impl Patience {
    const fn new(most: usize, within: Duration) -> Self {
        Self { most, within, count: 0, since: None }
    }

    /// Bears one more, or does not.
    fn bears(&mut self) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > self.within) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count <= self.most
    }
}

impl Door {
    pub(crate) fn new(behind: Behind) -> Self {
        Self {
            behind,
            garbage: GARBAGE,
            unasked: UNASKED,
            logged: LOGGED,
            is_warned: false,
            seats: Arc::new(Semaphore::new(AT_ONCE)),
            asking: Asking::default(),
        }
    }

    /// Bears a line that is no message.
    pub(crate) fn garbage(&mut self, bytes: usize) -> Result<(), String> {
        if !self.is_warned {
            self.is_warned = true;
            let plugin = &self.behind.name;
            tracing::warn!(
                plugin,
                bytes,
                "a plugin wrote a line to stdout that is no message; stdout is for the protocol, stderr for words"
            );
        }
        if self.garbage.bears() {
            return Ok(());
        }
        Err(format!("it wrote more than {} lines to stdout that are no messages", GARBAGE.most))
    }

    /// Bears a message that nobody asked for.
    pub(crate) fn unasked(&mut self) -> Result<(), String> {
        let why = || format!("it sent more than {} messages that nobody asked for", UNASKED.most);
        self.unasked.bears().then_some(()).ok_or_else(why)
    }

    /// Hears what it tells.
    pub(crate) fn notice(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.unasked()?;
        match method {
            "log" => {
                let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
                let (speaker, mut message) = (self.speaker(params), one_line(text("message"), 2000));
                if params.get("uncaught") == Some(&Value::Bool(true)) {
                    match self.behind.uncaught.note(&speaker, &message) {
                        None => return Ok(()),
                        Some(0) => {}
                        Some(more) => message = format!("{message} (and {more} more since the last such line)"),
                    }
                }
                if self.may_log() {
                    self.behind.host.log(&speaker, text("level"), &message);
                }
            }
            "$/cancel" => {
                let id = params.get("id").map(ToString::to_string).unwrap_or_default();
                if let Some(task) = self.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
                    task.abort();
                }
            }
            _ => tracing::debug!(plugin = self.behind.name, method, "a plugin told something unknown"),
        }
        Ok(())
    }

    /// Whether one more line because of it may go to the log.
    fn may_log(&mut self) -> bool {
        let is_borne = self.logged.bears();
        if !is_borne && self.logged.count == LOGGED.most + 1 {
            tracing::warn!(plugin = self.behind.name, "a plugin logs too much; some of it is left out");
        }
        is_borne
    }

    /// For whom the process speaks.
    fn speaker(&self, params: &Value) -> String {
        let said = params.get("plugin").and_then(Value::as_str).filter(|_| self.behind.is_shared);
        said.unwrap_or(&self.behind.name).to_owned()
    }

    /// Has a question answered, or gives the line that refuses it.
    pub(crate) fn request(
        &mut self,
        id: Value,
        method: &str,
        params: Value,
        talk: &Arc<Talk>,
    ) -> Result<Option<String>, String> {
        self.unasked()?;
        let speaker = self.speaker(&params);
        let asked = match self.asked(&speaker, method) {
            Ok(asked) => asked,
            Err((code, why)) => return Ok(Some(rpc::refusal(&id, code, &why))),
        };
        let Ok(seat) = self.seats.clone().try_acquire_owned() else {
            return Ok(Some(rpc::refusal(&id, FAILED, &format!("more than {AT_ONCE} questions at once"))));
        };
        let (host, talk) = (self.behind.host.clone(), talk.clone());
        let (asking, key) = (self.asking.clone(), id.to_string());
        let answering = task::spawn("plugin question", async move {
            let line = match asked {
                Asked::Lent => lend(&id, &params, &talk),
                Asked::House(ask) => match host.answer(&speaker, ask, params).await {
                    Ok(value) => rpc::answer(&id, &value),
                    Err(why) => rpc::refusal(&id, FAILED, &why),
                },
            };
            talk.say(line).await;
            asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string());
            drop(seat);
        });
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.retain(|_, task| !task.is_finished());
        asking.insert(key, answering.abort_handle());
        Ok(None)
    }

    /// What is asked; an error is why it is refused.
    fn asked(&mut self, speaker: &str, method: &str) -> Result<Asked, (i64, String)> {
        if method == "ref.get" {
            return Ok(Asked::Lent);
        }
        let Some(ask) = Ask::named(method) else {
            return Err((UNKNOWN_METHOD, format!("there is no method {:?}", one_line(method, 100))));
        };
        if self.behind.asks.as_ref().is_some_and(|asks| !asks.iter().any(|name| name == method)) {
            if self.may_log() {
                tracing::warn!(plugin = speaker, method, "a plugin asked for what its manifest does not declare");
            }
            return Err((DENIED, format!("the manifest does not declare {method} under \"rights.host\"")));
        }
        Ok(Asked::House(ask))
    }

    /// Takes back all that is being answered: nobody is left to hear it.
    pub(crate) fn close(&mut self) {
        for (_, task) in self.asking.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            task.abort();
        }
    }
}

/// The line that gives a value away that was lent, as long as its call is open.
fn lend(id: &Value, params: &Value, talk: &Talk) -> String {
    let reference = params.get("ref").and_then(Value::as_str).unwrap_or_default();
    match talk.shelf.get(reference) {
        Some(value) => rpc::gift(id, &value),
        None => {
            rpc::refusal(id, FAILED, &format!("there is no value {:?}; its call may be over", one_line(reference, 100)))
        }
    }
}
