//! Config keys whose effect only a running gateway shows.

use serde_json::json;

use crate::home::Home;

#[test]
fn skip_bootstrap_creates_a_workspace_without_starter_files() {
    for (skips, expected) in [(true, false), (false, true)] {
        let home = Home::new();
        home.configure(&json!({"agents": {"defaults": {"skipBootstrap": skips}}}).to_string());
        let output = home.run(&["agent", "-m", "help"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let workspace = home.state().join("workspace");
        assert!(workspace.is_dir());
        assert_eq!(workspace.join("AGENTS.md").exists(), expected);
    }
}

#[test]
fn verbose_default_is_the_level_of_new_sessions() {
    for level in ["on", "full"] {
        let home = Home::new();
        home.configure(&json!({"agents": {"defaults": {"verboseDefault": level}}}).to_string());
        let status = home.run(&["agent", "-m", "/status"]).stdout;
        assert!(status.contains(&format!("verbose: {level};")), "{status}");
    }
}

#[test]
fn keep_runs_never_drops_runs_of_the_last_day() {
    let home = Home::new();
    home.configure(&json!({"trace": {"keepRuns": 1}}).to_string());
    let run = || home.run(&["agent", "-m", "help", "--json"]).json()["runId"].as_str().unwrap().to_owned();
    for id in [run(), run(), run()] {
        assert_eq!(home.run(&["trace", &id]).code, Some(0), "{id}");
    }
}
