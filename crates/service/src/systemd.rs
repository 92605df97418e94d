//! Units of systemd: a service and a socket, for a user or for the machine.
//!
//! Commands of agents run in their own sandbox below the service, which needs user namespaces, `mount` and a complete
//! `/proc`. So the hardening omits what would prevent those: `RestrictNamespaces`, `ProtectKernelTunables`,
//! `ProtectKernelLogs`, `ProcSubset`, `RestrictSUIDSGID` (which also refuses `openat2`) and `MemoryDenyWriteExecute` (Node
//! compiles at run time), and names the system calls of Landlock, which older versions of systemd have in no group. A user
//! manager cannot set up a mount namespace on every machine, so the unit of a user has the directives that need none.

use std::path::Path;

use crate::{
    Error,
    spec::{NAME, PERMANENT_FAILURES, Scope, ServiceSpec},
};

/// Hardening for both kinds of units.
const HARDENING: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service @mount landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp
SystemCallErrorNumber=EPERM
UMask=0077
";

/// Hardening that needs the machine's manager.
const SYSTEM_HARDENING: &str = "\
CapabilityBoundingSet=
AmbientCapabilities=
PrivateDevices=yes
PrivateMounts=yes
PrivateTmp=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectSystem=strict
RemoveIPC=yes
KeyringMode=private
IPAddressDeny=multicast
";

/// Returns the service unit.
pub fn service(spec: &ServiceSpec) -> Result<String, Error> {
    spec.check()?;
    let mut unit = format!(
        "# Written by homard gateway install. To change it: systemctl edit {NAME}\n\
         [Unit]\n\
         Description=Homard agent gateway\n\
         Documentation=man:homard(1)\n\
         Wants=network-online.target\n\
         After=network-online.target\n"
    );
    if !spec.addresses.is_empty() {
        unit += &format!("Requires={NAME}.socket\nAfter={NAME}.socket\n");
    }
    // More attempts than the crash-loop guard needs to find the run that causes the crashes and to hold it.
    unit += "StartLimitIntervalSec=300\nStartLimitBurst=20\n\n[Service]\nType=notify\nNotifyAccess=main\n";
    unit += &format!("ExecStart={} gateway run\n", quoted_path(&spec.program));
    unit += "ExecReload=/bin/sh -c \"kill -USR2 $MAINPID\"\n";
    unit += &format!("Environment={}\n", quoted(&format!("HOMARD_STATE_DIR={}", spec.state_dir.display())));
    if let Some(config) = &spec.config {
        unit += &format!("Environment={}\n", quoted(&format!("HOMARD_CONFIG_PATH={}", config.display())));
    }
    if !spec.search_path.is_empty() {
        unit += &format!("Environment={}\n", quoted(&format!("PATH={}", spec.search_path)));
    }
    if let Some(file) = &spec.environment_file {
        unit += &format!("EnvironmentFile={}\n", line(file));
    }
    for credential in &spec.credentials {
        unit += &format!("LoadCredential={}:{}\n", credential.name, line(&credential.path));
    }
    let permanent_failures = PERMANENT_FAILURES.map(|code| code.to_string()).join(" ");
    unit += &format!(
        "WatchdogSec=30\n\
         TimeoutStartSec=120\n\
         TimeoutStopSec=90\n\
         KillMode=mixed\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         RestartPreventExitStatus={permanent_failures}\n\
         LimitNOFILE=65536\n"
    );
    unit += HARDENING;
    let target = match &spec.scope {
        Scope::User => "default.target",
        Scope::System(user) => {
            unit += &format!("User={user}\n{SYSTEM_HARDENING}");
            unit += &directories(&spec.state_dir);
            "multi-user.target"
        }
    };
    unit += &format!("\n[Install]\nWantedBy={target}\n");
    if !spec.addresses.is_empty() {
        unit += &format!("Also={NAME}.socket\n");
    }
    Ok(unit)
}

/// Returns the socket unit; `None` if the gateway opens its own sockets.
pub fn socket(spec: &ServiceSpec) -> Option<String> {
    if spec.addresses.is_empty() {
        return None;
    }
    let mut unit = "# Written by homard gateway install.\n\
         [Unit]\n\
         Description=Sockets of the Homard agent gateway\n\n\
         [Socket]\n"
        .to_owned();
    for address in &spec.addresses {
        unit += &format!("ListenStream={address}\n");
    }
    unit += "BindIPv6Only=ipv6-only\nBacklog=1024\nSendBuffer=128K\n\n[Install]\nWantedBy=sockets.target\n";
    Some(unit)
}

/// Returns the directives that let a system service write its state directory, and no other.
fn directories(state: &Path) -> String {
    let in_home = ["/home", "/root", "/run/user"].iter().any(|home| state.starts_with(home));
    let home = if in_home { "ProtectHome=tmpfs\nBindPaths=" } else { "ProtectHome=yes\nReadWritePaths=" };
    match state.strip_prefix("/var/lib").ok().filter(|name| name.components().count() == 1) {
        Some(name) => format!("ProtectHome=yes\nStateDirectory={}\nStateDirectoryMode=0700\n", word(name)),
        None => format!("{home}{}\n", word(state)),
    }
}

/// Quotes an argument: systemd expands `%` in all settings.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// Quotes the program of a command line, in which systemd also expands `$`.
fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string()).replace('$', "$$")
}

/// Returns a path in a list, in which blanks separate the entries.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.+%".contains(&byte);
    if text.bytes().all(is_plain) { text.replace('%', "%%") } else { quoted(&text) }
}

/// Returns a path that is the rest of its line.
fn line(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

#[cfg(test)]
pub(crate) mod tests;
