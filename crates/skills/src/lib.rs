//! Skills: discovery, parsing, eligibility, and the list for a model.
//!
//! Values in, values out: this crate reads only the folders it is given. It does not depend on the environment, the
//! config file, sessions or models. Start with [`Skill`] (content of a file), then [`discover`] (which files), then
//! [`judge`] (which of them are eligible) and [`Book`] (how these are used).
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
