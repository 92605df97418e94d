//! Hooks: extension points of the agent loop.
//!
//! A [`Hook`] is called or notified at [`HookPoint`]s: it gets an [`HookEvent`] and a [`HookContext`], and may return an
//! [`HookResult`]. [`Hooks`] calls them in order, each with a deadline, and merges their results. A hook that hangs or
//! fails is skipped, unless it is a guard: then the operation is blocked. [`Listener`]s receive what OpenClaw calls
//! internal hooks: commands, sessions, messages, the bootstrap files of a prompt.

mod answer;
mod command;
mod context;
mod decision;
mod event;
mod failures;
mod hook;
mod listener;
mod point;
mod queue;
mod runner;

pub use answer::HookResult;
pub use command::{SlashCommand, SlashCommandCall};
pub use context::HookContext;
pub use decision::{HookDecision, HookNote};
pub use event::{
    AgentEnd, CompactionEnd, CompactionStart, HookEvent, LlmInput, LlmOutput, OutgoingMessage, ReceivedMessage,
    RunStart, SentMessage, SessionEnd, SessionReset, SessionStart, ToolCallEnd, ToolCallStart, ToolResultWrite,
};
pub use failures::{FailureLog, FrequentFailures};
pub use hook::{Hook, HookError, Registration};
pub use listener::{BootstrapFile, GUARDED_EVENT, InternalEvent, Listener, ListenerResult};
pub use point::{DEADLINE, HookPoint};
pub use runner::{HookOutcome, Hooks};
