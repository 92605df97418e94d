//! Call ids that a wire accepts.
//!
//! An id links a call to its result. Each provider has its own form: OpenAI's Responses API uses two, which transcripts
//! join as `call_id|item_id`; some servers restart their numbering with every answer. Another wire rejects the former
//! and confuses the latter, so the ids of a request are made valid and unique here.

use std::{borrow::Cow, collections::HashMap};

/// Constraints of a wire on ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallIdRule {
    /// Maximum length.
    pub(crate) max_length: usize,
    /// Treatment of ids created by the requested model itself.
    pub(crate) own: OwnIds,
}

/// Treatment of ids created by the requested model itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnIds {
    /// Kept unchanged, because the model accepts its own ids.
    Kept,
    /// Reduced to the call id, which is the part before the bar in `call_id|item_id`.
    BeforeBar,
}

/// Assigns valid and unique call ids within one request.
#[derive(Debug)]
pub(crate) struct CallIds<'a> {
    rule: CallIdRule,
    /// Assigned ids. The number is the last suffix used to make a repeated id unique, such as 2 in `call_2`.
    assigned: HashMap<Cow<'a, str>, u64>,
}

impl<'a> CallIds<'a> {
    pub(crate) fn new(rule: CallIdRule) -> Self {
        Self { rule, assigned: HashMap::new() }
    }

    /// Returns the id to send for the next call; `is_own` is true if the requested model created `id`. Assigned ids
    /// never change, so that a longer conversation starts with the same bytes as a shorter one.
    pub(crate) fn assign(&mut self, id: &'a str, is_own: bool) -> Cow<'a, str> {
        let max_length = self.rule.max_length;
        let first = match (is_own, self.rule.own) {
            (true, OwnIds::Kept) => Cow::Borrowed(id),
            (true, OwnIds::BeforeBar) => unless_too_long(before_bar(id), max_length),
            (false, _) => make_valid(before_bar(id), max_length),
        };
        let Some(last) = self.assigned.get_mut(&first) else {
            self.assigned.insert(first.clone(), 1);
            return first;
        };
        // A generated id is no longer the model's own and has to be valid.
        let stem = make_valid(&first, max_length).into_owned();
        let mut number = *last;
        let name = loop {
            number += 1;
            let end = format!("_{number}");
            let name: Cow<'a, str> = format!("{}{end}", &stem[..stem.len().min(max_length - end.len())]).into();
            if !self.assigned.contains_key(&name) {
                break name;
            }
        };
        self.assigned.insert(first, number);
        self.assigned.insert(name.clone(), 1);
        name
    }
}

/// Returns the call id of `call_id|item_id`.
fn before_bar(id: &str) -> &str {
    id.split_once('|').map_or(id, |(id, _)| id)
}

/// True for letters, digits, `_` and `-` up to the maximum length, which every wire accepts.
pub(crate) fn is_valid(id: &str, max_length: usize) -> bool {
    (1..=max_length).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
}

/// Returns the text unchanged, unless it is too long or empty.
pub(crate) fn unless_too_long(text: &str, max_length: usize) -> Cow<'_, str> {
    if (1..=max_length).contains(&text.len()) { text.into() } else { make_valid(text, max_length) }
}

/// Returns a text that is a valid id, or else a valid id with a hash of the text (FNV-1a), so that different texts get
/// different ids.
fn make_valid(text: &str, max_length: usize) -> Cow<'_, str> {
    if is_valid(text, max_length) {
        return text.into();
    }
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let readable: String = text.chars().filter(char::is_ascii_alphanumeric).take(max_length - 17).collect();
    format!("{readable}_{hash:016x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assigns ids in order. The boolean of an id is true if the requested model itself created it.
    fn assigned_ids(own: OwnIds, ids: &[(&'static str, bool)]) -> Vec<String> {
        let mut assigner = CallIds::new(CallIdRule { max_length: 20, own });
        ids.iter().map(|(id, is_own)| assigner.assign(id, *is_own).into_owned()).collect()
    }

    #[test]
    fn other_models_get_the_first_of_two_joined_ids() {
        assert_eq!(
            assigned_ids(OwnIds::Kept, &[("call_a|fc_1", false), ("call_b|fc_2", true)]),
            ["call_a", "call_b|fc_2"]
        );
        assert_eq!(
            assigned_ids(OwnIds::BeforeBar, &[("call_a|fc_1", false), ("call_b|fc_2", true)]),
            ["call_a", "call_b"]
        );
    }

    #[test]
    fn no_id_is_assigned_twice() {
        let twice = [("call_0", true), ("call_0", true), ("call_0|x", false), ("call_0_2", true)];
        assert_eq!(assigned_ids(OwnIds::Kept, &twice), ["call_0", "call_0_2", "call_0_3", "call_0_2_2"]);
        let long = [("a-name-of-20-letters", false); 2];
        assert_eq!(assigned_ids(OwnIds::Kept, &long), ["a-name-of-20-letters", "a-name-of-20-lette_2"]);
        let odd = assigned_ids(OwnIds::Kept, &[("fn.x:0", true); 2]);
        assert!(odd[0] == "fn.x:0" && is_valid(&odd[1], 20), "{odd:?}");
    }

    #[test]
    fn invalid_ids_become_valid() {
        let ids =
            assigned_ids(OwnIds::Kept, &[("", false), ("a b c d e f", false), ("much longer than twenty", false)]);
        assert_eq!(ids, ["_cbf29ce484222325", "abc_416486189856f2c6", "muc_7e68eefeaebc6e9d"]);
        assert!(ids.iter().all(|id| is_valid(id, 20)));
    }
}
