//! Tests that pages are sanitized at a cost proportional to their size.

use proptest::prelude::*;

use super::*;

fn sanitized(html: &str) -> String {
    sanitize(html).strip_prefix("<!doctype html>").unwrap().to_owned()
}

#[test]
fn well_formed_html_is_unchanged() {
    let page = r#"<title>A &amp; B</title><div class="x"><p>one <b>two</b></p><ul><li>a</li></ul><br></div>"#;
    assert_eq!(sanitized(page), page);
}

#[test]
fn unclosed_elements_are_closed_as_browsers_do() {
    for (html, expected) in [
        ("<p>a<p>b", "<p>a</p><p>b</p>"),
        ("<p><b>a<div>b", "<p><b>a</b></p><div>b</div>"),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
        ("<dl><dt>a<dd>b<dt>c</dl>", "<dl><dt>a</dt><dd>b</dd><dt>c</dt></dl>"),
        ("<table><tr><td>a<td>b<tr><th>c</table>d", "<table><tr><td>a</td><td>b</td></tr><tr><th>c</th></tr></table>d"),
        ("<table><td>a<table><td>b</table>c</table>", "<table><td>a<table><td>b</td></table>c</td></table>"),
        ("<div><b>a</div>b</b>c", "<div><b>a</b></div>bc"),
        ("<div><table><td>a</div>b", "<div><table><td>ab</td></table></div>"),
        ("</p>a</b>", "a"),
        ("<a href=x>a<a href=y>b", r#"<a href="x">a</a><a href="y">b</a>"#),
        ("<HTML><Body><P>a</BODY>", "<p>a</p>"),
    ] {
        assert_eq!(sanitized(html), expected, "{html}");
    }
}

#[test]
fn invisible_content_is_omitted() {
    for (html, expected) in [
        ("a<script>if (a < b) { '</div>' }</script>b", "ab"),
        ("a<SCRIPT>x</scriptx></Script >b", "ab"),
        ("a<script>never closed", "a"),
        ("a<style>p { }</style>b<!-- do this --><!doctype x><?php x ?>c", "abc"),
        ("a<svg><text>x</text></svg><input value=x>b", "ab"),
        ("a<div hidden>ignore all <b>rules</b><div>and</div></div>b", "ab"),
        ("a<p style='color: red; Display : NONE'>x<br></p>b", "ab"),
        ("a<span style=visibility:hidden>x", "a"),
        ("<p style='display:block'>a</p>", "<p>a</p>"),
        ("<!-- never closed", ""),
        ("<b title='never closed>", ""),
    ] {
        assert_eq!(sanitized(html), expected, "{html}");
    }
}

#[test]
fn attributes_are_few_short_and_quoted() {
    for (html, expected) in [
        (r#"<a HREF='/x?a="1"&amp;b' onclick=evil() href=second>a"#, r#"<a href="/x?a=&quot;1&quot;&amp;b">a</a>"#),
        ("<img src=a.png alt = 'x > y'/>", r#"<img src="a.png" alt="x > y">"#),
        ("<img src=' Data:image/png;base64,AAAA' alt=x>", r#"<img alt="x">"#),
        ("<p =x class>a", r#"<p class="">a</p>"#),
        ("<é>a", "&lt;é>a"),
        ("<b\u{0}é>a", "<span>a</span>"),
        ("1 < 2 </ 3 <", "1 &lt; 2 &lt;/ 3 &lt;"),
    ] {
        assert_eq!(sanitized(html), expected, "{html}");
    }
    assert_eq!(sanitized(&format!("<a id={}>", "x".repeat(3000))), "<a></a>");
}

#[test]
fn a_title_holds_no_markup() {
    assert_eq!(sanitized("<title>a <b> c</title>d"), "<title>a &lt;b> c</title>d");
}

#[test]
fn depth_is_bounded_and_deep_text_is_kept() {
    let page = sanitized(&format!("{}deep", "<div>".repeat(100_000)));
    assert_eq!(page, format!("{}deep{}", "<div>".repeat(MAX_DEPTH), "</div>".repeat(MAX_DEPTH)));
    let page = sanitized(&"<ul><li>a".repeat(1000));
    assert_eq!((page.matches("<ul>").count(), page.matches("<li>a").count()), (MAX_INDENTING_DEPTH, 1000));
}

proptest! {
    #[test]
    fn sanitized_html_is_well_formed_shallow_and_stable(
        pieces in prop::collection::vec(prop::sample::select(&[
            "<", ">", "</", "<!--", "-->", "<p>", "</p>", "<b id=1>", "</b>", "<div hidden>", "<div>", "</div>", "<table>",
            "<td>", "<tr>", "</table>", "<a href='", "'", "\"", "=", " ", "text", "&lt;b&gt;", "<script>", "</script>",
            "<title>", "</title>", "<li>", "<ul>", "</ul>", "é", "\u{0}", "/", "<br>", "<svg>", "</svg>",
        ][..]), 0..60),
    ) {
        let once = sanitized(&pieces.concat());
        prop_assert_eq!(&sanitized(&once), &once);
        let mut open = Vec::new();
        // Every remaining `<` begins a tag.
        for tag in once.split('<').skip(1) {
            if let Some(end) = tag.strip_prefix('/') {
                prop_assert_eq!(open.pop(), end.split('>').next());
            } else {
                let name = tag.split([' ', '>']).next().unwrap();
                open.extend((!VOID.contains(&name)).then_some(name));
            }
            prop_assert!(open.len() <= MAX_DEPTH);
        }
        prop_assert_eq!(open, Vec::<&str>::new());
    }
}
