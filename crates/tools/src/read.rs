//! The `read` tool: reads a text file, a page of it, or an image.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom},
    os::unix::fs::FileExt,
};

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use homard_media::{FitError, ImageLimits, fit};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Error, FileAccess,
    cancel_reader::CancelReader,
    either,
    error::{MachineError, PathError},
    on_disk,
    page::{FilePage, MAX_LINES, PageStart},
};

/// Number of bytes that decide whether a file is text.
const SAMPLE_BYTES: usize = 8 * 1024;

/// Maximum size of an image file in MiB.
const MAX_IMAGE_MIB: u64 = 16;

/// UTF-8 byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads a text file, a page of it, or an image.
#[derive(Debug, Clone, Default)]
pub struct Read {
    files: FileAccess,
}

impl Read {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[derive(Deserialize)]
struct Args {
    path: Option<String>,
    file_path: Option<String>,
    offset: Option<f64>,
    limit: Option<f64>,
    cursor: Option<f64>,
    #[serde(default)]
    optional: bool,
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read".to_owned(),
            description: "Read a text file or a picture (PNG, JPEG, GIF, WebP) of the workspace. Returns at most 2000 \
                          lines or 50 KiB of a text; a longer one ends with a notice that says how to read on."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": [],
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the workspace"},
                    "offset": {"type": "number", "description": "First line to return, counted from 1"},
                    "limit": {"type": "number", "description": "How many lines to return at most"},
                    "cursor": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Where to read on in a very long line, as the notice gave it; instead of offset",
                    },
                    "optional": {"type": "boolean", "description": "Do not fail if the file does not exist"},
                    "file_path": {"type": "string", "description": "Another name for path"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Read
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        let files = self.files.clone();
        on_disk("read", arguments, move |arguments| read(&cx, &files, arguments)).await
    }
}

fn read(cx: &ToolCx, files: &FileAccess, arguments: Args) -> Result<ToolResult, Error> {
    let path = either(arguments.path, arguments.file_path)?;
    let (guard, inside) = files.open_for_reading(cx, &path)?;
    let found = guard.file(&inside);
    if arguments.optional
        && matches!(
            found,
            Err(Error::Path(PathError::Missing { .. }) | Error::Path(PathError::MissingWithSuggestion { .. }))
        )
    {
        return Ok(ToolResult::text(format!("({path} does not exist)")));
    }
    let mut file = found?;
    let failed = |source| Error::Machine(MachineError::Io { path: path.clone(), source });
    let mut sample = [0; SAMPLE_BYTES];
    let size = file.metadata().map_err(failed)?.len();
    let length = file.read_at(&mut sample, 0).map_err(failed)?;
    let sample = &sample[..length];
    if !is_text(sample) {
        return read_image(path, file, sample);
    }
    let text = if sample.starts_with(BOM) { BOM.len() as u64 } else { 0 };
    // `as` saturates: out-of-range values become the first line, or more lines than any file has.
    let limit = arguments.limit.map_or(MAX_LINES, |limit| (limit as u64).clamp(1, MAX_LINES));
    let cursor = arguments.cursor.map(|cursor| (cursor as u64).max(text));
    file.seek(SeekFrom::Start(cursor.unwrap_or(text))).map_err(failed)?;
    let mut file = BufReader::with_capacity(SAMPLE_BYTES, CancelReader::new(file, &cx.cancel));
    let offset = arguments.offset.map_or(1, |offset| (offset as u64).max(1));
    let (skipped, bytes) = if cursor.is_some() { (0, 0) } else { skip(&mut file, offset - 1).map_err(failed)? };
    let at_end = file.fill_buf().map_err(failed)?.is_empty();
    let start = match (at_end, cursor) {
        (false, None) => PageStart::Line { number: offset, byte: text + bytes },
        (false, Some(cursor)) => PageStart::Byte(cursor),
        (true, None) if offset == 1 => return Ok(ToolResult::text("(empty file)")),
        (true, None) => return Err(Error::Path(PathError::PastEnd { path, offset, lines: skipped })),
        (true, Some(cursor)) => return Err(Error::Path(PathError::PastCursor { path, cursor, bytes: size })),
    };
    Ok(FilePage::read(&mut file, limit).map_err(failed)?.into_result(&path, start))
}

/// True if there are no NUL bytes and few invalid UTF-8 sequences.
fn is_text(sample: &[u8]) -> bool {
    let decoded = String::from_utf8_lossy(sample);
    let broken = decoded.chars().filter(|&c| c == char::REPLACEMENT_CHARACTER).count();
    !sample.contains(&0) && broken <= decoded.chars().count() / 10
}

fn skip(file: &mut impl BufRead, lines: u64) -> io::Result<(u64, u64)> {
    let mut bytes = 0;
    for skipped in 0..lines {
        match file.skip_until(b'\n')? {
            0 => return Ok((skipped, bytes)),
            length => bytes += length as u64,
        }
    }
    Ok((lines, bytes))
}

/// Reads a file that is not text as an image.
fn read_image(path: String, file: File, sample: &[u8]) -> Result<ToolResult, Error> {
    let max = MAX_IMAGE_MIB * 1024 * 1024;
    let mut bytes = Vec::new();
    // One byte more than the limit, to detect whether the file fits.
    file.take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Machine(MachineError::Io { path: path.clone(), source }))?;
    let is_too_large = bytes.len() as u64 > max;
    // Of a file that is too large, the beginning suffices to detect whether it is an image.
    let scaled_image = fit(if is_too_large { sample.to_vec() } else { bytes }, &ImageLimits::default());
    match scaled_image {
        Err(FitError::Unknown) => Err(Error::Path(PathError::Binary { path })),
        _ if is_too_large => Err(Error::Path(PathError::TooLarge { path, most: MAX_IMAGE_MIB })),
        Err(source) => Err(Error::Path(PathError::Picture { path, source })),
        Ok(picture) => {
            let scaled = if picture.was_scaled { ", scaled down to" } else { "," };
            let description =
                format!("{path} is a picture: {}{scaled} {} x {}", picture.mime, picture.width, picture.height);
            let mut result = ToolResult::text(description);
            result.content.push(picture.into_block());
            Ok(result)
        }
    }
}
