//! Destination of an answer: recipient, channel and thread. Pure.
//!
//! | channel | goes to |
//! |---|---|
//! | not wanted, or `webchat` | subscribers of the run only |
//! | named | that channel |
//! | `last`, or none | the session's last channel; if that was internal, the default channel |
//!
//! A named recipient is written to with the account of the request. Otherwise the recipient is the session's last one
//! on that channel, with the same account and thread, or else the channel's default recipient.

use homard_proto::{Route, session::Record};
use serde_json::{Value, json};

use crate::channel_sender::ChannelTraits;

/// Name of the internal channel.
pub const INTERNAL: &str = "webchat";
/// Name for the session's last channel.
pub const LAST: &str = "last";
/// Channel for a session whose last channel is internal, if the config names no default channel.
pub const DEFAULT_CHANNEL: &str = "whatsapp";

/// Destination in a request. Channels are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryRequest {
    /// True if the answer is to be delivered.
    pub is_wanted: bool,
    /// The given parts of the destination.
    pub route: Route,
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryPlan {
    /// To subscribers of the run only.
    SubscribersOnly,
    /// To this route.
    To(Route),
    /// To a destination that is not available. The text names it and the remedy.
    Unavailable(String),
}

/// Plans the destination of a request's answer; `last` is the session's last route.
pub fn plan(
    request: &DeliveryRequest,
    last: &Route,
    default_channel: &str,
    traits: impl Fn(&str) -> Option<ChannelTraits>,
) -> DeliveryPlan {
    let requested = &request.route;
    if !request.is_wanted {
        return DeliveryPlan::SubscribersOnly;
    }
    let external = last.channel.as_deref().filter(|channel| *channel != INTERNAL);
    let channel = match requested.channel.as_deref() {
        Some(INTERNAL) => return DeliveryPlan::SubscribersOnly,
        Some(channel) if channel != LAST => channel,
        Some(_) | None => external.unwrap_or(default_channel),
    };
    let destination = |to: Option<&str>| to.map_or_else(|| channel.to_owned(), |to| format!("{channel}:{to}"));
    let Some(traits) = traits(channel) else {
        let destination = destination(requested.to.as_deref());
        return DeliveryPlan::Unavailable(format!(
            "the reply cannot be delivered to {destination}: channel {channel} is not configured; \
             set it up, or send the request without deliver"
        ));
    };
    let known = Some(last).filter(|last| last.channel.as_deref() == Some(channel));
    let (to, implied) = match (&requested.to, known) {
        (Some(to), _) => (Some(to.clone()), None),
        (None, Some(known)) if known.to.is_some() => (known.to.clone(), Some(known)),
        (None, _) => (traits.default_recipient, None),
    };
    let Some(to) = to else {
        return DeliveryPlan::Unavailable(format!(
            "the reply cannot be delivered to {channel}: no recipient is given, and this session has none on that \
             channel yet; set one with to"
        ));
    };
    DeliveryPlan::To(Route {
        channel: Some(channel.to_owned()),
        to: Some(to),
        account: requested.account.clone().or_else(|| implied?.account.clone()),
        thread: requested.thread.clone().or_else(|| implied?.thread.clone()),
    })
}

/// Returns the route for the answer to a message that came through `surface` with an origin: back there, if it is
/// another channel that can be written to. `None` if the sender gets the answer through the surface.
pub fn origin(from: &Route, surface: &str, traits: impl Fn(&str) -> Option<ChannelTraits>) -> Option<Route> {
    let channel = from.channel.as_deref()?;
    let is_external = channel != surface && channel != INTERNAL && from.is_complete();
    (is_external && traits(channel).is_some()).then(|| from.clone())
}

/// Returns the message and the thread to attach a reply to.
pub fn attach_reply(
    traits: &ChannelTraits,
    thread: Option<String>,
    reply_to: Option<String>,
) -> (Option<String>, Option<String>) {
    if traits.threads_by_reply { (reply_to.or(thread), None) } else { (reply_to, thread) }
}

/// True if a verbose session of this kind announces tool calls on channels: not in groups.
pub fn announces_tools(kind: &str) -> bool {
    kind != "group"
}

/// Returns the last route of a session.
pub fn last_route(record: &Record) -> Route {
    let value = |name: &str| match record.extra.get(name)? {
        Value::String(text) => Some(text.clone()),
        // Threads are numbers on some platforms.
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let (channel, to) = (value("lastChannel"), value("lastTo"));
    let (account, thread) = (value("lastAccountId"), value("lastThreadId"));
    Route::new(channel.as_deref(), to.as_deref(), account.as_deref(), thread.as_deref())
}

/// Sets the last route of a session, in the fields of OpenClaw's records.
pub fn set_last_route(record: &mut Record, route: &Route) {
    let Route { channel, to, account, thread } = route;
    let members = [("lastChannel", channel), ("lastTo", to), ("lastAccountId", account), ("lastThreadId", thread)];
    for (name, value) in members {
        match value {
            Some(value) => drop(record.extra.insert(name.to_owned(), value.as_str().into())),
            None => drop(record.extra.shift_remove(name)),
        }
    }
    let context = [("channel", channel), ("to", to), ("accountId", account), ("threadId", thread)];
    let context = context.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
    record.extra.insert("deliveryContext".to_owned(), Value::Object(context.collect()));
}

#[cfg(test)]
mod tests {
    use homard_proto::SessionId;

    use super::*;

    /// Telegram and Slack are configured; Telegram has a default recipient.
    fn traits(channel: &str) -> Option<ChannelTraits> {
        match channel {
            "telegram" => {
                Some(ChannelTraits { default_recipient: Some("owner".to_owned()), ..ChannelTraits::default() })
            }
            "slack" => Some(ChannelTraits { threads_by_reply: true, ..ChannelTraits::default() }),
            _ => None,
        }
    }

    fn route(channel: &str, to: &str, account: &str, thread: &str) -> Route {
        Route::new(Some(channel), Some(to), Some(account), Some(thread))
    }

    fn plan_for(route: Route, last: &Route) -> DeliveryPlan {
        plan(&DeliveryRequest { is_wanted: true, route }, last, "telegram", traits)
    }

    fn slack() -> Route {
        route("slack", "C1", "work", "1.5")
    }

    #[test]
    fn unwanted_deliveries_go_to_subscribers_only() {
        let request = DeliveryRequest { is_wanted: false, route: route("telegram", "42", "", "") };
        assert_eq!(plan(&request, &slack(), "telegram", traits), DeliveryPlan::SubscribersOnly);
        assert_eq!(plan_for(route("webchat", "42", "", ""), &slack()), DeliveryPlan::SubscribersOnly);
    }

    #[test]
    fn an_answer_goes_to_the_last_route_of_the_session() {
        assert_eq!(plan_for(Route::default(), &slack()), DeliveryPlan::To(slack()));
        assert_eq!(
            plan_for(route("last", "", "", "2.5"), &slack()),
            DeliveryPlan::To(route("slack", "C1", "work", "2.5"))
        );
        assert_eq!(
            plan_for(route("slack", "", "home", ""), &slack()),
            DeliveryPlan::To(route("slack", "C1", "home", "1.5"))
        );
    }

    #[test]
    fn a_named_recipient_does_not_inherit_account_or_thread() {
        assert_eq!(plan_for(route("", "C9", "", ""), &slack()), DeliveryPlan::To(route("slack", "C9", "", "")));
        assert_eq!(
            plan_for(route("slack", "C9", "a", "7"), &slack()),
            DeliveryPlan::To(route("slack", "C9", "a", "7"))
        );
    }

    #[test]
    fn the_last_recipient_of_another_channel_is_not_used() {
        assert_eq!(
            plan_for(route("telegram", "", "", ""), &slack()),
            DeliveryPlan::To(route("telegram", "owner", "", ""))
        );
        let last = route("telegram", "42", "bot", "");
        let DeliveryPlan::Unavailable(reason) = plan_for(route("slack", "", "", ""), &last) else {
            panic!("it goes somewhere")
        };
        assert!(reason.contains("slack") && reason.contains("set one with to"), "{reason}");
    }

    // Case 189.
    #[test]
    fn a_session_with_an_internal_last_channel_answers_on_the_default_one() {
        for last in [Route::default(), route("webchat", "tab", "", "")] {
            assert_eq!(plan_for(Route::default(), &last), DeliveryPlan::To(route("telegram", "owner", "", "")));
        }
    }

    // Case 188.
    #[test]
    fn the_error_for_a_missing_channel_names_the_target() {
        let DeliveryPlan::Unavailable(reason) = plan_for(route("signal", "+1", "", ""), &slack()) else {
            panic!("it goes somewhere")
        };
        assert!(
            reason.starts_with("the reply cannot be delivered to signal:+1: channel signal is not configured"),
            "{reason}"
        );
    }

    // Case 186.
    #[test]
    fn a_message_from_another_channel_is_answered_there() {
        assert_eq!(origin(&slack(), INTERNAL, traits), Some(slack()));
        assert_eq!(origin(&slack(), "telegram", traits), Some(slack()));
        assert_eq!(origin(&slack(), "slack", traits), None);
        assert_eq!(origin(&route("webchat", "tab", "", ""), "slack", traits), None);
        assert_eq!(origin(&route("signal", "+1", "", ""), INTERNAL, traits), None, "it is not set up");
        assert_eq!(origin(&route("slack", "", "", ""), INTERNAL, traits), None, "it leads to nobody");
        assert_eq!(origin(&Route::default(), INTERNAL, traits), None);
    }

    // Case 187.
    #[test]
    fn threads_are_attached_by_reply_or_by_id() {
        let text = |text: &str| Some(text.to_owned());
        let slack = traits("slack").unwrap();
        assert_eq!(attach_reply(&slack, text("1.5"), None), (text("1.5"), None));
        assert_eq!(attach_reply(&slack, text("1.5"), text("9.9")), (text("9.9"), None));
        assert_eq!(attach_reply(&ChannelTraits::default(), text("7"), text("m1")), (text("m1"), text("7")));
    }

    // Case 190.
    #[test]
    fn tool_calls_are_not_announced_in_groups() {
        assert_eq!(["direct", "group"].map(announces_tools), [true, false]);
    }

    #[test]
    fn the_last_route_is_stored_in_the_record() {
        let mut record = Record::new(SessionId::parse("s1").unwrap(), 0);
        set_last_route(&mut record, &slack());
        assert_eq!(last_route(&record), slack());
        let next = route("telegram", "42", "", "");
        set_last_route(&mut record, &next);
        assert_eq!(last_route(&record), next);
        assert_eq!(
            Value::Object(record.extra.clone()),
            json!({"lastChannel": "telegram", "lastTo": "42", "deliveryContext": {"channel": "telegram", "to": "42"}})
        );
        record.extra.insert("lastThreadId".to_owned(), 7.into());
        assert_eq!(last_route(&record).thread.as_deref(), Some("7"));
    }
}
