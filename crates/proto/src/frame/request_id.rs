//! Extracts the id of a request that is not valid JSON as a whole, so that the error reaches the waiting caller.

use std::{cell::RefCell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

/// Reads the member `id` of the outermost object, as far as the text can be parsed. Other members are skipped without
/// being decoded, so a lone surrogate or deep nesting in them does not matter.
pub(super) fn find(bytes: &[u8]) -> Option<Value> {
    let found = RefCell::new(None);
    // Whether the remainder can be parsed is irrelevant here.
    serde_json::Deserializer::from_slice(bytes).deserialize_map(Members(&found)).ok();
    found.into_inner()
}

/// Visits the members of an object. The id is stored outside, because it must survive an error in a later member.
struct Members<'a>(&'a RefCell<Option<Value>>);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Name>()? {
            match name {
                Name::Id => *self.0.borrow_mut() = Some(members.next_value::<Value>()?),
                Name::Other => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Name of an object member: `id`, or any other.
enum Name {
    Id,
    Other,
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As bytes, because a name may contain a lone surrogate as well.
        deserializer.deserialize_bytes(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Name, E> {
        Ok(if name == b"id" { Name::Id } else { Name::Other })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_is_found_although_other_members_are_malformed() {
        for (text, id) in [
            (r#"{"type":"req","id":"a","method":"m","params":{"text":"\ud800"}}"#, Some(json!("a"))),
            (r#"{"params":{"text":"\udc00 \ud800"},"id":"b"}"#, Some(json!("b"))),
            (r#"{"\ud800":1,"id":"c"}"#, Some(json!("c"))),
            (r#"{"id":7,"method":"#, Some(json!(7))),
            (r#"{"id":"d","id":"e",]"#, Some(json!("e"))),
            // The id of another object.
            (r#"{"params":{"id":"f"},"#, None),
            (r#"[{"id":"g"}"#, None),
            (r#"{"id":"\ud800"}"#, None),
            ("hello there", None),
            ("", None),
        ] {
            assert_eq!(find(text.as_bytes()), id, "{text}");
        }
        let deep = format!(r#"{{"params":{}{},"id":"h"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(find(deep.as_bytes()), Some(json!("h")));
        assert_eq!(find(br#"{"x":"#), None);
        assert_eq!(find(b"{\"id\":\"i\",\"x\":\"\xff\"}"), Some(json!("i")));
    }
}
