//! Tests of the Markdown conversion.

use proptest::prelude::*;

use super::*;

fn html(markdown: &str) -> Vec<String> {
    parts(markdown, MAX_MESSAGE).into_iter().map(|part| part.html).collect()
}

fn one(markdown: &str) -> String {
    html(markdown).join("<<cut>>")
}

#[test]
fn styles_become_tags_and_nest() {
    assert_eq!(one("a **b *c* d** ~~e~~ `f<g>`"), "a <b>b <i>c</i> d</b> <s>e</s> <code>f&lt;g&gt;</code>");
    assert_eq!(one("# Head\n\ntext & \"more\""), "<b>Head</b>\n\ntext &amp; &quot;more&quot;");
    assert_eq!(one("> a **b**\n>\n> c\n\nd"), "<blockquote>a <b>b</b>\n\nc</blockquote>\n\nd");
    assert_eq!(one("> a\n> > b"), "<blockquote>a\n\nb</blockquote>");
    assert_eq!(one("line one\nline two  \nthree"), "line one\nline two\nthree");
    assert_eq!(one("**bold `code` on**"), "<b>bold </b><code>code</code><b> on</b>");
    assert_eq!(one("a <b>not ours</b> <script>"), "a &lt;b&gt;not ours&lt;/b&gt; &lt;script&gt;");
}

/// The tags of a code block count once for each message, not for each of its characters.
#[test]
fn a_code_block_fills_its_messages() {
    let code = "let value = compute(1, 2);\n".repeat(300);
    for (text, least) in
        [(format!("```rust\n{code}```"), 2), (format!("Look:\n\n```rust\n{code}```\n\nThat is all."), 2)]
    {
        let parts = parts(&text, MAX_MESSAGE);
        assert!(parts.len() <= least + 1, "{} parts", parts.len());
        assert!(parts.iter().all(|part| part.html.len() < MAX_HTML_BYTES));
    }
}

#[test]
fn unsupported_links_become_text() {
    assert_eq!(one("[a *b*](https://x.y/?q=1&r=\"2\")"), {
        "<a href=\"https://x.y/?q=1&amp;r=&quot;2&quot;\">a <i>b</i></a>"
    });
    assert_eq!(one("[file](src/main.rs) [js](javascript:alert(1))"), "file js");
    assert_eq!(one("![cat](https://x.y/cat.png)"), "<a href=\"https://x.y/cat.png\">cat</a>");
    assert_eq!(one("[`code`](https://x.y)"), "<a href=\"https://x.y\">code</a>");
    let plain: Vec<String> =
        parts("see [docs](https://x.y) and <https://z.w>", MAX_MESSAGE).into_iter().map(|p| p.plain).collect();
    assert_eq!(plain, ["see docs (https://x.y) and https://z.w"]);
}

#[test]
fn code_keeps_its_language_and_its_lines() {
    assert_eq!(
        one("```rust\nfn a() {\n    b < c;\n}\n```\nafter"),
        "<pre><code class=\"language-rust\">fn a() {\n    b &lt; c;\n}</code></pre>\n\nafter"
    );
    assert_eq!(one("```\nx\n```"), "<pre>x</pre>");
    assert_eq!(one("```a\"b\nx\n```"), "<pre>x</pre>");
    assert_eq!(one("```sh\nunclosed"), "<pre><code class=\"language-sh\">unclosed</code></pre>");
}

#[test]
fn lists_keep_their_marks_and_depth() {
    assert_eq!(one("- a\n- b\n  - c\n- d"), "• a\n• b\n  • c\n• d");
    assert_eq!(one("3. a\n4. b\n\nafter"), "3. a\n4. b\n\nafter");
    assert_eq!(one("- [x] a\n- [ ] b"), "• ☑ a\n• ☐ b");
    assert_eq!(one("before\n\n- **a**: b\n\n- c"), "before\n\n• <b>a</b>: b\n• c");
}

#[test]
fn a_table_is_aligned_in_a_fixed_width_font() {
    assert_eq!(
        one("| a | bé |\n|---|---|\n| 1 | **2** |\n| long cell | <3 |"),
        "<pre>a         | bé\n----------+---\n1         | 2\nlong cell | &lt;3</pre>"
    );
}

#[test]
fn an_empty_text_makes_no_message() {
    for nothing in ["", " \n\n ", "```\n```", "\u{a0}", "[]()"] {
        assert_eq!(html(nothing), Vec::<String>::new(), "{nothing:?}");
    }
}

#[test]
fn a_split_closes_and_reopens_styles() {
    let html = |markdown: &str| parts(markdown, 10).into_iter().map(|part| part.html).collect::<Vec<_>>();
    assert_eq!(html("**aaaa bbbb cccc**"), ["<b>aaaa bbbb</b>", "<b>cccc</b>"]);
    assert_eq!(html("aaaa\n\nbbbb cc dd"), ["aaaa", "bbbb cc dd"]);
    assert_eq!(html("```py\naaaaaaa\n  bbbbb\n```"), {
        [
            "<pre><code class=\"language-py\">aaaaaaa</code></pre>",
            "<pre><code class=\"language-py\">  bbbbb</code></pre>",
        ]
    });
    assert_eq!(html("😀😀😀😀😀😀"), ["😀😀😀😀😀", "😀"], "an emoji counts as two");
    assert_eq!(html("abcdefghijklm"), ["abcdefghij", "klm"]);
    assert_eq!(parts("👨‍👩‍👧‍👦", 3).len(), 4, "a letter longer than a message is torn");
}

#[test]
fn markup_beyond_telegrams_limit_is_split() {
    let link = format!("[x](https://x.y/{}) ", "a".repeat(1500));
    let long = link.repeat(60);
    let parts = parts(&long, MAX_MESSAGE);
    assert!(parts.len() > 2 && parts.iter().all(|part| part.html.len() <= 30_000 + 2048), "{}", parts.len());
    assert_eq!(parts.iter().map(|part| part.html.matches("<a ").count()).sum::<usize>(), 60);
}

/// Checks that tags are balanced and special characters are escaped.
fn balanced(html: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        if rest[..at].contains('>') {
            return Err(format!("a bare > in {html}"));
        }
        let end = rest[at..].find('>').ok_or("a tag that does not end")? + at;
        let tag = &rest[at + 1..end];
        match tag.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(name) => return Err(format!("</{name}> closes another one in {html}")),
            None => open.push(tag.split(' ').next().unwrap_or_default()),
        }
        rest = &rest[end + 1..];
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} stay open in {html}")) }
}

fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' => is_tag = false,
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// For any Markdown and limit: every part fits, is balanced and not empty; and together the parts contain all
    /// words.
    #[test]
    fn every_part_fits_and_is_balanced(
        markdown in "([a-d ]{0,9}|[*_~`>#|\\[\\]()\\-]{1,3}|\n|\n\n|```|<b>|&|😀|é|\\[a\\]\\(https://x\\.y\\)|1\\. |- |\\| a \\| b \\|\n){0,25}",
        limit in 2usize..60,
    ) {
        let rich = RichText::read(&markdown);
        let mut joined = String::new();
        for part in parts(&markdown, limit) {
            prop_assert_eq!(balanced(&part.html), Ok(()));
            let text = text_of(&part.html);
            prop_assert!(text.encode_utf16().count() <= limit, "{:?} of {:?}", text, markdown);
            prop_assert!(part.plain.encode_utf16().count() <= limit);
            prop_assert!(!text.trim().is_empty());
            joined.push_str(&text);
        }
        let without_whitespace = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        prop_assert_eq!(without_whitespace(&joined), without_whitespace(&rich.text));
    }

    #[test]
    fn no_markdown_makes_it_panic(markdown in "\\PC{0,200}", limit in 0usize..20) {
        parts(&markdown, limit);
    }
}
