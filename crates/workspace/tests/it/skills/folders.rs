//! Tests that the cases cannot express: large and unreadable files, sockets and many folders.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
};

use homard_workspace::skills::{DiscoveredSkills, DiscoveryLimits, ProblemLevel, SkillProblem, SkillRoots, discover};

use crate::{is_plain_user, skills::fixture::Fixture};

#[test]
fn a_file_over_the_default_limit_is_reported() {
    let fixture = Fixture::new();
    fixture.skill("large", &format!("---\n{}", "x".repeat(256 * 1024)));
    let path = fixture.path("w/skills/large/SKILL.md");
    let message = "is larger than 262144 bytes, the limit for skill files".to_owned();
    let problems = vec![SkillProblem { path, message, level: ProblemLevel::Warning }];
    assert_eq!(fixture.discovered(), DiscoveredSkills { skills: Vec::new(), problems });
}

#[test]
fn unreadable_paths_are_reported_and_others_are_read() {
    if !is_plain_user("skills::folders::unreadable_paths_are_reported_and_others_are_read") {
        return;
    }
    let fixture = Fixture::new();
    fixture.skill("file", "");
    fixture.skill("folder/inner", "");
    let (file, folder) = (fixture.path("w/skills/file/SKILL.md"), fixture.path("w/skills/folder"));
    for path in [&file, &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    fixture.skill("good", "");
    let DiscoveredSkills { skills, problems } = fixture.discovered();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(skills.into_iter().map(|skill| skill.name).collect::<Vec<_>>(), ["good"]);
    let problem = |path| SkillProblem {
        path,
        message: "cannot be read: permission denied".to_owned(),
        level: ProblemLevel::Warning,
    };
    assert_eq!(problems, [problem(file), problem(folder)]);
}

#[test]
fn a_socket_does_not_block() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("w/skills/s")).unwrap();
    let path = fixture.path("w/skills/s/SKILL.md");
    let listener = UnixListener::bind(&path).unwrap();
    let problems = vec![SkillProblem { path, message: "is not a file".to_owned(), level: ProblemLevel::Warning }];
    assert_eq!(fixture.discovered(), DiscoveredSkills { skills: Vec::new(), problems });
    drop(listener);
}

#[test]
fn the_number_of_searched_folders_is_bounded() {
    let fixture = Fixture::new();
    for number in 0..10 {
        fs::create_dir_all(fixture.path(&format!("w/skills/{number}"))).unwrap();
    }
    let roots = SkillRoots { workspace: fixture.path("w/skills"), ..SkillRoots::default() };
    let discovered = |folders| discover(&roots, &DiscoveryLimits { folders, ..DiscoveryLimits::default() });
    assert_eq!(discovered(11), DiscoveredSkills::default());
    let message = "contains more than 10 directories; the others are not searched for skills".to_owned();
    let problems = vec![SkillProblem { path: roots.workspace.clone(), message, level: ProblemLevel::Warning }];
    assert_eq!(discovered(10), DiscoveredSkills { skills: Vec::new(), problems });
}

#[test]
fn the_standard_folders_are_in_order() {
    let roots = SkillRoots::standard(Path::new("/s"), Some(Path::new("/h")), Path::new("/w"));
    let listed: Vec<_> =
        roots.folders().iter().map(|(source, path)| format!("{} {}", source.name(), path.display())).collect();
    let expected = [
        "openclaw-managed /s/skills",
        "agents-skills-personal /h/.agents/skills",
        "agents-skills-project /w/.agents/skills",
        "openclaw-workspace /w/skills",
    ];
    assert_eq!(listed, expected);
}
