//! Tests of plugin discovery and its trust checks.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use super::*;

struct DiscoverFixture {
    folder: tempfile::TempDir,
}

impl DiscoverFixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, at: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(at)
    }

    fn write(&self, at: &str, text: &str) -> PathBuf {
        let path = self.path(at);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// An OpenClaw plugin in a directory.
    fn plugin(&self, at: &str, id: &str) -> PathBuf {
        self.write(&format!("{at}/openclaw.plugin.json"), &json!({"id": id, "configSchema": {}}).to_string());
        self.write(&format!("{at}/index.js"), "");
        self.path(at)
    }

    fn found(&self, paths: &[&str], trusts_workspaces: bool) -> DiscoveredPlugins {
        let paths = paths.iter().map(|path| self.path(path)).collect();
        discover(&PluginRoots {
            paths,
            workspaces: vec![self.path("work")],
            state: self.path("state"),
            trusts_workspaces,
        })
    }
}

fn ids(found: &DiscoveredPlugins) -> Vec<(&str, PluginOrigin)> {
    found.candidates.iter().map(|candidate| (candidate.manifest.id.as_str(), candidate.origin)).collect()
}

#[test]
fn the_first_plugin_with_an_id_wins_and_untrusted_workspaces_are_last() {
    let fixture = DiscoverFixture::new();
    fixture.plugin("named/a", "a");
    for id in ["a", "b"] {
        fixture.plugin(&format!("work/.openclaw/extensions/{id}"), id);
        fixture.plugin(&format!("state/extensions/{id}"), id);
    }
    let found = fixture.found(&["named/a"], false);
    assert_eq!(ids(&found), [("a", PluginOrigin::Config), ("b", PluginOrigin::State)]);
    let expected_problem = |at: &str, first: &str, id: &str| {
        let (at, first) = (fixture.path(at), fixture.path(first));
        format!("{} is not used: {} also contains the plugin {id} and takes precedence", at.display(), first.display())
    };
    let expected = [
        expected_problem("state/extensions/a", "named/a", "a"),
        expected_problem("work/.openclaw/extensions/a", "named/a", "a"),
        expected_problem("work/.openclaw/extensions/b", "state/extensions/b", "b"),
    ];
    assert_eq!(found.problems, expected);
    assert_eq!(ids(&fixture.found(&[], true)), [("a", PluginOrigin::Workspace), ("b", PluginOrigin::Workspace)]);
}

#[test]
fn the_entry_file_comes_from_the_package_an_index_or_a_single_file() {
    let fixture = DiscoverFixture::new();
    let packed = fixture.plugin("named/packed", "packed");
    fixture.write("named/packed/src/main.ts", "");
    fixture.write("named/packed/package.json", r#"{"openclaw": {"extensions": ["./src/main.ts"]}}"#);
    let plain = fixture.plugin("named/plain", "plain");
    fixture.write("single/openclaw.plugin.json", r#"{"id": "single", "configSchema": {}}"#);
    let single = fixture.write("single/one.mjs", "");
    let found = fixture.found(&["named", "single/one.mjs"], false);
    let entries: Vec<_> = found.candidates.iter().map(|candidate| candidate.entry.clone().unwrap()).collect();
    assert_eq!(entries, [packed.join("src/main.ts"), plain.join("index.js"), single]);
    assert_eq!(found.problems, Vec::<String>::new());
}

#[test]
fn a_plugin_with_a_command_needs_no_script() {
    let fixture = DiscoverFixture::new();
    let manifest = json!({"id": "mine", "configSchema": {}, "run": ["sh", "plugin.sh"]});
    fixture.write("named/mine/homard.plugin.json", &manifest.to_string());
    let script = fixture.write("named/mine/plugin.sh", "");
    let found = fixture.found(&["named"], false);
    assert_eq!((ids(&found), found.candidates[0].entry.clone()), (vec![("mine", PluginOrigin::Config)], None));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o666)).unwrap();
    let expected = format!("{} is not used: it is world-writable; fix it with chmod o-w", script.display());
    assert_eq!(fixture.found(&["named"], false).problems, [expected]);
}

#[test]
fn links_out_of_a_plugin_and_files_writable_by_others_are_rejected() {
    let fixture = DiscoverFixture::new();
    let outside_file = fixture.write("elsewhere.js", "");
    let linked = fixture.plugin("named/linked", "linked");
    fs::remove_file(linked.join("index.js")).unwrap();
    symlink(&outside_file, linked.join("index.js")).unwrap();
    let hard = fixture.plugin("named/hard", "hard");
    fs::hard_link(hard.join("index.js"), fixture.path("other-name.js")).unwrap();
    let open = fixture.plugin("named/open", "open");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let real = fixture.plugin("real", "real");
    fs::create_dir_all(fixture.path("state/extensions")).unwrap();
    symlink(&real, fixture.path("state/extensions/real")).unwrap();
    let found = fixture.found(&["named", "gone"], false);
    assert_eq!(ids(&found), []);
    let expected = [
        format!(
            "{} is not used: it is a hard link, so it can be changed from elsewhere; copy it instead",
            hard.join("index.js").display()
        ),
        format!(
            "{} is not used: it is a link that leads out of the plugin's folder",
            linked.join("index.js").display()
        ),
        format!("{} is not used: it is world-writable; fix it with chmod o-w", open.display()),
        format!("{} is listed in plugins.load.paths but does not exist", fixture.path("gone").display()),
        format!(
            "{} is not used: it is a symbolic link; add {} to plugins.load.paths",
            fixture.path("state/extensions/real").display(),
            real.display()
        ),
    ];
    assert_eq!(found.problems, expected);
}

#[test]
fn a_directory_without_a_valid_manifest_is_reported() {
    let fixture = DiscoverFixture::new();
    fixture.write("named/a/index.js", "");
    fixture.write("named/b/openclaw.plugin.json", "{");
    fixture.write("named/c/openclaw.plugin.json", &" ".repeat(MAX_MANIFEST_BYTES as usize + 1));
    fixture.write("named/d/openclaw.plugin.json", r#"{"id": "d", "configSchema": {}}"#);
    fixture.write("named/e.d.ts", "");
    let problems = fixture.found(&["named"], false).problems;
    let at = |at: &str| fixture.path(at).display().to_string();
    assert_eq!(problems.len(), 4);
    assert_eq!(
        problems[0],
        format!("{} is not used: it has no homard.plugin.json or openclaw.plugin.json", at("named/a"))
    );
    assert!(problems[1].starts_with(&format!("{} is not JSON: ", at("named/b/openclaw.plugin.json"))));
    assert_eq!(problems[2], format!("{} is larger than 262144 bytes", at("named/c/openclaw.plugin.json")));
    let no_entry = "it has no index.ts or index.js, and package.json names no \"openclaw.extensions\"";
    assert_eq!(problems[3], format!("{} is not used: {no_entry}", at("named/d")));
}
