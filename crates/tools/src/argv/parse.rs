//! Splits a command into words.

use super::{NotPlain, Operator, ShellCommand, hazard, runners};

/// Parses a command. Fails unless it consists of literal words, simple quotes and `&&`, `||`, `;`, `|`, and runs only
/// the programs that it names.
pub fn parse(command: &str) -> Result<Vec<ShellCommand>, NotPlain> {
    let mut reader = CommandParser { rest: command, parts: Vec::new(), operator: Operator::First, words: Vec::new() };
    reader.parse_all()?;
    for part in &reader.parts {
        let Some((program, arguments)) = part.words.split_first() else {
            return not_plain("a part of the command is empty");
        };
        check_program(program, arguments)?;
    }
    Ok(reader.parts)
}

fn not_plain<T>(why: impl Into<String>) -> Result<T, NotPlain> {
    Err(NotPlain(why.into()))
}

fn check_program(program: &str, arguments: &[String]) -> Result<(), NotPlain> {
    if program.contains('=') {
        return not_plain("the command sets variables");
    }
    if program.is_empty() || program.ends_with('/') || program.starts_with('-') {
        return not_plain("the command names no program");
    }
    if !program.contains('/') && runners::BUILTIN.contains(&program) {
        return not_plain(format!("{program} is a shell builtin"));
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    hazard(name, arguments).map_or(Ok(()), Err)
}

struct CommandParser<'a> {
    rest: &'a str,
    parts: Vec<ShellCommand>,
    operator: Operator,
    words: Vec<String>,
}

impl CommandParser<'_> {
    fn parse_all(&mut self) -> Result<(), NotPlain> {
        if let Some(letter) = self.rest.chars().find(|letter| letter.is_control()) {
            return not_plain(format!("the command contains the control character {letter:?}"));
        }
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            let Some(joint) = self.operator()? else {
                match self.word()? {
                    Some(word) => self.words.push(word),
                    None => return self.end(Operator::First),
                }
                continue;
            };
            self.end(joint)?;
        }
    }

    /// Ends the current command of the chain; `joint` connects the next one.
    fn end(&mut self, joint: Operator) -> Result<(), NotPlain> {
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return not_plain("a part of the command is empty");
        }
        self.parts.push(ShellCommand { operator: self.operator, words });
        self.operator = joint;
        Ok(())
    }

    fn operator(&mut self) -> Result<Option<Operator>, NotPlain> {
        let signs = [("&&", Operator::And), ("||", Operator::Or), (";", Operator::Then), ("|", Operator::Pipe)];
        let Some((sign, joint)) = signs.into_iter().find(|(sign, _)| self.rest.starts_with(sign)) else {
            return Ok(None);
        };
        self.rest = &self.rest[sign.len()..];
        if self.rest.starts_with(['&', '|', ';']) {
            return not_plain("the command contains an unknown operator");
        }
        Ok(Some(joint))
    }

    /// Returns the next word; `None` at the end.
    fn word(&mut self) -> Result<Option<String>, NotPlain> {
        let mut word = None;
        while let Some(letter) = self.rest.chars().next() {
            match letter {
                ' ' | ';' | '|' => break,
                '&' if self.rest.starts_with("&&") => break,
                '\'' | '"' => word.get_or_insert_with(String::new).push_str(self.quoted(letter)?),
                _ if is_plain(letter) => {
                    word.get_or_insert_with(String::new).push(letter);
                    self.rest = &self.rest[letter.len_utf8()..];
                }
                _ => return not_plain(meaning(letter)),
            }
        }
        Ok(word)
    }

    /// Returns the text between quotes.
    fn quoted(&mut self, quote: char) -> Result<&str, NotPlain> {
        let Some((inner, rest)) = self.rest[1..].split_once(quote) else { return not_plain("a quote is not closed") };
        if quote == '"'
            && let Some(letter) = inner.chars().find(|letter| matches!(letter, '$' | '`' | '\\' | '!'))
        {
            return not_plain(meaning(letter));
        }
        self.rest = rest;
        Ok(inner)
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | ':' | '=' | ',' | '+' | '@' | '%')
}

fn meaning(letter: char) -> String {
    match letter {
        '$' => "the command contains a shell expansion ($)".to_owned(),
        '`' => "the command contains a command substitution (`)".to_owned(),
        '*' | '?' | '[' | ']' => format!("the command contains a glob pattern ({letter})"),
        '{' | '}' => "the command contains braces".to_owned(),
        '(' | ')' => "the command contains parentheses".to_owned(),
        '<' | '>' => "the command redirects input or output".to_owned(),
        '&' => "the command starts a background job".to_owned(),
        '~' => "the command refers to a home directory (~)".to_owned(),
        '\\' => "the command contains a backslash".to_owned(),
        '#' => "the command may contain a comment (#)".to_owned(),
        '!' => "the command contains an exclamation mark".to_owned(),
        other => format!("the command contains {other:?} outside quotes"),
    }
}

/// Returns everything in a command, plain or not, that could be the name of a file or program.
pub(crate) fn mentions(command: &str) -> impl Iterator<Item = &str> {
    let is_between =
        |letter: char| letter.is_whitespace() || letter.is_control() || "'\"`$(){}<>|&;=,\\".contains(letter);
    command.split(is_between).filter(|word| !word.is_empty())
}
