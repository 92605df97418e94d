//! `homard cron`: scheduled jobs. They are managed by the gateway.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::parse_duration;
use serde_json::{Value, json};

use super::{
    flags,
    ids::{self, Candidate},
    query::{Call, CommandContext},
};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Names of parameters in the gateway's errors, and the flags that set them.
const FLAGS: [(&str, &str); 5] = [
    ("schedule.at", "--at"),
    ("schedule.expr", "--cron"),
    ("schedule.tz", "--tz"),
    ("schedule.everyMs", "--every"),
    ("agentId", "--agent"),
];

/// Number of jobs in a page when one is looked up.
const PAGE: usize = 200;

/// Arguments of `homard cron`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard cron list
  homard cron add --name Weather --cron \"0 7 * * 1-5\" --tz Europe/Berlin -m \"What will the weather be?\"
  homard cron add --name Tea --at 20m --event \"The tea is ready.\"
  homard cron add --name Inbox --every 30m -m \"Look at the inbox.\"
  homard cron show Weather
  homard cron edit Weather --cron \"0 8 * * *\"
  homard cron disable Weather
  homard cron enable Weather
  homard cron run Weather
  homard cron runs 6f1c0a52 -n 50
  homard cron remove 6f1c0a52")]
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
    #[command(visible_alias = "rm")]
    Remove {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
    },
    /// Show a job
    #[command(visible_alias = "get")]
    Show {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
    },
    /// Change a job; what is not given stays as it is
    #[command(visible_alias = "update")]
    Edit(Box<Edit>),
    /// Enable a job
    Enable {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
    },
    /// Disable a job; it keeps its history
    Disable {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
    },
    /// Run a job now
    Run {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
    },
    /// List the runs of a job, newest first
    Runs {
        /// Job id, a unique prefix of it, or the job's name
        id: String,
        /// Maximum number of runs
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
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
    /// Run at the times of a cron expression, such as "0 7 * * 1-5"
    #[arg(long, value_name = "EXPR", group = "when")]
    cron: Option<String>,
    /// Time zone of the cron expression [default: the gateway's]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Message for the agent, in a separate session
    #[arg(short, long, value_name = "TEXT", group = "what")]
    message: Option<String>,
    /// Text of a system event for the agent's main session
    #[arg(long, value_name = "TEXT", group = "what")]
    event: Option<String>,
    /// Agent of the job [default: the default agent]
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Maximum duration of a run, such as 90s or 5m; a bare number is seconds
    #[arg(long, value_name = "DURATION", requires = "message", value_parser = flags::seconds)]
    timeout: Option<Duration>,
    /// Deliver the reply: to the chat where the agent last received a message, unless --channel or --to is set
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

/// Changes of a job.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("edit_when"), group = clap::ArgGroup::new("edit_what"))]
struct Edit {
    /// Job id, a unique prefix of it, or the job's name
    id: String,
    /// New name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Run once: at a time such as 2026-11-15T08:30:00Z, or after a duration such as 20m
    #[arg(long, value_name = "TIME", group = "edit_when")]
    at: Option<String>,
    /// Run repeatedly, at an interval such as 30m or 1h
    #[arg(long, value_name = "SPAN", group = "edit_when")]
    every: Option<String>,
    /// Run at the times of a cron expression, such as "0 7 * * 1-5"
    #[arg(long, value_name = "EXPR", group = "edit_when")]
    cron: Option<String>,
    /// Time zone of the cron expression [default: the gateway's]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Message for the agent, in a separate session
    #[arg(short, long, value_name = "TEXT", group = "edit_what")]
    message: Option<String>,
    /// Text of a system event for the agent's main session
    #[arg(long, value_name = "TEXT", group = "edit_what")]
    event: Option<String>,
    /// Agent of the job
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Maximum duration of a run, such as 90s or 5m; a bare number is seconds
    #[arg(long, value_name = "DURATION", conflicts_with = "event", value_parser = flags::seconds)]
    timeout: Option<Duration>,
}

impl Edit {
    /// Returns the changes in the form that the gateway expects.
    fn patch(&self, now: u64) -> Result<Value, CliError> {
        let mut patch = json!({"name": self.name, "agentId": self.agent});
        if self.at.is_some() || self.every.is_some() || self.cron.is_some() {
            patch["schedule"] =
                schedule(self.at.as_deref(), self.every.as_deref(), self.cron.as_deref(), self.tz.as_deref(), now)?;
        }
        if let Some(text) = &self.event {
            patch["payload"] = json!({"kind": "systemEvent", "text": text});
            patch["sessionTarget"] = "main".into();
        }
        if let Some(message) = &self.message {
            patch["payload"] = json!({"kind": "agentTurn", "message": message});
            patch["sessionTarget"] = "isolated".into();
        }
        if let Some(timeout) = self.timeout {
            patch["payload"]["kind"] = "agentTurn".into();
            patch["payload"]["timeoutSeconds"] = flags::whole_seconds(timeout).max(1).into();
        }
        let patch = without_nulls(patch);
        match patch.as_object().is_some_and(serde_json::Map::is_empty) {
            true => Err(CliError::usage("nothing to change; pass what to change, such as --name or --cron")),
            false => Ok(patch),
        }
    }
}

/// Returns the schedule that was given, in the form that the gateway expects.
fn schedule(
    at: Option<&str>,
    every: Option<&str>,
    cron: Option<&str>,
    tz: Option<&str>,
    now: u64,
) -> Result<Value, CliError> {
    Ok(match (at, every) {
        (Some(at), _) => {
            let relative = parse_duration(at).and_then(|span| u64::try_from(span.as_millis()).ok());
            json!({"kind": "at", "at": relative.map_or_else(|| at.to_owned(), |ms| iso(now.saturating_add(ms)))})
        }
        (None, Some(every)) => {
            let no_duration = || CliError::usage(format!("--every {every} is not a duration such as 30m or 1h"));
            let span = parse_duration(every).ok_or_else(no_duration)?;
            json!({"kind": "every", "everyMs": span.as_millis() as u64})
        }
        (None, None) => json!({"kind": "cron", "expr": cron, "tz": tz}),
    })
}

impl Add {
    /// Returns the job in the form that the gateway expects.
    fn job(&self, now: u64) -> Result<Value, CliError> {
        let [at, every, cron, tz] = [&self.at, &self.every, &self.cron, &self.tz].map(Option::as_deref);
        let schedule = schedule(at, every, cron, tz, now)?;
        let payload = match &self.event {
            Some(text) => json!({"kind": "systemEvent", "text": text}),
            None => {
                let timeout = self.timeout.map(|timeout| flags::whole_seconds(timeout).max(1));
                json!({"kind": "agentTurn", "message": self.message, "timeoutSeconds": timeout})
            }
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
    let setup = CommandContext::load()?;
    let no_job = |id: &str| CliError::not_found(format!("job {id} not found; list jobs with: homard cron"));
    let found = match &args.command {
        Command::List { .. } | Command::Add(_) => None,
        Command::Remove { id }
        | Command::Run { id }
        | Command::Show { id }
        | Command::Enable { id }
        | Command::Disable { id } => Some(find_job(&setup, id).await?.ok_or_else(|| no_job(id))?),
        Command::Edit(edit) => Some(find_job(&setup, &edit.id).await?.ok_or_else(|| no_job(&edit.id))?),
        Command::Runs { id, .. } => find_job(&setup, id).await?,
    };
    let id = match &args.command {
        // The runs of a removed job are kept.
        Command::Runs { id, .. } => found.clone().unwrap_or_else(|| id.clone()),
        Command::List { .. }
        | Command::Add(_)
        | Command::Remove { .. }
        | Command::Run { .. }
        | Command::Show { .. }
        | Command::Edit(_)
        | Command::Enable { .. }
        | Command::Disable { .. } => found.clone().unwrap_or_default(),
    };
    let (method, params) = match &args.command {
        Command::List { all } => ("cron.list", json!({"includeDisabled": all})),
        Command::Add(add) => ("cron.add", add.job(now)?),
        Command::Remove { .. } => ("cron.remove", json!({"id": id})),
        Command::Run { .. } => ("cron.run", json!({"id": id})),
        Command::Show { .. } => ("cron.get", json!({"id": id})),
        Command::Edit(edit) => ("cron.update", json!({"id": id, "patch": edit.patch(now)?})),
        Command::Enable { .. } => ("cron.update", json!({"id": id, "patch": {"enabled": true}})),
        Command::Disable { .. } => ("cron.update", json!({"id": id, "patch": {"enabled": false}})),
        Command::Runs { limit, .. } => ("cron.runs", json!({"id": id, "limit": limit})),
    };
    let answer = setup.require(Call { flags: &FLAGS, ..Call::admin(method, params) }).await?;
    let rows = |name: &str| answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if matches!(args.command, Command::Runs { .. }) && found.is_none() && rows("entries").is_empty() {
        return Err(no_job(&id).into());
    }
    if args.json {
        return Ok(render::print_json(&answer)?);
    }
    let text = match &args.command {
        Command::List { .. } if rows("jobs").is_empty() => {
            "no jobs; create one with: homard cron add --name Inbox --every 30m -m \"Look at the inbox.\"".to_owned()
        }
        Command::List { .. } => return Ok(render::print_table(&jobs(rows("jobs"), now))?),
        Command::Add(_) => format!("created job {}", text_of(&answer, "id")),
        Command::Remove { .. } if answer["removed"] == false => return Err(no_job(&id).into()),
        Command::Remove { .. } => format!("removed job {id}"),
        Command::Show { .. } => return Ok(render::print_table(&details(&answer, now))?),
        Command::Edit(_) => format!("changed job {id}"),
        Command::Enable { .. } => format!("enabled job {id}"),
        Command::Disable { .. } => format!("disabled job {id}"),
        Command::Run { .. } if answer["ran"] == false => {
            format!("job {id} was not run: {}", text_of(&answer, "reason"))
        }
        Command::Run { .. } => format!("started job {id}; list its runs with: homard cron runs {id}"),
        Command::Runs { .. } if rows("entries").is_empty() => "no runs yet".to_owned(),
        Command::Runs { .. } => return Ok(render::print_table(&runs(rows("entries"), now))?),
    };
    Ok(render::print(&text)?)
}

/// Returns the id of the job that was typed: by its id, its name, or a unique prefix of its id.
async fn find_job(setup: &CommandContext, prefix: &str) -> Result<Option<String>> {
    let mut jobs = Vec::new();
    loop {
        let params = json!({"includeDisabled": true, "limit": PAGE, "offset": jobs.len()});
        let mut page = setup.require(Call::admin("cron.list", params)).await?;
        let Value::Array(rows) = page["jobs"].take() else { break };
        let is_last = rows.is_empty() || page["hasMore"] != true;
        jobs.extend(rows);
        if is_last {
            break;
        }
    }
    let all: Vec<_> = jobs
        .iter()
        .filter_map(|job: &Value| Some(Candidate { id: job["id"].as_str()?, name: job["name"].as_str() }))
        .collect();
    Ok(ids::resolve("job", prefix, &all)?.map(str::to_owned))
}

fn text_of<'a>(row: &'a Value, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or("-")
}

/// Formats jobs as a table.
fn jobs(rows: &[Value], now: u64) -> Table {
    let titles = ["ID", "NAME", "WHEN", "NEXT", "LAST"].map(str::to_owned).to_vec();
    let line = |job: &Value| {
        let state = |name: &str| job["state"].get(name).and_then(Value::as_u64);
        let next = state("nextRunAtMs").map_or_else(|| "-".to_owned(), |next| time_until(now, next));
        let last = state("lastRunAtMs")
            .map(|last| format!("{} {}", text_of(&job["state"], "lastStatus"), render::age(now, last)));
        let cells =
            [text_of(job, "id").to_owned(), text_of(job, "name").to_owned(), schedule_text(&job["schedule"]), next];
        let cells = cells.into_iter().chain([last.unwrap_or_else(|| "-".to_owned())]);
        cells.map(|cell| render::strip_controls(&cell)).collect()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}

/// Formats one job.
fn details(job: &Value, now: u64) -> Table {
    let payload = &job["payload"];
    let at = |name: &str| job["state"].get(name).and_then(Value::as_u64);
    let next = at("nextRunAtMs").map_or_else(|| "-".to_owned(), |next| time_until(now, next));
    let last = at("lastRunAtMs").map_or_else(
        || "-".to_owned(),
        |last| format!("{} {}", text_of(&job["state"], "lastStatus"), render::age(now, last)),
    );
    let enabled = if job["enabled"] == false { "no" } else { "yes" };
    let text = payload["message"].as_str().or_else(|| payload["text"].as_str()).unwrap_or("-");
    let rows = [
        ("id", text_of(job, "id").to_owned()),
        ("name", text_of(job, "name").to_owned()),
        ("enabled", enabled.to_owned()),
        ("when", schedule_text(&job["schedule"])),
        ("next", next),
        ("last", last),
        ("agent", text_of(job, "agentId").to_owned()),
        ("kind", text_of(payload, "kind").to_owned()),
        ("text", text.replace('\n', " ")),
    ];
    Table::fields(rows.map(|(name, value)| vec![name.to_owned(), render::strip_controls(&value)]).to_vec())
}

/// Formats a schedule.
fn schedule_text(schedule: &Value) -> String {
    match text_of(schedule, "kind") {
        "at" => text_of(schedule, "at").to_owned(),
        "every" => format!("every {}", render::duration_ms(schedule["everyMs"].as_u64().unwrap_or(0))),
        "cron" => match schedule["tz"].as_str() {
            Some(tz) => format!("{} ({tz})", text_of(schedule, "expr")),
            None => text_of(schedule, "expr").to_owned(),
        },
        other => other.to_owned(),
    }
}

/// Formats the runs of a job as a table.
fn runs(rows: &[Value], now: u64) -> Table {
    let titles = ["WHEN", "HOW", "TOOK", "WHAT"].map(str::to_owned).to_vec();
    let line = |run: &Value| {
        let number = |name: &str| run.get(name).and_then(Value::as_u64);
        let outcome = match text_of(run, "outcome") {
            "missed" => "missed",
            _ => text_of(run, "status"),
        };
        let details = run.get("error").or_else(|| run.get("summary")).and_then(Value::as_str).unwrap_or("-");
        let details: String = details.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        let cells = [
            number("runAtMs").map_or_else(|| "-".to_owned(), |at| render::age(now, at)),
            outcome.to_owned(),
            number("durationMs").map_or_else(|| "-".to_owned(), render::duration_ms),
            details,
        ];
        cells.map(|cell| render::strip_controls(&cell)).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}

fn time_until(now: u64, at_ms: u64) -> String {
    format!("in {}", render::duration_ms(at_ms.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCommand {
        #[command(flatten)]
        args: Args,
    }

    fn job(args: &[&str]) -> Result<Value, String> {
        let args = ["cron", "add", "--name", "n"].iter().chain(args);
        let Command::Add(add) =
            TestCommand::try_parse_from(args).map_err(|error| error.kind().to_string())?.args.command
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
        let args = ["--every", "1h", "-m", "x", "--announce"];
        assert_eq!(job(&args).unwrap()["delivery"], json!({"mode": "announce", "channel": "last"}));
        let target_args = ["--channel", "telegram", "--to", "7", "--account", "bot", "--best-effort-deliver"];
        assert_eq!(
            job(&[&args[..], &target_args].concat()).unwrap()["delivery"],
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
        assert_eq!(
            job(&["--every", "often", "-m", "x"]).unwrap_err(),
            "--every often is not a duration such as 30m or 1h"
        );
        for args in [
            &["-m", "x"][..],
            &["--every", "1h"],
            &["--every", "1h", "--at", "1h", "-m", "x"],
            &["--at", "1h", "-m", "x", "--event", "y"],
        ] {
            assert!(job(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn jobs_and_runs_are_listed_in_tables() {
        let table = jobs(
            &[
                json!({"id": "j1", "name": "Weather", "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "UTC"},
                       "state": {"nextRunAtMs": 7_200_000, "lastRunAtMs": 0, "lastStatus": "ok"}}),
                json!({"id": "j2", "name": "x\u{1b}[2J", "schedule": {"kind": "every", "everyMs": 5_400_000}}),
            ],
            60_000,
        );
        assert_eq!(
            table.to_string(),
            "ID  NAME     WHEN             NEXT       LAST\n\
             j1  Weather  0 7 * * * (UTC)  in 1h 59m  ok 1m ago\n\
             j2  x[2J     every 1h 30m     -          -"
        );
        let table = runs(
            &[
                json!({"runAtMs": 0, "status": "ok", "outcome": "ran", "durationMs": 1500, "summary": "all\nquiet"}),
                json!({"runAtMs": 0, "status": "skipped", "outcome": "missed", "error": "missed 5"}),
            ],
            60_000,
        );
        assert_eq!(
            table.to_string(),
            "WHEN    HOW     TOOK  WHAT\n1m ago  ok      1.5s  all quiet\n1m ago  missed  -     missed 5"
        );
    }
}
