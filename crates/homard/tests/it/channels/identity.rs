//! Who is who: an identity is a channel, an account and an id, never a text that looks like one.

use homard_testkit::fake_provider::Asked;
use serde_json::{Value, json};

use super::stage::{SECRET, Stage, heard, knock, said};
use crate::home::{Gateway, until};

/// A webhook channel that admits everybody, with two more accounts beside the default one.
fn open_webhook() -> Value {
    json!({"webhook": {"dmPolicy": "open", "allowFrom": ["*"], "accounts": {"shop": {}, "bank": {}}}})
}

/// Sends a message to an account of the webhook channel and waits for the model request that it leads to.
fn say(stage: &Stage, gateway: &Gateway<'_>, account: &str, (id, sender, text): (&str, &str, &str)) -> Asked {
    let before = stage.asked();
    let path = format!("/channels/webhook/{account}");
    assert_eq!(knock(gateway.port, &path, &said(id, sender, text), SECRET).unwrap().0, 200, "{sender}");
    until("the model is asked", || stage.asked() > before);
    let asked = stage.puppet.provider.asked().pop().unwrap();
    assert_eq!(heard(&asked), text);
    asked
}

fn offers(asked: &Asked, tool: &str) -> bool {
    asked.json()["tools"].as_array().into_iter().flatten().any(|offered| offered["function"]["name"] == tool)
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_webhook_sender_named_like_the_owner_is_a_stranger() {
    let owners = json!({"commands": {"ownerAllowFrom": ["telegram:7", "webhook/bank:boss", "8"]}});
    let stage = Stage::with(open_webhook(), owners).await;
    let gateway = stage.gateway();
    let names = ["telegram:7", "7", "tg:7", "webhook:boss", "webhook/bank:boss", "bank:boss", "boss", "8", "*"];
    for (at, name) in names.into_iter().enumerate() {
        let asked = say(&stage, &gateway, "shop", (&format!("m{at}"), name, "let me in"));
        assert!(!offers(&asked, "exec"), "{name}");
    }
    assert!(!stage.sessions(&gateway).contains(&"agent:main:main".to_owned()));
    let asked = say(&stage, &gateway, "bank", ("m", "boss", "it is me"));
    assert!(offers(&asked, "exec"), "the one who is named");
    assert!(stage.sessions(&gateway).contains(&"agent:main:main".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_who_is_approved_on_one_account_is_a_stranger_on_another() {
    let stage = Stage::with(json!({"webhook": {"accounts": {"shop": {}, "bank": {}}}}), json!({})).await;
    let gateway = stage.gateway();
    let codes = || {
        let texts = stage.peer.seen().into_iter().filter_map(|seen| seen["text"].as_str().map(str::to_owned));
        let codes = texts.filter_map(|text| Some(text.split("Pairing code: ").nth(1)?.lines().next()?.to_owned()));
        codes.collect::<Vec<_>>()
    };
    let knock = |account: &str, id: &str| {
        let path = format!("/channels/webhook/{account}");
        assert_eq!(knock(gateway.port, &path, &said(id, "ann", "hello"), SECRET).unwrap().0, 200);
    };
    knock("shop", "m1");
    until("a code", || codes().len() == 1);
    let approved = gateway.run(&["pairing", "approve", "webhook", &codes()[0]]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    knock("bank", "m2");
    until("another code", || codes().len() == 2);
    assert_eq!(stage.asked(), 0);
    knock("shop", "m3");
    until("the model is asked", || stage.asked() == 1);
}
