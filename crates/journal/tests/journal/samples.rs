//! Continues a state directory of OpenClaw; every line of it stays unchanged.
//!
//! The recordings are beside the checkout; if they are absent, the test says so and checks nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_store::StoreReader;

use crate::words::*;

fn transcripts(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let mut found: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

// R17, our half of it.
#[tokio::test]
async fn an_openclaw_state_directory_can_be_continued() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples/state/2026.2.9");
    if !sample.is_dir() {
        std::io::Write::write_all(
            &mut std::io::stderr(),
            b"skipped: recorded state directories: ../shared/samples is not here\n",
        )
        .unwrap();
        return;
    }
    let state = tempfile::tempdir().unwrap();
    copy_folder(&sample, state.path());
    let folder = sessions(state.path());
    let original = transcripts(&folder);
    let records: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("sessions.json")).unwrap()).unwrap();

    let journal = open(state.path());
    let known = list_sessions(&journal).await.unwrap();
    assert_eq!(known.len(), records.as_object().unwrap().len());
    for (key, record) in &known {
        let before = journal.load(key).await.unwrap().unwrap().entries;
        let file = fs::read_to_string(folder.join(format!("{}.jsonl", record.session_id))).unwrap();
        assert_eq!(before.len(), file.lines().count() - 1, "{key}");
        let leaf = before.last().unwrap().id.to_string();
        commit_all(
            &journal,
            vec![
                append([key.as_str(), record.session_id.as_str()], "new"),
                patch(key.as_str(), Some(record.session_id.as_str()), record.clone()),
            ],
        )
        .await;
        assert_eq!(lines(&journal, key.as_str()).await, [before, vec![child_entry(Some(&leaf), "new")]].concat());
    }
    journal.flush().await.unwrap();
    drop(journal);

    for ((path, now), (_, before)) in transcripts(&folder).iter().zip(&original) {
        assert!(now.starts_with(before), "{}", path.display());
    }
    let exported: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("sessions.json")).unwrap()).unwrap();
    assert_eq!(exported, records);
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await.unwrap(), known);
    for (key, _) in &known {
        assert_eq!(lines(&journal, key.as_str()).await.last().unwrap().id.as_str(), "new");
    }
}
