//! Round trip: a session started by Homard is continued by unmodified OpenClaw, and then by Homard again.
//!
//! OpenClaw gets only a copy of `agents/`, and runs without a gateway. Homard gets that copy back in place of its own,
//! and keeps its journal, which knows nothing of what OpenClaw did.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    client::{Client, Home},
    model::{Model, Say},
    talk::{Talk, Words, words},
};
use crate::{
    gateway::{self, Gateway, TOKEN},
    shell,
};

/// First messages to Homard: a turn with a tool and one without.
const BEFORE: [&str; 2] = ["What files are here?", "help"];

/// Message to OpenClaw.
const MEANWHILE: &str = "OpenClaw goes on from here";

/// Answer of OpenClaw's model.
const REPLY: &str = "the model behind OpenClaw has heard all of it";

/// Last message to Homard.
const AFTER: &str = "What files are here?";

/// Time limit for a stopping gateway to update its files.
const PATIENCE: Duration = Duration::from_secs(15);

/// Polling interval of the files.
const POLL: Duration = Duration::from_millis(50);

/// Checks that the client continues a session of Homard's, and Homard one of the client's.
pub(super) fn check(client: &Client, binary: &Path, config: &Value) -> Result<()> {
    let log = client.logs.join("state-gateway.log");
    let home = Rc::new(gateway::Home::new(binary, config, &log)?);
    let agents = home.state().join("agents");
    let begun = begin(binary, &home).context("Homard begins")?;
    fs::rename(&log, client.logs.join("state-gateway-before.log"))?;

    let theirs = Home::alone()?;
    let continued = go_on(client, &theirs, &agents, &begun).context("OpenClaw goes on")?;

    fs::remove_dir_all(&agents)?;
    copy(&theirs.state().join("agents"), &agents)?;
    let gateway = Gateway::start_at(home)?;
    finish(binary, &gateway, &continued, &client.logs).context("Homard goes on")
}

/// Makes two turns with a gateway and stops it; returns the transcript.
fn begin(binary: &Path, home: &Rc<gateway::Home>) -> Result<Transcript> {
    let gateway = Gateway::start_at(Rc::clone(home))?;
    let mut last_reply = String::new();
    for message in BEFORE {
        last_reply = say(binary, &gateway, message)?;
    }
    shell::run(Command::new("kill").arg(gateway.pid().to_string()))?;
    let told = Instant::now();
    loop {
        let left = left_behind(&home.state().join("agents"), &last_reply);
        if left.is_ok() || told.elapsed() > PATIENCE {
            let left = left?;
            let used_a_tool = left.said().iter().any(|(role, _)| role == "toolResult");
            ensure!(used_a_tool, "the demo model should have used a tool: {:?}", left.said());
            return Ok(left);
        }
        thread::sleep(POLL);
    }
}

/// Returns the transcript, once it ends with this reply and `sessions.json` lists it.
fn left_behind(agents: &Path, last_reply: &str) -> Result<Transcript> {
    let transcript = Transcript::only_one(agents)?;
    let said = transcript.said();
    let end = said.last().context("the transcript is empty")?;
    ensure!(end.1 == last_reply, "the transcript should end with {last_reply:?}, but ends with {end:?}");
    let index = fs::read_to_string(agents.join("main/sessions/sessions.json")).context("cannot read sessions.json")?;
    let id = Talk::read(&transcript.text).session;
    ensure!(index.contains(&id), "sessions.json should hold the session {id}");
    Ok(transcript)
}

/// Makes one turn with OpenClaw on a copy of these agents; returns the transcript.
fn go_on(client: &Client, home: &Home, agents: &Path, begun: &Transcript) -> Result<Transcript> {
    let model = Model::start(|_| Say::Words(REPLY.to_owned()))?;
    copy(agents, &home.state().join("agents"))?;
    fs::write(home.state().join("openclaw.json"), model.config().to_string())?;
    let args = ["agent", "--local", "--agent", "main", "--message", MEANWHILE];
    let said = client.call("state-agent-local", home, &args)?.succeeded()?;
    fs::write(client.logs.join("state-requests.log"), format!("{:#}\n", Value::from(model.asked())))?;
    ensure!(said.stdout.contains(REPLY), "stdout should hold the reply {REPLY:?}");

    let continued = Transcript::only_one(&home.state().join("agents"))?;
    let added = continued.added_to(begun)?;
    let turn = [("user", MEANWHILE), ("assistant", REPLY)].map(|(role, text)| (role.to_owned(), text.to_owned()));
    ensure!(Talk::read(added).said == turn, "the transcript should have got {turn:?}, but got {added}");
    ensure!(asked(&model)? == asked_for(&begun.said()), "the model should have been told all of it, see the log");
    Ok(continued)
}

/// Returns the messages that the model received, without the system prompt.
fn asked(model: &Model) -> Result<Vec<Words>> {
    let requests = model.asked();
    let [request] = requests.as_slice() else {
        bail!("the model should have been asked once, but was asked {} times", requests.len())
    };
    let messages = request["messages"].as_array().context("the request has no messages")?;
    Ok(messages.iter().map(words).filter(|(role, _)| role != "system").collect())
}

/// Returns the messages that the model must receive: Homard's history with the wire format's role names, and the new
/// message.
fn asked_for(begun: &[Words]) -> Vec<Words> {
    let wire = |role: &str| if role == "toolResult" { "tool" } else { role }.to_owned();
    let earlier = begun.iter().map(|(role, text)| (wire(role), text.clone()));
    earlier.chain([("user".to_owned(), MEANWHILE.to_owned())]).collect()
}

/// Makes one more turn with Homard, and checks its history of all turns.
fn finish(binary: &Path, gateway: &Gateway, continued: &Transcript, logs: &Path) -> Result<()> {
    let reply = say(binary, gateway, AFTER)?;
    let history = call(binary, gateway, &["chat.history", "--params", r#"{"sessionKey":"agent:main:main"}"#])?;
    fs::write(logs.join("state-history.log"), format!("{history:#}\n"))?;
    let history: Vec<Words> = history["messages"].as_array().into_iter().flatten().map(words).collect();
    let earlier = continued.said();
    let (first, last) = history.split_at_checked(earlier.len()).context("the history lacks earlier turns")?;
    ensure!(first == earlier, "the history should begin with {earlier:?}, but is {history:?}");
    let turn = (last.first(), last.last());
    let (asked, answered) = (("user".to_owned(), AFTER.to_owned()), ("assistant".to_owned(), reply));
    ensure!(turn == (Some(&asked), Some(&answered)), "the new turn should come last, but there is {last:?}");
    Transcript::only_one(&gateway.state().join("agents"))?.added_to(continued)?;
    Ok(())
}

/// Makes a turn in the main session; returns the reply.
fn say(binary: &Path, gateway: &Gateway, message: &str) -> Result<String> {
    // A port is used once, so the key is unique for every gateway.
    let key = format!("state-{}-{message}", gateway.port());
    let params = json!({"message": message, "agentId": "main", "idempotencyKey": key}).to_string();
    let answer = call(binary, gateway, &["agent", "--expect-final", "--timeout", "60000", "--params", &params])?;
    let reply = answer["result"]["payloads"][0]["text"].as_str();
    Ok(reply.with_context(|| format!("there should be a reply to {message:?}: {answer}"))?.to_owned())
}

/// Calls a method of the gateway with Homard's own client.
fn call(binary: &Path, gateway: &Gateway, method: &[&str]) -> Result<Value> {
    let url = format!("ws://127.0.0.1:{}", gateway.port());
    let mut command = Command::new(binary);
    command.args(["gateway", "call", "--url", &url, "--token", TOKEN]).args(method);
    command.env_clear().env("HOME", gateway.state()).env("HOMARD_STATE_DIR", gateway.state());
    serde_json::from_slice(&shell::output(&mut command)?).context("the gateway's answer is not JSON")
}

/// Copies a folder to a path that does not exist yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    shell::run(Command::new("cp").arg("-R").args([from, to]))
}

/// A transcript on disk.
#[derive(Debug)]
struct Transcript {
    path: PathBuf,
    text: String,
}

impl Transcript {
    /// Returns the only transcript of the main agent: a second one would mean that the session was not continued.
    fn only_one(agents: &Path) -> Result<Self> {
        let folder = agents.join("main").join("sessions");
        let files = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let mut paths = paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        let path = paths.next().context("there is no transcript")?;
        ensure!(paths.next().is_none(), "there should be one transcript, but there are more");
        Ok(Self { text: fs::read_to_string(&path)?, path })
    }

    fn said(&self) -> Vec<Words> {
        Talk::read(&self.text).said
    }

    /// Returns what follows the entries of an earlier copy, which must be unchanged.
    fn added_to(&self, earlier: &Self) -> Result<&str> {
        let (name, before) = (self.path.file_name(), earlier.path.file_name());
        ensure!(name == before, "the transcript should be {before:?}, but is {name:?}");
        self.text.strip_prefix(&earlier.text).context("lines that were in the transcript before were changed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_noticed_and_a_new_one_is_told() {
        let transcript = |text: &str| Transcript { path: PathBuf::from("a.jsonl"), text: text.to_owned() };
        let begun = transcript("one\n");
        assert_eq!(transcript("one\ntwo\n").added_to(&begun).unwrap(), "two\n");
        assert!(transcript("One\ntwo\n").added_to(&begun).is_err());
    }
}
