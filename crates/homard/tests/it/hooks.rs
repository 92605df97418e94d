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
fn hook(folder: PathBuf, name: &str, more: &str) -> PathBuf {
    fs::create_dir_all(&folder).unwrap();
    let matter = format!(
        "---\nname: {name}\ndescription: Tell when the water is high.\nmetadata: {{\"openclaw\": {{\"events\": [\"command:new\"]{more}}}}}\n---\n"
    );
    fs::write(folder.join("HOOK.md"), matter).unwrap();
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
fn hooks_are_listed_with_what_they_lack_and_the_way_out() {
    let home = Home::new();
    let more = ", \"requires\": {\"env\": [\"TIDE_KEY\"]}";
    let managed = hook(home.state().join("hooks/tides"), "tides", more);
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
    let way_out = "set the variable TIDE_KEY, or: homard config set hooks.internal.entries.tides.env.TIDE_KEY VALUE";
    assert!(info.ends_with(&format!("to do          {way_out}\n")), "{info}");
    assert_eq!(home.run(&["hooks", "info", "tides", "--json"]).json(), listed["hooks"][5]);
    let unknown = home.run(&["hooks", "info", "flying"]);
    let words = "error: there is no hook \"flying\"; list hooks with: homard hooks list\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(2), words));
    let set = home.run(&["config", "set", "hooks.internal.entries.tides.env.TIDE_KEY", "high-and-secret"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let all = ["list", "check"].map(|word| home.run(&["hooks", word, "--json"]).stdout).join("");
    assert!(!all.contains("high-and-secret"), "{all}");
    assert_eq!(home.run(&["hooks", "check", "--json"]).json()["on"][3], "tides");
}

#[test]
fn a_hook_is_switched_on_and_off_and_the_file_keeps_its_comments() {
    let home = Home::new();
    home.configure("{\n  // Mine.\n  hooks: {token: 't'}, // The sea.\n}\n");
    let on = home.run(&["hooks", "enable", "session-memory"]);
    assert_eq!((on.code, on.stderr.as_str()), (Some(0), ""));
    assert!(on.stdout.starts_with("session-memory is now enabled in "), "{}", on.stdout);
    assert!(on.stdout.contains("restart the gateway to apply the change\n"), "{}", on.stdout);
    let text = fs::read_to_string(home.state().join("homard.json")).unwrap();
    assert!(text.contains("// Mine.") && text.contains("// The sea."), "{text}");
    let again = home.run(&["hooks", "enable", "session-memory"]).stdout;
    assert_eq!(again, "session-memory is already enabled; nothing changed\n");
    let off = home.run(&["hooks", "disable", "session-memory", "--json"]).json();
    assert_eq!(
        (&off["enabled"], &off["changed"]),
        (&json!(false), &json!(["hooks.internal.entries.session-memory.enabled"]))
    );
    assert_eq!(on_now(&home), json!([]));
    let unknown = home.run(&["hooks", "enable", "flying"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
}

/// Returns the enabled hooks.
fn on_now(home: &Home) -> Value {
    home.run(&["hooks", "check", "--json"]).json()["on"].take()
}

#[test]
fn to_switch_one_hook_on_switches_on_no_other() {
    let home = Home::new();
    home.run(&["hooks", "enable", "session-memory"]);
    assert_eq!(on_now(&home), json!(["session-memory"]));
    assert_eq!(config(&home), json!({"hooks": {"internal": {"entries": {"session-memory": {"enabled": true}}}}}));
    // If all are disabled, entries that would be enabled again stay disabled.
    home.configure("{hooks: {internal: {enabled: false, entries: {'boot-md': {enabled: true}}}}}");
    let on = home.run(&["hooks", "enable", "session-memory"]);
    assert!(on.code == Some(0) && on.stdout.contains("boot-md stays disabled"), "{on:?}");
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
fn a_hook_that_needs_node_is_tried_with_it() {
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
    let good = home.run(&["hooks", "check"]);
    assert!(good.code == Some(0) && good.stdout.contains(", Node: v"), "{good:?}");
    script(&home, "torn", "export default async () => {\n");
    script(&home, "empty", "export const other = 1;\n");
    let bad = home.run(&["hooks", "check"]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(bad.stdout.contains("torn") && bad.stdout.contains("cannot load the handler"), "{bad:?}");
    let told = home.run(&["hooks", "check", "--json"]).json();
    let handlers: Vec<_> = told["handlers"].as_array().unwrap().iter().map(|one| (&one["hook"], &one["ok"])).collect();
    let expected = [("empty", false), ("greet", true), ("torn", false)].map(|(name, ok)| (json!(name), json!(ok)));
    assert_eq!(handlers, expected.iter().map(|(name, ok)| (name, ok)).collect::<Vec<_>>(), "{told}");
    assert!(!home.state().join("plugins").exists(), "the trial keeps nothing");
}

#[test]
fn a_hook_is_installed_and_nothing_of_it_is_run() {
    let home = Home::new();
    let source = hook(home.work().join("my-tides"), "tides", "");
    fs::write(source.join("package.json"), r#"{"version": "1.0.0", "scripts": {"install": "touch ran"}}"#).unwrap();
    let done = home.run(&["hooks", "install", "my-tides"]);
    let target = home.state().join("hooks/tides");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let words = format!(
        "installed tides in {}\ntides: disabled; enable it with: homard hooks enable tides\n",
        target.display()
    );
    assert_eq!(done.stdout, words);
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
    let words = format!("error: {} already exists; use --force to replace it\n", target.display());
    assert_eq!((refused.code, refused.stderr), (Some(1), words));
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
fn a_hook_is_used_where_it_is() {
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
fn what_cannot_be_installed_says_why_and_leaves_nothing() {
    let home = Home::new();
    hook(home.work().join("linked"), "linked", "");
    symlink("/etc/passwd", home.work().join("linked/more")).unwrap();
    fs::create_dir(home.work().join("empty")).unwrap();
    fs::write(home.work().join("pack.tgz"), "x").unwrap();
    for (path, words) in [
        ("empty", "has neither a HOOK.md nor a package.json that names hooks"),
        ("linked", "is a link or special file; only regular files and folders can be installed"),
        ("pack.tgz", "is not a folder; unpack an archive first"),
        ("@me/hooks", "does not exist; specify a folder with a HOOK.md. Packages are not downloaded"),
    ] {
        let said = home.run(&["hooks", "install", path]);
        assert!(said.code == Some(2) && said.stderr.contains(words), "{path}: {said:?}");
    }
    let both = home.run(&["hooks", "install", "empty", "--link", "--force"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    assert!(!home.state().join("homard.json").exists() && !home.state().join("hooks").exists());
}

#[test]
fn what_is_wrong_with_files_is_told_with_their_paths() {
    let home = Home::new();
    let hooks = home.state().join("hooks");
    fs::create_dir_all(hooks.join("broken")).unwrap();
    fs::write(hooks.join("broken/HOOK.md"), "just text").unwrap();
    hook(home.work().join("elsewhere"), "stranger", "");
    symlink(home.work().join("elsewhere"), hooks.join("away")).unwrap();
    hook(home.state().join("workspace/hooks/memory"), "session-memory", "");
    let said = home.run(&["hooks", "check"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let text = &said.stdout;
    assert!(text.starts_with("hooks: 4, enabled: 0\n\nnot enabled, with remedies:\n  boot-md "), "{text}");
    assert!(text.contains("disabled; enable it with: homard hooks enable command-logger\n"), "{text}");
    let told = |path: &Path, what: &str| assert!(text.contains(&format!("  {} {what}", path.display())), "{text}");
    told(&hooks.join("broken/HOOK.md"), "has no front matter");
    told(&hooks.join("away"), "is a link that leads out of ");
    let hidden = home.state().join("workspace/hooks/memory/HOOK.md");
    told(
        &hidden,
        "defines the hook \"session-memory\", which is overridden by the bundled hook; a workspace hook cannot",
    );
    let problems = home.run(&["hooks", "check", "--json"]).json()["problems"].as_array().unwrap().len();
    assert_eq!(problems, 3);
}

#[test]
fn hooks_hear_of_what_happens_in_a_gateway_and_one_that_hangs_hurts_nobody() {
    let home = Home::new();
    let heard = hook(home.state().join("hooks/tides"), "tides", "");
    fs::write(heard.join("handler.sh"), "#!/bin/sh\ncat >> heard.jsonl\n").unwrap();
    let hangs = hook(home.state().join("hooks/hangs"), "hangs", ", \"timeoutMs\": 200");
    fs::write(hangs.join("handler.sh"), "#!/bin/sh\ntouch began\ntrap '' TERM\nsetsid sleep 1000 &\nsleep 1000\n")
        .unwrap();
    home.configure("{hooks: {internal: {enabled: true}}}");
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let anew = gateway.run(&["agent", "-m", "/new"]);
    assert_eq!((anew.code, anew.stderr.as_str()), (Some(0), ""));
    let event: Value = serde_json::from_str(&fs::read_to_string(heard.join("heard.jsonl")).unwrap()).unwrap();
    let told = ["type", "action", "sessionKey"].map(|key| event[key].as_str().unwrap());
    assert_eq!(told, ["command", "new", "agent:main:main"]);
    assert!(event["context"]["cfg"].is_null() && event["context"]["previousSessionEntry"]["sessionId"].is_string());
    assert!(hangs.join("began").exists());
    let log = fs::read_to_string(home.state().join("logs/commands.log")).unwrap();
    assert!(log.lines().count() == 1 && log.contains("\"action\":\"new\""), "{log}");
    let kept: Vec<_> = fs::read_dir(home.state().join("workspace/memory")).unwrap().collect();
    let [Ok(kept)] = kept.as_slice() else { panic!("{kept:?}") };
    let kept = fs::read_to_string(kept.path()).unwrap();
    assert!(kept.contains("## Conversation Summary\n\nuser: ") && kept.contains("What time is it?"), "{kept}");
    let is_left = |folder: &Path| {
        let folder = fs::canonicalize(folder).unwrap();
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok());
        all.filter(|cwd| *cwd == folder).count()
    };
    assert_eq!(is_left(&hangs), 0);
}

/// Methods that do what a command does are heard of as that command. A client's `/new` makes a session that takes the place
/// of another one, of which hooks hear.
#[tokio::test]
async fn hooks_hear_of_sessions_that_methods_begin_anew() {
    let home = Home::new();
    let folder = home.state().join("hooks/log");
    fs::create_dir_all(&folder).unwrap();
    let matter =
        "---\nname: log\ndescription: d\nmetadata: {\"openclaw\": {\"events\": [\"command\", \"session\"]}}\n---\n";
    fs::write(folder.join("HOOK.md"), matter).unwrap();
    fs::write(folder.join("handler.sh"), "#!/bin/sh\ncat >> heard\necho >> heard\n").unwrap();
    fs::set_permissions(folder.join("handler.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    home.configure(
        "{agents: {defaults: {model: 'homard/demo'}}, hooks: {internal: {entries: {log: {enabled: true}}}}}",
    );
    let gateway = home.gateway();
    let mut socket = connect_as(gateway.port, &gateway.token(), 4, (&["operator.admin"], &[])).await;
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
    let heard = fs::read_to_string(folder.join("heard")).unwrap();
    let heard: Vec<_> = heard
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
        heard,
        [
            "command new agent:main:main gateway:sessions.create",
            "command new agent:main:b gateway:sessions.reset",
            "command reset agent:main:b gateway:sessions.reset",
        ]
    );
}
