//! Message content: text, images and files, in the formats of both APIs.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::refusal::Refusal;

/// Content of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Its text, including the text of files.
    pub(super) text: String,
    /// Its images as `data:` URLs.
    pub(super) pictures: Vec<String>,
}

impl Content {
    /// Parses a string or a list of parts; `place` is its path in the request. Missing content is empty.
    pub(super) fn read(value: &Value, place: &str) -> Result<Self, Refusal> {
        let parts = match value {
            Value::Null => return Ok(Self::default()),
            Value::String(text) => return Ok(Self { text: text.clone(), ..Self::default() }),
            Value::Array(parts) => parts,
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(Refusal::part(place, "must be a text or a list of parts"));
            }
        };
        let mut content = Self::default();
        for (number, part) in parts.iter().enumerate() {
            content.add(part, &format!("{place}[{number}]"))?;
        }
        Ok(content)
    }

    /// True if there is neither text nor image.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.pictures.is_empty()
    }

    fn add(&mut self, part: &Value, place: &str) -> Result<(), Refusal> {
        let text = |name: &str| {
            let place = format!("{place}.{name}");
            part[name].as_str().ok_or_else(|| Refusal::part(&place, "must be a text"))
        };
        match part["type"].as_str() {
            Some("text" | "input_text" | "output_text") => self.say(text("text")?),
            Some("refusal") => self.say(text("refusal")?),
            // The chat completions API wraps the URL in an object.
            Some("image_url" | "input_image") => {
                let address = part["image_url"]["url"].as_str().or(part["image_url"].as_str());
                let address = address.unwrap_or_default();
                base64_of(address, &format!("{place}.image_url"))?;
                self.pictures.push(address.to_owned());
            }
            Some("file") => self.attach(&part["file"], &format!("{place}.file"))?,
            Some("input_file") => self.attach(part, place)?,
            Some(other) => {
                let must =
                    format!("is a part of type \"{other}\", which is not supported; send text, pictures or text files");
                return Err(Refusal::part(place, &must));
            }
            None => return Err(Refusal::part(&format!("{place}.type"), "must say what the part is, such as \"text\"")),
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Appends a file's text to the content.
    fn attach(&mut self, file: &Value, place: &str) -> Result<(), Refusal> {
        let place = format!("{place}.file_data");
        let Some(data) = file["file_data"].as_str() else {
            return Err(Refusal::part(&place, "must hold the file; ids and addresses of files are not supported"));
        };
        let data = if data.starts_with("data:") { base64_of(data, &place)? } else { data };
        let bytes = BASE64_STANDARD.decode(data.trim());
        let bytes = bytes.map_err(|error| Refusal::part(&place, &format!("must be base64: {error}")))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Refusal::part(&place, &format!("must be a text file in UTF-8: {}", error.utf8_error())))?;
        let name = file["filename"].as_str().unwrap_or("file").replace(['"', '\n', '<', '>'], "_");
        self.say(&format!("<file name=\"{name}\">\n{}\n</file>", text.trim_end()));
        Ok(())
    }
}

/// Returns the base64 payload of a `data:` URL.
fn base64_of<'a>(address: &'a str, place: &str) -> Result<&'a str, Refusal> {
    let data = address.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    let must =
        "must be a data: address in base64, such as \"data:image/png;base64,…\"; nothing is fetched from elsewhere";
    data.map(|(_, data)| data).ok_or_else(|| Refusal::part(place, must))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Content, String> {
        Content::read(value, "content").map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn text_is_text_however_it_is_spelled() {
        let text = |text: &str| Ok(Content { text: text.to_owned(), pictures: Vec::new() });
        assert_eq!(read(&json!("hi")), text("hi"));
        assert_eq!(read(&Value::Null), text(""));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]);
        assert_eq!(read(&parts), text("a\nb\nc"));
    }

    #[test]
    fn pictures_and_text_files_come_in_base64() {
        let pictures = ["data:image/png;base64,AAEC", "data:image/png;base64,AwQ="].map(str::to_owned);
        let parts = json!([
            {"type": "image_url", "image_url": {"url": pictures[0]}},
            {"type": "input_image", "image_url": pictures[1]},
        ]);
        assert_eq!(read(&parts), Ok(Content { text: String::new(), pictures: pictures.to_vec() }));
        let files = json!([
            {"type": "input_file", "filename": "a\".txt", "file_data": "data:text/plain;base64,aGkK"},
            {"type": "file", "file": {"filename": "b.txt", "file_data": "aG8="}},
        ]);
        let text = "<file name=\"a_.txt\">\nhi\n</file>\n<file name=\"b.txt\">\nho\n</file>";
        assert_eq!(read(&files), Ok(Content { text: text.to_owned(), pictures: Vec::new() }));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (content, why) in [
            (json!(7), "content must be a text or a list of parts"),
            (json!([{"text": "x"}]), "content[0].type must say what the part is, such as \"text\""),
            (json!([{"type": "text"}]), "content[0].text must be a text"),
            (
                json!([{"type": "input_audio"}]),
                "content[0] is a part of type \"input_audio\", which is not supported; send text, pictures or text files",
            ),
            (
                json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
                "content[0].image_url must be a data: address in base64, such as \"data:image/png;base64,…\"; \
                 nothing is fetched from elsewhere",
            ),
            (
                json!([{"type": "input_file", "file_id": "file-1"}]),
                "content[0].file_data must hold the file; ids and addresses of files are not supported",
            ),
            (
                json!([{"type": "input_file", "file_data": "/w=="}]),
                "content[0].file_data must be a text file in UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
            ),
        ] {
            assert_eq!(read(&content), Err(why.to_owned()));
        }
    }
}
