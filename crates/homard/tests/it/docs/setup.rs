//! An empty home in which a page is tested: its shell, its `homard`, and the gateway that it starts.

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{ChildStdout, Command, Stdio},
};

use crate::home::{CommandOutput, Home, Process, run_command};

/// Replacements in the commands of a page: nothing is built, and ports are chosen by the system.
const INSTEAD: [(&str, &str); 6] = [
    ("123456:ABC…", "123456:ABCDEFGHIJKL"),
    ("cargo run -- ", "homard "),
    ("cargo install --path crates/homard", ":"),
    ("--port 19000", "--port 0"),
    ("--kills 100", "--kills 2"),
    ("--kills 20", "--kills 2"),
];

/// Restores and saves exported variables between blocks, like a reader's shell.
const RECALL: &str = "if [ -f ~/.exported ]; then . ~/.exported; fi";
const REMEMBER: &str =
    "export -p | grep -v ' \\(HOME\\|PATH\\|PWD\\|OLDPWD\\|HOMARD_GATEWAY_PORT\\)' > ~/.exported || true";

/// A home and its running gateway.
pub(super) struct DocsFixture {
    home: Home,
    gateway: Option<(Process, u16, Lines<BufReader<ChildStdout>>)>,
}

impl DocsFixture {
    pub(super) fn new() -> Self {
        let home = Home::new();
        let bin = home.work().join("../bin");
        fs::create_dir(&bin).unwrap();
        let real = env!("CARGO_BIN_EXE_homard");
        // A terminal would ask for the key.
        let homard = format!(
            "#!/bin/sh\nif [ \"$1 $2 $3\" = 'models auth add' ] && [ ! -p /dev/stdin ]; then\n\
             echo sk-not-a-real-key | {real} \"$@\"\nexit\nfi\nexec {real} \"$@\"\n"
        );
        program(&bin.join("homard"), &homard);
        program(&bin.join("pass"), "#!/bin/sh\necho sk-not-a-real-key\n");
        Self { home, gateway: None }
    }

    /// Runs a block to its end; a gateway in its last line keeps running.
    pub(super) fn run(&mut self, block: &str) -> Result<(), String> {
        let (script, server) = match block.rsplit_once('\n') {
            _ if is_server(block) => ("", Some(block)),
            Some((before, last)) if is_server(last) => (before, Some(last)),
            Some(_) | None => (block, None),
        };
        self.shell(&format!("set -eu\n{script}\n{REMEMBER}"))?;
        if let Some(server) = server {
            self.start(server)?;
        }
        Ok(())
    }

    /// Parses the commands of a block without running them.
    pub(super) fn parse(&self, block: &str) -> Result<(), String> {
        for line in block.replace("\\\n", " ").lines() {
            let Some(at) = line.find("homard ") else { continue };
            let command = line[at..].split(" # ").next().unwrap_or_default();
            self.shell(&format!("{command} --help"))?;
        }
        Ok(())
    }

    /// Validates a config in an otherwise empty home.
    pub(super) fn validate(config: &str) -> Result<(), String> {
        let home = Home::new();
        home.configure(config);
        let mut command = home.command(&["config", "validate"]);
        for name in config.split("${").skip(1).filter_map(|rest| rest.split('}').next()) {
            command.env(name, "0123456789abcdef0123456789abcdef");
        }
        let output = run_command(command);
        if output.code == Some(0) { Ok(()) } else { Err(format!("{config}\n{}{}", output.stdout, output.stderr)) }
    }

    /// Starts a gateway, unless one is running.
    pub(super) fn gateway(&mut self) -> Result<(), String> {
        if self.gateway.is_some() { Ok(()) } else { self.start("homard gateway") }
    }

    fn start(&mut self, line: &str) -> Result<(), String> {
        if !line.contains("--takeover") {
            self.gateway = None;
        }
        let mut command = self.command(&format!("exec {line}"));
        command.env("HOMARD_GATEWAY_PORT", "0");
        let mut process = Process(command.spawn().unwrap());
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let port = loop {
            let Some(line) = lines.next() else { return Err(format!("{line}\nthe gateway ended before it listened")) };
            let port = line.unwrap().split("ws://127.0.0.1:").nth(1).map(|port| port.trim().parse().unwrap());
            if let Some(port) = port {
                break port;
            }
        };
        self.gateway = Some((process, port, lines));
        Ok(())
    }

    fn shell(&self, script: &str) -> Result<(), String> {
        let CommandOutput { code, stdout, stderr } = run_command(self.command(script));
        if code == Some(0) { Ok(()) } else { Err(format!("{script}\nended with {code:?}\n{stdout}{stderr}")) }
    }

    fn command(&self, script: &str) -> Command {
        let port = self.gateway.as_ref().map_or(self.home.port, |(_, port, _)| *port);
        let script = format!("{RECALL}\n{script}");
        let mut script = script.replace("127.0.0.1:18789", &format!("127.0.0.1:{port}"));
        for (original, replacement) in INSTEAD {
            script = script.replace(original, replacement);
        }
        let folder = self.home.work().join("..").canonicalize().unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.join("bin").display());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).current_dir(self.home.work()).env_clear();
        command.env("PATH", path).env("HOME", folder).env("HOMARD_GATEWAY_PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Returns true if a line runs a gateway in the foreground.
fn is_server(line: &str) -> bool {
    let mut arguments = line.split_ascii_whitespace();
    let is_gateway = arguments.next() == Some("homard") && arguments.next() == Some("gateway");
    is_gateway
        && arguments.next().is_none_or(|argument| argument == "run" || argument.starts_with('-') || argument == "#")
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
