//! Kubernetes label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::pool::Endpoint;

/// A `LabelSelector` of Kubernetes; all of its conditions have to hold, and an empty one holds for every
/// endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<LabelExpression>,
    /// Only the agent writes it: it lowers `by-label` to this condition.
    one_of: Option<OneOf>,
}

/// A label has one of these values.
///
/// Unlike the operator `In` it can hold for an endpoint without the label too, and the label and its values
/// may be any text, as the labels of an endpoints file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OneOf {
    label: String,
    values: Vec<String>,
    /// Whether it holds for an endpoint without the label.
    allows_no_label: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LabelExpression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    /// Holds for an endpoint without the label too.
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Whether the endpoint's labels meet every condition.
    pub fn matches(&self, endpoint: &Endpoint) -> bool {
        self.match_labels.iter().all(|(key, value)| endpoint.label(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|expression| expression.holds(endpoint.label(&expression.key)))
            && self.one_of.as_ref().is_none_or(|one_of| one_of.holds(endpoint.label(&one_of.label)))
    }

    /// Refuses what Kubernetes refuses: keys and values that no label can have, `In` and `NotIn` without
    /// values, `Exists` and `DoesNotExist` with values.
    pub fn check(&self) -> Result<(), String> {
        for (key, value) in &self.match_labels {
            check_key(key)
                .and_then(|()| check_value(value))
                .map_err(|problem| format!("matchLabels: {problem}"))?;
        }
        for (index, expression) in self.match_expressions.iter().enumerate() {
            expression.check().map_err(|problem| format!("matchExpressions[{index}]: {problem}"))?;
        }
        Ok(())
    }
}

impl OneOf {
    fn holds(&self, label: Option<&str>) -> bool {
        label.map_or(self.allows_no_label, |label| self.values.iter().any(|value| value == label))
    }
}

impl LabelExpression {
    fn holds(&self, label: Option<&str>) -> bool {
        let is_listed = label.is_some_and(|label| self.values.iter().any(|value| value == label));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
        }
    }

    fn check(&self) -> Result<(), String> {
        check_key(&self.key)?;
        let takes_values = matches!(self.operator, Operator::In | Operator::NotIn);
        if takes_values == self.values.is_empty() {
            let number = if takes_values { "at least one value" } else { "no values" };
            return Err(format!("operator {:?} takes {number}", self.operator));
        }
        self.values.iter().try_for_each(|value| check_value(value))
    }
}

/// A key is a name, or a DNS name, a slash and a name.
fn check_key(key: &str) -> Result<(), String> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_domain = |domain: &str| {
        let is_part = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && is_bounded_by_alphanumerics(part)
        };
        domain.len() <= 253 && domain.split('.').all(is_part)
    };
    if is_name(name) && domain.is_none_or(is_domain) {
        return Ok(());
    }
    Err(format!("{key:?} is not a label key; allowed is [DNS name/]name, the name as a value and not empty"))
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is not a label value; allowed are at most 63 letters, digits, '-', '_' and '.', beginning and ending \
         with a letter or digit"
    ))
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= 63 && name.bytes().all(is_allowed) && is_bounded_by_alphanumerics(name)
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_alphanumeric(text.as_bytes().first()) && is_alphanumeric(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;
    use serde_json::json;

    fn selector(selector: serde_json::Value) -> LabelSelector {
        serde_json::from_value(selector).unwrap()
    }

    fn matches(json: serde_json::Value) -> bool {
        let labels = [("app", "vllm"), ("llm-d.ai/role", "decode")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let endpoint = Endpoint::new("default/a".to_owned(), ([10, 0, 0, 1], 8000).into(), labels.to_vec());
        selector(json).matches(&endpoint)
    }

    #[test]
    fn every_condition_has_to_hold() {
        assert!(matches(json!({})));
        assert!(matches(json!({"matchLabels": {"app": "vllm", "llm-d.ai/role": "decode"}})));
        assert!(!matches(json!({"matchLabels": {"app": "vllm", "llm-d.ai/role": "prefill"}})));
        assert!(!matches(json!({"matchLabels": {"absent": ""}})));
        let both = |operator| {
            let expression =
                json!({"key": "llm-d.ai/role", "operator": operator, "values": ["decode", "both"]});
            json!({"matchLabels": {"app": "vllm"}, "matchExpressions": [expression]})
        };
        assert!(matches(both("In")));
        assert!(!matches(both("NotIn")));
    }

    #[test]
    fn an_absent_label_is_not_in_any_list() {
        let absent =
            |operator| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": ["x"]}]});
        assert!(!matches(absent("In")));
        assert!(matches(absent("NotIn")));
    }

    #[test]
    fn existence_is_a_condition_of_its_own() {
        let of = |key, operator| json!({"matchExpressions": [{"key": key, "operator": operator}]});
        assert!(matches(of("app", "Exists")) && !matches(of("tier", "Exists")));
        assert!(!matches(of("app", "DoesNotExist")) && matches(of("tier", "DoesNotExist")));
    }

    #[test]
    fn one_of_some_values_can_hold_without_the_label_too() {
        let one_of = |label: &str, values: &[&str], allows_no_label: bool| json!({"oneOf": {"label": label, "values": values, "allowsNoLabel": allows_no_label}});
        assert!(matches(one_of("app", &["sglang", "vllm"], false)));
        assert!(!matches(one_of("app", &["sglang"], true)));
        assert!(!matches(one_of("tier", &["gold"], false)) && matches(one_of("tier", &[], true)));
        let both = json!({"matchLabels": {"app": "sglang"}, "oneOf": one_of("tier", &[], true)["oneOf"]});
        assert!(!matches(both), "every condition has to hold");
        assert_eq!(selector(one_of("any text", &["any text"], false)).check(), Ok(()));
    }

    #[test]
    fn what_kubernetes_refuses_is_refused() {
        let refused = [
            json!({"matchLabels": {"": "x"}}),
            json!({"matchLabels": {"-a": "x"}}),
            json!({"matchLabels": {"UPPER.example/a": "x"}}),
            json!({"matchLabels": {"a": "has blank"}}),
            json!({"matchLabels": {"a": "x".repeat(64)}}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            json!({"matchExpressions": [{"key": "a/b/c", "operator": "Exists"}]}),
        ];
        for refused in refused {
            assert!(selector(refused.clone()).check().is_err(), "{refused}");
        }
        let fine = json!({"matchLabels": {"llm-d.ai/role": "", "app_1": "v1.2-x"}});
        assert_eq!(selector(fine).check(), Ok(()));
        let error = serde_json::from_value::<LabelSelector>(
            json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
        );
        assert!(error.unwrap_err().to_string().contains("DoesNotExist"));
    }
}
