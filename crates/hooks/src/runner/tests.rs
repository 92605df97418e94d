//! Tests of call order and failure handling.

use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::*;
use crate::{BootstrapFile, DEADLINE, event::ToolCallStart};

type Says = Box<dyn Fn(&HookEvent) -> Result<HookResult, HookError> + Send + Sync>;

/// A hook with a scripted result.
struct ScriptedHook {
    name: &'static str,
    registration: Registration,
    says: Says,
    takes: Duration,
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
        tokio::time::sleep(self.takes).await;
        let event_text = serde_json::to_string(&event).unwrap();
        self.seen.lock().unwrap().push(format!("{}: {event_text}", self.name));
        (self.says)(&event)
    }
}

fn scripted(
    name: &'static str,
    registration: Registration,
    says: impl Fn(&HookEvent) -> Result<HookResult, HookError> + Send + Sync + 'static,
) -> ScriptedHook {
    ScriptedHook { name, registration, says: Box::new(says), takes: Duration::ZERO, seen: Arc::default() }
}

fn hooks(all: Vec<ScriptedHook>) -> Hooks {
    Hooks::new(all.into_iter().map(|hook| Arc::new(hook) as Arc<dyn Hook>).collect(), Vec::new())
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
async fn higher_priorities_are_asked_first_and_the_next_sees_what_will_be() {
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

#[tokio::test(start_paused = true)]
async fn a_block_ends_the_asking_and_nobody_lifts_it() {
    let blocks = scripted("blocks", before_call().priority(2), |_| Ok(HookResult::block("no")));
    let later = scripted("later", before_call(), |_| Ok(HookResult { block: Some(false), ..HookResult::default() }));
    let seen = later.seen.clone();
    let outcome = hooks(vec![later, blocks]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!(outcome.block_reason(), Some("no"));
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_passed_over_and_a_guard_that_hangs_forbids() {
    let hangs = |registration| ScriptedHook {
        takes: Duration::from_secs(3600),
        ..scripted("hangs", registration, |_| Ok(HookResult::empty()))
    };
    let begun = Instant::now();
    let passed = hooks(vec![hangs(before_call())]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!((passed.answer, begun.elapsed()), (HookResult::empty(), DEADLINE));
    assert_eq!(passed.notes[0].decision, HookDecision::Failed("no answer within 5000 ms".to_owned()));
    let guarded = hooks(vec![hangs(before_call().guard())]).call(call(json!({})), &HookContext::default()).await;
    assert_eq!(guarded.block_reason(), Some("the guard hangs failed: no answer within 5000 ms"));
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_three_times_is_not_asked_for_a_minute_and_then_again() {
    let hangs = ScriptedHook {
        takes: Duration::from_secs(3600),
        ..scripted("hangs", before_call(), |_| Ok(HookResult::empty()))
    };
    let all = hooks(vec![hangs]);
    let mut took = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        all.call(call(json!({})), &HookContext::default()).await;
        took.push(begun.elapsed());
    }
    assert_eq!(took, [DEADLINE, DEADLINE, DEADLINE, Duration::ZERO]);
    tokio::time::advance(Duration::from_secs(60)).await;
    let begun = Instant::now();
    all.call(call(json!({})), &HookContext::default()).await;
    assert_eq!(begun.elapsed(), DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_is_heard_in_order_and_nobody_waits_for_it() {
    let slow = ScriptedHook {
        takes: Duration::from_secs(1),
        ..scripted("slow", Registration::at(HookPoint::GatewayStop), |_| Ok(HookResult::empty()))
    };
    let seen = slow.seen.clone();
    let all = hooks(vec![slow]);
    let begun = Instant::now();
    for reason in ["one", "two"] {
        all.notify(&HookEvent::GatewayStop { reason: reason.to_owned() }, &HookContext::default());
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    all.flush(Duration::from_secs(10)).await;
    assert_eq!(*seen.lock().unwrap(), [r#"slow: {"reason":"one"}"#, r#"slow: {"reason":"two"}"#]);
}

/// A listener that removes a file and reports it.
struct Takes(Vec<String>, &'static str);

#[async_trait]
impl Listener for Takes {
    fn name(&self) -> &str {
        self.1
    }

    fn events(&self) -> &[String] {
        &self.0
    }

    async fn handle(&self, signal: &InternalEvent) -> Result<ListenerResult, HookError> {
        if self.1 == "fails" {
            return Err(HookError::Failed("broken".to_owned()));
        }
        let kept = signal.files().unwrap_or_default().into_iter().filter(|file| file.name != "SOUL.md").collect();
        Ok(ListenerResult { messages: vec![format!("by {}", self.1)], bootstrap_files: Some(kept) })
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_of_a_kind_come_before_those_of_one_action_and_a_broken_one_changes_nothing() {
    let listener = |event: &str, name| Arc::new(Takes(vec![event.to_owned()], name)) as Arc<dyn Listener>;
    let all = Hooks::new(
        Vec::new(),
        vec![
            listener("agent:bootstrap", "exact"),
            listener("agent", "fails"),
            listener("agent", "broad"),
            listener("agent:error", "other"),
        ],
    );
    let mut signal = InternalEvent {
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
    signal.set_files(&[file("SOUL.md"), file("USER.md")]);
    let after = all.emit(signal).await;
    assert_eq!(after.messages, ["by broad", "by exact"]);
    assert_eq!(after.files(), Some(vec![file("USER.md")]));
    assert!(all.has_listener("agent", "bootstrap") && !all.has_listener("command", "new"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_all_the_time_is_named_until_it_has_been_well_for_a_minute() {
    let throws = |name| scripted(name, before_call(), |_| Err(HookError::Failed("boom".to_owned())));
    let all = Hooks::new(
        vec![Arc::new(throws("throws")), Arc::new(scripted("fine", before_call(), |_| Ok(HookResult::empty())))],
        vec![Arc::new(Takes(vec!["agent".to_owned()], "fails"))],
    );
    for _ in 0..20 {
        all.call(call(json!({})), &HookContext::default()).await;
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    let failing = all.failing();
    assert_eq!(failing.iter().map(|one| (one.name.as_str(), one.count)).collect::<Vec<_>>(), [("throws", 20)]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(all.failing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_a_guard_refuses_what_it_cannot_answer() {
    struct Guards;
    #[async_trait]
    impl Listener for Guards {
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
    let signal = |action: &str| InternalEvent {
        kind: "agent".to_owned(),
        action: action.to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: Map::new(),
        timestamp: 0,
        messages: Vec::new(),
    };
    let all = Hooks::new(Vec::new(), vec![Arc::new(Guards)]);
    assert!(all.emit_guarded(signal("other")).await.is_ok());
    // The guard also blocks while its circuit breaker is open.
    for why in ["no answer within 5000 ms", "no answer within 5000 ms", "suspended after repeated failures"] {
        let refused = all.emit_guarded(signal("bootstrap")).await.unwrap_err();
        assert_eq!(refused, format!("the guard keeper failed: {why}"));
    }
}
