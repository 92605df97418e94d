// The config that functions of the `openclaw` package read.

export function setRuntimeConfigSnapshot(config) {
  globalThis.configSnapshot = config;
}
