//! What a model is told before the conversation: for now the system prompt alone.

pub(crate) mod notes;

use std::sync::Arc;

use crate::profile::Profile;

/// The system prompt of an agent, with what this run adds.
pub(crate) fn prompt(profile: &Profile, extra: Option<&str>) -> Arc<str> {
    let mut text = format!(
        "You are {}, an assistant that works for the person who writes to you.\n\
         Your tools work in the directory {}. Use them when a question is about files or needs a command; \
         say what you found, not what you would do.\n\
         When a tool fails, read its answer and try another way or say plainly what went wrong.",
        profile.id,
        profile.workdir.display(),
    );
    if let Some(extra) = extra.map(str::trim).filter(|extra| !extra.is_empty()) {
        text.push_str("\n\n");
        text.push_str(extra);
    }
    text.into()
}
