//! The `write` tool: atomically replaces a file's content.

use async_trait::async_trait;
use homard_agent::tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Error, FileAccess, atomic_file::AtomicFile, either, file_access::FileCall};

/// Creates a file or replaces its content.
#[derive(Debug, Clone, Default)]
pub struct Write {
    files: FileAccess,
}

#[derive(Deserialize)]
pub(crate) struct Args {
    path: Option<String>,
    file_path: Option<String>,
    content: String,
}

impl Write {
    pub(crate) fn new(files: FileAccess) -> Self {
        Self { files }
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write".to_owned(),
            description: "Write a file of the workspace: creates it, with its parent directories, or replaces its \
                          whole content."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["content"],
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the workspace"},
                    "content": {"type": "string", "description": "The complete content of the file"},
                    "file_path": {"type": "string", "description": "Another name for path"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Idempotent
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.files.change("write", cx, arguments).await
    }
}

/// Writes the file. Blocks.
pub(crate) fn write(files: &FileAccess, call: &FileCall, arguments: Args) -> Result<ToolResult, Error> {
    let path = either(arguments.path, arguments.file_path)?;
    let content = arguments.content.as_str();
    let mut guard = files.open(&call.workdir)?;
    files.permit(&mut guard, "write", &[(&path, Some(content))], call)?;
    let tool_writes = [(guard.normalize(&path)?, Some(content))];
    files.watches.own(&call.workdir, &tool_writes, || AtomicFile::find(&guard, &path)?.replace(content.as_bytes()))?;
    Ok(ToolResult::text(format!("Wrote {} bytes to {path}", content.len())))
}
