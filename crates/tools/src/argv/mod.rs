//! Reads a shell command as words, strictly: what is read is what would be run, or it is not plain. No I/O.
//!
//! A command that is plain is never given to a shell as it was written: its own words are run, or a text in which each
//! of them is quoted. So there is no second reading that could differ from the one that was judged. [`read()`] takes a
//! command apart, `runners` and `options` know what may run something else, and `safe` what only reads its input.

mod options;
mod read;
mod runners;
mod safe;

use std::fmt;

pub(crate) use self::{read::mentions, safe::only_filters};
pub use self::{read::read, safe::SAFE_BINS};

/// Why a command is not plain, for people and models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotPlain(pub String);

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One command of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// How it hangs on the one before it.
    pub joint: Joint,
    /// Its program as it was written, and its arguments.
    pub words: Vec<String>,
}

/// How a command hangs on the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// It is the first.
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

impl Joint {
    fn sign(self) -> &'static str {
        match self {
            Self::First => "",
            Self::And => " && ",
            Self::Or => " || ",
            Self::Then => "; ",
            Self::Pipe => " | ",
        }
    }
}

/// Why a program with these arguments may run something else, if it may. The name is that of its file.
pub fn hazard(name: &str, arguments: &[String]) -> Option<NotPlain> {
    runners::runs_others(name).or_else(|| options::hazard(name, arguments)).map(NotPlain)
}

/// Whether a file holds many programs, and is the one by whose name it is started.
pub(crate) fn is_many(name: &str) -> bool {
    runners::MANY.contains(&name)
}

/// What may be allowed for good when this is: its subcommand with anything after it, if that is known to be tame.
pub(crate) fn family(name: &str, arguments: &[String]) -> Option<usize> {
    let first = arguments.first()?;
    options::TAME.iter().any(|(program, tame)| *program == name && tame.contains(&first.as_str())).then_some(1)
}

/// A text that means these words and nothing else to any shell: the program of each is a whole path, which is neither
/// builtin nor alias, and each word is quoted.
pub fn script(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let words: Vec<_> = part.words.iter().map(|word| quoted(word)).collect();
        format!("{}{}", part.joint.sign(), words.join(" "))
    };
    parts.iter().map(part).collect()
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
