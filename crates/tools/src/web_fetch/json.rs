//! Pretty-prints JSON without changing numbers and strings.

use serde::de::IgnoredAny;

/// Maximum growth factor: deep nesting would produce mostly white space.
const MAX_GROWTH: usize = 4;

/// Pretty-prints JSON. `None` if it is not JSON or would grow too much.
pub(super) fn pretty(json: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(json).ok()?;
    let max = 1024 + json.len() * MAX_GROWTH;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if out.len() > max {
            return None;
        }
        if is_string {
            out.push(c);
            is_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            continue;
        }
        match c {
            '[' | '{' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, ']' | '}')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            ']' | '}' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                is_string = c == '"';
                out.push(c);
            }
        }
    }
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_as_usual() {
        for json in [r#"{"a":[1,{"b":[]},{ }],"c":"x: [,] \" \\","d":null}"#, "[]", "1", "\"a\\\"b\"", "[[1,2],[true]]"]
        {
            let value: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(pretty(json), Some(serde_json::to_string_pretty(&value).unwrap()));
        }
    }

    #[test]
    fn numbers_are_not_changed() {
        let json = "[\n  123456789012345678901234567890,\n  1.10,\n  1E5\n]";
        assert_eq!(pretty("[123456789012345678901234567890,1.10,1E5]").as_deref(), Some(json));
    }

    #[test]
    fn invalid_or_growing_json_is_left_unchanged() {
        assert_eq!(["", "{", "[1,]", "hello"].map(pretty), [None, None, None, None]);
        let deep = format!("{}{}{}", "[".repeat(100), vec!["0"; 10_000].join(","), "]".repeat(100));
        assert_eq!(pretty(&deep), None);
        assert_eq!(pretty(&"[".repeat(100_000)), None);
    }
}
