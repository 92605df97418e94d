//! Tests of internal hooks from directories to listeners.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use async_trait::async_trait;
use homard_hooks::{HookError, Hooks, InternalEvent, ListenerResult};
use serde_json::json;

use super::*;
use crate::settings::GuardPolicy;

/// As in the recorded probe.
const PROBE: &str = "---\nname: probe-hook\ndescription: \"Logs internal hook events\"\nmetadata: { \"openclaw\": { \"emoji\": \"🧪\", \"events\": [\"command\", \"session\", \"agent\", \"gateway\", \"message\"], \"always\": true } }\n---\n\n# Probe hook\n";

/// A script runner that returns the module's name.
struct Node;

#[async_trait]
impl ScriptRunner for Node {
    async fn load(&self, scripts: &[Script], _: Duration) -> Result<Vec<Result<LoadedScript, String>>, HookError> {
        let loaded = |script: &Script| {
            let name = script.path.file_name().unwrap_or_default().display().to_string();
            Ok(LoadedScript { start: 1, name: format!("{name}#{}", script.export), reference: json!(1) })
        };
        Ok(scripts.iter().map(loaded).collect())
    }

    async fn emit(
        &self,
        script: &LoadedScript,
        _: &InternalEvent,
        _: Duration,
    ) -> Result<Option<ListenerResult>, HookError> {
        Ok(Some(ListenerResult { messages: vec![script.name.clone()], bootstrap_files: None }))
    }
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A probe in the state directory, another in the workspace, and one with a missing requirement.
fn house(top: &Path) -> Settings {
    write(&top.join("state/hooks/probe/HOOK.md"), PROBE);
    write(&top.join("state/hooks/probe/handler.js"), "");
    write(&top.join("workspace/hooks/own/HOOK.md"), &PROBE.replace("probe-hook", "own"));
    write(&top.join("workspace/hooks/own/handler"), "");
    let lacking =
        "---\nmetadata: {openclaw: {events: [command], requires: {anyBins: [tide, moon], env: [SEA]}}}\n---\n";
    write(&top.join("state/hooks/sea/HOOK.md"), lacking);
    write(&top.join("state/hooks/sea/handler.sh"), "");
    Settings {
        roots: HookRoots {
            extra: Vec::new(),
            managed: top.join("state/hooks"),
            workspace: top.join("workspace/hooks"),
        },
        rules: HookRules { enabled: Some(true), ..HookRules::default() },
        state: top.join("state"),
        workspace: top.join("workspace"),
        ..Settings::default()
    }
}

fn names(listeners: &[Arc<dyn Listener>]) -> Vec<&str> {
    listeners.iter().map(|listener| listener.name()).collect()
}

#[tokio::test]
async fn those_who_are_on_and_lack_nothing_listen() {
    let top = tempfile::tempdir().unwrap();
    let mut settings = house(top.path());
    let node: Arc<dyn ScriptRunner> = Arc::new(Node);
    let bundled = ["boot-md", "bootstrap-extra-files", "command-logger"];
    let (heard, problems) = listeners(&settings, Some(&node), &BundledServices::default());
    assert_eq!(names(&heard), [&bundled[..], &["probe-hook", "session-memory"]].concat());
    let told: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(told, ["is an enabled hook that cannot run: it needs tide or moon, SEA"]);

    let signal = InternalEvent {
        kind: "command".to_owned(),
        action: "stop".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: json!({"senderId": "me"}).as_object().unwrap().clone(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let after = Hooks::new(Vec::new(), heard).emit(signal).await;
    assert_eq!(after.messages, ["handler.js#default"]);
    let log = fs::read_to_string(top.path().join("state/logs/commands.log")).unwrap();
    assert!(log.contains(r#""action":"stop","sessionKey":"agent:main:main","senderId":"me""#), "{log}");

    let on = HookEntry { enabled: Some(true), ..HookEntry::default() };
    let off = HookEntry { enabled: Some(false), ..HookEntry::default() };
    settings.rules.entries = [("own", on), ("boot-md", off)].map(|(key, entry)| (key.to_owned(), entry)).into();
    let (heard, problems) = listeners(&settings, None, &BundledServices::default());
    assert_eq!(names(&heard), ["bootstrap-extra-files", "command-logger", "own", "session-memory"]);
    let told: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let node = "is an enabled hook whose script cannot run; it needs Node 22 or newer";
    assert_eq!(told, [node, "is an enabled hook that cannot run: it needs tide or moon, SEA"]);
}

#[test]
fn nobody_listens_until_somebody_says_so() {
    let top = tempfile::tempdir().unwrap();
    let settings = Settings { rules: HookRules::default(), ..house(top.path()) };
    let (heard, problems) = listeners(&settings, None, &BundledServices::default());
    assert_eq!((names(&heard), problems), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_hook_that_is_a_guard_and_cannot_take_part_refuses_what_it_guards() {
    let top = tempfile::tempdir().unwrap();
    let mut settings = house(top.path());
    let guard = |enabled| HookEntry { enabled: Some(enabled), guard: GuardPolicy::All(true), ..HookEntry::default() };
    let entries = [("probe-hook", guard(true)), ("gone", guard(true)), ("off", guard(false)), ("sea", guard(true))];
    settings.rules.entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
    let node: Arc<dyn ScriptRunner> = Arc::new(Node);
    let (heard, _) = listeners(&settings, Some(&node), &BundledServices::default());
    let guards: Vec<&str> = heard.iter().filter(|one| one.is_guard("agent:bootstrap")).map(|one| one.name()).collect();
    assert_eq!(guards, ["probe-hook", "gone", "sea"]);
    let signal = InternalEvent {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: serde_json::Map::new(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let refused = Hooks::new(Vec::new(), heard).emit_guarded(signal).await.unwrap_err();
    assert!(refused.starts_with("the guard gone failed: the hook gone is declared a guard"), "{refused}");
    assert!(refused.ends_with("homard hooks disable gone"), "{refused}");

    settings.rules.entries = [("session-memory".to_owned(), guard(true))].into();
    let (_, problems) = listeners(&settings, Some(&node), &BundledServices::default());
    let told = "hooks.internal.entries.session-memory.guard has no effect: the hook does not listen to agent:bootstrap";
    assert!(problems.iter().any(|problem| problem.message == told), "{problems:?}");
}
