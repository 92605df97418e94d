//! Source of the Node host, embedded in the binary.

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../node/", $name)))),*] };
}

/// The files by name. A test checks that none is missing.
pub(super) const FILES: &[(&str, &str)] = files![
    "api.mjs",
    "bridge.mjs",
    "calls.mjs",
    "command.mjs",
    "gateway-info.mjs",
    "guard.mjs",
    "hooks.mjs",
    "host.mjs",
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
    "registrations.mjs",
    "registry.mjs",
    "request-limiter.mjs",
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
    "typescript.mjs",
    "unsupported.mjs",
];
