//! Origin of a message and destination of its reply.

use serde::{Deserialize, Serialize};

/// Address on a channel that messages come from and replies go to; empty for a client of the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Route {
    /// Channel, in lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Person or group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Own account on the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Thread id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Route {
    /// Creates a route; blank parts count as absent.
    pub fn new(channel: Option<&str>, to: Option<&str>, account: Option<&str>, thread: Option<&str>) -> Self {
        let part = |part: Option<&str>| part.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned);
        Self {
            channel: part(channel).map(|channel| channel.to_lowercase()),
            to: part(to),
            account: part(account),
            thread: part(thread),
        }
    }

    /// True if the route is complete: empty, or with a channel and a recipient.
    pub fn is_complete(&self) -> bool {
        *self == Self::default() || (self.channel.is_some() && self.to.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_route_is_complete_and_a_partial_one_is_not() {
        let route = Route::new(Some(" Slack "), Some("C1"), Some(" "), Some("1.5"));
        let expected = Route {
            channel: Some("slack".to_owned()),
            to: Some("C1".to_owned()),
            account: None,
            thread: Some("1.5".to_owned()),
        };
        assert_eq!(route, expected);
        assert!(route.is_complete() && Route::default().is_complete());
        assert!(!Route::new(Some("slack"), None, None, None).is_complete());
        assert!(!Route::new(None, Some("C1"), None, None).is_complete());
    }
}
