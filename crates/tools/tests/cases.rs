//! Every folder `cases/<tool>/<case>` is a test: adding one adds a test.
//!
//! - `before/`: content of the workspace; empty if missing.
//! - `make.json`: further content that a git repository cannot hold: see [`make`].
//! - `first.json`: calls to make first, if any: a list of pairs of a tool and its arguments.
//! - `call.json`: the arguments.
//! - `result.json`: `text`, and `isError`, `details` and `images` where they matter. `$WORKDIR` stands for the
//!   workspace, `$STATE` for the state directory.
//! - `needs-namespaces`: an empty file; the case is skipped where commands cannot run in namespaces.
//! - `after/`: content of the workspace afterwards, besides what `make.json` created; same as before if missing.
//!
//! Beside the workspace is a file that no tool may show or change.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod fixture;

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use homard_agent::tool::ToolResult;
use homard_proto::message::Block;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use fixture::{ToolFixture, has_namespaces};

datatest_stable::harness! { { test = case, root = "tests/cases", pattern = r"/call\.json$" } }

fn case(call: &Path) -> datatest_stable::Result<()> {
    let folder = call.parent().unwrap();
    let tool = folder.parent().unwrap().file_name().unwrap().to_str().unwrap();
    if folder.join("needs-namespaces").exists() && !has_namespaces(&format!("case {}", folder.display())) {
        return Ok(());
    }
    let read = |name: &str| serde_json::from_str::<Value>(&fs::read_to_string(folder.join(name)).unwrap()).unwrap();
    let fixture = ToolFixture::new();
    plant(&contents(&folder.join("before")), fixture.workdir());
    let created =
        if folder.join("make.json").exists() { make(&read("make.json"), fixture.workdir()) } else { Vec::new() };
    let before = contents(fixture.workdir());

    let arguments = read("call.json").to_string().replace("$WORKDIR", fixture.workdir().to_str().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if folder.join("first.json").exists() {
        for first in read("first.json").as_array().unwrap() {
            runtime.block_on(fixture.call(first[0].as_str().unwrap(), first[1].clone()));
        }
    }
    let result = runtime.block_on(fixture.call(tool, serde_json::from_str(&arguments)?));
    // Also kills commands that are still running.
    drop(runtime);

    assert_eq!(format_result(result, &fixture, read("result.json").get("details").is_some()), read("result.json"));
    let expected = if folder.join("after").exists() {
        let created = before.into_iter().filter(|(path, _)| created.contains(path));
        created.chain(contents(&folder.join("after"))).collect()
    } else {
        before
    };
    assert_eq!(contents(fixture.workdir()), expected, "the workspace afterwards");
    fixture.assert_outside_is_untouched();
    Ok(())
}

/// Formats a result as in `result.json`.
fn format_result(result: ToolResult, fixture: &ToolFixture, with_details: bool) -> Value {
    let [Block::Text(text), images @ ..] = result.content.as_slice() else { panic!("no text: {result:?}") };
    let pid = result.details.as_ref().map_or(Value::Null, |details| details["pid"].clone());
    let mut actual = json!({"text": text.text.replace(&format!("pid {pid}"), "pid 0")});
    if !images.is_empty() {
        let format_block = |block: &Block| match block {
            Block::Image(image) => json!({"mimeType": image.mime_type, "base64": image.data.len()}),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => panic!("no image: {block:?}"),
        };
        actual["images"] = images.iter().map(format_block).collect();
    }
    if result.is_error {
        actual["isError"] = json!(true);
    }
    if let Some(mut details) = result.details.filter(|_| with_details) {
        normalize(&mut details);
        actual["details"] = details;
    }
    let actual = actual.to_string().replace(fixture.workdir().to_str().unwrap(), "$WORKDIR");
    serde_json::from_str(&actual.replace(fixture.state().to_str().unwrap(), "$STATE")).unwrap()
}

/// Replaces values that differ in every run.
fn normalize(details: &mut Value) {
    for (name, value) in details.as_object_mut().into_iter().flatten() {
        match value {
            Value::Number(number)
                if ["durationMs", "runtimeMs", "pid", "startedAt", "endedAt"].contains(&name.as_str()) =>
            {
                *number = 0.into();
            }
            Value::Array(rows) => rows.iter_mut().for_each(normalize),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
        }
    }
}

/// Creates what a list of objects with a `path` describes: a file with a `text`, repeated `times`; a hard link (`link`)
/// to something beside the workspace; a symlink `to` something; a named `pipe`; or only a `mode`.
fn make(list: &Value, root: &Path) -> Vec<PathBuf> {
    let mut created = Vec::new();
    for spec in list.as_array().unwrap() {
        let text = |name: &str| spec.get(name).and_then(Value::as_str);
        let path = root.join(text("path").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(text) = text("text") {
            let times = spec.get("times").and_then(Value::as_u64).unwrap_or(1);
            fs::write(&path, text.repeat(times.try_into().unwrap())).unwrap();
        } else if let Some(link) = text("link") {
            fs::hard_link(root.join(link), &path).unwrap();
        } else if let Some(target) = text("to") {
            symlink(target, &path).unwrap();
        } else if spec.get("pipe").is_some() {
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        if let Some(mode) = text("mode") {
            fs::set_permissions(&path, Permissions::from_mode(u32::from_str_radix(mode, 8).unwrap())).unwrap();
        }
        created.push(path.strip_prefix(root).unwrap().to_owned());
    }
    created
}

#[derive(PartialEq)]
enum FileNode {
    Folder,
    Link(PathBuf),
    File(Vec<u8>),
    Special,
}

/// Shows bytes as text where that helps.
impl fmt::Debug for FileNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder => write!(f, "folder"),
            Self::Link(target) => write!(f, "link to {}", target.display()),
            Self::File(bytes) => {
                write!(f, "{} bytes {:?}", bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]))
            }
            Self::Special => write!(f, "special"),
        }
    }
}

fn contents(root: &Path) -> BTreeMap<PathBuf, FileNode> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            let node = if kind.is_symlink() {
                FileNode::Link(fs::read_link(entry.path()).unwrap())
            } else if kind.is_dir() {
                folders.push(path.clone());
                FileNode::Folder
            } else if kind.is_file() {
                FileNode::File(fs::read(entry.path()).unwrap())
            } else {
                FileNode::Special
            };
            found.insert(path, node);
        }
    }
    found
}

fn plant(nodes: &BTreeMap<PathBuf, FileNode>, root: &Path) {
    for (path, node) in nodes {
        let path = root.join(path);
        match node {
            FileNode::Folder => fs::create_dir(path).unwrap(),
            FileNode::Link(target) => symlink(target, path).unwrap(),
            FileNode::File(bytes) => fs::write(path, bytes).unwrap(),
            FileNode::Special => panic!("a repository cannot hold {}", path.display()),
        }
    }
}
