//! Writes the model and the priority of a request into its body. Other bytes stay as they are: the EPP
//! encodes the whole body again instead, with sorted members and rounded numbers.

use core::ops::Range;

use crate::json::quoted;
use crate::pool::Endpoint;

/// A top-level member of a JSON body, with a new value.
#[derive(Clone, Debug)]
pub struct Member {
    name: &'static str,
    /// The value in the body. `None`: a member is added at the end, because of several with one name the last
    /// counts.
    span: Option<Range<usize>>,
    value: Vec<u8>,
}

impl Member {
    /// The model. `span` is the [`model_span`](crate::request::body::Body::model_span) of the body.
    pub fn model(span: Option<Range<usize>>, model: &str) -> Self {
        Self { name: "model", span, value: quoted(model) }
    }

    /// The priority, for the server of an endpoint. `span` is the
    /// [`priority_span`](crate::request::body::Body::priority_span) of the body. vLLM serves lower numbers
    /// first, other servers, as an `InferenceObjective` means it, higher ones. As for metrics, a server
    /// without the label of its engine counts as vLLM.
    pub fn priority(span: Option<Range<usize>>, priority: i32, endpoint: &Endpoint) -> Self {
        let is_vllm = endpoint.label(ENGINE).is_none_or(|engine| engine == "vllm");
        let priority = if is_vllm { -i64::from(priority) } else { i64::from(priority) };
        Self { name: "priority", span, value: priority.to_string().into_bytes() }
    }
}

/// The label with the engine of a server.
const ENGINE: &str = "llm-d.ai/engine-type";

/// The form with `model` as the value of its field, which is at `span`. Without a span the form has no such
/// field, and stays as it is.
pub fn name_model_in_form(form: &[u8], span: Option<Range<usize>>, model: &str) -> Vec<u8> {
    let replace =
        |Range { start, end }| Some([form.get(..start)?, model.as_bytes(), form.get(end..)?].concat());
    span.and_then(replace).unwrap_or_else(|| form.to_vec())
}

/// The JSON body with these members, whose spans do not overlap.
pub fn with_members(body: &[u8], mut members: Vec<Member>) -> Vec<u8> {
    let added: usize = members.iter().map(|member| member.name.len() + member.value.len() + 4).sum();
    let mut written = Vec::with_capacity(body.len() + added);
    members.sort_unstable_by_key(|member| member.span.as_ref().map_or(usize::MAX, |span| span.start));
    let mut rest = body;
    let at_end = members.iter().position(|member| member.span.is_none()).unwrap_or(members.len());
    let (replaced, added) = members.split_at(at_end);
    for Member { span, value, .. } in replaced {
        let offset = body.len() - rest.len();
        let parts =
            span.as_ref().and_then(|span| Some((body.get(offset..span.start)?, body.get(span.end..)?)));
        if let Some((before, after)) = parts {
            written.extend_from_slice(before);
            written.extend_from_slice(value);
            rest = after;
        }
    }
    if added.is_empty() {
        written.extend_from_slice(rest);
        return written;
    }
    let end = rest.iter().rposition(|&byte| byte == b'}');
    // A body without members is null, which the EPP reads like an object.
    let (before, after) = end.and_then(|end| rest.split_at_checked(end)).unwrap_or((b"{", b"}"));
    written.extend_from_slice(before);
    for Member { name, value, .. } in added {
        if written.iter().rfind(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            written.push(b',');
        }
        written.push(b'"');
        written.extend_from_slice(name.as_bytes());
        written.extend_from_slice(b"\":");
        written.extend_from_slice(value);
    }
    written.extend_from_slice(after);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn endpoint(labels: &[(&str, &str)]) -> Endpoint {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Endpoint::new("e".to_owned(), ([10, 0, 0, 1], 8000).into(), labels.collect())
    }

    #[test]
    fn higher_priorities_are_lower_numbers_for_vllm_alone() {
        let written = |labels: &[(&str, &str)], priority| {
            let member = Member::priority(None, priority, &endpoint(labels));
            String::from_utf8(with_members(b"{}", vec![member])).unwrap()
        };
        assert_eq!(written(&[(ENGINE, "vllm")], 7), r#"{"priority":-7}"#);
        assert_eq!(written(&[], i32::MIN), r#"{"priority":2147483648}"#);
        assert_eq!(written(&[(ENGINE, "sglang")], -7), r#"{"priority":-7}"#);
        assert_eq!(written(&[], 0), r#"{"priority":0}"#);
    }

    #[test]
    fn members_are_replaced_in_any_order_and_missing_ones_are_added_at_the_end() {
        let sglang = endpoint(&[(ENGINE, "sglang")]);
        let both = |body: &str, model: Option<Range<usize>>, priority: Option<Range<usize>>| {
            let members = vec![Member::priority(priority, 3, &sglang), Member::model(model, "new")];
            String::from_utf8(with_members(body.as_bytes(), members)).unwrap()
        };
        let body = r#"{"model":"m", "priority" : 9 }"#;
        assert_eq!(both(body, Some(9..12), Some(27..28)), r#"{"model":"new", "priority" : 3 }"#);
        let body = r#"{"priority":"9","model":"m"}"#;
        assert_eq!(both(body, Some(24..27), Some(12..15)), r#"{"priority":3,"model":"new"}"#);
        assert_eq!(both(r#"{"model":"m"}"#, Some(9..12), None), r#"{"model":"new","priority":3}"#);
        assert_eq!(both("{}", None, None), r#"{"priority":3,"model":"new"}"#);
        assert_eq!(both(" null", None, None), r#"{"priority":3,"model":"new"}"#);
    }
}
