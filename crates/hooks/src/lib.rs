//! Where others may take part in the loop.
//!
//! A [`Hook`] is asked or told at [`Point`]s: it gets an [`Event`] and a [`Context`], and may give an [`Answer`]. The
//! [`Hooks`] of a house ask them in order, with a deadline each, and put their answers together. One that hangs or fails
//! is passed over, unless it is a guard: then what it guards does not happen. [`Listener`]s hear of what OpenClaw calls
//! internal hooks: commands, sessions, messages, the files of a prompt.

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
