//! Multipart form encoding.

use serde_json::{Map, Value};

/// A form with files.
#[derive(Debug)]
pub(crate) struct MultipartForm {
    /// Parameters of the method.
    pub(crate) params: Map<String, Value>,
    /// The files.
    pub(crate) files: Vec<FormFile>,
}

/// A file of a form.
#[derive(Debug)]
pub(crate) struct FormFile {
    /// Name of its parameter.
    pub(crate) field: String,
    /// File name.
    pub(crate) name: String,
    /// MIME type.
    pub(crate) mime: String,
    /// Content of the file.
    pub(crate) bytes: Vec<u8>,
}

/// An encoded form.
#[derive(Debug)]
pub(crate) struct EncodedForm {
    /// Value of the `Content-Type` header.
    pub(crate) content_type: String,
    /// Request body.
    pub(crate) body: Vec<u8>,
}

impl MultipartForm {
    /// Encodes the form, with a boundary that does not occur in the content.
    pub(crate) fn encode(&self) -> EncodedForm {
        let fields: Vec<(&str, String)> =
            self.params.iter().map(|(name, value)| (name.as_str(), plain(value))).collect();
        let is_used = |boundary: &str| {
            let holds = |bytes: &[u8]| bytes.windows(boundary.len()).any(|window| window == boundary.as_bytes());
            self.files.iter().any(|file| holds(&file.bytes)) || fields.iter().any(|(_, value)| holds(value.as_bytes()))
        };
        let mut boundary = "homard-7c1f0b5e2d".to_owned();
        while is_used(&boundary) {
            boundary.push('x');
        }
        let mut body = Vec::with_capacity(self.files.iter().map(|file| file.bytes.len() + 1024).sum());
        for (name, value) in &fields {
            let header = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"\r\n\r\n", quoted(name));
            body.extend_from_slice(header.as_bytes());
            body.extend_from_slice(value.as_bytes());
            body.extend_from_slice(b"\r\n");
        }
        for file in &self.files {
            let (field, name, mime) = (quoted(&file.field), quoted(&file.name), quoted(&file.mime));
            let header = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
                 content-type: {mime}\r\n\r\n"
            );
            body.extend_from_slice(header.as_bytes());
            body.extend_from_slice(&file.bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        EncodedForm { content_type: format!("multipart/form-data; boundary={boundary}"), body }
    }
}

/// Converts a parameter: strings as they are, others as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Sanitises a text for use within quotes in a header.
fn quoted(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).map(|c| if matches!(c, '"' | '\\') { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_has_its_parameters_and_its_file() {
        let params = json!({"chat_id": -7, "caption": "hi"}).as_object().cloned().unwrap();
        let (name, mime) = ("a\"\r\nb.png".to_owned(), "image/png".to_owned());
        let file = FormFile { field: "photo".to_owned(), name, mime, bytes: b"\x89PNG".to_vec() };
        let form = MultipartForm { params, files: vec![file] };
        let EncodedForm { content_type, body } = form.encode();
        assert_eq!(content_type, "multipart/form-data; boundary=homard-7c1f0b5e2d");
        assert_eq!(
            String::from_utf8_lossy(&body),
            "--homard-7c1f0b5e2d\r\ncontent-disposition: form-data; name=\"chat_id\"\r\n\r\n-7\r\n\
             --homard-7c1f0b5e2d\r\ncontent-disposition: form-data; name=\"caption\"\r\n\r\nhi\r\n\
             --homard-7c1f0b5e2d\r\ncontent-disposition: form-data; name=\"photo\"; filename=\"a_b.png\"\r\n\
             content-type: image/png\r\n\r\n\u{fffd}PNG\r\n--homard-7c1f0b5e2d--\r\n"
        );
    }

    #[test]
    fn the_boundary_does_not_occur_in_the_file() {
        let file = FormFile {
            field: "document".to_owned(),
            name: "x".to_owned(),
            mime: "text/plain".to_owned(),
            bytes: b"--homard-7c1f0b5e2dx--".to_vec(),
        };
        let form = MultipartForm { params: Map::new(), files: vec![file] };
        assert_eq!(form.encode().content_type, "multipart/form-data; boundary=homard-7c1f0b5e2dxx");
    }
}
