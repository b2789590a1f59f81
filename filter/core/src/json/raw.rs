//! Values as they are spelled.

use serde::de::{Error, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::value::Read;
use super::{MOST_NESTED, Pass, Reader, element, read, value};

/// The text of the value of the member whose key was just read. `levels` is the number of arrays and objects around the value.
pub(crate) fn raw_value<'a, A: MapAccess<'a>>(object: &mut A, levels: usize) -> Result<&'a str, A::Error> {
    let text = object.next_value::<&'a RawValue>()?.get();
    // `serde_json` takes more for a raw value than for a value that is read: any depth, and numbers and escapes out of range.
    if levels + read(text, Levels).map_err(A::Error::custom)? > MOST_NESTED {
        return Err(A::Error::custom("recursion limit exceeded"));
    }
    Ok(text)
}

/// The levels of arrays and objects in each other.
struct Levels;

impl<'a> Reader<'a> for Levels {
    type Value = usize;

    fn other(self) -> usize {
        0
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<usize, A::Error> {
        let mut inner = 0;
        while let Some(levels) = element(&mut array, Self)? {
            inner = inner.max(levels);
        }
        Ok(inner + 1)
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<usize, A::Error> {
        let mut inner = 0;
        while object.next_key_seed(Read(Pass))?.is_some() {
            inner = inner.max(value(&mut object, Self)?);
        }
        Ok(inner + 1)
    }
}
