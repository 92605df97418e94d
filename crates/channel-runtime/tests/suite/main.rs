//! The suite of all channels: every channel passes the same cases, against a gateway with a journal and a double of its
//! platform over real sockets.
//!
//! # How a channel joins
//!
//! 1. Write a fake server of the platform in `testkit/src/fake_<platform>.rs`. It behaves like the platform by default,
//!    fails on demand, and shares no code with the channel.
//! 2. Implement [`ChannelDouble`](homard_testkit::channel_double::ChannelDouble) for it, in
//!    `testkit/src/fake_<platform>/double.rs`: what users do and see there. `violations` returns whatever in the
//!    channel's requests the platform's documentation forbids; every case checks that there is nothing.
//! 3. Add it below with `passes!`. The config is that of the double: `account` (address and credentials) and
//!    `group_config`; the suite adds the access rules. So the channel has to be in `channel-runtime/src/build.rs` and in
//!    the settings first.
//! 4. What the platform or the fake cannot do is listed by `missing`, with the reason. Cases that need it are left out;
//!    everything else must pass unchanged.
//!
//! A new case is an `async fn` in `cases/` that takes the platform, and its name in the list below; it then runs against
//! every channel. A bug of one channel is first written as a case for all. A case waits for what users see
//! ([`SuiteFixture::until`](fixture::SuiteFixture::until)), never for a time, and ends with a message that is answered if
//! it has to show that nothing else was sent. What belongs to one platform alone (its wire format, its markup) is tested in
//! `channels/tests`; commands of the terminal in `homard/tests/it/channels`.

#![cfg(test)]

mod cases;
mod fixture;
mod webhook_double;

use std::{future::Future, sync::Arc};

use homard_testkit::{
    FakeTelegram,
    channel_double::{ChannelDouble, Feature},
};

use self::webhook_double::WebhookDouble;

/// Returns true if a platform has what a case needs.
fn has(platform: &Arc<dyn ChannelDouble>, needed: &[Feature]) -> bool {
    platform.missing().iter().all(|(missing, _)| !needed.contains(missing))
}

/// Starts a platform.
async fn start<P: ChannelDouble + 'static>(
    platform: impl Future<Output = std::io::Result<P>>,
) -> Arc<dyn ChannelDouble> {
    Arc::new(platform.await.unwrap())
}

macro_rules! passes {
    ($channel:ident: $start:expr) => {
        passes!(@ $channel, $start, {
            messages: [
                direct_messages_are_answered_in_their_chat,
                each_sender_has_a_session,
                a_group_is_answered_in_the_group,
                in_a_group_only_mentions_are_answered_and_the_rest_is_context,
                a_reply_to_the_agent_is_a_mention,
                threads_are_sessions_and_are_answered_in_the_thread,
                an_edit_of_a_user_starts_no_run,
                pictures_reach_the_model,
                files_reach_the_user,
                commands_are_answered_without_the_model,
                a_new_session_forgets_the_conversation,
                typing_is_shown_while_the_model_answers,
                a_stop_ends_the_run,
                a_stranger_in_an_allowlisted_chat_is_ignored,
            ],
            texts: [
                a_long_answer_is_complete_and_in_order,
                a_text_that_starts_with_a_code_block_is_cut_at_the_limit,
                a_code_block_between_texts_is_cut_at_the_limit,
            ],
            delivery: [
                a_rate_limit_delays_the_answer,
                an_unavailable_platform_is_asked_again,
                a_refused_answer_is_reported_and_the_next_is_sent,
                an_answer_whose_confirmation_is_lost_is_not_repeated,
                an_answer_whose_connection_is_reset_is_not_repeated,
                a_server_error_repeats_nothing_that_may_have_arrived,
                an_unknown_chat_is_reported_as_such,
                a_trace_knows_the_ids_of_the_platform,
            ],
            direct: [
                a_message_with_a_key_is_sent_once_across_restarts,
                a_message_that_had_no_effect_may_be_sent_again,
                a_message_that_a_kill_interrupts_is_reported_and_not_repeated,
            ],
            drafts: [
                a_draft_becomes_the_reply,
                a_draft_whose_confirmation_is_lost_is_not_left_unreported,
                a_draft_that_a_kill_interrupts_is_not_left_unreported,
                a_draft_whose_edit_is_lost_leaves_one_message,
            ],
            connection: [
                repeated_events_cause_one_answer,
                messages_during_a_disconnect_are_answered,
                messages_while_the_gateway_is_down_are_answered,
                a_forgotten_position_loses_and_repeats_nothing,
                a_kill_while_the_model_answers_leads_to_one_answer,
                a_kill_during_the_delivery_is_reported,
            ],
            pairing: [
                a_stranger_gets_one_code_and_is_admitted_after_approval,
                a_code_arrives_after_a_rate_limit,
                a_code_arrives_after_a_server_error,
                a_code_arrives_after_a_reset,
                a_code_arrives_after_a_kill,
            ],
        });
    };
    (@ $channel:ident, $start:expr, {$($module:ident: [$($case:ident),* $(,)?]),* $(,)?}) => {
        mod $channel {
            use super::*;
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    cases::$module::$case(start($start).await).await;
                }
            )*)*

            #[tokio::test]
            async fn what_is_missing_has_a_reason() {
                let platform = start($start).await;
                assert!(platform.missing().iter().all(|(_, reason)| reason.len() > 10), "{:?}", platform.missing());
            }
        }
    };
}

passes!(telegram: FakeTelegram::start());
passes!(webhook: WebhookDouble::start());
