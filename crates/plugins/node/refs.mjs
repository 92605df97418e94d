// Large values of an event come by reference, as {"$ref": "…"}, and are fetched just before they are needed.
// Only an event's own values can be references, never what is inside them: JSON Schemas and the arguments of tools
// are full of things called $ref that are none of ours.

/** How many fetched values are kept: a run asks for the same conversation at every hook. */
const KEPT = 16;

/** Makes `resolve(event)`, which returns the event with its references replaced by what they stand for. */
export function refResolver(peer, log) {
  const kept = new Map();

  const fetch = async (ref) => {
    // Kept as text: everybody who reads it gets an own copy.
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
      // It may be no reference at all but a tool's own argument: then it is right to leave it as it is.
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
