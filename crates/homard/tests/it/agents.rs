//! `homard agents`: listing and routing.

use std::fs;

use serde_json::{Value, json};

use crate::home::Home;

const CONFIG: &str = "{
    agents: {
        defaults: {model: 'homard/demo', skills: ['knots']},
        list: [{id: 'Main'}, {id: 'ops', identity: {name: 'Olga', emoji: '*'}, skills: []}, {id: 'lost', model: 'no/such'}],
    },
    bindings: [
        {agentId: 'ops', match: {channel: 'telegram', accountId: '*'}},
        {agentId: 'main', match: {channel: 'telegram', peer: {kind: 'group', id: '-5'}}},
        {agentId: 'ops', match: {channel: 'slack', teamId: 'T1'}},
    ],
}";

fn home() -> Home {
    let home = Home::new();
    home.configure(CONFIG);
    let workspace = home.state().join("workspace");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("IDENTITY.md"), "- **Name:** Ada\n").unwrap();
    home
}

#[test]
fn agents_are_listed_with_their_settings_and_bindings() {
    let home = home();
    let rows = home.run(&["agents", "--json"]).json();
    let ops = json!({
        "id": "ops", "isDefault": false, "workspace": home.state().join("workspace-ops"), "bindings": 2,
        "bindingDetails": ["telegram, any account", "slack, the default account, team T1"], "skills": [],
        "identityName": "Olga", "identityEmoji": "*", "identitySource": "config", "model": "homard/demo",
    });
    assert_eq!(rows[1], ops);
    let main = &rows[0];
    assert_eq!(
        (&main["id"], &main["isDefault"], &main["identityName"], &main["identitySource"], &main["skills"]),
        (&json!("main"), &json!(true), &json!("Ada"), &json!("identity"), &json!(["knots"]))
    );
    assert_eq!(rows[2]["model"], Value::Null);
    let output = home.run(&["agents", "list", "--bindings"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = output.stdout.lines().collect();
    let normalised = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let workspace = |name: &str| home.state().join(name).display().to_string();
    assert_eq!(normalised(lines[1]), format!("main (default) Ada homard/demo knots 1 {}", workspace("workspace")));
    assert_eq!(normalised(lines[2]), format!("ops * Olga homard/demo none 2 {}", workspace("workspace-ops")));
    assert_eq!(normalised(lines[3]), format!("lost - - knots 0 {}", workspace("workspace-lost")));
    let rules: Vec<_> = lines[5..10].iter().map(|line| normalised(line)).collect();
    assert_eq!(
        rules,
        [
            "MESSAGES FROM GO TO",
            "telegram, the default account, group -5 main",
            "telegram, any account ops",
            "slack, the default account, team T1 ops",
            "anywhere else main",
        ]
    );
    assert!(lines[10].starts_with("agent lost: "), "{output:?}");
    assert!(!home.state().join("workspace-ops").exists(), "looking must not make anything");
}

#[test]
fn a_message_is_routed_by_the_most_specific_binding_and_the_reason_is_shown() {
    let home = home();
    let route = |args: &[&str]| home.run(&[&["agents", "route"], args, &["--json"]].concat()).json();
    let expected = |agent: &str, key: &str, binding: Value, reason: &str, session_reason: &str| json!({"agentId": agent, "sessionKey": key, "binding": binding, "why": reason, "kept": session_reason});
    let separate_session = "every sender other than the owner has a separate session";
    assert_eq!(
        route(&["telegram", "--account", "Work", "--peer", "direct:42"]),
        expected(
            "ops",
            "agent:ops:telegram:work:direct:42",
            json!(0),
            "bindings[0] matches the whole channel: telegram, any account",
            separate_session
        )
    );
    assert_eq!(
        route(&["telegram", "--peer", "group:-5"]),
        expected(
            "main",
            "agent:main:telegram:group:-5",
            json!(1),
            "bindings[1] matches this conversation: telegram, the default account, group -5",
            "every group has its own session"
        )
    );
    assert_eq!(
        route(&["slack", "--team", "T1", "--owner"]),
        expected(
            "ops",
            "agent:ops:main",
            json!(2),
            "bindings[2] matches this team: slack, the default account, team T1",
            "the owner writes to the main session"
        )
    );
    let default_agent = "no binding matches, so the default agent is used";
    assert_eq!(
        route(&["irc"]),
        expected("main", "agent:main:irc:direct:someone", Value::Null, default_agent, separate_session)
    );
    let output = home.run(&["agents", "route", "irc", "--owner"]).stdout;
    assert_eq!(
        output,
        format!(
            "agent    main             ({default_agent})\nsession  agent:main:main  (the owner writes to the main session)\n"
        )
    );
    let rejected = home.run(&["agents", "route", "irc", "--peer", "person:1"]);
    let expected_text = "error: invalid --peer person:1; expected direct:ID, group:ID or channel:ID\n";
    assert_eq!((rejected.code, rejected.stderr.as_str()), (Some(2), expected_text));
}
