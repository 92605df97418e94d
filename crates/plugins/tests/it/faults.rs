//! A misbehaving plugin affects only itself.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use futures_util::future::join_all;
use homard_hooks::{HookContext, HookError, HookEvent, HookPoint, Hooks, ToolCallStart};
use homard_plugins::ProcessState;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{PluginTestSetup, state};

const HANGS: &str = "while :; do sleep 1000; done";
const ANSWERS: &str = r#"printf '{"id":%s,"result":{"result":{"params":{"seen":true}}}}\n' "$id""#;

fn told() -> HookEvent {
    HookEvent::GatewayStop { reason: "end".to_owned() }
}

fn call() -> HookEvent {
    let (tool_name, run_id, tool_call_id) = ("exec".to_owned(), "r".to_owned(), "c".to_owned());
    HookEvent::BeforeToolCall(ToolCallStart { tool_name, params: serde_json::Map::new(), run_id, tool_call_id })
}

#[tokio::test]
async fn one_that_hangs_in_any_hook_is_late_by_its_deadline() {
    let mut house = PluginTestSetup::new();
    for point in HookPoint::ALL {
        house.shell(point.name(), &json!({"rights": {"hooks": [point.name()]}}), HANGS);
        house.settings["entries"][point.name()]["hooks"] = json!({"timeoutMs": 2000});
    }
    let plugins = house.open();
    let hooks = plugins.extensions().hooks;
    assert_eq!(hooks.len(), HookPoint::ALL.len());
    let begun = Instant::now();
    let answers = join_all(hooks.iter().map(|hook| hook.call(told(), HookContext::default()))).await;
    let late = HookError::Timeout(Duration::from_millis(2000));
    assert!(answers.iter().all(|answer| *answer == Err(late.clone())), "{answers:?}");
    assert!(begun.elapsed() < Duration::from_millis(3500), "{:?}", begun.elapsed());
    plugins.close().await;
}

#[tokio::test]
async fn a_guard_that_hangs_or_ends_forbids_and_others_are_passed_over() {
    for (how, is_guard) in [(HANGS, true), ("exit 1", true), (HANGS, false), ("exit 1", false)] {
        let mut house = PluginTestSetup::new();
        let guard = if is_guard { json!(["before_tool_call"]) } else { json!([]) };
        house.shell("bad", &json!({"guard": guard, "rights": {"hooks": ["before_tool_call"]}}), how);
        house.shell("good", &json!({"rights": {"hooks": ["before_tool_call"]}}), ANSWERS);
        house.settings["entries"]["bad"]["hooks"] = json!({"timeoutMs": 1000});
        let plugins = house.open();
        let hooks = Hooks::new(plugins.extensions().hooks, Vec::new());
        let outcome = hooks.call(call(), &HookContext::default()).await;
        if is_guard {
            let why = outcome.block_reason().unwrap();
            assert!(why.starts_with("the guard bad failed: "), "{why}");
        } else {
            assert_eq!(outcome.block_reason(), None);
            assert_eq!(outcome.answer.params.unwrap()["seen"], json!(true));
        }
        plugins.close().await;
    }
}

#[tokio::test]
async fn a_guard_that_answers_in_another_shape_forbids_and_others_are_passed_over() {
    for answer in [r#"{}"#, r#"null"#, r#"{"block":true}"#, r#"{"result":"block"}"#, r#"{"result":["block"]}"#] {
        for is_guard in [true, false] {
            let mut house = PluginTestSetup::new();
            let guard = if is_guard { json!(["before_tool_call"]) } else { json!([]) };
            let hook = format!(r#"printf '{{"id":%s,"result":{answer}}}\n' "$id""#);
            house.shell("bad", &json!({"guard": guard, "rights": {"hooks": ["before_tool_call"]}}), &hook);
            let plugins = house.open();
            let outcome =
                Hooks::new(plugins.extensions().hooks, Vec::new()).call(call(), &HookContext::default()).await;
            let why = "the guard bad failed: the hook must return {\"result\": null} or {\"result\": {…}}";
            assert_eq!(outcome.block_reason(), is_guard.then_some(why), "{answer}");
            plugins.close().await;
        }
    }
}

/// Damages an installed guard in the given way.
fn spoil(house: &PluginTestSetup, how: &str) {
    let root = house.path("state/extensions/tidy");
    let manifest = root.join("homard.plugin.json");
    match how {
        "changed" => {
            let other = json!({"id": "tidy", "configSchema": {}, "run": ["sh", "plugin.sh"], "rights": {"hooks": ["agent_end"]}});
            fs::write(manifest, other.to_string()).unwrap();
        }
        "renamed" => {
            fs::write(manifest, r#"{"id": "other", "configSchema": {}, "run": ["sh", "plugin.sh"]}"#).unwrap();
        }
        "broken" => fs::write(manifest, "{").unwrap(),
        "open to all" => fs::set_permissions(manifest, fs::Permissions::from_mode(0o666)).unwrap(),
        "deleted" => fs::remove_dir_all(root).unwrap(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_guard_stands_whatever_becomes_of_its_folder_until_it_is_switched_off() {
    for how in ["changed", "renamed", "broken", "open to all", "deleted"] {
        let mut house = PluginTestSetup::new();
        house.shell("tidy", &json!({"guard": ["before_tool_call"]}), ANSWERS);
        house.settings["installs"]["tidy"]["guard"] = json!(["before_tool_call"]);
        let plugins = house.open();
        let hooks = plugins.extensions().hooks;
        assert_eq!(hooks.len(), 1, "it stands there itself");
        assert_eq!(Hooks::new(hooks, Vec::new()).call(call(), &HookContext::default()).await.block_reason(), None);
        plugins.close().await;
        spoil(&house, how);
        let plugins = house.open();
        let hooks = Hooks::new(plugins.extensions().hooks, Vec::new());
        let why = "the guard tidy failed: the plugin tidy is a guard of before_tool_call and is not active; find the \
             cause with: homard plugins doctor; reinstall the plugin, or disable it: homard plugins disable tidy";
        // The error is the same on every call.
        for _ in 0..10 {
            assert_eq!(hooks.call(call(), &HookContext::default()).await.block_reason(), Some(why), "{how}");
        }
        if how != "changed" {
            let problem = "the plugin tidy is enabled in the config but was not found or cannot be used; what it \
                 guards (before_tool_call) is blocked until the plugin is reinstalled or disabled";
            assert!(plugins.problems().iter().any(|told| told == problem), "{how}: {:?}", plugins.problems());
        }
        plugins.close().await;
        house.settings["entries"]["tidy"]["enabled"] = json!(false);
        let plugins = house.open();
        assert!(plugins.extensions().hooks.is_empty(), "{how}");
        plugins.close().await;
    }
}

#[tokio::test]
async fn one_that_fails_again_and_again_is_marked_and_others_go_on() {
    let mut house = PluginTestSetup::new();
    house.shell("bad", &json!({"rights": {"hooks": ["agent_end"]}}), "exit 1");
    house.shell("good", &json!({"rights": {"hooks": ["agent_end"]}}), ANSWERS);
    let plugins = house.open();
    let hooks = plugins.extensions().hooks;
    while !matches!(state(&plugins, "bad"), ProcessState::CircuitOpen { .. }) {
        hooks[0].call(told(), HookContext::default()).await.unwrap_err();
        hooks[1].call(told(), HookContext::default()).await.unwrap();
    }
    let refused = hooks[0].call(told(), HookContext::default()).await.unwrap_err();
    assert!(refused.to_string().starts_with("the plugin failed too often and is suspended for"), "{refused}");
    plugins.close().await;
}

#[tokio::test]
async fn one_whose_program_is_missing_says_so() {
    let mut house = PluginTestSetup::new();
    house.shell("bad", &json!({"run": ["no-such-program"], "rights": {"hooks": ["agent_end"]}}), "");
    let plugins = house.open();
    let why = plugins.extensions().hooks[0].call(told(), HookContext::default()).await.unwrap_err().to_string();
    assert!(
        why.starts_with(
            "failed to start the plugin process: the program no-such-program was not found on the PATH; install it"
        ),
        "{why}"
    );
    plugins.close().await;
}
