//! Skills: found in their folders, read, judged by what the machine has, and told to a model.
//!
//! Values in, values out: this crate reads the folders it is given and nothing else. It refuses to know the environment,
//! the config file, sessions and models. Start with [`Skill`] (what a file says), then [`discover`] (which files),
//! then [`judge`] (which of them work here) and [`Book`] (what becomes of those).
#![warn(missing_docs)]

mod front_matter;
mod skill;

mod discover;
mod walk;

mod gate;

mod book;
mod command;
mod prompt;
mod status;

pub use book::{Book, Judged, variables};
pub use command::{Invocation, SlashCommand, commands, invoke, rewrite};
pub use discover::{Found, Level, Limits, Problem, Roots, discover, discover_allowed};
pub use front_matter::{FrontMatter, lookup};
pub use gate::{Entry, Host, Missing, Needs, Rules, Verdict, judge, missing};
pub use prompt::{PromptLimits, block};
pub use skill::{Dispatch, Requires, Skill, Source, as_bool, as_list, as_text, manifest, on_one_line, requires};
pub use status::report;
