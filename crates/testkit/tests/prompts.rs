//! System prompts, built by the real code path: a message arrives, a run starts, and the scripted model receives a
//! request. The texts are the snapshots in `prompts`, one for each workspace, mode and style.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use homard_agent::tool::Toolbox;
use homard_model::{Request, ToolSpec, tokens};
use homard_prompt::config::{HostInfo, PromptStyle, SkillKit};
use homard_testkit::{
    Trace, TraceResult, invariants, play, snapshot::format_snapshot, trace::TraceSetup, workspace::FileContents,
};
use homard_workspace::Starter;
use homard_workspace::skills::{
    DiscoveryLimits, HostEnvironment, PromptLimits, SkillRoots, SkillRules, SkillSet, block, discover,
};
use serde_json::Value;

/// A message to a session of the default agent, and one to a subagent of it.
const MAIN: &str = "at 0ms say \"hi\" prompt=\"Ann and Bob are here.\"\nmodel text \"Hello.\"";
const SUBAGENT: &str =
    "at 0ms say \"hi\" key=agent:main:subagent:u1 prompt=\"Count the boats.\"\nmodel text \"Hello.\"";

/// Tools that some sections depend on.
const TOOLS: &str = "set tool memory_search read {}\nset tool message effect {}\nset tool session_status read {}\n";

fn trace(text: &str) -> Trace {
    Trace::read("here", text).unwrap()
}

fn play_checked(trace: &Trace) -> TraceResult {
    let result = play(trace).unwrap();
    assert_eq!(invariants::violations(&result), Vec::<String>::new());
    result
}

/// Returns the system prompt of the first request, with a constant folder name.
fn prompt(result: &TraceResult) -> String {
    result.replace_path(&result.requests()[0].request.system)
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workspaces").join(name)
}

/// Returns the files of a folder, recursively.
fn files(folder: &Path) -> Vec<(String, FileContents)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                found.push((name, FileContents::Link(fs::read_link(path).unwrap())));
            } else {
                found.push((name, FileContents::Text(fs::read_to_string(path).unwrap())));
            }
        }
    }
    found
}

fn starter_files() -> Vec<(String, FileContents)> {
    let folder = tempfile::tempdir().unwrap();
    homard_workspace::create(folder.path(), Starter::Files).unwrap();
    files(folder.path())
}

/// Returns the skills of a workspace; their paths are shown relative to a home directory.
fn skill_kit(workspace: &Path) -> SkillKit {
    let roots = SkillRoots { workspace: workspace.join("skills"), ..SkillRoots::default() };
    let skill_set =
        SkillSet::new(discover(&roots, &DiscoveryLimits::default()), HostEnvironment::default(), SkillRules::default());
    SkillKit::new(&skill_set, block(&skill_set, &PromptLimits::default(), Some(workspace)))
}

/// Builds a trace in a golden workspace.
fn in_workspace(name: &str, style: PromptStyle, text: &str) -> Trace {
    let mut trace = trace(&format!("{TOOLS}set zone=Europe/Berlin\n{text}"));
    let TraceSetup { files: on_disk, setting: prompt_config, .. } = &mut trace.setup;
    *on_disk = match name {
        "fresh" => starter_files(),
        _ => files(&golden(name)),
    };
    if name == "broken" {
        on_disk.push(("AGENTS.md".to_owned(), FileContents::Huge));
        on_disk.push(("../secret.md".to_owned(), FileContents::Text("The password is tide.".to_owned())));
    }
    prompt_config.skills.replace(skill_kit(&golden(name)));
    prompt_config.style = style;
    prompt_config.aliases = vec![("fast".to_owned(), "script/script-1".to_owned())];
    let some = |text: &str| Some(text.to_owned());
    prompt_config.machine = HostInfo {
        host: some("lighthouse"),
        os: some("linux"),
        arch: some("x86_64"),
        shell: some("/bin/bash"),
        repo: None,
    };
    trace
}

/// Abbreviates long lines.
fn abridged(prompt: &str) -> String {
    let lines = prompt.lines().map(|line| match line.chars().count() {
        count if count > 2_000 => format!("{} [… {count} characters …]", line.chars().take(40).collect::<String>()),
        _ => line.to_owned(),
    });
    let mut counted: Vec<(String, usize)> = Vec::new();
    for line in lines {
        match counted.last_mut() {
            Some((last, times)) if *last == line => *times += 1,
            _ => counted.push((line, 1)),
        }
    }
    let line = |(line, times): (String, usize)| if times > 2 { format!("{line} [{times} times]") } else { line };
    counted.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn headings(prompt: &str) -> Vec<&str> {
    prompt.lines().filter(|line| line.starts_with('#')).collect()
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("prompts");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_workspace_has_its_prompts() {
    for workspace in ["fresh", "rich", "broken"] {
        for (name, style, text) in [
            ("full.rich", PromptStyle::Rich, MAIN),
            ("full.lean", PromptStyle::Lean, MAIN),
            ("minimal.rich", PromptStyle::Rich, SUBAGENT),
            ("minimal.lean", PromptStyle::Lean, SUBAGENT),
            ("bare", PromptStyle::Bare, MAIN),
        ] {
            let result = play_checked(&in_workspace(workspace, style, text));
            snapshot(&format!("{workspace}.{name}"), &abridged(&prompt(&result)));
            let Request { system, stable_bytes: stable, .. } = &result.requests()[0].request;
            assert!(!system[..*stable].contains("Ann and Bob") && !system.contains("The password"), "{system}");
        }
    }
}

#[test]
fn a_lean_prompt_with_its_tools_is_below_two_thousand_tokens_in_every_workspace() {
    for workspace in ["fresh", "rich", "broken"] {
        for text in [MAIN, SUBAGENT] {
            let result = play_checked(&in_workspace(workspace, PromptStyle::Lean, text));
            let Request { system, tools, .. } = &result.requests()[0].request;
            let schema = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
            let chars = system.chars().count() + tools.iter().map(schema).sum::<usize>();
            assert!(chars.div_ceil(4) < 2_000, "{workspace}: {chars} characters");
        }
    }
}

#[test]
fn a_lean_prompt_with_the_real_tools_is_below_two_thousand_tokens() {
    let mut trace = in_workspace("fresh", PromptStyle::Lean, MAIN);
    trace.setup.toolbox = Some(Toolbox::new(homard_tools::all(Vec::new())));
    let result = play_checked(&trace);
    let request = &result.requests()[0].request;
    let tokens = tokens::estimate(&request.system) + tokens::of_tools(&request.tools);
    let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["edit", "exec", "grep", "ls", "read", "write"]);
    assert!(tokens < 2_000, "{tokens} tokens");
}

#[test]
fn a_small_context_window_selects_the_lean_prompt() {
    let prompt_with =
        |line: &str| prompt(&play_checked(&in_workspace("rich", PromptStyle::Auto, &format!("{line}{MAIN}"))));
    let prompt_of = |style| prompt(&play_checked(&in_workspace("rich", style, MAIN)));
    assert_eq!(prompt_with("set window=31999\n"), prompt_of(PromptStyle::Lean));
    assert_eq!(prompt_with("set window=32000\n"), prompt_of(PromptStyle::Rich));
    // Neither an unknown context window nor the idle timeout of a self-hosted server does.
    assert_eq!(prompt_with("set window=0\n"), prompt_of(PromptStyle::Rich));
    assert_eq!(prompt_with("set idle=5m\n"), prompt_of(PromptStyle::Rich));
}

#[test]
fn case_97_a_subagent_gets_fewer_prompt_sections() {
    let prompt_for = |text| prompt(&play_checked(&in_workspace("rich", PromptStyle::Rich, text)));
    let (main, subagent) = (prompt_for(MAIN), prompt_for(SUBAGENT));
    let left_out = [
        "## Skills (mandatory)",
        "## Memory Recall",
        "## Reply Tags",
        "## Messaging",
        "## Silent Replies",
        "## Heartbeats",
    ];
    let has = |prompt: &str| left_out.map(|heading| headings(prompt).contains(&heading));
    assert_eq!((has(&main), has(&subagent)), ([true; 6], [false; 6]));
    assert!(main.contains("## Group Chat Context\nAnn and Bob are here."), "{main}");
    assert!(subagent.contains("## Subagent Context\nCount the boats."), "{subagent}");
    assert!(!subagent.contains("## Group Chat Context") && !subagent.contains("Ann prefers tea"), "{subagent}");
}

#[test]
fn case_98_a_long_file_keeps_its_ends() {
    let line = "0123456789".repeat(2_500);
    let text = format!("set file \"AGENTS.md\" \"0123456789\"*2500\n{MAIN}");
    let prompt = prompt(&play_checked(&trace(&text)));
    let mark = "[… the middle of AGENTS.md is left out: here are 14000 + 4000 of 25000 characters; read the file for the \
                rest …]";
    let expected = format!("## AGENTS.md\n{}\n\n{mark}\n\n{}\n## SOUL.md\n", &line[..14_000], &line[21_000..]);
    assert!(prompt.contains(&expected), "{}", abridged(&prompt));
}

#[test]
fn case_99_a_missing_file_is_marked() {
    let prompt = prompt(&play_checked(&trace(&format!("set file \"AGENTS.md\" \"Be kind.\"\n{MAIN}"))));
    let mark = "## TOOLS.md\n[MISSING] Expected at: /tmp/world-000000/desk/TOOLS.md\n";
    assert!(prompt.contains(mark), "{prompt}");
    // The guide and the memory are not reported as missing.
    assert!(!prompt.contains("BOOTSTRAP.md") && !prompt.contains("MEMORY.md"), "{prompt}");
}

#[test]
fn case_100_a_window_that_is_too_small_fails_with_advice() {
    let result = play_checked(&trace("set window=12000\nat 0ms say \"hi\""));
    assert_eq!(result.requests(), []);
    let expected = "run-1 failed (script/script-1 has a context window of 12000 tokens, but an agent needs 16000; choose \
                another model, or correct its contextWindow in models.providers.script if that is wrong)\n";
    assert!(format_snapshot(&result).contains(expected), "{}", format_snapshot(&result));
}

#[test]
fn a_request_that_cannot_fit_is_not_sent_during_a_run() {
    let result = play_checked(&trace(
        "set window=16000\nat 0ms say \"read it\"\nmodel call c1 read {\"path\":\"a\"} ; usage in=15990 out=10\n\
         tool c1 says \"word \"*20",
    ));
    assert_eq!(result.requests().len(), 1);
    let expected = "run-1 failed (the conversation is too long for this model and compaction could not shorten it \
                enough: choose a model with a larger context window, or start a new session with /new)\n";
    assert!(format_snapshot(&result).contains(expected), "{}", format_snapshot(&result));
}

#[test]
fn a_workspace_path_that_is_a_file_fails_the_run() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut trace = trace("at 0ms say \"hi\"");
    trace.setup.setting.workspace = Some(file.path().to_owned());
    let result = play_checked(&trace);
    assert_eq!(result.requests(), []);
    let reply = result.reply("run-1").unwrap();
    let path = file.path().display().to_string();
    assert!(reply.contains(&path) && reply.contains("cannot be used"), "{reply}");
}

#[test]
fn the_context_report_has_details() {
    let message = "at 0ms chat \"/context detail\"";
    let result = play_checked(&in_workspace("rich", PromptStyle::Rich, message));
    assert_eq!(result.requests(), []);
    snapshot("context_detail", &result.reply("run-1").unwrap());
}

#[test]
fn the_context_report_matches_the_next_request() {
    for style in [PromptStyle::Rich, PromptStyle::Lean, PromptStyle::Bare] {
        for key in ["main", "agent:main:subagent:u1"] {
            let text =
                format!("at 0ms chat \"/context json\" key={key}\nat 1s chat \"hi\" key={key}\nmodel text \"Hello.\"");
            let result = play_checked(&in_workspace("rich", style, &text));
            let report: Value = serde_json::from_str(&result.reply("run-1").unwrap()).unwrap();
            let Request { system, stable_bytes: stable, tools, .. } = &result.requests()[0].request;
            let chars = |text: &str| text.chars().count() as u64;
            assert_eq!(report["systemPrompt"]["chars"], chars(system));
            let parts = report["parts"].as_array().unwrap().iter();
            let sum =
                |parts: &mut dyn Iterator<Item = &Value>| parts.filter_map(|part| part["chars"].as_u64()).sum::<u64>();
            assert_eq!(sum(&mut parts.clone()), chars(system));
            assert_eq!(sum(&mut parts.filter(|part| part["stable"] == true)), chars(&system[..*stable]));
            let names = |list: &Value| -> Vec<String> {
                list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
            };
            let sent: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
            assert_eq!(names(&report["tools"]["entries"]), sent);
            let skills: BTreeMap<_, _> = ["knots", "Tide Table", "secret-handshake"]
                .map(|name| (name, names(&report["skills"]["entries"]).iter().any(|listed| listed == name)))
                .into();
            assert!(skills.iter().all(|(name, is_listed)| *is_listed == system.contains(*name)), "{skills:?} {system}");
            for file in report["injectedWorkspaceFiles"].as_array().unwrap() {
                assert!(system.contains(&format!("\n## {}\n", file["name"].as_str().unwrap())), "{file} {system}");
            }
        }
    }
}
