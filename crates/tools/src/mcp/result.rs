//! Converts a server's response to a tool result.

use base64::{Engine, engine::general_purpose::STANDARD};
use homard_agent::tool::ToolResult;
use homard_media::{ImageLimits, fit};
use homard_proto::message::Block;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::json;

use crate::external::{clean, line};

/// Maximum number of images per result.
const MAX_IMAGES: usize = 8;

/// Maximum length of names and descriptions from a server, in characters.
const MAX_NAME_CHARS: usize = 500;

/// Converts the result of a tool call. Resizes images, which is slow: call it on a blocking thread.
pub(super) fn tool_result(server: &str, tool: &str, answer: CallToolResult) -> ToolResult {
    let mut pictures = 0;
    let mut content: Vec<Block> = answer.content.into_iter().map(|block| convert_block(block, &mut pictures)).collect();
    if content.is_empty() {
        let structured = answer.structured_content.as_ref().map(|value| clean(&format!("{value:#}")));
        content.push(Block::text(structured.unwrap_or_else(|| "(no output)".to_owned())));
    }
    let mut details = json!({"server": server, "tool": tool});
    if let Some(structured) = answer.structured_content {
        details["structuredContent"] = structured;
    }
    ToolResult { content, details: Some(details), is_error: answer.is_error.unwrap_or(false) }
}

fn convert_block(block: ContentBlock, pictures: &mut usize) -> Block {
    match block {
        ContentBlock::Text(text) => Block::text(clean(&text.text)),
        ContentBlock::Image(image) => convert_image(&image.data, &image.mime_type, pictures),
        ContentBlock::Audio(audio) => omitted_block("audio", &audio.mime_type, "audio is not supported"),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                Block::text(format!("[resource {}]\n{}", line(&uri, MAX_NAME_CHARS), clean(&text)))
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => match mime_type {
                Some(mime) if mime.starts_with("image/") => convert_image(&blob, &mime, pictures),
                mime => omitted_block(
                    "resource",
                    &uri,
                    &format!("not text but {}", mime.unwrap_or_else(|| "bytes".to_owned())),
                ),
            },
            _ => omitted_block("resource", "", "unknown content type"),
        },
        ContentBlock::ResourceLink(link) => {
            let description = link.description.or(link.title).unwrap_or_default();
            Block::text(format!(
                "[resource {} at {}] {}",
                line(&link.name, MAX_NAME_CHARS),
                line(&link.uri, MAX_NAME_CHARS),
                line(&description, MAX_NAME_CHARS)
            ))
        }
        _ => omitted_block("content", "", "unknown content type"),
    }
}

fn convert_image(data: &str, mime: &str, pictures: &mut usize) -> Block {
    *pictures += 1;
    if *pictures > MAX_IMAGES {
        return omitted_block("picture", mime, "too many pictures");
    }
    let Ok(bytes) = STANDARD.decode(data.trim()) else { return omitted_block("picture", mime, "invalid Base64") };
    match fit(bytes, &ImageLimits::default()) {
        Ok(picture) => picture.into_block(),
        Err(error) => omitted_block("picture", mime, &error.to_string()),
    }
}

fn omitted_block(kind: &str, description: &str, reason: &str) -> Block {
    Block::text(format!(
        "[{kind} {} is not shown: {}]",
        line(description, MAX_NAME_CHARS),
        line(reason, MAX_NAME_CHARS)
    ))
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolResult;
    use serde_json::{Value, from_value};

    use super::*;

    /// A GIF of one pixel.
    const GIF: &str = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";

    fn answered(answer: Value) -> ToolResult {
        let answer: CallToolResult = from_value(answer).unwrap();
        tool_result("s", "t", answer)
    }

    fn texts(result: &ToolResult) -> Vec<String> {
        let text = |block: &Block| match block {
            Block::Text(text) => text.text.clone(),
            Block::Image(image) => image.mime_type.clone(),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => panic!("{block:?}"),
        };
        result.content.iter().map(text).collect()
    }

    #[test]
    fn every_kind_of_content_is_converted() {
        let result = answered(json!({"content": [
            {"type": "text", "text": "a\u{202e}b"},
            {"type": "image", "data": GIF, "mimeType": "image/gif"},
            {"type": "image", "data": "!", "mimeType": "image/png"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": GIF, "mimeType": "image/gif"}},
            {"type": "resource_link", "uri": "file:///d", "name": "d", "description": "more"},
        ]}));
        assert_eq!(
            texts(&result),
            [
                "ab",
                "image/gif",
                "[picture image/png is not shown: invalid Base64]",
                "[picture image/png is not shown: not a PNG, JPEG, GIF or WebP image]",
                "[audio audio/wav is not shown: audio is not supported]",
                "[resource file:///a]\ninside",
                "[resource file:///b is not shown: not text but bytes]",
                "image/gif",
                "[resource d at file:///d] more",
            ]
        );
        assert_eq!((result.is_error, result.details), (false, Some(json!({"server": "s", "tool": "t"}))));
    }

    #[test]
    fn a_result_without_content_is_its_structured_value_or_empty() {
        let structured = answered(json!({"content": [], "structuredContent": {"a": 1}}));
        assert_eq!(texts(&structured), ["{\n  \"a\": 1\n}"]);
        assert_eq!(structured.details, Some(json!({"server": "s", "tool": "t", "structuredContent": {"a": 1}})));
        assert_eq!(texts(&answered(json!({"content": []}))), ["(no output)"]);
    }

    #[test]
    fn a_failure_is_one() {
        let result = answered(json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert!(result.is_error);
    }

    #[test]
    fn images_are_limited() {
        let picture = json!({"type": "image", "data": GIF, "mimeType": "image/gif"});
        let result = answered(json!({"content": vec![picture; 10]}));
        let image_count = result.content.iter().filter(|block| matches!(block, Block::Image(_))).count();
        assert_eq!((image_count, texts(&result).len()), (8, 10));
    }
}
