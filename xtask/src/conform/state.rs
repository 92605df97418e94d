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
    client::{ClientHome, OpenClawClient},
    messages::{RoleAndText, SessionMessages, role_and_text},
    model::{RuleAnswer, RuleModel},
};
use crate::{
    gateway::{self, RunningGateway, TOKEN},
    shell,
};

/// First messages to Homard: a turn with a tool and one without.
const BEFORE: [&str; 2] = ["What files are here?", "help"];

/// Message to OpenClaw.
const OPENCLAW_MESSAGE: &str = "OpenClaw goes on from here";

/// Answer of OpenClaw's model.
const REPLY: &str = "the model behind OpenClaw has heard all of it";

/// Last message to Homard.
const AFTER: &str = "What files are here?";

/// Time limit for a gateway to write its files after `SIGTERM`.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(15);

/// Polling interval of the files.
const POLL: Duration = Duration::from_millis(50);

/// R16, R17: checks that the client continues a session of Homard's, and Homard one of the client's.
pub(super) fn check(client: &OpenClawClient, binary: &Path, config: &Value) -> Result<()> {
    let log = client.logs.join("state-gateway.log");
    let home = Rc::new(gateway::GatewayHome::new(binary, config, &log)?);
    let agents = home.state().join("agents");
    let before = start_session(binary, &home).context("first turns with Homard")?;
    fs::rename(&log, client.logs.join("state-gateway-before.log"))?;

    let theirs = ClientHome::without_gateway()?;
    let continued = continue_with_openclaw(client, &theirs, &agents, &before).context("turn with OpenClaw")?;

    fs::remove_dir_all(&agents)?;
    copy(&theirs.state().join("agents"), &agents)?;
    let gateway = RunningGateway::start_at(home)?;
    finish(binary, &gateway, &continued, &client.logs).context("last turn with Homard")
}

/// Makes two turns with a gateway and stops it; returns the transcript.
fn start_session(binary: &Path, home: &Rc<gateway::GatewayHome>) -> Result<TranscriptFile> {
    let gateway = RunningGateway::start_at(Rc::clone(home))?;
    let mut last_reply = String::new();
    for message in BEFORE {
        last_reply = send_message(binary, &gateway, message)?;
    }
    shell::run(Command::new("kill").arg(gateway.pid().to_string()))?;
    let stopped_at = Instant::now();
    loop {
        let transcript = final_transcript(&home.state().join("agents"), &last_reply);
        if transcript.is_ok() || stopped_at.elapsed() > FLUSH_TIMEOUT {
            let transcript = transcript?;
            let used_a_tool = transcript.messages().iter().any(|(role, _)| role == "toolResult");
            ensure!(used_a_tool, "the demo model should have used a tool: {:?}", transcript.messages());
            return Ok(transcript);
        }
        thread::sleep(POLL);
    }
}

/// Reads the transcript. Fails if it does not end with this reply, or `sessions.json` does not list it.
fn final_transcript(agents: &Path, last_reply: &str) -> Result<TranscriptFile> {
    let transcript = TranscriptFile::only_one(agents)?;
    let messages = transcript.messages();
    let end = messages.last().context("the transcript is empty")?;
    ensure!(end.1 == last_reply, "the transcript should end with {last_reply:?}, but ends with {end:?}");
    let index = fs::read_to_string(agents.join("main/sessions/sessions.json")).context("cannot read sessions.json")?;
    let id = SessionMessages::read(&transcript.text).session;
    ensure!(index.contains(&id), "sessions.json should contain the session {id}");
    Ok(transcript)
}

/// Makes one turn with OpenClaw on a copy of these agents; returns the transcript.
fn continue_with_openclaw(
    client: &OpenClawClient,
    home: &ClientHome,
    agents: &Path,
    before: &TranscriptFile,
) -> Result<TranscriptFile> {
    let model = RuleModel::start(|_| RuleAnswer::Text(REPLY.to_owned()))?;
    copy(agents, &home.state().join("agents"))?;
    fs::write(home.state().join("openclaw.json"), model.config().to_string())?;
    let args = ["agent", "--local", "--agent", "main", "--message", OPENCLAW_MESSAGE];
    let output = client.call("state-agent-local", home, &args)?.succeeded()?;
    fs::write(client.logs.join("state-requests.log"), format!("{:#}\n", Value::from(model.requests())))?;
    ensure!(output.stdout.contains(REPLY), "stdout should contain the reply {REPLY:?}");

    let continued = TranscriptFile::only_one(&home.state().join("agents"))?;
    let added = continued.added_to(before)?;
    let turn =
        [("user", OPENCLAW_MESSAGE), ("assistant", REPLY)].map(|(role, text)| (role.to_owned(), text.to_owned()));
    ensure!(
        SessionMessages::read(added).messages == turn,
        "the entries {turn:?} should have been appended to the transcript, but these were: {added}"
    );
    ensure!(
        received_messages(&model)? == expected_messages(&before.messages()),
        "the model should have received the whole history, see the log"
    );
    Ok(continued)
}

/// Returns the messages that the model received, without the system prompt.
fn received_messages(model: &RuleModel) -> Result<Vec<RoleAndText>> {
    let requests = model.requests();
    let [request] = requests.as_slice() else {
        bail!("the model should have received one request, but received {}", requests.len())
    };
    let messages = request["messages"].as_array().context("the request has no messages")?;
    Ok(messages.iter().map(role_and_text).filter(|(role, _)| role != "system").collect())
}

/// Returns the messages that the model must receive: Homard's history with the wire format's role names, and the new
/// message.
fn expected_messages(before: &[RoleAndText]) -> Vec<RoleAndText> {
    let wire = |role: &str| if role == "toolResult" { "tool" } else { role }.to_owned();
    let earlier = before.iter().map(|(role, text)| (wire(role), text.clone()));
    earlier.chain([("user".to_owned(), OPENCLAW_MESSAGE.to_owned())]).collect()
}

/// Makes one more turn with Homard, and checks its history of all turns.
fn finish(binary: &Path, gateway: &RunningGateway, continued: &TranscriptFile, logs: &Path) -> Result<()> {
    let reply = send_message(binary, gateway, AFTER)?;
    let history = call(binary, gateway, &["chat.history", "--params", r#"{"sessionKey":"agent:main:main"}"#])?;
    fs::write(logs.join("state-history.log"), format!("{history:#}\n"))?;
    let history: Vec<RoleAndText> = history["messages"].as_array().into_iter().flatten().map(role_and_text).collect();
    let earlier = continued.messages();
    let (first, last) = history.split_at_checked(earlier.len()).context("earlier turns are missing in the history")?;
    ensure!(first == earlier, "the history should begin with {earlier:?}, but is {history:?}");
    let turn = (last.first(), last.last());
    let (user_message, reply_message) = (("user".to_owned(), AFTER.to_owned()), ("assistant".to_owned(), reply));
    ensure!(
        turn == (Some(&user_message), Some(&reply_message)),
        "the history should end with the new turn, but ends with {last:?}"
    );
    TranscriptFile::only_one(&gateway.state().join("agents"))?.added_to(continued)?;
    Ok(())
}

/// Makes a turn in the main session; returns the reply.
fn send_message(binary: &Path, gateway: &RunningGateway, message: &str) -> Result<String> {
    // A port is used once, so the key is unique for every gateway.
    let key = format!("state-{}-{message}", gateway.port());
    let params = json!({"message": message, "agentId": "main", "idempotencyKey": key}).to_string();
    let answer = call(binary, gateway, &["agent", "--expect-final", "--timeout", "60000", "--params", &params])?;
    let reply = answer["result"]["payloads"][0]["text"].as_str();
    Ok(reply.with_context(|| format!("there should be a reply to {message:?}: {answer}"))?.to_owned())
}

/// Calls a method of the gateway with Homard's own client.
fn call(binary: &Path, gateway: &RunningGateway, method: &[&str]) -> Result<Value> {
    let url = format!("ws://127.0.0.1:{}", gateway.port());
    let mut command = Command::new(binary);
    command.args(["gateway", "call", "--url", &url, "--token", TOKEN]).args(method);
    command.env_clear().env("HOME", gateway.state()).env("HOMARD_STATE_DIR", gateway.state());
    serde_json::from_slice(&shell::output(&mut command)?).context("the gateway's response is not JSON")
}

/// Copies a folder to a path that does not exist yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    shell::run(Command::new("cp").arg("-R").args([from, to]))
}

/// A transcript on disk.
#[derive(Debug)]
struct TranscriptFile {
    path: PathBuf,
    text: String,
}

impl TranscriptFile {
    /// Returns the only transcript of the main agent: a second one would mean that the session was not continued.
    fn only_one(agents: &Path) -> Result<Self> {
        let folder = agents.join("main").join("sessions");
        let files = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let mut paths = paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        let path = paths.next().context("no transcript was found")?;
        ensure!(paths.next().is_none(), "expected one transcript, but there are several");
        Ok(Self { text: fs::read_to_string(&path)?, path })
    }

    fn messages(&self) -> Vec<RoleAndText> {
        SessionMessages::read(&self.text).messages
    }

    /// Returns what follows the entries of an earlier copy, which must be unchanged.
    fn added_to(&self, earlier: &Self) -> Result<&str> {
        let (name, before) = (self.path.file_name(), earlier.path.file_name());
        ensure!(name == before, "the transcript should be {before:?}, but is {name:?}");
        self.text.strip_prefix(&earlier.text).context("existing entries of the transcript were changed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_entry_is_an_error_and_a_new_one_is_returned() {
        let transcript = |text: &str| TranscriptFile { path: PathBuf::from("a.jsonl"), text: text.to_owned() };
        let before = transcript("one\n");
        assert_eq!(transcript("one\ntwo\n").added_to(&before).unwrap(), "two\n");
        assert!(transcript("One\ntwo\n").added_to(&before).is_err());
    }
}
