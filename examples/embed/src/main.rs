//! Embeds Homard's agent loop in a program, with a hook that prevents agents from deleting files.
//!
//! Run it with `cargo run -p homard-example-embed`. The model is the built-in demo model, which needs no key; the tool
//! is defined here.

use std::sync::Arc;

use async_trait::async_trait;
use homard_agent::{
    Agents, FencedStore, Hub, HubRules, Inbound, InboundSender, Profile, Subscriber,
    hub::SubmitOutcome,
    tape::TapeState,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec, Toolbox},
};
use homard_hooks::{Hook, HookContext, HookError, HookEvent, HookPoint, HookResult, Hooks, Registration};
use homard_model::{candidates::Candidates, demo::Demo};
use homard_proto::{AgentId, message::User};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_store::{Fence, MemoryStore};
use serde_json::{Value, json};

/// Rejects commands that delete something. It is a guard: if it cannot answer, nothing runs.
struct DeletionGuard;

#[async_trait]
impl Hook for DeletionGuard {
    fn name(&self) -> &str {
        "keeper"
    }

    fn registrations(&self) -> Vec<Registration> {
        vec![Registration::at(HookPoint::BeforeToolCall).guard(), Registration::at(HookPoint::AgentEnd)]
    }

    async fn call(&self, event: HookEvent, context: HookContext) -> Result<HookResult, HookError> {
        if let HookEvent::BeforeToolCall(call) = &event
            && call.params.get("command").and_then(Value::as_str).is_some_and(|command| command.contains("rm "))
        {
            return Ok(HookResult::block("nothing is deleted here"));
        }
        if let HookEvent::AgentEnd(end) = &event {
            print_line(&format!("[keeper] {} ended well: {}", context.run_id.unwrap_or_default(), end.success));
        }
        Ok(HookResult::empty())
    }
}

/// A tool that only pretends to run commands.
struct PretendExec;

#[async_trait]
impl Tool for PretendExec {
    fn spec(&self) -> ToolSpec {
        let parameters =
            json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
        ToolSpec { name: "exec".to_owned(), description: "Runs a command.".to_owned(), parameters }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, _: ToolCx, arguments: Value) -> ToolResult {
        ToolResult::text(format!("(pretended to run {})", arguments["command"]))
    }
}

#[allow(clippy::print_stdout, reason = "this is a program for a terminal")]
fn print_line(text: &str) {
    println!("{text}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let hooks = Hooks::new(vec![Arc::new(DeletionGuard)], Vec::new());
    let toolbox = Toolbox::new([Arc::new(PretendExec) as Arc<dyn Tool>]);
    let profile = Profile { toolbox, ..Profile::new(AgentId::main(), Candidates::single(Arc::new(Demo::default()))) };
    let (store, rules) = (Arc::new(MemoryStore::default()), HubRules { hooks, ..HubRules::default() });
    let agents = Agents::new(profile, []);
    let (hub, _feed) =
        Hub::start(Ambient::system(), FencedStore::new(store, Fence::default()), agents, Slots::new(4, 4, 1), rules);
    for text in ["Run `echo hello`", "Run `rm -rf /`"] {
        let (run, key) = (hub.ambient().run_id(), AgentId::main().main_session());
        let message = User::text(text, hub.ambient().now_ms());
        let accepted = hub.submit(Inbound::plain(run, InboundSender::new("owner", "embed"), key, message)).await?;
        if let SubmitOutcome::New(tape) = accepted.outcome
            && let TapeState::Ended(end) = Subscriber::new(tape).end().await
        {
            let answer: Vec<_> = end.replies.iter().map(|reply| reply.text.as_str()).collect();
            print_line(&format!("> {text}\n{}", answer.join("\n")));
        }
    }
    hub.hooks().gateway_stopping("done").await;
    hub.lifecycle().shut_down().await;
    Ok(())
}
