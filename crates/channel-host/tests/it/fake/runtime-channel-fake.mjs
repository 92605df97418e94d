// What the host needs of the `openclaw` package.

export function createRuntimeChannel({ dispatchReplyFromConfig }) {
  return {
    reply: { dispatchReplyFromConfig },
    inbound: { run: async (params) => (await params.adapter.resolveTurn()).dispatchReplyFromConfig(params.turn) },
  };
}
