//! APIs with bodies of which only the model is read.

use serde::de::MapAccess;

use crate::json::{Pass, value};
use crate::request::body::Input;
use crate::request::body::field::Scope;
use crate::request::prompt::Prompt;

/// Only the model, which is read for every API.
#[derive(Default)]
pub(in crate::request::body) struct ModelOnly;

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
