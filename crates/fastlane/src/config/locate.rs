//! Line and column of a value in a JSON text, for errors that are found after parsing.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Returns line and column, counted from 1, of the value at `path` (keys joined by dots), or of its
/// nearest parent that exists.
pub(super) fn locate(text: &str, path: &str) -> Option<(usize, usize)> {
    let keys: Vec<&str> = path.split('.').collect();
    (1..=keys.len()).rev().find_map(|depth| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        // The walk ends with an error at the value, and the error carries line and column.
        let error = Walk(&keys[..depth]).deserialize(&mut deserializer).err()?;
        error.to_string().starts_with(FOUND).then(|| (error.line(), error.column()))
    })
}

const FOUND: &str = "the value is here";

/// Walk along a path of keys.
struct Walk<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.0 {
                [last] if *last == key => return Err(A::Error::custom(FOUND)),
                [first, rest @ ..] if *first == key => map.next_value_seed(Walk(rest))?,
                _ => map.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"a\": { \"x\": [1, {}] },\n  \"b\": {\n    \"c\": 7\n  }\n}\n";

    #[test]
    fn a_value_is_found_by_its_keys() {
        assert_eq!(locate(TEXT, "b.c").map(|(line, _)| line), Some(4));
        assert_eq!(locate(TEXT, "b").map(|(line, _)| line), Some(3));
    }

    #[test]
    fn what_is_not_there_is_placed_at_its_parent() {
        assert_eq!(locate(TEXT, "b.d.e"), locate(TEXT, "b"));
        assert_eq!(locate(TEXT, "z"), None);
        assert_eq!(locate("not json", "a"), None);
    }
}
