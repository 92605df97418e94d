//! `homard hooks enable` and `disable`: edit the config.

use anyhow::Result;
use homard_config::{edit, path::Path};
use homard_settings::paths::Paths;
use homard_setup::edit_config;
use serde_json::json;

use super::HookList;
use crate::render;

/// Enables or disables one hook. Missing requirements do not prevent enabling it; they are reported.
pub(super) fn run(list: &HookList, paths: &Paths, name: &str, enable: bool, wants_json: bool) -> Result<()> {
    let (hook, decision) = list.hook(name)?;
    let internal = Path::root().key("hooks").key("internal");
    let enabled = |key: &str| internal.key("entries").key(key).key("enabled");
    // While `hooks.internal.enabled` is false, entries have no effect. Removing it would also enable other entries, so
    // these are disabled explicitly.
    let frees_others = enable && list.rules.enabled == Some(false);
    let is_other = |key: &&String| frees_others && **key != hook.key && list.rules.entries[*key].enabled == Some(true);
    let others: Vec<&String> = list.rules.entries.keys().filter(is_other).collect();
    let change = edit_config(paths, |text| {
        let mut text = edit::set(text, &enabled(&hook.key), &json!(enable))?;
        for key in &others {
            text = edit::set(&text, &enabled(key), &json!(false))?;
        }
        if frees_others { Ok(edit::unset(&text, &internal.key("enabled"))?.0) } else { Ok(text) }
    })?;
    let missing = (enable && !decision.has_requirements()).then(|| render::hooks::missing_requirements(decision));
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "name": hook.name, "hookKey": hook.key, "enabled": enable, "changed": change.changed,
            "path": paths.config, "missing": missing,
        }))?);
    }
    let state = if enable { "enabled" } else { "disabled" };
    if change.changed.is_empty() {
        render::print(&render::strip_controls(&format!("{} is already {state}; nothing changed", hook.name)))?;
    } else {
        let file = paths.config.display();
        render::print(&render::strip_controls(&format!("{} is now {state} in {file}", hook.name)))?;
        render::print("restart the gateway to apply the change")?;
    }
    for key in others {
        render::print(&render::strip_controls(&format!(
            "hook {key} stays disabled: hooks.internal.enabled, which was false, was removed from the config; the entry of {key} is set to false instead"
        )))?;
    }
    if let Some(missing) = missing {
        render::remark(&render::strip_controls(&format!("{} cannot run yet: {missing}", hook.name)));
    }
    Ok(())
}
