//! `request-attribute-reporter`: a number from the usage of a response, for filters and the access log of the
//! proxy.
//!
//! Without the feature `cel` its expressions are not compiled, and it reports nothing.

#[cfg(feature = "cel")]
mod expression;

use std::sync::Arc;

use serde::Deserialize;

#[cfg(feature = "cel")]
use self::expression::Expression;
use crate::input::slot::Slot;
use crate::plugin::parameter::{allow, or_default};
use crate::plugin::{Plugin, Roles};
use crate::response::usage::Usage;

/// An expression in CEL, which is not compiled here.
#[cfg(not(feature = "cel"))]
type Expression = String;

/// The namespace of the number, unless the parameters have another one.
const NAMESPACE: &str = "envoy.lb";

/// Maximum length of the namespace and of the name of the number, in bytes.
const MAX_KEY_LENGTH: usize = 256;

/// Reports the value of an expression in CEL over the usage of each response, under a key of the proxy's
/// dynamic metadata.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "ReporterParameters")]
pub struct RequestAttributeReporter {
    /// `None`: the parameters have no attribute, which [`check`](Plugin::check) refuses.
    attribute: Option<ReportedAttribute>,
}

#[derive(Clone, Debug, PartialEq)]
struct ReportedAttribute {
    namespace: String,
    name: String,
    expression: Expression,
    /// The number is reported only if this is true; `None`: always.
    condition: Option<Expression>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ReporterParameters {
    attributes: Vec<AttributeParameters>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct AttributeParameters {
    key: KeyParameters,
    expression: String,
    condition: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct KeyParameters {
    namespace: String,
    name: String,
}

impl TryFrom<ReporterParameters> for RequestAttributeReporter {
    type Error = String;

    fn try_from(ReporterParameters { attributes }: ReporterParameters) -> Result<Self, String> {
        let count = attributes.len();
        let mut attributes = attributes.into_iter();
        let attribute = attributes.next().map(ReportedAttribute::try_from).transpose()?;
        match attributes.next() {
            None => Ok(Self { attribute }),
            Some(_) => Err(format!("attributes must contain exactly one entry, and there are {count}")),
        }
    }
}

impl TryFrom<AttributeParameters> for ReportedAttribute {
    type Error = String;

    fn try_from(given: AttributeParameters) -> Result<Self, String> {
        let AttributeParameters { key: KeyParameters { namespace, name }, expression, condition } = given;
        let required = [("key.name", &name), ("expression", &expression)];
        if let Some((field, _)) = required.into_iter().find(|(_, text)| text.is_empty()) {
            return Err(format!("attributes[0].{field} cannot be empty"));
        }
        for (field, text) in [("namespace", &namespace), ("name", &name)] {
            let length = text.len();
            let field = format!("length of attributes[0].key.{field}");
            allow(length <= MAX_KEY_LENGTH, &field, length, &format!("at most {MAX_KEY_LENGTH} bytes"))?;
        }
        let condition = (!condition.is_empty()).then(|| compile("condition", &condition)).transpose()?;
        Ok(Self {
            namespace: or_default(&namespace, NAMESPACE).to_owned(),
            name,
            expression: compile("expression", &expression)?,
            condition,
        })
    }
}

#[cfg(feature = "cel")]
fn compile(field: &str, text: &str) -> Result<Expression, String> {
    Expression::compile(text).map_err(|problem| format!("attributes[0].{field} {text:?}: {problem}"))
}

#[cfg(not(feature = "cel"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
fn compile(_: &str, text: &str) -> Result<Expression, String> {
    Ok(text.to_owned())
}

impl Plugin for RequestAttributeReporter {
    fn check(&self) -> Result<(), String> {
        let is_given = self.attribute.is_some();
        is_given.then_some(()).ok_or_else(|| "attributes must contain exactly one entry".to_owned())
    }

    fn roles(self: Arc<Self>) -> Roles {
        let reporter = self.attribute.is_some() && cfg!(feature = "cel");
        Roles { reporter: reporter.then_some(self), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        let wasm = "the number has no effect with the wasm filter, which cannot write dynamic metadata";
        let failure = self.failure();
        let failure = failure.map(|problem| format!("the expressions fail with a usual response: {problem}"));
        core::iter::once(wasm.to_owned()).chain(failure).collect()
    }
}

/// A number for a proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttributeReport<'a> {
    /// The namespace of the proxy's dynamic metadata.
    pub namespace: &'a str,
    /// The key in the namespace.
    pub name: &'a str,
    /// The number, without its fraction.
    pub value: i64,
}

/// A response whose number is not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReported {
    /// The condition is false, or not a boolean.
    Unmet,
    /// The number is 0 or -1, or the expressions are not compiled.
    Nothing,
    /// An expression cannot be evaluated with the usage, or the result is not a number.
    Failed(String),
}

#[cfg(feature = "cel")]
impl RequestAttributeReporter {
    /// The number for a response with this usage.
    pub fn report(&self, usage: &Usage) -> Result<AttributeReport<'_>, NotReported> {
        let Some(ReportedAttribute { namespace, name, expression, condition }) = &self.attribute else {
            return Err(NotReported::Nothing);
        };
        if let Some(condition) = condition
            && !condition.is_true(usage).map_err(NotReported::Failed)?
        {
            return Err(NotReported::Unmet);
        }
        let value = expression.number(usage).map_err(NotReported::Failed)?;
        if value == 0 || value == -1 {
            return Err(NotReported::Nothing);
        }
        Ok(AttributeReport { namespace, name, value })
    }

    /// Why the expressions fail with the usage of a usual response; `None`: they do not.
    fn failure(&self) -> Option<String> {
        let usual = Usage { input: 100, output: 10, total: 110, cached: Some(64), beyond_input: 0 };
        match self.report(&usual) {
            Err(NotReported::Failed(problem)) => Some(problem),
            Ok(_) | Err(NotReported::Unmet | NotReported::Nothing) => None,
        }
    }
}

#[cfg(not(feature = "cel"))]
impl RequestAttributeReporter {
    /// Reports nothing, because the expressions are not compiled.
    pub fn report(&self, _: &Usage) -> Result<AttributeReport<'_>, NotReported> {
        Err(NotReported::Nothing)
    }

    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn failure(&self) -> Option<String> {
        None
    }
}

/// A reporter of a pipeline.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The instance's name in the configuration.
    pub name: Arc<str>,
    /// The plugin.
    pub plugin: Arc<RequestAttributeReporter>,
}

impl From<Slot<RequestAttributeReporter>> for Reporter {
    fn from(Slot { name, plugin, .. }: Slot<RequestAttributeReporter>) -> Self {
        Self { name, plugin }
    }
}

#[cfg(test)]
#[cfg(feature = "cel")]
mod tests {
    use super::*;
    use crate::plugin::registry::read_plugin;
    use crate::test;
    use serde_json::{Value, json};

    fn reporter(expression: &str, condition: &str) -> RequestAttributeReporter {
        let attribute = json!({"key": {"name": "cost"}, "expression": expression, "condition": condition});
        serde_json::from_value(json!({"attributes": [attribute]})).unwrap()
    }

    const USAGE: Usage = Usage { input: 32, output: 10, total: 42, cached: None, beyond_input: 0 };

    fn value(expression: &str, condition: &str) -> Result<i64, NotReported> {
        reporter(expression, condition).report(&USAGE).map(|report| report.value)
    }

    #[test]
    fn a_number_is_cut_to_a_whole_one() {
        assert_eq!(value("usage.prompt_tokens + usage.completion_tokens", ""), Ok(42));
        assert_eq!(value("usage.total_tokens / 4.0", ""), Ok(10));
        assert_eq!(value("0.0 - usage.total_tokens / 4.0", ""), Ok(-10));
        assert_eq!(value("7", ""), Ok(7));
        assert_eq!(value("int(usage.prompt_tokens) % 5", ""), Ok(2));
    }

    #[test]
    fn zero_and_minus_one_are_not_reported() {
        for expression in ["0", "0.9", "-1", "-1.5", "usage.prompt_tokens - 32.0"] {
            assert_eq!(value(expression, ""), Err(NotReported::Nothing), "{expression}");
        }
        assert_eq!(value("-2", ""), Ok(-2));
    }

    #[test]
    fn a_condition_that_is_false_or_not_a_boolean_reports_nothing() {
        assert_eq!(value("1", "usage.completion_tokens > 9"), Ok(1));
        for condition in ["usage.completion_tokens > 10", "usage.completion_tokens", "'true'"] {
            assert_eq!(value("1", condition), Err(NotReported::Unmet), "{condition}");
        }
    }

    #[test]
    fn an_expression_that_fails_or_is_not_a_number_reports_nothing() {
        let failing = ["usage.cost", "'7'", "true", "usage.prompt_tokens * 2", "1.0 / 0.0", "1e300", "1 / 0"];
        for expression in failing {
            assert!(matches!(value(expression, ""), Err(NotReported::Failed(_))), "{expression}");
            assert_eq!(reporter(expression, "").warnings().len(), 2, "{expression}");
        }
        assert!(matches!(value("1", "usage.cost > 1.0"), Err(NotReported::Failed(_))));
        assert_eq!(reporter("usage.prompt_tokens * 2.0", "").warnings().len(), 1);
    }

    #[test]
    fn cached_tokens_are_there_only_if_the_server_reports_them() {
        let reporter = reporter(
            "has(usage.prompt_tokens_details) ? usage.prompt_tokens_details.cached_tokens : usage.prompt_tokens",
            "has(usage.prompt_tokens) && has(usage.total_tokens)",
        );
        let of = |cached| reporter.report(&Usage { cached, ..USAGE }).unwrap().value;
        assert_eq!([of(None), of(Some(16))], [32, 16]);
        // Unlike in a response, the fields of counts are always there.
        assert_eq!(reporter.report(&Usage::default()), Err(NotReported::Nothing));
    }

    #[test]
    fn the_number_has_a_key_in_a_namespace() {
        let with_key = |key: Value| {
            let attribute = json!({"key": key, "expression": "1"});
            let reporter: RequestAttributeReporter =
                serde_json::from_value(json!({"attributes": [attribute]})).unwrap();
            let AttributeReport { namespace, name, .. } = reporter.report(&USAGE).unwrap();
            (namespace.to_owned(), name.to_owned())
        };
        assert_eq!(with_key(json!({"name": "x"})), ("envoy.lb".to_owned(), "x".to_owned()));
        let own = json!({"namespace": "billing", "name": "x"});
        assert_eq!(with_key(own), ("billing".to_owned(), "x".to_owned()));
    }

    #[test]
    fn parameters_without_exactly_one_whole_attribute_are_refused() {
        let whole = json!({"key": {"name": "x"}, "expression": "1"});
        let with = |field: &str, value: Value| {
            let mut attribute = whole.clone();
            attribute[field] = value;
            json!([attribute])
        };
        for (attributes, problem) in [
            (json!([]), "attributes must contain exactly one entry"),
            (json!([whole, whole]), "attributes must contain exactly one entry, and there are 2"),
            (with("key", json!({"namespace": "n"})), "attributes[0].key.name cannot be empty"),
            (with("expression", json!("")), "attributes[0].expression cannot be empty"),
            (with("expression", json!("1 +")), "attributes[0].expression \"1 +\": failed to compile"),
            (with("condition", json!("1 >")), "attributes[0].condition \"1 >\": failed to compile"),
            (with("key", json!({"name": "x".repeat(257)})), "length of attributes[0].key.name is 257"),
            (with("unit", json!("tokens")), "unknown field `unit`"),
        ] {
            let read =
                read_plugin("request-attribute-reporter", &json!({"attributes": attributes}).to_string());
            let error = read.map_err(|error| error.to_string()).and_then(|plugin| plugin.check());
            let error = error.unwrap_err();
            assert!(error.contains(problem), "{attributes}: {error}");
        }
    }
}
