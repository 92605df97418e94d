//! Parses a tag: its name and the relevant attributes.

/// Attributes that are kept: those needed by readers and by article extraction.
const KEPT_ATTRIBUTES: &[&str] = &[
    "alt", "class", "colspan", "content", "data-src", "datetime", "href", "id", "itemprop", "lang", "name", "property",
    "rel", "role", "rowspan", "src", "start", "title",
];

/// Maximum length of a value. Longer ones, mostly inline images, are dropped.
const MAX_VALUE_LENGTH: usize = 2048;

/// Maximum length of an element name.
const MAX_NAME_LENGTH: usize = 32;

/// A tag.
pub(super) struct HtmlTag<'a> {
    /// In lower case.
    pub(super) name: String,
    attributes: Vec<(&'static str, &'a str)>,
    /// True if the element is hidden.
    pub(super) is_hidden: bool,
}

impl<'a> HtmlTag<'a> {
    /// Parses a tag that begins with its name; returns it and what follows. `None` if it is unterminated.
    pub(super) fn parse(html: &'a str) -> Option<(Self, &'a str)> {
        let end = html.find(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>'))?;
        let name = html[..end].to_ascii_lowercase();
        let mut tag = Self { name, attributes: Vec::new(), is_hidden: false };
        if tag.name.len() > MAX_NAME_LENGTH
            || !tag.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            tag.name = "span".to_owned();
        }
        let mut rest = &html[end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                return Some((tag, after));
            }
            let (name, value, after) = attribute(rest)?;
            tag.add_attribute(name, value);
            rest = after;
        }
    }

    fn add_attribute(&mut self, name: &str, value: &'a str) {
        if name.eq_ignore_ascii_case("hidden") {
            self.is_hidden = true;
        } else if name.eq_ignore_ascii_case("style") {
            self.is_hidden |= hides(value);
        } else if let Some(attribute) = KEPT_ATTRIBUTES.iter().find(|attribute| name.eq_ignore_ascii_case(attribute))
            && value.len() <= MAX_VALUE_LENGTH
            && !value.trim_start().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
            && !self.attributes.iter().any(|(known, _)| known == attribute)
        {
            self.attributes.push((attribute, value));
        }
    }

    /// Writes it in a canonical form.
    pub(super) fn write(&self, out: &mut String) {
        out.extend(["<", &self.name]);
        for (name, value) in &self.attributes {
            out.extend([" ", name, "=\"", &value.replace('"', "&quot;").replace('<', "&lt;"), "\""]);
        }
        out.push('>');
    }
}

/// Returns the name and value of the next attribute, and what follows it.
fn attribute(html: &str) -> Option<(&str, &str, &str)> {
    // An equals sign at the beginning belongs to the name.
    let first = html.chars().next()?.len_utf8();
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=');
    let end = first + html[first..].find(is_end)?;
    let (name, rest) = html.split_at(end);
    let Some(value) = rest.trim_ascii_start().strip_prefix('=') else { return Some((name, "", rest)) };
    let value = value.trim_ascii_start();
    for quote in ['"', '\''] {
        if let Some(quoted) = value.strip_prefix(quote) {
            let (value, after) = quoted.split_once(quote)?;
            return Some((name, value, after));
        }
    }
    let end = value.find(|c: char| c.is_ascii_whitespace() || c == '>')?;
    Some((name, &value[..end], &value[end..]))
}

/// True if a style hides an element.
fn hides(style: &str) -> bool {
    let compact: String = style.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect();
    ["display:none", "visibility:hidden"].iter().any(|hiding| compact.contains(hiding))
}
