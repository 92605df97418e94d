//! Tests of call order and failure handling.

use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::*;
use crate::{BootstrapFile, DEADLINE, event::ToolCallStart};

type Respond = Box<dyn Fn(&HookEvent) -> Result<HookResult, HookError> + Send + Sync>;

/// A hook with a scripted result.
struct ScriptedHook {
    name: &'static str,
    registration: Registration,
    respond: Respond,
    delay: Duration,
    seen: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Hook for ScriptedHook {
    fn name(&self) -> &str {
        self.name
    }

    fn registrations(&self) -> Vec<Registration> {
        vec![self.registration.clone()]
    }

    async fn call(&self, event: HookEvent, _: HookContext) -> Result<HookResult, HookError> {
        tokio::time::sleep(self.delay).await;
        let event_text = serde_json::to_string(&event).unwrap();
        self.seen.lock().unwrap().push(format!("{}: {event_text}", self.name));
        (self.respond)(&event)
    }
}

fn scripted(
    name: &'static str,
    registration: Registration,
    respond: impl Fn(&HookEvent) -> Result<HookResult, HookError> + Send + Sync + 'static,
) -> ScriptedHook {
    ScriptedHook { name, registration, respond: Box::new(respond), delay: Duration::ZERO, seen: Arc::default() }
}

fn hooks(scripted_hooks: Vec<ScriptedHook>) -> Hooks {
    Hooks::new(scripted_hooks.into_iter().map(|hook| Arc::new(hook) as Arc<dyn Hook>).collect(), Vec::new())
}

fn call(params: Value) -> HookEvent {
    let params: Map<String, Value> = serde_json::from_value(params).unwrap();
    let (tool_name, run_id, tool_call_id) = ("exec".to_owned(), "r".to_owned(), "c".to_owned());
    HookEvent::BeforeToolCall(ToolCallStart { tool_name, params, run_id, tool_call_id })
}

fn params(value: Value) -> HookResult {
    HookResult { params: Some(serde_json::from_value(value).unwrap()), ..HookResult::default() }
}

fn before_call() -> Registration {
    Registration::at(HookPoint::BeforeToolCall)
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_are_called_first_and_later_hooks_see_the_changes() {
    let low = scripted("low", before_call().priority(1), |event| {
        Ok(params(json!({"saw": serde_json::to_value(event).unwrap()["params"]["x"]})))
    });
    let high = scripted("high", before_call().priority(10), |_| Ok(params(json!({"x": 2}))));
    let outcome = hooks(vec![low, high]).call(call(json!({"x": 1, "y": 3})), &HookContext::default()).await;
    assert_eq!(outcome.answer, params(json!({"x": 2, "saw": 2})));
    let changed = |hook: &str| HookNote {
        hook: hook.to_owned(),
        point: HookPoint::BeforeToolCall,
        decision: HookDecision::Changed(vec!["params".to_owned()]),
        duration: Duration::ZERO,
    };
    assert_eq!(outcome.notes, [changed("high"), changed("low")]);
}

// Pitfall 82.
#[tokio::test(start_paused = true)]
async fn a_block_is_final_and_no_later_hook_is_called() {
    let blocking = scripted("blocks", before_call().priority(2), |_| Ok(HookResult::block("no")));
    let later = scripted("later", before_call(), |_| Ok(HookResult { block: Some(false), ..HookResult::default() }));
    let seen = later.seen.clone();
    let outcome = hooks(vec![later, blocking]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!(outcome.block_reason(), Some("no"));
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
}

// Pitfall 82.
#[tokio::test(start_paused = true)]
async fn a_hanging_hook_is_skipped_and_a_hanging_guard_blocks() {
    let hanging = |registration| ScriptedHook {
        delay: Duration::from_secs(3600),
        ..scripted("hangs", registration, |_| Ok(HookResult::empty()))
    };
    let start = Instant::now();
    let outcome = hooks(vec![hanging(before_call())]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!((outcome.answer, start.elapsed()), (HookResult::empty(), DEADLINE));
    assert_eq!(outcome.notes[0].decision, HookDecision::Failed("no answer within 5000 ms".to_owned()));
    let guarded = hooks(vec![hanging(before_call().guard())]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!(guarded.block_reason(), Some("the guard hangs failed: no answer within 5000 ms"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_three_times_is_suspended_for_a_minute() {
    let hanging = ScriptedHook {
        delay: Duration::from_secs(3600),
        ..scripted("hangs", before_call(), |_| Ok(HookResult::empty()))
    };
    let all = hooks(vec![hanging]);
    let mut durations = Vec::new();
    for _ in 0..4 {
        let start = Instant::now();
        all.call(call(json!({})), &HookContext::default()).await;
        durations.push(start.elapsed());
    }
    assert_eq!(durations, [DEADLINE, DEADLINE, DEADLINE, Duration::ZERO]);
    tokio::time::advance(Duration::from_secs(60)).await;
    let start = Instant::now();
    all.call(call(json!({})), &HookContext::default()).await;
    assert_eq!(start.elapsed(), DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn notifications_are_processed_in_order_without_delaying_the_caller() {
    let slow = ScriptedHook {
        delay: Duration::from_secs(1),
        ..scripted("slow", Registration::at(HookPoint::GatewayStop), |_| Ok(HookResult::empty()))
    };
    let seen = slow.seen.clone();
    let all = hooks(vec![slow]);
    let start = Instant::now();
    for reason in ["one", "two"] {
        all.notify(&HookEvent::GatewayStop { reason: reason.to_owned() }, &HookContext::default());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    all.flush(Duration::from_secs(10)).await;
    assert_eq!(*seen.lock().unwrap(), [r#"slow: {"reason":"one"}"#, r#"slow: {"reason":"two"}"#]);
}

/// A listener that removes a file and reports it.
struct RemovingListener(Vec<String>, &'static str);

#[async_trait]
impl Listener for RemovingListener {
    fn name(&self) -> &str {
        self.1
    }

    fn events(&self) -> &[String] {
        &self.0
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        if self.1 == "fails" {
            return Err(HookError::Failed("broken".to_owned()));
        }
        let remaining = event.files().unwrap_or_default().into_iter().filter(|file| file.name != "SOUL.md").collect();
        Ok(ListenerResult { messages: vec![format!("by {}", self.1)], bootstrap_files: Some(remaining) })
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_of_a_type_run_before_those_of_one_action_and_a_failing_one_changes_nothing() {
    let listener = |event: &str, name| Arc::new(RemovingListener(vec![event.to_owned()], name)) as Arc<dyn Listener>;
    let all = Hooks::new(
        Vec::new(),
        vec![
            listener("agent:bootstrap", "exact"),
            listener("agent", "fails"),
            listener("agent", "broad"),
            listener("agent:error", "other"),
        ],
    );
    let mut bootstrap_event = InternalEvent {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: Map::new(),
        timestamp: 1,
        messages: Vec::new(),
    };
    let file = |name: &str| BootstrapFile {
        name: name.to_owned(),
        path: name.into(),
        content: Some("text".to_owned()),
        missing: false,
    };
    bootstrap_event.set_files(&[file("SOUL.md"), file("USER.md")]);
    let after = all.emit(bootstrap_event).await;
    assert_eq!(after.messages, ["by broad", "by exact"]);
    assert_eq!(after.files(), Some(vec![file("USER.md")]));
    assert!(all.has_listener("agent", "bootstrap") && !all.has_listener("command", "new"));
}

#[tokio::test(start_paused = true)]
async fn a_frequently_failing_hook_is_reported_until_a_minute_without_failures() {
    let throwing = |name| scripted(name, before_call(), |_| Err(HookError::Failed("boom".to_owned())));
    let all = Hooks::new(
        vec![Arc::new(throwing("throws")), Arc::new(scripted("fine", before_call(), |_| Ok(HookResult::empty())))],
        vec![Arc::new(RemovingListener(vec!["agent".to_owned()], "fails"))],
    );
    for _ in 0..20 {
        all.call(call(json!({})), &HookContext::default()).await;
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    let failing = all.failing();
    assert_eq!(failing.iter().map(|hook| (hook.name.as_str(), hook.count)).collect::<Vec<_>>(), [("throws", 20)]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(all.failing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guard_listener_that_fails_blocks_the_event() {
    struct HangingGuard;
    #[async_trait]
    impl Listener for HangingGuard {
        fn name(&self) -> &str {
            "keeper"
        }

        fn events(&self) -> &[String] {
            static EVENTS: std::sync::LazyLock<[String; 1]> = std::sync::LazyLock::new(|| ["agent".to_owned()]);
            &*EVENTS
        }

        fn is_guard(&self, event: &str) -> bool {
            event == crate::GUARDED_EVENT
        }

        async fn handle(&self, _: &InternalEvent) -> Result<ListenerResult, HookError> {
            std::future::pending().await
        }
    }
    let internal_event = |action: &str| InternalEvent {
        kind: "agent".to_owned(),
        action: action.to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: Map::new(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let all = Hooks::new(Vec::new(), vec![Arc::new(HangingGuard)]);
    assert!(all.emit_guarded(internal_event("other")).await.is_ok());
    // The guard also blocks while its circuit breaker is open.
    for reason in
        ["no answer within 5000 ms", "no answer within 5000 ms", "the hook is suspended after repeated failures"]
    {
        let error = all.emit_guarded(internal_event("bootstrap")).await.unwrap_err();
        assert_eq!(error, format!("the guard keeper failed: {reason}"));
    }
}
