//! Size limit for tool results in transcripts and contexts.

use homard_compact::notice;
use homard_proto::message::Block;
use serde_json::json;

use crate::tool::ToolResult;

/// Maximum characters of a result's text, and maximum bytes of its details.
const MAX_RESULT_CHARS: usize = 400_000;

/// Maximum characters of a result's text for a model with this context window: three tenths of the window, at four
/// characters per token.
pub(super) fn max_chars(window: u64) -> usize {
    match window {
        0 => MAX_RESULT_CHARS,
        window => usize::try_from(window / 10 * 3 * 4).unwrap_or(MAX_RESULT_CHARS).min(MAX_RESULT_CHARS),
    }
}

/// Truncates the text of a result to `limit` characters. Pictures are kept: their size is limited on loading.
pub(super) fn truncate_result(mut result: ToolResult, limit: usize) -> ToolResult {
    let length = |block: &Block| match block {
        Block::Text(text) => text.text.chars().count(),
        Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => 0,
    };
    let total: usize = result.content.iter().map(length).sum();
    if total > limit {
        let mut limit = limit;
        for block in &mut result.content {
            if let Block::Text(text) = block {
                let end = cut_offset(&text.text, limit);
                limit = limit.saturating_sub(text.text.chars().count());
                text.text.truncate(end);
            }
        }
        result.content.retain(|block| !matches!(block, Block::Text(text) if text.text.is_empty()));
        let kept: usize = result.content.iter().map(length).sum();
        result.content.push(Block::text(notice::stored_note(total, kept)));
    }
    result.details = result.details.map(|details| match details.to_string().len() {
        bytes if bytes > MAX_RESULT_CHARS => json!({"omitted": true, "bytes": bytes}),
        _ => details,
    });
    result
}

/// Returns the byte offset to cut a text at: after the last complete line if that keeps most of it.
fn cut_offset(text: &str, limit: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text.len() };
    match text[..end].rfind('\n') {
        Some(newline) if newline > end / 5 * 4 => newline + 1,
        Some(_) | None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(result: &ToolResult) -> Vec<&str> {
        let texts = result.content.iter().map(|block| match block {
            Block::Text(text) => Some(&*text.text),
            Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        texts.flatten().collect()
    }

    fn truncation_note(total: usize, kept: usize) -> String {
        format!(
            "[This result had {total} characters. The first {kept} are kept; ask for less at a time to see the rest.]"
        )
    }

    #[test]
    fn a_result_within_the_limit_is_unchanged() {
        let result = ToolResult::text("é".repeat(MAX_RESULT_CHARS)).with_details(json!({"a": 1}));
        assert_eq!(truncate_result(result.clone(), MAX_RESULT_CHARS), result);
    }

    #[test]
    fn a_text_is_cut_after_a_line_if_that_keeps_most_of_it() {
        let lines = "0123456789\n".repeat(40_000);
        assert_eq!(
            texts(&truncate_result(ToolResult::text(lines.clone()), MAX_RESULT_CHARS)),
            [&lines[..399_993], &truncation_note(440_000, 399_993)]
        );
        let long_line = format!("a\n{}", "é".repeat(MAX_RESULT_CHARS));
        assert_eq!(
            texts(&truncate_result(ToolResult::text(&*long_line), MAX_RESULT_CHARS))[1],
            truncation_note(MAX_RESULT_CHARS + 2, MAX_RESULT_CHARS)
        );
    }

    #[test]
    fn blocks_after_the_truncated_one_are_dropped() {
        let mut result = ToolResult::text("a".repeat(MAX_RESULT_CHARS - 1));
        result.content.extend([Block::text("bb"), Block::text("c")]);
        assert_eq!(
            texts(&truncate_result(result, MAX_RESULT_CHARS)),
            [&*"a".repeat(MAX_RESULT_CHARS - 1), "b", &truncation_note(MAX_RESULT_CHARS + 2, MAX_RESULT_CHARS)]
        );
    }

    #[test]
    fn a_small_context_window_has_a_lower_limit() {
        assert_eq!(
            [0, 20_000, 200_000, 1_000_000].map(max_chars),
            [MAX_RESULT_CHARS, 24_000, 240_000, MAX_RESULT_CHARS]
        );
    }

    #[test]
    fn details_are_kept_whole_or_omitted() {
        let result = ToolResult::text("a").with_details(json!("x".repeat(MAX_RESULT_CHARS)));
        assert_eq!(
            truncate_result(result, MAX_RESULT_CHARS).details,
            Some(json!({"omitted": true, "bytes": MAX_RESULT_CHARS + 2}))
        );
    }
}
