//! Sanitizes hostile HTML before a parser sees it: well-formed, shallow, and only with visible content.
//!
//! HTML parsers repair broken markup, at a cost that the page controls: elements that are never closed, nested a
//! hundred thousand deep or closed in the wrong order take quadratic time and memory. So the page is read here in one
//! pass, with simple rules, and rewritten: every element closed, limited depth, few attributes. Scripts, comments and
//! hidden content are dropped; the latter is a typical place for prompt injections.

mod tag;

use tag::HtmlTag;

/// Maximum depth. Deeper elements are dropped, but their content is kept.
const MAX_DEPTH: usize = 100;

/// Elements that each indent every line in them: nesting them would produce mostly white space.
const INDENTING: &[&str] = &["ul", "ol", "menu", "dir", "blockquote"];
const MAX_INDENTING_DEPTH: usize = 12;

/// Elements whose content is not markup or not readable: everything up to the end tag is dropped.
const DROPPED: &[&str] = &[
    "script",
    "style",
    "template",
    "iframe",
    "noembed",
    "noframes",
    "xmp",
    "plaintext",
    "textarea",
    "svg",
    "math",
    "object",
    "canvas",
    "audio",
    "video",
    "select",
];

/// Elements that cannot have content; only some are relevant to a reader.
const VOID: &[&str] =
    &["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
const KEPT_VOID: &[&str] = &["br", "hr", "img", "meta"];

/// Elements that a parser creates by itself.
const IMPLIED: &[&str] = &["html", "head", "body"];

/// Elements that end a paragraph.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "li",
    "main",
    "menu",
    "nav",
    "ol",
    "p",
    "pre",
    "search",
    "section",
    "summary",
    "table",
    "ul",
];

/// Elements that are only closed by their own end tag, not by tags inside of them.
const SCOPE_ELEMENTS: &[&str] = &["table", "td", "th", "caption", "button"];

/// Elements that a start tag closes implicitly, and elements at which the search for them stops.
const IMPLICITLY_CLOSED: &[(&str, &[&str], &[&str])] = &[
    ("li", &["li"], &["ul", "ol", "menu", "table"]),
    ("dt", &["dt", "dd"], &["dl", "table"]),
    ("dd", &["dt", "dd"], &["dl", "table"]),
    ("a", &["a"], SCOPE_ELEMENTS),
    ("tr", &["tr"], &["table"]),
    ("td", &["td", "th"], &["table", "tr"]),
    ("th", &["td", "th"], &["table", "tr"]),
    ("thead", &["thead", "tbody", "tfoot", "caption", "tr"], &["table"]),
    ("tbody", &["thead", "tbody", "tfoot", "caption", "tr"], &["table"]),
    ("tfoot", &["thead", "tbody", "tfoot", "caption", "tr"], &["table"]),
];

/// Sanitizes a page.
pub(super) fn sanitize(html: &str) -> String {
    let mut page = HtmlWriter { out: String::with_capacity(html.len()), open: Vec::new(), hidden: None };
    page.out.push_str("<!doctype html>");
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        page.text(&rest[..start]);
        rest = page.markup(&rest[start..]);
    }
    page.text(rest);
    page.close_to(0);
    page.out
}

struct HtmlWriter {
    out: String,
    /// Open elements.
    open: Vec<String>,
    /// Number of open elements when a hidden one started.
    hidden: Option<usize>,
}

impl HtmlWriter {
    /// Processes markup that begins with `<`; returns the rest.
    fn markup<'a>(&mut self, rest: &'a str) -> &'a str {
        if let Some(comment) = rest.strip_prefix("<!--") {
            return comment.split_once("-->").map_or("", |(_, after)| after);
        }
        if rest.starts_with("<!") || rest.starts_with("<?") {
            return rest.split_once('>').map_or("", |(_, after)| after);
        }
        let (inner, is_end) = match rest[1..].strip_prefix('/') {
            Some(inner) => (inner, true),
            None => (&rest[1..], false),
        };
        if !inner.starts_with(|first: char| first.is_ascii_alphabetic()) {
            self.text("<");
            return &rest[1..];
        }
        // An unterminated tag ends the page.
        let Some((tag, after)) = HtmlTag::parse(inner) else { return "" };
        if is_end {
            self.end(&tag.name);
            return after;
        }
        if DROPPED.contains(&tag.name.as_str()) {
            return past_end(after, &tag.name);
        }
        self.start(&tag);
        if tag.name != "title" {
            return after;
        }
        // A title contains no markup.
        let end = find_end(after, "title").unwrap_or(after.len());
        self.text(&after[..end]);
        &after[end..]
    }

    fn start(&mut self, tag: &HtmlTag) {
        let name = tag.name.as_str();
        if BLOCKS.contains(&name) {
            self.end("p");
        }
        if let Some((_, targets, walls)) = IMPLICITLY_CLOSED.iter().find(|(starting, ..)| *starting == name) {
            self.end_one_of(targets, walls);
        }
        let is_void = VOID.contains(&name);
        let is_visible =
            if is_void { KEPT_VOID.contains(&name) } else { !IMPLIED.contains(&name) && !self.is_too_deep(name) };
        if !is_visible {
            return;
        }
        if tag.is_hidden && !is_void {
            self.hidden.get_or_insert(self.open.len());
        }
        if self.hidden.is_none() {
            tag.write(&mut self.out);
        }
        if !is_void {
            self.open.push(tag.name.clone());
        }
    }

    fn is_too_deep(&self, name: &str) -> bool {
        let indents = |open: &String| INDENTING.contains(&open.as_str());
        self.open.len() >= MAX_DEPTH
            || INDENTING.contains(&name) && self.open.iter().filter(|open| indents(open)).count() >= MAX_INDENTING_DEPTH
    }

    /// Closes the innermost open element of a name, and everything in it.
    fn end(&mut self, name: &str) {
        let walls = if SCOPE_ELEMENTS.contains(&name) { &["table"][..] } else { SCOPE_ELEMENTS };
        self.end_one_of(&[name], walls);
    }

    fn end_one_of(&mut self, targets: &[&str], walls: &[&str]) {
        for (depth, open) in self.open.iter().enumerate().rev() {
            if targets.contains(&open.as_str()) {
                return self.close_to(depth);
            }
            if walls.contains(&open.as_str()) {
                return;
            }
        }
    }

    fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(name) = self.open.pop() else { return };
            match self.hidden {
                Some(hidden) if hidden == self.open.len() => self.hidden = None,
                Some(_) => {}
                None => self.out.extend(["</", &name, ">"]),
            }
        }
    }

    /// Appends text. Character references are kept; they cannot become markup.
    fn text(&mut self, text: &str) {
        if self.hidden.is_none() {
            self.out.push_str(&text.replace('<', "&lt;"));
        }
    }
}

/// Returns what follows the end tag of a name; empty if there is none.
fn past_end<'a>(html: &'a str, name: &str) -> &'a str {
    let Some(start) = find_end(html, name) else { return "" };
    html[start..].split_once('>').map_or("", |(_, after)| after)
}

/// Returns where the end tag of a name begins.
fn find_end(html: &str, name: &str) -> Option<usize> {
    let bytes = html.as_bytes();
    html.match_indices("</").map(|(at, _)| at).find(|at| {
        let after = &bytes[at + 2..];
        after.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
            && after.get(name.len()).is_none_or(|next| !next.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests;
