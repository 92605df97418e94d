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
fn keep_runs_has_a_minimum() {
    let home = Home::new();
    let refused = home.run(&["config", "set", "trace.keepRuns", "1"]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("trace.keepRuns must be a whole number from 100"),
        "{refused:?}"
    );
    assert_eq!(home.run(&["config", "set", "trace.keepRuns", "100"]).code, Some(0));
    assert_eq!(home.run(&["agent", "-m", "help"]).code, Some(0));
}
