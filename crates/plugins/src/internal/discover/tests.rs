//! Tests of hook discovery and precedence.

use std::os::unix::fs::symlink;

use super::*;

struct Places {
    _temp: tempfile::TempDir,
    top: PathBuf,
}

impl Places {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(temp.path()).unwrap();
        Self { _temp: temp, top }
    }

    fn hook(&self, dir: &str, name: &str) -> PathBuf {
        let dir = self.top.join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("index.js"), "").unwrap();
        let file = dir.join(FILE);
        let text = format!("---\nname: {name}\nmetadata: {{\"openclaw\": {{\"events\": [\"command\"]}}}}\n---\n");
        fs::write(&file, text).unwrap();
        file
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let file = self.top.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn found(&self) -> DiscoveredHooks {
        let extra = self.top.join("extra");
        discover(&HookRoots {
            extra: if extra.exists() { vec![extra] } else { Vec::new() },
            managed: self.top.join("managed"),
            workspace: self.top.join("workspace"),
        })
    }

    /// Returns the hooks without the bundled ones, and the problems with relative paths.
    fn told(&self) -> (Vec<(String, HookSource)>, Vec<String>) {
        let DiscoveredHooks { hooks, problems } = self.found();
        let hooks = hooks.into_iter().filter(|hook| hook.source != HookSource::Bundled);
        let top = format!("{}/", self.top.display());
        let problems = problems.iter().map(|problem| problem.to_string().replace(&top, "")).collect();
        (hooks.map(|hook| (hook.name, hook.source)).collect(), problems)
    }
}

#[test]
fn the_bundled_ones_are_always_there() {
    let names: Vec<_> = Places::new().found().hooks.into_iter().map(|hook| hook.name).collect();
    assert_eq!(names, ["boot-md", "bootstrap-extra-files", "command-logger", "session-memory"]);
}

#[test]
fn a_stronger_place_hides_a_weaker_one_but_a_workspace_only_adds() {
    let places = Places::new();
    places.hook("extra/a", "tide");
    places.hook("managed/b", "tide");
    places.hook("managed/memory", "session-memory");
    places.hook("workspace/c", "tide");
    places.hook("workspace/d", "moon");
    places.hook("workspace/e", "boot-md");
    let (hooks, problems) = places.told();
    let expected =
        [("moon", HookSource::Workspace), ("session-memory", HookSource::Managed), ("tide", HookSource::Managed)];
    assert_eq!(hooks, expected.map(|(name, source)| (name.to_owned(), source)));
    let barred = "; a workspace hook cannot replace another hook";
    assert_eq!(
        problems,
        [
            "extra/a/HOOK.md defines the hook \"tide\", which is overridden by managed/b/HOOK.md".to_owned(),
            format!("workspace/c/HOOK.md defines the hook \"tide\", which is overridden by managed/b/HOOK.md{barred}"),
            format!(
                "workspace/e/HOOK.md defines the hook \"boot-md\", which is overridden by the bundled hook{barred}"
            ),
        ]
    );
}

#[test]
fn a_pack_brings_the_hooks_that_it_names_and_none_from_elsewhere() {
    let places = Places::new();
    places.hook("managed/pack/hooks/a", "one");
    places.hook("managed/pack/hooks/b", "two");
    places.hook("managed/pack/hooks/c", "unnamed");
    places.hook("elsewhere", "stranger");
    let listed =
        r#"{"name": "x", "openclaw": {"hooks": ["./hooks/a", "hooks/b", "../../elsewhere", "/etc", "hooks/away"]}}"#;
    places.write("managed/pack/package.json", listed);
    symlink(places.top.join("elsewhere"), places.top.join("managed/pack/hooks/away")).unwrap();
    places.write("managed/broken/package.json", "{");
    places.write("managed/other/package.json", r#"{"name": "no hooks"}"#);
    let (hooks, problems) = places.told();
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
fn links_out_of_a_place_are_not_followed_and_an_extra_folder_may_be_a_hook() {
    let places = Places::new();
    places.hook("extra", "alone");
    places.hook("elsewhere", "stranger");
    fs::create_dir(places.top.join("managed")).unwrap();
    symlink(places.top.join("elsewhere"), places.top.join("managed/away")).unwrap();
    symlink(places.top.join("nowhere"), places.top.join("managed/lost")).unwrap();
    places.write("managed/note.md", "no hook");
    places.write("managed/.hidden/HOOK.md", "no hook");
    let (hooks, problems) = places.told();
    assert_eq!(hooks, [("alone".to_owned(), HookSource::Extra)]);
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("is a link that leads out of "), "{problems:#?}");
    assert_eq!(problems[1], "managed/lost cannot be read: entity not found");
}

#[test]
fn a_place_that_is_named_and_not_there_is_told() {
    let places = Places::new();
    let roots = HookRoots { extra: vec![places.top.join("gone")], ..HookRoots::default() };
    let problems = discover(&roots).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].message, "is listed in hooks.internal.load.extraDirs but does not exist");
}
