//! Source of the Node host, embedded in the binary.

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../node/", $name)))),*] };
}

/// The files by name. A test checks that none is missing.
pub(super) const FILES: &[(&str, &str)] = files![
    "api.mjs",
    "book.mjs",
    "bridge.mjs",
    "calls.mjs",
    "command.mjs",
    "guard.mjs",
    "hooks.mjs",
    "host.mjs",
    "house.mjs",
    "http.mjs",
    "internal.mjs",
    "lines.mjs",
    "loader.mjs",
    "log.mjs",
    "memory.mjs",
    "mime.mjs",
    "modules.mjs",
    "owner.mjs",
    "refs.mjs",
    "registry.mjs",
    "rpc.mjs",
    "runtime.mjs",
    "schema.mjs",
    "sdk/access.mjs",
    "sdk/accounts.mjs",
    "sdk/channel.mjs",
    "sdk/diagnostics.mjs",
    "sdk/embedded-run.mjs",
    "sdk/entry.mjs",
    "sdk/history.mjs",
    "sdk/index.mjs",
    "sdk/text.mjs",
    "sdk/tools.mjs",
    "sdk/typebox.mjs",
    "services.mjs",
    "tools.mjs",
    "turnstile.mjs",
    "typescript.mjs",
    "unsupported.mjs",
];
