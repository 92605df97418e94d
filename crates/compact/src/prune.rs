//! Pruning: omits old tool results from requests once the provider's prompt cache has expired.
//!
//! A result that was cut once is always cut the same way: [`ResultCuts`] is stored with the session and yields the same
//! bytes each time. More is cut only after the cache has expired, so no cut invalidates a live cache.

use std::{collections::BTreeMap, sync::Arc};

use homard_proto::{
    EntryId,
    message::{Block, Content, Message, ToolResult},
};
use serde::{Deserialize, Serialize};

use crate::{cut, notice};

/// Characters that an image counts as.
const IMAGE_CHARS: u64 = 8_000;

/// Default placeholder for an omitted result.
pub const DEFAULT_PLACEHOLDER: &str =
    "[This old tool result was left out to save room. Run the tool again if it is needed.]";

/// Pruning settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Lifetime of the provider's cache in milliseconds.
    pub ttl: u64,
    /// Number of last assistant messages that are left alone, with everything after them.
    pub keep_last_assistants: usize,
    /// Share of the window above which long results lose their middle.
    pub soft_ratio: f64,
    /// Share of the window above which results are omitted, oldest first.
    pub hard_ratio: f64,
    /// Minimum total characters of the prunable results for omitting any.
    pub min_prunable: u64,
    /// Number of characters above which a result is long.
    pub soft_max: usize,
    /// Characters kept of the beginning of a long result.
    pub soft_head: usize,
    /// Characters kept of its end.
    pub soft_tail: usize,
    /// Placeholder for an omitted result.
    pub placeholder: String,
    /// Tools whose results may be cut; empty for all. `*` matches anything.
    pub allow: Vec<String>,
    /// Tools whose results may not be cut; takes precedence.
    pub deny: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: 300_000,
            keep_last_assistants: 3,
            soft_ratio: 0.3,
            hard_ratio: 0.5,
            min_prunable: 50_000,
            soft_max: 4_000,
            soft_head: 1_500,
            soft_tail: 1_500,
            placeholder: DEFAULT_PLACEHOLDER.to_owned(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// How a result was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultCut {
    /// It lost its middle; the numbers are those of the settings at that time.
    Middle {
        /// Characters kept of its beginning.
        head: usize,
        /// Characters kept of its end.
        tail: usize,
    },
    /// It was omitted.
    Whole,
}

/// A message of a conversation, with the name under which a cut is stored.
#[derive(Debug, Clone)]
pub struct NamedMessage {
    /// Name. Only tool results are cut, so other messages need no unique name.
    pub name: EntryId,
    /// The message.
    pub message: Arc<Message>,
}

/// Cut results by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResultCuts(BTreeMap<EntryId, ResultCut>);

impl ResultCuts {
    /// Returns the number of cut results.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Time of the last use of the provider's cache and the current time, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct CacheTimes {
    /// Last use; `None` if never.
    pub touched: Option<u64>,
    /// Current time.
    pub now: u64,
}

/// Messages of a request after pruning.
#[derive(Debug, Clone, PartialEq)]
pub struct PrunedRequest {
    /// The messages; those that were not cut are shared.
    pub messages: Vec<Arc<Message>>,
    /// Cuts, to be stored.
    pub cuts: ResultCuts,
    /// True if something was newly cut: the cache then counts as used now.
    pub has_changed: bool,
}

/// True if pruning applies to a model: its provider has a prompt cache with a known lifetime.
pub fn applies(provider: &str, model: &str) -> bool {
    let starts_with =
        |text: &str, prefix: &str| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    provider.eq_ignore_ascii_case("anthropic")
        || (provider.eq_ignore_ascii_case("openrouter") && starts_with(model, "anthropic/"))
}

/// Prunes the lines of a request. `window` is the model's, in tokens.
pub fn prune(
    lines: &[NamedMessage],
    previous_cuts: &ResultCuts,
    times: CacheTimes,
    settings: &Settings,
    window: u64,
) -> PrunedRequest {
    let mut shown: Vec<_> = lines.iter().map(|line| previous_cuts.show(line, settings)).collect();
    // Cuts of messages that are no longer shown are dropped.
    let is_cut = |line: &&NamedMessage| previous_cuts.0.contains_key(&line.name);
    let mut cuts = ResultCuts(
        lines
            .iter()
            .filter(is_cut)
            .filter_map(|line| Some((line.name.clone(), *previous_cuts.0.get(&line.name)?)))
            .collect(),
    );
    let has_expired = times.touched.is_some_and(|touched| times.now.saturating_sub(touched) >= settings.ttl);
    let mut has_changed = false;
    if let Some(prunable) = has_expired.then(|| prunable(lines, previous_cuts, settings)).flatten() {
        for (index, cut) in further_cuts(&shown, &prunable, settings, window.saturating_mul(4)) {
            let line = &lines[index];
            cuts.0.insert(line.name.clone(), cut);
            shown[index] = cuts.show(line, settings);
            has_changed = true;
        }
    }
    PrunedRequest { messages: shown, cuts, has_changed }
}

impl ResultCuts {
    /// Returns a message as it is sent: with its cut, if it has one.
    fn show(&self, line: &NamedMessage, settings: &Settings) -> Arc<Message> {
        match (self.0.get(&line.name), &*line.message) {
            (Some(cut), Message::ToolResult(result)) => Arc::new(Message::ToolResult(cut.of(result, settings))),
            _ => line.message.clone(),
        }
    }
}

impl ResultCut {
    /// Applies the cut to a result: removes the middle of its text, or replaces the text by the placeholder.
    fn of(self, result: &ToolResult, settings: &Settings) -> ToolResult {
        let text = match self {
            // Taken from the config, not stored with each cut: a change of the config then invalidates the provider's
            // prompt cache once, which costs less than storing the text many times.
            Self::Whole => settings.placeholder.clone(),
            Self::Middle { head, tail } => {
                let text = result_text(result);
                let (text, original_length) = notice::strip(&text);
                let length = text.chars().count();
                let (start, end) = (cut::first(text, head), cut::last(text, tail));
                let range = match original_length {
                    None => format!("the first {head} and last {tail} of {length} characters"),
                    // The end of the stored text is not the end of the tool's output.
                    Some(all) => {
                        let tail_start = length.saturating_sub(tail) + 1;
                        format!("characters 1 to {head} and {tail_start} to {length} of {all}")
                    }
                };
                format!("{start}\n...\n{end}\n\n[Shortened: {range}.]")
            }
        };
        ToolResult { content: vec![Block::text(text)], ..result.clone() }
    }
}

/// A line that may be cut, or cut further.
struct Prunable {
    index: usize,
    was_cut: bool,
}

/// Returns the lines that may be cut: tool results between the first user message and the last assistant messages.
fn prunable(lines: &[NamedMessage], previous_cuts: &ResultCuts, settings: &Settings) -> Option<Vec<Prunable>> {
    let is_answer = |line: &NamedMessage| matches!(*line.message, Message::Assistant(_));
    let first = lines.iter().position(|line| matches!(*line.message, Message::User(_)))?;
    let end = match settings.keep_last_assistants.checked_sub(1) {
        Some(skipped) => (0..lines.len()).rev().filter(|&index| is_answer(&lines[index])).nth(skipped)?,
        None => lines.len(),
    };
    let is_prunable = |index: &usize| match &*lines[*index].message {
        Message::ToolResult(result) => {
            let has_image = result.content.iter().any(|block| matches!(block, Block::Image(_)));
            !has_image && settings.allows(&result.tool_name)
        }
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => false,
    };
    let prunable = |index: usize| Prunable { index, was_cut: previous_cuts.0.contains_key(&lines[index].name) };
    Some((first..end).filter(is_prunable).map(prunable).collect())
}

/// Chooses further cuts, in the order of the lines.
fn further_cuts(
    shown: &[Arc<Message>],
    prunable: &[Prunable],
    settings: &Settings,
    window: u64,
) -> BTreeMap<usize, ResultCut> {
    let mut cuts = BTreeMap::new();
    let mut total: u64 = shown.iter().map(|message| characters(message)).sum();
    let is_above = |total: u64, ratio: f64| window > 0 && total as f64 / window as f64 >= ratio;
    if !is_above(total, settings.soft_ratio) {
        return cuts;
    }
    let mut remaining = Vec::new();
    for &Prunable { index, was_cut } in prunable {
        let Message::ToolResult(result) = &*shown[index] else { continue };
        let mut length = characters(&shown[index]);
        let soft = ResultCut::Middle { head: settings.soft_head, tail: settings.soft_tail };
        if !was_cut && length > settings.soft_max as u64 {
            let cut_length = characters(&Message::ToolResult(soft.of(result, settings)));
            if cut_length < length {
                cuts.insert(index, soft);
                total -= length - cut_length;
                length = cut_length;
            }
        }
        remaining.push((index, length));
    }
    if remaining.iter().map(|(_, length)| length).sum::<u64>() < settings.min_prunable {
        return cuts;
    }
    let placeholder = settings.placeholder.chars().count() as u64;
    for (index, length) in remaining.into_iter().filter(|(_, length)| *length > placeholder) {
        if !is_above(total, settings.hard_ratio) {
            break;
        }
        cuts.insert(index, ResultCut::Whole);
        total -= length - placeholder;
    }
    cuts
}

/// Returns the characters that a message counts as.
fn characters(message: &Message) -> u64 {
    let of_text = |text: &str| text.chars().count() as u64;
    let of_block = |block: &Block| match block {
        Block::Text(text) => of_text(&text.text),
        Block::Thinking(thinking) => of_text(&thinking.thinking),
        Block::Image(_) => IMAGE_CHARS,
        Block::ToolCall(call) => of_text(&call.arguments.to_string()),
        Block::Other(_) => 0,
    };
    match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => of_text(text),
            Content::Blocks(blocks) => blocks.iter().map(of_block).sum(),
        },
        Message::Assistant(assistant) => assistant.content.iter().map(of_block).sum(),
        Message::ToolResult(result) => result.content.iter().map(of_block).sum(),
        Message::Other(_) => 0,
    }
}

fn result_text(result: &ToolResult) -> String {
    result.content.iter().filter_map(Block::as_text).collect::<Vec<_>>().join("\n")
}

impl Settings {
    fn allows(&self, tool: &str) -> bool {
        let tool = tool.to_lowercase();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(&pattern.trim().to_lowercase(), &tool));
        !any(&self.deny) && (self.allow.is_empty() || any(&self.allow))
    }
}

/// Matches a name against a pattern in which `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    let mut middle: Vec<_> = rest.split('*').collect();
    let end = middle.pop().unwrap_or_default();
    let mut name = name;
    for part in middle {
        let Some(offset) = name.find(part) else { return false };
        name = &name[offset + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests;
