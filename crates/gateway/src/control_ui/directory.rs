//! The directory of an installed Control UI.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use super::policy;

/// Maximum size of a served file.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

/// An installed Control UI: a directory with an `index.html` and its assets.
#[derive(Debug, Clone)]
pub struct ControlUi {
    /// Canonical path, so that links out of the directory can be detected.
    root: PathBuf,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ControlUiError {
    /// The directory is missing or unreadable.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// There is no `index.html`.
    #[error(
        "{0} contains no Control UI: specify a directory with an index.html, such as \
         node_modules/openclaw/dist/control-ui"
    )]
    NoPage(PathBuf),
}

/// A file to serve.
#[derive(Debug, PartialEq)]
pub(super) struct File {
    pub(super) kind: &'static str,
    /// Content security policy.
    pub(super) policy: String,
    pub(super) bytes: Vec<u8>,
}

impl ControlUi {
    /// Opens a Control UI in a directory or in an installed package.
    pub fn open(path: &Path) -> Result<Self, ControlUiError> {
        let root = path.canonicalize().map_err(|error| ControlUiError::Unreadable { path: path.to_owned(), error })?;
        let candidates = [root.clone(), root.join("dist").join("control-ui")];
        let found = candidates.into_iter().find(|candidate| candidate.join("index.html").is_file());
        let found = found.ok_or_else(|| ControlUiError::NoPage(path.to_owned()))?;
        let root = found.canonicalize().map_err(|error| ControlUiError::Unreadable { path: path.to_owned(), error })?;
        Ok(Self { root })
    }

    /// Finds the file for a URL path. A path without a file extension is a route of the page and yields `index.html`.
    pub(super) async fn find(&self, path: &str) -> Option<File> {
        let name = match relative(path)? {
            name if name.extension().is_some() => name,
            _ => PathBuf::from("index.html"),
        };
        let kind = kind(&name);
        let root = self.root.clone();
        let read = tokio::task::spawn_blocking(move || read(&root, &name)).await;
        let bytes = match read {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                tracing::debug!(%error, path, "Control UI file not served");
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, path, "failed to read a Control UI file");
                return None;
            }
        };
        let policy = match kind {
            "text/html; charset=utf-8" => policy::of_page(&String::from_utf8_lossy(&bytes)),
            _ => policy::of_page(""),
        };
        Some(File { kind, policy, bytes })
    }
}

/// Maps a URL path to a path below the root; hidden files and parent directories are rejected. Routes of the page may
/// have any depth, so assets are found from the last `/assets/` on.
fn relative(path: &str) -> Option<PathBuf> {
    let path = match path.rfind("/assets/") {
        Some(at) => &path[at..],
        None => path,
    };
    // File names of a page never need escaping.
    if path.contains(['%', '\\', '\0']) {
        return None;
    }
    let name = PathBuf::from(path.trim_start_matches('/'));
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(part) => !part.to_string_lossy().starts_with('.'),
        Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    };
    name.components().all(is_plain).then_some(name)
}

/// Reads a file, unless it resolves to a path outside the root.
fn read(root: &Path, name: &Path) -> io::Result<Vec<u8>> {
    let path = root.join(name).canonicalize()?;
    if !path.starts_with(root) {
        return Err(io::Error::other("the file is a link to a path outside of the directory"));
    }
    let size = path.metadata()?.len();
    if size > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}")));
    }
    std::fs::read(path)
}

/// Returns the media type of a file.
pub(super) fn kind_of_name(name: &str) -> &'static str {
    kind(Path::new(name))
}

fn kind(name: &Path) -> &'static str {
    let extension = name.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json; charset=utf-8",
        Some("webmanifest") => "application/manifest+json; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("woff") => "font/woff",
        Some("woff2") => "font/woff2",
        Some("ttf") => "font/ttf",
        Some("wasm") => "application/wasm",
        Some("mp3") => "audio/mpeg",
        Some("txt") => "text/plain; charset=utf-8",
        Some(_) | None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_below_the_root_are_files() {
        for (path, name) in [
            ("/index.html", "index.html"),
            ("/assets/a.js", "assets/a.js"),
            ("/chat/assets/a.js", "assets/a.js"),
            ("/themes/x/y.css", "themes/x/y.css"),
            ("/", ""),
        ] {
            assert_eq!(relative(path), Some(PathBuf::from(name)), "{path}");
        }
        for path in ["/../secret.txt", "/a/../../b.js", "/.env", "/assets/../../x.js", "/%2e%2e/x.js", "/a\\..\\b.js"] {
            assert_eq!(relative(path), None, "{path}");
        }
    }

    #[test]
    fn modules_have_a_type_that_browsers_run() {
        assert_eq!(
            ["a.js", "a.CSS", "a.webmanifest", "a.woff2", "a"].map(|name| kind(Path::new(name))),
            [
                "text/javascript; charset=utf-8",
                "text/css; charset=utf-8",
                "application/manifest+json; charset=utf-8",
                "font/woff2",
                "application/octet-stream"
            ]
        );
    }
}
