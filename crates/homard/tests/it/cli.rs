//! Consistency of the command line: arguments, errors and JSON, with and without a gateway.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::home::{CommandOutput, Home};

/// Checks that a command was refused as invalid usage, without words of the protocol.
fn assert_usage(args: &[&str], output: &CommandOutput, message: &str) {
    assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
    assert!(output.stderr.contains(message), "{args:?}: {output:?}");
    for word in [" params", "INVALID_REQUEST", "runs.list"] {
        assert!(!output.stderr.contains(word), "{args:?}: {output:?}");
    }
}

#[test]
fn invalid_usage_is_exit_code_two_with_and_without_a_gateway() {
    let home = Home::new();
    home.configure("{channels: {webhook: {secret: 'abcdefghijklmnopqrstuvwxyz012345'}}}");
    let gateway = home.gateway();
    let turns: [(&[&str], &str); 2] = [
        (&["agent", "-m", "hi", "--agent", "ghost"], "unknown agent \"ghost\"; list agents with: homard agents"),
        (&["agent", "-m", "hi", "--thinking", "bogus"], "--thinking: unknown level \"bogus\""),
    ];
    let other_home = Home::new();
    for (args, message) in turns {
        let (with, without) = (gateway.run(args), other_home.run(args));
        assert_usage(args, &with, message);
        assert_eq!((with.code, &with.stderr), (without.code, &without.stderr), "{args:?}");
    }
    let job = ["cron", "add", "--name", "x", "-m", "x"];
    for (flag, value) in [("--at", "never"), ("--cron", "x"), ("--every", "often")] {
        let args = [&job[..], &[flag, value]].concat();
        assert_usage(&args, &gateway.run(&args), &format!("error: {flag} "));
    }
    let args = [&job[..], &["--cron", "0 7 * * *", "--tz", "Mars"]].concat();
    assert_usage(&args, &gateway.run(&args), "error: --tz \"Mars\" is not a time zone");
    let others: [(&[&str], &str); 6] = [
        (&["message", "send", "--to", "", "-m", "x"], "--to is empty"),
        (&["message", "poll", "--to", "1", "--question", "x", "--option", "y"], "at least two --option"),
        (&["sessions", "compact", " "], "error: session key: "),
        (&["channels", "logs", "bogus"], "channel bogus is not configured"),
        (&["pairing", "approve", "telegram", ""], "CODE is empty"),
        (&["gateway", "call", "health", "--token", "x", "--url", "http://x"], "http://x is not a gateway URL"),
    ];
    for (args, message) in others {
        assert_usage(args, &gateway.run(args), message);
    }
    let (with, without) = (gateway.run(&["trace", "nothing"]), other_home.run(&["trace", "nothing"]));
    assert_eq!((with.code, with.stderr.as_str()), (Some(1), without.stderr.as_str()));
    assert_eq!(without.stderr, "error: no run found: nothing\nlist runs with: homard trace list\n");
}

#[test]
fn a_unique_prefix_of_an_id_is_enough() {
    let home = Home::new();
    let gateway = home.gateway();
    let add = |name: &str| {
        let args = ["cron", "add", "--name", name, "--every", "1h", "-m", "What time is it?", "--json"];
        gateway.run(&args).json()["id"].as_str().unwrap().to_owned()
    };
    let (tea, _, _) = (add("Tea"), add("Rain"), add("Rain"));
    assert_eq!(gateway.run(&["cron", "runs", &tea[..8]]).stdout, "no runs yet\n");
    let several = gateway.run(&["cron", "rm", "Rain"]);
    assert_usage(&["cron", "rm", "Rain"], &several, "error: job Rain is ambiguous:\n  ");
    assert_eq!(several.stderr.matches(" (Rain)\n").count(), 2, "{several:?}");
    assert_eq!(gateway.run(&["cron", "rm", "Tea"]).stdout, format!("removed job {tea}\n"));
    for command in ["rm", "run"] {
        let output = gateway.run(&["cron", command, "Tea", "--json"]);
        assert_eq!((output.code, &output.json()["error"]["type"]), (Some(1), &"not_found".into()), "{output:?}");
    }
    let turn = gateway.run(&["agent", "-m", "What time is it?", "--json"]).json();
    let run = turn["runId"].as_str().unwrap();
    let with = gateway.run(&["trace", &run[..8], "--json"]).json();
    assert_eq!(with["run"]["runId"], run);
    drop(gateway);
    let without = home.run(&["trace", &run[..8], "--json"]).json();
    assert_eq!(without["run"]["runId"], run);
}

/// Collects the paths of all keys of a document; elements of an array share a path.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}/{name}");
                keys(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(rows) => rows.iter().for_each(|row| keys(row, path, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn json_has_the_same_keys_with_and_without_a_gateway() {
    let home = Home::new();
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    let commands: [&[&str]; 8] = [
        &["agent", "-m", "What time is it?"],
        &["sessions"],
        &["runs", "-n", "5"],
        &["runs", "held"],
        &["trace", "last"],
        &["pairing"],
        &["sessions", "compactions", "main"],
        &["status"],
    ];
    let keys_of = |run: &dyn Fn(&[&str]) -> CommandOutput| -> Vec<BTreeSet<String>> {
        let document = |args: &&[&str]| {
            let mut found = BTreeSet::new();
            keys(&run(&[args, &["--json"][..]].concat()).json(), "", &mut found);
            // Null or empty without a gateway, which alone knows them.
            found.retain(|path| !["/work/", "/heartbeat/agents/"].iter().any(|prefix| path.starts_with(prefix)));
            found
        };
        commands.iter().map(document).collect()
    };
    let without = keys_of(&|args| home.run(args));
    let gateway = home.gateway();
    let with = keys_of(&|args| gateway.run(args));
    for ((args, with), without) in commands.iter().zip(with).zip(without) {
        let different: Vec<_> = with.symmetric_difference(&without).collect();
        assert!(different.is_empty(), "{args:?}: {different:?}");
    }
}

#[test]
fn a_timeout_has_a_unit() {
    let home = Home::new();
    let gateway = home.gateway();
    for timeout in ["5000", "5s"] {
        assert_eq!(gateway.run(&["gateway", "call", "health", "--timeout", timeout]).code, Some(0), "{timeout}");
    }
    for timeout in ["60", "1m"] {
        assert_eq!(gateway.run(&["agent", "-m", "What time is it?", "--timeout", timeout]).code, Some(0), "{timeout}");
    }
    let args = ["agent", "-m", "x", "--timeout", "soon"];
    assert_usage(&args, &gateway.run(&args), "not a duration such as 90s or 5m");
}
