//! Measures the cost of hook calls. Run by `cargo xtask bench hooks`:
//!
//! `bench_hooks [NODE]` calls no hook, one in Rust, one in Python, one in shell and one in Node at a point before the
//! prompt is built, with a short and with a long conversation.
//!
//! Each output line is a JSON object: the case, and the times of each variant in microseconds. The order of the
//! variants rotates with each round, and the warm-up rounds are not reported.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for one's own terminal")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use homard_hooks::{Hook, HookContext, HookError, HookEvent, HookPoint, HookResult, Hooks, Registration, RunStart};
use homard_plugins::{Host, NoHost, PluginSetup, Plugins};
use homard_proto::message::{Message, User};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Number of measured calls per variant.
const ROUNDS: usize = 300;
/// Number of warm-up calls.
const WARM_UP: usize = 20;
/// Number and length of the messages of each conversation. Large fields are passed by reference, and these plugins do
/// not fetch them.
const CONVERSATIONS: [(&str, usize, usize); 2] = [("short conversation", 10, 300), ("long conversation", 1_000, 1_000)];
/// The text that each variant returns.
const WORDS: &str = "High water is at noon.";

const PYTHON: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        words = {"result": {"prependContext": "High water is at noon."}} if message["method"] == "hook.invoke" else {}
        print(json.dumps({"id": message["id"], "result": words}), flush=True)
"#;

const SHELL: &str = r#"
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"method":"hook.invoke"'*) printf '{"id":%s,"result":{"result":{"prependContext":"High water is at noon."}}}\n' "$id" ;;
    *'"id":'*) printf '{"id":%s,"result":{}}\n' "$id" ;;
  esac
done
"#;

const NODE: &str = r#"
export default { register: (api) => api.on("before_agent_start", () => ({ prependContext: "High water is at noon." })) };
"#;

/// A hook in Rust.
struct Native;

#[async_trait]
impl Hook for Native {
    fn name(&self) -> &str {
        "native"
    }

    fn registrations(&self) -> Vec<Registration> {
        vec![Registration::at(HookPoint::BeforeAgentStart)]
    }

    async fn call(&self, _: HookEvent, _: HookContext) -> Result<HookResult, HookError> {
        Ok(HookResult { prepend_context: Some(WORDS.to_owned()), ..HookResult::default() })
    }
}

#[tokio::main]
async fn main() {
    let node = std::env::args().nth(1).map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let plugins_host = open(folder.path(), node.as_deref());
    plugins_host.discover_registrations().await;
    let mut variants = vec![("nobody", Hooks::default()), ("Rust", Hooks::new(vec![Arc::new(Native)], Vec::new()))];
    let plugins = plugins_host.extensions().hooks.into_iter();
    variants.extend(plugins.map(|hook| (known(hook.name()), Hooks::new(vec![hook], Vec::new()))));
    for (label, messages, size) in CONVERSATIONS {
        compare(label, &variants, &conversation(messages, size)).await;
    }
    plugins_host.close().await;
}

/// Opens the plugins under test.
fn open(folder: &Path, node: Option<&Path>) -> Plugins {
    let write = |id: &str, file: &str, text: &str| {
        let folder = folder.join("extensions").join(id);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    };
    let install_command = |id: &str, program: &str, script: &str| {
        let manifest = json!({
            "id": id, "configSchema": {}, "run": [program, "plugin"], "rights": {"hooks": ["before_agent_start"]},
        });
        write(id, "homard.plugin.json", &manifest.to_string());
        write(id, "plugin", script);
    };
    install_command("python", "python3", PYTHON);
    install_command("shell", "sh", SHELL);
    let mut entries = json!({"python": {"enabled": true}, "shell": {"enabled": true}});
    if node.is_some() {
        write("node", "openclaw.plugin.json", &json!({"id": "node", "configSchema": {}}).to_string());
        write("node", "index.mjs", NODE);
        entries["node"] = json!({"enabled": true});
    }
    let settings = serde_json::from_value(json!({"entries": entries, "node": node})).unwrap();
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name == "PATH").collect();
    let host: Arc<dyn Host> = Arc::new(NoHost);
    Plugins::open(PluginSetup { settings, state: folder.to_owned(), env, ..PluginSetup::default() }, &host)
}

fn known(name: &str) -> &'static str {
    match name {
        "python" => "Python",
        "shell" => "shell",
        _ => "Node",
    }
}

fn conversation(messages: usize, size: usize) -> Vec<Arc<Message>> {
    let text = "All about the house by the sea. ".repeat(size / 32 + 1);
    (0..messages).map(|index| Arc::new(Message::User(User::text(&text[..size], index as u64)))).collect()
}

async fn compare(label: &str, variants: &[(&'static str, Hooks)], messages: &[Arc<Message>]) {
    let context = HookContext { session_key: Some("agent:main:main".to_owned()), ..HookContext::default() };
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    for round in 0..WARM_UP + ROUNDS {
        for index in (0..variants.len()).map(|index| (index + round) % variants.len()) {
            let (variant, hooks) = &variants[index];
            let event = HookEvent::BeforeAgentStart(RunStart { prompt: "hi".to_owned(), messages: messages.to_vec() });
            let start = Instant::now();
            let outcome = hooks.call(event, &context).await;
            let micros = start.elapsed().as_secs_f64() * 1e6;
            let expected = (*variant != "nobody").then_some(WORDS);
            assert_eq!(outcome.answer.prepend_context.as_deref(), expected, "{variant}: {outcome:?}");
            if round >= WARM_UP {
                samples[index].push(micros);
            }
        }
    }
    let samples: serde_json::Map<String, Value> =
        variants.iter().zip(samples).map(|((variant, _), samples)| ((*variant).to_owned(), json!(samples))).collect();
    println!("{}", json!({"what": label, "took": samples}));
}
