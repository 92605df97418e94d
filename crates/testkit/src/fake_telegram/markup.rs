//! HTML as Telegram parses it: few tags, properly nested, and few entities.

const TAGS: [&str; 8] = ["b", "i", "u", "s", "a", "code", "pre", "blockquote"];

/// Returns the text of some HTML, or what is wrong with it.
pub(super) fn text(html: &str) -> Result<String, String> {
    let (mut text, mut open): (String, Vec<&str>) = (String::new(), Vec::new());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix('<') {
            let (tag, after) = after.split_once('>').ok_or("unclosed start tag")?;
            rest = after;
            match tag.strip_prefix('/') {
                Some(name) if open.pop() == Some(name) => {}
                Some(name) => return Err(format!("unmatched end tag \"{name}\"")),
                None => {
                    let name = tag.split(' ').next().unwrap_or_default();
                    if !TAGS.contains(&name) {
                        return Err(format!("unsupported start tag \"{name}\""));
                    }
                    open.push(name);
                }
            }
        } else {
            let known = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"')];
            let (entity, c) = known.into_iter().find(|(entity, _)| rest.starts_with(entity)).ok_or("unknown entity")?;
            text.push(c);
            rest = &rest[entity.len()..];
        }
    }
    text.push_str(rest);
    match open.last() {
        None => Ok(text),
        Some(name) => Err(format!("can't find end tag corresponding to start tag \"{name}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tags_are_rejected() {
        assert_eq!(text("a <b>b <i>c</i></b> &lt;d&gt;"), Ok("a b c <d>".to_owned()));
        for wrong in ["<b>", "<b><i></b></i>", "</b>", "<h1>x</h1>", "a & b", "a < b"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
