//! Parser for multipart forms with files.

use serde_json::{Map, Value, json};

use crate::fake_http::FakeHttpRequest;

/// A file of a form: parameter, file name and bytes.
pub(crate) type FormFile = (String, String, Vec<u8>);

/// Returns the parameters and the files of a form; `None` if the request has no form.
pub(crate) fn read(request: &FakeHttpRequest) -> Option<(Value, Vec<FormFile>)> {
    let boundary = request.header("content-type")?.strip_prefix("multipart/form-data; boundary=")?;
    let boundary = format!("--{boundary}").into_bytes();
    let (mut params, mut files) = (Map::new(), Vec::new());
    for part in split(&request.body, &boundary) {
        let at = part.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&part[..at]).into_owned();
        let body = part[at + 4..].strip_suffix(b"\r\n")?;
        let name = quoted(&head, " name=\"")?;
        match quoted(&head, "filename=\"") {
            Some(file_name) => files.push((name, file_name, body.to_vec())),
            None => {
                params.insert(name, json!(String::from_utf8_lossy(body)));
            }
        }
    }
    Some((Value::Object(params), files))
}

/// Returns the parts between boundaries, without preamble and epilogue.
fn split<'a>(body: &'a [u8], boundary: &[u8]) -> Vec<&'a [u8]> {
    let positions = body.windows(boundary.len()).enumerate().filter(|(_, window)| *window == boundary);
    let positions: Vec<usize> = positions.map(|(at, _)| at).collect();
    positions.windows(2).map(|pair| &body[pair[0] + boundary.len()..pair[1]]).collect()
}

fn quoted(head: &str, before: &str) -> Option<String> {
    let (_, rest) = head.split_once(before)?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}
