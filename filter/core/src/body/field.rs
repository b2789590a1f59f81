//! Readers of single fields.

use core::cell::Cell;
use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use crate::json::{Number, Reader, Str, pass_array, pass_object};
use super::{Fault, Options};
use crate::prompt::Text;

/// What every reader of one body knows.
pub(super) struct Scope<'c, 'a> {
    /// The whole body.
    pub(super) text: &'a str,
    pub(super) options: &'c Options,
    fault: Cell<Option<Fault>>,
}

impl<'c, 'a> Scope<'c, 'a> {
    pub(super) fn new(text: &'a str, options: &'c Options) -> Self {
        Self { text, options, fault: Cell::new(None) }
    }

    /// Notes that the body breaks a rule; the first one counts.
    pub(super) fn fault(&self, fault: Fault) {
        let first = self.fault.take().unwrap_or(fault);
        self.fault.set(Some(first));
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    pub(super) fn text_of(&self, value: Str<'a, '_>) -> Text<'a> {
        value.into_text(self.options.keep_bytes)
    }
}

/// A string, or null for the empty one; anything else breaks `rule`.
pub(super) struct TextField<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
    pub(super) rule: &'static str,
}

impl<'a> Reader<'a> for TextField<'_, '_, 'a> {
    type Value = Text<'a>;

    fn other(self) -> Text<'a> {
        self.scope.fault(Fault::Field(self.rule));
        Text::default()
    }

    fn null(self) -> Text<'a> {
        Text::default()
    }

    fn string(self, value: Str<'a, '_>) -> Text<'a> {
        self.scope.text_of(value)
    }
}

/// A string that is kept whole, or null for none; anything else breaks `rule`.
pub(super) struct NameField<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
    pub(super) rule: &'static str,
}

impl<'a> Reader<'a> for NameField<'_, '_, 'a> {
    type Value = Option<Cow<'a, str>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field(self.rule));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        Some(value.into_cow())
    }
}

/// A string if it is one.
pub(super) struct IfString;

impl<'a> Reader<'a> for IfString {
    type Value = Option<Cow<'a, str>>;

    fn other(self) -> Self::Value {
        None
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        Some(value.into_cow())
    }
}

/// Whether the value is `true`.
pub(super) struct IsTrue<'s, 'c, 'a> {
    /// Where to note it if the value is no boolean, for an API that minds.
    pub(super) strict: Option<&'s Scope<'c, 'a>>,
}

impl Reader<'_> for IsTrue<'_, '_, '_> {
    type Value = bool;

    fn other(self) -> bool {
        if let Some(scope) = self.strict {
            scope.fault(Fault::Field("stream must be true or false"));
        }
        false
    }

    fn null(self) -> bool {
        false
    }

    fn boolean(self, value: bool) -> bool {
        value
    }
}

/// A number if it is a whole one, not below 0.
pub(super) struct IfCount;

impl Reader<'_> for IfCount {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, value: Number) -> Self::Value {
        match value {
            Number::Unsigned(count) => Some(count),
            Number::Negative(_) => None,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            Number::Float(number) => (number >= 0.0 && number.fract() == 0.0).then_some(number as u64),
        }
    }
}

/// The types a field nobody uses may still be required to have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Boolean,
    Integer,
    Text,
    Array,
    Object,
}

/// A field that is only read past, but must be null or of its kind, else it breaks `rule`.
pub(super) struct Typed<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
    pub(super) kind: Kind,
    pub(super) rule: &'static str,
}

impl Typed<'_, '_, '_> {
    fn is(self, kind: Kind) {
        if self.kind != kind {
            self.scope.fault(Fault::Field(self.rule));
        }
    }
}

impl<'a> Reader<'a> for Typed<'_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field(self.rule));
    }

    fn null(self) {}

    fn boolean(self, _: bool) {
        self.is(Kind::Boolean);
    }

    fn number(self, value: Number) {
        match value {
            Number::Float(_) => self.other(),
            Number::Unsigned(_) | Number::Negative(_) => self.is(Kind::Integer),
        }
    }

    fn string(self, _: Str<'a, '_>) {
        self.is(Kind::Text);
    }

    fn array<A: SeqAccess<'a>>(self, array: A) -> Result<(), A::Error> {
        pass_array(array)?;
        self.is(Kind::Array);
        Ok(())
    }

    fn object<A: MapAccess<'a>>(self, object: A) -> Result<(), A::Error> {
        pass_object(object)?;
        self.is(Kind::Object);
        Ok(())
    }
}
