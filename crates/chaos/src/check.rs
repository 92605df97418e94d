//! Compares the final state on disk with what the clients received.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    script,
    state::{ClientHistory, ReceivedResult},
};

/// The final state on disk.
#[derive(Debug, Default)]
pub(super) struct DiskState {
    /// Transcripts, by name.
    pub transcripts: BTreeMap<String, String>,
    /// The file to which every run appends its line.
    pub(super) counter: String,
}

/// The result of all runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ChaosFindings {
    pub accepted: usize,
    pub finished: usize,
    /// Ended as `INTERRUPTED`, because the gateway died too often while they were active.
    pub interrupted: usize,
    /// Side effects with an unknown outcome: the gateway died while they were running.
    pub unknown: usize,
    /// Runs that were accepted and have no end, or whose message or effect is gone.
    pub lost: BTreeSet<String>,
    pub doubled_effects: BTreeSet<String>,
    pub doubled_inputs: BTreeSet<String>,
    /// All other violations.
    pub problems: Vec<String>,
}

/// Counts from the transcripts.
#[derive(Debug, Default)]
struct TranscriptCounts {
    inputs: BTreeMap<String, usize>,
    replies: BTreeMap<String, usize>,
    /// Runs whose command returned, and whether it succeeded.
    counted: BTreeMap<String, bool>,
    problems: Vec<String>,
}

/// Compares the clients' history with the disk.
pub(crate) fn check(history: &ClientHistory, disk: &DiskState) -> ChaosFindings {
    let mut totals = TranscriptCounts::default();
    for (name, text) in &disk.transcripts {
        read(history, name, text, &mut totals);
    }
    let mut effects: BTreeMap<&str, usize> = BTreeMap::new();
    disk.counter.lines().for_each(|id| *effects.entry(id).or_default() += 1);
    let repeated = |counts: &mut dyn Iterator<Item = (&str, usize)>| -> BTreeSet<String> {
        counts.filter(|(_, count)| *count > 1).map(|(id, _)| id.to_owned()).collect()
    };
    let mut found = ChaosFindings {
        accepted: history.runs.values().filter(|run| run.is_accepted).count(),
        unknown: totals.counted.values().filter(|is_ok| !**is_ok).count(),
        doubled_effects: repeated(&mut effects.iter().map(|(id, count)| (*id, *count))),
        doubled_inputs: repeated(&mut totals.inputs.iter().map(|(id, count)| (id.as_str(), *count))),
        ..ChaosFindings::default()
    };
    let ids_on_disk = effects.keys().copied().chain(totals.inputs.keys().map(String::as_str));
    for id in ids_on_disk.filter(|id| !history.runs.contains_key(*id)) {
        totals.problems.push(format!("run {id} is on disk, but no client sent it"));
    }
    for (id, is_ok) in &totals.counted {
        if *is_ok && !effects.contains_key(id.as_str()) {
            found.lost.insert(id.clone());
        }
    }
    for (id, run) in &history.runs {
        let inputs = totals.inputs.get(id).copied().unwrap_or_default();
        let reply_count = totals.replies.get(id).copied().unwrap_or_default();
        if run.ends > 1 {
            totals.problems.push(format!("the end of run {id} was reported {} times", run.ends));
        }
        match &run.result {
            None if run.is_accepted => {
                found.lost.insert(id.clone());
            }
            None => {}
            Some(ReceivedResult::Done(text)) => {
                found.finished += 1;
                if inputs == 0 {
                    found.lost.insert(id.clone());
                }
                if *text != script::final_reply(id) || reply_count != 1 {
                    let problem = format!("run {id} was answered with {text:?}, which is on disk {reply_count} times");
                    totals.problems.push(problem);
                }
            }
            Some(ReceivedResult::Failed(why)) if why.starts_with("INTERRUPTED") => {
                found.interrupted += 1;
                if reply_count > 0 {
                    totals.problems.push(format!("run {id} ended as interrupted, but its answer is on disk"));
                }
            }
            Some(ReceivedResult::Failed(why)) => totals.problems.push(format!("run {id} failed: {why}")),
        }
    }
    found.problems = totals.problems;
    found
}

/// Checks a transcript: every line is JSON and linked to the previous one, runs are in order, tool calls have results.
fn read(history: &ClientHistory, name: &str, text: &str, totals: &mut TranscriptCounts) {
    let (mut parent, mut last_index, mut calls) = (Value::Null, None, BTreeMap::new());
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let mut report =
            |description: &str| totals.problems.push(format!("{name}, line {}: {description}", number + 1));
        let line: Value = match serde_json::from_str(line) {
            Ok(value) if line.ends_with('\n') => value,
            Ok(_) | Err(_) => return report("not a complete line of JSON"),
        };
        if number == 0 {
            if line["type"] != "session" {
                report("not a header");
            }
            continue;
        }
        if line["parentId"] != parent {
            report("parentId does not name the previous entry");
        }
        parent = line["id"].clone();
        let message = &line["message"];
        let text_content = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("user") => {
                let Some(id) = script::id_in(&text_content) else { continue };
                let now = history.runs.get(id).map(|run| run.index);
                if now.is_some() && now < last_index {
                    report("a message follows a later one");
                }
                last_index = last_index.max(now);
                *totals.inputs.entry(id.to_owned()).or_default() += 1;
            }
            Some("assistant") => {
                if let Some(id) = text_content.strip_suffix(" is counted") {
                    *totals.replies.entry(id.to_owned()).or_default() += 1;
                }
                let blocks = message["content"].as_array().into_iter().flatten();
                for call in blocks.filter(|block| block["type"] == "toolCall") {
                    calls.insert(call["id"].as_str().unwrap_or_default().to_owned(), 0);
                }
            }
            Some("toolResult") => {
                let call = message["toolCallId"].as_str().unwrap_or_default();
                match calls.get_mut(call) {
                    Some(answers) => *answers += 1,
                    None => report("a tool result without a tool call"),
                }
                if let Some(id) = call.strip_prefix("count_") {
                    totals.counted.insert(id.to_owned(), message["isError"] != true);
                }
            }
            _ => {}
        }
    }
    let unpaired = calls.into_iter().filter(|(_, answers)| *answers != 1);
    totals.problems.extend(unpaired.map(|(call, answers)| format!("{name}: tool call {call} has {answers} results")));
}

fn text_of(content: &Value) -> String {
    let blocks = || content.as_array().into_iter().flatten();
    content.as_str().map_or_else(|| blocks().filter_map(|block| block["text"].as_str()).collect(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::ClientRun;

    fn transcript(messages: &[Value]) -> String {
        let mut text = format!("{}\n", json!({"type": "session"}));
        for (number, message) in messages.iter().enumerate() {
            let parent = number.checked_sub(1).map(|previous| previous.to_string());
            let line = json!({"id": number.to_string(), "parentId": parent, "message": message});
            text.push_str(&format!("{line}\n"));
        }
        text
    }

    /// Returns the entries of a successful run.
    fn lines(id: &str) -> Vec<Value> {
        let call = format!("count_{id}");
        vec![
            json!({"role": "user", "content": script::message(id)}),
            json!({"role": "assistant", "content": [{"type": "toolCall", "id": call}]}),
            json!({"role": "toolResult", "toolCallId": call, "isError": false}),
            json!({"role": "assistant", "content": [{"type": "text", "text": script::final_reply(id)}]}),
        ]
    }

    fn history() -> ClientHistory {
        let run = |index, id: &str| ClientRun {
            index,
            is_accepted: true,
            result: Some(ReceivedResult::Done(script::final_reply(id))),
            ..ClientRun::default()
        };
        ClientHistory {
            runs: ["0-0", "0-1"].iter().enumerate().map(|(at, id)| ((*id).to_owned(), run(at, id))).collect(),
            ..ClientHistory::default()
        }
    }

    fn found(history: &ClientHistory, messages: &[Value], counter: &str) -> ChaosFindings {
        let transcripts = BTreeMap::from([("s".to_owned(), transcript(messages))]);
        check(history, &DiskState { transcripts, counter: counter.to_owned() })
    }

    #[test]
    fn a_correct_history_has_no_findings() {
        let messages = [lines("0-0"), lines("0-1")].concat();
        let expected = ChaosFindings { accepted: 2, finished: 2, ..ChaosFindings::default() };
        assert_eq!(found(&history(), &messages, "0-0\n0-1\n"), expected);
    }

    #[test]
    fn lost_and_doubled_runs_are_found() {
        let set = |ids: &[&str]| -> BTreeSet<String> { ids.iter().map(|&id| id.to_owned()).collect() };
        let messages = [lines("0-0"), lines("0-1")].concat();
        let doubled = found(&history(), &messages, "0-0\n0-1\n0-1\n");
        assert_eq!(doubled.doubled_effects, set(&["0-1"]));
        let lost = found(&history(), &messages, "0-1\n");
        assert_eq!(lost.lost, set(&["0-0"]));
        let repeated = found(&history(), &[lines("0-0"), lines("0-1"), lines("0-1")].concat(), "0-0\n0-1\n");
        assert_eq!(repeated.doubled_inputs, set(&["0-1"]));
        let mut waiting = history();
        waiting.runs.get_mut("0-1").unwrap().result = None;
        assert_eq!(found(&waiting, &messages, "0-0\n0-1\n").lost, set(&["0-1"]));
        assert_eq!(found(&history(), &lines("0-0"), "0-0\n").lost, set(&["0-1"]));
    }

    #[test]
    fn order_parent_chain_json_and_tool_pairs_are_checked() {
        let problems = |messages: &[Value]| found(&history(), messages, "0-0\n0-1\n").problems;
        let swapped = problems(&[lines("0-1"), lines("0-0")].concat());
        assert_eq!(swapped, ["s, line 6: a message follows a later one"]);
        let mut unanswered = [lines("0-0"), lines("0-1")].concat();
        unanswered.remove(2);
        assert_eq!(problems(&unanswered), ["s: tool call count_0-0 has 0 results"]);
        let valid = transcript(&[lines("0-0"), lines("0-1")].concat());
        let problems_in = |text: String| {
            let transcripts = BTreeMap::from([("s".to_owned(), text)]);
            check(&history(), &DiskState { transcripts, counter: "0-0\n0-1\n".to_owned() }).problems
        };
        assert_eq!(
            problems_in(valid.replacen("\"parentId\":\"2\"", "\"parentId\":\"1\"", 1)),
            ["s, line 5: parentId does not name the previous entry"]
        );
        assert_eq!(problems_in(valid.trim_end().to_owned())[0], "s, line 9: not a complete line of JSON");
    }
}
