//! Internal hooks: listed, enabled, installed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    home::{Home, run_command},
    probe::node,
    socket::{connect_as, next_frame, send_frame},
};

/// Creates a hook whose handler is a program; returns its directory.
fn hook(folder: PathBuf, name: &str, extra: &str) -> PathBuf {
    fs::create_dir_all(&folder).unwrap();
    let front_matter = format!(
        "---\nname: {name}\ndescription: Tell when the water is high.\nmetadata: {{\"openclaw\": {{\"events\": [\"command:new\"]{extra}}}}}\n---\n"
    );
    fs::write(folder.join("HOOK.md"), front_matter).unwrap();
    let handler = folder.join("handler.sh");
    fs::write(&handler, "#!/bin/sh\ntouch ran\n").unwrap();
    fs::set_permissions(handler, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn names(document: &Value) -> Vec<&str> {
    document["hooks"].as_array().unwrap().iter().map(|hook| hook["name"].as_str().unwrap()).collect()
}

fn config(home: &Home) -> Value {
    serde_json::from_str(&fs::read_to_string(home.state().join("homard.json")).unwrap()).unwrap()
}

const BUNDLED: [&str; 4] = ["boot-md", "bootstrap-extra-files", "command-logger", "session-memory"];

#[test]
fn hooks_are_listed_with_missing_requirements_and_advice() {
    let home = Home::new();
    let requires = ", \"requires\": {\"env\": [\"TIDE_KEY\"]}";
    let managed = hook(home.state().join("hooks/tides"), "tides", requires);
    hook(home.state().join("workspace/hooks/own"), "own", "");
    home.configure("{hooks: {internal: {enabled: true, entries: {'boot-md': {enabled: false}}}}}");
    assert_eq!(
        home.run(&["hooks"]).stdout,
        "HOOK                   STATE           FROM             FOR\n\
         boot-md                off             bundled          Runs the instructions in BOOT.md when the gateway starts\n\
         bootstrap-extra-files  on              bundled          Adds further workspace files to every system prompt\n\
         command-logger         on              bundled          Writes every command to logs/commands.log in the state dire…\n\
         own                    off             workspace        Tell when the water is high.\n\
         session-memory         on              bundled          Saves the end of a conversation to memory/ when a new one b…\n\
         tides                  needs TIDE_KEY  state directory  Tell when the water is high.\n"
    );
    let verbose = home.run(&["hooks", "list", "-v"]).stdout;
    assert!(verbose.contains("command:new, command:reset, session:auto-reset  built in\n"), "{verbose}");
    let listed = home.run(&["hooks", "list", "--json"]).json();
    assert_eq!(listed["managedHooksDir"], json!(home.state().join("hooks")));
    assert_eq!(listed["workspaceDir"], json!(home.state().join("workspace")));
    assert_eq!(listed["hooks"][5]["missing"]["env"], json!(["TIDE_KEY"]));
    assert_eq!(listed["hooks"][3]["blockedReason"], "workspace hook (disabled by default)");
    let eligible = home.run(&["hooks", "list", "--eligible", "--json"]).json();
    assert_eq!(names(&eligible), ["bootstrap-extra-files", "command-logger", "own", "session-memory"]);
    let info = home.run(&["hooks", "info", "tides"]).stdout;
    assert!(info.contains(&format!("file           {}\n", managed.join("HOOK.md").display())), "{info}");
    let advice =
        "set the environment variable TIDE_KEY, or: homard config set hooks.internal.entries.tides.env.TIDE_KEY VALUE";
    assert!(info.ends_with(&format!("to do          {advice}\n")), "{info}");
    assert_eq!(home.run(&["hooks", "info", "tides", "--json"]).json(), listed["hooks"][5]);
    let unknown = home.run(&["hooks", "info", "flying"]);
    let expected = "error: hook \"flying\" not found; list hooks with: homard hooks list\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), expected));
    let set = home.run(&["config", "set", "hooks.internal.entries.tides.env.TIDE_KEY", "high-and-secret"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let all = ["list", "check"].map(|word| home.run(&["hooks", word, "--json"]).stdout).join("");
    assert!(!all.contains("high-and-secret"), "{all}");
    assert_eq!(home.run(&["hooks", "check", "--json"]).json()["on"][3], "tides");
}

#[test]
fn enabling_and_disabling_a_hook_keeps_the_files_comments() {
    let home = Home::new();
    home.configure("{\n  // Mine.\n  hooks: {token: 't'}, // The sea.\n}\n");
    let enabled = home.run(&["hooks", "enable", "session-memory"]);
    assert_eq!((enabled.code, enabled.stderr.as_str()), (Some(0), ""));
    assert!(enabled.stdout.starts_with("session-memory is now enabled in "), "{}", enabled.stdout);
    assert!(enabled.stdout.contains("restart the gateway to apply the change\n"), "{}", enabled.stdout);
    let text = fs::read_to_string(home.state().join("homard.json")).unwrap();
    assert!(text.contains("// Mine.") && text.contains("// The sea."), "{text}");
    let again = home.run(&["hooks", "enable", "session-memory"]).stdout;
    assert_eq!(again, "session-memory is already enabled; nothing changed\n");
    let disabled = home.run(&["hooks", "disable", "session-memory", "--json"]).json();
    assert_eq!(
        (&disabled["enabled"], &disabled["changed"]),
        (&json!(false), &json!(["hooks.internal.entries.session-memory.enabled"]))
    );
    assert_eq!(on_now(&home), json!([]));
    let unknown = home.run(&["hooks", "enable", "flying"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""));
}

/// Returns the enabled hooks.
fn on_now(home: &Home) -> Value {
    home.run(&["hooks", "check", "--json"]).json()["on"].take()
}

#[test]
fn enabling_one_hook_enables_no_other() {
    let home = Home::new();
    home.run(&["hooks", "enable", "session-memory"]);
    assert_eq!(on_now(&home), json!(["session-memory"]));
    assert_eq!(config(&home), json!({"hooks": {"internal": {"entries": {"session-memory": {"enabled": true}}}}}));
    // If all are disabled, entries that would be enabled again stay disabled.
    home.configure("{hooks: {internal: {enabled: false, entries: {'boot-md': {enabled: true}}}}}");
    let enabled = home.run(&["hooks", "enable", "session-memory"]);
    assert!(enabled.code == Some(0) && enabled.stdout.contains("boot-md stays disabled"), "{enabled:?}");
    assert_eq!(on_now(&home), json!(["session-memory"]));
    // If all are enabled, they stay so.
    home.configure("{hooks: {internal: {enabled: true, entries: {'session-memory': {enabled: false}}}}}");
    assert_eq!(home.run(&["hooks", "enable", "session-memory"]).code, Some(0));
    assert_eq!(on_now(&home), json!(BUNDLED));
}

/// Creates a hook whose handler is a script, and enables it.
fn script(home: &Home, name: &str, text: &str) {
    let folder = hook(home.state().join("hooks").join(name), name, "");
    fs::remove_file(folder.join("handler.sh")).unwrap();
    fs::write(folder.join("handler.js"), text).unwrap();
    assert_eq!(home.run(&["hooks", "enable", name]).code, Some(0));
}

/// Creates a program that claims to be this version of Node.
fn fake_node(home: &Home, version: &str) -> PathBuf {
    let path = home.work().join("node");
    fs::write(&path, format!("#!/bin/sh\necho {version}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_hook_that_needs_node_is_checked_with_node() {
    let home = Home::new();
    let check = |home: &Home, path: &str| {
        let mut command = home.command(&["hooks", "check"]);
        command.env("PATH", path);
        run_command(command)
    };
    // No enabled hook needs Node.
    assert_eq!(check(&home, "/nowhere").code, Some(0));
    script(&home, "greet", "export default async () => {};\n");
    let none = check(&home, "/nowhere");
    assert!(none.code == Some(1) && none.stdout.contains("node was not found on the PATH"), "{none:?}");
    let old = fake_node(&home, "v20.20.2");
    let old = check(&home, old.parent().unwrap().to_str().unwrap());
    assert!(old.code == Some(1) && old.stdout.contains("is Node v20.20.2, which is too old"), "{old:?}");
    assert!(old.stdout.contains("greet"), "{old:?}");
    let json = home.run(&["hooks", "check", "--json"]);
    assert!(json.json()["node"].is_object(), "{json:?}");
}

#[test]
fn the_handler_of_a_hook_is_loaded_by_node() {
    let Some(node) = node("the_handler_of_a_hook_is_loaded_by_node") else { return };
    let home = Home::new();
    home.configure(&json!({"plugins": {"node": node}}).to_string());
    script(&home, "greet", "export default async () => {};\n");
    let valid = home.run(&["hooks", "check"]);
    assert!(valid.code == Some(0) && valid.stdout.contains(", Node: v"), "{valid:?}");
    script(&home, "torn", "export default async () => {\n");
    script(&home, "empty", "export const other = 1;\n");
    let invalid = home.run(&["hooks", "check"]);
    assert_eq!(invalid.code, Some(1), "{invalid:?}");
    assert!(invalid.stdout.contains("torn") && invalid.stdout.contains("cannot load the handler"), "{invalid:?}");
    let output = home.run(&["hooks", "check", "--json"]).json();
    let handlers: Vec<_> =
        output["handlers"].as_array().unwrap().iter().map(|item| (&item["hook"], &item["ok"])).collect();
    let expected = [("empty", false), ("greet", true), ("torn", false)].map(|(name, ok)| (json!(name), json!(ok)));
    assert_eq!(handlers, expected.iter().map(|(name, ok)| (name, ok)).collect::<Vec<_>>(), "{output}");
    assert!(!home.state().join("plugins").exists(), "the trial keeps nothing");
}

#[test]
fn a_hook_is_installed_without_running_it() {
    let home = Home::new();
    let source = hook(home.work().join("my-tides"), "tides", "");
    fs::write(source.join("package.json"), r#"{"version": "1.0.0", "scripts": {"install": "touch ran"}}"#).unwrap();
    let done = home.run(&["hooks", "install", "my-tides"]);
    let target = home.state().join("hooks/tides");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let expected_text = format!(
        "installed tides in {}\ntides: disabled; enable it with: homard hooks enable tides\n",
        target.display()
    );
    assert_eq!(done.stdout, expected_text);
    assert!(!target.join("ran").exists() && !source.join("ran").exists());
    let mut record = config(&home)["hooks"]["internal"]["installs"]["tides"].take();
    let (hash, at) = (record["hash"].take(), record["installedAt"].take());
    assert!(
        hash.as_str().is_some_and(|hash| hash.starts_with("sha256:"))
            && at.as_str().is_some_and(|at| at.ends_with('Z'))
    );
    let expected = json!({
        "source": "path", "sourcePath": source, "installPath": target, "installedAt": null, "hooks": ["tides"],
        "version": "1.0.0", "hash": null,
    });
    assert_eq!(record, expected);
    let refused = home.run(&["hooks", "install", "my-tides"]);
    let expected_text = format!("error: {} already exists; use --force to replace it\n", target.display());
    assert_eq!((refused.code, refused.stderr), (Some(1), expected_text));
    assert_eq!(home.run(&["hooks", "enable", "tides"]).code, Some(0));
    let again = home.run(&["hooks", "install", "my-tides", "--force", "--json"]).json();
    assert_eq!((&again["ok"], &again["hooks"]), (&json!(true), &json!([{"name": "tides", "state": "on"}])));
    assert_eq!(home.run(&["hooks", "check", "--json"]).json()["problems"], json!([]));
    fs::write(target.join("handler.sh"), "#!/bin/sh\n").unwrap();
    let check = home.run(&["hooks", "check"]).stdout;
    let changed = format!("problems:\n  {} was modified after its installation", target.display());
    assert!(check.contains(&changed), "{check}");
}

#[test]
fn a_linked_hook_is_used_in_place() {
    let home = Home::new();
    let source = hook(home.work().join("tides"), "tides", "");
    for _ in 0..2 {
        let done = home.run(&["hooks", "install", "--link", "tides"]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    }
    let real = fs::canonicalize(source).unwrap();
    assert_eq!(config(&home)["hooks"]["internal"]["load"]["extraDirs"], json!([real]));
    assert!(!home.state().join("hooks").exists());
    assert_eq!(home.run(&["hooks", "info", "tides", "--json"]).json()["source"], "openclaw-extra");
}

#[test]
fn a_failed_installation_reports_why_and_leaves_nothing() {
    let home = Home::new();
    hook(home.work().join("linked"), "linked", "");
    symlink("/etc/passwd", home.work().join("linked/more")).unwrap();
    fs::create_dir(home.work().join("empty")).unwrap();
    fs::write(home.work().join("pack.tgz"), "x").unwrap();
    for (path, expected) in [
        ("empty", "has neither a HOOK.md nor a package.json that names hooks"),
        ("linked", "is a link or special file; only regular files and folders can be installed"),
        ("pack.tgz", "is not a folder; unpack an archive first"),
        ("@me/hooks", "does not exist; specify a folder with a HOOK.md. Packages are not downloaded"),
    ] {
        let output = home.run(&["hooks", "install", path]);
        assert!(output.code == Some(2) && output.stderr.contains(expected), "{path}: {output:?}");
    }
    let both = home.run(&["hooks", "install", "empty", "--link", "--force"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(!home.state().join("homard.json").exists() && !home.state().join("hooks").exists());
}

#[test]
fn problems_with_files_are_reported_with_their_paths() {
    let home = Home::new();
    let hooks = home.state().join("hooks");
    fs::create_dir_all(hooks.join("broken")).unwrap();
    fs::write(hooks.join("broken/HOOK.md"), "just text").unwrap();
    hook(home.work().join("elsewhere"), "stranger", "");
    symlink(home.work().join("elsewhere"), hooks.join("away")).unwrap();
    hook(home.state().join("workspace/hooks/memory"), "session-memory", "");
    let output = home.run(&["hooks", "check"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let text = &output.stdout;
    assert!(text.starts_with("hooks: 4, enabled: 0\n\nnot enabled, with remedies:\n  boot-md "), "{text}");
    assert!(text.contains("disabled; enable it with: homard hooks enable command-logger\n"), "{text}");
    let assert_reported =
        |path: &Path, problem: &str| assert!(text.contains(&format!("  {} {problem}", path.display())), "{text}");
    assert_reported(&hooks.join("broken/HOOK.md"), "has no front matter");
    assert_reported(&hooks.join("away"), "is a link that leads out of ");
    let overridden = home.state().join("workspace/hooks/memory/HOOK.md");
    assert_reported(
        &overridden,
        "defines the hook \"session-memory\", which is overridden by the bundled hook; a workspace hook cannot",
    );
    let problems = home.run(&["hooks", "check", "--json"]).json()["problems"].as_array().unwrap().len();
    assert_eq!(problems, 3);
}

#[test]
fn hooks_receive_events_of_a_gateway_and_a_hanging_one_is_skipped() {
    let home = Home::new();
    let received = hook(home.state().join("hooks/tides"), "tides", "");
    fs::write(received.join("handler.sh"), "#!/bin/sh\ncat >> heard.jsonl\n").unwrap();
    let hanging = hook(home.state().join("hooks/hangs"), "hangs", ", \"timeoutMs\": 200");
    fs::write(hanging.join("handler.sh"), "#!/bin/sh\ntouch began\ntrap '' TERM\nsetsid sleep 1000 &\nsleep 1000\n")
        .unwrap();
    home.configure("{hooks: {internal: {enabled: true}}}");
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let reset = gateway.run(&["agent", "-m", "/new"]);
    assert_eq!((reset.code, reset.stderr.as_str()), (Some(0), ""));
    let event: Value = serde_json::from_str(&fs::read_to_string(received.join("heard.jsonl")).unwrap()).unwrap();
    let expected = ["type", "action", "sessionKey"].map(|key| event[key].as_str().unwrap());
    assert_eq!(expected, ["command", "new", "agent:main:main"]);
    assert!(event["context"]["cfg"].is_null() && event["context"]["previousSessionEntry"]["sessionId"].is_string());
    assert!(hanging.join("began").exists());
    let log = fs::read_to_string(home.state().join("logs/commands.log")).unwrap();
    assert!(log.lines().count() == 1 && log.contains("\"action\":\"new\""), "{log}");
    let stored: Vec<_> = fs::read_dir(home.state().join("workspace/memory")).unwrap().collect();
    let [Ok(stored)] = stored.as_slice() else { panic!("{stored:?}") };
    let stored = fs::read_to_string(stored.path()).unwrap();
    assert!(stored.contains("## Conversation Summary\n\nuser: ") && stored.contains("What time is it?"), "{stored}");
    let is_left = |folder: &Path| {
        let folder = fs::canonicalize(folder).unwrap();
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok());
        all.filter(|cwd| *cwd == folder).count()
    };
    assert_eq!(is_left(&hanging), 0);
}

/// Methods that do the same as a command emit the event of that command: a client's `/new` creates a session that
/// replaces another one, and hooks receive that event.
#[tokio::test]
async fn hooks_receive_resets_requested_by_methods() {
    let home = Home::new();
    let folder = home.state().join("hooks/log");
    fs::create_dir_all(&folder).unwrap();
    let front_matter =
        "---\nname: log\ndescription: d\nmetadata: {\"openclaw\": {\"events\": [\"command\", \"session\"]}}\n---\n";
    fs::write(folder.join("HOOK.md"), front_matter).unwrap();
    fs::write(folder.join("handler.sh"), "#!/bin/sh\ncat >> heard\necho >> heard\n").unwrap();
    fs::set_permissions(folder.join("handler.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    home.configure(
        "{agents: {defaults: {model: 'homard/demo'}}, hooks: {internal: {entries: {log: {enabled: true}}}}}",
    );
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, &["operator.admin"], &[]).await;
    for (method, params) in [
        ("sessions.create", json!({"key": "a", "parentSessionKey": "main", "emitCommandHooks": true})),
        ("sessions.create", json!({"key": "b", "parentSessionKey": "main"})),
        ("sessions.create", json!({"key": "c", "emitCommandHooks": true})),
        ("sessions.reset", json!({"key": "b", "reason": "new"})),
        ("sessions.reset", json!({"key": "b"})),
    ] {
        send_frame(&mut socket, &json!({"type": "req", "id": "1", "method": method, "params": params})).await;
        let answer = loop {
            let frame = next_frame(&mut socket).await.unwrap();
            if frame["id"] == "1" {
                break frame;
            }
        };
        assert_eq!(answer["ok"], true, "{answer}");
    }
    let received = fs::read_to_string(folder.join("heard")).unwrap();
    let received: Vec<_> = received
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [&event["type"], &event["action"], &event["sessionKey"], &event["context"]["commandSource"]]
                .map(text)
                .join(" ")
        })
        .collect();
    assert_eq!(
        received,
        [
            "command new agent:main:main gateway:sessions.create",
            "command new agent:main:b gateway:sessions.reset",
            "command reset agent:main:b gateway:sessions.reset",
        ]
    );
}
