//! A session as Markdown or HTML. What comes from messages cannot leave its place in the document.

use crate::{Conversation, ShownMessage, plain};

/// Formats a session as Markdown. The text of messages stays Markdown; calls and results are code.
pub fn markdown(conversation: &Conversation) -> String {
    let mut text = format!("# {}\n\nSession id: {}\n", plain(&conversation.key), plain(&conversation.session_id));
    for message in &conversation.messages {
        let shown = ShownMessage::new(message);
        text += &format!("\n## {}\n", shown.title());
        if !shown.text.is_empty() {
            let is_result = message["role"] == "toolResult";
            let body = if is_result { fenced(&shown.text) } else { shown.text.clone() };
            text += &format!("\n{body}\n");
        }
        for call in &shown.calls {
            text += &format!("\n{}\n", fenced(call));
        }
    }
    text
}

/// Returns a code block whose fence is longer than any in the text.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// The style of the HTML page. The policy allows nothing else: no scripts, no images, no requests.
const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
article { border-left: 3px solid #8888; margin: 1rem 0; padding-left: 1rem; }
article.user { border-color: #36c; }
article.assistant { border-color: #393; }
h2 { font-size: .85rem; margin: 0; opacity: .7; }
pre { font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
pre.code { font: 14px/1.4 ui-monospace, monospace; }
</style>
";

/// Formats a session as a self-contained page. Everything that comes from messages is escaped text.
pub fn html(conversation: &Conversation) -> String {
    let title = escape(&plain(&conversation.key));
    let mut page = format!(
        "{HEAD}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n<p>Session id: {}</p>\n",
        escape(&plain(&conversation.session_id))
    );
    for message in &conversation.messages {
        let shown = ShownMessage::new(message);
        let class = match message["role"].as_str() {
            Some("user") => "user",
            Some("assistant") => "assistant",
            Some(_) | None => "tool",
        };
        page += &format!("<article class=\"{class}\">\n<h2>{}</h2>\n", escape(&shown.title()));
        if !shown.text.is_empty() {
            let code = if class == "tool" { " class=\"code\"" } else { "" };
            page += &format!("<pre{code}>{}</pre>\n", escape(&shown.text));
        }
        for call in &shown.calls {
            page += &format!("<pre class=\"code\">{}</pre>\n", escape(call));
        }
        page += "</article>\n";
    }
    page + "</body>\n</html>\n"
}

/// Escapes a text for HTML content and attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conversation() -> Conversation {
        let hostile = "</pre><script>alert(1)</script> <img src=x onerror='alert(2)'> ```\u{1b}[2J\u{202e}";
        let messages = vec![
            json!({"role": "user", "content": hostile}),
            json!({"role": "assistant", "content": [
                {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "echo '```' <b>"}}]}),
            json!({"role": "toolResult", "toolName": "<script>", "isError": false, "content": [
                {"type": "text", "text": hostile}]}),
        ];
        Conversation { key: "agent:main:<b>".to_owned(), session_id: "s".to_owned(), total: 3, messages }
    }

    #[test]
    fn hostile_content_is_text_in_html() {
        let page = html(&conversation());
        let body = page.split_once("</head>").unwrap().1;
        let tags: std::collections::BTreeSet<&str> =
            body.split('<').skip(1).map(|tag| tag.split(['>', ' ']).next().unwrap()).collect();
        let expected =
            ["/article", "/body", "/h1", "/h2", "/html", "/p", "/pre", "article", "body", "h1", "h2", "p", "pre"];
        assert_eq!(tags.into_iter().collect::<Vec<_>>(), expected);
        assert!(!page.contains(['\u{1b}', '\u{202e}']) && page.contains("default-src 'none'"));
        assert!(page.contains(
            "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x onerror=&#39;alert(2)&#39;&gt;"
        ));
    }

    #[test]
    fn a_code_block_cannot_be_left_in_markdown() {
        let text = markdown(&conversation());
        assert!(text.contains("\n````\nexec echo '```' <b>\n````\n"), "{text}");
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("````"), "`````\n````\n`````");
    }
}
