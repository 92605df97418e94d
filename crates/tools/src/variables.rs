//! The environment of a command: a few variables of ours, and those of the call that do no harm.

use serde_json::{Map, Value};

use crate::{Error, tree::MARK};

/// What a command sees of the environment that Homard was started in.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"];

/// Variables that change what programs load or run. Those that start with `LD_` or `DYLD_` do too.
const FORBIDDEN: [&str; 19] = [
    "BASHOPTS",
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "SHELLOPTS",
];

/// The variables of ours that commands may see.
pub(crate) fn passed(mut ours: Vec<(String, String)>) -> Vec<(String, String)> {
    ours.retain(|(name, _)| PASSED.contains(&name.as_str()));
    ours
}

/// The variables of a call, or why one of them is refused.
pub(crate) fn checked(asked: &Map<String, Value>) -> Result<Vec<(String, String)>, Error> {
    asked.iter().map(|(name, value)| Ok((name.clone(), check(name, value)?))).collect()
}

fn check(name: &str, value: &Value) -> Result<String, Error> {
    let upper = name.to_uppercase();
    let is_loader = upper.starts_with("LD_") || upper.starts_with("DYLD_");
    if is_loader || upper == MARK || FORBIDDEN.contains(&upper.as_str()) {
        return Err(Error::ForbiddenVariable(name.to_owned()));
    }
    // Bash takes functions from variables with stranger names.
    let is_name =
        name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match value {
        Value::String(text) if is_name => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) if is_name => Ok(value.to_string()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Error::BadVariable(name.to_owned()))
        }
    }
}
