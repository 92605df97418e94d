//! A misbehaving plugin affects only itself.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use futures_util::future::join_all;
use homard_hooks::{HookContext, HookError, HookEvent, HookPoint, Hooks, ToolCallStart};
use homard_plugins::ProcessState;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{PluginTestSetup, state};

const HANG_SCRIPT: &str = "while :; do sleep 1000; done";
const ANSWER_SCRIPT: &str = r#"printf '{"id":%s,"result":{"result":{"params":{"seen":true}}}}\n' "$id""#;

fn gateway_stop() -> HookEvent {
    HookEvent::GatewayStop { reason: "end".to_owned() }
}

fn call() -> HookEvent {
    let (tool_name, run_id, tool_call_id) = ("exec".to_owned(), "r".to_owned(), "c".to_owned());
    HookEvent::BeforeToolCall(ToolCallStart { tool_name, params: serde_json::Map::new(), run_id, tool_call_id })
}

// R68.
#[tokio::test]
async fn a_plugin_that_hangs_in_any_hook_times_out() {
    let mut setup = PluginTestSetup::new();
    for point in HookPoint::ALL {
        setup.shell(point.name(), &json!({"rights": {"hooks": [point.name()]}}), HANG_SCRIPT);
        setup.settings["entries"][point.name()]["hooks"] = json!({"timeoutMs": 2000});
    }
    let plugins = setup.open();
    let hooks = plugins.extensions().hooks;
    assert_eq!(hooks.len(), HookPoint::ALL.len());
    let start = Instant::now();
    let answers = join_all(hooks.iter().map(|hook| hook.call(gateway_stop(), HookContext::default()))).await;
    let late = HookError::Timeout(Duration::from_millis(2000));
    assert!(answers.iter().all(|answer| *answer == Err(late.clone())), "{answers:?}");
    assert!(start.elapsed() < Duration::from_millis(3500), "{:?}", start.elapsed());
    plugins.close().await;
}

// R68.
#[tokio::test]
async fn a_guard_that_hangs_or_exits_blocks_and_other_hooks_are_skipped() {
    for (script, is_guard) in [(HANG_SCRIPT, true), ("exit 1", true), (HANG_SCRIPT, false), ("exit 1", false)] {
        let mut setup = PluginTestSetup::new();
        let guard = if is_guard { json!(["before_tool_call"]) } else { json!([]) };
        setup.shell("bad", &json!({"guard": guard, "rights": {"hooks": ["before_tool_call"]}}), script);
        setup.shell("good", &json!({"rights": {"hooks": ["before_tool_call"]}}), ANSWER_SCRIPT);
        setup.settings["entries"]["bad"]["hooks"] = json!({"timeoutMs": 1000});
        let plugins = setup.open();
        let hooks = Hooks::new(plugins.extensions().hooks, Vec::new());
        let outcome = hooks.call(call(), &HookContext::default()).await;
        if is_guard {
            let reason = outcome.block_reason().unwrap();
            assert!(reason.starts_with("the guard bad failed: "), "{reason}");
        } else {
            assert_eq!(outcome.block_reason(), None);
            assert_eq!(outcome.answer.params.unwrap()["seen"], json!(true));
        }
        plugins.close().await;
    }
}

#[tokio::test]
async fn a_guard_with_an_invalid_result_blocks_and_other_hooks_are_skipped() {
    for answer in [r#"{}"#, r#"null"#, r#"{"block":true}"#, r#"{"result":"block"}"#, r#"{"result":["block"]}"#] {
        for is_guard in [true, false] {
            let mut setup = PluginTestSetup::new();
            let guard = if is_guard { json!(["before_tool_call"]) } else { json!([]) };
            let hook = format!(r#"printf '{{"id":%s,"result":{answer}}}\n' "$id""#);
            setup.shell("bad", &json!({"guard": guard, "rights": {"hooks": ["before_tool_call"]}}), &hook);
            let plugins = setup.open();
            let outcome =
                Hooks::new(plugins.extensions().hooks, Vec::new()).call(call(), &HookContext::default()).await;
            let expected = "the guard bad failed: the hook must return {\"result\": null} or {\"result\": {…}}";
            assert_eq!(outcome.block_reason(), is_guard.then_some(expected), "{answer}");
            plugins.close().await;
        }
    }
}

/// Damages an installed guard in the given way.
fn damage_guard(setup: &PluginTestSetup, damage: &str) {
    let root = setup.path("state/extensions/tidy");
    let manifest = root.join("homard.plugin.json");
    match damage {
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
async fn a_guard_blocks_whatever_happens_to_its_directory_until_it_is_disabled() {
    for damage in ["changed", "renamed", "broken", "open to all", "deleted"] {
        let mut setup = PluginTestSetup::new();
        setup.shell("tidy", &json!({"guard": ["before_tool_call"]}), ANSWER_SCRIPT);
        setup.settings["installs"]["tidy"]["guard"] = json!(["before_tool_call"]);
        let plugins = setup.open();
        let hooks = plugins.extensions().hooks;
        assert_eq!(hooks.len(), 1, "it stands there itself");
        assert_eq!(Hooks::new(hooks, Vec::new()).call(call(), &HookContext::default()).await.block_reason(), None);
        plugins.close().await;
        damage_guard(&setup, damage);
        let plugins = setup.open();
        let hooks = Hooks::new(plugins.extensions().hooks, Vec::new());
        let expected = "the guard tidy failed: the plugin tidy is a guard of before_tool_call and is not active; find the \
             cause with: homard plugins doctor; reinstall the plugin, or disable it: homard plugins disable tidy";
        // The error is the same on every call.
        for _ in 0..10 {
            assert_eq!(hooks.call(call(), &HookContext::default()).await.block_reason(), Some(expected), "{damage}");
        }
        if damage != "changed" {
            let problem = "the plugin tidy is enabled in the config but was not found or cannot be used; operations at \
                 the hooks that it guards (before_tool_call) are blocked until the plugin is reinstalled or disabled";
            assert!(plugins.problems().iter().any(|other| other == problem), "{damage}: {:?}", plugins.problems());
        }
        plugins.close().await;
        setup.settings["entries"]["tidy"]["enabled"] = json!(false);
        let plugins = setup.open();
        assert!(plugins.extensions().hooks.is_empty(), "{damage}");
        plugins.close().await;
    }
}

#[tokio::test]
async fn a_repeatedly_failing_plugin_is_suspended_and_others_continue() {
    let mut setup = PluginTestSetup::new();
    setup.shell("bad", &json!({"rights": {"hooks": ["agent_end"]}}), "exit 1");
    setup.shell("good", &json!({"rights": {"hooks": ["agent_end"]}}), ANSWER_SCRIPT);
    let plugins = setup.open();
    let hooks = plugins.extensions().hooks;
    while !matches!(state(&plugins, "bad"), ProcessState::CircuitOpen { .. }) {
        hooks[0].call(gateway_stop(), HookContext::default()).await.unwrap_err();
        hooks[1].call(gateway_stop(), HookContext::default()).await.unwrap();
    }
    let error = hooks[0].call(gateway_stop(), HookContext::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("the plugin failed too often and is suspended for"), "{error}");
    plugins.close().await;
}

#[tokio::test]
async fn a_plugin_whose_program_is_missing_reports_it() {
    let mut setup = PluginTestSetup::new();
    setup.shell("bad", &json!({"run": ["no-such-program"], "rights": {"hooks": ["agent_end"]}}), "");
    let plugins = setup.open();
    let error =
        plugins.extensions().hooks[0].call(gateway_stop(), HookContext::default()).await.unwrap_err().to_string();
    assert!(
        error.starts_with(
            "failed to start the plugin process: the program no-such-program was not found on the PATH; install it"
        ),
        "{error}"
    );
    plugins.close().await;
}
