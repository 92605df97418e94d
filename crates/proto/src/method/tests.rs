//! Every parameter of every method has an effect or an error.
//!
//! Checked here, for every parameter type of both generations:
//!
//! - Every member of the schema is kept by the type that handlers get. A member that only the schema knows would be
//!   accepted and dropped.
//! - Handlers destructure the type with a pattern that names every field, without `..` and `_`. A field that is added
//!   does not compile until it is bound, and an unused binding is a warning, which the build refuses.
//! - A parameter of OpenClaw that is not supported is refused by its name, or is listed with the reason why it needs no
//!   effect.
//! - A type that accepts unknown members is listed with the reason.
//! - Every parameter has a row in `effects.tsv`, which says where its effect is seen: in an answer of a running gateway,
//!   which `homard/tests/it/parameters.rs` requests, or in an existing test or trace that names the parameter.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Serialize;
use serde_json::{Value, json};

use super::Params;
use crate::{Generation, schema::Schema};

/// A parameter type, as the tests know it.
struct ParamsType {
    /// Path below this module.
    name: &'static str,
    method: &'static str,
    schema: fn(Generation) -> &'static Schema,
    refused: &'static [(&'static str, &'static str)],
    no_effect: &'static [(&'static str, &'static str)],
    /// Decodes parameters as the handler gets them, and encodes them again.
    read: fn(Generation, Value) -> Result<Value, String>,
}

fn read<P: Params + Serialize>(generation: Generation, params: Value) -> Result<Value, String> {
    P::decode(generation, Some(params)).map(|params| json!(params)).map_err(|error| error.message)
}

macro_rules! known {
    ($($family:ident::{$($type:ident),* $(,)?}),* $(,)?) => {
        vec![$($(ParamsType {
            name: concat!(stringify!($family), "::", stringify!($type)),
            method: <super::$family::$type as Params>::METHOD,
            schema: <super::$family::$type as Params>::schema,
            refused: <super::$family::$type as Params>::REFUSED,
            no_effect: <super::$family::$type as Params>::NO_EFFECT,
            read: read::<super::$family::$type>,
        }),*),*]
    };
}

fn all() -> Vec<ParamsType> {
    known![
        agent::{AgentParams, WaitParams},
        agents::{IdentityParams, ListParams},
        approvals::{
            GetParams, HistoryParams, ListParams, PolicyParams, RequestParams, ResolveParams, SetPolicyParams, WaitParams,
        },
        audit::{AcknowledgeParams},
        channels::{
            LogoutParams, LogsParams, PairingApproveParams, PairingDismissParams, PairingListParams, PairingRevokeParams,
            PollParams, SendParams, StatusParams,
        },
        chat::{AbortParams, HistoryParams, InjectParams, MetadataParams, ResumeParams, SendParams},
        commands::{ListParams},
        config::{ApplyParams, GetParams, LookupParams, PatchParams, SchemaParams, SetParams},
        connect::{ConnectParams},
        cron::{
            AddParams, GetParams, LastHeartbeatParams, ListParams, RemoveParams, RunParams, RunsParams,
            SetHeartbeatsParams, StatusParams, UpdateParams, WakeParams,
        },
        devices::{DecideParams, ListParams, LoginCodeParams, RemoveParams, RenameParams, RevokeParams, TokenParams},
        subscribe::{MessagesParams, SubscribeParams},
        gateway::{HealthParams, StatusParams},
        queries::{
            CatalogParams, GithubParams, LanesParams, NodeListParams, NothingParams, AgentQueryParams, SystemEventParams,
            TasksParams, ToolsParams, UsageStatusParams,
        },
        logs::{TailParams},
        models::{ListParams},
        runs::{
            DropParams, GetParams, HeldParams, ListParams, PromptParams, ReleaseParams, ToolsParams, TraceParams,
        },
        service::{RestartParams, StatusParams},
        sessions::{
            CompactParams, CompactionsParams, CreateParams, DeleteParams, DescribeParams, ListParams, PatchParams,
            PreviewParams, ResetParams, ResolveParams, UndoCompactionParams,
        },
        skills::{StatusParams, UpdateParams},
        usage::{CostParams, LogsParams, PeriodParams, TimeseriesParams},
    ]
}

const GENERATIONS: [Generation; 2] = [Generation::Three, Generation::Four];

/// Members that handlers get under another name, or that are not encoded again.
const ELSEWHERE: [(&str, &str, &str); 5] = [
    ("channels::PairingApproveParams", "requestId", "read as `code`"),
    ("agent::AgentParams", "attachments", "written down again with the names of its own fields"),
    ("chat::SendParams", "attachments", "written down again with the names of its own fields"),
    ("skills::UpdateParams", "env", "left out if it is empty, as the example is"),
    ("chat::SendParams", "expectedLeafEntryId", "no part of the request's fingerprint; see `View` in the gateway"),
];

/// Types that accept unknown members, and why.
const OPEN: [(&str, &str); 27] = [
    ("approvals::HistoryParams", READS),
    ("approvals::RequestParams", "what else is said of a command is shown to whoever decides"),
    ("channels::PairingListParams", READS),
    ("channels::StatusParams", READS),
    ("chat::MetadataParams", READS),
    ("commands::ListParams", READS),
    ("connect::ConnectParams", "a client of another version says more of itself"),
    ("cron::LastHeartbeatParams", READS),
    ("cron::ListParams", READS),
    ("cron::RunsParams", READS),
    ("cron::StatusParams", READS),
    ("cron::WakeParams", "OpenClaw's own schema is open here"),
    ("subscribe::MessagesParams", READS),
    ("subscribe::SubscribeParams", READS),
    ("gateway::HealthParams", READS),
    ("gateway::StatusParams", READS),
    ("queries::CatalogParams", READS),
    ("queries::GithubParams", READS),
    ("queries::LanesParams", READS),
    ("queries::NodeListParams", READS),
    ("queries::NothingParams", READS),
    ("queries::AgentQueryParams", READS),
    ("queries::TasksParams", READS),
    ("queries::ToolsParams", READS),
    ("queries::UsageStatusParams", READS),
    ("models::ListParams", READS),
    ("usage", READS),
];

/// Newer clients request views and columns that change nothing and do not exist here.
const READS: &str = "it changes nothing, and clients ask for views that differ from version to version";

/// A type that a handler passes on as a whole.
type HandedOn = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Types that a handler passes on as a whole: the handler, the file that destructures them, and the fields that are
/// read elsewhere.
const HANDED_ON: [HandedOn; 6] = [
    ("AgentParams", "gateway/src/methods/agent.rs", "agent/src/intake.rs", &[]),
    (
        "SendParams",
        "gateway/src/methods/chat/send.rs",
        "agent/src/intake.rs",
        &[
            ("originating_channel", "proto/src/method/chat.rs"),
            ("originating_to", "proto/src/method/chat.rs"),
            ("originating_account_id", "proto/src/method/chat.rs"),
            ("originating_thread_id", "proto/src/method/chat.rs"),
            ("expected_leaf_entry_id", "gateway/src/methods/chat/send.rs"),
        ],
    ),
    (
        "ListParams",
        "gateway/src/methods/sessions.rs",
        "gateway/src/methods/sessions.rs",
        &[
            ("limit", "gateway/src/methods/sessions.rs"),
            ("offset", "gateway/src/methods/sessions.rs"),
            ("sort_by", "gateway/src/methods/sessions.rs"),
            ("configured_agents_only", "gateway/src/methods/sessions.rs"),
        ],
    ),
    ("SendParams", SAY, SAY, &[]),
    ("PollParams", SAY, SAY, &[]),
    ("UpdateParams", SKILLS, SKILLS, &[("skill_key", SKILLS)]),
];

const SAY: &str = "app/src/methods/channels/send.rs";
const SKILLS: &str = "app/src/methods/skills.rs";

#[test]
fn every_params_type_is_listed() {
    let listed: BTreeSet<_> = all().iter().map(|listed| listed.name.to_owned()).collect();
    let mut found = BTreeSet::new();
    for (path, text) in sources("proto/src/method") {
        let family = Path::new(&path).file_stem().unwrap().to_str().unwrap().to_owned();
        let types = between(&text, "params!(", ",").chain(between(&text, "impl Params for ", " {"));
        let macros = between(&text, "    ", " = \"").filter(|name| name.ends_with("Params"));
        found.extend(types.chain(macros).filter(|name| !name.contains('$')).map(|name| format!("{family}::{name}")));
    }
    found.retain(|name| !name.starts_with("mod::") && !name.starts_with("tests::"));
    assert_eq!(listed, found);
}

#[test]
fn every_parameter_reaches_the_handler() {
    for params_type in all() {
        for generation in GENERATIONS {
            let schema = (params_type.schema)(generation);
            for member in schema.property_names() {
                if ELSEWHERE.iter().any(|(name, parameter, _)| (*name, *parameter) == (params_type.name, member)) {
                    continue;
                }
                let example = schema.example(Some(member));
                let decoded =
                    (params_type.read)(generation, example.clone()).unwrap_or_else(|why| panic!("{example}: {why}"));
                assert_eq!(decoded[member], example[member], "{} of {} is dropped", member, params_type.method);
            }
        }
    }
}

#[test]
fn unsupported_members_are_rejected_by_name() {
    for params_type in all() {
        for generation in GENERATIONS {
            let schema = (params_type.schema)(generation);
            let plain = schema.example(None);
            for (name, why) in params_type.refused {
                assert!(!schema.property_names().any(|member| member == *name), "{name} is a parameter");
                let decode_with = |value: Value| {
                    let mut params = plain.clone();
                    params[*name] = value;
                    (params_type.read)(generation, params)
                };
                let error = decode_with("x".into()).unwrap_err();
                assert_eq!(error, format!("invalid {} params: {name} is not supported: {why}", params_type.method));
                // `null` and `false` have no effect.
                let decoded_without = decode_example(&params_type, generation);
                assert_eq!(
                    (decode_with(Value::Null), decode_with(false.into())),
                    (decoded_without.clone(), decoded_without)
                );
            }
            for (name, why) in params_type.no_effect {
                assert!(why.len() > 20, "{name} needs a reason");
                let mut params = plain.clone();
                params[*name] = "x".into();
                assert_eq!((params_type.read)(generation, params), decode_example(&params_type, generation), "{name}");
            }
        }
    }
}

fn decode_example(params_type: &ParamsType, generation: Generation) -> Result<Value, String> {
    (params_type.read)(generation, (params_type.schema)(generation).example(None))
}

#[test]
fn unknown_members_are_rejected() {
    for params_type in all() {
        let reason = OPEN
            .iter()
            .find(|(name, _)| *name == params_type.name || params_type.name.split("::").next() == Some(*name));
        for generation in GENERATIONS {
            let schema = (params_type.schema)(generation);
            assert!(schema.is_closed() || reason.is_some(), "{} accepts what nobody knows", params_type.name);
        }
        let is_open = GENERATIONS.iter().any(|generation| !(params_type.schema)(*generation).is_closed());
        assert!(is_open || reason.is_none(), "{} is closed; take it off the list", params_type.name);
    }
}

/// Searches the source code: after `.params()?`, a handler must destructure all fields, so that none is forgotten. A
/// handler that passes the parameters on is listed in [`HANDED_ON`], and the file that destructures them is checked.
#[test]
fn handlers_read_every_parameter() {
    let mut handler_count = 0;
    for dir in ["gateway/src", "app/src", "homard/src", "agent/src"] {
        for (path, text) in sources(dir) {
            for (at, _) in text.match_indices(".params()?") {
                let before = &text[..at];
                let pattern = before.rfind("let ").map(|start| &before[start + 4..]).unwrap_or_default();
                let pattern = pattern.rsplit_once('=').map(|(pattern, _)| pattern.trim()).unwrap_or_default();
                handler_count += 1;
                match pattern.strip_prefix("params: ") {
                    Some(name) => {
                        let is_listed =
                            HANDED_ON.iter().any(|(listed, handler, ..)| *listed == name && path.ends_with(handler));
                        assert!(is_listed, "{path}: {name} is not taken apart; name all its fields in a pattern");
                    }
                    None => check_pattern(&path, pattern, &[]),
                }
            }
        }
    }
    assert!(handler_count > 80, "only {handler_count} handlers were found");
    for (name, _, file, elsewhere) in HANDED_ON {
        let (path, text) = sources(file).remove(0);
        let start = text.find(&format!("let {name} {{")).unwrap_or_else(|| panic!("{path} does not take {name} apart"));
        let pattern = text[start + 4..].split_once('=').unwrap().0;
        check_pattern(&path, pattern.trim(), elsewhere);
    }
}

/// Fails if a destructuring pattern leaves a field unread. A field bound to `_` must be read as `params.field` in the
/// same file, or be in `elsewhere`, with the file that reads it.
fn check_pattern(path: &str, pattern: &str, elsewhere: &[(&str, &str)]) {
    assert!(pattern.contains("Params"), "{path}: `{pattern}` is no pattern of parameters");
    assert!(!pattern.contains(".."), "{path}: `{pattern}` leaves fields out");
    for field in pattern.split([',', '{']).filter_map(|field| field.trim().strip_suffix(": _")) {
        let (location, read) = match elsewhere.iter().find(|(name, _)| *name == field) {
            Some((_, location)) => (*location, format!(".{field}")),
            None => (path, format!("params.{field}")),
        };
        let is_read = sources(location).iter().any(|(_, text)| has_word(text, &read));
        assert!(is_read, "{location} does not read `{field}`");
    }
}

/// True if a text contains an expression that is not the beginning of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[test]
fn every_parameter_has_an_effect_that_is_checked() {
    let (mut rows, mut errors) = (BTreeMap::new(), Vec::new());
    let lines = include_str!("effects.tsv").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let columns: Vec<_> = line.split('\t').collect();
        let [method, parameter, kind, rest @ ..] = columns.as_slice() else { panic!("{line:?} has too few columns") };
        if *kind != "setup" && rows.insert((*method, *parameter), (*kind, rest.to_vec())).is_some() {
            errors.push(format!("{method} {parameter}: there are two rows"));
        }
    }
    let mut parameters = BTreeSet::new();
    for params_type in all() {
        for generation in GENERATIONS {
            parameters.extend(
                (params_type.schema)(generation).property_names().map(|name| (params_type.method, name.to_owned())),
            );
        }
    }
    for (method, name) in &parameters {
        if !rows.contains_key(&(*method, name.as_str())) {
            errors.push(format!("{method} {name}: no row says where its effect is seen"));
        }
    }
    let tests = tests();
    for ((method, name), (kind, rest)) in &rows {
        let why = match (*kind, rest.as_slice()) {
            _ if !parameters.contains(&(*method, (*name).to_owned())) => "there is no such parameter",
            ("live", [_, _, _] | [_, _, _, _, _]) => continue,
            ("none", [reason]) if reason.len() > 20 && is_open(method) => continue,
            ("none", _) => "only a method that changes nothing may ignore a parameter, with a reason",
            ("test", [test, mark @ ..]) => {
                let marks =
                    if mark.is_empty() { vec![(*name).to_owned(), snake(name)] } else { vec![mark[0].to_owned()] };
                match tests.get(*test).map(Vec::as_slice) {
                    None => "there is no test of this name",
                    Some([text]) if marks.iter().any(|mark| text.contains(mark)) => continue,
                    Some([_]) => "the test does not name it",
                    Some(_) => "there are several tests of this name",
                }
            }
            _ => "the row cannot be read",
        };
        errors.push(format!("{method} {name}: {why}"));
    }
    assert!(errors.is_empty(), "effects.tsv:\n{}", errors.join("\n"));
}

fn is_open(method: &str) -> bool {
    all().iter().any(|params_type| params_type.method == method && !(params_type.schema)(Generation::Four).is_closed())
        || OPEN
            .iter()
            .any(|(name, _)| all().iter().any(|params_type| params_type.method == method && params_type.name == *name))
}

fn snake(name: &str) -> String {
    let part = |letter: char| {
        if letter.is_ascii_uppercase() { format!("_{}", letter.to_ascii_lowercase()) } else { letter.to_string() }
    };
    name.chars().map(part).collect()
}

/// Returns the texts of all tests and traces of the workspace by name.
fn tests() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, text) in files("", "rs") {
        // What comes after the attribute of a test, up to the next one.
        for part in text.replace("#[tokio::test", "#[test").split("#[test").skip(1) {
            let name = part.split_once("fn ").map(|(_, rest)| rest.split('(').next().unwrap_or_default());
            found.entry(name.unwrap_or_default().to_owned()).or_default().push(part.to_owned());
        }
    }
    for (path, text) in files("testkit/tests/traces", "trace") {
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap().to_owned();
        found.entry(name).or_default().push(text);
    }
    found
}

/// Returns the files below a folder of the workspace, or one file, with this extension.
fn files(dir: &str, extension: &str) -> Vec<(String, String)> {
    let mut pending = vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(dir)];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// Returns the sources below a folder of the workspace, or one file, without their tests.
fn sources(dir: &str) -> Vec<(String, String)> {
    let without_tests = |text: String| text.split("#[cfg(test)]\nmod").next().unwrap_or_default().to_owned();
    files(dir, "rs").into_iter().map(|(path, text)| (path, without_tests(text))).collect()
}

/// Returns the texts between two markers.
fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let tails = text.match_indices(start).map(move |(at, _)| &text[at + start.len()..]);
    tails
        .filter_map(move |tail| tail.split_once(end).map(|(name, _)| name))
        .filter(|name| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '$'))
}
