// Markdown from a model, shown so that nothing in it can act: no HTML, no images, no addresses but http, https and mailto.
import DOMPurify from "dompurify";
import { Marked, type Token } from "marked";
import { Component } from "preact";
import { visible } from "./format";
import { highlight } from "./highlight";

const SAFE_LINK = /^(https?:\/\/|mailto:)/i;

/** Text longer than this is shown as plain text: parsing it would take longer than a frame. */
const MAX_CHARACTERS = 200_000;

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escapeHtml(text),
    image: ({ href, text }) => `<span class="image-note">image${text ? `: ${escapeHtml(text)}` : ""} (${escapeHtml(href.slice(0, 200))})</span>`,
    link({ href, tokens }) {
      const text = this.parser.parseInline(tokens);
      return SAFE_LINK.test(href) ? `<a href="${escapeHtml(href)}" target="_blank" rel="noopener noreferrer nofollow">${text}</a>` : `<span class="image-note">${text} (${escapeHtml(href.slice(0, 200))})</span>`;
    },
    code({ text, lang }) {
      const language = (lang ?? "").trim().split(/\s/)[0]!.toLowerCase();
      const pieces = highlight(text, language).map(({ text, kind }) => (kind ? `<span class="hl-${kind}">${escapeHtml(text)}</span>` : escapeHtml(text)));
      return `<pre tabindex="0"><code>${pieces.join("")}</code></pre>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const ALLOWED = {
  // The page may insert only what the sanitizer returns: the policy of the gateway allows no other markup.
  RETURN_TRUSTED_TYPE: true,
  ALLOWED_TAGS: "p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a span table thead tbody tr th td".split(" "),
  ALLOWED_ATTR: ["href", "target", "rel", "class", "align", "start", "tabindex"],
  ALLOWED_URI_REGEXP: SAFE_LINK,
  // These are not addresses, so the pattern does not apply to them.
  ADD_URI_SAFE_ATTR: ["target", "rel", "align", "start", "tabindex"],
};

function clean(html: string): string {
  // Preact passes the object on as it is.
  return DOMPurify.sanitize(html, ALLOWED) as unknown as string;
}

/** Splits a text into its top-level blocks. */
export function blocks(text: string): Token[] {
  return marked.lexer(visible(text)).filter((token) => token.type !== "space" && token.type !== "def");
}

export function renderBlock(token: Token): string {
  return clean(marked.parser([token]));
}

/** One block. It is rendered again only if its source changed, so that a stream costs its last block only. */
class Block extends Component<{ token: Token }> {
  override shouldComponentUpdate(next: { token: Token }): boolean {
    return next.token.raw !== this.props.token.raw || next.token.type !== this.props.token.type;
  }
  override render() {
    return <div class="md-block" dir="auto" dangerouslySetInnerHTML={{ __html: renderBlock(this.props.token) }} />;
  }
}

export function Markdown({ text }: { text: string }) {
  if (text.length > MAX_CHARACTERS) return <pre class="plain">{visible(text)}</pre>;
  return (
    <div class="md">
      {blocks(text).map((token, at) => (
        <Block key={at} token={token} />
      ))}
    </div>
  );
}

/** Highlighted source code. */
export function Code({ text, language }: { text: string; language: string }) {
  return (
    <code>
      {highlight(visible(text), language).map(({ text, kind }, at) => (
        <span key={at} class={kind ? `hl-${kind}` : undefined}>
          {text}
        </span>
      ))}
    </code>
  );
}
