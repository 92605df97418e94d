// Stores of the `openclaw` package, without a database.

export function createPluginStateKeyedStore() {
  return new Map();
}

export function createPluginStateSyncKeyedStore() {
  return new Map();
}
