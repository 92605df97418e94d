//! `config.*`: reading and changing the config file. Secrets are never returned; placeholders for them in a submitted
//! text keep the stored values.

mod patch;

use homard_config::{
    edit::{self, EditError},
    path::Path,
    redact, schema,
};
use homard_gateway::{Method, MethodRequest, MethodScopes, Scope};
use homard_proto::{
    ErrorShape, Generation,
    method::config::{ApplyParams, GetParams, LookupParams, PatchParams, Raw, SchemaParams, SetParams},
};
use homard_runtime::{Ambient, ambient::iso};
use homard_settings::{
    Config,
    change::{ChangeAuthor, ConfigChange, ConfigChangeError, change, issue},
    effect::Effect,
    paths::Paths,
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::on_blocking_thread;
use crate::reload::{ConfigReloader, ReloadResult};

/// Returns the methods for the config.
pub fn methods(live: &ConfigReloader, paths: &Paths) -> Vec<Method> {
    let read_scopes = MethodScopes { v3: Scope::Admin, v4: Scope::Read };
    let method = |name,
                  scopes: MethodScopes,
                  answer: fn(MethodRequest, &ConfigReloader, &Paths) -> Result<Value, ErrorShape>| {
        let (live, paths) = (live.clone(), paths.clone());
        Method::new(name, scopes, move |request| on_blocking_thread(request, live.clone(), paths.clone(), answer))
    };
    vec![
        method("config.get", read_scopes, get),
        method("config.schema", read_scopes, describe),
        method("config.schema.lookup", read_scopes, look_up),
        method("config.set", Scope::Admin.into(), set),
        method("config.apply", Scope::Admin.into(), apply),
        method("config.patch", Scope::Admin.into(), patch),
    ]
}

/// Returns the current file, and the config that is used instead if it is invalid.
fn get(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let GetParams {} = request.params()?;
    let file = Config::read_file(&paths.config);
    let loaded = Config::inspect(paths).map_or_else(|loaded| *loaded, |chosen| chosen.loaded);
    let text = file.text.as_deref();
    let parsed = text.and_then(|text| edit::value(text).ok());
    // A file that cannot be parsed is not returned: its secrets cannot be found. `null` and not an empty text, which
    // would look like the whole file.
    let raw =
        text.zip(parsed.as_ref()).map(|(text, parsed)| visible_text(text, parsed, request.has_scope(Scope::Admin)));
    let parsed = parsed.unwrap_or_else(|| json!({}));
    let mut answer = json!({
        "path": paths.config, "exists": text.is_some() || !file.problems.is_empty(), "raw": raw,
        "parsed": redact::redact(&parsed), "valid": file.is_valid(), "config": redact::redact(&loaded.source),
        "hash": file.hash, "issues": file.all_problems().iter().map(issue).collect::<Vec<_>>(),
        "warnings": file.warnings.iter().map(issue).collect::<Vec<_>>(), "legacyIssues": [],
    });
    if request.generation() == Generation::Four {
        answer["sourceConfig"] = redact::redact(&file.source);
        answer["runtimeConfig"] = redact::redact(&live.current().source);
        answer["includedPaths"] = json!(file.files.iter().skip(1).collect::<Vec<_>>());
        answer["configRevisionHash"] = file.hash.into();
        answer["appliedConfigHash"] = live.current().hash.as_str().into();
    }
    Ok(answer)
}

/// Returns the text of the file for a client. Comments may contain unrecognized secrets, so only clients that may
/// change the file receive them.
fn visible_text(text: &str, parsed: &Value, with_comments: bool) -> String {
    if with_comments { redact::redact_text(text) } else { format!("{:#}\n", redact::redact(parsed)) }
}

/// Returns the schema and the UI hints.
fn describe(mut request: MethodRequest, _: &ConfigReloader, _: &Paths) -> Result<Value, ErrorShape> {
    let SchemaParams {} = request.params()?;
    Ok(json!({
        "schema": schema::schema_inlined::<Config>(), "uiHints": schema::hints::<Config>(),
        "version": env!("CARGO_PKG_VERSION"), "generatedAt": iso(Ambient::system().now_ms()),
    }))
}

/// Returns one key of the schema and its children. The root is `.`; a list item may be written `[]`.
fn look_up(mut request: MethodRequest, _: &ConfigReloader, _: &Paths) -> Result<Value, ErrorShape> {
    let LookupParams { path } = request.params()?;
    let key_path = match path.trim() {
        "." => Path::root(),
        path => path
            .replace("[]", "[0]")
            .parse()
            .map_err(|error: homard_config::path::Error| ErrorShape::invalid(error.to_string()))?,
    };
    schema::describe_key::<Config>(&key_path)
        .ok_or_else(|| ErrorShape::invalid(format!("config schema path not found: {path}")))
}

fn set(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let SetParams { raw, base_hash } = request.params()?;
    let value = object("config.set", &raw)?;
    apply_change(live, paths, base_hash.as_deref(), |text| submitted_text(&raw, &value, text))
}

/// Same as `set`: changes are always applied immediately, without waiting for active runs.
fn apply(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let ApplyParams { raw, base_hash } = request.params()?;
    let value = object("config.apply", &raw)?;
    apply_change(live, paths, base_hash.as_deref(), |text| submitted_text(&raw, &value, text))
}

fn patch(mut request: MethodRequest, live: &ConfigReloader, paths: &Paths) -> Result<Value, ErrorShape> {
    let PatchParams { raw, base_hash, replace_paths } = request.params()?;
    let patch = object("config.patch", &raw)?;
    let replaced = replace_paths.iter().map(|path| {
        let invalid_path =
            |why| ErrorShape::invalid(format!("invalid config.patch params: replacePaths: {path:?}: {why}"));
        path.parse().map_err(invalid_path)
    });
    let replaced: Vec<Path> = replaced.collect::<Result<_, _>>()?;
    apply_change(live, paths, base_hash.as_deref(), |text| patched(&patch, &replaced, text))
}

/// Returns the text of the file with some keys changed. Paths in `replaced` are replaced as a whole instead of merged.
pub fn patched(patch: &Value, replaced: &[Path], text: &str) -> Result<String, ConfigChangeError> {
    let mut value = edit::value(text)?;
    patch::merge(&mut value, patch, &Path::root(), replaced);
    // An empty file without additions becomes `{}`.
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    Ok(edit::replace(text, &value)?)
}

/// Parses a client's text as an object.
pub fn object(method: &str, raw: &Raw) -> Result<Value, ErrorShape> {
    let invalid_params = |why: &str| ErrorShape::invalid(format!("invalid {method} params: raw {why}"));
    match edit::value(&raw.0) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(invalid_params("must be an object")),
        Err(EditError::Syntax { location, what: problem }) => {
            Err(invalid_params(&format!("cannot be read: {location}: {problem}")))
        }
        Err(error) => Err(invalid_params(&format!("cannot be read: {error}"))),
    }
}

/// Returns the text that a client sent, with the secrets that it was not shown. A form sends plain JSON whatever the
/// file's format is; then only the differing values are edited in the file's text, and its comments stay.
pub(crate) fn submitted_text(raw: &Raw, value: &Value, text: &str) -> Result<String, ConfigChangeError> {
    if raw.0 == redact::redact_text(text) {
        return Ok(text.to_owned());
    }
    let (mut value, old) = (value.clone(), edit::value(text).unwrap_or_default());
    redact::restore(&mut value, &old).map_err(ConfigChangeError::Hidden)?;
    let is_plain = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    if is_plain(&raw.0)
        && !is_plain(text)
        && let Ok(replaced) = edit::replace(text, &value)
        && !text.trim().is_empty()
    {
        return Ok(replaced);
    }
    Ok(edit::replace(&raw.0, &value)?)
}

/// Makes a change, applies it, and reports which keys need a restart.
pub(crate) fn apply_change(
    live: &ConfigReloader,
    paths: &Paths,
    base: Option<&str>,
    edit: impl Fn(&str) -> Result<String, ConfigChangeError>,
) -> Result<Value, ErrorShape> {
    let outcome = change(paths, ChangeAuthor::Client(base), edit).map_err(|error| change_error(&error))?;
    let reload = live.reload();
    let ConfigChange { changed, after, .. } = outcome;
    let restart: Vec<_> = changed.iter().filter(|path| Effect::of(path) == Effect::Restart).collect();
    let mut answer = json!({
        "ok": true, "path": paths.config, "hash": after.hash, "config": redact::redact(&after.source),
        "changedPaths": changed, "restart": {"required": !restart.is_empty(), "paths": restart},
    });
    if changed.is_empty() {
        answer["noop"] = true.into();
    }
    match reload {
        ReloadResult::Rejected(why) => answer["notice"] = why.into(),
        // The file watcher may have applied it first.
        ReloadResult::Unchanged | ReloadResult::Applied { .. } => {}
    }
    Ok(answer)
}

/// Maps a rejected change to a response.
pub(super) fn change_error(rejection: &ConfigChangeError) -> ErrorShape {
    let with_issues = |message: String, issues: Vec<Value>| ErrorShape {
        details: Some(json!({"issues": issues})),
        ..ErrorShape::invalid(message)
    };
    match rejection {
        ConfigChangeError::Invalid(problems) => {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            with_issues(format!("invalid config: {first}"), problems.iter().map(issue).collect())
        }
        ConfigChangeError::Hidden(paths) => {
            let hint = format!("must not be {}: there is no secret to keep; write the secret itself", redact::REDACTED);
            let issues = paths.iter().map(|path| json!({"path": path.to_string(), "message": hint})).collect();
            with_issues(rejection.to_string(), issues)
        }
        ConfigChangeError::Stale
        | ConfigChangeError::Unreadable(_)
        | ConfigChangeError::Edit(_)
        | ConfigChangeError::Missing => ErrorShape::invalid(rejection.to_string()),
        ConfigChangeError::Write(error) => {
            let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
            ErrorShape::unavailable(format!("{error}{why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_to(raw: &str, text: &str) -> Result<String, String> {
        let raw = Raw(raw.to_owned());
        let value = object("config.set", &raw).map_err(|error| error.message)?;
        submitted_text(&raw, &value, text).map_err(|rejection| rejection.to_string())
    }

    #[test]
    fn a_submitted_text_is_stored_verbatim_with_redacted_secrets_restored() {
        let text = "{gateway: {auth: {token: 'hush'}, port: 1}} // mine";
        let redacted = redact::redact_text(text);
        assert_eq!(set_to(&redacted, text).unwrap(), text);
        let edited = redacted.replace("port: 1", "port: 2, /* two */").replace("// mine", "// ours");
        assert_eq!(set_to(&edited, text).unwrap(), edited.replace("'__OPENCLAW_REDACTED__'", "\"hush\""));
        assert_eq!(
            set_to("{gateway: {auth: {password: '__OPENCLAW_REDACTED__'}}}", text).unwrap_err(),
            "__OPENCLAW_REDACTED__ is the placeholder of a redacted secret, but gateway.auth.password has no secret"
        );
    }

    #[test]
    fn plain_json_keeps_the_comments_of_the_file() {
        let text = "{gateway: {auth: {token: 'hush'}, port: 1}} // mine";
        let form = r#"{"gateway": {"auth": {"token": "__OPENCLAW_REDACTED__"}, "port": 2}}"#;
        assert_eq!(set_to(form, text).unwrap(), text.replace('1', "2"));
        // Without comments in the file the text is used as it is.
        assert_eq!(set_to("{\n\"a\": 1}", "{\"a\": 1}").unwrap(), "{\n\"a\": 1}");
        assert_eq!(set_to("{\n\"a\": 1}", "{a: ").unwrap(), "{\n\"a\": 1}");
        assert_eq!(set_to("{\n\"a\": 1}", "").unwrap(), "{\n\"a\": 1}");
    }

    #[test]
    fn an_invalid_config_is_rejected_with_a_reason() {
        let error = |raw: &str| set_to(raw, "{}").unwrap_err();
        assert_eq!(error("[]"), "invalid config.set params: raw must be an object");
        assert_eq!(
            error("{a: 1\n b: 2}"),
            "invalid config.set params: raw cannot be read: line 1, column 6: expected comma"
        );
    }
}
