//! `homard config get`: prints values of the file.

use anyhow::Result;
use homard_config::{
    ConfigProblem, edit, nearest,
    path::{self, Path, Step},
    redact, schema,
};
use homard_settings::{Config, paths::Paths};
use serde_json::Value;

use crate::{cli_error::CliError, render};

/// Output options.
#[derive(Debug, Clone, Copy)]
pub(super) struct GetOptions {
    pub(super) secrets: bool,
    pub(super) json: bool,
}

/// Prints the value at a path, or the whole file.
pub(super) fn run(paths: &Paths, path: Option<&Path>, options: GetOptions) -> Result<()> {
    if options.secrets && !render::is_terminal() {
        return Err(CliError::usage("--show-secrets works only if the output is a terminal").into());
    }
    let loaded = Config::read_file(&paths.config);
    let file = paths.config.display();
    let broken = |problem: String| CliError::new("config", format!("config file {file}, {problem}"));
    match (&loaded.text, loaded.problems.first()) {
        (Some(text), _) => drop(edit::value(text).map_err(|error| broken(error.to_string()))?),
        (None, Some(problem)) => return Err(broken(problem.to_string()).into()),
        (None, None) => {}
    }
    warn_invalid(&loaded.all_problems(), paths);
    let source = if options.secrets { loaded.source } else { redact::redact(&loaded.source) };
    let path = path.cloned().unwrap_or_default();
    let value = path::get(&source, &path).ok_or_else(|| missing(&source, &path))?;
    let printed = match value.as_str().filter(|_| !options.json) {
        Some(text) if render::is_terminal() => render::print(&render::strip_controls(text)),
        Some(text) => render::print(text),
        None => render::print_json(value),
    };
    Ok(printed?)
}

/// Warns about an invalid file.
fn warn_invalid(problems: &[ConfigProblem], paths: &Paths) {
    if let Some(first) = problems.first() {
        let file = paths.config.display();
        render::remark(&format!(
            "config file {file} is not valid: {first}; list all problems with: homard config validate"
        ));
    }
}

/// Returns the failure for a path that does not exist in the file.
pub(super) fn missing(source: &Value, path: &Path) -> CliError {
    let mut existing = Path::root();
    let missing_step = path.steps().iter().find(|step| {
        let next = match step {
            Step::Key(name) => existing.key(name),
            Step::Index(at) => existing.index(*at),
        };
        let exists = path::get(source, &next).is_some();
        if exists {
            existing = next;
        }
        !exists
    });
    let help = match missing_step {
        _ if schema::describe_key::<Config>(path).is_some() => {
            "; the key is not set, so its default applies".to_owned()
        }
        Some(Step::Key(name)) => similar_key(source, &existing, name)
            .map(|similar| format!("; did you mean {similar:?}?"))
            .unwrap_or_default(),
        Some(Step::Index(_)) | None => String::new(),
    };
    CliError::new("config", format!("Config path not found: {path}{help}"))
}

/// Returns the most similar name in an object: an existing key or a known one.
fn similar_key(source: &Value, object: &Path, name: &str) -> Option<String> {
    let parent = path::get(source, object).and_then(Value::as_object);
    let known = schema::describe_key::<Config>(object);
    let known = known.as_ref().and_then(|known| known["children"].as_array()).into_iter().flatten();
    let names = parent.into_iter().flat_map(|object| object.keys().map(String::as_str));
    nearest(name, names.chain(known.filter_map(|child| child["key"].as_str()))).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_path_is_reported_with_a_suggestion() {
        let source = json!({"gateway": {"port": 1}, "models": {"providers": {"local": {"apiKey": "x"}}}});
        let message = |path: &str| missing(&source, &path.parse().unwrap()).to_string();
        assert_eq!(message("gatway.port"), "Config path not found: gatway.port; did you mean \"gateway\"?");
        assert_eq!(message("gateway.prot"), "Config path not found: gateway.prot; did you mean \"port\"?");
        assert_eq!(message("gateway.bidn"), "Config path not found: gateway.bidn; did you mean \"bind\"?");
        assert_eq!(
            message("gateway.bind"),
            "Config path not found: gateway.bind; the key is not set, so its default applies"
        );
        assert_eq!(message("nope.nope"), "Config path not found: nope.nope");
        assert_eq!(message("gateway.port.x"), "Config path not found: gateway.port.x");
    }
}
