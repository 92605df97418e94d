// Splits bytes into lines, at "\n" only, so that a character split between two chunks stays intact.

/** The longest line that is read. What is longer was a mistake or an attack; it is skipped, not kept. */
export const LONGEST_LINE = 64 * 1024 * 1024;

/**
 * Makes a function that takes chunks and calls `onLine` for each whole line.
 * `onTooLong` is called once for a line that is longer than `limit`.
 */
export function lineReader({ onLine, onTooLong, limit = LONGEST_LINE }) {
  let parts = [];
  let size = 0;
  let skipping = false;

  const take = (piece) => {
    if (skipping) return;
    size += piece.length;
    if (size > limit) {
      skipping = true;
      parts = [];
      onTooLong(limit);
      return;
    }
    parts.push(piece);
  };

  const finish = () => {
    const wasSkipped = skipping;
    const line = wasSkipped ? "" : Buffer.concat(parts).toString("utf8").trim();
    parts = [];
    size = 0;
    skipping = false;
    if (!wasSkipped && line !== "") onLine(line);
  };

  return (chunk) => {
    let from = 0;
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, from)) {
      take(chunk.subarray(from, at));
      finish();
      from = at + 1;
    }
    if (from < chunk.length) take(chunk.subarray(from));
  };
}
