//! Properties of a template's source.

use std::borrow::Cow;

/// How a template reads the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentFormat {
    /// As a string: vLLM joins the texts of several parts by line ends.
    String,
    /// As a list of parts: vLLM makes one of a string.
    Parts,
}

impl ContentFormat {
    /// The format, as vLLM finds it: a list if the template has a loop over the content of a message.
    pub(crate) fn of(template: &str) -> Self {
        let mut loops = tags(template).filter_map(|tag| tag.text.strip_prefix("for ")?.split_once(" in "));
        let messages: Vec<&str> = loops
            .clone()
            .filter(|(_, over)| {
                over.trim_start().starts_with("messages") || over.trim_start().starts_with("loop_messages")
            })
            .map(|(variable, _)| variable.trim())
            .collect();
        let is_over_content = |over: &str| {
            let over = over.trim();
            messages.iter().any(|message| {
                let Some(member) = over.strip_prefix(message) else { return false };
                [".content", "['content']", "[\"content\"]"].iter().any(|content| {
                    let end = member.strip_prefix(content);
                    end.is_some_and(|end| {
                        !end.starts_with(|next: char| next.is_alphanumeric() || "_.(".contains(next))
                    })
                })
            })
        };
        if loops.any(|(_, over)| is_over_content(over)) { Self::Parts } else { Self::String }
    }
}

/// The template without the tags of transformers' extension, which mark what a model has generated and print nothing.
pub(crate) fn without_extensions(template: &str) -> String {
    let mut source = Cow::Borrowed(template);
    let marks: Vec<_> =
        tags(template).filter(|tag| ["generation", "endgeneration"].contains(&tag.text)).collect();
    // From the end, so that the offsets of the others stay.
    for tag in marks.iter().rev() {
        let replacement = if tag.text == "generation" { "if true" } else { "endif" };
        source.to_mut().replace_range(tag.at..tag.at + tag.text.len(), replacement);
    }
    source.into_owned()
}

/// The text of a tag, without its delimiters and blanks.
#[derive(Clone, Copy)]
struct Tag<'a> {
    at: usize,
    text: &'a str,
}

/// The `{% … %}` tags of a template.
fn tags(template: &str) -> impl Iterator<Item = Tag<'_>> + Clone {
    let mut from = 0;
    core::iter::from_fn(move || {
        let start = from + template.get(from..)?.find("{%")? + 2;
        let end = start + template.get(start..)?.find("%}")?;
        from = end + 2;
        let inner = template.get(start..end)?;
        let text = inner.trim_start_matches(['-', '+']).trim_start();
        let at = end - text.len();
        Some(Tag { at, text: text.trim_end_matches(['-', '+']).trim_end() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_over_the_content_of_a_message_reads_parts() {
        for (template, expected) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", ContentFormat::String),
            (
                "{%- for m in messages -%}{%- for c in m['content'] -%}{% endfor %}{% endfor %}",
                ContentFormat::Parts,
            ),
            (
                "{% for m in messages[1:] %}{% for c in m.content if c.type == 'text' %}{% endfor %}{% endfor %}",
                ContentFormat::Parts,
            ),
            (
                "{% for m in messages %}{% for c in m.content | reverse %}{% endfor %}{% endfor %}",
                ContentFormat::Parts,
            ),
            (
                "{% for m in messages %}{% for c in m.contents %}{% endfor %}{% endfor %}",
                ContentFormat::String,
            ),
            (
                "{% for m in messages %}{% for c in m.content.split('x') %}{% endfor %}{% endfor %}",
                ContentFormat::String,
            ),
            (
                "{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}",
                ContentFormat::String,
            ),
            (
                "{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}",
                ContentFormat::String,
            ),
            ("{% for", ContentFormat::String),
            ("", ContentFormat::String),
        ] {
            assert_eq!(ContentFormat::of(template), expected, "{template}");
        }
    }

    #[test]
    fn marks_of_generated_text_are_left_out() {
        assert_eq!(
            without_extensions("a{%- generation -%}b{% endgeneration %}{{ generation }}"),
            "a{%- if true -%}b{% endif %}{{ generation }}"
        );
    }
}
