//! Environment of a command: a few variables of the gateway's, and harmless ones from the call.

use serde_json::{Map, Value};

use crate::{Error, error::ArgumentError};

/// Variables of the gateway's environment that commands see.
const PASSED_THROUGH: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"];

/// Variables that a call may set: programs only use them as values. The variables by which programs find code, settings
/// or other programs are many and not completely known, so everything that is not listed is refused.
const ALLOWED: [&str; 74] = [
    "APP_ENV",
    "BABEL_ENV",
    "CARGO_BUILD_JOBS",
    "CARGO_INCREMENTAL",
    "CARGO_NET_OFFLINE",
    "CGO_ENABLED",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "CUDA_VISIBLE_DEVICES",
    "DEBIAN_FRONTEND",
    "DEBUG",
    "DO_NOT_TRACK",
    "ENVIRONMENT",
    "FLASK_DEBUG",
    "FLASK_ENV",
    "FORCE_COLOR",
    "GIT_AUTHOR_DATE",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_DATE",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_OPTIONAL_LOCKS",
    "GIT_TERMINAL_PROMPT",
    "GO111MODULE",
    "GOARCH",
    "GOMAXPROCS",
    "GOOS",
    "GOTRACEBACK",
    "HF_HUB_OFFLINE",
    "HOST",
    "INSTA_UPDATE",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOGLEVEL",
    "LOG_LEVEL",
    "MIX_ENV",
    "MKL_NUM_THREADS",
    "NEXT_TELEMETRY_DISABLED",
    "NODE_ENV",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PORT",
    "PROPTEST_CASES",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "RACK_ENV",
    "RAILS_ENV",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_LOG_STYLE",
    "RUST_TEST_NOCAPTURE",
    "RUST_TEST_THREADS",
    "SEED",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TEST_ENV",
    "TF_CPP_MIN_LOG_LEVEL",
    "TOKENIZERS_PARALLELISM",
    "TZ",
    "UPDATE_EXPECT",
    "UV_OFFLINE",
    "VERBOSE",
    "VERBOSITY",
    "VITEST_SEED",
];

/// Prefixes of further variables of this kind.
const ALLOWED_PREFIXES: [&str; 2] = ["CARGO_TERM_", "LC_"];

/// Filters the gateway's environment for commands.
pub(crate) fn filter_environment(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    env.retain(|(name, _)| PASSED_THROUGH.contains(&name.as_str()));
    env
}

/// Validates the variables of a call. `more` are additional names that the owner allows.
pub(crate) fn validate_all(requested: &Map<String, Value>, allowed: &[String]) -> Result<Vec<(String, String)>, Error> {
    requested.iter().map(|(name, value)| Ok((name.clone(), validate(name, value, allowed)?))).collect()
}

fn validate(name: &str, value: &Value, allowed: &[String]) -> Result<String, Error> {
    // Bash imports functions from variables with unusual names.
    let is_name =
        name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(Error::Argument(ArgumentError::BadVariable(name.to_owned())));
    }
    let is_allowed = ALLOWED.contains(&name)
        || ALLOWED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || allowed.iter().any(|allowed_name| allowed_name == name);
    if !is_allowed {
        return Err(Error::Argument(ArgumentError::ForbiddenVariable(name.to_owned())));
    }
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Error::Argument(ArgumentError::BadVariable(name.to_owned())))
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
        let passes = |name: &&str| validate(name, &json!("x"), &[]).is_ok();
        assert_eq!(names.split_whitespace().filter(passes).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    // A16, R54.
    #[test]
    fn a_variable_that_is_not_listed_is_refused() {
        let names = "TAR_OPTIONS MAKEFILES RSYNC_RSH VIMINIT LESSCLOSE AWKPATH TERMINFO CC CXX LD AR TMPDIR CMAKE_GENERATOR \
            PYTEST_ADDOPTS PYTEST_PLUGINS GOPROXY GRADLE_OPTS SBT_OPTS PSQLRC MYSQL_HOME R_PROFILE JULIA_LOAD_PATH GDBHISTFILE \
            ELECTRON_RUN_AS_NODE DENO_DIR BUNDLE_GEMFILE FOO_BAR ci Path";
        let passes = |name: &&str| validate(name, &json!("x"), &[]).is_ok();
        assert_eq!(names.split_whitespace().filter(passes).collect::<Vec<_>>(), Vec::<&str>::new());
        let allowed = ["FOO_BAR".to_owned()];
        assert!(
            validate("FOO_BAR", &json!("x"), &allowed).is_ok() && validate("FOO_BAR2", &json!("x"), &allowed).is_err()
        );
    }

    #[test]
    fn variables_that_programs_only_read_are_passed_on() {
        let names =
            "DEBUG CI PORT NODE_ENV RUST_LOG CARGO_TERM_COLOR GIT_AUTHOR_NAME PYTHONUTF8 TZ LANG LC_ALL NO_COLOR";
        let fails = |name: &&str| validate(name, &json!("x"), &[]).is_err();
        assert_eq!(names.split_whitespace().filter(fails).collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(validate("PORT", &json!(80), &[]).unwrap(), "80");
    }
}
