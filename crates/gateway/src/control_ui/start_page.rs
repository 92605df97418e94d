//! The built-in start page, served when no Control UI is installed.

use super::policy;

/// Style sheet.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;color:#1c2024;\
background:#fff}h1{font-size:1.5rem}code,pre{font:14px/1.5 ui-monospace,monospace;background:#f1f3f5;border-radius:4px}\
code{padding:.1rem .3rem}pre{padding:.75rem;overflow-x:auto}dt{color:#60646c}dd{margin:0 0 .5rem}\
@media(prefers-color-scheme:dark){body{color:#eceef0;background:#111214}code,pre{background:#22252a}a{color:#7cb8ff}\
dt{color:#a0a6ad}}";

/// Content security policy: allows the style sheet only.
pub(super) fn policy() -> String {
    let style = policy::hash(STYLE);
    format!("default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
}

/// Renders the page. It is public, so it contains nothing about sessions, agents and directories.
pub(super) fn html(uptime_ms: u64) -> String {
    let (version, uptime) = (env!("CARGO_PKG_VERSION"), format_duration(uptime_ms / 1000));
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Homard gateway</title>
<style>{STYLE}</style>
</head>
<body>
<h1>The Homard gateway is running</h1>
<dl>
<dt>Version</dt><dd>{version}</dd>
<dt>Up for</dt><dd>{uptime}</dd>
<dt>Checks</dt><dd><a href=\"/health\">/health</a>, <a href=\"/readyz\">/readyz</a></dd>
</dl>
<p>Talk to it from a terminal on this machine:</p>
<pre>homard status
homard agent -m \"What files are here?\"</pre>
<p>Or in this browser, with the Control UI of an OpenClaw install:</p>
<pre>npm install --ignore-scripts openclaw
homard gateway --control-ui node_modules/openclaw/dist/control-ui</pre>
<p>Its token is in <code>gateway-token</code> in the state directory. Documentation: <code>homard docs gateway</code>.</p>
</body>
</html>
"
    )
}

/// Formats a duration in its two largest units.
fn format_duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_their_largest_units() {
        assert_eq!([5, 61, 3_660, 90_000].map(format_duration), ["5s", "1m", "1h 1m", "1d 1h"]);
    }

    #[test]
    fn the_page_loads_nothing_and_runs_no_script() {
        let html = html(0);
        for pattern in ["http:", "https:", "<script", "<img", "<link", "src=", "onclick", "url("] {
            assert!(!html.contains(pattern), "{pattern}");
        }
        assert!(policy().starts_with("default-src 'none'; style-src 'sha256-"));
    }
}
