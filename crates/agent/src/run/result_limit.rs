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

/// Truncates the text of a result to `room` characters. Pictures are kept: their size is limited where they are loaded.
pub(super) fn truncate_result(mut result: ToolResult, room: usize) -> ToolResult {
    let length = |block: &Block| match block {
        Block::Text(text) => text.text.chars().count(),
        Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => 0,
    };
    let total: usize = result.content.iter().map(length).sum();
    if total > room {
        let mut room = room;
        for block in &mut result.content {
            if let Block::Text(text) = block {
                let end = cut_offset(&text.text, room);
                room = room.saturating_sub(text.text.chars().count());
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
fn cut_offset(text: &str, room: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(room) else { return text.len() };
    match text[..end].rfind('\n') {
        Some(line) if line > end / 5 * 4 => line + 1,
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

    fn notice(had: usize, kept: usize) -> String {
        format!(
            "[This result had {had} characters. The first {kept} are kept; ask for less at a time to see the rest.]"
        )
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let result = ToolResult::text("é".repeat(MAX_RESULT_CHARS)).with_details(json!({"a": 1}));
        assert_eq!(truncate_result(result.clone(), MAX_RESULT_CHARS), result);
    }

    #[test]
    fn a_text_ends_behind_a_line_if_that_is_most_of_it() {
        let lines = "0123456789\n".repeat(40_000);
        assert_eq!(
            texts(&truncate_result(ToolResult::text(lines.clone()), MAX_RESULT_CHARS)),
            [&lines[..399_993], &notice(440_000, 399_993)]
        );
        let one = format!("a\n{}", "é".repeat(MAX_RESULT_CHARS));
        assert_eq!(
            texts(&truncate_result(ToolResult::text(&*one), MAX_RESULT_CHARS))[1],
            notice(MAX_RESULT_CHARS + 2, MAX_RESULT_CHARS)
        );
    }

    #[test]
    fn blocks_behind_the_one_that_is_cut_are_left_out() {
        let mut result = ToolResult::text("a".repeat(MAX_RESULT_CHARS - 1));
        result.content.extend([Block::text("bb"), Block::text("c")]);
        assert_eq!(
            texts(&truncate_result(result, MAX_RESULT_CHARS)),
            [&*"a".repeat(MAX_RESULT_CHARS - 1), "b", &notice(MAX_RESULT_CHARS + 2, MAX_RESULT_CHARS)]
        );
    }

    #[test]
    fn a_small_context_has_less_room() {
        assert_eq!(
            [0, 20_000, 200_000, 1_000_000].map(max_chars),
            [MAX_RESULT_CHARS, 24_000, 240_000, MAX_RESULT_CHARS]
        );
    }

    #[test]
    fn details_are_kept_whole_or_not_at_all() {
        let result = ToolResult::text("a").with_details(json!("x".repeat(MAX_RESULT_CHARS)));
        assert_eq!(
            truncate_result(result, MAX_RESULT_CHARS).details,
            Some(json!({"omitted": true, "bytes": MAX_RESULT_CHARS + 2}))
        );
    }
}
