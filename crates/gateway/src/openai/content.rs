//! Message content: text, images and files, in the formats of both APIs.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::error::ApiError;

/// Content of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MessageContent {
    /// Its text, including the text of files.
    pub(super) text: String,
    /// Its images as `data:` URLs.
    pub(super) images: Vec<String>,
}

impl MessageContent {
    /// Parses a string or a list of parts; `path` is its path in the request. Missing content is empty.
    pub(super) fn read(value: &Value, path: &str) -> Result<Self, ApiError> {
        let parts = match value {
            Value::Null => return Ok(Self::default()),
            Value::String(text) => return Ok(Self { text: text.clone(), ..Self::default() }),
            Value::Array(parts) => parts,
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(ApiError::invalid_field(path, "must be a string or a list of parts"));
            }
        };
        let mut content = Self::default();
        for (number, part) in parts.iter().enumerate() {
            content.add(part, &format!("{path}[{number}]"))?;
        }
        Ok(content)
    }

    /// True if there is neither text nor image.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }

    fn add(&mut self, part: &Value, path: &str) -> Result<(), ApiError> {
        let text = |name: &str| {
            let path = format!("{path}.{name}");
            part[name].as_str().ok_or_else(|| ApiError::invalid_field(&path, "must be a string"))
        };
        match part["type"].as_str() {
            Some("text" | "input_text" | "output_text") => self.push_text(text("text")?),
            Some("refusal") => self.push_text(text("refusal")?),
            // The chat completions API wraps the URL in an object.
            Some("image_url" | "input_image") => {
                let url = part["image_url"]["url"].as_str().or(part["image_url"].as_str());
                let url = url.unwrap_or_default();
                base64_of(url, &format!("{path}.image_url"))?;
                self.images.push(url.to_owned());
            }
            Some("file") => self.attach(&part["file"], &format!("{path}.file"))?,
            Some("input_file") => self.attach(part, path)?,
            Some(other) => {
                let problem = format!("has the unsupported type \"{other}\"; send text, images or text files");
                return Err(ApiError::invalid_field(path, &problem));
            }
            None => {
                return Err(ApiError::invalid_field(
                    &format!("{path}.type"),
                    "must be the type of the part, such as \"text\"",
                ));
            }
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Appends a file's text to the content.
    fn attach(&mut self, file: &Value, path: &str) -> Result<(), ApiError> {
        let path = format!("{path}.file_data");
        let Some(data) = file["file_data"].as_str() else {
            return Err(ApiError::invalid_field(&path, "must contain the file; file ids and URLs are not supported"));
        };
        let data = if data.starts_with("data:") { base64_of(data, &path)? } else { data };
        let bytes = BASE64_STANDARD.decode(data.trim());
        let bytes = bytes.map_err(|error| ApiError::invalid_field(&path, &format!("must be base64: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            ApiError::invalid_field(&path, &format!("must be a text file in UTF-8: {}", error.utf8_error()))
        })?;
        let name = file["filename"].as_str().unwrap_or("file").replace(['"', '\n', '<', '>'], "_");
        self.push_text(&format!("<file name=\"{name}\">\n{}\n</file>", text.trim_end()));
        Ok(())
    }
}

/// Returns the base64 payload of a `data:` URL.
fn base64_of<'a>(url: &'a str, path: &str) -> Result<&'a str, ApiError> {
    let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    let problem = "must be a base64 data: URL, such as \"data:image/png;base64,…\"; other URLs are not fetched";
    data.map(|(_, data)| data).ok_or_else(|| ApiError::invalid_field(path, problem))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<MessageContent, String> {
        MessageContent::read(value, "content").map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn text_is_text_however_it_is_spelled() {
        let text = |text: &str| Ok(MessageContent { text: text.to_owned(), images: Vec::new() });
        assert_eq!(read(&json!("hi")), text("hi"));
        assert_eq!(read(&Value::Null), text(""));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]);
        assert_eq!(read(&parts), text("a\nb\nc"));
    }

    #[test]
    fn images_and_text_files_are_read_from_base64() {
        let images = ["data:image/png;base64,AAEC", "data:image/png;base64,AwQ="].map(str::to_owned);
        let parts = json!([
            {"type": "image_url", "image_url": {"url": images[0]}},
            {"type": "input_image", "image_url": images[1]},
        ]);
        assert_eq!(read(&parts), Ok(MessageContent { text: String::new(), images: images.to_vec() }));
        let files = json!([
            {"type": "input_file", "filename": "a\".txt", "file_data": "data:text/plain;base64,aGkK"},
            {"type": "file", "file": {"filename": "b.txt", "file_data": "aG8="}},
        ]);
        let text = "<file name=\"a_.txt\">\nhi\n</file>\n<file name=\"b.txt\">\nho\n</file>";
        assert_eq!(read(&files), Ok(MessageContent { text: text.to_owned(), images: Vec::new() }));
    }

    #[test]
    fn errors_name_the_invalid_field() {
        for (content, message) in [
            (json!(7), "content must be a string or a list of parts"),
            (json!([{"text": "x"}]), "content[0].type must be the type of the part, such as \"text\""),
            (json!([{"type": "text"}]), "content[0].text must be a string"),
            (
                json!([{"type": "input_audio"}]),
                "content[0] has the unsupported type \"input_audio\"; send text, images or text files",
            ),
            (
                json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
                "content[0].image_url must be a base64 data: URL, such as \"data:image/png;base64,…\"; other URLs are \
                 not fetched",
            ),
            (
                json!([{"type": "input_file", "file_id": "file-1"}]),
                "content[0].file_data must contain the file; file ids and URLs are not supported",
            ),
            (
                json!([{"type": "input_file", "file_data": "/w=="}]),
                "content[0].file_data must be a text file in UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
            ),
        ] {
            assert_eq!(read(&content), Err(message.to_owned()));
        }
    }
}
