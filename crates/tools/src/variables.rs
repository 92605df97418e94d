//! The environment of a command: a few variables of ours, and those of the call that do no harm.

use serde_json::{Map, Value};

use crate::Error;

/// What a command sees of the environment that Homard was started in.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"];

/// Variables that change what programs load or run, or whom they trust.
const FORBIDDEN: [&str; 46] = [
    "ALL_PROXY",
    "BROWSER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_HOME",
    "CDPATH",
    "CLASSPATH",
    "CURL_CA_BUNDLE",
    "CURL_HOME",
    "EDITOR",
    "ENV",
    "FTP_PROXY",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GNUPGHOME",
    "GOFLAGS",
    "HOME",
    "HOSTALIASES",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "IFS",
    "KUBECONFIG",
    "LESSOPEN",
    "LOCPATH",
    "MAKEFLAGS",
    "MANPAGER",
    "NLSPATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OPENSSL_CONF",
    "PAGER",
    "PATH",
    "PROMPT_COMMAND",
    "PS4",
    "REQUESTS_CA_BUNDLE",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "SHELL",
    "SHELLOPTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "VISUAL",
    "WGETRC",
    "ZDOTDIR",
];

/// What such names begin with.
const FORBIDDEN_PREFIXES: [&str; 22] = [
    "BASH",
    "COMPLUS_",
    "CORECLR_",
    "DOTNET_",
    "DYLD_",
    "GIT_",
    "HOMARD_",
    "JAVA_",
    "JDK_",
    "LD_",
    "LUA_",
    "MAVEN_",
    "NPM_CONFIG_",
    "OPENCLAW_",
    "PERL",
    "PHP",
    "PIP_",
    "PYTHON",
    "RUBY",
    "SSH_",
    "XDG_",
    "_JAVA_",
];

/// Names that begin like those and do no harm.
const HARMLESS: [&str; 12] = [
    "GIT_AUTHOR_DATE",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_DATE",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_OPTIONAL_LOCKS",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
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
    let begins_badly = FORBIDDEN_PREFIXES.iter().any(|prefix| upper.starts_with(prefix));
    if (begins_badly && !HARMLESS.contains(&upper.as_str())) || FORBIDDEN.contains(&upper.as_str()) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A16, R54: sixty variables that have been used to make programs load or run something else.
    #[test]
    fn no_variable_of_a_call_changes_what_programs_load_or_run() {
        let names = "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT ld_preload DYLD_INSERT_LIBRARIES BASH_ENV BASHOPTS \
            BASH_FUNC_ls%% ENV IFS PS4 SHELLOPTS PROMPT_COMMAND PATH HOME SHELL CDPATH ZDOTDIR NODE_OPTIONS NODE_PATH \
            NODE_EXTRA_CA_CERTS PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT PERL5LIB PERL5OPT \
            PERL5DB RUBYLIB RUBYOPT JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH MAVEN_OPTS \
            DOTNET_STARTUP_HOOKS CORECLR_PROFILER COMPLUS_ENABLEEVENTLOG LUA_INIT PHPRC PHP_INI_SCAN_DIR GIT_EXEC_PATH \
            GIT_EXTERNAL_DIFF GIT_SSH_COMMAND GIT_CONFIG_GLOBAL GIT_DIR GIT_ASKPASS GIT_PAGER EDITOR VISUAL PAGER \
            MANPAGER LESSOPEN BROWSER KUBECONFIG GCONV_PATH GLIBC_TUNABLES LOCPATH NLSPATH HOSTALIASES HTTP_PROXY \
            https_proxy ALL_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE OPENSSL_CONF RUSTC_WRAPPER RUSTFLAGS MAKEFLAGS \
            GOFLAGS npm_config_script_shell PIP_INDEX_URL SSH_ASKPASS XDG_CONFIG_HOME HOMARD_EXEC OPENCLAW_STATE_DIR";
        let passes = |name: &&str| check(name, &json!("x")).is_ok();
        assert_eq!(names.split_whitespace().filter(passes).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn variables_that_programs_only_read_are_passed_on() {
        let names = "NAME COUNT FOO_BAR _x DEBUG CI NODE_ENV RUST_LOG CARGO_TERM_COLOR GIT_AUTHOR_NAME PYTHONUTF8 TZ";
        let fails = |name: &&str| check(name, &json!("x")).is_err();
        assert_eq!(names.split_whitespace().filter(fails).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
