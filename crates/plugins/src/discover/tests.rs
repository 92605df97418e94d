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
fn the_first_of_an_id_wins_and_a_workspace_is_last_unless_it_is_trusted() {
    let house = DiscoverFixture::new();
    house.plugin("named/a", "a");
    for id in ["a", "b"] {
        house.plugin(&format!("work/.openclaw/extensions/{id}"), id);
        house.plugin(&format!("state/extensions/{id}"), id);
    }
    let found = house.found(&["named/a"], false);
    assert_eq!(ids(&found), [("a", PluginOrigin::Config), ("b", PluginOrigin::State)]);
    let told = |at: &str, first: &str, id: &str| {
        let (at, first) = (house.path(at), house.path(first));
        format!("{} is not used: {} also contains the plugin {id} and takes precedence", at.display(), first.display())
    };
    let expected = [
        told("state/extensions/a", "named/a", "a"),
        told("work/.openclaw/extensions/a", "named/a", "a"),
        told("work/.openclaw/extensions/b", "state/extensions/b", "b"),
    ];
    assert_eq!(found.problems, expected);
    assert_eq!(ids(&house.found(&[], true)), [("a", PluginOrigin::Workspace), ("b", PluginOrigin::Workspace)]);
}

#[test]
fn an_entry_is_what_the_package_says_or_an_index_or_a_single_file() {
    let house = DiscoverFixture::new();
    let packed = house.plugin("named/packed", "packed");
    house.write("named/packed/src/main.ts", "");
    house.write("named/packed/package.json", r#"{"openclaw": {"extensions": ["./src/main.ts"]}}"#);
    let plain = house.plugin("named/plain", "plain");
    house.write("single/openclaw.plugin.json", r#"{"id": "single", "configSchema": {}}"#);
    let single = house.write("single/one.mjs", "");
    let found = house.found(&["named", "single/one.mjs"], false);
    let entries: Vec<_> = found.candidates.iter().map(|candidate| candidate.entry.clone().unwrap()).collect();
    assert_eq!(entries, [packed.join("src/main.ts"), plain.join("index.js"), single]);
    assert_eq!(found.problems, Vec::<String>::new());
}

#[test]
fn a_command_needs_no_script() {
    let house = DiscoverFixture::new();
    let manifest = json!({"id": "mine", "configSchema": {}, "run": ["sh", "plugin.sh"]});
    house.write("named/mine/homard.plugin.json", &manifest.to_string());
    let script = house.write("named/mine/plugin.sh", "");
    let found = house.found(&["named"], false);
    assert_eq!((ids(&found), found.candidates[0].entry.clone()), (vec![("mine", PluginOrigin::Config)], None));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o666)).unwrap();
    let expected = format!("{} is not used: it is world-writable; fix it with chmod o-w", script.display());
    assert_eq!(house.found(&["named"], false).problems, [expected]);
}

#[test]
fn what_leads_out_of_a_plugin_or_can_be_changed_by_others_is_refused() {
    let house = DiscoverFixture::new();
    let elsewhere = house.write("elsewhere.js", "");
    let linked = house.plugin("named/linked", "linked");
    fs::remove_file(linked.join("index.js")).unwrap();
    symlink(&elsewhere, linked.join("index.js")).unwrap();
    let hard = house.plugin("named/hard", "hard");
    fs::hard_link(hard.join("index.js"), house.path("other-name.js")).unwrap();
    let open = house.plugin("named/open", "open");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let real = house.plugin("real", "real");
    fs::create_dir_all(house.path("state/extensions")).unwrap();
    symlink(&real, house.path("state/extensions/real")).unwrap();
    let found = house.found(&["named", "gone"], false);
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
        format!("{} is listed in plugins.load.paths but does not exist", house.path("gone").display()),
        format!(
            "{} is not used: it is a symbolic link; add {} to plugins.load.paths",
            house.path("state/extensions/real").display(),
            real.display()
        ),
    ];
    assert_eq!(found.problems, expected);
}

#[test]
fn a_folder_without_a_good_manifest_is_told_of() {
    let house = DiscoverFixture::new();
    house.write("named/a/index.js", "");
    house.write("named/b/openclaw.plugin.json", "{");
    house.write("named/c/openclaw.plugin.json", &" ".repeat(MAX_MANIFEST_BYTES as usize + 1));
    house.write("named/d/openclaw.plugin.json", r#"{"id": "d", "configSchema": {}}"#);
    house.write("named/e.d.ts", "");
    let problems = house.found(&["named"], false).problems;
    let at = |at: &str| house.path(at).display().to_string();
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
