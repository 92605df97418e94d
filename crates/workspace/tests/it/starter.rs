//! Tests of creating a workspace.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use homard_workspace::{
    AgentPersona, Audience, BootstrapLimits, BootstrapReader, CreatedWorkspace, PageBody, Starter, StarterProblem,
    create,
};

use crate::{is_plain_user, workspace};

const STANDARD_FILES: [&str; 6] = ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"];

fn texts(dir: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(dir).unwrap().map(Result::unwrap);
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn written(names: &[&'static str]) -> CreatedWorkspace {
    CreatedWorkspace { written: names.to_vec(), problems: Vec::new() }
}

fn create_error(dir: &Path) -> String {
    create(dir, Starter::Files).unwrap_err().to_string()
}

#[test]
fn a_new_workspace_gets_all_files_and_is_private() {
    let home = workspace(&[]);
    let dir = home.path().join("state/workspace");
    let created = create(&dir, Starter::Files).unwrap();
    assert_eq!(created, written(&[&["BOOTSTRAP.md"], &STANDARD_FILES[..]].concat()));
    assert_eq!(texts(&dir).into_keys().collect::<Vec<_>>(), {
        let mut names = created.written.clone();
        names.sort_unstable();
        names
    });
    assert_eq!([mode(&home.path().join("state")), mode(&dir), mode(&dir.join("USER.md"))], [0o700, 0o700, 0o600]);
}

#[test]
fn existing_files_are_never_changed() {
    let dir = workspace(&[("SOUL.md", "mine"), ("TOOLS.md", "")]);
    assert_eq!(
        create(dir.path(), Starter::Files).unwrap(),
        written(&["AGENTS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"])
    );
    let first = texts(dir.path());
    assert_eq!((first["SOUL.md"].as_str(), first["TOOLS.md"].as_str()), ("mine", ""));
    assert_eq!(create(dir.path(), Starter::Files).unwrap(), written(&[]));
    assert_eq!(texts(dir.path()), first);
}

#[test]
fn a_deleted_bootstrap_guide_is_not_recreated() {
    let dir = workspace(&[]);
    create(dir.path(), Starter::Files).unwrap();
    fs::remove_file(dir.path().join("BOOTSTRAP.md")).unwrap();
    fs::remove_file(dir.path().join("TOOLS.md")).unwrap();
    assert_eq!(create(dir.path(), Starter::Files).unwrap(), written(&["TOOLS.md"]));
}

#[test]
fn an_interrupted_creation_keeps_the_bootstrap_guide() {
    let dir = workspace(&[("BOOTSTRAP.md", "begun")]);
    assert_eq!(create(dir.path(), Starter::Files).unwrap(), written(&STANDARD_FILES));
    assert_eq!(texts(dir.path())["BOOTSTRAP.md"], "begun");
}

#[test]
fn a_dangling_symlink_is_not_written_through() {
    let (dir, other) = (workspace(&[]), workspace(&[]));
    let target = other.path().join("target.md");
    symlink(&target, dir.path().join("USER.md")).unwrap();
    let created = create(dir.path(), Starter::Files).unwrap();
    assert_eq!(created, written(&["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md"]));
    assert!(!target.exists());
}

#[test]
fn a_bare_workspace_is_only_a_folder() {
    let home = workspace(&[]);
    let dir = home.path().join("bare");
    assert_eq!(create(&dir, Starter::FolderOnly).unwrap(), CreatedWorkspace::default());
    assert_eq!(texts(&dir), BTreeMap::new());
}

#[test]
fn a_file_that_blocks_the_workspace_is_named() {
    let home = workspace(&[("notes", "text")]);
    let file = home.path().join("notes");
    symlink(home.path().join("gone"), home.path().join("broken")).unwrap();
    for (dir, obstacle) in [("notes", "notes"), ("notes/a/b", "notes"), ("broken", "broken"), ("broken/a", "broken")] {
        let (dir, obstacle) = (home.path().join(dir), home.path().join(obstacle));
        let message = format!(
            "workspace {} cannot be created: {} is a file or a broken link, not a directory; rename it, or set \
             another workspace in the config",
            dir.display(),
            obstacle.display()
        );
        assert_eq!(create_error(&dir), message);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "text");
}

// D4: nothing is ever written to the directory where a command was started.
#[test]
fn a_relative_path_is_rejected() {
    for path in ["", ".", "workspace"] {
        let message = format!("workspace {path:?} must be an absolute path, such as /home/me/workspace");
        assert_eq!(create_error(Path::new(path)), message);
    }
}

#[test]
fn a_read_only_folder_is_named() {
    if !is_plain_user("starter::a_read_only_folder_is_named") {
        return;
    }
    let home = workspace(&[]);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let dir = home.path().join("a/b");
    let message = format!(
        "workspace {} cannot be created in {}: Permission denied (os error 13); create the directory yourself, or set another workspace in the config",
        dir.display(),
        home.path().display()
    );
    assert_eq!(create_error(&dir), message);
    // An existing one is used as it is.
    let problem = |name| StarterProblem {
        path: home.path().join(name),
        message: "cannot be written: Permission denied (os error 13)".to_owned(),
    };
    let problems = ["BOOTSTRAP.md"].into_iter().chain(STANDARD_FILES).map(problem).collect();
    assert_eq!(create(home.path(), Starter::Files).unwrap(), CreatedWorkspace { written: Vec::new(), problems });
}

#[test]
fn the_starter_files_are_short_and_set_no_values() {
    let dir = workspace(&[]);
    create(dir.path(), Starter::Files).unwrap();
    let texts = texts(dir.path());
    let lengths: Vec<_> = texts.values().map(|text| text.chars().count()).collect();
    assert!(lengths.iter().all(|length| *length < 1_500) && lengths.iter().sum::<usize>() < 5_000, "{lengths:?}");
    // What the agent's `schedule::heartbeat` treats as a file that requests nothing.
    assert!(texts["HEARTBEAT.md"].lines().all(|line| line.trim().is_empty() || line.starts_with("# ")));
    let pages = BootstrapReader::default().pages(dir.path(), Audience::Main, &BootstrapLimits::default());
    assert_eq!(AgentPersona::of(&pages), AgentPersona::default());
    let names: Vec<_> = pages.iter().map(|page| &*page.name).collect();
    assert_eq!(names, [&STANDARD_FILES[..], &["BOOTSTRAP.md"]].concat());
    assert!(pages.iter().all(|page| page.body == PageBody::Whole(texts[&*page.name].trim_end().to_owned())));
    let avatar = fs::read_to_string(dir.path().join("IDENTITY.md")).unwrap().replace("_(not chosen yet)_", "Ada");
    assert_eq!(AgentPersona::parse(&avatar), AgentPersona { name: Some("Ada".to_owned()), ..AgentPersona::default() });
}
