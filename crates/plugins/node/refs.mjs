// Large values of an event are sent by reference, as {"$ref": "…"}, and fetched when they are needed.
// Only top-level values of an event can be references: nested values, such as JSON Schemas and tool arguments,
// may contain unrelated keys named $ref.

/** How many fetched values are kept: a run asks for the same conversation at every hook. */
const KEPT = 16;

/** Makes `resolve(event)`, which returns the event with its references replaced by what they stand for. */
export function refResolver(peer, log) {
  const kept = new Map();

  const fetch = async (ref) => {
    // Kept as text, so that every reader gets its own copy.
    const text = kept.get(ref) ?? peer.fetch("ref.get", { ref }).then((answer) => JSON.stringify(answer?.value ?? null));
    kept.delete(ref);
    kept.set(ref, text);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return JSON.parse(await text);
  };

  const resolveOne = async (event, key) => {
    const ref = event[key].$ref;
    try {
      event[key] = await fetch(ref);
    } catch (error) {
      // It may be a tool argument that only looks like a reference; then it is left unchanged.
      kept.delete(ref);
      log("warn", `the value of ${key} could not be fetched by its reference: ${error.message}`);
    }
  };

  return async (event) => {
    const keys = Object.keys(event ?? {}).filter((key) => isRef(event[key]));
    await Promise.all(keys.map((key) => resolveOne(event, key)));
    return event;
  };
}

function isRef(value) {
  return value !== null && typeof value === "object" && typeof value.$ref === "string" && Object.keys(value).length === 1;
}
