//! Tests of the report for clients.

use std::path::Path;

use homard_workspace::skills::report;
use serde_json::json;

use crate::skills::fixture::Fixture;

#[test]
fn the_report_has_the_format_of_openclaw() {
    let mut fixture = Fixture::new();
    fixture.host.config = json!({"channels": {"x": {"token": "secret"}}});
    fixture.bundled(
        "full",
        r#"homepage: https://example.org
metadata: {"openclaw": {"emoji": "🦞", "skillKey": "key", "primaryEnv": "KEY", "os": ["linux", "darwin"],
  "requires": {"bins": ["b"], "anyBins": ["c"], "env": ["KEY"], "config": ["channels.x", "channels.y"]},
  "install": [{"kind": "apt", "package": "b"}, {"kind": "brew", "formula": "b", "os": "darwin"},
    {"kind": "go", "module": "g", "bins": ["b"]}, {"id": "n", "kind": "node", "package": "p", "label": "Other"}]}}"#,
    );
    fixture.skill("plain", "disable-model-invocation: true");
    let none = json!({"bins": [], "anyBins": [], "env": [], "config": [], "os": []});
    let expected = json!({
        "workspaceDir": "/w",
        "managedSkillsDir": "/m",
        "skills": [{
            "name": "full", "description": "Does full.", "source": "openclaw-bundled", "bundled": true,
            "filePath": fixture.path("bundled/full/SKILL.md"), "baseDir": fixture.path("bundled/full"), "skillKey": "key",
            "primaryEnv": "KEY", "emoji": "🦞", "homepage": "https://example.org",
            "always": false, "disabled": false, "blockedByAllowlist": false, "blockedByAgentFilter": false,
            "eligible": false, "platformIncompatible": false, "modelVisible": false, "userInvocable": true,
            "commandVisible": false,
            "requirements": {
                "bins": ["b"], "anyBins": ["c"], "env": ["KEY"], "config": ["channels.x", "channels.y"],
                "os": ["linux", "darwin"],
            },
            "missing": {"bins": ["b"], "anyBins": ["c"], "env": ["KEY"], "config": ["channels.y"], "os": []},
            "configChecks": [
                {"path": "channels.x", "satisfied": true}, {"path": "channels.y", "satisfied": false},
            ],
            "install": [{"id": "n", "kind": "node", "label": "Install p (npm)", "bins": []}],
        }, {
            "name": "plain", "description": "Does plain.", "source": "openclaw-workspace", "bundled": false,
            "filePath": fixture.path("w/skills/plain/SKILL.md"), "baseDir": fixture.path("w/skills/plain"),
            "skillKey": "plain",
            "always": false, "disabled": false, "blockedByAllowlist": false, "blockedByAgentFilter": false,
            "eligible": true, "platformIncompatible": false, "modelVisible": false, "userInvocable": true,
            "commandVisible": true,
            "requirements": none, "missing": none, "configChecks": [], "install": [],
        }],
    });
    assert_eq!(report(&fixture.skill_set(), Path::new("/w"), Path::new("/m")), expected);
}

#[test]
fn the_preferred_installer_is_reported_and_all_downloads() {
    let mut fixture = Fixture::new();
    let installers =
        |fixture: &Fixture| report(&fixture.skill_set(), Path::new(""), Path::new(""))["skills"][0]["install"].clone();
    let write = |fixture: &Fixture, install: &str| {
        fixture.skill("s", &format!("metadata: {{\"openclaw\": {{\"install\": [{install}]}}}}"));
    };
    let brew = json!([{"id": "brew-1", "kind": "brew", "label": "Install b (brew)", "bins": ["b", "c"]}]);
    let go = r#"{"kind": "Go", "module": "g"}"#;
    let brewed = r#"{"type": "brew", "formula": "b", "bins": "b, c"}"#;
    let uv = r#"{"kind": "uv", "package": "u"}"#;

    write(&fixture, &[go, brewed].join(","));
    assert_eq!(installers(&fixture), json!([{"id": "go-0", "kind": "go", "label": "Install g (go)", "bins": []}]));
    write(&fixture, &[uv, brewed].join(","));
    assert_eq!(installers(&fixture), json!([{"id": "uv-0", "kind": "uv", "label": "Install u (uv)", "bins": []}]));
    fixture.program("brew", 0o755);
    assert_eq!(installers(&fixture), brew);
    write(
        &fixture,
        r#"{"kind": "download", "url": "https://h/a/b.tgz"}, {"kind": "download", "label": "L", "os": ["linux"]},
      {"kind": "download", "os": ["darwin"]}, {"kind": "odd"}, 3"#,
    );
    let downloads = json!([
        {"id": "download-0", "kind": "download", "label": "Download b.tgz", "bins": []},
        {"id": "download-1", "kind": "download", "label": "L", "bins": []},
    ]);
    assert_eq!(installers(&fixture), downloads);
    write(&fixture, &[uv, brewed].join(","));
    fixture.host.config = json!({"skills": {"install": {"preferBrew": false}}});
    assert_eq!(installers(&fixture)[0]["kind"], "uv");
    write(&fixture, &[go, brewed].join(","));
    assert_eq!(installers(&fixture), brew);
    fixture.host.os = "win32".to_owned();
    fixture.skill("s", &format!("metadata: {{\"openclaw\": {{\"os\": [\"linux\"], \"install\": [{go}]}}}}"));
    assert_eq!(installers(&fixture), json!([]));
}
