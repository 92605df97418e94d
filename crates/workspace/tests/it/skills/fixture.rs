//! Test fixture: a home with skills.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use homard_workspace::skills::{
    DiscoveredSkills, DiscoveryLimits, Eligibility, HostEnvironment, SkillEntry, SkillRoots, SkillRules, SkillSet,
    discover,
};
use tempfile::TempDir;

/// A home with a workspace, a folder of bundled skills and a `PATH`.
pub(crate) struct Fixture {
    pub(crate) home: TempDir,
    pub(crate) host: HostEnvironment,
    pub(crate) rules: SkillRules,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let home = TempDir::new().unwrap();
        let host = HostEnvironment {
            os: "linux".to_owned(),
            path: vec![home.path().join("bin")],
            ..HostEnvironment::default()
        };
        fs::create_dir(home.path().join("bin")).unwrap();
        Self { home, host, rules: SkillRules::default() }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.home.path().join(relative)
    }

    pub(crate) fn write(&self, relative: &str, text: &str) {
        let file = self.path(relative);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    pub(crate) fn program(&self, name: &str, mode: u32) {
        self.write(&format!("bin/{name}"), "");
        fs::set_permissions(self.path("bin").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Adds a skill to the workspace; `more` are lines of its front matter.
    pub(crate) fn skill(&self, name: &str, more: &str) {
        self.write(&format!("w/skills/{name}/SKILL.md"), &text(name, more));
    }

    pub(crate) fn bundled(&self, name: &str, more: &str) {
        self.write(&format!("bundled/{name}/SKILL.md"), &text(name, more));
    }

    pub(crate) fn discovered(&self) -> DiscoveredSkills {
        let roots = SkillRoots {
            bundled: Some(self.path("bundled")),
            ..SkillRoots::standard(&self.path("state"), Some(self.home.path()), &self.path("w"))
        };
        discover(&roots, &DiscoveryLimits::default())
    }

    pub(crate) fn skill_set(&self) -> SkillSet {
        SkillSet::new(self.discovered(), self.host.clone(), self.rules.clone())
    }

    pub(crate) fn verdict(&self, name: &str) -> Eligibility {
        self.skill_set().skills.into_iter().find(|judged| judged.skill.name == name).unwrap().verdict
    }
}

pub(crate) fn text(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}.\n{more}\n---\n")
}

pub(crate) fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn entry(env: &[(&str, &str)]) -> SkillEntry {
    SkillEntry {
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..SkillEntry::default()
    }
}
