//! Readers of single fields.

use core::cell::Cell;
use std::borrow::Cow;

use super::json_text::JsonText;
use super::{Fault, Options};
use crate::json::{self, Array, Number, Object, Reader, Str, pass_array, pass_object};
use crate::request::prompt::Text;

/// One body while it is read.
pub(super) struct Scope<'c> {
    pub(super) options: &'c Options<'c>,
    fault: Cell<Option<Fault>>,
}

impl<'c> Scope<'c> {
    pub(super) fn new(options: &'c Options<'c>) -> Self {
        Self { options, fault: Cell::new(None) }
    }

    /// Notes that the body breaks a rule; the first fault counts.
    pub(super) fn fault(&self, fault: Fault) {
        let first = self.fault.take().unwrap_or(fault);
        self.fault.set(Some(first));
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    pub(super) fn text_of<'a>(&self, value: Str<'a, '_>) -> Text<'a> {
        Text::of_string(value, self.options.keep_bytes)
    }

    fn json_of<'a>(&self, value: Str<'a, '_>) -> Option<Text<'a>> {
        let mut json = JsonText::new(self.options.keep_bytes);
        json.string(&value);
        Some(json.finish()).filter(|_| !value.is_empty())
    }

    /// Reads a part of the prompt, or null for the empty text.
    pub(super) fn text<'a>(&self, rule: &'static str) -> StringField<'_, 'c, 'a, Text<'a>> {
        StringField { scope: self, rule, take: Self::text_of }
    }

    /// Reads a string and encodes it as JSON; the empty string is none.
    pub(super) fn json<'a>(&self, rule: &'static str) -> StringField<'_, 'c, 'a, Option<Text<'a>>> {
        StringField { scope: self, rule, take: Self::json_of }
    }

    /// Reads a string that is kept whole, or null for none.
    pub(super) fn name<'a>(&self, rule: &'static str) -> StringField<'_, 'c, 'a, Option<Cow<'a, str>>> {
        StringField { scope: self, rule, take: |_, value| Some(value.into_cow()) }
    }
}

/// A string, or null for the default; a value of another type breaks `rule`.
pub(super) struct StringField<'s, 'c, 'a, T> {
    pub(super) scope: &'s Scope<'c>,
    pub(super) rule: &'static str,
    pub(super) take: fn(&Scope<'c>, Str<'a, '_>) -> T,
}

impl<'a, T: Default> Reader<'a> for StringField<'_, '_, 'a, T> {
    type Value = T;

    fn other(self) -> T {
        self.scope.fault(Fault::Field(self.rule));
        T::default()
    }

    fn null(self) -> T {
        T::default()
    }

    fn string(self, value: Str<'a, '_>) -> T {
        (self.take)(self.scope, value)
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
pub(super) struct IsTrue<'s, 'c> {
    /// The body that is at fault if the value is not a boolean, for an API that refuses such a body.
    pub(super) strict: Option<&'s Scope<'c>>,
}

impl Reader<'_> for IsTrue<'_, '_> {
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

/// A number if it is an integer of at least 0.
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
            Number::Decimal(_) | Number::Float(_) => {
                let number = value.as_f64();
                (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
            }
        }
    }
}

/// The type of a JSON value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Boolean,
    Integer,
    Text,
    Array,
    Object,
}

/// A field that the rules do not use: the EPP still refuses it when it is neither null nor of this kind.
pub(super) struct Typed<'s, 'c> {
    pub(super) scope: &'s Scope<'c>,
    pub(super) kind: Kind,
    pub(super) rule: &'static str,
}

impl Typed<'_, '_> {
    fn check(self, kind: Kind) {
        if self.kind != kind {
            self.scope.fault(Fault::Field(self.rule));
        }
    }
}

impl<'a> Reader<'a> for Typed<'_, '_> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field(self.rule));
    }

    fn null(self) {}

    fn boolean(self, _: bool) {
        self.check(Kind::Boolean);
    }

    fn number(self, value: Number) {
        match value {
            Number::Decimal(_) | Number::Float(_) => self.other(),
            Number::Unsigned(_) | Number::Negative(_) => self.check(Kind::Integer),
        }
    }

    fn string(self, _: Str<'a, '_>) {
        self.check(Kind::Text);
    }

    fn array(self, array: Array<'_, 'a>) -> json::Result<()> {
        pass_array(array)?;
        self.check(Kind::Array);
        Ok(())
    }

    fn object(self, object: Object<'_, 'a>) -> json::Result<()> {
        pass_object(object)?;
        self.check(Kind::Object);
        Ok(())
    }
}
