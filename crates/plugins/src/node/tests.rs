//! Tests of finding Node and writing the host's source.

use std::collections::BTreeSet;

use super::*;

fn fake(folder: &Path, name: &str, script: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    file
}

#[tokio::test]
async fn a_missing_or_outdated_node_is_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let current = fake(root, "good", "echo v22.1.0");
    let old = fake(root, "old", "echo v20.20.2");
    let unparsable = fake(root, "odd", "echo what");
    assert_eq!(find_node(Some(&current), "").await, Ok(current));
    let expected = format!("{} is Node v20.20.2, which is too old for OpenClaw's plugins; {ADVICE}", old.display());
    assert_eq!(find_node(Some(&old), "").await, Err(expected));
    assert_eq!(
        find_node(Some(&unparsable), "").await,
        Err(format!("{} --version did not print a Node version; {ADVICE}", unparsable.display()))
    );
    assert_eq!(find_node(None, "/nowhere").await, Err(format!("node was not found on the PATH; {ADVICE}")));
    let path = root.display().to_string();
    fs::rename(root.join("old"), root.join("node")).unwrap();
    assert!(find_node(None, &path).await.unwrap_err().contains("which is too old"));
}

#[test]
fn the_binary_embeds_every_file_of_the_host() {
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
    let mut on_disk = BTreeSet::new();
    walk(&root, &root, &mut on_disk);
    let embedded: BTreeSet<String> = source::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(embedded, on_disk, "src/node/source.rs lists the files of node/");
}

#[test]
fn the_source_is_written_once_and_restored_if_changed() {
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
fn a_load_report_contains_registrations_or_an_error() {
    let loaded = json!({"plugins": [{"id": "a", "status": "loaded", "registrations": {"hooks": [{"name": "agent_end", "priority": 1.5}]}}]});
    assert_eq!(read_report(&loaded).unwrap().hooks[0].priority, 1);
    let failed = json!({"plugins": [{"id": "a", "status": "error", "error": "api.registerChannel is not supported"}]});
    assert_eq!(read_report(&failed).unwrap_err(), "api.registerChannel is not supported");
    assert!(read_report(&json!({})).is_err());
}
