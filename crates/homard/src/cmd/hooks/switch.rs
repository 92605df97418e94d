//! `homard hooks enable` and `disable`: a word in the config.

use anyhow::Result;
use homard_config::{edit, path::Path};
use serde_json::json;

use super::{Shown, edit_config, words};
use crate::{paths::Paths, render};

/// Switches a hook on or off. What it lacks does not keep it from being on; it is told.
pub(super) fn run(shown: &Shown, paths: &Paths, (name, is_on): (&str, bool), wants_json: bool) -> Result<()> {
    let (hook, verdict) = shown.hook(name)?;
    let internal = Path::root().key("hooks").key("internal");
    let entry = internal.key("entries").key(&hook.key).key("enabled");
    let done = edit_config(paths, |text| {
        let text = edit::set(text, &entry, &json!(is_on))?;
        if is_on { edit::set(&text, &internal.key("enabled"), &json!(true)) } else { Ok(text) }
    })?;
    let lack = (is_on && !verdict.has_all()).then(|| words::lack(verdict));
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "name": hook.name, "hookKey": hook.key, "enabled": is_on, "changed": done.changed,
            "path": paths.config, "missing": lack,
        }))?);
    }
    let word = if is_on { "on" } else { "off" };
    if done.changed.is_empty() {
        render::print(&render::harmless(&format!("{} is {word} already, nothing has changed", hook.name)))?;
    } else {
        let file = paths.config.display();
        render::print(&render::harmless(&format!("{} is {word} now, in {file}", hook.name)))?;
        render::print("a gateway that runs must be restarted for it")?;
    }
    let master = internal.key("enabled").to_string();
    if done.changed.contains(&master) && is_on {
        // It was one word for all of them, so more than this one may be on now.
        render::print(&format!("{master} is true now: see what else is on with: homard hooks check"))?;
    }
    if let Some(lack) = lack {
        render::remark(&render::harmless(&format!("{} cannot work yet: {lack}", hook.name)));
    }
    Ok(())
}
