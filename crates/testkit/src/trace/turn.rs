//! Parser for `model` lines: one answer, step by step.

use homard_model::{
    Error, ErrorKind,
    stream::{AnswerEnd, CallDelta},
};
use homard_proto::message::{StopReason, Usage};

use super::scan::{LineScanner, SyntaxMessage};
use crate::script::{AnswerStep, ScriptedAnswer};

/// Parses what follows `model`.
pub(super) fn parse(scan: &mut LineScanner<'_>) -> Result<ScriptedAnswer, SyntaxMessage> {
    let mut turn = AnswerBuilder::default();
    loop {
        let word = turn.step(scan)?;
        if scan.is_empty() {
            return Ok(turn.finish());
        }
        if !scan.take(";") {
            return scan.error("`;`");
        }
        if turn.is_over {
            return scan.error(&format!("nothing after `{word}`"));
        }
    }
}

/// An answer under construction.
#[derive(Default)]
struct AnswerBuilder {
    steps: Vec<AnswerStep>,
    calls: usize,
    stop: Option<StopReason>,
    usage: Usage,
    is_over: bool,
}

impl AnswerBuilder {
    fn step<'a>(&mut self, scan: &mut LineScanner<'a>) -> Result<&'a str, SyntaxMessage> {
        let expected = "`text`, `think`, `call`, `pause`, `usage`, `stop`, `fail`, `cut`, `hang` or `panic`";
        let word = scan.word(expected)?;
        match word {
            "text" => self.pieces(scan, AnswerStep::Text)?,
            "think" => self.pieces(scan, AnswerStep::Thinking)?,
            "call" => self.call(scan)?,
            "pause" => self.steps.push(AnswerStep::Pause(scan.time()?)),
            "usage" => self.usage = usage(scan)?,
            "stop" => self.stop = Some(stop_reason(scan)?),
            "fail" => self.over(Some(AnswerStep::Fail(failure(scan)?))),
            "cut" => self.over(None),
            "hang" => self.over(Some(AnswerStep::Hang)),
            "panic" => {
                let text = scan.quoted()?;
                self.over(Some(AnswerStep::Panic(text)));
            }
            word => return Err(format!("expected {expected}, found `{word}`")),
        }
        Ok(word)
    }

    fn over(&mut self, last: Option<AnswerStep>) {
        self.steps.extend(last);
        self.is_over = true;
    }

    /// `"a" | 50ms | "b"`.
    fn pieces(&mut self, scan: &mut LineScanner<'_>, step: impl Fn(String) -> AnswerStep) -> Result<(), SyntaxMessage> {
        loop {
            let next = match scan.peek_time() {
                Some(_) => AnswerStep::Pause(scan.time()?),
                None => step(scan.quoted()?),
            };
            self.steps.push(next);
            if !scan.take("|") {
                return Ok(());
            }
        }
    }

    /// `c1 exec {"cmd":"make"}`, `- exec {}` without an id, `c1 exec raw "{" | "}"` piece by piece.
    fn call(&mut self, scan: &mut LineScanner<'_>) -> Result<(), SyntaxMessage> {
        let id = scan.word("the call's id, or -")?;
        let name = scan.word("the tool's name")?.to_owned();
        let index = self.calls;
        self.calls += 1;
        let id = (id != "-").then(|| id.to_owned());
        let piece = |arguments| AnswerStep::Call(CallDelta { index, arguments, ..CallDelta::default() });
        self.steps.push(AnswerStep::Call(CallDelta { index, id, name: Some(name), arguments: String::new() }));
        if scan.take("raw") {
            return self.pieces(scan, piece);
        }
        self.steps.push(piece(scan.json()?.to_string()));
        Ok(())
    }

    fn finish(mut self) -> ScriptedAnswer {
        if !self.is_over {
            let default = if self.calls > 0 { StopReason::ToolUse } else { StopReason::Stop };
            self.steps.push(AnswerStep::Done(AnswerEnd { stop: self.stop.unwrap_or(default), usage: self.usage }));
        }
        ScriptedAnswer(self.steps)
    }
}

fn usage(scan: &mut LineScanner<'_>) -> Result<Usage, SyntaxMessage> {
    let mut usage = Usage::default();
    while !scan.is_empty() && !scan.rest().starts_with(';') {
        let (name, value) = scan.setting()?;
        if name == "cost" {
            let Ok(dollars) = value.parse() else { return Err(format!("expected dollars, found `{value}`")) };
            usage.cost.total = dollars;
            continue;
        }
        let Ok(tokens) = value.parse() else { return Err(format!("expected a number of tokens, found `{value}`")) };
        match name {
            "in" => usage.input = tokens,
            "out" => usage.output = tokens,
            "read" => usage.cache_read = tokens,
            "write" => usage.cache_write = tokens,
            _ => return Err(format!("expected `in=`, `out=`, `read=`, `write=` or `cost=`, found `{name}`")),
        }
    }
    usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
    Ok(usage)
}

fn stop_reason(scan: &mut LineScanner<'_>) -> Result<StopReason, SyntaxMessage> {
    match scan.word("a stop reason")? {
        "stop" => Ok(StopReason::Stop),
        "length" => Ok(StopReason::Length),
        "toolUse" => Ok(StopReason::ToolUse),
        "error" => Ok(StopReason::Error),
        "aborted" => Ok(StopReason::Aborted),
        word => Err(format!("expected `stop`, `length`, `toolUse`, `error` or `aborted`, found `{word}`")),
    }
}

fn failure(scan: &mut LineScanner<'_>) -> Result<Error, SyntaxMessage> {
    let kinds = [
        ("connect", ErrorKind::Connect),
        ("timeout", ErrorKind::Timeout),
        ("rate-limit", ErrorKind::RateLimit),
        ("overloaded", ErrorKind::Overloaded),
        ("server", ErrorKind::Server),
        ("auth", ErrorKind::Auth),
        ("billing", ErrorKind::Billing),
        ("rejected", ErrorKind::Rejected),
        ("misconfigured", ErrorKind::Misconfigured),
        ("overflow", ErrorKind::Overflow),
        ("content-filter", ErrorKind::ContentFilter),
        ("malformed", ErrorKind::Malformed),
        ("truncated", ErrorKind::Truncated),
    ];
    let word = scan.word("a kind of failure")?;
    match kinds.iter().find(|(name, _)| *name == word) {
        Some((_, kind)) => Ok(Error::new(*kind, scan.quoted()?)),
        None => Err(format!("expected {}, found `{word}`", kinds.map(|(name, _)| format!("`{name}`")).join(" or "))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn turn(line: &str) -> Vec<AnswerStep> {
        parse(&mut LineScanner::new(line)).unwrap().0
    }

    #[test]
    fn pieces_arrive_one_by_one() {
        let text = |text: &str| AnswerStep::Text(text.to_owned());
        let done = AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() });
        assert_eq!(
            turn("text \"a\" | 50ms | \"b; c\""),
            [text("a"), AnswerStep::Pause(Duration::from_millis(50)), text("b; c"), done]
        );
        assert_eq!(turn("text \"a\" ; cut"), [text("a")]);
    }
}
