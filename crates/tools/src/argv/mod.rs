//! Strict parser for shell commands. Pure, no I/O.
//!
//! A command that consists only of literal words, simple quotes and `&&`, `||`, `;`, `|` is *plain*. A plain command is
//! never given to a shell as written: either its words are executed directly, or a text in which each word is quoted
//! is. So no second parser can interpret it differently from the one that the policy was checked with. [`parse()`]
//! parses a command, `runners` and `options` know programs and options that can run other programs, and `safe` knows
//! filters that only read standard input.

mod filters;
mod options;
mod parse;
mod runners;

use std::fmt;

pub use self::{filters::SAFE_BINS, parse::parse};
pub(crate) use self::{filters::only_filters, parse::mentions};

/// Why a command is not plain, as a message for people and models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotPlain(pub String);

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One command of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// Operator that connects it to the previous command.
    pub operator: Operator,
    /// The program as written, and its arguments.
    pub words: Vec<String>,
}

/// Operator between a command and the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// No operator, because it is the first command.
    First,
    /// `&&`
    And,
    /// `||`
    Or,
    /// `;`
    Then,
    /// `|`
    Pipe,
}

impl Operator {
    fn symbol(self) -> &'static str {
        match self {
            Self::First => "",
            Self::And => " && ",
            Self::Or => " || ",
            Self::Then => "; ",
            Self::Pipe => " | ",
        }
    }
}

/// Returns why a program with these arguments may run other programs, if it may. `name` is its file name.
pub fn hazard(name: &str, arguments: &[String]) -> Option<NotPlain> {
    runners::runs_others(name).or_else(|| options::hazard(name, arguments)).map(NotPlain)
}

/// True for multi-call binaries, which choose the program by the name they are started with.
pub(crate) fn is_multi_call(name: &str) -> bool {
    runners::MULTI_CALL.contains(&name)
}

/// Returns how many leading arguments a permanent rule has to fix: only the subcommand, if it is known to be harmless
/// with any arguments after it. `None` if the rule has to fix all of them.
pub(crate) fn fixed_arguments(name: &str, arguments: &[String]) -> Option<usize> {
    let first = arguments.first()?;
    options::HARMLESS_SUBCOMMANDS
        .iter()
        .any(|(program, harmless)| *program == name && harmless.contains(&first.as_str()))
        .then_some(1)
}

/// Returns a shell script that means exactly these words in any shell: each program is an absolute path, which is
/// neither a builtin nor an alias, and each word is quoted.
pub fn script(parts: &[ShellCommand]) -> String {
    let format_part = |part: &ShellCommand| {
        let words: Vec<_> = part.words.iter().map(|word| quoted(word)).collect();
        format!("{}{}", part.operator.symbol(), words.join(" "))
    };
    parts.iter().map(format_part).collect()
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
