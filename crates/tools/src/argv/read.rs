//! Splits a command into words.

use super::{Joint, NotPlain, Part, hazard, runners};

/// Parses a command. Fails unless it consists of literal words, simple quotes and `&&`, `||`, `;`, `|`, and runs only
/// the programs that it names.
pub fn read(command: &str) -> Result<Vec<Part>, NotPlain> {
    let mut reader = Reader { rest: command, parts: Vec::new(), joint: Joint::First, words: Vec::new() };
    reader.all()?;
    for part in &reader.parts {
        let Some((program, arguments)) = part.words.split_first() else { return no("a part of it is empty") };
        judge(program, arguments)?;
    }
    Ok(reader.parts)
}

fn no<T>(why: impl Into<String>) -> Result<T, NotPlain> {
    Err(NotPlain(why.into()))
}

fn judge(program: &str, arguments: &[String]) -> Result<(), NotPlain> {
    if program.contains('=') {
        return no("it sets variables");
    }
    if program.is_empty() || program.ends_with('/') || program.starts_with('-') {
        return no("it names no program");
    }
    if !program.contains('/') && runners::BUILTIN.contains(&program) {
        return no(format!("{program} is a part of the shell"));
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    hazard(name, arguments).map_or(Ok(()), Err)
}

struct Reader<'a> {
    rest: &'a str,
    parts: Vec<Part>,
    joint: Joint,
    words: Vec<String>,
}

impl Reader<'_> {
    fn all(&mut self) -> Result<(), NotPlain> {
        if let Some(letter) = self.rest.chars().find(|letter| letter.is_control()) {
            return no(format!("it has a control character, {letter:?}"));
        }
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            let Some(joint) = self.joint()? else {
                match self.word()? {
                    Some(word) => self.words.push(word),
                    None => return self.end(Joint::First),
                }
                continue;
            };
            self.end(joint)?;
        }
    }

    /// Ends the current command of the chain; `joint` connects the next one.
    fn end(&mut self, joint: Joint) -> Result<(), NotPlain> {
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return no("a part of it is empty");
        }
        self.parts.push(Part { joint: self.joint, words });
        self.joint = joint;
        Ok(())
    }

    fn joint(&mut self) -> Result<Option<Joint>, NotPlain> {
        let signs = [("&&", Joint::And), ("||", Joint::Or), (";", Joint::Then), ("|", Joint::Pipe)];
        let Some((sign, joint)) = signs.into_iter().find(|(sign, _)| self.rest.starts_with(sign)) else {
            return Ok(None);
        };
        self.rest = &self.rest[sign.len()..];
        if self.rest.starts_with(['&', '|', ';']) {
            return no("it has signs that are not understood");
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
                '\'' | '"' => word.get_or_insert_with(String::new).push_str(self.quotes(letter)?),
                _ if is_plain(letter) => {
                    word.get_or_insert_with(String::new).push(letter);
                    self.rest = &self.rest[letter.len_utf8()..];
                }
                _ => return no(meaning(letter)),
            }
        }
        Ok(word)
    }

    /// Returns the text between quotes.
    fn quotes(&mut self, quote: char) -> Result<&str, NotPlain> {
        let Some((inner, rest)) = self.rest[1..].split_once(quote) else { return no("a quote is not closed") };
        if quote == '"'
            && let Some(letter) = inner.chars().find(|letter| matches!(letter, '$' | '`' | '\\' | '!'))
        {
            return no(meaning(letter));
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
        '$' => "it has an expansion, $".to_owned(),
        '`' => "it has a substitution, `".to_owned(),
        '*' | '?' | '[' | ']' => format!("it has a pattern for file names, {letter}"),
        '{' | '}' => "it has braces".to_owned(),
        '(' | ')' => "it has parentheses".to_owned(),
        '<' | '>' => "it redirects input or output".to_owned(),
        '&' => "it starts something in the background".to_owned(),
        '~' => "it names a home directory, ~".to_owned(),
        '\\' => "it has a backslash".to_owned(),
        '#' => "it has a comment, or what may be one".to_owned(),
        '!' => "it has an exclamation mark".to_owned(),
        other => format!("it has {other:?} outside quotes"),
    }
}

/// Returns everything in a command, plain or not, that could be the name of a file or program.
pub(crate) fn mentions(command: &str) -> impl Iterator<Item = &str> {
    let is_between =
        |letter: char| letter.is_whitespace() || letter.is_control() || "'\"`$(){}<>|&;=,\\".contains(letter);
    command.split(is_between).filter(|word| !word.is_empty())
}
