// Syntax highlighting that needs no grammar per language: comments, strings, numbers and keywords look alike in most.

export interface Piece {
  text: string;
  kind: "" | "comment" | "string" | "number" | "keyword" | "name";
}

const KEYWORDS = new Set(
  ("abstract and as assert async await begin bool boolean break case catch class const continue crate def default del delete " +
    "do done echo elif else elseif end enum except export extends extern false fi final finally fn for from func function global " +
    "goto if impl implements import in int interface is lambda let local loop match mod module move mut new nil none not null " +
    "None of or package pass private protected public pub raise ref return select self Self static string struct super switch " +
    "table then this throw throws trait true True False try type typeof union unless unsafe until use using val var void where while with yield " +
    "SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN LEFT RIGHT ON AND OR NOT NULL ORDER BY GROUP LIMIT VALUES SET").split(" "),
);
const HASH_COMMENTS = new Set(["sh", "bash", "shell", "zsh", "console", "py", "python", "rb", "ruby", "yaml", "yml", "toml", "ini", "make", "makefile", "dockerfile", "perl", "r"]);
const DASH_COMMENTS = new Set(["sql", "lua", "haskell", "hs"]);

/** Longer code is shown without colours, so that a frame stays short. */
const MAX_CHARACTERS = 60_000;

export function highlight(code: string, language: string): Piece[] {
  if (code.length > MAX_CHARACTERS || language === "text" || language === "plain") return [{ text: code, kind: "" }];
  if (language === "diff" || language === "patch") return diffPieces(code);
  const hash = HASH_COMMENTS.has(language);
  const dash = DASH_COMMENTS.has(language);
  const slash = !hash && !dash;
  const comment = hash ? "(?<![\\w$])#[^\\n]*" : dash ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
  const text = `"(?:[^"\\\\\\n]|\\\\[\\s\\S])*"?|'(?:[^'\\\\\\n]|\\\\[\\s\\S])*'|\`(?:[^\`\\\\]|\\\\[\\s\\S])*\`?`;
  const markup = slash && (language === "html" || language === "xml" || language === "svg") ? "<!--[\\s\\S]*?(?:-->|$)|" : "";
  const pattern = new RegExp(`(${markup}${comment})|(${text})|(\\b\\d[\\w.]*\\b)|([A-Za-z_$][\\w$]*)`, "g");
  const pieces: Piece[] = [];
  let end = 0;
  const push = (text: string, kind: Piece["kind"]) => {
    const last = pieces.at(-1);
    if (last && last.kind === kind) last.text += text;
    else if (text) pieces.push({ text, kind });
  };
  for (const match of code.matchAll(pattern)) {
    push(code.slice(end, match.index), "");
    end = match.index + match[0].length;
    const [whole, isComment, isText, isNumber] = match;
    const isName = code[end] === "(" || (isText && code[end] === ":");
    push(whole, isComment ? "comment" : isText ? (isName ? "name" : "string") : isNumber ? "number" : KEYWORDS.has(whole) ? "keyword" : isName ? "name" : "");
  }
  push(code.slice(end), "");
  return pieces;
}

function diffPieces(code: string): Piece[] {
  return code.split(/(?<=\n)/).map((line) => ({ text: line, kind: line.startsWith("+") ? "string" : line.startsWith("-") ? "keyword" : line.startsWith("@@") ? "comment" : "" }));
}
