//! Sandbox for commands: restricts files, network, system calls and resources, with the means that Linux has without
//! root and without a daemon.
//!
//! There are three tiers; the best one that the machine supports is used, and never a weaker one silently: tier A is a
//! namespace (bubblewrap) with a system call filter and Landlock, tier B is Landlock and the filter alone, tier C
//! refuses to run commands. README.md says what each guarantees.
//!
//! Start with [`SandboxPolicy`], which says what is wanted; `layers` translates it to paths, and `bubblewrap` and
//! `enter` apply it ([`Sandbox::command`]). Nothing is ever added to the workspace; files that a command must not
//! create there are found by `watch`, while the command runs and after it has ended, and moved to the quarantine.
//! [`CommandTree`] finds and kills the processes of a command.
//!
//! ```
//! use homard_sandbox::{SandboxPolicy, Tier, explain};
//!
//! let (policy, directory) = (SandboxPolicy::default(), std::env::temp_dir());
//! let tier = Tier::C { why: "this is an example".to_owned() };
//! let sentences = explain(&policy, &tier, &directory);
//! assert!(sentences[0].starts_with("Tier C: commands are refused, because this is an example."));
//! ```
#![warn(missing_docs)]

mod policy;

mod home_view;
mod path_rules;
mod protected;

mod layers;
mod relative_sockets;
mod repository;

mod tier;

mod bubblewrap;
mod command;
mod enter;
mod filter;
mod limits;
mod supervise;

mod originals;
mod quarantine;
mod record;
mod sweep;
mod watch;

mod command_tree;
mod explain;
mod git_settings;

#[cfg(test)]
mod fuzz;

pub use self::{
    command::{CommandError, CommandLocation, ProcessWrapper, Sandbox, SandboxResources, SandboxedCommand},
    command_tree::{CommandTree, MARK},
    enter::{ENTER, EnterError, enter},
    explain::explain,
    git_settings::GitSettings,
    limits::{ExceededLimit, ResourceLimits, Usage},
    path_rules::PathRules,
    policy::{AccessMode, InStateDirectory, SandboxPolicy},
    protected::ChangeKind,
    tier::Tier,
    watch::{Sweep, Sweeper, TrustedContent, TrustedContents, Watches, tidy},
};
