//! Every folder `cases/<tool>/<case>` is a test: adding one adds a test.
//!
//! - `before/`: what the workspace holds; nothing if it is missing.
//! - `call.json`: the arguments.
//! - `result.json`: `text`, and `isError` and `details` where they matter. `$WORKDIR` stands for the workspace.
//! - `after/`: what the workspace holds then; the same as before if it is missing.
//!
//! Beside the workspace lies a file that no tool may show or change.
#![allow(clippy::unwrap_used, reason = "tests may")]

mod bench;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use homard_agent::tool::ToolResult;
use homard_proto::message::Block;
use serde_json::{Value, json};

use bench::Bench;

datatest_stable::harness! { { test = case, root = "tests/cases", pattern = r"/call\.json$" } }

fn case(call: &Path) -> datatest_stable::Result<()> {
    let folder = call.parent().unwrap();
    let tool = folder.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let read = |name: &str| serde_json::from_str::<Value>(&fs::read_to_string(folder.join(name)).unwrap()).unwrap();
    let bench = Bench::new();
    plant(&contents(&folder.join("before")), bench.workdir());
    let expected = if folder.join("after").exists() { "after" } else { "before" };

    let arguments = read("call.json").to_string().replace("$WORKDIR", bench.workdir().to_str().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(bench.call(tool, serde_json::from_str(&arguments)?));

    assert_eq!(told(result, &bench, read("result.json").get("details").is_some()), read("result.json"));
    assert_eq!(contents(bench.workdir()), contents(&folder.join(expected)), "the workspace afterwards");
    bench.assert_outside_is_untouched();
    Ok(())
}

/// A result as a case spells it.
fn told(result: ToolResult, bench: &Bench, with_details: bool) -> Value {
    let [Block::Text(text)] = result.content.as_slice() else { panic!("not one text: {result:?}") };
    let mut told = json!({"text": text.text});
    if result.is_error {
        told["isError"] = json!(true);
    }
    if let Some(mut details) = result.details.filter(|_| with_details) {
        if let Some(took) = details.get_mut("durationMs") {
            *took = json!(0);
        }
        told["details"] = details;
    }
    serde_json::from_str(&told.to_string().replace(bench.workdir().to_str().unwrap(), "$WORKDIR")).unwrap()
}

#[derive(Debug, PartialEq)]
enum Node {
    Folder,
    Link(PathBuf),
    Text(String),
}

fn contents(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            let node = if kind.is_symlink() {
                Node::Link(fs::read_link(entry.path()).unwrap())
            } else if kind.is_dir() {
                folders.push(path.clone());
                Node::Folder
            } else {
                Node::Text(String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned())
            };
            found.insert(path, node);
        }
    }
    found
}

fn plant(nodes: &BTreeMap<PathBuf, Node>, root: &Path) {
    for (path, node) in nodes {
        let path = root.join(path);
        match node {
            Node::Folder => fs::create_dir(path).unwrap(),
            Node::Link(target) => symlink(target, path).unwrap(),
            Node::Text(text) => fs::write(path, text).unwrap(),
        }
    }
}
