// Extensions that stop runs: a plugin with a hook before each tool call, and a guard that fails.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const MANIFEST = { id: "careful", name: "Careful", version: "1.0.0", configSchema: {}, run: ["sh", "plugin.sh"], rights: { hooks: ["before_tool_call"] } };

const PROGRAM = `
while IFS= read -r line; do
    id=$(printf '%s\\n' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\\([0-9]*\\),.*/\\1/p')
    [ -n "$id" ] || continue
    case $line in
    *'"method":"hook.invoke"'*) result='{"result":{"block":true,"blockReason":"commands are not allowed on Fridays"}}' ;;
    *) result='{}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' "$id" "$result"
done
`;

/** Installs it in a state directory. It runs after the next start of the gateway, if its entry is enabled. */
export function installPlugin(state) {
  const folder = join(state, "extensions", "careful");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "homard.plugin.json"), JSON.stringify(MANIFEST));
  writeFileSync(join(folder, "plugin.sh"), PROGRAM);
}

/** Installs a guard that fails, so that no model is asked. `GUARD` enables it. */
export function installGuard(state) {
  const folder = join(state, "hooks", "redact");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "HOOK.md"), '---\nname: redact\ndescription: Removes names.\nmetadata: {"openclaw": {"events": ["agent:bootstrap"]}}\n---\n');
  writeFileSync(join(folder, "handler.sh"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
}
export const GUARD = { internal: { entries: { redact: { enabled: true, guard: true } } } };
