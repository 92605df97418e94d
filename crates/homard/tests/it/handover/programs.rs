//! The programs that replace each other: builds of one version or of several, which take turns at one path.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::home::{Home, Process, run_command};

/// Programs that take turns. The gateway runs the one at `path`, as after an upgrade of a package.
pub(super) struct Programs {
    path: PathBuf,
    /// With the version that each of them reports.
    all: Vec<(PathBuf, String)>,
    current: usize,
}

impl Programs {
    /// Takes the programs that `HANDOVER_PROGRAMS` lists, separated by colons, else the one under test.
    #[allow(clippy::disallowed_methods, reason = "whoever runs the tests says which programs take turns")]
    pub(super) fn of_environment(home: &Home) -> Self {
        let listed = std::env::var_os("HANDOVER_PROGRAMS").unwrap_or_else(|| env!("CARGO_BIN_EXE_homard").into());
        let all: Vec<_> = std::env::split_paths(&listed).map(|path| (path.clone(), version(home, &path))).collect();
        let programs = Self { path: home.work().join("homard"), all, current: 0 };
        programs.install(0);
        programs
    }

    /// Puts a program at the path, by another process: a child of another test could inherit the open file, which could
    /// then not be executed.
    fn install(&self, number: usize) {
        let script = r#"rm -f "$1" && { ln "$0" "$1" 2>/dev/null || cp "$0" "$1"; }"#;
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(&self.all[number].0).arg(&self.path);
        assert!(command.status().unwrap().success(), "{}", self.all[number].0.display());
    }

    /// Starts a gateway from the path.
    pub(super) fn start(&self, home: &Home) -> Process {
        let plain = home.command(&["gateway", "run", "--port", "0"]);
        let mut command = Command::new(&self.path);
        command.args(plain.get_args()).env_clear().current_dir(home.work());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }

    /// Installs the next program.
    pub(super) fn advance(&mut self) {
        self.current = (self.current + 1) % self.all.len();
        self.install(self.current);
    }

    /// Installs the previous program again, because the gateway refused its successor.
    pub(super) fn step_back(&mut self) {
        let refused = self.current;
        self.current = (self.current + self.all.len() - 1) % self.all.len();
        // It is not tried again.
        self.all.remove(refused);
        self.current -= usize::from(self.current > refused);
        self.install(self.current);
    }

    /// Returns the version of the installed program.
    pub(super) fn version(&self) -> &str {
        &self.all[self.current].1
    }

    /// Returns true if more than one program takes turns.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }
}

fn version(home: &Home, program: &Path) -> String {
    let mut command = Command::new(program);
    command.arg("--version").env_clear().current_dir(home.work());
    let output = run_command(command);
    output.stdout.trim().rsplit(' ').next().unwrap_or_default().to_owned()
}
