//! Content security policies.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

/// Builds the policy of a page: files of this gateway and the page's inline scripts, connections to this gateway only.
pub(super) fn of_page(html: &str) -> String {
    let hashes: String = inline_scripts(html).map(|script| format!(" '{}'", hash(script))).collect();
    format!(
        "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'{hashes}; style-src 'self' 'unsafe-inline'; \
         img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data:; \
         worker-src 'self' blob:; frame-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; \
         frame-ancestors 'none'"
    )
}

/// Hash source of an inline script or style.
pub(super) fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

/// Returns the inline scripts of a page.
fn inline_scripts(html: &str) -> impl Iterator<Item = &str> {
    html.split("<script").skip(1).filter_map(|rest| {
        let (attributes, rest) = rest.split_once('>')?;
        let (script, _) = rest.split_once("</script")?;
        (!attributes.contains(" src=") && !script.trim().is_empty()).then_some(script)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inline_scripts_are_allowed_by_hash() {
        let html = r#"<script type="module" src="./a.js"></script><script data-x="1">go()</script><script></script>"#;
        assert_eq!(inline_scripts(html).collect::<Vec<_>>(), ["go()"]);
        // `hash` is checked with the empty string: `printf '' | openssl dgst -sha256 -binary | base64`.
        assert!(of_page(html).contains("'wasm-unsafe-eval' 'sha256-"), "{}", of_page(html));
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn a_page_may_connect_to_this_gateway_only() {
        let policy = of_page("");
        for directive in
            ["connect-src 'self' data:;", "frame-ancestors 'none'", "object-src 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(directive), "{directive}");
        }
        assert!(!policy.contains("script-src 'self' 'unsafe-inline'"));
    }
}
