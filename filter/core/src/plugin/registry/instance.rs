//! A plugin under the name that the configuration gives it.

use xxhash_rust::xxh64::xxh64;

use super::AnyPlugin;

/// A plugin under the name the configuration gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The name it is referred to by; by default its type's.
    pub name: String,
    /// The plugin.
    pub plugin: AnyPlugin,
}

impl Instance {
    /// Under its type's name.
    pub fn unnamed(plugin: impl Into<AnyPlugin>) -> Self {
        let plugin = plugin.into();
        Self { name: plugin.type_name().to_owned(), plugin }
    }

    /// Identifies name and type together: under another name or of another type it is another instance.
    pub fn key(&self) -> u64 {
        self.seeded_key(0)
    }

    /// Identifies it where another instance has the same name and type.
    pub(crate) fn second_key(&self) -> u64 {
        self.seeded_key(1)
    }

    fn seeded_key(&self, seed: u64) -> u64 {
        xxh64(format!("{}\0{}", self.name, self.plugin.type_name()).as_bytes(), seed)
    }
}
