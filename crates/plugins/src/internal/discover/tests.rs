//! Tests of hook discovery and precedence.

use std::os::unix::fs::symlink;

use super::*;

struct HookLocations {
    _temp: tempfile::TempDir,
    root: PathBuf,
}

impl HookLocations {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap();
        Self { _temp: temp, root }
    }

    fn hook(&self, dir: &str, name: &str) -> PathBuf {
        let dir = self.root.join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("index.js"), "").unwrap();
        let file = dir.join(FILE);
        let text = format!("---\nname: {name}\nmetadata: {{\"openclaw\": {{\"events\": [\"command\"]}}}}\n---\n");
        fs::write(&file, text).unwrap();
        file
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let file = self.root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn found(&self) -> DiscoveredHooks {
        let extra = self.root.join("extra");
        discover(&HookRoots {
            extra: if extra.exists() { vec![extra] } else { Vec::new() },
            managed: self.root.join("managed"),
            workspace: self.root.join("workspace"),
        })
    }

    /// Returns the hooks without the bundled ones, and the problems with relative paths.
    fn discovered(&self) -> (Vec<(String, HookSource)>, Vec<String>) {
        let DiscoveredHooks { hooks, problems } = self.found();
        let hooks = hooks.into_iter().filter(|hook| hook.source != HookSource::Bundled);
        let root = format!("{}/", self.root.display());
        let problems = problems.iter().map(|problem| problem.to_string().replace(&root, "")).collect();
        (hooks.map(|hook| (hook.name, hook.source)).collect(), problems)
    }
}

#[test]
fn bundled_hooks_are_always_found() {
    let names: Vec<_> = HookLocations::new().found().hooks.into_iter().map(|hook| hook.name).collect();
    assert_eq!(names, ["boot-md", "bootstrap-extra-files", "command-logger", "session-memory"]);
}

#[test]
fn later_locations_override_earlier_ones_but_a_workspace_only_adds() {
    let locations = HookLocations::new();
    locations.hook("extra/a", "tide");
    locations.hook("managed/b", "tide");
    locations.hook("managed/memory", "session-memory");
    locations.hook("workspace/c", "tide");
    locations.hook("workspace/d", "moon");
    locations.hook("workspace/e", "boot-md");
    let (hooks, problems) = locations.discovered();
    let expected =
        [("moon", HookSource::Workspace), ("session-memory", HookSource::Managed), ("tide", HookSource::Managed)];
    assert_eq!(hooks, expected.map(|(name, source)| (name.to_owned(), source)));
    let suffix = "; a workspace hook cannot replace another hook";
    assert_eq!(
        problems,
        [
            "extra/a/HOOK.md defines the hook \"tide\", which is overridden by managed/b/HOOK.md".to_owned(),
            format!("workspace/c/HOOK.md defines the hook \"tide\", which is overridden by managed/b/HOOK.md{suffix}"),
            format!(
                "workspace/e/HOOK.md defines the hook \"boot-md\", which is overridden by the bundled hook{suffix}"
            ),
        ]
    );
}

#[test]
fn a_package_contributes_only_the_listed_hooks_inside_it() {
    let locations = HookLocations::new();
    locations.hook("managed/pack/hooks/a", "one");
    locations.hook("managed/pack/hooks/b", "two");
    locations.hook("managed/pack/hooks/c", "unnamed");
    locations.hook("elsewhere", "stranger");
    let listed =
        r#"{"name": "x", "openclaw": {"hooks": ["./hooks/a", "hooks/b", "../../elsewhere", "/etc", "hooks/away"]}}"#;
    locations.write("managed/pack/package.json", listed);
    symlink(locations.root.join("elsewhere"), locations.root.join("managed/pack/hooks/away")).unwrap();
    locations.write("managed/broken/package.json", "{");
    locations.write("managed/other/package.json", r#"{"name": "no hooks"}"#);
    let (hooks, problems) = locations.discovered();
    assert_eq!(hooks, [("one".to_owned(), HookSource::Managed), ("two".to_owned(), HookSource::Managed)]);
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert!(problems[0].starts_with("managed/broken/package.json is not JSON: "), "{problems:#?}");
    assert!(problems[1].starts_with("managed/pack/hooks/away is a link that leads out of "), "{problems:#?}");
    assert_eq!(
        problems[2],
        "managed/pack/package.json lists the hook \"../../elsewhere\", which is outside its folder"
    );
    assert_eq!(problems[3], "managed/pack/package.json lists the hook \"/etc\", which is outside its folder");
}

#[test]
fn links_out_of_a_location_are_ignored_and_an_extra_directory_may_be_a_hook() {
    let locations = HookLocations::new();
    locations.hook("extra", "alone");
    locations.hook("elsewhere", "stranger");
    fs::create_dir(locations.root.join("managed")).unwrap();
    symlink(locations.root.join("elsewhere"), locations.root.join("managed/away")).unwrap();
    symlink(locations.root.join("nowhere"), locations.root.join("managed/lost")).unwrap();
    locations.write("managed/note.md", "no hook");
    locations.write("managed/.hidden/HOOK.md", "no hook");
    let (hooks, problems) = locations.discovered();
    assert_eq!(hooks, [("alone".to_owned(), HookSource::Extra)]);
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("is a link that leads out of "), "{problems:#?}");
    assert_eq!(problems[1], "managed/lost cannot be read: entity not found");
}

#[test]
fn a_configured_location_that_is_missing_is_reported() {
    let locations = HookLocations::new();
    let roots = HookRoots { extra: vec![locations.root.join("gone")], ..HookRoots::default() };
    let problems = discover(&roots).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].message, "is listed in hooks.internal.load.extraDirs but does not exist");
}
