//! Homard's own page. Its built files are a part of the program; their source is the folder `page`.
//!
//! The names of all files but the page itself contain a hash of their content, so that browsers may keep them forever.

use std::{io::Read, sync::OnceLock};

use axum::{
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{
            ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, VARY,
        },
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flate2::{Compression, bufread::GzEncoder};

use super::{directory::kind_of_name, page_files::FILES, security_headers};

/// Path at which the page is always served. It is also at `/`, unless another Control UI is installed.
pub(crate) const PREFIX: &str = "/homard/";

/// The page may run its own scripts, connect to this gateway, and show images that the user attached. It cannot insert
/// markup that the sanitizer did not produce (`trusted-types`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types dompurify";

/// The compressed files, each from its first request on.
#[derive(Debug)]
pub(crate) struct OwnPage(Vec<OnceLock<Bytes>>);

impl Default for OwnPage {
    fn default() -> Self {
        Self(FILES.iter().map(|_| OnceLock::new()).collect())
    }
}

impl OwnPage {
    /// Returns the response to a request for a path below the page's own, such as `assets/index-1.js`; `None` if there
    /// is no such file.
    pub(super) fn answer(&self, name: &str, parts: &Parts) -> Option<Response> {
        let name = if name.is_empty() { "index.html" } else { name };
        let index = FILES.iter().position(|(file, _)| *file == name)?;
        let (file, bytes) = FILES.get(index)?;
        let kind = kind_of_name(file);
        let is_hashed = file.starts_with("assets/");
        let caching = if is_hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(kind)),
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (VARY, HeaderValue::from_static("Accept-Encoding")),
        ];
        let body = match self.0.get(index).filter(|_| accepts_gzip(parts)) {
            Some(slot) => Ok(slot.get_or_init(|| compress(bytes)).clone()),
            None => Err(Bytes::from_static(bytes)),
        };
        let mut response = match body {
            Ok(compressed) => ([(CONTENT_ENCODING, "gzip")], compressed).into_response(),
            Err(plain) => plain.into_response(),
        };
        for (name, value) in security_headers().into_iter().chain(headers) {
            response.headers_mut().insert(name, value);
        }
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(caching));
        Some(response)
    }
}

/// Redirects to the page. The address is relative, because a proxy may serve the gateway below a path.
pub(super) fn redirect() -> Response {
    let headers: [(HeaderName, &str); 1] = [(LOCATION, "homard/")];
    (StatusCode::PERMANENT_REDIRECT, security_headers(), headers).into_response()
}

fn accepts_gzip(parts: &Parts) -> bool {
    let accepted = parts.headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut words = coding.split(';').map(str::trim);
        words.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && !words.any(|word| word == "q=0")
    })
}

/// Compresses a file.
fn compress(bytes: &'static [u8]) -> Bytes {
    let mut compressed = Vec::new();
    match GzEncoder::new(bytes, Compression::best()).read_to_end(&mut compressed) {
        Ok(_) => compressed.into(),
        // Reading from memory does not fail.
        Err(error) => {
            tracing::error!(%error, "failed to compress a file of the page");
            Bytes::new()
        }
    }
}
