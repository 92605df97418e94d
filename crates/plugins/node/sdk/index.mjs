// `openclaw/plugin-sdk` and all of its subpaths resolve to this module: helpers that plugins use and that need no
// gateway. A name that is not here fails when the plugin is loaded, with that name.

export * from "./access.mjs";
export * from "./accounts.mjs";
export * from "./channel.mjs";
export * from "./diagnostics.mjs";
export * from "./entry.mjs";
export * from "./history.mjs";
export * from "./text.mjs";
export * from "./tools.mjs";
export { detectMime, extensionForMime, getFileExtension } from "../mime.mjs";
