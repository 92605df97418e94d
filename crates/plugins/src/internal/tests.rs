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
            Ok(LoadedScript { start: 1, name: format!("{name}#{}", script.export), handle: json!(1) })
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
fn write_hooks(root: &Path) -> Settings {
    write(&root.join("state/hooks/probe/HOOK.md"), PROBE);
    write(&root.join("state/hooks/probe/handler.js"), "");
    write(&root.join("workspace/hooks/own/HOOK.md"), &PROBE.replace("probe-hook", "own"));
    write(&root.join("workspace/hooks/own/handler"), "");
    let lacking =
        "---\nmetadata: {openclaw: {events: [command], requires: {anyBins: [tide, moon], env: [SEA]}}}\n---\n";
    write(&root.join("state/hooks/sea/HOOK.md"), lacking);
    write(&root.join("state/hooks/sea/handler.sh"), "");
    Settings {
        roots: HookRoots {
            extra: Vec::new(),
            managed: root.join("state/hooks"),
            workspace: root.join("workspace/hooks"),
        },
        rules: HookRules { enabled: Some(true), ..HookRules::default() },
        state: root.join("state"),
        workspace: root.join("workspace"),
        ..Settings::default()
    }
}

fn names(listeners: &[Arc<dyn Listener>]) -> Vec<&str> {
    listeners.iter().map(|listener| listener.name()).collect()
}

#[tokio::test]
async fn enabled_hooks_with_met_requirements_are_active() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = write_hooks(root.path());
    let node: Arc<dyn ScriptRunner> = Arc::new(Node);
    let bundled = ["boot-md", "bootstrap-extra-files", "command-logger"];
    let (active, problems) = listeners(&settings, Some(&node), &BundledServices::default());
    assert_eq!(names(&active), [&bundled[..], &["probe-hook", "session-memory"]].concat());
    let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages, ["is an enabled hook that cannot run: it needs tide or moon, SEA"]);

    let event = InternalEvent {
        kind: "command".to_owned(),
        action: "stop".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: json!({"senderId": "me"}).as_object().unwrap().clone(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let after = Hooks::new(Vec::new(), active).emit(event).await;
    assert_eq!(after.messages, ["handler.js#default"]);
    let log = fs::read_to_string(root.path().join("state/logs/commands.log")).unwrap();
    assert!(log.contains(r#""action":"stop","sessionKey":"agent:main:main","senderId":"me""#), "{log}");

    let enabled_entry = HookEntry { enabled: Some(true), ..HookEntry::default() };
    let disabled_entry = HookEntry { enabled: Some(false), ..HookEntry::default() };
    settings.rules.entries =
        [("own", enabled_entry), ("boot-md", disabled_entry)].map(|(key, entry)| (key.to_owned(), entry)).into();
    let (active, problems) = listeners(&settings, None, &BundledServices::default());
    assert_eq!(names(&active), ["bootstrap-extra-files", "command-logger", "own", "session-memory"]);
    let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let node = "is an enabled hook whose script cannot run; it needs Node 22 or newer";
    assert_eq!(messages, [node, "is an enabled hook that cannot run: it needs tide or moon, SEA"]);
}

#[test]
fn no_hook_is_active_until_enabled() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { rules: HookRules::default(), ..write_hooks(root.path()) };
    let (active, problems) = listeners(&settings, None, &BundledServices::default());
    assert_eq!((names(&active), problems), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_guard_hook_that_cannot_run_blocks_its_event() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = write_hooks(root.path());
    let guard = |enabled| HookEntry { enabled: Some(enabled), guard: GuardPolicy::All(true), ..HookEntry::default() };
    let entries = [("probe-hook", guard(true)), ("gone", guard(true)), ("off", guard(false)), ("sea", guard(true))];
    settings.rules.entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
    let node: Arc<dyn ScriptRunner> = Arc::new(Node);
    let (active, _) = listeners(&settings, Some(&node), &BundledServices::default());
    let guards: Vec<&str> =
        active.iter().filter(|listener| listener.is_guard("agent:bootstrap")).map(|listener| listener.name()).collect();
    assert_eq!(guards, ["probe-hook", "gone", "sea"]);
    let event = InternalEvent {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: serde_json::Map::new(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let error = Hooks::new(Vec::new(), active).emit_guarded(event).await.unwrap_err();
    assert!(error.starts_with("the guard gone failed: the hook gone is declared a guard"), "{error}");
    assert!(error.ends_with("homard hooks disable gone"), "{error}");

    settings.rules.entries = [("session-memory".to_owned(), guard(true))].into();
    let (_, problems) = listeners(&settings, Some(&node), &BundledServices::default());
    let expected =
        "hooks.internal.entries.session-memory.guard has no effect: the hook does not listen to agent:bootstrap";
    assert!(problems.iter().any(|problem| problem.message == expected), "{problems:?}");
}
