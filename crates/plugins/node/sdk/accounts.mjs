// For channels with several accounts: their ids, and where they are in the config. Nothing here changes its input.

export const DEFAULT_ACCOUNT_ID = "default";

/** An account's id in its one spelling: lower case, at most 64 letters, digits, `_` and `-`. */
export function normalizeAccountId(given) {
  const id = (given ?? "").trim().toLowerCase();
  if (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(id)) return id;
  return id.replace(/[^a-z0-9_-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64) || DEFAULT_ACCOUNT_ID;
}

const withSection = (cfg, key, section) => ({ ...cfg, channels: { ...cfg.channels, [key]: section } });
const isFilled = (value) => value !== null && typeof value === "object" && Object.keys(value).length > 0;

function withAccount(cfg, key, base, id, change) {
  const accounts = { ...base?.accounts, [id]: { ...base?.accounts?.[id], ...change } };
  return withSection(cfg, key, { ...base, accounts });
}

/** Switches an account on or off. */
export function setAccountEnabledInConfigSection({ cfg, sectionKey, accountId, enabled, allowTopLevel }) {
  const id = accountId || DEFAULT_ACCOUNT_ID;
  const base = cfg.channels?.[sectionKey];
  const isTop = allowTopLevel && id === DEFAULT_ACCOUNT_ID && !base?.accounts;
  return isTop ? withSection(cfg, sectionKey, { ...base, enabled }) : withAccount(cfg, sectionKey, base, id, { enabled });
}

/** Takes an account out; with the last one the whole section goes. */
export function deleteAccountFromConfigSection({ cfg, sectionKey, accountId, clearBaseFields = [] }) {
  const id = accountId || DEFAULT_ACCOUNT_ID;
  const base = cfg.channels?.[sectionKey];
  if (!base) return cfg;
  if (id === DEFAULT_ACCOUNT_ID && !isFilled(base.accounts)) {
    const { [sectionKey]: _gone, ...channels } = cfg.channels;
    const { channels: _all, ...rest } = cfg;
    return isFilled(channels) ? { ...rest, channels } : rest;
  }
  const { [id]: _gone, ...accounts } = base.accounts ?? {};
  const cleared = id === DEFAULT_ACCOUNT_ID ? clearBaseFields.filter((field) => field in base).map((field) => [field, undefined]) : [];
  const section = { ...base, ...Object.fromEntries(cleared), accounts: isFilled(accounts) ? accounts : undefined };
  return withSection(cfg, sectionKey, section);
}

/** Gives an account a name: on the section itself as long as there is only the default one. */
export function applyAccountNameToChannelSection({ cfg, channelKey, accountId, name, alwaysUseAccounts }) {
  const text = name?.trim();
  if (!text) return cfg;
  const id = normalizeAccountId(accountId);
  const base = cfg.channels?.[channelKey];
  const isTop = id === DEFAULT_ACCOUNT_ID && !alwaysUseAccounts && !isFilled(base?.accounts);
  if (isTop) return withSection(cfg, channelKey, { ...base, name: text });
  const { name: _moved, ...unnamed } = base ?? {};
  return withAccount(cfg, channelKey, id === DEFAULT_ACCOUNT_ID ? unnamed : base, id, { name: text });
}

/** Moves the section's name to the default account, before a second one is added. */
export function migrateBaseNameToDefaultAccount({ cfg, channelKey, alwaysUseAccounts }) {
  const base = cfg.channels?.[channelKey];
  const text = base?.name?.trim();
  if (alwaysUseAccounts || !text) return cfg;
  const { name: _moved, ...unnamed } = base;
  const name = base.accounts?.[DEFAULT_ACCOUNT_ID]?.name || text;
  return withAccount(cfg, channelKey, unnamed, DEFAULT_ACCOUNT_ID, { name });
}

/** How large a file may be, in bytes: what the channel says, else what agents say. */
export function resolveChannelMediaMaxBytes({ cfg, resolveChannelLimitMb, accountId }) {
  const limit = resolveChannelLimitMb({ cfg, accountId: normalizeAccountId(accountId) }) || cfg.agents?.defaults?.mediaMaxMb;
  return limit ? limit * 1024 * 1024 : undefined;
}
