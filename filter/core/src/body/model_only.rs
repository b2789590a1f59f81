//! APIs with bodies of which only the model is read.

use serde::de::MapAccess;

use super::Input;
use super::field::Scope;
use crate::json::{Pass, value};
use crate::prompt::Prompt;

/// Only the model, which is read for every API.
#[derive(Default)]
pub(super) struct ModelOnly;

impl<'a> Input<'a> for ModelOnly {
    fn member<A: MapAccess<'a>>(
        &mut self,
        _name: &str,
        object: &mut A,
        _scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        value(object, Pass)
    }

    fn prompt(self, _scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        Some(Prompt::default())
    }
}
