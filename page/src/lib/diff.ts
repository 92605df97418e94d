// The difference of two texts by lines.

export interface DiffLine {
  kind: " " | "+" | "-";
  text: string;
}

/** Beyond this number of lines, only equal lines at the start and the end are matched. */
const MAX_LINES = 2_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const [left, right] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let tail = 0;
  while (tail < left.length - start && tail < right.length - start && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail += 1;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: " ", text }));
  const middle = changed(left.slice(start, left.length - tail), right.slice(start, right.length - tail));
  return [...same(left.slice(0, start)), ...middle, ...same(left.slice(left.length - tail))];
}

function changed(left: string[], right: string[]): DiffLine[] {
  const removed = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "-", text }));
  const added = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "+", text }));
  if (left.length === 0 || right.length === 0 || left.length + right.length > MAX_LINES) return [...removed(left), ...added(right)];
  // Lengths of the longest common subsequences of the tails.
  const width = right.length + 1;
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] =
        left[row] === right[column] ? lengths[(row + 1) * width + column + 1]! + 1 : Math.max(lengths[(row + 1) * width + column]!, lengths[row * width + column + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < left.length && column < right.length) {
    if (left[row] === right[column]) {
      lines.push({ kind: " ", text: left[row]! });
      row += 1;
      column += 1;
    } else if (lengths[(row + 1) * width + column]! >= lengths[row * width + column + 1]!) lines.push({ kind: "-", text: left[row++]! });
    else lines.push({ kind: "+", text: right[column++]! });
  }
  return [...lines, ...removed(left.slice(row)), ...added(right.slice(column))];
}

/** Leaves out equal lines that are far from a change. `null` stands for the lines that were left out. */
export function withContext(lines: DiffLine[], context = 3): (DiffLine | null)[] {
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - context), at + context + 1).some((line) => line.kind !== " "));
  const shown: (DiffLine | null)[] = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}
