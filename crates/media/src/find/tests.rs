//! Tests of image references in texts.

use proptest::prelude::*;

use super::*;

#[test]
fn media_tags_of_channels_are_found() {
    for (text, paths) in [
        ("[media attached: /in/a.png (image/png) | https://h/x.png]\nhi", &["/in/a.png"][..]),
        ("[media attached 1/2: /in/a.jpg (image/jpeg)] [Media Attached 2/2: ./b.GIF]", &["/in/a.jpg", "./b.GIF"]),
        ("[media attached: 2 files]\n[media attached: voice.ogg (audio/ogg)] see x/a.png", &["x/a.png"]),
        ("[media attached: /in/my cat (1) [old].png (image/png)]", &["/in/my cat (1) [old].png"]),
        ("[media attached: file:///in/my%20cat.png (image/png)]", &["/in/my cat.png"]),
        ("[media attached: https://h/a/x.png (image/png)]", &[]),
        ("[Image: source: /in/my cat.webp]", &["/in/my cat.webp"]),
        ("[image: SOURCE: bare.heic ]", &["bare.heic"]),
        ("[Image: source: notes.txt] [Image: a/b.png]", &["a/b.png"]),
        ("[media attached] [media attached: ] [Image: source:] [", &[]),
    ] {
        assert_eq!(find(text), paths, "{text}");
    }
}

#[test]
fn image_paths_are_found_in_a_sentence() {
    for (text, paths) in [
        ("look at /tmp/a.png, ./b.jpg; ../c.jpeg and ~/d.gif.", &["/tmp/a.png", "./b.jpg", "../c.jpeg", "~/d.gif"][..]),
        (
            "dir/x.webp (a/b.bmp) [c/d.tiff] {e/f.tif} <g/h.heic>",
            &["dir/x.webp", "a/b.bmp", "c/d.tiff", "e/f.tif", "g/h.heic"],
        ),
        ("What is in ./A.PNG?! And **./b.Heif**…", &["./A.PNG", "./b.Heif"]),
        ("@./a.png src=./b.png path:/c.png", &["./a.png", "./b.png", "/c.png"]),
        ("看看 /tmp/图.png。还有「./二.jpg」，谢谢", &["/tmp/图.png", "./二.jpg"]),
        ("a.png is a bare name, /a.txt no picture, /tmp/.png and .png no names, ./png.d neither", &[]),
        ("./a.png.zip ./a.pngx ./a.png/b", &[]),
    ] {
        assert_eq!(find(text), paths, "{text}");
    }
}

#[test]
fn paths_with_spaces_are_found_between_delimiters() {
    for (text, paths) in [
        (r#"see "/tmp/my cat.png" and './her dog.jpg'"#, &["/tmp/my cat.png", "./her dog.jpg"][..]),
        ("`~/my pics/a b.png` and ‘/x y.png’ “/z w.png”", &["~/my pics/a b.png", "/x y.png", "/z w.png"]),
        ("![a cat](./my cat.png) [/tmp/a b.png] </tmp/c d.png>", &["./my cat.png", "/tmp/a b.png", "/tmp/c d.png"]),
        (r#"<img src="./my cat.png"> {"path":"/tmp/a b, c.png"}"#, &["./my cat.png", "/tmp/a b, c.png"]),
        (r#""my pics/a b.png""#, &["my pics/a b.png"]),
        ("\"file:///tmp/a b.png\"", &["/tmp/a b.png"]),
        ("it's in ./a.png, isn't it? that's ./b.png'", &["./a.png", "./b.png"]),
        (
            "(see ./a.png) (/tmp/a.png, /tmp/b.png) (/c.png,/d.png)",
            &["./a.png", "/tmp/a.png", "/tmp/b.png", "/c.png", "/d.png"],
        ),
        (r#""/tmp/a.png and /tmp/b.png""#, &["/tmp/a.png", "/tmp/b.png"]),
        // Ambiguous: the quoted text can be a path with spaces, or contain one without.
        (r#"he said "look at pics/a.png""#, &["look at pics/a.png", "pics/a.png"]),
    ] {
        assert_eq!(find(text), paths, "{text}");
    }
}

#[test]
fn file_urls_are_local_and_all_others_remote() {
    for (text, paths) in [
        ("file:///tmp/a.png, FILE://localhost/tmp/my%20%C3%A9.png.", &["/tmp/a.png", "/tmp/my é.png"][..]),
        ("![x](file:///tmp/a.png) <file:///tmp/b.png>", &["/tmp/a.png", "/tmp/b.png"]),
        ("file://server/a.png file:///a%zz.png file:///a%ff.png file:///a%e file:///a.txt", &[]),
        ("https://h/a/b.png http://h/x(1)/./c.png ftp://h/d/e.jpg s3://bucket/f/g.gif", &[]),
        ("![x](https://h/a.png)![y](./y.png)", &["./y.png"]),
        ("\"https://h/a b.png\" (https://h/a/c.png) //cdn.h/a/d.png \"//cdn.h/a/d.png\"", &[]),
        ("data:image/png;base64,iVBORw0KGgo/AAAA/ab.png", &["iVBORw0KGgo/AAAA/ab.png"]),
    ] {
        assert_eq!(find(text), paths, "{text}");
    }
}

#[test]
fn each_image_is_returned_once_and_at_most_twenty() {
    assert_eq!(find("/a.png ./b.png /a.png file:///a.png [Image: source: /a.png]"), ["/a.png", "./b.png"]);
    let many: Vec<_> = (0..30).map(|number| format!("./{number}.png")).collect();
    assert_eq!(find(&many.join("\n")), many[..20]);
    assert_eq!(find(&format!("/{}.png ./b.png", "a".repeat(MAX_PATH_BYTES))), ["./b.png"]);
}

#[test]
fn a_long_line_is_scanned_in_linear_time() {
    for piece in ["(", "[", "'", "\"", " '", "“", "a", "%", "://", "a:", "[media attached: (", "([{<", "(a)", "/.png "]
    {
        assert_eq!(find(&piece.repeat(20_000)), Vec::<String>::new(), "{piece}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_few_unique_and_have_image_extensions(
        text in r#"([\[\]()<>"'`|,:;.% a/~é“”「\n]|\./|\.png|\.JPG|file://|https://|\[media attached: |\[Image: source: ){0,60}"#,
    ) {
        let found = find(&text);
        prop_assert!(found.len() <= 20);
        for (at, path) in found.iter().enumerate() {
            prop_assert!(has_image_extension(path) && !found[..at].contains(path), "{path}");
        }
    }

    #[test]
    fn a_quoted_path_is_found_whatever_it_contains(name in "[a-zA-Z0-9 ()é_#&+-]{1,20}", quote in "[\"'`]") {
        let path = format!("/pics/{name}x.png");
        prop_assert_eq!(find(&format!("see {quote}{path}{quote} please")), [path]);
    }
}
