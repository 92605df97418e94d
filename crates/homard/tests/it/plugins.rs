//! Plugins: listed, enabled, installed, examined.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::home::Home;

/// A plugin that answers everything and registers what its config names.
pub(crate) const PROGRAM: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {}
    if message["method"] == "initialize":
        tools = message["params"]["pluginConfig"].get("tools", [])
        offers = [{"name": name, "description": name, "parameters": {"type": "object"}} for name in tools]
        answer = {"registrations": {"tools": offers}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"#;

/// Creates a plugin in Python; returns its directory.
pub(crate) fn plugin(folder: PathBuf, id: &str) -> PathBuf {
    assert!(Path::new("/usr/bin/python3").exists(), "this test needs /usr/bin/python3, which is not on this machine");
    fs::create_dir_all(&folder).unwrap();
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["tools"],
        "properties": {"tools": strings, "token": {"type": "string"}}});
    let manifest = json!({
        "id": id, "description": "Tells when the water is high.", "version": "1.0.0", "configSchema": schema,
        "run": ["python3", "plugin.py"], "rights": {"tools": ["tide"], "env": ["TIDE_KEY"]},
    });
    fs::write(folder.join("homard.plugin.json"), manifest.to_string()).unwrap();
    fs::write(folder.join("plugin.py"), PROGRAM).unwrap();
    folder
}

fn config(home: &Home) -> Value {
    serde_json::from_str(&fs::read_to_string(home.state().join("homard.json")).unwrap()).unwrap()
}

/// Creates a home with the plugin `tides` installed, enabled and configured.
fn with_tides() -> Home {
    let home = Home::new();
    plugin(home.work().join("my-tides"), "tides");
    for args in [
        &["plugins", "install", "my-tides"][..],
        &["plugins", "enable", "tides"],
        &["config", "set", "plugins.entries.tides.config.tools", "[\"tide\"]"],
        &["config", "set", "plugins.entries.tides.env.TIDE_KEY", "high-and-secret"],
    ] {
        let output = home.run(args);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    home
}

#[test]
fn a_plugin_is_installed_and_shown_without_running_it() {
    let home = Home::new();
    assert_eq!(
        home.run(&["plugins"]).stdout,
        "no plugins; install one from a directory with: homard plugins install PATH\n"
    );
    let source = plugin(home.work().join("my-tides"), "tides");
    fs::write(source.join("plugin.py"), "open('ran', 'w')\n").unwrap();
    fs::write(source.join("package.json"), r#"{"scripts": {"install": "touch ran", "postinstall": "touch ran"}}"#)
        .unwrap();
    let done = home.run(&["plugins", "install", "my-tides"]);
    let target = home.state().join("extensions/tides");
    let expected_text = format!(
        "installed tides in {}\n\
         runs      python3 plugin.py, as you and outside the sandbox\n\
         tools     tide\n\
         may read  TIDE_KEY\n\
         it is off: it is not enabled in the config; enable it with: homard plugins enable tides\n",
        target.display()
    );
    assert_eq!((done.code, done.stderr.as_str(), done.stdout), (Some(0), "", expected_text));
    let mut record = config(&home)["plugins"]["installs"]["tides"].take();
    let (hash, at) = (record["hash"].take(), record["installedAt"].take());
    assert!(hash.as_str().is_some_and(|hash| hash.len() == 64) && at.as_str().is_some_and(|at| at.ends_with('Z')));
    let expected = json!({
        "source": "path", "sourcePath": source, "installPath": target, "installedAt": null, "version": "1.0.0",
        "hash": null,
    });
    assert_eq!(record, expected);
    assert_eq!(
        home.run(&["plugins", "list"]).stdout,
        "PLUGIN  STATE  FROM             FOR\n\
         tides   off    state directory  Tells when the water is high.\n"
    );
    let listed = home.run(&["plugins", "list", "--json"]).json();
    let entry = &listed["plugins"][0];
    assert_eq!(
        ["id", "origin", "status", "enabled", "declares", "registered"].map(|key| entry[key].clone()),
        [
            json!("tides"),
            json!("global"),
            json!("disabled"),
            json!(false),
            json!({"tools": ["tide"], "env": ["TIDE_KEY"]}),
            Value::Null
        ]
    );
    assert_eq!(home.run(&["plugins", "info", "tides", "--json"]).json(), *entry);
    let info = home.run(&["plugins", "info", "tides"]).stdout;
    assert!(info.contains("settings        tools (required), token\n"), "{info}");
    let refused = home.run(&["plugins", "install", "my-tides"]);
    let expected_text = format!("error: {} already exists; replace it with --force\n", target.display());
    assert_eq!((refused.code, refused.stderr), (Some(1), expected_text));
    let again = home.run(&["plugins", "install", "my-tides", "--force", "--json"]).json();
    assert_eq!([&again["ok"], &again["state"], &again["hash"]], [&json!(true), &json!("off"), &hash]);
    assert!(!target.join("ran").exists() && !source.join("ran").exists());
}

#[test]
fn enabling_and_disabling_a_plugin_keeps_the_files_comments() {
    let home = Home::new();
    plugin(home.state().join("extensions/tides"), "tides");
    home.configure("{\n  // Mine.\n  plugins: {allow: ['other'], deny: []}, // The sea.\n}\n");
    let enabled = home.run(&["plugins", "enable", "tides"]);
    assert_eq!(enabled.code, Some(0), "{enabled:?}");
    assert!(enabled.stdout.starts_with("tides is now enabled in "), "{enabled:?}");
    let lack = "tides cannot start yet: plugins.entries.tides.config is invalid: must have required property 'tools'";
    assert!(enabled.stderr.starts_with(lack), "{enabled:?}");
    let text = fs::read_to_string(home.state().join("homard.json")).unwrap();
    assert!(text.contains("// Mine.") && text.contains("// The sea."), "{text}");
    assert!(home.run(&["plugins"]).stdout.contains("tides   cannot start  state directory"));
    let again = home.run(&["plugins", "enable", "tides", "--json"]).json();
    assert_eq!((&again["enabled"], &again["changed"]), (&json!(true), &json!([])));
    let disabled = home.run(&["plugins", "disable", "tides", "--json"]).json();
    assert_eq!(
        (&disabled["enabled"], &disabled["changed"]),
        (&json!(false), &json!(["plugins.entries.tides.enabled"]))
    );
    let unknown = home.run(&["plugins", "enable", "tids"]);
    let expected = "error: plugin \"tids\" not found; did you mean \"tides\"? List plugins with: homard plugins list\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), expected));
}

#[test]
fn a_prefix_enables_the_plugin_that_it_names() {
    let home = Home::new();
    plugin(home.state().join("extensions/tides"), "tides");
    let enabled = home.run(&["plugins", "enable", "tide", "--json"]).json();
    assert_eq!((&enabled["id"], &enabled["changed"]), (&json!("tides"), &json!(["plugins.entries.tides.enabled"])));
    let disabled = home.run(&["plugins", "disable", "tide", "--json"]).json();
    assert_eq!((&disabled["id"], &disabled["enabled"]), (&json!("tides"), &json!(false)));
    plugin(home.state().join("extensions/tides2"), "tides2");
    let several = home.run(&["plugins", "info", "tide"]);
    assert_eq!(several.code, Some(2), "{several:?}");
    assert!(several.stderr.starts_with("error: plugin tide is ambiguous:\n  tides ("), "{several:?}");
}

#[test]
fn a_plugin_that_would_stay_disabled_is_not_changed_and_advice_is_shown() {
    let home = Home::new();
    plugin(home.state().join("extensions/tides"), "tides");
    plugin(home.state().join("workspace/.homard/extensions/own"), "own");
    for (text, id, expected) in [
        (
            "{plugins: {deny: ['tides']}}",
            "tides",
            "plugins.deny lists it; to remove it from that list: homard config unset 'plugins.deny[0]'",
        ),
        (
            "{plugins: {enabled: false}}",
            "tides",
            "plugins.enabled is false; to enable plugins: homard config set plugins.enabled true",
        ),
        (
            "{}",
            "own",
            "it is in the workspace, where the agent can write; to trust workspace plugins, set plugins.load.workspace to true",
        ),
    ] {
        home.configure(text);
        let output = home.run(&["plugins", "enable", id]);
        assert_eq!((output.code, output.stderr), (Some(1), format!("error: {id} would stay off: {expected}\n")));
        assert_eq!(fs::read_to_string(home.state().join("homard.json")).unwrap(), text);
    }
}

#[test]
fn a_linked_plugin_is_used_in_place() {
    let home = Home::new();
    let source = plugin(home.work().join("tides"), "tides");
    let done = home.run(&["plugins", "install", "tides", "--link"]);
    assert!(done.code == Some(0) && done.stdout.starts_with("linked tides to "), "{done:?}");
    assert_eq!(home.run(&["plugins", "install", "tides", "--link"]).code, Some(0));
    let plugins = config(&home)["plugins"].take();
    assert_eq!(plugins["load"]["paths"], json!([source]));
    assert!(plugins["installs"]["tides"]["hash"].is_null());
    assert!(!home.state().join("extensions").exists());
    assert!(home.run(&["plugins"]).stdout.contains("tides   off    load.paths"));
}

#[test]
fn the_guards_of_a_plugin_are_recorded_at_installation() {
    let home = Home::new();
    let file = plugin(home.work().join("tides"), "tides").join("homard.plugin.json");
    let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    manifest["guard"] = json!(["before_tool_call"]);
    fs::write(&file, manifest.to_string()).unwrap();
    let recorded_guards = |install_args: &[&str]| {
        let done = home.run(&[&["plugins", "install", "tides"], install_args].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        config(&home)["plugins"]["installs"]["tides"]["guard"].take()
    };
    assert_eq!(recorded_guards(&[]), json!(["before_tool_call"]));
    assert_eq!(recorded_guards(&["--link"]), json!(["before_tool_call"]));
    manifest["guard"] = json!([]);
    fs::write(&file, manifest.to_string()).unwrap();
    assert_eq!(recorded_guards(&["--force"]), Value::Null);
}

#[test]
fn a_failed_installation_reports_why_and_leaves_nothing() {
    let home = Home::new();
    let linked = plugin(home.work().join("linked"), "linked");
    symlink("/etc/passwd", linked.join("more")).unwrap();
    let manifest = plugin(home.work().join("manifest"), "manifest").join("homard.plugin.json");
    fs::rename(&manifest, home.work().join("elsewhere.json")).unwrap();
    symlink(home.work().join("elsewhere.json"), manifest).unwrap();
    let broken = plugin(home.work().join("broken"), "broken");
    fs::write(broken.join("homard.plugin.json"), "{\"id\": \"broken\"}").unwrap();
    fs::create_dir(home.work().join("empty")).unwrap();
    fs::write(home.work().join("pack.tgz"), "x").unwrap();
    for (path, expected) in [
        ("linked", "linked/more is a symlink that is broken or leads out of the plugin"),
        ("manifest", "is not used: it is a link that leads out of the plugin's folder"),
        ("broken", "has no \"configSchema\"; write {} if the plugin needs no config"),
        ("empty", "has neither a homard.plugin.json nor an openclaw.plugin.json"),
        ("pack.tgz", "is not a directory; unpack an archive first"),
        ("@me/tides", "does not exist; pass a directory with a manifest. Packages are not downloaded"),
    ] {
        let output = home.run(&["plugins", "install", path]);
        assert!(output.code == Some(2) && output.stderr.contains(expected), "{path}: {output:?}");
    }
    assert_eq!(home.run(&["plugins", "install", "empty", "--link", "--force"]).code, Some(2));
    let leftovers = fs::read_dir(home.state().join("extensions")).into_iter().flatten().count();
    assert!(leftovers == 0 && !home.state().join("homard.json").exists());
}

#[test]
fn validate_reports_an_invalid_plugin_config_with_its_path() {
    let home = with_tides();
    let valid = home.run(&["config", "validate", "--json"]).json();
    assert_eq!((&valid["valid"], &valid["warnings"]), (&json!(true), &json!([])));
    let set = home.run(&["config", "set", "plugins.entries.tides.config.token", "5"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    assert_eq!(home.run(&["config", "set", "plugins.entries.tdies.enabled", "true"]).code, Some(0));
    let output = home.run(&["config", "validate", "--json"]).json();
    let warnings: Vec<_> =
        output["warnings"].as_array().unwrap().iter().map(|item| [&item["path"], &item["message"]]).collect();
    assert_eq!(
        warnings,
        [
            [&json!("plugins.entries.tides.config.token"), &json!("must be string; the plugin is not started")],
            [&json!("plugins.entries.tdies"), &json!("names an unknown plugin: \"tdies\"; did you mean \"tides\"?")],
        ]
    );
    assert!(output["warnings"][0]["line"].is_number());
}

#[test]
fn doctor_starts_enabled_plugins_and_shows_their_registrations() {
    let home = with_tides();
    let output = home.run(&["plugins", "doctor"]);
    let (head, rest) = output.stdout.split_once("ready after ").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!((output.code, output.stderr.as_str(), head), (Some(0), "", "plugins: 1, enabled: 1\n\ntides: works, "));
    assert!(rest.ends_with("s\n  registers  tool tide\n"), "{output:?}");
    let tools = "[\"tide\", \"flood\", \"read\"]";
    assert_eq!(home.run(&["config", "set", "plugins.entries.tides.config.tools", tools]).code, Some(0));
    let output = home.run(&["plugins", "doctor", "--json"]);
    let entry = output.json()["plugins"][0].take();
    assert_eq!((output.code, &entry["ok"], &entry["registered"]), (Some(0), &json!(true), &json!(["tool tide"])));
    assert_eq!(
        entry["denied"],
        json!(["tool flood: the manifest does not declare it under \"rights\"", "tool read: the name is reserved"])
    );
    let to_do: Vec<_> =
        entry["findings"].as_array().unwrap().iter().map(|finding| finding["toDo"].as_str().unwrap()).collect();
    assert!(to_do[0].contains("under \"rights\"") && to_do[1].contains("report it to the author"), "{to_do:?}");
    assert!(entry["startMs"].is_number() && !output.stdout.contains("high-and-secret"));
    // The state of plugins and what a gateway knows about them is unchanged.
    assert!(!home.state().join("plugins").exists());
}

#[test]
fn doctor_reports_plugin_problems_with_advice() {
    let home = with_tides();
    let unset = home.run(&["config", "unset", "plugins.entries.tides.env.TIDE_KEY"]);
    assert_eq!(unset.code, Some(0), "{unset:?}");
    let target = home.state().join("extensions/tides");
    fs::write(target.join("plugin.py"), "raise SystemExit('changed')\n").unwrap();
    let crash = plugin(home.work().join("crash"), "crash");
    fs::write(crash.join("plugin.py"), "raise SystemExit('the sea is empty')\n").unwrap();
    fs::create_dir(home.state().join("extensions/broken")).unwrap();
    fs::write(home.state().join("extensions/broken/homard.plugin.json"), "{").unwrap();
    for args in [
        &["plugins", "install", "crash", "--link"][..],
        &["plugins", "enable", "crash"],
        &["config", "set", "plugins.entries.crash.config.tools", "[]"],
        &["config", "set", "plugins.entries.ghost.enabled", "true"],
    ] {
        assert_eq!(home.run(args).code, Some(0), "{args:?}");
    }
    let output = home.run(&["plugins", "doctor"]);
    let text = &output.stdout;
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(1), "error: not all enabled plugins can be used: 3 problems\n"),
        "{text}"
    );
    for expected in [
        "\n\ncrash: cannot be used\n",
        "the plugin does not start: the plugin process exited with status 1; its last line on stderr: the sea is empty\n",
        "to do  show its output with: HOMARD_LOG=info homard plugins doctor; the plugin is started in ",
        "\n\ntides: cannot be used\n",
        "wrong  the files were modified after the installation, so the plugin is not started\n",
        "/my-tides --force\n",
        "note   the plugin reads the environment variable TIDE_KEY, which is not set\n",
        "or: homard config set plugins.entries.tides.env.TIDE_KEY VALUE\n",
        "wrong  ghost is enabled in the config, but the plugin was not found\n",
        "or disable it: homard plugins disable ghost\n",
        "extensions/broken/homard.plugin.json is not JSON: ",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert_eq!(home.run(&["plugins", "disable", "ghost"]).code, Some(0));
    let document = home.run(&["plugins", "doctor", "--json"]).json();
    assert_eq!(document["findings"].as_array().unwrap().len(), 1);
    assert_eq!(document["findings"][0]["level"], "warning");
}
