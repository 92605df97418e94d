//! Imports the config, the approval rules and the auth profiles: copied unchanged, never shown.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use homard_agent::approval::Policy;
use serde_json::{Map, Value};

use super::{
    copy::{self, Copy, What},
    defaults,
    plan::{Plan, Wishes},
    source::{self, Source},
    transcripts::Fate,
};
use crate::{auth, config::Config, paths::Paths};

/// Plans the config, and returns the one that will be in use.
pub(super) fn config(plan: &mut Plan, source: &Source, paths: &Paths, wishes: Wishes) -> Config {
    let text = chosen_config(plan, source, paths, wishes);
    let text = text.or_else(|| fs::read_to_string(&paths.config).ok()).unwrap_or_default();
    Config::read(&paths.config, &text).config
}

/// Plans the config. An existing one is kept unless it is to be replaced. Returns the imported text, if any.
fn chosen_config(plan: &mut Plan, source: &Source, paths: &Paths, wishes: Wishes) -> Option<String> {
    let from = source.config.as_ref()?;
    let read = fs::read_to_string(from).map_err(|reason| reason.to_string());
    let read = read.and_then(|text| Ok((source::object(&text)?, text)));
    let (fields, text) = match read {
        Ok(read) => read,
        Err(why) => {
            plan.counts.config.push(Fate::Broken);
            plan.warn(&from.display(), &format!("not imported: {why}"));
            return None;
        }
    };
    let open = defaults::unsaid(&fields, (&source.root, &paths.state));
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    let (text, is_written) = match wishes.writes_defaults.then(|| defaults::written(&text, &open)) {
        Some(Ok(text)) => (text, true),
        Some(Err(why)) => {
            plan.warn(&from.display(), &why);
            (text, false)
        }
        None => (text, false),
    };
    let to = &paths.config;
    let fate = match fs::read_to_string(to) {
        Ok(ours) if ours == text => Fate::Same,
        Err(reason) if reason.kind() == ErrorKind::NotFound => Fate::New,
        Ok(_) | Err(_) if wishes.replaces => Fate::Updated,
        Ok(_) | Err(_) => Fate::Kept,
    };
    plan.counts.config.push(fate);
    match fate {
        Fate::Kept | Fate::Broken => {
            plan.warn(&to.display(), "is there and stays; replace it with --force");
            return None;
        }
        Fate::New | Fate::Updated => {
            let aside = (fate == Fate::Updated).then(|| beside(to));
            plan.copies.push(Copy { to: to.clone(), what: What::Text(text.clone()), aside });
        }
        Fate::Same => {}
    }
    (plan.defaults, plan.defaults_are_written) = (open, is_written);
    if is_exposed(&fields) {
        plan.warn(&to.display(), EXPOSED);
    }
    if includes(&Value::Object(fields)) {
        plan.warn(&from.display(), "takes in other files with $include; they are not imported");
    }
    for problem in Config::read(to, &text).problems {
        plan.warn(&to.display(), &format!("is not valid as it is: {problem}"));
    }
    Some(text)
}

/// Warning about a config that OpenClaw accepts and Homard does not.
const EXPOSED: &str = "has a gateway.bind for other machines without TLS, with which the gateway does not start; set \
                       gateway.tls.enabled to true or gateway.bind to loopback, or see \"From other machines\" in docs/gateway.md";

/// Returns true if a config exposes the gateway to other machines without TLS.
fn is_exposed(fields: &Map<String, Value>) -> bool {
    let Some(gateway) = fields.get("gateway") else { return false };
    let is_open = matches!(gateway["bind"].as_str(), Some("lan" | "custom"));
    is_open && gateway.pointer("/tls/enabled") != Some(&Value::Bool(true)) && gateway["trustedProxies"].is_null()
}

fn beside(path: &Path) -> PathBuf {
    path.with_added_extension("bak")
}

/// Returns true if a config includes other files.
fn includes(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key("$include") || fields.values().any(includes),
        Value::Array(values) => values.iter().any(includes),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Plans the approval rules for commands, with a warning: the file has the same format here.
pub(super) fn approvals(plan: &mut Plan, source: &Source, paths: &Paths, wishes: Wishes) {
    let name = "exec-approvals.json";
    let (from, to) = (source.root.join(name), paths.state.join(name));
    let text = match fs::read_to_string(&from) {
        Ok(text) => text,
        Err(reason) if reason.kind() == ErrorKind::NotFound => return,
        Err(reason) => return plan.warn(&from.display(), &format!("not imported: {reason}")),
    };
    if let Err(why) = Policy::parse(&text) {
        return plan.warn(&from.display(), &format!("not imported: {why}"));
    }
    let is_there = to.exists();
    if is_there && copy::is_same(&from, &to).unwrap_or(false) {
        return;
    }
    if is_there && !wishes.replaces {
        return plan.warn(&to.display(), "is there and stays; replace it with --force");
    }
    plan.copies.push(Copy { aside: is_there.then(|| beside(&to)), to, what: What::Text(text) });
    plan.warn(&name, "is copied; of it and tools.exec in the config, the stricter counts");
}

/// Plans the auth profiles of one agent, given its directories there and here.
pub(super) fn auth_profiles(plan: &mut Plan, there: &Path, here: &Path, wishes: Wishes) {
    let name = "agent/auth-profiles.json";
    let (from, to) = (there.join(name), here.join(name));
    let bytes = match fs::read(&from) {
        Ok(bytes) => bytes,
        Err(reason) if reason.kind() == ErrorKind::NotFound => return,
        Err(reason) => {
            plan.counts.auth_profiles.push(Fate::Broken);
            return plan.warn(&from.display(), &format!("not imported: {reason}"));
        }
    };
    let fate = match serde_json::from_slice::<Map<String, Value>>(&bytes) {
        Err(_) => Fate::Broken,
        // A file that only has the health of environment keys may be overwritten.
        Ok(_) if !auth::file::has_profiles(&to) => Fate::New,
        Ok(_) if copy::is_same(&from, &to).unwrap_or(false) => Fate::Same,
        Ok(_) if wishes.replaces => Fate::Updated,
        Ok(_) => Fate::Kept,
    };
    plan.counts.auth_profiles.push(fate);
    match fate {
        Fate::New | Fate::Updated => plan.copy(&from, &to),
        Fate::Same => {}
        Fate::Kept => plan.warn(&to.display(), "is there and stays; replace it with --force"),
        // The parser's message could quote the content.
        Fate::Broken => plan.warn(&from.display(), "not imported: it is no JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_would_not_start_is_told_of() {
        let told = |text: &str| is_exposed(&source::object(text).unwrap());
        assert!(told("{gateway: {bind: 'lan'}}") && told("{gateway: {bind: 'custom', tls: {enabled: false}}}"));
        assert!(!told("{}") && !told("{gateway: {bind: 'loopback'}}") && !told("{gateway: {bind: 'tailnet'}}"));
        assert!(!told("{gateway: {bind: 'lan', tls: {enabled: true}}}"));
        assert!(!told("{gateway: {bind: 'lan', trustedProxies: ['192.0.2.9']}}"));
    }
}
