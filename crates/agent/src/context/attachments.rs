//! Attachments named in a message's text: the skill it invokes, and the pictures it names.

use homard_media::{ImageRoot, find, load};
use homard_prompt::config::SkillKit;
use homard_proto::message::{Block, Content, User};
use homard_workspace::skills::ToolDispatch;
use serde_json::{Value, json};

use crate::profile::Profile;

/// Attachments of a message.
#[derive(Debug, Default)]
pub(crate) struct MessageAttachments {
    /// Notes for the prompt of its run.
    pub(crate) notes: Vec<String>,
    pictures: Vec<Block>,
    /// Tool that answers instead of a model, and its arguments.
    pub(crate) dispatch: Option<(String, Value)>,
}

impl MessageAttachments {
    /// Returns the skill that a text of the owner invokes.
    pub(crate) fn skill(kit: &SkillKit, text: &str) -> Self {
        let Some(invocation) = kit.invoked(text) else { return Self::default() };
        match &invocation.dispatch {
            Some(ToolDispatch { tool }) => {
                let arguments = json!({
                    "command": invocation.args, "commandName": invocation.command, "skillName": invocation.skill,
                });
                Self { dispatch: Some((tool.clone(), arguments)), ..Self::default() }
            }
            None => Self { notes: vec![homard_workspace::skills::rewrite(&invocation)], ..Self::default() },
        }
    }

    /// Loads the pictures that a text names, for a model with vision. Failures are logged.
    pub(crate) async fn add_pictures(&mut self, profile: &Profile, text: &str) {
        let Some(pictures) = &profile.prompt.pictures else { return };
        let names = find(text);
        if names.is_empty() {
            return;
        }
        let root = ImageRoot {
            root: profile.workdir.clone(),
            home: pictures.home.clone(),
            beneath_only: pictures.is_confined,
        };
        let load_task =
            tokio::task::spawn_blocking(move || names.iter().filter_map(|name| load_picture(name, &root)).collect());
        match load_task.await {
            Ok(images) => self.pictures = images,
            Err(error) => tracing::error!(%error, "failed to load images"),
        }
    }

    /// Appends the pictures to the message.
    pub(crate) fn attach(&mut self, message: &mut User) {
        if self.pictures.is_empty() {
            return;
        }
        let mut blocks = match std::mem::replace(&mut message.content, Content::Blocks(Vec::new())) {
            Content::Text(text) => vec![Block::text(text)],
            Content::Blocks(blocks) => blocks,
        };
        for picture in self.pictures.drain(..) {
            if !blocks.contains(&picture) {
                blocks.push(picture);
            }
        }
        message.content = Content::Blocks(blocks);
    }
}

fn load_picture(name: &str, root: &ImageRoot) -> Option<Block> {
    match load(name, root) {
        Ok(picture) => Some(picture.into_block()),
        Err(error) => {
            tracing::warn!(picture = name, why = %error, "failed to load an image named in a message");
            None
        }
    }
}
