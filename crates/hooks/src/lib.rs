//! Hooks: extension points of the agent loop.
//!
//! A [`Hook`] is called or notified at [`Point`]s: it gets an [`Event`] and a [`Context`], and may return an
//! [`Answer`]. [`Hooks`] calls them in order, each with a deadline, and merges their results. A hook that hangs or
//! fails is skipped, unless it is a guard: then the operation is blocked. [`Listener`]s receive what OpenClaw calls
//! internal hooks: commands, sessions, messages, the bootstrap files of a prompt.

mod answer;
mod breaker;
mod command;
mod context;
mod event;
mod failures;
mod hook;
mod listener;
mod note;
mod point;
mod queue;
mod runner;

pub use answer::Answer;
pub use command::{Asked, SlashCommand};
pub use context::Context;
pub use event::{
    AgentEnd, Called, Compacted, Compacting, Event, LlmInput, LlmOutput, Persist, Received, Reset, Sending, Sent,
    SessionEnd, SessionStart, ToolCalled, Turn,
};
pub use failures::{FailureLog, FrequentFailures};
pub use hook::{Hook, HookError, Registration};
pub use listener::{BootstrapFile, GUARDED, Heard, Listener, Signal};
pub use note::{Decision, Note};
pub use point::{DEADLINE, Point};
pub use runner::{Hooks, Outcome};
