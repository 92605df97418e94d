//! Messages to channels as the hub shows them: where they go, and which are not delivered yet.

use std::sync::Arc;

use homard_delivery::plan::{self, DeliveryPlan};
use homard_proto::{Route, SessionKey};
use homard_store::{DeliveryRow, Error as StoreError, ReplyDelivery};

use super::DeliveryRequest;
use crate::{
    channel_sender::{ChannelSender, ChannelTraits},
    hub::Hub,
};

/// Messages of a hub to channels. What [`Hub::deliveries`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubDeliveries<'a> {
    pub(crate) hub: &'a Hub,
}

impl HubDeliveries<'_> {
    /// Sets the channel sender. Can be set once; later calls are ignored. Call it before
    /// [`recover`](crate::hub::HubLifecycle::recover), which resumes undelivered messages.
    pub fn set_sender(self, sender: Arc<dyn ChannelSender>) {
        self.hub.0.deliveries.sender.get_or_init(|| sender);
    }

    /// Waits until the queues are empty or the process shuts down.
    pub async fn wait_empty(self) {
        loop {
            let changed = self.hub.0.deliveries.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.hub.0.deliveries.lock().is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = self.hub.0.draining.cancelled() => return,
                () = changed => {}
            }
        }
    }

    /// Returns undelivered messages in the order in which they were queued: queued ones, those with unknown state, and
    /// those given up within the last day.
    pub async fn outbox(self) -> Result<Vec<DeliveryRow>, StoreError> {
        self.hub.0.store.outbox().await
    }

    /// Returns the properties of a channel; `None` if it is not configured.
    pub fn channel_traits(self, channel: &str) -> Option<ChannelTraits> {
        self.hub.0.deliveries.traits(channel)
    }

    /// Plans the delivery of a reply to the origin of a message, if that is an external channel that can be written to.
    pub fn reply_delivery(self, key: &SessionKey, from: &Route) -> Option<ReplyDelivery> {
        plan::origin(from, plan::INTERNAL, |channel| self.channel_traits(channel))?;
        Some(ReplyDelivery {
            is_origin: true,
            reports_tools: plan::announces_tools(key.kind()),
            ..ReplyDelivery::default()
        })
    }

    /// Returns the route of the last message that came to a session from a channel; empty if there is none.
    pub async fn last_route(self, key: &SessionKey) -> Result<Route, StoreError> {
        let record = self.hub.sessions().get(key).await?;
        Ok(record.as_deref().map(plan::last_route).unwrap_or_default())
    }

    /// Plans the delivery of a request's answer; an error says why it cannot be delivered.
    pub async fn plan(
        self,
        key: &SessionKey,
        request: &DeliveryRequest,
        is_best_effort: bool,
    ) -> Result<Option<(Route, ReplyDelivery)>, String> {
        if !request.is_wanted {
            return Ok(None);
        }
        let record = self.hub.sessions().get(key).await.map_err(|error| error.to_string())?;
        let last = record.as_deref().map(plan::last_route).unwrap_or_default();
        let default_channel = self.hub.0.config.rules().delivery.default_channel.clone();
        let delivery = ReplyDelivery {
            is_best_effort,
            reports_tools: plan::announces_tools(key.kind()),
            ..ReplyDelivery::default()
        };
        match plan::plan(request, &last, &default_channel, |channel| self.channel_traits(channel)) {
            DeliveryPlan::SubscribersOnly => Ok(None),
            DeliveryPlan::To(route) => Ok(Some((route, delivery))),
            DeliveryPlan::Unavailable(reason) if is_best_effort => {
                Ok(Some((Route::default(), ReplyDelivery { undeliverable_reason: Some(reason), ..delivery })))
            }
            DeliveryPlan::Unavailable(reason) => Err(reason),
        }
    }
}
