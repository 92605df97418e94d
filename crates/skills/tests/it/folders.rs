//! Tests that the cases cannot express: large and unreadable files, sockets and many folders.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    process::Command,
};

use homard_skills::{DiscoveredSkills, DiscoveryLimits, ProblemLevel, SkillProblem, SkillRoots, discover};

use crate::bench::Bench;

#[test]
fn a_file_that_is_too_large_for_the_defaults_is_told() {
    let bench = Bench::new();
    bench.skill("large", &format!("---\n{}", "x".repeat(256 * 1024)));
    let path = bench.path("w/skills/large/SKILL.md");
    let what = "is larger than 262144 bytes, the limit for skill files".to_owned();
    let problems = vec![SkillProblem { path, message: what, level: ProblemLevel::Warning }];
    assert_eq!(bench.found(), DiscoveredSkills { skills: Vec::new(), problems });
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_is_read() {
    let bench = Bench::new();
    bench.skill("file", "");
    bench.skill("folder/inner", "");
    let (file, folder) = (bench.path("w/skills/file/SKILL.md"), bench.path("w/skills/folder"));
    for path in [&file, &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    if fs::File::open(&file).is_ok() {
        return again_as_a_plain_user("folders::what_may_not_be_read_is_told_and_the_rest_is_read");
    }
    bench.skill("good", "");
    let DiscoveredSkills { skills, problems } = bench.found();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(skills.into_iter().map(|skill| skill.name).collect::<Vec<_>>(), ["good"]);
    let told = |path| SkillProblem {
        path,
        message: "cannot be read: permission denied".to_owned(),
        level: ProblemLevel::Warning,
    };
    assert_eq!(problems, [told(file), told(folder)]);
}

/// Runs a test again as an unprivileged user, because permissions do not apply to root.
fn again_as_a_plain_user(test: &str) {
    // The program may be in a folder that only root can enter.
    let home = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let run = Command::new("setpriv").args(user).arg(&program).args(["--exact", test]).output().unwrap();
    let words = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && words.contains("1 passed"), "{words}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_socket_is_not_waited_for() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("w/skills/s")).unwrap();
    let path = bench.path("w/skills/s/SKILL.md");
    let listener = UnixListener::bind(&path).unwrap();
    let problems = vec![SkillProblem { path, message: "is not a file".to_owned(), level: ProblemLevel::Warning }];
    assert_eq!(bench.found(), DiscoveredSkills { skills: Vec::new(), problems });
    drop(listener);
}

#[test]
fn many_folders_are_not_all_searched() {
    let bench = Bench::new();
    for number in 0..10 {
        fs::create_dir_all(bench.path(&format!("w/skills/{number}"))).unwrap();
    }
    let roots = SkillRoots { workspace: bench.path("w/skills"), ..SkillRoots::default() };
    let found = |folders| discover(&roots, &DiscoveryLimits { folders, ..DiscoveryLimits::default() });
    assert_eq!(found(11), DiscoveredSkills::default());
    let what = "holds more than 10 folders; the rest is not searched for skills".to_owned();
    let problems = vec![SkillProblem { path: roots.workspace.clone(), message: what, level: ProblemLevel::Warning }];
    assert_eq!(found(10), DiscoveredSkills { skills: Vec::new(), problems });
}

#[test]
fn the_usual_folders_are_in_order() {
    let roots = SkillRoots::standard(Path::new("/s"), Some(Path::new("/h")), Path::new("/w"));
    let told: Vec<_> =
        roots.folders().iter().map(|(source, path)| format!("{} {}", source.name(), path.display())).collect();
    let expected = [
        "openclaw-managed /s/skills",
        "agents-skills-personal /h/.agents/skills",
        "agents-skills-project /w/.agents/skills",
        "openclaw-workspace /w/skills",
    ];
    assert_eq!(told, expected);
}
