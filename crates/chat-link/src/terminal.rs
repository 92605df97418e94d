//! What the terminal can show, as far as the environment tells.

use homard_chat::screen::Capabilities;
use homard_settings::paths;

/// Returns the text of an environment variable.
fn text_of(name: &str) -> Option<String> {
    paths::env(name).and_then(|value| value.into_string().ok())
}

/// Determines what the terminal can show from the environment.
pub fn capabilities(has_colors: bool) -> Capabilities {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| text_of(name));
    // Without any setting, terminals of today show UTF-8.
    let has_unicode = locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    let is_multiplexed = paths::env("TMUX").is_some();
    let is_fixed = paths::env("XTERM_VERSION").is_some() || text_of("TERM").is_some_and(|term| term == "linux");
    Capabilities { has_colors, has_unicode, reflows: is_multiplexed || !is_fixed }
}
