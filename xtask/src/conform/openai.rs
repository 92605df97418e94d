//! The official clients of OpenAI, in Python and in Node, against the gateway: whole and streamed answers with tools of
//! their own.
//!
//! What they send is on record in the gateway's tests, which answer it without them; here it is compared.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    install,
    model::{Model, Say},
    sdk,
};
use crate::{
    gateway::{self, Gateway},
    shell,
};

/// The Node client that is installed from npm.
const NODE_CLIENT: (&str, &str) = ("openai", "7.53.0");

/// What the model says in the end.
const WORDS: &str = "It is 18 degrees in Paris.";

/// Runs both clients; whether each was content.
pub(super) fn check(folder: &Path, binary: &Path, logs: &Path) -> Vec<bool> {
    let clients: [(&str, fn(&Path) -> Result<Command>); 2] = [("python", python), ("node", node)];
    let checked = clients.map(|(name, client)| {
        let result = client(folder).and_then(|client| converse(client, name, binary, logs));
        let told = match &result {
            Ok(count) => format!("pass ({count} requests)"),
            Err(why) => format!("FAIL: {why:#}"),
        };
        println!("{:>5}  {:<28} {name:<10} {told}", "http", "official OpenAI client");
        result.is_ok()
    });
    checked.to_vec()
}

/// The Python client, and what it is to do.
fn python(folder: &Path) -> Result<Command> {
    let mut python = Command::new(sdk::install(&folder.join("sdk"))?);
    python.arg(script("openai.py"));
    Ok(python)
}

/// The Node client, and what it is to do.
fn node(folder: &Path) -> Result<Command> {
    let home = folder.join("openai");
    let node_package = install::node_package()?;
    let wanted = json!({"private": true, "dependencies": {NODE_CLIENT.0: NODE_CLIENT.1, &node_package: "22"}});
    install::npm(&home, &wanted)?;
    // Beside the client, where Node finds it.
    let script = fs::read(script("openai.mjs"))?;
    fs::write(home.join("openai.mjs"), script)?;
    let mut node = Command::new(home.join("node_modules").join(node_package).join("bin").join("node"));
    node.arg(home.join("openai.mjs"));
    Ok(node)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conform").join(name)
}

/// Lets a client talk to a gateway of its own, and compares what it sent with what is on record; how much that was.
fn converse(mut client: Command, name: &str, binary: &Path, logs: &Path) -> Result<usize> {
    let model = Model::start(answer)?;
    let mut config = model.config();
    config["gateway"] = json!({"http": {"endpoints": {
        "chatCompletions": {"enabled": true}, "responses": {"enabled": true},
    }}});
    let gateway = Gateway::start(binary, &config, &logs.join(format!("gateway-openai-{name}.log")))?;
    client.args([&format!("http://127.0.0.1:{}/v1", gateway.port()), gateway::TOKEN]);
    let told = shell::output(&mut client)?;
    let sent: Value = serde_json::from_slice(&told).context("the client did not write JSON")?;
    let sent = steady(&format!("{sent:#}\n"));
    let record = shell::root().join("crates/gateway/tests/golden/openai").join(format!("{name}.json"));
    if env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&record, &sent).with_context(|| format!("cannot write {}", record.display()))?;
    }
    let known = fs::read_to_string(&record).with_context(|| format!("cannot read {}", record.display()))?;
    ensure!(
        sent == known,
        "the client sends something else than {} says; if that is right, run it with UPDATE_GOLDENS=1",
        record.display()
    );
    Ok(serde_json::from_str::<Vec<Value>>(&sent)?.len())
}

/// What was sent, with ids that are new every time made the same.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"resp_") {
        let (before, id) = rest.split_at(at + "\"resp_".len());
        steady.push_str(before);
        steady.push_str("before");
        rest = id.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
    }
    steady + rest
}

/// Calls the client's tool if there is one and it was not called yet; answers in JSON if that is asked for.
fn answer(asked: &Value) -> Say {
    let tools = asked["tools"].as_array().into_iter().flatten();
    let has_tool = tools.into_iter().any(|tool| tool["function"]["name"] == "get_weather");
    let last = asked["messages"].as_array().and_then(|messages| messages.last()).map(Value::to_string);
    let is_answered = last.unwrap_or_default().contains("[Result of");
    if has_tool && !is_answered {
        Say::Call("get_weather", r#"{"city":"Paris"}"#)
    } else if asked["messages"].to_string().contains("one JSON value") {
        Say::Words(r#"{"city":"Paris","celsius":18}"#)
    } else {
        Say::Words(WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_new_every_time_are_made_the_same() {
        assert_eq!(steady(r#"{"a": "resp_1f-2", "b": "resp_3"}"#), r#"{"a": "resp_before", "b": "resp_before"}"#);
    }
}
