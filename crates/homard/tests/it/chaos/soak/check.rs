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
    lives: BTreeMap<String, Value>,
    counts: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

impl Report {
    /// Requests the timeline of every run.
    pub(super) async fn of(soak: &SoakClients, model: &SoakModel, home: &Home, life: &mut GatewayUnderTest) -> Self {
        let mut report = Self { lives: BTreeMap::new(), counts: BTreeMap::new(), wrong: Vec::new() };
        for run in soak.sent.keys() {
            let id = life.ask("runs.trace", &json!({"id": run})).await;
            report.lives.insert(run.clone(), life.answer(&id).await["payload"].clone());
        }
        for (place, run) in soak.sent.keys().enumerate() {
            let told = &report.lives[run];
            let mut wrong = Vec::from_iter(all_has_a_name(told));
            wrong.extend(is_within(soak, run, told));
            wrong.extend(nobody_was_there(soak, told));
            wrong.extend(ended_as_told(soak, run, told));
            wrong.extend(as_heard(soak, run, told));
            wrong.extend(as_asked(soak, model, (run, told), &report.lives));
            wrong.extend(adds_up(told));
            if place.is_multiple_of(SAMPLE) {
                let said = run_command({
                    let mut command = home.command(&["trace", run, "--json"]);
                    command.env("HOMARD_GATEWAY_PORT", life.port.to_string());
                    command
                })
                .json();
                wrong.extend((said != *told).then(|| format!("`homard trace` tells {said}")));
            }
            report.wrong.extend(wrong.into_iter().map(|wrong| format!("{run}: {wrong}\n    in {told}")));
            for what in kinds(told).into_iter().chain(hearing(soak, run)) {
                *report.counts.entry(what).or_default() += 1;
            }
        }
        report
    }

    /// Checks that the state directory gives the same timelines without a gateway.
    pub(super) fn same_without_gateway(&self, home: &Home) {
        for (run, told) in self.lives.iter().step_by(SAMPLE) {
            assert_eq!(home.run(&["trace", run, "--json"]).json(), *told);
        }
    }

    pub(super) fn judge(&self, soak: &SoakClients, (runs, kills): (usize, usize)) {
        assert!(self.wrong.is_empty(), "{} things are wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
        let count = |what: &str| self.counts.get(what).copied().unwrap_or_default();
        assert!(self.lives.len() >= runs && soak.gone.len() == kills, "{self}");
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
        let time: u64 = self.lives.values().map(|told| number(&told["totalMs"])).sum();
        let named: u64 = self.lives.values().map(|told| number(&told["accountedMs"])).sum();
        write!(f, "{} runs: {named} of {time} ms have a name", self.lives.len())?;
        self.counts.iter().try_for_each(|(what, count)| write!(f, ", {count} {what}"))
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
fn hearing(soak: &SoakClients, run: &str) -> Vec<&'static str> {
    match last_tape(soak, run) {
        Some(tape) if tape.told.contains_key(&1) && tape.has_tools => {
            vec!["heard to the end", "heard from the beginning"]
        }
        Some(_) => vec!["heard to the end"],
        None => Vec::new(),
    }
}

/// Returns what happened in a run.
fn kinds(told: &Value) -> Vec<&'static str> {
    let has = |name: &str, is_meant: fn(&Value) -> bool| steps(told, name).into_iter().any(is_meant);
    let any = |_: &Value| true;
    let mut kinds = vec![match told["run"]["status"].as_str() {
        Some("ok") => "done",
        Some("error") => "failed",
        Some("aborted") => "stopped",
        _ => "without an end",
    }];
    let seen = [
        ("joined others", !told["run"]["host"].is_null()),
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
    kinds.extend(seen.into_iter().filter(|(_, is_so)| *is_so).map(|(what, _)| what));
    kinds
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn all_steps(told: &Value) -> impl Iterator<Item = &Value> {
    told["steps"].as_array().unwrap().iter()
}

fn steps<'a>(told: &'a Value, name: &str) -> Vec<&'a Value> {
    all_steps(told).filter(|step| step["step"] == name).collect()
}

/// Checks that steps are contiguous from the acceptance to the end, and each has a name.
fn all_has_a_name(told: &Value) -> Option<String> {
    let mut mark = 0;
    for step in all_steps(told) {
        if step["step"].as_str().is_none_or(str::is_empty) {
            return Some(format!("a step without a name: {step}"));
        }
        if step["aside"] == false {
            if number(&step["atMs"]) != mark {
                return Some(format!("{mark} ms are told, and then comes {step}"));
            }
            mark += number(&step["ms"]);
        }
    }
    let run = &told["run"];
    let all = number(&run["endedAt"]) - number(&run["acceptedAt"]);
    let said = [&told["totalMs"], &told["accountedMs"], &run["durationMs"]].map(number);
    (said != [all; 3] || mark != all).then(|| format!("{mark} ms of {all} have a name, and it says {said:?}"))
}

/// Checks that it was not accepted before it was sent, and did not end after its end was received.
fn is_within(soak: &SoakClients, run: &str, told: &Value) -> Option<String> {
    let sent = &soak.sent[run];
    let (accepted, ended) = (number(&told["run"]["acceptedAt"]), number(&told["run"]["endedAt"]));
    let (_, heard) = sent.end.as_ref().unwrap();
    (accepted < sent.at || ended > *heard).then(|| format!("sent at {}, its end was heard at {heard}", sent.at))
}

/// Checks that no work is reported for times without a process.
fn nobody_was_there(soak: &SoakClients, told: &Value) -> Option<String> {
    let accepted = number(&told["run"]["acceptedAt"]);
    let is_work =
        |step: &&Value| step["aside"] == false && !["down", "queued", "more"].iter().any(|idle| step["step"] == *idle);
    let overlap = |step: &&Value| {
        let from = accepted + number(&step["atMs"]);
        let to = from + number(&step["ms"]);
        soak.gone.iter().any(|(dead, back)| from.max(*dead) < to.min(*back))
    };
    let step = all_steps(told).filter(is_work).find(overlap)?;
    Some(format!("nobody was there during {step}"))
}

/// Checks that the end equals the response of `agent.wait`.
fn ended_as_told(soak: &SoakClients, run: &str, told: &Value) -> Option<String> {
    let (end, _) = soak.sent[run].end.as_ref().unwrap();
    let status = if told["run"]["status"] == "ok" { "ok" } else { "error" };
    let is_same =
        end["status"] == status && end["endedAt"] == told["run"]["endedAt"] && end["error"] == told["run"]["error"];
    (!is_same).then(|| format!("whoever waited was told {end}"))
}

/// Returns the events of the process in which it ended; `None` if they came before the subscription.
fn last_tape<'a>(soak: &'a SoakClients, run: &str) -> Option<&'a Tape> {
    let lives = (0..=soak.life).rev().filter_map(|life| soak.tapes.get(&(run.to_owned(), life)));
    lives.into_iter().find(|tape| tape.is_over())
}

/// Checks that the timeline matches the events, to the end; from the beginning, if that was received.
fn as_heard(soak: &SoakClients, run: &str, told: &Value) -> Vec<String> {
    let Some(tape) = last_tape(soak, run) else { return Vec::new() };
    let mut wrong = Vec::new();
    let last = &tape.told.values().next_back().unwrap()["data"];
    let status = match (last["phase"].as_str(), last["aborted"] == true) {
        (Some("error"), _) => "error",
        (_, true) => "aborted",
        (_, false) => "ok",
    };
    if told["run"]["status"] != status
        || told["run"]["endedAt"] != last["endedAt"]
        || tape.heard_at < number(&last["endedAt"])
    {
        wrong.push(format!("its end was heard as {last}"));
    }
    // For an absorbed message the events are those of its host run.
    if !told["run"]["host"].is_null() {
        return wrong;
    }
    let is_whole = tape.told.contains_key(&1);
    let heard = |stream: &str, phase: &str, tell: fn(&Value) -> Value| -> Vec<Value> {
        let meant = tape.told.values().filter(|told| told["stream"] == stream && told["data"]["phase"] == phase);
        meant.map(|told| tell(&told["data"])).collect()
    };
    let tells =
        |name: &str, tell: fn(&Value) -> Value| -> Vec<Value> { steps(told, name).into_iter().map(tell).collect() };
    let kinds = [
        (
            "tools",
            heard("tool", "result", |data| json!([data["name"], data["toolCallId"], data["isError"]])),
            tells("tool", |step| json!([step["name"], step["call"], step["isError"]])),
        ),
        (
            "retries",
            heard("lifecycle", "retry", |data| data["error"].clone()),
            tells("retry", |step| step["why"].clone()),
        ),
        (
            "switches",
            heard("lifecycle", "fallback_step", |data| json!([data["model"], data["reason"], data["error"]])),
            tells("switched", |step| json!([step["fromModel"], step["reason"], step["why"]])),
        ),
        (
            "compactions",
            heard("compaction", "end", |data| json!(data["completed"] == true)),
            tells("compaction", |step| json!(!step["tokens"].is_null())),
        ),
    ];
    for (what, heard, told) in kinds.into_iter().filter(|(what, ..)| tape.has_tools || *what != "tools") {
        if !(told == heard || !is_whole && told.ends_with(&heard)) {
            wrong.push(format!("of {what}, {heard:?} was heard, and it tells {told:?}"));
        }
    }
    wrong
}

/// Checks the number of model requests against the model's own count, for runs without a kill.
fn as_asked(
    soak: &SoakClients,
    model: &SoakModel,
    (run, told): (&str, &Value),
    lives: &BTreeMap<String, Value>,
) -> Option<String> {
    let is_guest = |told: &Value| !told["run"]["host"].is_null();
    let guests = lives.iter().filter(|(_, told)| told["run"]["host"] == run).map(|(guest, _)| guest.as_str());
    let asked: usize = guests.chain([run]).map(|run| model.asked(run)).sum();
    let tells = steps(told, "model").len();
    let (accepted, ended) = (number(&told["run"]["acceptedAt"]), number(&told["run"]["endedAt"]));
    let was_killed = soak.gone.iter().any(|(_, back)| accepted <= *back && *back <= ended);
    // An aborted run may have been aborted before its request was sent.
    let is_right = match (was_killed, told["run"]["status"].as_str()) {
        _ if is_guest(told) => true,
        (true, _) => asked + 1 >= tells,
        (false, Some("aborted")) => tells == asked || tells == asked + 1,
        (false, _) => tells == asked,
    };
    (!is_right).then(|| format!("the model was asked {asked} times, and it tells {tells}"))
}

/// Checks that the usage of the requests adds up to that of the run, unless there was a compaction.
fn adds_up(told: &Value) -> Option<String> {
    if !steps(told, "compaction").is_empty() || !steps(told, "more").is_empty() || !told["run"]["host"].is_null() {
        return None;
    }
    let took: u64 = steps(told, "model").into_iter().map(|step| number(&step["input"]) + number(&step["output"])).sum();
    let sum = &told["run"]["usage"];
    let whole = number(&sum["input"]) + number(&sum["output"]);
    (took != whole).then(|| format!("its questions took {took} tokens, and it took {whole}"))
}
