//! Tests of finding Node and writing the host's source.

use std::collections::BTreeSet;

use super::*;

fn fake(folder: &Path, name: &str, says: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{says}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    file
}

#[tokio::test]
async fn a_node_that_is_too_old_or_none_is_told_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let good = fake(root, "good", "echo v22.1.0");
    let old = fake(root, "old", "echo v20.20.2");
    let odd = fake(root, "odd", "echo what");
    assert_eq!(find_node(Some(&good), "").await, Ok(good));
    let why = format!("{} is Node v20.20.2, which is too old for OpenClaw's plugins; {ADVICE}", old.display());
    assert_eq!(find_node(Some(&old), "").await, Err(why));
    assert_eq!(
        find_node(Some(&odd), "").await,
        Err(format!("{} --version did not print a Node version; {ADVICE}", odd.display()))
    );
    assert_eq!(find_node(None, "/nowhere").await, Err(format!("node was not found on the PATH; {ADVICE}")));
    let path = root.display().to_string();
    fs::rename(root.join("old"), root.join("node")).unwrap();
    assert!(find_node(None, &path).await.unwrap_err().contains("which is too old"));
}

#[test]
fn the_binary_carries_every_file_of_the_host() {
    fn walk(folder: &Path, root: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() && name != "test" {
                walk(&path, root, names);
            } else if name.ends_with(".mjs") {
                names.insert(name);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("node");
    let mut there = BTreeSet::new();
    walk(&root, &root, &mut there);
    let carried: BTreeSet<String> = source::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(carried, there, "src/node/source.rs lists the files of node/");
}

#[test]
fn the_source_is_written_once_and_mended_if_somebody_changed_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = write_source(folder.path()).unwrap();
    assert_eq!(home.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let entry = home.join("host.mjs");
    let (text, number) = (fs::read_to_string(&entry).unwrap(), inode(&entry));
    assert_eq!((write_source(folder.path()).unwrap(), inode(&entry)), (home.clone(), number));
    fs::write(&entry, "somebody else's").unwrap();
    assert_eq!(write_source(folder.path()).unwrap(), home);
    assert_eq!(fs::read_to_string(&entry).unwrap(), text);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn inode(file: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap())
}

#[test]
fn a_report_is_what_was_registered_or_why_it_was_not() {
    let loaded = json!({"plugins": [{"id": "a", "status": "loaded", "registrations": {"hooks": [{"name": "agent_end", "priority": 1.5}]}}]});
    assert_eq!(read_report(&loaded).unwrap().hooks[0].priority, 1);
    let failed = json!({"plugins": [{"id": "a", "status": "error", "error": "api.registerChannel is not supported"}]});
    assert_eq!(read_report(&failed).unwrap_err(), "api.registerChannel is not supported");
    assert!(read_report(&json!({})).is_err());
}
