//! Tests of discovered skills: verdicts, environment variables, the list for a model, commands and the report.

mod command;
mod fixture;
mod folders;
mod gate;
mod prompt;
mod properties;
mod status;
mod variables;
