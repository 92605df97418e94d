//! Checks that timelines cover the whole time of runs, and match the received events.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{SoakClients, Tape, model::SoakModel};
use crate::{
    chaos::gateway::{GatewayUnderTest, is_long},
    home::{Home, run_command},
};

/// Minimum number of each kind.
const OF_EACH: usize = 10;

/// One in this many runs is also checked with `homard trace`.
const SAMPLE: usize = 20;

/// The result of all runs.
pub(super) struct Report {
    timelines: BTreeMap<String, Value>,
    counts: BTreeMap<&'static str, usize>,
    problems: Vec<String>,
}

impl Report {
    /// Requests the timeline of every run.
    pub(super) async fn of(soak: &SoakClients, model: &SoakModel, home: &Home, gateway: &mut GatewayUnderTest) -> Self {
        let mut report = Self { timelines: BTreeMap::new(), counts: BTreeMap::new(), problems: Vec::new() };
        for run in soak.sent.keys() {
            let id = gateway.ask("runs.trace", &json!({"id": run})).await;
            report.timelines.insert(run.clone(), gateway.answer(&id).await["payload"].clone());
        }
        for (index, run) in soak.sent.keys().enumerate() {
            let timeline = &report.timelines[run];
            let mut problems = Vec::from_iter(check_contiguous(timeline));
            problems.extend(check_bounds(soak, run, timeline));
            problems.extend(check_downtimes(soak, timeline));
            problems.extend(check_end(soak, run, timeline));
            problems.extend(check_events(soak, run, timeline));
            problems.extend(check_requests(soak, model, run, timeline, &report.timelines));
            problems.extend(check_usage(timeline));
            if index.is_multiple_of(SAMPLE) {
                let printed = run_command({
                    let mut command = home.command(&["trace", run, "--json"]);
                    command.env("HOMARD_GATEWAY_PORT", gateway.port.to_string());
                    command
                })
                .json();
                problems.extend((printed != *timeline).then(|| format!("`homard trace` tells {printed}")));
            }
            report
                .problems
                .extend(problems.into_iter().map(|problems| format!("{run}: {problems}\n    in {timeline}")));
            for kind in kinds(timeline).into_iter().chain(coverage(soak, run)) {
                *report.counts.entry(kind).or_default() += 1;
            }
        }
        report
    }

    /// Checks that the state directory gives the same timelines without a gateway.
    pub(super) fn same_without_gateway(&self, home: &Home) {
        for (run, timeline) in self.timelines.iter().step_by(SAMPLE) {
            assert_eq!(home.run(&["trace", run, "--json"]).json(), *timeline);
        }
    }

    pub(super) fn judge(&self, soak: &SoakClients, runs: usize, kills: usize) {
        assert!(self.problems.is_empty(), "{} things are wrong:\n{}", self.problems.len(), self.problems.join("\n"));
        let count = |name: &str| self.counts.get(name).copied().unwrap_or_default();
        assert!(self.timelines.len() >= runs && soak.downtimes.len() == kills, "{self}");
        assert!(count("heard from the beginning") * 10 >= runs * 8, "too little was heard: {self}");
        // With few messages the kinds are a matter of chance.
        if is_long() {
            let rare: Vec<_> = KINDS.iter().filter(|kind| count(kind) < OF_EACH).collect();
            assert!(rare.is_empty() && soak.steered.min(soak.stopped) >= OF_EACH, "too few of {rare:?}: {self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total_ms: u64 = self.timelines.values().map(|timeline| number(&timeline["totalMs"])).sum();
        let named_ms: u64 = self.timelines.values().map(|timeline| number(&timeline["accountedMs"])).sum();
        write!(f, "{} runs: {named_ms} of {total_ms} ms have a name", self.timelines.len())?;
        self.counts.iter().try_for_each(|(kind, count)| write!(f, ", {count} {kind}"))
    }
}

/// What must have happened in a full soak.
const KINDS: &[&str] = &[
    "done",
    "failed",
    "stopped",
    "joined others",
    "over a kill",
    "asked a model",
    "had a model fail",
    "waited to ask again",
    "switched models",
    "used tools",
    "had tools fail",
    "waited in line",
    "made conversations short",
];

/// Returns how much was received about a run.
fn coverage(soak: &SoakClients, run: &str) -> Vec<&'static str> {
    match last_tape(soak, run) {
        Some(tape) if tape.events.contains_key(&1) && tape.has_tools => {
            vec!["heard to the end", "heard from the beginning"]
        }
        Some(_) => vec!["heard to the end"],
        None => Vec::new(),
    }
}

/// Returns what happened in a run.
fn kinds(timeline: &Value) -> Vec<&'static str> {
    let has = |name: &str, is_match: fn(&Value) -> bool| steps(timeline, name).into_iter().any(is_match);
    let any = |_: &Value| true;
    let mut kinds = vec![match timeline["run"]["status"].as_str() {
        Some("ok") => "done",
        Some("error") => "failed",
        Some("aborted") => "stopped",
        _ => "without an end",
    }];
    let seen = [
        ("joined others", !timeline["run"]["host"].is_null()),
        ("over a kill", has("down", any)),
        ("asked a model", has("model", any)),
        ("had a model fail", has("model", |step| !step["error"].is_null())),
        ("waited to ask again", has("retry", any)),
        ("switched models", has("switched", any)),
        ("used tools", has("tool", any)),
        ("had tools fail", has("tool", |step| step["isError"] == true)),
        ("waited in line", has("queued", any)),
        ("made conversations short", has("compaction", |step| !step["tokens"].is_null())),
    ];
    kinds.extend(seen.into_iter().filter(|(_, happened)| *happened).map(|(kind, _)| kind));
    kinds
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn all_steps(timeline: &Value) -> impl Iterator<Item = &Value> {
    timeline["steps"].as_array().unwrap().iter()
}

fn steps<'a>(timeline: &'a Value, name: &str) -> Vec<&'a Value> {
    all_steps(timeline).filter(|step| step["step"] == name).collect()
}

/// Checks that steps are contiguous from the acceptance to the end, and each has a name.
fn check_contiguous(timeline: &Value) -> Option<String> {
    let mut position = 0;
    for step in all_steps(timeline) {
        if step["step"].as_str().is_none_or(str::is_empty) {
            return Some(format!("a step without a name: {step}"));
        }
        if step["aside"] == false {
            if number(&step["atMs"]) != position {
                return Some(format!("{position} ms are told, and then comes {step}"));
            }
            position += number(&step["ms"]);
        }
    }
    let run = &timeline["run"];
    let all = number(&run["endedAt"]) - number(&run["acceptedAt"]);
    let reported = [&timeline["totalMs"], &timeline["accountedMs"], &run["durationMs"]].map(number);
    (reported != [all; 3] || position != all)
        .then(|| format!("{position} ms of {all} have a name, and it says {reported:?}"))
}

/// Checks that it was not accepted before it was sent, and did not end after its end was received.
fn check_bounds(soak: &SoakClients, run: &str, timeline: &Value) -> Option<String> {
    let sent = &soak.sent[run];
    let (accepted, ended) = (number(&timeline["run"]["acceptedAt"]), number(&timeline["run"]["endedAt"]));
    let (_, received_at) = sent.end.as_ref().unwrap();
    (accepted < sent.at || ended > *received_at)
        .then(|| format!("sent at {}, its end was heard at {received_at}", sent.at))
}

/// Checks that no work is reported for times without a process.
fn check_downtimes(soak: &SoakClients, timeline: &Value) -> Option<String> {
    let accepted = number(&timeline["run"]["acceptedAt"]);
    let is_work =
        |step: &&Value| step["aside"] == false && !["down", "queued", "more"].iter().any(|idle| step["step"] == *idle);
    let overlap = |step: &&Value| {
        let from = accepted + number(&step["atMs"]);
        let to = from + number(&step["ms"]);
        soak.downtimes.iter().any(|(killed_at, restarted_at)| from.max(*killed_at) < to.min(*restarted_at))
    };
    let step = all_steps(timeline).filter(is_work).find(overlap)?;
    Some(format!("nobody was there during {step}"))
}

/// Checks that the end equals the response of `agent.wait`.
fn check_end(soak: &SoakClients, run: &str, timeline: &Value) -> Option<String> {
    let (end, _) = soak.sent[run].end.as_ref().unwrap();
    let status = if timeline["run"]["status"] == "ok" { "ok" } else { "error" };
    let is_same = end["status"] == status
        && end["endedAt"] == timeline["run"]["endedAt"]
        && end["error"] == timeline["run"]["error"];
    (!is_same).then(|| format!("whoever waited was told {end}"))
}

/// Returns the events of the process in which it ended; `None` if they came before the subscription.
fn last_tape<'a>(soak: &'a SoakClients, run: &str) -> Option<&'a Tape> {
    let tapes = (0..=soak.process_index).rev().filter_map(|index| soak.tapes.get(&(run.to_owned(), index)));
    tapes.into_iter().find(|tape| tape.is_over())
}

/// Checks that the timeline matches the events, to the end; from the beginning, if that was received.
fn check_events(soak: &SoakClients, run: &str, timeline: &Value) -> Vec<String> {
    let Some(tape) = last_tape(soak, run) else { return Vec::new() };
    let mut problems = Vec::new();
    let last = &tape.events.values().next_back().unwrap()["data"];
    let status = match (last["phase"].as_str(), last["aborted"] == true) {
        (Some("error"), _) => "error",
        (_, true) => "aborted",
        (_, false) => "ok",
    };
    if timeline["run"]["status"] != status
        || timeline["run"]["endedAt"] != last["endedAt"]
        || tape.last_at < number(&last["endedAt"])
    {
        problems.push(format!("its end was heard as {last}"));
    }
    // For an absorbed message the events are those of its host run.
    if !timeline["run"]["host"].is_null() {
        return problems;
    }
    let is_whole = tape.events.contains_key(&1);
    let received = |stream: &str, phase: &str, extract: fn(&Value) -> Value| -> Vec<Value> {
        let matching =
            tape.events.values().filter(|event| event["stream"] == stream && event["data"]["phase"] == phase);
        matching.map(|event| extract(&event["data"])).collect()
    };
    let reported = |name: &str, extract: fn(&Value) -> Value| -> Vec<Value> {
        steps(timeline, name).into_iter().map(extract).collect()
    };
    let kinds = [
        (
            "tools",
            received("tool", "result", |data| json!([data["name"], data["toolCallId"], data["isError"]])),
            reported("tool", |step| json!([step["name"], step["call"], step["isError"]])),
        ),
        (
            "retries",
            received("lifecycle", "retry", |data| data["error"].clone()),
            reported("retry", |step| step["why"].clone()),
        ),
        (
            "switches",
            received("lifecycle", "fallback_step", |data| json!([data["model"], data["reason"], data["error"]])),
            reported("switched", |step| json!([step["fromModel"], step["reason"], step["why"]])),
        ),
        (
            "compactions",
            received("compaction", "end", |data| json!(data["completed"] == true)),
            reported("compaction", |step| json!(!step["tokens"].is_null())),
        ),
    ];
    for (category, received, timeline) in
        kinds.into_iter().filter(|(category, ..)| tape.has_tools || *category != "tools")
    {
        if !(timeline == received || !is_whole && timeline.ends_with(&received)) {
            problems.push(format!("of {category}, {received:?} was heard, and it tells {timeline:?}"));
        }
    }
    problems
}

/// Checks the number of model requests against the model's own count, for runs without a kill.
fn check_requests(
    soak: &SoakClients,
    model: &SoakModel,
    run: &str,
    timeline: &Value,
    timelines: &BTreeMap<String, Value>,
) -> Option<String> {
    let is_absorbed = |timeline: &Value| !timeline["run"]["host"].is_null();
    let absorbed = timelines
        .iter()
        .filter(|(_, timeline)| timeline["run"]["host"] == run)
        .map(|(absorbed_run, _)| absorbed_run.as_str());
    let request_count: usize = absorbed.chain([run]).map(|run| model.request_count(run)).sum();
    let reported = steps(timeline, "model").len();
    let (accepted, ended) = (number(&timeline["run"]["acceptedAt"]), number(&timeline["run"]["endedAt"]));
    let was_killed = soak.downtimes.iter().any(|(_, restarted_at)| accepted <= *restarted_at && *restarted_at <= ended);
    // An aborted run may have been aborted before its request was sent.
    let is_right = match (was_killed, timeline["run"]["status"].as_str()) {
        _ if is_absorbed(timeline) => true,
        (true, _) => request_count + 1 >= reported,
        (false, Some("aborted")) => reported == request_count || reported == request_count + 1,
        (false, _) => reported == request_count,
    };
    (!is_right).then(|| format!("the model was asked {request_count} times, and it tells {reported}"))
}

/// Checks that the usage of the requests adds up to that of the run, unless there was a compaction.
fn check_usage(timeline: &Value) -> Option<String> {
    if !steps(timeline, "compaction").is_empty()
        || !steps(timeline, "more").is_empty()
        || !timeline["run"]["host"].is_null()
    {
        return None;
    }
    let step_tokens: u64 =
        steps(timeline, "model").into_iter().map(|step| number(&step["input"]) + number(&step["output"])).sum();
    let usage = &timeline["run"]["usage"];
    let run_tokens = number(&usage["input"]) + number(&usage["output"]);
    (step_tokens != run_tokens).then(|| format!("its questions took {step_tokens} tokens, and it took {run_tokens}"))
}
