//! Applies the events of the gateway: learns channels, and stores messages, reactions and interactions.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    catch_up,
    cursor::GatewaySession,
    directory::{ChatPlace, KnownChannel},
    event::{self, EventContext},
    gateway::Dispatch,
    interaction,
    receive::Receiver,
};
use crate::{ChannelError, ChannelEvent, http::RepeatEffect};

impl Receiver<'_> {
    /// Applies an event of the gateway, and returns once it is stored. An error ends receiving.
    pub(super) async fn apply(&mut self, dispatch: Dispatch) -> Result<(), ChannelError> {
        let Dispatch { sequence, name, data } = dispatch;
        if let Some(session) = &mut self.cursor.session {
            session.sequence = sequence;
        }
        match name.as_str() {
            "READY" => self.begin_session(&data, sequence).await?,
            "RESUMED" => {
                self.report_up();
                // Left over if the process ended while it fetched them.
                for channel in self.cursor.pending().collect::<Vec<_>>() {
                    self.catch_up(&channel).await?;
                }
            }
            "GUILD_CREATE" => self.add_server(&data).await?,
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                if let Some(channel) = KnownChannel::parse(&data, None) {
                    self.discord.directory().add(channel);
                }
            }
            "THREAD_LIST_SYNC" => self.add_channels(&data["threads"], data["guild_id"].as_str()),
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                if let Some(channel) = data["id"].as_str() {
                    self.discord.directory().remove(channel);
                }
            }
            "MESSAGE_CREATE" => self.receive_message(&data).await?,
            "MESSAGE_UPDATE" => {
                let edited = self.convert(&data, event::edited).await?;
                self.store(edited.map(|incoming| ChannelEvent::Edited(Box::new(incoming)))).await;
            }
            "MESSAGE_REACTION_ADD" | "MESSAGE_REACTION_REMOVE" => {
                let is_added = name == "MESSAGE_REACTION_ADD";
                let reaction =
                    self.convert(&data, |data, context| event::reaction(data, context, is_added, sequence)).await?;
                self.store(reaction.map(ChannelEvent::Reacted)).await;
            }
            "INTERACTION_CREATE" => self.receive_interaction(&data).await?,
            _ => {}
        }
        Ok(())
    }

    /// Starts a new session: events before it are not sent again.
    async fn begin_session(&mut self, ready: &Value, sequence: u64) -> Result<(), ChannelError> {
        let text = |name: &str| ready[name].as_str().map(str::to_owned);
        self.cursor.session = match (text("session_id"), text("resume_gateway_url")) {
            (Some(id), Some(url)) => Some(GatewaySession { id, url, sequence }),
            (Some(_), None) | (None, _) => None,
        };
        self.cursor.set_all_pending();
        self.report_up();
        self.store(None).await;
        let application = ready["application"]["id"].as_str().unwrap_or(&self.me.id).to_owned();
        self.register_commands(&application).await;
        // Direct chats are not listed by any event.
        let direct: Vec<String> = self.cursor.direct().map(|(channel, _)| channel.clone()).collect();
        for channel in direct {
            self.catch_up(&channel).await?;
        }
        Ok(())
    }

    /// Registers the slash commands if they have changed. A failure must not prevent receiving.
    async fn register_commands(&self, application: &str) {
        let Some(commands) = &self.discord.settings.commands else { return };
        let (wanted, path) = (interaction::registration(commands), ["applications", application, "commands"]);
        let api = &self.discord.api;
        let registered = match api.get(&path, &[]).await {
            Ok(present) if interaction::is_registered(&present, &wanted) => Ok(Value::Null),
            Ok(_) => api.send(Method::PUT, &path, &json!(wanted)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = registered {
            let failure = error.into_failure("register commands", RepeatEffect::None);
            tracing::warn!(account = self.discord.settings.account, %failure, "failed to register the slash commands");
        }
    }

    /// Adds the channels of a server, and fetches the messages that were missed there.
    async fn add_server(&mut self, server: &Value) -> Result<(), ChannelError> {
        let id = server["id"].as_str();
        if let Some(id) = id {
            let roles = server["roles"].as_array().into_iter().flatten();
            let is_own = |role: &&Value| role["tags"]["bot_id"] == self.me.id.as_str();
            if let Some(role) = roles.into_iter().find(is_own).and_then(|role| role["id"].as_str()) {
                self.discord.directory().set_own_role(id, role);
            }
        }
        let mut has_new = false;
        for list in [&server["channels"], &server["threads"]] {
            self.add_channels(list, id);
            for channel in list.as_array().into_iter().flatten() {
                let (Some(id), Some(last)) = (channel["id"].as_str(), channel["last_message_id"].as_str()) else {
                    continue;
                };
                let stored = self.cursor.last_message(id);
                has_new |= stored.is_none();
                self.cursor.begin(id, last);
                if stored.is_some_and(|stored| last.parse().is_ok_and(|last: u64| last > stored)) {
                    self.catch_up(id).await?;
                }
                self.cursor.set_done(id);
            }
        }
        if has_new {
            self.store(None).await;
        }
        Ok(())
    }

    fn add_channels(&self, list: &Value, server: Option<&str>) {
        let channels = list.as_array().into_iter().flatten();
        let mut directory = self.discord.directory();
        channels.filter_map(|channel| KnownChannel::parse(channel, server)).for_each(|channel| directory.add(channel));
    }

    async fn receive_message(&mut self, data: &Value) -> Result<(), ChannelError> {
        let (Some(channel), Some(message)) = (data["channel_id"].as_str(), data["id"].as_str()) else { return Ok(()) };
        if self.cursor.is_pending(channel) {
            // In order: what was missed comes before what is new.
            self.catch_up(channel).await?;
        }
        let author = data["author"]["id"].as_str().unwrap_or_default();
        if author == self.me.id {
            self.cursor.advance(channel, message);
            return Ok(());
        }
        if data["guild_id"].is_null() {
            self.add_direct(channel, author);
        }
        let incoming = self.convert(data, event::message).await?;
        self.cursor.advance(channel, message);
        if let Some(incoming) = incoming {
            self.store(Some(ChannelEvent::Message(Box::new(incoming)))).await;
        }
        Ok(())
    }

    /// Records the channel of a direct chat. Events of groups of several users, which have no server either, do not
    /// reach bots.
    fn add_direct(&mut self, channel: &str, user: &str) {
        self.discord.directory().add_direct(channel, user);
        self.cursor.add_direct(channel, user);
    }

    /// Stores an interaction, and acknowledges it then: Discord shows an error unless that happens within 3 s.
    async fn receive_interaction(&mut self, data: &Value) -> Result<(), ChannelError> {
        let Some(kind) = interaction::kind(data) else { return Ok(()) };
        let (channel, user) = (data["channel_id"].as_str(), data["user"]["id"].as_str());
        if let (Some(channel), Some(user), true) = (channel, user, data["guild_id"].is_null()) {
            self.add_direct(channel, user);
        }
        let Some(incoming) = self.convert(data, event::interaction).await? else { return Ok(()) };
        self.store(Some(ChannelEvent::Message(Box::new(incoming)))).await;
        let (Some(id), Some(token)) = (data["id"].as_str(), data["token"].as_str()) else { return Ok(()) };
        let response = interaction::acknowledgement(&kind, self.discord.settings.has_ephemeral_commands);
        let path = ["interactions", id, token, "callback"];
        if let Err(error) = self.discord.api.send(Method::POST, &path, &response).await {
            // The command is stored and will be answered; the user only sees that the acknowledgement was late.
            let failure = error.into_failure("acknowledge an interaction", RepeatEffect::None);
            tracing::debug!(account = self.discord.settings.account, %failure, "an interaction was not acknowledged");
        }
        Ok(())
    }

    /// Converts an event once its chat is known.
    pub(super) async fn convert<T>(
        &mut self,
        data: &Value,
        read: impl FnOnce(&Value, EventContext<'_>) -> Option<T>,
    ) -> Result<Option<T>, ChannelError> {
        let Some(channel) = data["channel_id"].as_str() else { return Ok(None) };
        let Some(place) = self.place(channel).await? else { return Ok(None) };
        let own_role = place.server.as_deref().and_then(|server| {
            let directory = self.discord.directory();
            directory.own_role(server).map(str::to_owned)
        });
        let account = &self.discord.settings.account;
        Ok(read(data, EventContext { me: &self.me.id, own_role: own_role.as_deref(), account, place: &place }))
    }

    /// Returns the chat that a channel is. An unknown channel is asked for, until there is an answer: the event cannot
    /// be stored without.
    async fn place(&mut self, channel: &str) -> Result<Option<ChatPlace>, ChannelError> {
        let known = self.discord.directory().place(channel);
        if known.is_some() {
            return Ok(known);
        }
        let found = self.ask("get a channel", &["channels", channel], &[]).await?;
        if let Some(found) = found.and_then(|found| KnownChannel::parse(&found, None)) {
            self.discord.directory().add(found);
        }
        Ok(self.discord.directory().place(channel))
    }

    /// Fetches the messages of a channel that were missed.
    async fn catch_up(&mut self, channel: &str) -> Result<(), ChannelError> {
        catch_up::run(self, channel).await?;
        self.cursor.set_done(channel);
        Ok(())
    }
}
