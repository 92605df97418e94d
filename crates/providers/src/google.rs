//! Google Gemini API.

mod body;
mod chunk;
mod decode;
mod encode;
mod schema;
mod thinking;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;

use crate::{
    Credentials, ModelTarget,
    wire::{RequestPath, bearer},
};

/// Returns the request path. A name may include the kind of model, as `tunedModels/mine` does.
pub(crate) fn request_path(target: &ModelTarget) -> RequestPath {
    let model = &target.spec.model;
    let kind = if model.contains('/') { "" } else { "models/" };
    RequestPath { path: format!("{kind}{model}:streamGenerateContent"), query: Some("alt=sse") }
}

/// Returns the headers. A key is never part of the URL, which is logged.
pub(crate) fn headers(target: &ModelTarget) -> Vec<(&'static str, String)> {
    match &target.auth {
        Some(Credentials::Key(key)) => vec![("x-goog-api-key", key.expose().trim().to_owned())],
        Some(Credentials::Token(_)) | None => bearer(target),
    }
}

/// True for models before Gemini 3, which introduced thinking levels, call ids and images in results.
fn is_old(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    let Some((_, version)) = model.split_once("gemini-") else { return false };
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    // A name without a number, such as `gemini-flash-latest`, means the newest.
    major.parse::<u64>().is_ok_and(|major| major < 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_models_are_recognized_by_name() {
        let old = ["gemini-2.5-pro", "models/gemini-2.0-flash", "Gemini-1.5-flash"];
        let new =
            ["gemini-3-pro-preview", "gemini-3.8-flash", "gemini-10", "gemini-flash-latest", "gemma-4-31b-it", ""];
        assert!(old.into_iter().all(is_old));
        assert!(!new.into_iter().any(is_old));
    }
}
