// Links an account in a terminal, such as by a QR code. Runs on its own, with its parameters in an environment variable.

import { loadPackage } from "./package.mjs";
import { openConfig } from "./policies.mjs";

const params = JSON.parse(process.env.HOMARD_CHANNEL_LOGIN);
delete process.env.HOMARD_CHANNEL_LOGIN;

const unavailable = async () => {
  throw new Error("not available while an account is linked");
};
let config = { channels: {} };
const loaded = await loadPackage(params, {
  peer: { request: unavailable, hint() {} },
  log: (level, message) => (level === "error" || level === "warn" ? console.error(message) : undefined),
  routes: { add: () => () => {} },
  accounts: () => ({ config: () => config }),
});
config = openConfig(params.channel, params.section, loaded.schema);
loaded.publishConfig(config);
const { login } = loaded.plugin.auth ?? {};
if (login === undefined) {
  console.error(`${params.channel} has no login; its credentials are in the config`);
  process.exit(2);
}
try {
  const runtime = { log: console.log, error: console.error, exit: (code) => process.exit(code) };
  await login({ cfg: config, accountId: params.account, runtime, verbose: false });
  process.exit(0);
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
