// The config that a package receives: its own section with open policies, because Homard's access rules decide who is
// answered. A key is set only where the package's schema has it.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Returns the object schemas of a possibly combined schema. */
function objects(schema) {
  if (!isObject(schema)) return [];
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])].flatMap(objects);
  return schema.properties || isObject(schema.additionalProperties) ? [schema, ...parts] : parts;
}

const property = (schema, name) => objects(schema).map((part) => part.properties?.[name]).find((found) => found !== undefined);
const entry = (schema) => objects(schema).map((part) => part.additionalProperties).find(isObject);
const allows = (schema, name, word) => {
  const found = property(schema, name);
  return found !== undefined && JSON.stringify(found).includes(JSON.stringify(word));
};

/** Maps of groups, rooms and channels. */
const GROUP_MAPS = ["groups", "rooms", "channels", "teams", "guilds"];

/** Opens a group's settings: every message in it is passed on. */
function openGroup(group, schema) {
  const open = { ...group };
  for (const [name, value] of [["requireMention", false], ["enabled", true], ["allow", true]]) {
    if (property(schema, name) !== undefined && (name === "requireMention" || name in open)) open[name] = value;
  }
  for (const name of ["allowFrom", "users", "roles", "systemPrompt", "skills", "tools", "toolsBySender"]) delete open[name];
  for (const name of GROUP_MAPS) {
    const inner = property(schema, name);
    if (inner !== undefined && isObject(open[name])) open[name] = openGroups(open[name], entry(inner));
  }
  return open;
}

function openGroups(groups, schema) {
  const open = Object.fromEntries(Object.entries(groups).map(([id, group]) => [id, isObject(group) ? openGroup(group, schema) : group]));
  return { ...open, "*": openGroup(isObject(groups["*"]) ? groups["*"] : {}, schema) };
}

/** Opens the policies of a section or an account. */
function openLevel(section, schema) {
  const open = { ...section };
  const set = (name, value) => {
    if (property(schema, name) !== undefined) open[name] = value;
  };
  if (allows(schema, "dmPolicy", "open")) open.dmPolicy = "open";
  if (allows(schema, "groupPolicy", "open")) open.groupPolicy = "open";
  set("allowFrom", ["*"]);
  set("groupAllowFrom", ["*"]);
  set("requireMention", false);
  set("configWrites", false);
  if (allows(schema, "chatmode", "onmessage")) open.chatmode = "onmessage";
  const dm = property(schema, "dm");
  if (dm !== undefined) {
    open.dm = { ...(isObject(open.dm) ? open.dm : {}) };
    if (allows(dm, "policy", "open")) open.dm.policy = "open";
    if (property(dm, "allowFrom") !== undefined) open.dm.allowFrom = ["*"];
  }
  for (const name of GROUP_MAPS) {
    const groups = property(schema, name);
    if (groups !== undefined && entry(groups) !== undefined) open[name] = openGroups(isObject(open[name]) ? open[name] : {}, entry(groups));
  }
  return open;
}

/** Returns the config for the package: its own section only. */
export function openConfig(channel, section, schema) {
  const open = openLevel(section, schema);
  if (isObject(section.accounts)) {
    const inner = entry(property(schema, "accounts")) ?? schema;
    open.accounts = Object.fromEntries(Object.entries(section.accounts).map(([name, account]) => [name, openLevel(isObject(account) ? account : {}, inner)]));
  }
  open.enabled = true;
  return { channels: { [channel]: open }, commands: { native: false, nativeSkills: false, text: true, useAccessGroups: false }, session: { dmScope: "per-account-channel-peer" } };
}
