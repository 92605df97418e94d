//! The parts of a config that can be disabled while the rest runs: a provider, a channel, a server.
//!
//! Everything else is needed by all, or is a restriction: without `tools.deny` a gateway would allow more than its
//! config does, so it does not start.

use homard_config::{
    ConfigProblem,
    path::{Path, Step},
};

use super::Config;

/// Sections whose values belong to one part, named by its path. `*` is any name.
const PARTS: [&[&str]; 13] = [
    &["models", "providers", "*"],
    &["channels", "*", "accounts", "*"],
    &["channels", "*"],
    &["mcp", "servers", "*"],
    &["plugins", "entries", "*"],
    &["skills", "entries", "*"],
    &["hooks", "internal", "entries", "*"],
    &["tools", "web", "search"],
    &["gateway", "remote"],
    &["env", "vars", "*"],
    &["env", "*"],
    &["meta"],
    &["wizard"],
];

/// Returns the part that a value belongs to, if everything else can run without it.
pub(crate) fn part_of(path: &Path) -> Option<Path> {
    let names: Vec<_> = path.steps().iter().map_while(name).collect();
    let is_prefix = |part: &&&[&str]| {
        part.len() <= names.len() && part.iter().zip(&names).all(|(pattern, name)| *pattern == "*" || pattern == name)
    };
    if let Some(part) = PARTS.iter().find(is_prefix) {
        return Some(path.first(part.len()));
    }
    // All webhooks are one part; each internal hook is a part of its own.
    matches!(names.as_slice(), ["hooks", second, ..] if *second != "internal").then(|| path.first(1))
}

fn name(step: &Step) -> Option<&str> {
    match step {
        Step::Key(name) => Some(name),
        Step::Index(_) => None,
    }
}

/// Marks a part as disabled, with the reason.
pub(crate) fn disable_part(config: &mut Config, part: &Path, why: &ConfigProblem) {
    let names: Vec<_> = part.steps().iter().filter_map(name).collect();
    let text = format!("{} {}", why.path, why.message);
    let set_fault = |fault: &mut Option<String>| *fault = fault.take().or_else(|| Some(text.clone()));
    match names.as_slice() {
        ["models", "providers", id] => {
            let Some(provider) = config.models.providers.get_mut(*id) else { return };
            let is_key = why.path == part.key("apiKey").to_string();
            set_fault(if is_key { &mut provider.key_fault } else { &mut provider.fault });
        }
        ["channels", channel, "accounts", account] => {
            let channel = config.channels.get_mut(*channel);
            if let Some(account) = channel.and_then(|channel| channel.accounts.get_mut(*account)) {
                set_fault(&mut account.fault);
            }
        }
        ["channels", channel] => {
            if let Some(channel) = config.channels.get_mut(*channel) {
                let relative = why.path.strip_prefix(&part.to_string()).unwrap_or_default();
                let key = relative.trim_start_matches('.').split(['.', '[']).next().unwrap_or_default();
                channel.faults.push((key.to_owned(), text));
            }
        }
        ["mcp", "servers", server] => {
            if let Some(server) = config.mcp.servers.get_mut(*server) {
                set_fault(&mut server.fault);
            }
        }
        ["plugins", "entries", id] => {
            if let Some(entry) = config.plugins.entries.get_mut(*id) {
                set_fault(&mut entry.fault);
            }
        }
        ["skills", "entries", key] => {
            if let Some(entry) = config.skills.entries.get_mut(*key) {
                set_fault(&mut entry.fault);
            }
        }
        ["hooks", "internal", "entries", key] => {
            if let Some(entry) = config.hooks.internal.entries.get_mut(*key) {
                set_fault(&mut entry.fault);
            }
        }
        ["hooks"] => set_fault(&mut config.hooks.fault),
        ["tools", "web", "search"] => set_fault(&mut config.tools.web.search.fault),
        // For `gateway.remote` the client checks the faults itself; nothing else depends on the remaining parts.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_belongs_to_a_part_or_to_the_whole_config() {
        for (path, part) in [
            ("models.providers.x.apiKey", Some("models.providers.x")),
            ("models.providers.x.models[0].id", Some("models.providers.x")),
            ("models.mode", None),
            ("channels.telegram.botToken", Some("channels.telegram")),
            ("channels.telegram.accounts.work.botToken", Some("channels.telegram.accounts.work")),
            ("mcp.servers.sea.env.KEY", Some("mcp.servers.sea")),
            ("plugins.entries.a.config.key", Some("plugins.entries.a")),
            ("plugins.allow[0]", None),
            ("skills.entries.a.apiKey", Some("skills.entries.a")),
            ("hooks.token", Some("hooks")),
            ("hooks.mappings[0].to", Some("hooks")),
            ("hooks.internal.entries.a.env.K", Some("hooks.internal.entries.a")),
            ("hooks.internal.load.extraDirs[0]", None),
            ("tools.web.search.apiKey", Some("tools.web.search")),
            ("tools.deny[0]", None),
            ("gateway.remote.token", Some("gateway.remote")),
            ("gateway.auth.token", None),
            ("agents.defaults.model", None),
            ("agents.list[0].tools.deny[0]", None),
            ("env.vars.A", Some("env.vars.A")),
            ("env.A", Some("env.A")),
        ] {
            let found = part_of(&path.parse().unwrap());
            assert_eq!(found.map(|part| part.to_string()).as_deref(), part, "{path}");
        }
    }
}
