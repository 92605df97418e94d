// Calls the slash commands and gateway methods of plugins.

import { actAs } from "./owner.mjs";

/** Makes `command.run`: a chat command that no model sees. */
export function commandRunner({ registry, gatewayInfo }) {
  return async ({ ref, ctx = {} }) => {
    const { command, plugin } = registry.get(ref, "command");
    const reply = await actAs(plugin, () => command.handler({ config: gatewayInfo.config(), ...ctx }));
    return typeof reply === "string" ? { text: reply } : (reply ?? {});
  };
}

/** Makes `gatewayMethod.call`: the answer is what the handler passes to `respond`, then or later. */
export function methodCaller({ registry }) {
  return ({ ref, params = {}, client = null }, call) => {
    const { handler, plugin } = registry.get(ref, "gatewayMethod");
    return new Promise((resolve, reject) => {
      const respond = (ok, payload, error) => resolve({ ok: ok === true, payload, error });
      call.signal.addEventListener("abort", () => reject(call.signal.reason), { once: true });
      const question = { params, respond, client, context: {}, req: { params }, isWebchatConnect: () => false };
      Promise.resolve(actAs(plugin, async () => handler(question))).catch(reject);
    });
  };
}
