//! Files that a conversation read and changed, according to its tool calls.

use std::collections::BTreeSet;

use homard_proto::message::{Message, ToolCall};
use serde_json::Value;

/// Maximum number of stored names of each kind.
const MAX_NAMES: usize = 1_000;

/// Longer strings are not file names.
const MAX_NAME_CHARS: usize = 300;

/// Files that were read and changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TouchedFiles {
    read: BTreeSet<String>,
    modified: BTreeSet<String>,
}

impl TouchedFiles {
    /// Restores the files from the details of an earlier compaction.
    pub(crate) fn from_details(details: &Value) -> Self {
        let names = |field: &str| {
            let list = details.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            list.iter()
                .filter_map(Value::as_str)
                .filter(|name| is_name(name))
                .take(MAX_NAMES)
                .map(str::to_owned)
                .collect()
        };
        Self { read: names("readFiles"), modified: names("modifiedFiles") }
    }

    pub(crate) fn note(&mut self, message: &Message) {
        if let Message::Assistant(assistant) = message {
            assistant.tool_calls().for_each(|call| self.note_call(call));
        }
    }

    fn note_call(&mut self, call: &ToolCall) {
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str);
        let path = argument("path").or_else(|| argument("file_path"));
        match call.name.as_str() {
            "read" => add(&mut self.read, path),
            "write" | "edit" => add(&mut self.modified, path),
            "apply_patch" => {
                let prefixes = ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
                for line in argument("input").unwrap_or_default().lines() {
                    add(
                        &mut self.modified,
                        prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)).map(str::trim),
                    );
                }
            }
            _ => {}
        }
    }

    /// Returns the files that were read but not changed, sorted.
    pub(crate) fn only_read(&self) -> Vec<&str> {
        self.read.difference(&self.modified).map(String::as_str).collect()
    }

    /// Returns the files that were changed, sorted.
    pub(crate) fn modified(&self) -> Vec<&str> {
        self.modified.iter().map(String::as_str).collect()
    }
}

fn add(names: &mut BTreeSet<String>, name: Option<&str>) {
    if let Some(name) = name.filter(|name| is_name(name) && names.len() < MAX_NAMES) {
        names.insert(name.to_owned());
    }
}

/// True for a safe file name: one with a line break could be taken for more than a name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_CHARS && !name.contains(['\n', '\r', '<', '>'])
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, Block};
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> Message {
        let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments, ..ToolCall::default() };
        Message::Assistant(Assistant { content: vec![Block::ToolCall(call)], ..Assistant::default() })
    }

    #[test]
    fn calls_extend_the_stored_file_lists() {
        let mut files =
            TouchedFiles::from_details(&json!({"readFiles": ["b.rs", "z.rs", 7], "modifiedFiles": ["m.rs"]}));
        let patch = "*** Begin Patch\n*** Update File: p.rs\n*** Move to: q.rs\n@@\n-*** Add File: no\n*** End Patch";
        for message in [
            call("read", json!({"path": "a.rs"})),
            call("edit", json!({"file_path": "b.rs"})),
            call("write", json!({"path": "n.rs"})),
            call("apply_patch", json!({"input": patch})),
            call("exec", json!({"path": "x"})),
            call("read", json!({"path": "two\nlines"})),
        ] {
            files.note(&message);
        }
        assert_eq!(files.only_read(), ["a.rs", "z.rs"]);
        assert_eq!(files.modified(), ["b.rs", "m.rs", "n.rs", "p.rs", "q.rs"]);
    }
}
