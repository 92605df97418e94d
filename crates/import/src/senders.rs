//! Imports the senders that the owner has approved on chat channels: those who may write to the agent.

use std::{collections::BTreeMap, fs, io::ErrorKind, path::Path};

use homard_settings::{channel_kinds::CHANNEL_KINDS, channels::DEFAULT_ACCOUNT, paths::Paths};
use serde_json::{Value, json};

use super::{
    copy::{CopyContent, PlannedCopy},
    plan::ImportPlan,
    source::{self, OpenclawState},
    transcripts::ImportAction,
};

/// Folder of the lists, there and here.
pub(crate) const FOLDER: &str = "credentials";

/// End of the name of a list.
const SUFFIX: &str = "allowFrom.json";

/// Ids of approved senders by account.
pub(crate) type SendersByAccount = BTreeMap<String, Vec<String>>;

/// Plans the lists of all channels that Homard has, and reports those of others.
pub(crate) fn plan_senders(plan: &mut ImportPlan, source: &OpenclawState, paths: &Paths) {
    let exported = plan.exported.as_ref().and_then(|exported| exported.file(FOLDER));
    let folder = exported.unwrap_or_else(|| source.root.join(FOLDER));
    let mut found: BTreeMap<String, SendersByAccount> = BTreeMap::new();
    for (name, path) in source::listed(&folder).unwrap_or_default() {
        let Some(list) = name.strip_suffix(SUFFIX).and_then(|stem| stem.strip_suffix('-')) else { continue };
        // A list belongs to a channel or, in some versions, to one account of it.
        let known = CHANNEL_KINDS.iter().map(|(known, _)| *known);
        let of_account = |known: &str| Some(list.strip_prefix(known)?.strip_prefix('-')?.to_owned());
        let place = known.clone().find_map(|known| match list == known {
            true => Some((known, None)),
            false => Some((known, Some(of_account(known)?))),
        });
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        let document = match read.and_then(|text| source::object(&text)) {
            Ok(document) => Value::Object(document),
            Err(why) => {
                plan.counts.senders.push(ImportAction::Broken);
                plan.warn(&path.display(), &format!("not imported: {why}"));
                continue;
            }
        };
        let Some((channel, account)) = place else {
            let count = ids(&document["allowFrom"]).len();
            plan.warn(&path.display(), &format!("not imported ({count}): Homard does not have this channel"));
            continue;
        };
        let approved = found.entry(channel.to_owned()).or_default();
        let account = account.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned());
        approved.entry(account).or_default().extend(ids(&document["allowFrom"]));
        for (account, listed) in document["accounts"].as_object().into_iter().flatten() {
            approved.entry(account.clone()).or_default().extend(ids(listed));
        }
    }
    for (channel, approved) in found {
        merge(plan, &channel, &approved, paths);
    }
}

/// Adds the approved senders of a channel to those that Homard knows.
fn merge(plan: &mut ImportPlan, channel: &str, approved: &SendersByAccount, paths: &Paths) {
    let to = paths.state.join(FOLDER).join(format!("{channel}-{SUFFIX}"));
    let mut document = match existing(&to) {
        Ok(document) => document,
        Err(why) => return plan.warn(&to.display(), &format!("is kept, so no senders are imported: {why}")),
    };
    let mut is_changed = false;
    for (account, entries) in approved {
        for entry in entries {
            let Some(id) = sender_id(channel, entry) else {
                plan.counts.senders.push(ImportAction::Broken);
                let why = "not imported: only ids are accepted, because names can change hands; pair the sender again";
                plan.warn(&format!("sender {entry} on {channel}"), why);
                continue;
            };
            let list = match account == DEFAULT_ACCOUNT {
                true => &mut document["allowFrom"],
                false => &mut document["accounts"][account.as_str()],
            };
            let mut known = ids(list);
            let is_known = known.contains(&id);
            plan.counts.senders.push(if is_known { ImportAction::Same } else { ImportAction::New });
            if !is_known {
                known.push(id);
                *list = json!(known);
                is_changed = true;
            }
        }
    }
    if is_changed {
        plan.copies.push(PlannedCopy { to, what: CopyContent::Text(format!("{document:#}\n")), backup: None });
    }
}

/// Returns the senders that Homard's own list of a channel contains, by account; none if it cannot be read.
pub(crate) fn approved(folder: &Path, channel: &str) -> SendersByAccount {
    let Ok(document) = existing(&folder.join(format!("{channel}-{SUFFIX}"))) else { return SendersByAccount::new() };
    let accounts = document["accounts"].as_object().into_iter().flatten();
    let accounts = accounts.map(|(account, list)| (account.clone(), ids(list)));
    accounts.chain([(DEFAULT_ACCOUNT.to_owned(), ids(&document["allowFrom"]))]).collect()
}

/// Reads Homard's own list.
fn existing(path: &Path) -> Result<Value, String> {
    match fs::read_to_string(path) {
        Ok(text) => source::object(&text).map(Value::Object),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(json!({"version": 1, "allowFrom": []})),
        Err(error) => Err(error.to_string()),
    }
}

fn ids(list: &Value) -> Vec<String> {
    let text = |id: &Value| match id {
        Value::String(id) => Some(id.trim().to_owned()).filter(|id| !id.is_empty()),
        Value::Number(id) => Some(id.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

/// Returns the id of a sender without the name of its channel; `None` for names and wildcards.
pub(crate) fn sender_id(channel: &str, entry: &str) -> Option<String> {
    let id = entry.split_once(':').filter(|(prefix, _)| [channel, "tg"].contains(prefix)).map_or(entry, |(_, id)| id);
    let is_id = match channel {
        "telegram" | "discord" => !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()),
        _ => !id.is_empty() && id != "*",
    };
    is_id.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_are_accepted() {
        let id = |channel: &str, entry: &str| sender_id(channel, entry);
        assert_eq!(id("telegram", "4711").as_deref(), Some("4711"));
        assert_eq!(id("telegram", "tg:4711").as_deref(), Some("4711"));
        assert_eq!(id("telegram", "telegram:4711").as_deref(), Some("4711"));
        assert_eq!((id("discord", "discord:4711").as_deref(), id("discord", "ann")), (Some("4711"), None));
        assert_eq!((id("telegram", "@ann"), id("telegram", "*"), id("webhook", "*")), (None, None, None));
        assert_eq!(id("webhook", "peer-1").as_deref(), Some("peer-1"));
    }
}
