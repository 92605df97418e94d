//! Describes the state of hooks, with remedies.

use homard_config::path::Path;
use homard_plugins::internal::{self, Handler, Hook, Off, Source, Verdict};
use homard_skills::Requires;

use super::SHOWN;
use crate::render;

/// Returns the state of a hook for a table.
pub(super) fn state(verdict: &Verdict) -> String {
    match (verdict.off, verdict.has_all()) {
        (Some(_), _) => "off".to_owned(),
        (None, true) => "on".to_owned(),
        (None, false) if verdict.missing.fault.is_some() => "down".to_owned(),
        (None, false) => lack(verdict).replacen("it needs", "needs", 1).replacen("it works on ", "", 1),
    }
}

/// Returns what a hook lacks.
pub(super) fn lack(verdict: &Verdict) -> String {
    internal::lack(&verdict.missing)
}

/// Formats the hooks as a table.
pub(super) fn table(hooks: &[(Hook, Verdict)], is_verbose: bool) -> String {
    let titles =
        ["HOOK", "STATE", "FROM", "FOR"].into_iter().chain(if is_verbose { vec!["EVENTS", "HANDLER"] } else { vec![] });
    let titles: Vec<String> = titles.map(str::to_owned).collect();
    let line = |(hook, verdict): &(Hook, Verdict)| {
        let mut cells =
            vec![hook.name.clone(), state(verdict), origin(hook.source).to_owned(), cut(&hook.description, SHOWN)];
        if is_verbose {
            cells.extend([hook.events.join(", "), handler(hook)]);
        }
        cells.into_iter().map(|cell| render::harmless(&cell)).collect()
    };
    render::table(&std::iter::once(titles).chain(hooks.iter().map(line)).collect::<Vec<_>>())
}

/// Describes one hook in full.
pub(super) fn about(hook: &Hook, verdict: &Verdict) -> String {
    let events = if hook.events.is_empty() { "nothing".to_owned() } else { hook.events.join(", ") };
    let mut rows = vec![
        ("hook", hook.name.clone()),
        ("state", state(verdict)),
        ("for", hook.description.clone()),
        ("listens to", events),
        ("from", origin(hook.source).to_owned()),
        ("handler", handler(hook)),
        ("in the config", entry(hook).to_string()),
    ];
    if hook.source != Source::Bundled {
        rows.push(("file", hook.file.display().to_string()));
    }
    rows.extend(hook.homepage.iter().map(|page| ("homepage", page.clone())));
    rows.extend(obstacles(hook, verdict).into_iter().map(|obstacle| ("to do", obstacle)));
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), render::harmless(&text)]).collect();
    render::table(&rows)
}

/// Returns what prevents a hook from running, each with the remedy; empty if nothing does.
pub(super) fn obstacles(hook: &Hook, verdict: &Verdict) -> Vec<String> {
    let on = format!("homard hooks enable {}", word(&hook.name));
    let mut told: Vec<String> = verdict
        .off
        .map(|off| match off {
            Off::All => format!("all hooks are off: hooks.internal.enabled is false; to switch this one on: {on}"),
            Off::Entry | Off::Silence | Off::Author => format!("it is off; to switch it on: {on}"),
            Off::Workspace => format!("it is off, as all hooks of a workspace are at first; read it, then: {on}"),
        })
        .into_iter()
        .collect();
    if !verdict.missing.os.is_empty() {
        // Nothing that could be installed or set would help.
        told.push(lack(verdict));
        return told;
    }
    told.extend(verdict.missing.fault.clone());
    let Requires { bins, any_bins, env, config } = &verdict.missing.requires;
    told.extend(bins.iter().map(|name| format!("install the program {name}")));
    if !any_bins.is_empty() {
        told.push(format!("install one of the programs {}", any_bins.join(", ")));
    }
    told.extend(env.iter().map(|name| {
        let key = entry(hook).key("env").key(name).to_string();
        format!("set the variable {name}, or: homard config set {} VALUE", word(&key))
    }));
    told.extend(config.iter().map(|path| format!("set {path} in the config: homard config set {} VALUE", word(path))));
    told
}

fn entry(hook: &Hook) -> Path {
    Path::root().key("hooks").key("internal").key("entries").key(&hook.key)
}

fn origin(source: Source) -> &'static str {
    match source {
        Source::Extra => "extraDirs",
        Source::Bundled => "bundled",
        Source::Managed => "state directory",
        Source::Workspace => "workspace",
    }
}

fn handler(hook: &Hook) -> String {
    match &hook.handler {
        Handler::Script { path, .. } => format!("{} (run by Node)", path.display()),
        Handler::Program(path) => format!("{} (a program)", path.display()),
        Handler::Bundled(_) => "part of homard".to_owned(),
    }
}

/// Truncates a text to at most `most` characters, ending in an ellipsis.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Quotes a text as one shell word.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@' | ':');
    let is_word = !text.is_empty() && text.chars().all(is_plain);
    if is_word { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use homard_plugins::internal::bundled::Bundled;
    use homard_skills::Missing;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_obstacle_has_its_way_out() {
        let hook = Hook { name: "a tide".to_owned(), key: "a tide".to_owned(), ..Bundled::SessionMemory.hook() };
        let requires = Requires {
            bins: texts(&["gps"]),
            any_bins: texts(&["a", "b"]),
            env: texts(&["KEY"]),
            config: texts(&["channels.slack"]),
        };
        let missing = Missing { requires, ..Missing::default() };
        assert_eq!(
            obstacles(&hook, &Verdict { off: Some(Off::Workspace), missing: missing.clone() }),
            [
                "it is off, as all hooks of a workspace are at first; read it, then: homard hooks enable 'a tide'",
                "install the program gps",
                "install one of the programs a, b",
                "set the variable KEY, or: homard config set 'hooks.internal.entries[\"a tide\"].env.KEY' VALUE",
                "set channels.slack in the config: homard config set channels.slack VALUE",
            ]
        );
        assert_eq!(state(&Verdict { off: None, missing: missing.clone() }), "needs gps, a or b, KEY, channels.slack");
        let abroad = Verdict { off: None, missing: Missing { os: texts(&["darwin"]), ..missing } };
        assert_eq!(
            (state(&abroad), obstacles(&hook, &abroad)),
            ("darwin only".to_owned(), texts(&["it works on darwin only"]))
        );
    }
}
