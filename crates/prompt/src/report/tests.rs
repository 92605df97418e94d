//! Tests of context reports.

use homard_command::ContextDetail;
use homard_proto::AgentId;
use homard_store::PromptMode;
use serde_json::json;

use super::*;
use crate::{
    input::Wording,
    sections::{self as prompt, tests::full},
};

fn report(mode: PromptMode, wording: Wording) -> ContextReport {
    let context = full(mode, wording);
    let (session, key) = (SessionId::parse("s-1").unwrap(), SessionKey::parse("main", &AgentId::main()).unwrap());
    let params = ReportParams {
        at: 7,
        session: &session,
        key: &key,
        model: ("anthropic", "opus"),
        window: Some(200_000),
        page_cap: 20_000,
        sandbox: "all",
        confines_commands: false,
    };
    ContextReport::of(&context, &prompt::render(&context), &params)
}

#[test]
fn a_report_has_the_format_of_openclaw() {
    let report = serde_json::to_value(report(PromptMode::Full, Wording::Rich)).unwrap();
    let members: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "source generatedAt sessionId sessionKey provider model workspaceDir bootstrapMaxChars sandbox \
                    systemPrompt injectedWorkspaceFiles skills tools contextWindow parts tokens";
    assert_eq!(members.join(" "), expected);
    assert_eq!((&report["source"], &report["sessionKey"]), (&json!("estimate"), &json!("agent:main:main")));
    assert_eq!(report["sandbox"], json!({"mode": "all", "sandboxed": true, "workspace": true}));
    assert_eq!(
        report["injectedWorkspaceFiles"].as_array().unwrap()[1..5],
        [
            json!({"name": "SOUL.md", "path": "/home/ann/desk/SOUL.md", "missing": false, "rawChars": 17,
                   "injectedChars": 17, "truncated": false}),
            json!({"name": "TOOLS.md", "path": "/home/ann/desk/TOOLS.md", "missing": true, "rawChars": 0,
                   "injectedChars": 46, "truncated": false}),
            json!({"name": "IDENTITY.md", "path": "/home/ann/desk/IDENTITY.md", "missing": false, "rawChars": 25_000,
                   "injectedChars": 34, "truncated": true}),
            json!({"name": "USER.md", "path": "/home/ann/desk/USER.md", "missing": false, "rawChars": 0,
                   "injectedChars": 25, "truncated": false, "problem": "it is a folder"}),
        ]
    );
    assert_eq!(report["skills"]["entries"], json!([{"name": "weather", "blockChars": 135}]));
    let zoo = json!({"name": "zoo", "summaryChars": 29, "schemaChars": 47, "propertiesCount": 0});
    assert_eq!(report["tools"]["entries"].as_array().unwrap().last(), Some(&zoo));
}

#[test]
fn the_totals_add_up() {
    for (mode, wording) in
        [(PromptMode::Full, Wording::Rich), (PromptMode::Full, Wording::Lean), (PromptMode::Minimal, Wording::Rich)]
    {
        let report = report(mode, wording);
        let chars = prompt::render(&full(mode, wording)).text.chars().count();
        let PromptSizes { chars: all, project_context_chars, non_project_context_chars } = report.system_prompt;
        assert_eq!((all, project_context_chars + non_project_context_chars), (chars, chars));
        assert_eq!(report.tools.schema_chars, report.tools.entries.iter().map(|tool| tool.schema_chars).sum::<usize>());
    }
}

#[test]
fn omitted_sections_have_no_size() {
    let report = report(PromptMode::None, Wording::Rich);
    let PromptSizes { chars, project_context_chars, .. } = report.system_prompt;
    assert_eq!((chars, project_context_chars), (report.parts[0].chars, 0));
    assert_eq!(
        (report.injected_workspace_files, report.skills, report.tools.list_chars),
        (vec![], SkillsReport::default(), 0)
    );
}

#[test]
fn reports_of_both_formats_can_be_parsed() {
    let report = report(PromptMode::Full, Wording::Rich);
    assert_eq!(serde_json::from_value::<ContextReport>(serde_json::to_value(&report).unwrap()).unwrap(), report);
    let foreign = json!({"source": "run", "provider": "fake", "model": "fake-1", "currentTurn": {},
                         "systemPrompt": {"chars": 23_151, "projectContextChars": 13_365, "nonProjectContextChars": 9_786},
                         "skills": {"promptChars": 1_624, "entries": []},
                         "tools": {"listChars": 1_926, "schemaChars": 392, "entries": [
                             {"name": "read", "summaryChars": 298, "schemaChars": 392, "propertiesCount": null}]}});
    let foreign: ContextReport = serde_json::from_value(foreign).unwrap();
    let expected = "\
Context for fake/fake-1, without the conversation; token counts are estimated.

part           characters  tokens
instructions        6,236   1,559
files              13,365   3,342
skills              1,624     406
list of tools       1,926     482
tool schemas          690     173
total              23,841   5,961

More: /context detail, /context json.";
    assert_eq!(format_report(&foreign, ContextDetail::List), expected);
}

#[test]
fn text_reports_match_their_snapshots() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        let mut report = report(PromptMode::Full, Wording::Rich);
        report.tokens.as_mut().unwrap().context = Some(50_100);
        insta::assert_snapshot!("list", format_report(&report, ContextDetail::List));
        insta::assert_snapshot!("detail", format_report(&report, ContextDetail::Detail));
    });
}

#[test]
fn the_json_report_is_complete() {
    let report = report(PromptMode::Full, Wording::Lean);
    assert_eq!(serde_json::from_str::<ContextReport>(&format_report(&report, ContextDetail::Json)).unwrap(), report);
}
