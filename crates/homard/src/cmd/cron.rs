//! `homard cron`: scheduled jobs. They are managed by the gateway.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use homard_agent::{Ambient, ambient::iso};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ask::Setup;
use crate::{
    client::{Client, Reached},
    config::span,
    failure::Failure,
    render,
};

/// Timeout for the gateway's response.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `homard cron` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard cron list
  homard cron add --name Weather --cron \"0 7 * * 1-5\" --tz Europe/Berlin -m \"What will the weather be?\"
  homard cron add --name Tea --at 20m --event \"The tea is ready.\"
  homard cron add --name Inbox --every 30m -m \"Look at the inbox.\"
  homard cron run 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11
  homard cron runs 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11
  homard cron rm 6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, next run first
    List {
        /// Include disabled jobs
        #[arg(long)]
        all: bool,
    },
    /// Create a job
    Add(Box<Add>),
    /// Remove a job; keeps the history of its runs
    #[command(visible_alias = "remove")]
    Rm {
        /// Job id
        id: String,
    },
    /// Run a job now
    Run {
        /// Job id
        id: String,
    },
    /// List the runs of a job, newest first
    Runs {
        /// Job id
        id: String,
        /// Maximum number
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u64,
    },
}

/// A new job.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("when").required(true), group = clap::ArgGroup::new("what").required(true))]
struct Add {
    /// Job name
    #[arg(long, value_name = "TEXT")]
    name: String,
    /// Run once: at a time such as 2026-11-15T08:30:00Z, or after a duration such as 20m
    #[arg(long, value_name = "TIME", group = "when")]
    at: Option<String>,
    /// Run repeatedly, at an interval such as 30m or 1h
    #[arg(long, value_name = "SPAN", group = "when")]
    every: Option<String>,
    /// Run by a cron expression
    #[arg(long, value_name = "EXPR", group = "when")]
    cron: Option<String>,
    /// Time zone of the cron expression [default: the gateway's]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Message for the agent, in a separate session
    #[arg(short, long, value_name = "TEXT", group = "what")]
    message: Option<String>,
    /// Event for the agent's main session
    #[arg(long, value_name = "TEXT", group = "what")]
    event: Option<String>,
    /// Agent of the job [default: the default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Maximum duration of a run, in seconds
    #[arg(long, value_name = "N", requires = "message")]
    timeout: Option<u64>,
    /// Deliver the reply: where the agent last received a message, or as --channel and --to say
    #[arg(long, requires = "message")]
    announce: bool,
    /// Channel of the reply
    #[arg(long, value_name = "NAME", requires = "announce")]
    channel: Option<String>,
    /// Recipient of the reply
    #[arg(long, value_name = "TARGET", requires = "announce")]
    to: Option<String>,
    /// Account that sends the reply
    #[arg(long, value_name = "ID", requires = "announce")]
    account: Option<String>,
    /// Do not fail the job if the reply cannot be delivered
    #[arg(long, requires = "announce")]
    best_effort_deliver: bool,
}

impl Add {
    /// Returns the job in the form that the gateway expects.
    fn job(&self, now: u64) -> Result<Value, Failure> {
        let unclear =
            |flag: &str, text: &str| Failure::usage(format!("--{flag} {text} is not a time such as 30m or 1h"));
        let schedule = match (&self.at, &self.every, &self.cron) {
            (Some(at), ..) => {
                let relative = span(at).and_then(|span| u64::try_from(span.as_millis()).ok());
                json!({"kind": "at", "at": relative.map_or_else(|| at.clone(), |ms| iso(now.saturating_add(ms)))})
            }
            (None, Some(every), _) => {
                let span = span(every).ok_or_else(|| unclear("every", every))?;
                json!({"kind": "every", "everyMs": span.as_millis() as u64})
            }
            (None, None, cron) => json!({"kind": "cron", "expr": cron, "tz": self.tz}),
        };
        let payload = match &self.event {
            Some(text) => json!({"kind": "systemEvent", "text": text}),
            None => json!({"kind": "agentTurn", "message": self.message, "timeoutSeconds": self.timeout}),
        };
        let target = if self.event.is_some() { "main" } else { "isolated" };
        let delivery = self.announce.then(|| {
            json!({
                "mode": "announce", "channel": self.channel.as_deref().unwrap_or("last"), "to": self.to,
                "accountId": self.account, "bestEffort": self.best_effort_deliver.then_some(true),
            })
        });
        let job = json!({
            "name": self.name, "schedule": schedule, "payload": payload, "sessionTarget": target, "wakeMode": "now",
            "agentId": self.agent, "delivery": delivery,
        });
        Ok(without_nulls(job))
    }
}

/// Removes unset fields.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value,
    }
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let now = Ambient::system().now_ms();
    let (method, params) = match &args.command {
        Command::List { all } => ("cron.list", json!({"includeDisabled": all})),
        Command::Add(add) => ("cron.add", add.job(now)?),
        Command::Rm { id } => ("cron.remove", json!({"id": id})),
        Command::Run { id } => ("cron.run", json!({"id": id})),
        Command::Runs { id, limit } => ("cron.runs", json!({"id": id, "limit": limit.clamp(&1, &200)})),
    };
    let answer = ask(method, params).await?;
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let rows = |name: &str| answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = match &args.command {
        Command::List { .. } if rows("jobs").is_empty() => {
            "no jobs; make one with: homard cron add --name Inbox --every 30m -m \"Look at the inbox.\"".to_owned()
        }
        Command::List { .. } => jobs(rows("jobs"), now),
        Command::Add(_) => format!("made job {}", word(&answer, "id")),
        Command::Rm { id } if answer["removed"] == false => {
            return Err(Failure::new("cron", format!("no job {id}")).into());
        }
        Command::Rm { id } => format!("removed job {id}"),
        Command::Run { id } if answer["ran"] == false => format!("job {id} was not run: {}", word(&answer, "reason")),
        Command::Run { id } => format!("job {id} runs; see how with: homard cron runs {id}"),
        Command::Runs { .. } if rows("entries").is_empty() => "no runs yet".to_owned(),
        Command::Runs { .. } => runs(rows("entries"), now),
    };
    Ok(render::print(&text)?)
}

/// Calls a method of the gateway.
async fn ask(method: &str, params: Value) -> Result<Value> {
    let setup = Setup::find()?;
    let Reached::Gateway(mut client) = Client::connect(&setup.target, &["operator.admin"], &[]).await? else {
        return Err(setup.nobody().into());
    };
    let slow = |_| Failure::new("connection", format!("the gateway at {} does not answer", setup.target.url));
    timeout(PATIENCE, client.call(method, params)).await.map_err(slow)?
}

fn word<'a>(row: &'a Value, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or("-")
}

/// Formats jobs as a table.
fn jobs(rows: &[Value], now: u64) -> String {
    let titles = ["ID", "NAME", "WHEN", "NEXT", "LAST"].map(str::to_owned).to_vec();
    let line = |job: &Value| {
        let state = |name: &str| job["state"].get(name).and_then(Value::as_u64);
        let next = state("nextRunAtMs").map_or_else(|| "-".to_owned(), |next| ahead(now, next));
        let last = state("lastRunAtMs")
            .map(|last| format!("{} {}", word(&job["state"], "lastStatus"), render::age(now, last)));
        let cells = [word(job, "id").to_owned(), word(job, "name").to_owned(), when(&job["schedule"]), next];
        let cells = cells.into_iter().chain([last.unwrap_or_else(|| "-".to_owned())]);
        cells.map(|cell| render::harmless(&cell)).collect()
    };
    render::table(&std::iter::once(titles).chain(rows.iter().map(line)).collect::<Vec<_>>())
}

/// Formats a schedule.
fn when(schedule: &Value) -> String {
    match word(schedule, "kind") {
        "at" => word(schedule, "at").to_owned(),
        "every" => format!("every {}", length(schedule["everyMs"].as_u64().unwrap_or(0))),
        "cron" => match schedule["tz"].as_str() {
            Some(tz) => format!("{} ({tz})", word(schedule, "expr")),
            None => word(schedule, "expr").to_owned(),
        },
        other => other.to_owned(),
    }
}

/// Formats the runs of a job as a table.
fn runs(rows: &[Value], now: u64) -> String {
    let titles = ["WHEN", "HOW", "TOOK", "WHAT"].map(str::to_owned).to_vec();
    let line = |run: &Value| {
        let number = |name: &str| run.get(name).and_then(Value::as_u64);
        let how = match word(run, "outcome") {
            "missed" => "missed",
            _ => word(run, "status"),
        };
        let what = run.get("error").or_else(|| run.get("summary")).and_then(Value::as_str).unwrap_or("-");
        let what: String = what.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        let cells = [
            number("runAtMs").map_or_else(|| "-".to_owned(), |at| render::age(now, at)),
            how.to_owned(),
            number("durationMs").map_or_else(|| "-".to_owned(), length),
            what,
        ];
        cells.map(|cell| render::harmless(&cell)).to_vec()
    };
    render::table(&std::iter::once(titles).chain(rows.iter().map(line)).collect::<Vec<_>>())
}

fn ahead(now: u64, then: u64) -> String {
    format!("in {}", length(then.saturating_sub(now)))
}

/// Formats a duration in the largest unit of which it is a whole number, or at least two.
fn length(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    match units.into_iter().find(|(_, unit)| ms >= *unit && (ms.is_multiple_of(*unit) || ms >= 2 * unit)) {
        Some((name, unit)) => format!("{}{name}", ms / unit),
        None if ms >= 1000 => format!("{}s", ms / 1000),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    fn job(typed: &[&str]) -> Result<Value, String> {
        let typed = ["cron", "add", "--name", "n"].iter().chain(typed);
        let Command::Add(add) = Typed::try_parse_from(typed).map_err(|error| error.kind().to_string())?.args.command
        else {
            return Err("not add".to_owned());
        };
        add.job(1_794_700_800_000).map_err(|failure| failure.to_string())
    }

    #[test]
    fn flags_become_a_job() {
        assert_eq!(
            job(&["--at", "20m", "--event", "tea"]).unwrap(),
            json!({
                "name": "n", "schedule": {"kind": "at", "at": "2026-11-15T00:20:00.000Z"},
                "payload": {"kind": "systemEvent", "text": "tea"}, "sessionTarget": "main", "wakeMode": "now",
            })
        );
        assert_eq!(
            job(&["--cron", "0 7 * * *", "--tz", "UTC", "-m", "look", "--timeout", "60", "--agent", "ops"]).unwrap(),
            json!({
                "name": "n", "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "UTC"},
                "payload": {"kind": "agentTurn", "message": "look", "timeoutSeconds": 60}, "sessionTarget": "isolated",
                "wakeMode": "now", "agentId": "ops",
            })
        );
        let typed = ["--every", "1h", "-m", "x", "--announce"];
        assert_eq!(job(&typed).unwrap()["delivery"], json!({"mode": "announce", "channel": "last"}));
        let there = ["--channel", "telegram", "--to", "7", "--account", "bot", "--best-effort-deliver"];
        assert_eq!(
            job(&[&typed[..], &there].concat()).unwrap()["delivery"],
            json!({"mode": "announce", "channel": "telegram", "to": "7", "accountId": "bot", "bestEffort": true})
        );
        assert_eq!(
            job(&["--every", "1h", "-m", "x"]).unwrap()["schedule"],
            json!({"kind": "every", "everyMs": 3_600_000})
        );
        assert_eq!(
            job(&["--at", "2026-12-01T00:00:00Z", "-m", "x"]).unwrap()["schedule"]["at"],
            "2026-12-01T00:00:00Z"
        );
        assert_eq!(job(&["--every", "often", "-m", "x"]).unwrap_err(), "--every often is not a time such as 30m or 1h");
        for typed in [
            &["-m", "x"][..],
            &["--every", "1h"],
            &["--every", "1h", "--at", "1h", "-m", "x"],
            &["--at", "1h", "-m", "x", "--event", "y"],
        ] {
            assert!(job(typed).is_err(), "{typed:?}");
        }
    }

    #[test]
    fn jobs_and_runs_are_shown_in_few_words() {
        let shown = jobs(
            &[
                json!({"id": "j1", "name": "Weather", "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "UTC"},
                       "state": {"nextRunAtMs": 7_200_000, "lastRunAtMs": 0, "lastStatus": "ok"}}),
                json!({"id": "j2", "name": "x\u{1b}[2J", "schedule": {"kind": "every", "everyMs": 5_400_000}}),
            ],
            60_000,
        );
        assert_eq!(
            shown,
            "ID  NAME     WHEN             NEXT     LAST\n\
             j1  Weather  0 7 * * * (UTC)  in 119m  ok 1m ago\n\
             j2  x[2J     every 90m        -        -"
        );
        let shown = runs(
            &[
                json!({"runAtMs": 0, "status": "ok", "outcome": "ran", "durationMs": 1500, "summary": "all\nquiet"}),
                json!({"runAtMs": 0, "status": "skipped", "outcome": "missed", "error": "missed 5"}),
            ],
            60_000,
        );
        assert_eq!(
            shown,
            "WHEN    HOW     TOOK  WHAT\n1m ago  ok      1s    all quiet\n1m ago  missed  -     missed 5"
        );
    }
}
