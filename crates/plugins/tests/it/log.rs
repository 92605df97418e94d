//! Problems of plugins are logged once, not each time they are seen.

use std::sync::{Arc, Mutex};

use homard_hooks::{HookContext, HookEvent};
use serde_json::json;

use crate::support::PluginTestSetup;

/// Records the warnings of a thread.
#[derive(Clone, Default)]
struct CapturedWarnings(Arc<Mutex<Vec<String>>>);

impl CapturedWarnings {
    /// Returns the warnings since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl tracing::Subscriber for CapturedWarnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| match field.name() {
            "message" => line.insert_str(0, &format!("{value:?}")),
            name => line += &format!(" {name}={value:?}"),
        });
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn duplicate_names_are_reported_once_per_edition() {
    let warnings = CapturedWarnings::default();
    let _kept = tracing::subscriber::set_default(warnings.clone());
    let mut setup = PluginTestSetup::new();
    let command = json!({"rights": {"commands": ["go"]}});
    setup.shell("first", &command, "");
    setup.shell("second", &command, "");
    // That this one registers nothing is not known before it runs.
    setup.shell("third", &json!({"rights": {"tools": ["named"]}}), "");
    let plugins = setup.open();
    let expected_lines = [r#"two plugins register the same name; using the first name="go""#];
    for expected in [&expected_lines[..], &[], &[]] {
        assert_eq!(plugins.extensions().commands.len(), 1);
        assert_eq!(warnings.take(), expected);
    }
    plugins.discover_registrations().await;
    warnings.take();
    for expected in [&expected_lines[..], &[]] {
        assert_eq!(plugins.extensions().commands.len(), 1);
        assert_eq!(warnings.take(), expected);
    }
    plugins.close().await;
}

#[tokio::test]
async fn an_invalid_hook_result_is_reported_once() {
    let warnings = CapturedWarnings::default();
    let _kept = tracing::subscriber::set_default(warnings.clone());
    let mut setup = PluginTestSetup::new();
    let answers = r#"printf '{"id":%s,"result":{}}\n' "$id""#;
    setup.shell("mine", &json!({"rights": {"hooks": ["agent_end"]}}), answers);
    let plugins = setup.open();
    let hooks = plugins.extensions().hooks;
    for _ in 0..3 {
        let event = HookEvent::GatewayStop { reason: "end".to_owned() };
        assert!(hooks[0].call(event, HookContext::default()).await.unwrap().is_empty());
    }
    let expected_line = "hook result ignored: the hook must return {\"result\": null} or {\"result\": {…}} plugin=\"mine\" \
         point=\"agent_end\"";
    assert_eq!(warnings.take(), [expected_line]);
    plugins.close().await;
}
