//! Settings with a fixed set of values.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

/// A setting with a fixed set of values.
pub trait FixedValues: Sized {
    /// The values that the reference lists.
    const WORDS: &'static [&'static str];
    /// Parses a value.
    fn parse(word: &str) -> Option<Self>;
}

/// A parsed value of a setting with a fixed set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<'de, T: FixedValues> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordVisitor<T>(std::marker::PhantomData<T>);

        impl<T: FixedValues> Visitor<'_> for WordVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "one of {}", T::WORDS.join(", "))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
                T::parse(word.trim()).ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
            }
        }

        deserializer.deserialize_any(WordVisitor(std::marker::PhantomData)).map(Self)
    }
}

impl<T: FixedValues> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::WORDS.join("_").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": T::WORDS})
    }
}

/// Implements [`FixedValues`] for enums from a table of values.
macro_rules! words {
    ($($name:ty: $($word:literal => $value:expr),+;)+) => {
        $(impl $crate::sections::word::FixedValues for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($value),)+
                    _ => None,
                }
            }
        })+
    };
}
pub(crate) use words;
