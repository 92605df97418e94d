//! Splits a command into words.

use super::{NotPlain, Operator, ShellCommand, hazard, runners};

/// Parses a command. Fails unless it consists of literal words, simple quotes and `&&`, `||`, `;`, `|`, and runs only
/// the programs that it names.
pub fn parse(command: &str) -> Result<Vec<ShellCommand>, NotPlain> {
    let mut parser = CommandParser { rest: command, parts: Vec::new(), operator: Operator::First, words: Vec::new() };
    parser.parse_all()?;
    for part in &parser.parts {
        let Some((program, arguments)) = part.words.split_first() else {
            return not_plain("a part of the command is empty");
        };
        check_program(program, arguments)?;
    }
    Ok(parser.parts)
}

fn not_plain<T>(reason: impl Into<String>) -> Result<T, NotPlain> {
    Err(NotPlain(reason.into()))
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
        if let Some(character) = self.rest.chars().find(|character| character.is_control()) {
            return not_plain(format!("the command contains the control character {character:?}"));
        }
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            let Some(operator) = self.operator()? else {
                match self.word()? {
                    Some(word) => self.words.push(word),
                    None => return self.end(Operator::First),
                }
                continue;
            };
            self.end(operator)?;
        }
    }

    /// Ends the current command of the chain; `joint` connects the next one.
    fn end(&mut self, operator: Operator) -> Result<(), NotPlain> {
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return not_plain("a part of the command is empty");
        }
        self.parts.push(ShellCommand { operator: self.operator, words });
        self.operator = operator;
        Ok(())
    }

    fn operator(&mut self) -> Result<Option<Operator>, NotPlain> {
        let operators = [("&&", Operator::And), ("||", Operator::Or), (";", Operator::Then), ("|", Operator::Pipe)];
        let Some((symbol, found_operator)) = operators.into_iter().find(|(symbol, _)| self.rest.starts_with(symbol))
        else {
            return Ok(None);
        };
        self.rest = &self.rest[symbol.len()..];
        if self.rest.starts_with(['&', '|', ';']) {
            return not_plain("the command contains an unknown operator");
        }
        Ok(Some(found_operator))
    }

    /// Returns the next word; `None` at the end.
    fn word(&mut self) -> Result<Option<String>, NotPlain> {
        let mut word = None;
        while let Some(character) = self.rest.chars().next() {
            match character {
                ' ' | ';' | '|' => break,
                '&' if self.rest.starts_with("&&") => break,
                '\'' | '"' => word.get_or_insert_with(String::new).push_str(self.quoted(character)?),
                _ if is_plain(character) => {
                    word.get_or_insert_with(String::new).push(character);
                    self.rest = &self.rest[character.len_utf8()..];
                }
                _ => return not_plain(meaning(character)),
            }
        }
        Ok(word)
    }

    /// Returns the text between quotes.
    fn quoted(&mut self, quote: char) -> Result<&str, NotPlain> {
        let Some((inner, rest)) = self.rest[1..].split_once(quote) else { return not_plain("a quote is not closed") };
        if quote == '"'
            && let Some(character) = inner.chars().find(|character| matches!(character, '$' | '`' | '\\' | '!'))
        {
            return not_plain(meaning(character));
        }
        self.rest = rest;
        Ok(inner)
    }
}

fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | ':' | '=' | ',' | '+' | '@' | '%')
}

fn meaning(character: char) -> String {
    match character {
        '$' => "the command contains a shell expansion ($)".to_owned(),
        '`' => "the command contains a command substitution (`)".to_owned(),
        '*' | '?' | '[' | ']' => format!("the command contains a glob pattern ({character})"),
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
    let is_between = |character: char| {
        character.is_whitespace() || character.is_control() || "'\"`$(){}<>|&;=,\\".contains(character)
    };
    command.split(is_between).filter(|word| !word.is_empty())
}
